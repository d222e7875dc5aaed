//! Where in a row a job has room.

use crate::buddy;
use crate::cells::Grid;
use crate::layout::{Layout, Node};
use crate::wish::{Packing, Place, Shape};
use std::cmp::Reverse;

/// A row as a job that comes sees it.
pub(crate) struct Room<'a> {
    pub(crate) layout: &'a Layout,
    /// CPUs that it may have.
    pub(crate) free: &'a Grid,
    /// By bit: how many jobs of all rows have it.
    pub(crate) load: &'a [u32],
    /// By node: how busy it is with other things than gangs.
    pub(crate) busy: &'a [u32],
    pub(crate) packing: Packing,
}

/// Where it would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    pub(crate) places: Vec<Place>,
    /// The busiest of its nodes is so busy with other things.
    pub(crate) busy: u32,
    /// CPUs of its nodes that stay free in this row.
    pub(crate) leftover: u32,
}

/// What a [`Shape::Free`] says.
pub(crate) struct Ranks<'a> {
    pub(crate) ranks: u32,
    pub(crate) cpus: u16,
    pub(crate) nodes: usize,
    pub(crate) among: &'a [String],
    pub(crate) per_node: u32,
}

impl Ranks<'_> {
    /// So many ranks fit into so many CPUs of one node.
    pub(crate) fn within(&self, cpus: u32) -> u32 {
        (cpus / u32::from(self.cpus)).min(self.per_node).min(self.ranks)
    }

    pub(crate) fn takes(&self, node: &Node) -> bool {
        self.among.is_empty() || self.among.contains(&node.name)
    }
}

/// A node that takes some ranks.
struct Spot {
    node: usize,
    free: u32,
    /// So many ranks at most.
    most: u32,
    /// How much its free CPUs are used in other rows.
    load: u64,
}

impl Room<'_> {
    /// Where it has room in this row, if it has.
    pub(crate) fn fit(&self, shape: &Shape) -> Option<Fit> {
        let places = match shape {
            Shape::Fixed(wants) => wants.iter().map(|(node, cpus)| self.at(node, *cpus)).collect::<Option<Vec<_>>>()?,
            Shape::Free { ranks, cpus, nodes, among, per_node } => {
                let nodes = nodes.map_or(usize::MAX, |nodes| nodes as usize);
                let per_node = per_node.unwrap_or(u32::MAX);
                let wish = Ranks { ranks: *ranks, cpus: *cpus, nodes, among, per_node };
                self.idlest(&wish)?
            }
        };
        let nodes: Vec<usize> = places.iter().filter_map(|place| self.layout.node(&place.node)).collect();
        let busy = nodes.iter().map(|&node| self.busy[node]).max().unwrap_or(0);
        let free: u32 = nodes.iter().map(|&node| self.layout.nodes[node].count(self.free)).sum();
        let leftover = free - places.iter().map(|place| place.cpus.len() as u32).sum::<u32>();
        Some(Fit { places, busy, leftover })
    }

    /// At nodes that are as idle as can be: those that are busier than it takes are left out.
    fn idlest(&self, wish: &Ranks) -> Option<Vec<Place>> {
        let all = self.packed(wish)?;
        let mut steps: Vec<u32> = self.busy.to_vec();
        steps.sort_unstable();
        steps.dedup();
        steps.pop();
        let within = |most: u32| {
            let mut free = self.free.clone();
            let busier = self.layout.nodes.iter().zip(self.busy).filter(|(_, busy)| **busy > most);
            busier.for_each(|(node, _)| node.clear(&mut free));
            Room { free: &free, ..*self }.packed(wish)
        };
        steps.into_iter().find_map(within).or(Some(all))
    }

    fn packed(&self, wish: &Ranks) -> Option<Vec<Place>> {
        let block = (self.packing == Packing::Buddy).then(|| buddy::block(self, wish)).flatten();
        // What fits into no block may fit in parts.
        block.or_else(|| self.best(wish))
    }

    /// So many CPUs of a node.
    fn at(&self, node: &str, cpus: u16) -> Option<Place> {
        let node = &self.layout.nodes[self.layout.node(node)?];
        self.cpus(node, usize::from(cpus)).map(|cpus| Place { node: node.name.clone(), cpus })
    }

    /// Which CPUs of a node: those that fewest others have, or a block.
    fn cpus(&self, node: &Node, count: usize) -> Option<Vec<u16>> {
        let mut free: Vec<u16> = node.cpus_in(self.free).collect();
        if free.len() < count {
            return None;
        }
        match self.packing {
            Packing::BestFit => free.sort_by_key(|&cpu| self.load[node.bit(cpu)]),
            Packing::Buddy => free = buddy::cpus(self, node, count),
        }
        free.truncate(count);
        free.sort_unstable();
        Some(free)
    }

    fn spots(&self, wish: &Ranks) -> Vec<Spot> {
        let mut spots = Vec::new();
        for (number, node) in self.layout.nodes.iter().enumerate().filter(|(_, node)| wish.takes(node)) {
            let free = node.count(self.free);
            let most = wish.within(free);
            if most > 0 {
                let load = node.cpus_in(self.free).map(|cpu| u64::from(self.load[node.bit(cpu)])).sum();
                spots.push(Spot { node: number, free, most, load });
            }
        }
        spots
    }

    /// Best fit: nodes of which least is left over.
    fn best(&self, wish: &Ranks) -> Option<Vec<Place>> {
        let mut spots = self.spots(wish);
        if spots.iter().map(|spot| u64::from(spot.most)).sum::<u64>() < u64::from(wish.ranks) {
            return None;
        }
        let left = |spot: &Spot| spot.free - spot.most * u32::from(wish.cpus);
        spots.sort_by_key(|spot| (left(spot), Reverse(spot.most), spot.load));
        let mut chosen = fill(&spots, wish);
        if chosen.len() > wish.nodes {
            // As few nodes as can be.
            spots.sort_by_key(|spot| (Reverse(spot.most), left(spot), spot.load));
            chosen = fill(&spots, wish);
        }
        if chosen.len() > wish.nodes {
            return None;
        }
        chosen.sort_unstable();
        let place = |(number, ranks): (usize, u32)| {
            let node = &self.layout.nodes[number];
            let cpus = self.cpus(node, ranks as usize * usize::from(wish.cpus))?;
            Some(Place { node: node.name.clone(), cpus })
        };
        chosen.into_iter().map(place).collect()
    }
}

/// Nodes in their order, until one is enough for all that is left. They have room enough together.
fn fill(spots: &[Spot], wish: &Ranks) -> Vec<(usize, u32)> {
    let largest = spots.iter().map(|spot| spot.most).max().unwrap_or(0);
    let mut left = wish.ranks;
    let mut chosen = Vec::new();
    for (next, spot) in spots.iter().enumerate() {
        if left <= largest {
            let enough = spots[next..].iter().filter(|spot| spot.most >= left);
            if let Some(last) = enough.min_by_key(|spot| (spot.free, spot.load)) {
                chosen.push((last.node, left));
                break;
            }
        }
        // Not enough alone, or the case above.
        chosen.push((spot.node, spot.most));
        left -= spot.most;
    }
    chosen
}
