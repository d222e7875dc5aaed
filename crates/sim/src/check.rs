//! `sim check`: random schedules of faults over random work, and the invariants at every step.
//!
//! The invariants: a process computes in one place and never goes on from a state that is older than work it has done; it is lost only
//! if something broke; a node never accepts more than its memory holds; no process comes back by balancing to where it left within the
//! settings' time; nothing that is decided by is older than allowed; and after the last fault, within a stated bound each, everybody
//! sees exactly the members that are up, and no move is left half done.

use crate::faults::Fault;
use crate::machine::{Needs, Size};
use crate::network::Shape;
use crate::queue::{MS, SECOND};
use crate::world::{Settings, Task, World};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// How a schedule went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Went {
    pub nodes: usize,
    pub faults: usize,
    pub processes: usize,
    pub lost: usize,
    pub moves: u64,
    pub refused: u64,
    pub failed: u64,
    pub steps: u64,
    /// From the last fault until membership was right, milliseconds.
    pub members_ms: u64,
    pub bound_ms: u64,
    /// Oldest load that was decided by, milliseconds.
    pub oldest_ms: u64,
    pub wrong: Option<String>,
    /// What was done to it.
    pub schedule: Vec<String>,
}

/// Faults happen in this time.
const TROUBLE: u64 = 60 * SECOND;

/// One schedule. `nodes`: that many; none: 4 to 24.
pub fn check(seed: u64, nodes: Option<usize>) -> Went {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed);
    let nodes = nodes.unwrap_or_else(|| rng.random_range(4..=24));
    let mut settings = Settings { seed, skew_ppm: 500, ..Settings::default() };
    settings.shape = Shape {
        lost_milli: rng.random_range(0..10),
        late_milli: rng.random_range(0..30),
        twice_milli: rng.random_range(0..20),
        ..settings.shape
    };
    settings.places = rng.random_bool(0.5);
    let size = |rng: &mut StdRng| Size {
        cpus: f64::from(*[1, 1, 2, 4].choose(rng).unwrap_or(&1)),
        speed: *[0.5, 1.0, 1.0, 2.0].choose(rng).unwrap_or(&1.0),
        memory: *[1u64, 2, 4].choose(rng).unwrap_or(&1) << 30,
    };
    let sizes: Vec<Size> = (0..nodes).map(|_| size(&mut rng)).collect();
    let quiet = settings.shape.clone();
    let mut world = World::new(settings, &sizes);
    world.boot_all();
    work(&mut world, &mut rng, nodes);
    let faults = trouble(&mut rng, nodes as u32);
    let last = faults.iter().map(|f| f.0).max().unwrap_or(0).max(TROUBLE);
    let number = faults.len();
    let mut schedule: Vec<(u64, String)> =
        faults.iter().map(|(at, f)| (*at, format!("{:.3} s: {f:?}", *at as f64 / 1e6))).collect();
    schedule.sort();
    for (at, fault) in faults {
        world.plan_fault(at, fault);
    }
    world.plan_fault(last, Fault::Heal);
    world.plan_fault(last, Fault::Noise(quiet.lost_milli, quiet.late_milli, quiet.twice_milli));
    world.run(last + MS);
    let members_ms = converge(&mut world, last);
    settle(&mut world, last);
    Went {
        nodes,
        faults: number,
        processes: world.tasks.len(),
        lost: world.tasks.iter().filter(|t| matches!(t.end, Some((_, crate::world::End::Lost(_))))).count(),
        moves: world.tally.moves,
        refused: world.tally.refused,
        failed: world.tally.failed,
        steps: world.tally.steps,
        members_ms,
        bound_ms: world.bound() / MS,
        oldest_ms: world.tally.oldest_us / MS,
        wrong: world.wrong,
        schedule: schedule.into_iter().map(|(_, what)| what).collect(),
    }
}

