//! `sim balance`: the papers' experiments ([`crate::experiment`]), without migration and with it.
//!
//! What is compared is the time until the last process is done, and the mean time that a process takes; [`crate::ideal`] says what the
//! best is. The columns are those of a run on real nodes, too.

use crate::experiment::Trial;
use crate::faults::Fault;
use crate::ideal::{Times, one_computer, whole_places};
use crate::machine::{Needs, Size};
use crate::queue::{MS, SECOND};
use crate::world::{End, Settings, Task, World};

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How long it took.
    pub times: Times,
    /// Moves in all.
    pub moves: u64,
    /// Of one process, at most.
    pub most_moves: u32,
    /// Seconds that a node had less memory than was used, all nodes together.
    pub paged: f64,
    /// Memory in use at the worst moment, percent of the cluster's.
    pub memory: f64,
    /// Processes that did not come to their end.
    pub lost: usize,
    /// The first thing that should not be.
    pub wrong: Option<String>,
}

/// An experiment twice: each process where it was started, and moved.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// Where it was started.
    pub unmoved: Outcome,
    /// Moved.
    pub moved: Outcome,
}

/// Plays it in the simulator, with the daemon's balancer as it is set.
pub fn simulate(t: &Trial, seed: u64, balance: &pando_balance::Settings, tell_ms: Option<u64>) -> Played {
    let mut settings = Settings { balance: balance.clone(), ..Settings::for_nodes(seed, t.sites.len()) };
    settings.gossip.tell_ms = tell_ms.unwrap_or(settings.gossip.tell_ms);
    Played { unmoved: play(t, false, settings.clone()), moved: play(t, true, settings) }
}

/// Plays it.
fn play(t: &Trial, moves: bool, mut settings: Settings) -> Outcome {
    settings.moves = moves;
    let sizes: Vec<Size> = t.sites.iter().map(|s| s.size).collect();
    let mut world = World::new(settings, &sizes);
    let first = t.sites.iter().filter(|s| s.from_us == 0).count() as u32;
    for (node, s) in (0..).zip(&t.sites) {
        let known = world.some(first);
        if s.from_us == 0 {
            world.boot(node, known);
        } else {
            world.nodes[node as usize].kept = known;
            world.plan_fault(s.from_us, Fault::Restart(node));
        }
        if moves && s.until_us < u64::MAX {
            world.plan_fault(s.until_us, Fault::Drain(node, true));
            if s.gone_us < u64::MAX {
                world.plan_fault(s.gone_us, Fault::Leave(node));
            }
        }
    }
    // They have heard of each other before work begins, as in a cluster that was there yesterday.
    let warm = 10 * SECOND;
    for job in &t.jobs {
        let needs = Needs { work_ms: job.work_ms, size: job.size, grow_ms: job.grow_ms, calls: 0 };
        world.add(Task::new(job.home, warm + job.from_us, needs));
    }
    for load in &t.loads {
        let needs = Needs { work_ms: f64::INFINITY, size: 0, grow_ms: 0.0, calls: 0 };
        let mut task = Task::new(load.node, warm + load.from_us, needs);
        task.wish.home_only = true;
        task.until_us = Some(warm + load.until_us);
        world.add(task);
    }
    watch(t, &mut world, warm)
}

fn watch(t: &Trial, world: &mut World, warm: u64) -> Outcome {
    let all: u64 = t.sites.iter().map(|s| s.size.memory).sum();
    let (jobs, mut memory) = (t.jobs.len(), 0.0);
    while world.wrong.is_none() && world.queue.now() < 100_000 * SECOND {
        let next = world.queue.now() + SECOND;
        world.run(next);
        let used: u64 = world.nodes.iter().map(|n| n.machine.used()).sum();
        memory = f64::max(memory, used as f64 * 100.0 / all as f64);
        if world.tasks[..jobs].iter().all(|t| t.end.is_some()) {
            break;
        }
    }
    let tasks = &world.tasks[..jobs];
    let end = |t: &Task| t.end.map_or(u64::MAX, |(at, _)| at).saturating_sub(warm);
    let paged: u64 = world.nodes.iter().map(|n| n.machine.paged_us).sum();
    Outcome {
        times: Times::of(t, &tasks.iter().map(end).collect::<Vec<_>>()),
        moves: world.tally.moves,
        most_moves: tasks.iter().map(|t| t.moves).max().unwrap_or(0),
        paged: (paged / MS) as f64 / 1000.0,
        memory,
        lost: tasks.iter().filter(|t| matches!(t.end, Some((_, End::Lost(_))))).count(),
        wrong: world.wrong.clone(),
    }
}

