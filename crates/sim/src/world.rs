//! All nodes, the network between them, and what happens next.

use crate::faults::Fault;
use crate::machine::{Body, Needs, Size};
use crate::moves::Step;
use crate::network::{Network, Shape};
use crate::node::{Clock, Node, Peer, Told};
use crate::queue::{MS, Queue, SECOND};
use pando_balance::Wish;
use pando_gossip::{Effect, Gossip, Said};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// What may happen.
pub enum Event {
    Arrive {
        from: u32,
        from_life: u32,
        to: u32,
        to_life: Option<u32>,
        message: Message,
    },
    Tick {
        node: u32,
        at: u64,
    },
    Look {
        node: u32,
        life: u32,
    },
    Feel {
        node: u32,
        life: u32,
    },
    Work {
        node: u32,
        at: u64,
    },
    Retry {
        home: u32,
        life: u32,
        task: u32,
        attempt: u64,
    },
    Copy {
        node: u32,
        life: u32,
        task: u32,
        attempt: u64,
    },
    /// Its line is free.
    Line {
        node: u32,
        life: u32,
    },
    Begin(u32),
    Stop(u32),
    Fault(Fault),
}

/// What nodes send each other.
#[derive(Clone)]
pub enum Message {
    Gossip(Said<u32, Told>),
    Step(Step),
}

/// How it is set.
#[derive(Clone)]
pub struct Settings {
    pub seed: u64,
    pub gossip: pando_gossip::Settings,
    pub balance: pando_balance::Settings,
    pub shape: Shape,
    /// Do processes move by themselves?
    pub moves: bool,
    /// Do they begin at the best node?
    pub places: bool,
    /// How many others each node knows, when membership is left out; none: membership runs.
    pub sample: Option<usize>,
    /// Clocks run wrong by so much, at most, parts of a million.
    pub skew_ppm: u64,
    /// Fixed time of a move.
    pub move_us: u64,
    /// Silence after which the other side is lost.
    pub lost_after_us: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let balance = pando_balance::Settings::default();
        Settings {
            seed: 1,
            gossip: pando_gossip::Settings::default(),
            move_us: balance.move_ms * MS,
            shape: Shape { bandwidth: balance.bandwidth, ..Shape::default() },
            balance,
            moves: true,
            places: false,
            sample: None,
            skew_ppm: 200,
            lost_after_us: 10 * SECOND,
        }
    }
}

impl Settings {
    /// Up to this many nodes everybody knows everybody; above it the lists of all would not fit.
    pub const FULL: usize = 1_024;

    /// For so many nodes: membership is left out of large clusters.
    pub fn for_nodes(seed: u64, nodes: usize) -> Self {
        let sample = (nodes > 256).then_some(64);
        let mut settings = Settings { seed, sample, ..Settings::default() };
        if sample.is_some() {
            // Never.
            settings.gossip.probe_ms = 1 << 40;
        }
        settings
    }

    /// Part of its speed that a process has on a node.
    pub fn part(&self, node: u32, home: u32, needs: &Needs) -> f64 {
        match node == home {
            true => 1.0,
            false => 1.0 - (f64::from(needs.calls) * f64::from(self.balance.call_us) / 1e6).min(0.9),
        }
    }
}

