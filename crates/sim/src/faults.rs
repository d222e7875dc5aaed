//! What can go wrong, by name.

use crate::queue::{MS, SECOND};
use crate::world::{End, Event, World};
use pando_balance::Standing;
use rand::RngExt;

/// A fault, or its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// A node is gone, with all that was on it.
    Crash(u32),
    /// It begins a new life; it has the list of members that it kept.
    Restart(u32),
    /// It says goodbye, and is gone.
    Leave(u32),
    /// These are cut off from all others, not from each other.
    Cut(Vec<u32>),
    /// No cuts any more.
    Heal,
    /// Everything to and from it takes longer, so many milliseconds; 0: no more.
    Slow(u32, u64),
    /// It does nothing for so many milliseconds.
    Stall(u32, u64),
    /// Its clock runs so much faster from now on, parts of a million.
    Skew(u32, i64),
    /// So many thousandths of all messages get lost, come late, come twice.
    Noise(u32, u32, u32),
    /// It is to be emptied; or is as before.
    Drain(u32, bool),
    /// Its own user is back; or has left.
    Owner(u32, bool),
}

impl World {
    /// Plans a fault.
    pub fn plan_fault(&mut self, at_us: u64, fault: Fault) {
        self.queue.at(at_us, Event::Fault(fault));
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        let now = self.queue.now();
        match fault {
            Fault::Crash(node) => self.crash(node),
            Fault::Restart(node) if !self.nodes[node as usize].up => {
                let known = std::mem::take(&mut self.nodes[node as usize].kept);
                self.boot(node, known);
            }
            Fault::Restart(_) => {}
            Fault::Leave(node) => {
                let local = self.nodes[node as usize].clock.ms(now);
                if let Some(gossip) = &mut self.nodes[node as usize].gossip {
                    let effects = gossip.leave(local);
                    self.effects(node, effects);
                }
                self.crash(node);
            }
            Fault::Cut(nodes) => {
                self.breaks += 1;
                let side = self.rng.random_range(1..u32::MAX);
                for node in nodes {
                    self.net.side(node, side);
                }
            }
            Fault::Heal => self.net.heal(),
            Fault::Slow(node, ms) => {
                self.net.slow(node, ms * MS);
                // News may come by way of several such nodes.
                self.late_us += 3 * ms * MS;
            }
            Fault::Stall(node, ms) => {
                self.nodes[node as usize].stalled_us = now + ms * MS;
                self.late_us += ms * MS;
                // Longer than that is silence.
                self.breaks += u32::from(ms * MS >= self.settings.lost_after_us / 2);
            }
            Fault::Skew(node, ppm) => {
                let clock = &mut self.nodes[node as usize].clock;
                clock.offset_ms = clock.ms(now);
                clock.from_us = now;
                clock.pace = 1.0 + ppm as f64 / 1e6;
            }
            Fault::Noise(lost, late, twice) => {
                let shape = &mut self.net.shape;
                (shape.lost_milli, shape.late_milli, shape.twice_milli) = (lost, late, twice);
            }
            Fault::Drain(node, on) => {
                self.nodes[node as usize].standing = if on { Standing::Drained } else { Standing::Open };
            }
            Fault::Owner(node, on) => {
                self.nodes[node as usize].standing = if on { Standing::Owner } else { Standing::Open };
            }
        }
    }

    fn crash(&mut self, me: u32) {
        if !self.nodes[me as usize].up {
            return;
        }
        let now = self.queue.now();
        self.breaks += 1;
        self.clear(me);
        let node = &mut self.nodes[me as usize];
        node.up = false;
        if let Some(gossip) = node.gossip.take() {
            node.kept = gossip.members().map(|(peer, _)| *peer).collect();
        }
        node.promises.clear();
        node.ended.clear();
        node.line.clear();
        node.sends_until_us = 0;
        (node.tick_us, node.work_us, node.standing) = (u64::MAX, u64::MAX, Standing::Open);
        let ours: Vec<u32> = std::mem::take(&mut node.deputies).into_keys().collect();
        for task in ours {
            self.tasks[task as usize].end.get_or_insert((now, End::Lost("its home is gone")));
        }
    }

