//! What happens on one node: processes begin, compute and end; the node counts its load, looks where to send what, and minds the other
//! side of each move.

use crate::machine::State;
use crate::moves::{Deputy, Step, What};
use crate::node::Told;
use crate::queue::MS;
use crate::world::{End, Event, Message, World};
use pando_balance::{Process, Why, place, spread, usher};
use rand::RngExt;
use std::collections::BTreeSet;

impl World {
    /// Brings a node's processes up to now.
    pub(crate) fn fresh(&mut self, me: u32) {
        let now = self.queue.now();
        self.nodes[me as usize].machine.pass(now);
        for task in self.nodes[me as usize].machine.done() {
            self.ends(me, task);
        }
        self.plan(me);
    }

    /// After a change of what is there.
    pub(crate) fn plan(&mut self, me: u32) {
        let node = &mut self.nodes[me as usize];
        node.work_us = u64::MAX;
        if let Some(at) = node.machine.plan() {
            node.work_us = at;
            self.queue.at(at, Event::Work { node: me, at });
        }
    }

    fn ends(&mut self, me: u32, task: u32) {
        let now = self.queue.now();
        let Some(body) = self.nodes[me as usize].machine.bodies.get(&task) else { return };
        let (home, attempt) = (body.home, body.came_by);
        self.nodes[me as usize].ended.insert(task, now);
        self.take(me, task);
        self.tasks[task as usize].end.get_or_insert((now, End::Done));
        self.send(me, home, None, Message::Step(Step { task, attempt, what: What::Ended }));
    }

    /// A copy begins to compute, or stops.
    pub(crate) fn set_state(&mut self, me: u32, task: u32, state: State) {
        let now = self.queue.now();
        let node = &mut self.nodes[me as usize];
        node.machine.pass(now);
        let Some(body) = node.machine.bodies.get_mut(&task) else { return };
        let (before, after) = (body.runs(), state == State::Runs);
        let (done, home) = (body.done_ms, body.home);
        body.state = state;
        let truth = &mut self.tasks[task as usize];
        match (before, after) {
            (false, true) => {
                node.load.shift(1000);
                truth.runs += 1;
                let (runs, seen) = (truth.runs, truth.done_ms);
                if runs > 1 {
                    self.broken(format!("process {task} of node {home} computes in {runs} places, one is node {me}"));
                }
                if done < seen - 1.0 {
                    self.broken(format!(
                        "process {task} goes on at node {me} from {done} ms of work, it had done {seen}"
                    ));
                }
            }
            (true, false) => {
                node.load.shift(-1000);
                truth.runs -= 1;
                truth.done_ms = truth.done_ms.max(done);
            }
            _ => {}
        }
        self.plan(me);
    }

    /// Takes a copy away.
    pub(crate) fn remove(&mut self, me: u32, task: u32) {
        self.take(me, task);
        self.plan(me);
    }

    fn take(&mut self, me: u32, task: u32) {
        let now = self.queue.now();
        let node = &mut self.nodes[me as usize];
        node.machine.pass(now);
        let Some(body) = node.machine.bodies.remove(&task) else { return };
        if body.runs() {
            node.load.shift(-1000);
            let truth = &mut self.tasks[task as usize];
            truth.runs -= 1;
            truth.done_ms = truth.done_ms.max(body.done_ms);
        }
    }

    /// All copies of a node go with it.
    pub(crate) fn clear(&mut self, me: u32) {
        let all: Vec<u32> = self.nodes[me as usize].machine.bodies.keys().copied().collect();
        for task in all {
            self.take(me, task);
        }
        self.plan(me);
    }

    /// A process begins at home.
    pub(crate) fn begins(&mut self, task: u32) {
        let now = self.queue.now();
        let home = self.tasks[task as usize].home;
        if !self.nodes[home as usize].up {
            self.tasks[task as usize].end = Some((now, End::Stopped));
            return;
        }
        self.fresh(home);
        let (life, body) = (self.nodes[home as usize].life, self.body(task));
        let node = &mut self.nodes[home as usize];
        node.machine.bodies.insert(task, body);
        node.deputies.insert(task, Deputy::new(home, life, now));
        self.set_state(home, task, State::Runs);
        if self.settings.places {
            self.first(home, task);
        }
    }

    /// First placement.
    fn first(&mut self, home: u32, task: u32) {
        let (now, oldest) = (self.queue.now(), self.settings.balance.oldest_ms);
        let node = &self.nodes[home as usize];
        let tasks = &self.tasks;
        let all = node.processes(home, now, |t| tasks[t as usize].wish.clone());
        let Some(process) = all.iter().find(|p| p.pid == task) else { return };
        let here = node.load().with_demand(-1000);
        let mut others = node.others(now, oldest);
        let before = others.clone();
        let placed = place((&node.name, &here), process, &mut others, &self.settings.balance);
        self.note(home, &before, &others);
        if placed.node != self.nodes[home as usize].name {
            let rate = |v: &pando_balance::Vector| pando_balance::rate(&v.with_demand(1000));
            let why = Why::Sooner { here: rate(&here), there: 1.0, percent: 0 };
            let process = (process.home.clone(), task);
            self.decided(home, &pando_balance::Move { process, to: placed.node, why });
        }
    }