/// Several plays of one experiment.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    plays: f64,
    best: f64,
    places: Slower,
    unmoved: Slower,
    moved: Slower,
    moves: f64,
    most_moves: u32,
    memory: f64,
    paged: (f64, f64),
    lost: (usize, usize),
}

/// By how much slower than the best, percent.
#[derive(Clone, Copy, Debug, Default)]
struct Slower {
    last: f64,
    worst: f64,
    mean: f64,
}

impl Slower {
    fn add(&mut self, times: Times, best: Times) {
        let last = (times.last / best.last - 1.0) * 100.0;
        self.last += last;
        self.worst = self.worst.max(last);
        self.mean += (times.mean / best.mean - 1.0) * 100.0;
    }
}

/// What a row of [`Summary::cells`] says.
pub const COLUMNS: [&str; 16] = [
    "best s",
    "whole places %",
    "unmoved %",
    "its worst %",
    "moved %",
    "its worst",
    "mean: whole places %",
    "mean: unmoved %",
    "mean: moved %",
    "moves each",
    "most moves",
    "memory %",
    "paged s unmoved",
    "paged s",
    "lost unmoved",
    "lost",
];

impl Summary {
    /// One play more.
    pub fn add(&mut self, t: &Trial, played: &Played) {
        let best = one_computer(t);
        let Played { unmoved, moved } = played;
        self.plays += 1.0;
        self.best += best.last;
        self.places.add(whole_places(t), best);
        self.unmoved.add(unmoved.times, best);
        self.moved.add(moved.times, best);
        self.moves += moved.moves as f64 / t.jobs.len() as f64;
        self.most_moves = self.most_moves.max(moved.most_moves);
        self.memory = self.memory.max(moved.memory);
        self.paged.0 += unmoved.paged;
        self.paged.1 += moved.paged;
        self.lost.0 += unmoved.lost;
        self.lost.1 += moved.lost;
    }

    /// How much slower than the best the last process was done, in the mean of all plays, percent: unmoved and moved. None where
    /// processes were lost: what is not done takes no time.
    pub fn slower(&self) -> [Option<f64>; 2] {
        let mean = |s: &Slower, lost: usize| (lost == 0).then_some(s.last / self.plays.max(1.0));
        [mean(&self.unmoved, self.lost.0), mean(&self.moved, self.lost.1)]
    }

    /// Processes that were lost, unmoved and moved.
    pub fn lost(&self) -> [usize; 2] {
        [self.lost.0, self.lost.1]
    }

    /// A row of [`COLUMNS`].
    pub fn cells(&self) -> [String; 16] {
        let mean = |sum: f64| format!("{:.1}", sum / self.plays.max(1.0));
        let one = |x: f64| format!("{x:.1}");
        let unless = |lost: usize, text: String| if lost > 0 { "-".to_owned() } else { text };
        let (unmoved, moved) = self.lost;
        [
            mean(self.best),
            mean(self.places.last),
            unless(unmoved, mean(self.unmoved.last)),
            unless(unmoved, one(self.unmoved.worst)),
            unless(moved, mean(self.moved.last)),
            unless(moved, one(self.moved.worst)),
            mean(self.places.mean),
            unless(unmoved, mean(self.unmoved.mean)),
            unless(moved, mean(self.moved.mean)),
            mean(self.moves),
            self.most_moves.to_string(),
            one(self.memory),
            mean(self.paged.0),
            mean(self.paged.1),
            unmoved.to_string(),
            moved.to_string(),
        ]
    }
}
