//! One node: the cores with what a daemon would put around them, and its clock.

use crate::machine::{Body, Machine, Size, State};
use crate::moves::{Deputy, Promise};
use crate::queue::MS;
use pando_balance::{Other, Process, Promised, Smooth, Standing, Vector, Wish};
use pando_gossip::{Gossip, Identity};
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Who a node is, in one life of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Peer {
    pub node: u32,
    pub life: u32,
    /// How often it was taken for dead in that life.
    pub again: u32,
}

impl Identity for Peer {
    type Addr = u32;

    fn renew(&self) -> Option<Self> {
        Some(Peer { again: self.again + 1, ..*self })
    }

    fn addr(&self) -> u32 {
        self.node
    }

    fn win_addr_conflict(&self, other: &Self) -> bool {
        (self.life, self.again) > (other.life, other.again)
    }
}

/// A load as it is told, with the true time at which it was so: only for the invariants.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub load: Vector,
    pub true_us: u64,
}

/// A monotonic clock: it starts anywhere in each life and runs a little fast or slow.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub offset_ms: u64,
    pub from_us: u64,
    pub pace: f64,
}

impl Clock {
    pub fn ms(&self, now_us: u64) -> u64 {
        self.offset_ms + ((now_us.saturating_sub(self.from_us)) as f64 * self.pace / 1000.0) as u64
    }

    /// When it shows that time.
    pub fn when(&self, ms: u64) -> u64 {
        self.from_us + (ms.saturating_sub(self.offset_ms) as f64 * 1000.0 / self.pace).ceil() as u64
    }
}

/// A node.
pub struct Node {
    pub name: String,
    pub up: bool,
    pub life: u32,
    pub clock: Clock,
    /// Nothing is done here before this.
    pub stalled_us: u64,
    pub gossip: Option<Gossip<Peer, Told>>,
    pub tick_us: u64,
    /// The list of members that it keeps over a crash.
    pub kept: Vec<Peer>,
    pub machine: Machine,
    pub work_us: u64,
    pub load: Smooth,
    pub counted_us: u64,
    pub standing: Standing,
    /// Of each process that began here.
    pub deputies: BTreeMap<u32, Deputy>,
    /// To processes that are on their way here.
    pub promises: BTreeMap<u32, Promise>,
    /// Ended here, when; home has not heard it.
    pub ended: BTreeMap<u32, u64>,
    pub attempts: u64,
    /// Processes that are to be sent, and in which attempt.
    pub line: VecDeque<(u32, u64)>,
    /// Until when one is.
    pub sends_until_us: u64,
    /// Until when those that are sent here are.
    pub coming_until_us: Vec<u64>,
    pub rng: StdRng,
}

impl Node {
    pub fn new(number: u32, size: Size, clock: Clock, rng: StdRng) -> Self {
        Node {
            name: name(number),
            up: false,
            life: 0,
            clock,
            stalled_us: 0,
            gossip: None,
            tick_us: u64::MAX,
            kept: Vec::new(),
            machine: Machine::new(size),
            work_us: u64::MAX,
            load: Smooth::default(),
            counted_us: 0,
            standing: Standing::Open,
            deputies: BTreeMap::new(),
            promises: BTreeMap::new(),
            ended: BTreeMap::new(),
            attempts: 0,
            line: VecDeque::new(),
            sends_until_us: 0,
            coming_until_us: Vec::new(),
            rng,
        }
    }

    /// Counts what wants to run.
    pub fn count(&mut self, now_us: u64) {
        let since = Duration::from_micros(now_us.saturating_sub(self.counted_us));
        self.counted_us = now_us;
        self.load.count(since, self.machine.running() as u32 * 1000);
    }

    /// What it measures of itself.
    pub fn measured(&self) -> Vector {
        let size = self.machine.size;
        Vector {
            cpus_milli: (size.cpus * 1000.0) as u32,
            reserved_milli: 0,
            speed: (size.speed * 1000.0) as u32,
            runnable_milli: self.load.milli(),
            memory: size.memory,
            free: size.memory.saturating_sub(self.machine.used()),
            falling: 0,
            paging: self.machine.faults(),
            guests: 0,
            standing: self.standing,
        }
    }

    /// What it has promised, and what has come and does not run yet.
    pub fn promised(&self) -> Promised {
        let waiting = self.machine.bodies.values().filter(|b| matches!(b.state, State::Waits { .. })).count();
        let mut all = Promised { bytes: 0, demand_milli: waiting as u32 * 1000 };
        for promise in self.promises.values() {
            all.bytes += promise.bytes;
            all.demand_milli += promise.demand_milli;
        }
        all
    }

    /// Its load as others are told: with what it has promised.
    pub fn load(&self) -> Vector {
        let promised = self.promised();
        self.measured().with_demand(i64::from(promised.demand_milli)).with_memory(promised.bytes as i64)
    }

    /// What it can decide about: those that run here and of which nothing has been decided yet.
    pub fn processes(&self, me: u32, now_us: u64, wishes: impl Fn(u32) -> Wish) -> Vec<Process> {
        let ours = |(task, b): &(&u32, &Body)| {
            let still = b.home != me || self.deputies.get(task).is_some_and(Deputy::still);
            b.runs() && b.asked_until_us <= now_us && still
        };
        let process = |(task, b): (&u32, &Body)| Process {
            home: name(b.home),
            pid: *task,
            demand_milli: 1000,
            cpu_ms: b.done_ms as u64,
            here_ms: now_us.saturating_sub(b.since_us) / MS,
            left: b.left.map(|(node, at)| (name(node), now_us.saturating_sub(at) / MS)),
            resident: b.resident(),
            calls: b.needs.calls,
            moves: b.moves,
            obstacle: None,
            wish: wishes(*task),
            ..Process::default()
        };
        self.machine.bodies.iter().filter(ours).map(process).collect()
    }

    /// What it knows of others.
    pub fn others(&self, now_us: u64, oldest_ms: u64) -> Vec<Other> {
        let Some(gossip) = &self.gossip else { return Vec::new() };
        let now = self.clock.ms(now_us);
        let known = gossip.window().iter().map(|(node, e)| (*node, e.age_ms(now), e.load.load));
        let known = known.filter(|(_, age, _)| *age <= oldest_ms);
        known.map(|(node, age_ms, load)| Other { name: name(node), age_ms, load }).collect()
    }
}

/// A node's name, as the balancer knows it.
pub fn name(node: u32) -> String {
    format!("n{node:05}")
}

/// And back.
pub fn number(name: &str) -> Option<u32> {
    name.strip_prefix('n')?.parse().ok()
}