/// A process, as somebody sees it who sees everything.
#[derive(Clone, Debug)]
pub struct Task {
    pub home: u32,
    pub needs: Needs,
    pub wish: Wish,
    pub from_us: u64,
    /// It ends then, whatever it has done.
    pub until_us: Option<u64>,
    /// Copies that compute.
    pub runs: u32,
    /// Work that has been seen done.
    pub done_ms: f64,
    pub end: Option<(u64, End)>,
    pub moves: u32,
    /// Nodes that it left for a better one, and when, since it was last moved for another reason.
    pub history: Vec<(u32, u64)>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    Stopped,
    Lost(&'static str),
}

impl Task {
    pub fn new(home: u32, from_us: u64, needs: Needs) -> Self {
        Task {
            home,
            needs,
            from_us,
            wish: Wish::default(),
            until_us: None,
            runs: 0,
            done_ms: 0.0,
            end: None,
            moves: 0,
            history: Vec::new(),
        }
    }
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub asked: u64,
    pub refused: u64,
    pub failed: u64,
    pub moves: u64,
    pub ushered: u64,
    pub steps: u64,
    /// Messages and bytes of loads, and of membership.
    pub loads: (u64, u64),
    pub swim: (u64, u64),
    /// Oldest load that was decided by, microseconds of true age.
    pub oldest_us: u64,
}

/// The world.
pub struct World {
    pub queue: Queue<Event>,
    pub net: Network,
    pub nodes: Vec<Node>,
    pub tasks: Vec<Task>,
    pub settings: Settings,
    pub rng: StdRng,
    pub tally: Tally,
    /// The first invariant that did not hold.
    pub wrong: Option<String>,
    /// Crashes, cuts and goodbyes there have been.
    pub breaks: u32,
    /// How late messages may come, by the faults there have been.
    pub late_us: u64,
}

impl World {
    /// Machines that are off.
    pub fn new(settings: Settings, sizes: &[Size]) -> Self {
        let mut rng = StdRng::seed_from_u64(settings.seed);
        let net = Network::new(settings.shape.clone(), sizes.len(), StdRng::seed_from_u64(rng.random()));
        let skew = settings.skew_ppm as f64 / 1e6;
        let mut nodes = Vec::new();
        for (i, size) in (0..).zip(sizes) {
            let pace = 1.0 + skew * (rng.random::<f64>() * 2.0 - 1.0);
            let clock = Clock { offset_ms: 0, from_us: 0, pace };
            nodes.push(Node::new(i, *size, clock, StdRng::seed_from_u64(rng.random())));
        }
        World {
            queue: Queue::default(),
            net,
            nodes,
            tasks: Vec::new(),
            settings,
            rng,
            tally: Tally::default(),
            wrong: None,
            breaks: 0,
            late_us: 4 * SECOND,
        }
    }

    /// Switches a node on. It knows these.
    pub fn boot(&mut self, me: u32, known: Vec<Peer>) {
        let now = self.queue.now();
        let seed = self.rng.random();
        let (look, feel) =
            (self.rng.random_range(0..self.settings.balance.every_ms.max(1)) * MS, self.rng.random_range(0..FEEL));
        let node = &mut self.nodes[me as usize];
        node.up = true;
        node.life += 1;
        node.clock.from_us = now;
        node.clock.offset_ms = self.rng.random_range(0..1_000_000);
        node.counted_us = now;
        node.load = pando_balance::Smooth::default();
        node.attempts = 0;
        let life = node.life;
        let at = node.clock.ms(now);
        let id = Peer { node: me, life, again: 0 };
        let mut gossip = Gossip::new(id, u64::from(life), self.settings.gossip.clone(), seed, at);
        let them: Vec<Peer> = known.into_iter().filter(|p| p.node != me).collect();
        let mut effects = gossip.know(at, them.clone());
        if self.settings.sample.is_none() {
            effects.extend(gossip.join(at, them.into_iter().take(3).collect()));
        }
        self.nodes[me as usize].gossip = Some(gossip);
        self.effects(me, effects);
        self.told(me);
        self.ticks(me);
        self.queue.after(look, Event::Look { node: me, life });
        self.queue.after(feel, Event::Feel { node: me, life });
    }

    /// Switches all on, at once. They know each other, or some of each other.
    pub fn boot_all(&mut self) {
        for me in 0..self.nodes.len() as u32 {
            let known = self.some(self.nodes.len() as u32);
            self.boot(me, known);
        }
    }

