//! How long whose turns are. A gang may want turns of another length than is usual, and those with which it shares nodes, directly or through others,
//! have to have the same: all nodes of a gang are in the same slot. So each such crowd has the shortest that one of it wants, and crowds with nodes of
//! their own do not mind each other.

use crate::matrix::{Job, Matrix};
use crate::table::MOST_LENGTHS;
use std::collections::BTreeMap;

/// Lengths that are not the usual one, microseconds, each with the gangs that have it.
pub(crate) type Lengths = Vec<(u64, Vec<u64>)>;

/// The first node of a crowd stands for all of them.
fn stands_for(nodes: &mut [usize], mut node: usize) -> usize {
    while nodes[node] != node {
        nodes[node] = nodes[nodes[node]];
        node = nodes[node];
    }
    node
}

impl Matrix {
    /// Of those that run. Where there were more lengths than a table may have, the longest of them are the usual one.
    pub(crate) fn lengths(&self) -> Lengths {
        let running = || self.jobs.iter().filter(|(_, job)| job.runs);
        // Mostly nobody wants anything else.
        if running().all(|(_, job)| self.wants_us(job) == self.usual_us) {
            return Lengths::new();
        }
        let mut nodes: Vec<usize> = (0..self.layout.nodes.len()).collect();
        let mut all: Vec<(u64, usize, u64)> = Vec::new();
        for (&number, job) in running() {
            let mut its = job.places.iter().filter_map(|place| self.layout.node(&place.node));
            let Some(first) = its.next() else { continue };
            all.push((number, first, self.wants_us(job)));
            for other in its {
                let (a, b) = (stands_for(&mut nodes, first), stands_for(&mut nodes, other));
                nodes[a.max(b)] = a.min(b);
            }
        }
        let mut shortest: BTreeMap<usize, u64> = BTreeMap::new();
        for &(_, node, wants) in &all {
            let least = shortest.entry(stands_for(&mut nodes, node)).or_insert(wants);
            *least = wants.min(*least);
        }
        let mut lengths: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (number, node, _) in all {
            lengths.entry(shortest[&stands_for(&mut nodes, node)]).or_default().push(number);
        }
        lengths.remove(&self.usual_us);
        lengths.into_iter().take(MOST_LENGTHS).collect()
    }

    fn wants_us(&self, job: &Job) -> u64 {
        if job.turn_us == 0 { self.usual_us } else { job.turn_us }
    }
}
