//! `sim burst`: many processes begin on one node of a cluster that is idle, all at once.
//!
//! *Imbalance* is how much more the node where they began has to do than its even share: processes that compute there, less `processes /
//! nodes` (but at least one). Intervals are those of gossip and of the balancer, a second by default.

use crate::machine::{Needs, Size};
use crate::queue::SECOND;
use crate::world::{Settings, Task, World};

/// How it went.
#[derive(Clone, Debug, Default)]
pub struct Went {
    /// Intervals until the imbalance was a half, a tenth; until nobody had twice its share (and two at least).
    pub half: Option<u64>,
    pub tenth: Option<u64>,
    pub even: Option<u64>,
    /// Moves of a process: the mean and the most; those that were refused.
    pub moves: f64,
    pub most: u32,
    pub refused: u64,
    /// Messages and bytes a second that a node sent, with loads: the mean; and all messages of the busiest one.
    pub loads: (f64, f64),
    pub busiest: f64,
    /// Nodes that were used at the end.
    pub used: usize,
    pub wrong: Option<String>,
}

/// One burst, watched for so many intervals.
pub fn burst(nodes: usize, processes: usize, size: u64, intervals: u64, mut settings: Settings) -> Went {
    settings.moves = true;
    let machine = Size { cpus: 1.0, speed: 1.0, memory: (4 << 30).max(size * processes as u64 * 2) };
    let mut world = World::new(settings, &vec![machine; nodes]);
    world.boot_all();
    let begin = 20 * SECOND;
    for _ in 0..processes {
        let needs = Needs { work_ms: f64::INFINITY, size, grow_ms: 0.0, calls: 0 };
        world.add(Task::new(0, begin, needs));
    }
    world.run(begin);
    let (loads, sent) = (world.tally.loads, world.net.sent.clone());
    let share = (processes as f64 / nodes as f64).max(1.0);
    let first = processes as f64 - share;
    let mut went = Went::default();
    for t in 1..=intervals {
        world.run(begin + t * SECOND);
        let more = world.nodes[0].machine.running() as f64 - share;
        let most = world.nodes.iter().map(|n| n.machine.running()).max().unwrap_or(0) as f64;
        if more <= first / 2.0 {
            went.half.get_or_insert(t);
        }
        if more <= first / 10.0 {
            went.tenth.get_or_insert(t);
        }
        match most <= (share * 2.0).max(2.0) {
            true => drop(went.even.get_or_insert(t)),
            false => went.even = None,
        }
    }
    let each = (nodes as u64 * intervals) as f64;
    went.moves = world.tasks.iter().map(|t| f64::from(t.moves)).sum::<f64>() / processes as f64;
    went.most = world.tasks.iter().map(|t| t.moves).max().unwrap_or(0);
    went.refused = world.tally.refused;
    went.loads = ((world.tally.loads.0 - loads.0) as f64 / each, (world.tally.loads.1 - loads.1) as f64 / each);
    let more = world.net.sent.iter().zip(&sent).map(|(after, before)| after.0 - before.0);
    went.busiest = more.max().unwrap_or(0) as f64 / intervals as f64;
    went.used = world.nodes.iter().filter(|n| n.machine.running() > 0).count();
    went.wrong = world.wrong;
    went
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_spreads_in_a_few_intervals() {
        let went = burst(64, 256, 4 << 20, 30, Settings::for_nodes(1, 64));
        assert_eq!(went.wrong, None);
        assert!(went.half.is_some_and(|t| t <= 8) && went.even.is_some_and(|t| t <= 25), "{went:?}");
        assert!(went.most <= 8 && went.used == 64, "{went:?}");
    }
}