    /// What a list from before may say of the first `count` nodes: all, or a sample.
    pub fn some(&mut self, count: u32) -> Vec<Peer> {
        let peer = |node| Peer { node, life: 1, again: 0 };
        match self.settings.sample {
            Some(some) => (0..some).map(|_| peer(self.rng.random_range(0..count))).collect(),
            None => (0..count).map(peer).collect(),
        }
    }

    /// Plans a process.
    pub fn add(&mut self, task: Task) -> u32 {
        let number = self.tasks.len() as u32;
        self.queue.at(task.from_us, Event::Begin(number));
        if let Some(until) = task.until_us {
            self.queue.at(until, Event::Stop(number));
        }
        self.tasks.push(task);
        number
    }

    /// Lets things happen until that time, or until something is wrong.
    pub fn run(&mut self, until_us: u64) {
        while self.wrong.is_none() {
            let Some(event) = self.queue.next(until_us) else { return };
            self.tally.steps += 1;
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { from, from_life, to, to_life, message } => {
                self.arrive(from, from_life, to, to_life, message);
            }
            Event::Tick { node, at } => self.tick(node, at),
            Event::Look { node, life } if self.lives(node, life) => {
                self.look(node);
                self.queue.after(self.settings.balance.every_ms * MS, Event::Look { node, life });
            }
            Event::Feel { node, life } if self.lives(node, life) => {
                self.feel(node);
                self.queue.after(FEEL, Event::Feel { node, life });
            }
            Event::Work { node, at } if self.nodes[node as usize].work_us == at => self.fresh(node),
            Event::Retry { home, life, task, attempt } if self.lives(home, life) => {
                let deputy = self.nodes[home as usize].deputies.get(&task);
                if deputy.is_some_and(|d| d.attempt == attempt) {
                    self.again(home, task);
                }
            }
            Event::Copy { node, life, task, attempt } if self.lives(node, life) => self.copy(node, task, attempt),
            Event::Line { node, life } if self.lives(node, life) => self.next_copy(node),
            Event::Begin(task) => self.begins(task),
            Event::Stop(task) => self.stops(task),
            Event::Fault(fault) => self.fault(fault),
            Event::Look { .. } | Event::Feel { .. } | Event::Work { .. } | Event::Retry { .. } => {}
            Event::Copy { .. } | Event::Line { .. } => {}
        }
    }

    pub(crate) fn lives(&self, node: u32, life: u32) -> bool {
        let node = &self.nodes[node as usize];
        node.up && node.life == life
    }

    fn arrive(&mut self, from: u32, from_life: u32, to: u32, to_life: Option<u32>, message: Message) {
        let node = &self.nodes[to as usize];
        if !node.up {
            return;
        }
        if node.stalled_us > self.queue.now() {
            let at = node.stalled_us;
            return self.queue.at(at, Event::Arrive { from, from_life, to, to_life, message });
        }
        match message {
            Message::Gossip(said) => self.gossiped(to, from, said),
            Message::Step(Step { task, attempt, .. }) if to_life.is_some_and(|life| life != node.life) => {
                let what = crate::moves::What::Reset;
                self.send(to, from, Some(from_life), Message::Step(Step { task, attempt, what }));
            }
            Message::Step(step) => self.stepped(to, from, from_life, step),
        }
    }

    /// Sends a message; `whose`: which life of that node it is for.
    pub(crate) fn send(&mut self, from: u32, to: u32, whose: Option<u32>, message: Message) {
        self.send_later(from, to, whose, message, 0);
    }