/// Lets membership become right. How long that took.
fn converge(world: &mut World, last: u64) -> u64 {
    let bound = world.bound();
    let mut right = None;
    while world.wrong.is_none() && world.queue.now() < last + bound {
        if world.members_wrong().is_none() {
            right = Some((world.queue.now() - last) / MS);
            break;
        }
        let next = world.queue.now() + 250 * MS;
        world.run(next);
    }
    if right.is_none() {
        let what = world.members_wrong().unwrap_or_default();
        world.broken(format!("membership is not right {} s after the last fault: {what}", bound / SECOND));
    }
    right.unwrap_or(bound / MS)
}

/// Lets the moves end. No process begins any more, and none moves.
fn settle(world: &mut World, last: u64) {
    world.settings.moves = false;
    world.settings.places = false;
    let end = world.queue.now().max(last + world.bound()) + world.settle_bound();
    world.run(end);
    if world.wrong.is_some() {
        return;
    }
    if let Some(what) = world.unsettled() {
        world.broken(what);
    }
    // It stays right when nothing happens.
    if let Some(what) = world.members_wrong() {
        world.broken(format!("membership is not right any more though nothing happened: {what}"));
    }
}

fn work(world: &mut World, rng: &mut StdRng, nodes: usize) {
    for _ in 0..rng.random_range(nodes..nodes * 6) {
        let homes = if rng.random_bool(0.5) { 1 } else { nodes as u32 };
        let home = rng.random_range(0..homes);
        let needs = Needs {
            work_ms: rng.random_range(100.0..300_000.0),
            size: (-(1.0 - rng.random::<f64>()).ln() * 2e8) as u64,
            grow_ms: *[0.0, 5_000.0].choose(rng).unwrap_or(&0.0),
            calls: *[0, 0, 0, 100, 5_000].choose(rng).unwrap_or(&0),
        };
        let mut task = Task::new(home, rng.random_range(0..TROUBLE), needs);
        match rng.random_range(0..12) {
            0 => task.wish.home_only = true,
            1 => task.wish.no_move = true,
            2 => task.wish.max_moves = Some(2),
            3 => task.wish.nodes = Some(vec![crate::node::name(rng.random_range(0..nodes as u32))]),
            _ => {}
        }
        let needs_kill = rng.random_bool(0.1);
        task.until_us = needs_kill.then(|| task.from_us + rng.random_range(0..100 * SECOND));
        world.add(task);
    }
}

/// A schedule: faults, each with its end.
fn trouble(rng: &mut StdRng, nodes: u32) -> Vec<(u64, Fault)> {
    let mut all = Vec::new();
    for _ in 0..rng.random_range(0..10) {
        let at = rng.random_range(SECOND..TROUBLE);
        let end = at + rng.random_range(10 * MS..30 * SECOND);
        let node = rng.random_range(0..nodes);
        let (fault, over) = match rng.random_range(0..11) {
            0 | 1 => (Fault::Crash(node), rng.random_bool(0.8).then_some(Fault::Restart(node))),
            2 => (Fault::Leave(node), rng.random_bool(0.5).then_some(Fault::Restart(node))),
            3 | 4 => {
                let some = rng.random_range(1..=nodes / 2);
                let cut = (0..nodes).filter(|_| rng.random_range(0..nodes) < some).collect();
                (Fault::Cut(cut), Some(Fault::Heal))
            }
            5 => (Fault::Slow(node, rng.random_range(10..2_000)), Some(Fault::Slow(node, 0))),
            6 => (Fault::Stall(node, rng.random_range(100..15_000)), None),
            7 => (Fault::Skew(node, rng.random_range(-20_000..20_000)), Some(Fault::Skew(node, 0))),
            8 => (Fault::Noise(rng.random_range(0..200), 100, 100), None),
            9 => (Fault::Drain(node, true), rng.random_bool(0.5).then_some(Fault::Drain(node, false))),
            _ => (Fault::Owner(node, true), Some(Fault::Owner(node, false))),
        };
        all.push((at, fault));
        all.extend(over.map(|over| (end, over)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_history() {
        assert_eq!(check(3, Some(6)), check(3, Some(6)));
    }

    #[test]
    fn the_invariants_hold_over_random_faults() {
        for seed in 0..12 {
            let went = check(seed, None);
            let again = format!("cargo run --release -p sim -- check --seed {seed}");
            assert_eq!(went.wrong, None, "again with: {again}");
        }
    }
}