    /// How long membership may take to be right again after the last fault, in microseconds of true time.
    ///
    /// A member that is gone is noticed by the next probe of it (each node probes one member a second, so somebody does within a few
    /// seconds), suspected for `suspect_ms · log10 n`, and the word goes round in `log2 n` rounds of gossip. One that was cut off is asked
    /// back by one of those that took it for dead, each of whom tries one of its dead every four probes; it then has to hear the rest. The
    /// bound has room for bad luck: 30 probes, two suspicions and twice the rounds.
    pub fn bound(&self) -> u64 {
        let (s, n) = (&self.settings.gossip, self.nodes.len().max(10) as f64);
        let suspicion = s.suspect_ms as f64 * n.log10();
        let rounds = n.log2() * s.probe_ms as f64;
        ((30 * s.probe_ms) as f64 + 2.0 * suspicion + 2.0 * rounds) as u64 * MS
    }

    /// What is wrong with membership: the first node that takes others for members than are up.
    pub fn members_wrong(&self) -> Option<String> {
        let up: Vec<u32> = (0..self.nodes.len() as u32).filter(|&n| self.nodes[n as usize].up).collect();
        up.iter().find_map(|&me| {
            let gossip = self.nodes[me as usize].gossip.as_ref()?;
            let live = |(p, s): (&crate::node::Peer, _)| (s != pando_gossip::State::Down).then_some(*p);
            let mut seen: Vec<crate::node::Peer> = gossip.members().filter_map(live).collect();
            seen.sort();
            let now = |n: u32| self.nodes[n as usize].gossip.as_ref().map(|g| *g.me());
            let mut true_ones: Vec<crate::node::Peer> =
                up.iter().filter(|&&n| n != me).filter_map(|&n| now(n)).collect();
            true_ones.sort();
            (seen != true_ones).then(|| {
                let missing: Vec<_> = true_ones.iter().filter(|p| !seen.contains(p)).collect();
                let extra: Vec<_> = seen.iter().filter(|p| !true_ones.contains(p)).collect();
                format!("node {me} does not know {missing:?} and knows {extra:?}, which are not up")
            })
        })
    }

    /// What is not at rest though it should be: copies without a deputy, deputies without a copy, moves without end.
    pub fn unsettled(&self) -> Option<String> {
        for (me, node) in (0..).zip(&self.nodes).filter(|(_, n)| n.up) {
            for (task, body) in &node.machine.bodies {
                let deputy = self.nodes[body.home as usize].deputies.get(task);
                if !body.runs() || deputy.is_none_or(|d| d.place != me || !d.still()) {
                    return Some(format!("process {task} at node {me} is {:?}, its home says {deputy:?}", body.state));
                }
            }
            for (task, deputy) in &node.deputies {
                let place = &self.nodes[deputy.place as usize];
                let ended = place.ended.contains_key(task);
                if !place.up || !ended && !place.machine.bodies.contains_key(task) {
                    return Some(format!("process {task} of node {me} is nowhere, its home says {deputy:?}"));
                }
            }
            let old = |at: &u64| self.queue.now() - at > 5 * SECOND;
            if !node.promises.is_empty() || node.ended.values().any(old) {
                return Some(format!("node {me} still waits for {:?} and {:?}", node.promises, node.ended));
            }
        }
        let begun = |t: &crate::world::Task| t.from_us < self.queue.now() && t.end.is_none();
        let lost = self.tasks.iter().position(|t| begun(t) && t.runs != 1)?;
        Some(format!("process {lost} has neither ended nor does it compute: {:?}", self.tasks[lost]))
    }

    /// The longest a move may be under way after the last fault.
    pub fn settle_bound(&self) -> u64 {
        6 * self.settings.lost_after_us + 70 * SECOND
    }
}