    /// A process is ended.
    pub(crate) fn stops(&mut self, task: u32) {
        let now = self.queue.now();
        self.tasks[task as usize].end.get_or_insert((now, End::Stopped));
        let home = self.tasks[task as usize].home;
        self.nodes[home as usize].deputies.remove(&task);
        let has = |n: &&u32| self.nodes[**n as usize].machine.bodies.contains_key(&task);
        let all: Vec<u32> = (0..self.nodes.len() as u32).collect();
        for me in all.iter().filter(has).copied().collect::<Vec<_>>() {
            self.remove(me, task);
        }
    }

    /// It has arrived and runs: the books, and no ping-pong.
    pub(crate) fn arrived(&mut self, me: u32, task: u32) {
        let (now, settings) = (self.queue.now(), &self.settings.balance);
        let Some(body) = self.nodes[me as usize].machine.bodies.get(&task) else { return };
        let (home, left) = (body.home, body.left);
        let why = self.nodes[home as usize].deputies.get(&task).and_then(|d| d.why.clone());
        self.tally.moves += 1;
        if matches!(why, Some(Why::Memory { .. })) {
            self.tally.ushered += 1;
        }
        let truth = &mut self.tasks[task as usize];
        truth.moves += 1;
        let sooner = me != home && matches!(why, Some(Why::Sooner { .. }));
        if !sooner {
            // What it is moved for then has nothing to do with where it was.
            truth.history.clear();
        }
        truth.history.extend(left);
        let back = truth.history.iter().rev().find(|(node, _)| *node == me).map(|(_, at)| (now - at) / MS);
        if let Some(ago) = back
            && ago < settings.no_return_ms
        {
            let history = truth.history.clone();
            self.broken(format!("process {task} came back to node {me} {ago} ms after it left there: {history:?}"));
        }
    }

    /// Tells others from now on how busy this node is.
    pub(crate) fn told(&mut self, me: u32) {
        let true_us = self.queue.now();
        let node = &mut self.nodes[me as usize];
        let load = node.load();
        if let Some(gossip) = &mut node.gossip {
            gossip.set_load(Told { load, true_us });
        }
    }

    /// Counts, tells, and minds who is lost.
    pub(crate) fn feel(&mut self, me: u32) {
        if self.nodes[me as usize].stalled_us > self.queue.now() {
            return;
        }
        let now = self.queue.now();
        self.fresh(me);
        self.nodes[me as usize].count(now);
        self.told(me);
        self.mind_guests(me);
        self.mind_deputies(me);
        self.mind_promises(me);
        let lost_after = self.settings.lost_after_us;
        self.nodes[me as usize].ended.retain(|_, at| now - *at <= lost_after);
        let ended: Vec<u32> = self.nodes[me as usize].ended.keys().copied().collect();
        for task in ended {
            let home = self.tasks[task as usize].home;
            self.send(me, home, None, Message::Step(Step { task, attempt: 0, what: What::Ended }));
        }
        self.rejoin(me);
        let here = self.nodes[me as usize].load();
        if pando_balance::need(&here, &self.settings.balance) > 0 {
            self.look(me);
        }
    }

    /// Can it hear that node in that life? `None`: no; else whether it is still that life.
    fn hears(&self, me: u32, other: u32, life: u32) -> Option<bool> {
        let node = &self.nodes[other as usize];
        let heard = node.up && node.stalled_us <= self.queue.now() && self.net.joined(me, other);
        heard.then_some(node.life == life)
    }

    fn mind_guests(&mut self, me: u32) {
        let (now, lost_after) = (self.queue.now(), self.settings.lost_after_us);
        let mut gone = Vec::new();
        let guests: Vec<(u32, u32, u32, u64)> =
            self.nodes[me as usize].machine.bodies.iter().map(|(t, b)| (*t, b.home, b.home_life, b.heard_us)).collect();
        for (task, home, life, heard) in guests {
            let concerns = |d: &Deputy| d.concerns(me);
            match self.hears(me, home, life) {
                Some(true) if self.nodes[home as usize].deputies.get(&task).is_some_and(concerns) => {
                    if let Some(body) = self.nodes[me as usize].machine.bodies.get_mut(&task) {
                        body.heard_us = now;
                    }
                }
                Some(_) => gone.push(task),
                None if now - heard > lost_after => gone.push(task),
                None => {}
            }
        }
        for task in gone {
            self.remove(me, task);
        }
    }