    /// The same; it takes so much longer because it is large.
    pub(crate) fn send_later(&mut self, from: u32, to: u32, whose: Option<u32>, message: Message, us: u64) {
        let from_life = self.nodes[from as usize].life;
        let arrive = |message| Event::Arrive { from, from_life, to, to_life: whose, message };
        if from == to {
            return self.queue.after(us, arrive(message));
        }
        let bytes = match &message {
            Message::Gossip(said) => crate::told::bytes(said),
            Message::Step(_) => 100,
        };
        let around = crate::network::AROUND;
        let count = |c: &mut (u64, u64)| *c = (c.0 + 1, c.1 + (bytes + around) as u64);
        match &message {
            Message::Gossip(Said::Loads(_)) => count(&mut self.tally.loads),
            Message::Gossip(Said::Swim(_)) => count(&mut self.tally.swim),
            Message::Step(_) => {}
        }
        for way in self.net.send(from, to, bytes) {
            self.queue.after(us + way, arrive(message.clone()));
        }
    }

    fn tick(&mut self, me: u32, at: u64) {
        let now = self.queue.now();
        let node = &mut self.nodes[me as usize];
        if !node.up || node.tick_us != at {
            return;
        }
        if node.stalled_us > now {
            node.tick_us = node.stalled_us;
            let at = node.tick_us;
            return self.queue.at(at, Event::Tick { node: me, at });
        }
        let local = node.clock.ms(now);
        let Some(gossip) = &mut node.gossip else { return };
        let effects = gossip.tick(local);
        self.effects(me, effects);
        self.nodes[me as usize].tick_us = u64::MAX;
        self.ticks(me);
    }

    /// Plans the next tick, if it is earlier than the one that is planned.
    fn ticks(&mut self, me: u32) {
        let now = self.queue.now();
        let node = &mut self.nodes[me as usize];
        let Some(gossip) = &node.gossip else { return };
        let at = node.clock.when(gossip.next_ms()).max(now + 1);
        if at < node.tick_us || node.tick_us <= now {
            node.tick_us = at;
            self.queue.at(at, Event::Tick { node: me, at });
        }
    }

    fn gossiped(&mut self, me: u32, from: u32, said: Said<u32, Told>) {
        let now = self.queue.now();
        let node = &mut self.nodes[me as usize];
        let local = node.clock.ms(now);
        let Some(gossip) = &mut node.gossip else { return };
        match gossip.receive(local, &from, said) {
            Ok(effects) => self.effects(me, effects),
            Err(e) => self.broken(format!("node {me} does not understand node {from}: {e}")),
        }
        self.ticks(me);
    }

    pub(crate) fn effects(&mut self, me: u32, effects: Vec<Effect<Peer, u32, Told>>) {
        for effect in effects {
            if let Effect::Send(to, said) = effect {
                let member = matches!(said, Said::Swim(_)) && self.settings.sample.is_some();
                if !member {
                    self.send(me, to.node, None, Message::Gossip(said));
                }
            }
        }
    }

    /// Notes that an invariant does not hold.
    pub(crate) fn broken(&mut self, what: String) {
        let at = self.queue.now() as f64 / 1e6;
        self.wrong.get_or_insert(format!("after {at:.3} s: {what}"));
    }

    /// The process has ended so.
    pub(crate) fn lost(&mut self, task: u32, why: &'static str) {
        let now = self.queue.now();
        self.tasks[task as usize].end.get_or_insert((now, End::Lost(why)));
        if self.breaks == 0 {
            self.broken(format!("process {task} was lost though nothing broke: {why}"));
        }
    }

    /// A copy that begins to compute at its home.
    pub(crate) fn body(&self, task: u32) -> Body {
        let (now, t) = (self.queue.now(), &self.tasks[task as usize]);
        Body {
            home: t.home,
            home_life: self.nodes[t.home as usize].life,
            needs: t.needs,
            done_ms: 0.0,
            state: crate::machine::State::Waits { attempt: 0 },
            since_us: now,
            left: None,
            moves: 0,
            came_by: 0,
            asked_until_us: 0,
            heard_us: now,
            going: None,
            over: 0,
            sent_us: 0,
            part: 1.0,
        }
    }
}

/// A node counts what runs on it each so often, and looks at once when memory is short.
const FEEL: u64 = 250 * MS;
