//! Which bits are whose CPUs: nodes by name, each with whole words. It is made anew when a node comes, changes or goes.

use crate::cells::{Cells, Grid, at};
use crate::wish::Place;
use std::collections::BTreeMap;

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) cpus: u16,
    /// Its first word.
    word: u32,
}

impl Node {
    /// Its words in a grid.
    pub(crate) fn words<'a>(&self, grid: &'a Grid) -> &'a [u64] {
        let first = self.word as usize;
        &grid.0[first..first + usize::from(self.cpus).div_ceil(64)]
    }

    /// None of its CPUs are in that grid any more.
    pub(crate) fn clear(&self, grid: &mut Grid) {
        let first = self.word as usize;
        grid.0[first..first + usize::from(self.cpus).div_ceil(64)].fill(0);
    }

    /// The bit of its CPU.
    pub(crate) fn bit(&self, cpu: u16) -> usize {
        at(self.word, u32::from(cpu))
    }

    /// So many of its CPUs are in a grid.
    pub(crate) fn count(&self, grid: &Grid) -> u32 {
        self.words(grid).iter().map(|word| word.count_ones()).sum()
    }

    /// Which of its CPUs are in a grid.
    pub(crate) fn cpus_in<'a>(&'a self, grid: &'a Grid) -> impl Iterator<Item = u16> + 'a {
        (0..self.cpus).filter(|&cpu| grid.has(self.bit(cpu)))
    }
}

/// All nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) nodes: Vec<Node>,
    /// All CPUs that there are.
    pub(crate) all: Grid,
    /// The sequence of all CPUs: its node, its number there.
    pub(crate) sequence: Vec<(u32, u16)>,
    index: BTreeMap<String, u32>,
}

impl Layout {
    pub(crate) fn new(of: &BTreeMap<String, u16>) -> Layout {
        let mut layout = Layout::default();
        for (number, (name, &cpus)) in (0u32..).zip(of) {
            let word = layout.all.0.len() as u32;
            layout.nodes.push(Node { name: name.clone(), cpus, word });
            layout.index.insert(name.clone(), number);
            layout.sequence.extend((0..cpus).map(|cpu| (number, cpu)));
            let (whole, rest) = (cpus / 64, cpus % 64);
            layout.all.0.extend((0..whole).map(|_| u64::MAX));
            layout.all.0.extend((rest > 0).then_some((1u64 << rest) - 1));
        }
        layout
    }

    pub(crate) fn node(&self, name: &str) -> Option<usize> {
        self.index.get(name).map(|&number| number as usize)
    }

    /// The bits of these places; CPUs that are not there are left out.
    pub(crate) fn cells(&self, places: &[Place]) -> Cells {
        let mut words: BTreeMap<u32, u64> = BTreeMap::new();
        for place in places {
            let Some(node) = self.node(&place.node).map(|number| &self.nodes[number]) else { continue };
            for bit in place.cpus.iter().filter(|cpu| **cpu < node.cpus).map(|&cpu| node.bit(cpu)) {
                *words.entry((bit / 64) as u32).or_default() |= 1 << (bit % 64);
            }
        }
        Cells::new(words.into_iter().collect())
    }
}
