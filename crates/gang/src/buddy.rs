//! Blocks of powers of two, each from a multiple of its size in a sequence of CPUs: the smallest with room enough, of these the one with least room
//! to spare, so that large ones stay whole, and then the one that other rows use least.

use crate::fit::{Ranks, Room};
use crate::layout::Node;
use crate::wish::Place;

/// Of one node: CPUs of the best block, the lowest first. The node has as many.
pub(crate) fn cpus(room: &Room, node: &Node, count: usize) -> Vec<u16> {
    let all: Vec<u16> = (0..node.cpus).collect();
    let mut size = count.next_power_of_two();
    loop {
        let blocks = all.chunks(size).map(|block| {
            let free: Vec<u16> = block.iter().copied().filter(|&cpu| room.free.has(node.bit(cpu))).collect();
            let load: u64 = free.iter().map(|&cpu| u64::from(room.load[node.bit(cpu)])).sum();
            (free.len(), load, free)
        });
        let best = blocks.filter(|(free, ..)| *free >= count).min();
        match best {
            Some((.., free)) => return free,
            None if size >= all.len() => return Vec::new(),
            None => size *= 2,
        }
    }
}

/// Of all nodes.
pub(crate) fn block(room: &Room, wish: &Ranks) -> Option<Vec<Place>> {
    let sequence = &room.layout.sequence;
    let count = usize::try_from(u64::from(wish.ranks) * u64::from(wish.cpus)).ok()?;
    if count > sequence.len() {
        return None;
    }
    let mut size = count.next_power_of_two();
    loop {
        let mut blocks: Vec<(usize, u64, usize)> = Vec::new();
        for (number, block) in sequence.chunks(size).enumerate() {
            let bits = block.iter().map(|&(node, cpu)| room.layout.nodes[node as usize].bit(cpu));
            let (mut free, mut load) = (0, 0);
            for bit in bits.filter(|&bit| room.free.has(bit)) {
                free += 1;
                load += u64::from(room.load[bit]);
            }
            if free >= count {
                blocks.push((free, load, number));
            }
        }
        blocks.sort_unstable();
        let mut blocks = blocks.into_iter().filter_map(|(.., number)| sequence.chunks(size).nth(number));
        if let Some(places) = blocks.find_map(|block| within(room, wish, block)) {
            return Some(places);
        }
        if size >= sequence.len() {
            return None;
        }
        size *= 2;
    }
}

/// All ranks in a block, from its first CPU on.
fn within(room: &Room, wish: &Ranks, block: &[(u32, u16)]) -> Option<Vec<Place>> {
    let (mut left, mut places) = (wish.ranks, Vec::new());
    for here in block.chunk_by(|a, b| a.0 == b.0) {
        let node = &room.layout.nodes[here[0].0 as usize];
        let mut cpus: Vec<u16> = here.iter().map(|&(_, cpu)| cpu).collect();
        cpus.retain(|&cpu| room.free.has(node.bit(cpu)));
        let ranks = wish.within(cpus.len() as u32).min(left);
        if left > 0 && ranks > 0 && wish.takes(node) {
            cpus.truncate(ranks as usize * usize::from(wish.cpus));
            places.push(Place { node: node.name.clone(), cpus });
            left -= ranks;
        }
    }
    (left == 0 && places.len() <= wish.nodes).then_some(places)
}