    fn mind_deputies(&mut self, me: u32) {
        let (now, lost_after) = (self.queue.now(), self.settings.lost_after_us);
        let all: Vec<u32> = self.nodes[me as usize].deputies.keys().copied().collect();
        for task in all {
            let Some(d) = self.nodes[me as usize].deputies.get(&task).cloned() else { continue };
            if d.place == me || matches!(d.phase, crate::moves::Phase::Going { .. }) {
                continue;
            }
            let place = &self.nodes[d.place as usize];
            let there = place.machine.bodies.contains_key(&task) || place.ended.contains_key(&task);
            match self.hears(me, d.place, d.place_life) {
                Some(true) if there => {
                    if let Some(d) = self.nodes[me as usize].deputies.get_mut(&task) {
                        d.heard_us = now;
                    }
                }
                Some(true) => self.lose(me, task, "the node where it was has ended it"),
                Some(false) => self.lose(me, task, "the node where it was began a new life"),
                None if now - d.heard_us > lost_after => self.lose(me, task, "the node where it was is not heard"),
                None => {}
            }
        }
    }

    /// What was promised to one that will not come.
    fn mind_promises(&mut self, me: u32) {
        let (now, lost_after) = (self.queue.now(), self.settings.lost_after_us);
        let mut kept = std::mem::take(&mut self.nodes[me as usize].promises);
        kept.retain(|task, p| match self.hears(me, p.home, p.home_life) {
            Some(true) => {
                p.heard_us = now;
                let deputy = self.nodes[p.home as usize].deputies.get(task);
                deputy.is_some_and(|d| d.attempt == p.attempt && d.concerns(me))
            }
            Some(false) => false,
            None => now - p.heard_us <= lost_after,
        });
        self.nodes[me as usize].promises = kept;
    }

    /// Who is alone asks again to be let in, as the daemon does.
    fn rejoin(&mut self, me: u32) {
        let now = self.queue.now();
        if self.settings.sample.is_some() || self.nodes.len() < 2 {
            return;
        }
        let to = self.rng.random_range(0..self.nodes.len() as u32);
        let node = &mut self.nodes[me as usize];
        let local = node.clock.ms(now);
        if let Some(gossip) = &mut node.gossip
            && gossip.live() == 0
            && to != me
        {
            let peer = crate::node::Peer { node: to, life: 0, again: 0 };
            let effects = gossip.join(local, vec![peer]);
            self.effects(me, effects);
        }
    }

    /// The balancer's look.
    pub(crate) fn look(&mut self, me: u32) {
        let now = self.queue.now();
        if !self.settings.moves || self.nodes[me as usize].stalled_us > now {
            return;
        }
        if self.nodes[me as usize].machine.bodies.is_empty() {
            return;
        }
        self.fresh(me);
        self.nodes[me as usize].count(now);
        let settings = self.settings.balance.clone();
        let chance = self.nodes[me as usize].rng.random();
        let (node, tasks) = (&self.nodes[me as usize], &self.tasks);
        let mut all = node.processes(me, now, |t| tasks[t as usize].wish.clone());
        if all.is_empty() {
            return;
        }
        let here = node.load();
        let mut others = node.others(now, settings.oldest_ms);
        let before = others.clone();
        let me_named = node.name.clone();
        self.check_ages(me);
        let mut moves = usher((&me_named, &here), 0, &all, &mut others, &settings);
        let ushered: BTreeSet<u32> = moves.iter().map(|m| m.process.1).collect();
        all.retain(|p: &Process| !ushered.contains(&p.pid));
        moves.extend(spread((&me_named, &here), &all, &mut others, &settings, chance).0);
        self.note(me, &before, &others);
        for m in &moves {
            self.decided(me, m);
        }
    }

    /// What has been sent somewhere is noted there until that node is heard of again.
    fn note(&mut self, me: u32, before: &[pando_balance::Other], after: &[pando_balance::Other]) {
        let Some(gossip) = &mut self.nodes[me as usize].gossip else { return };
        for (_, new) in before.iter().zip(after).filter(|(old, new)| old.load != new.load) {
            let Some(number) = crate::node::number(&new.name) else { continue };
            if let Some(entry) = gossip.window_mut().get_mut(&number) {
                entry.load.load = new.load;
            }
        }
    }

    /// Nothing that decisions are made by is older than allowed: the age that is known is that of the way here, less what messages were
    /// on their way, and clocks run differently.
    fn check_ages(&mut self, me: u32) {
        let now = self.queue.now();
        let node = &self.nodes[me as usize];
        let Some(gossip) = &node.gossip else { return };
        let local = node.clock.ms(now);
        let oldest = self.settings.balance.oldest_ms;
        let used = gossip.window().iter().filter(|(_, e)| e.age_ms(local) <= oldest);
        let Some(true_us) = used.map(|(_, e)| e.load.true_us).min() else { return };
        let age = now - true_us;
        self.tally.oldest_us = self.tally.oldest_us.max(age);
        // It was counted up to so long before it was told.
        let counted = 500 * MS + self.settings.gossip.tell_ms * MS;
        let allowed = oldest * MS + counted + self.late_us + oldest * MS / 20;
        if age > allowed {
            self.broken(format!("node {me} decides by a load that is {} ms old", age / MS));
        }
    }
}
