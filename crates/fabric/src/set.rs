//! Nodes, and sets of them.

use serde::{Deserialize, Serialize};

/// A node in one of its lives: whoever comes back after a crash is another one. Numbers are given by the managers, each in a range of its epoch
/// ([`NodeId::given`]), so that none is given twice and those that came together are one range of a [`Set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct NodeId(pub u64);

impl NodeId {
    /// Most numbers that are given in an epoch.
    pub const MOST_GIVEN: u64 = 1 << 16;

    /// In which epoch it was given.
    pub fn epoch(self) -> u64 {
        self.0 >> 16
    }

    /// The number that the manager of `epoch` gives to the `count`th node that it takes in; none after [`NodeId::MOST_GIVEN`].
    pub fn given(epoch: u64, count: u64) -> Option<NodeId> {
        (count < Self::MOST_GIVEN && epoch < 1 << 48).then_some(NodeId(epoch << 16 | count))
    }
}

/// Nodes of a set at most: it must be possible to go through them.
const MOST: usize = 1 << 16;

/// A set of nodes, as ranges from a first to a last one, in order and apart: a whole cluster is as short as one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Set(Vec<(u64, u64)>);

impl Set {
    /// How many.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// About so many bytes on the way to another node.
    pub fn weight(&self) -> usize {
        20 * self.0.len()
    }

    /// Nobody.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Is it one of them?
    pub fn has(&self, node: NodeId) -> bool {
        self.rank(node).is_some()
    }

    /// How many of them come before this one, if it is one of them.
    pub fn rank(&self, node: NodeId) -> Option<usize> {
        let mut before = 0;
        for &(first, last) in &self.0 {
            if node.0 < first {
                return None;
            }
            if node.0 <= last {
                return Some(before + (node.0 - first) as usize);
            }
            before += (last - first) as usize + 1;
        }
        None
    }

    /// The one that so many others come before.
    pub fn at(&self, rank: usize) -> Option<NodeId> {
        let mut left = rank;
        for &(first, last) in &self.0 {
            let here = (last - first) as usize + 1;
            if left < here {
                return Some(NodeId(first + left as u64));
            }
            left -= here;
        }
        None
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().flat_map(|&(first, last)| (first..=last).map(NodeId))
    }

    /// Are all of them among `others`?
    pub fn is_within(&self, others: &Set) -> bool {
        self.0.iter().all(|(first, last)| others.0.iter().any(|(low, high)| low <= first && last <= high))
    }

    /// Those that are not among `others`.
    #[must_use]
    pub fn without(&self, others: &Set) -> Set {
        self.iter().filter(|n| !others.has(*n)).collect()
    }

    /// Does it have its one and only shape, and no more nodes than there can be? What comes from another machine may not.
    pub fn is_sound(&self) -> bool {
        let apart = self.0.windows(2).all(|w| w[0].1.checked_add(1).is_some_and(|next| next < w[1].0));
        let mut left = MOST as u64;
        apart
            && self.0.iter().all(|(first, last)| {
                let more = last.checked_sub(*first).and_then(|n| n.checked_add(1));
                more.and_then(|n| left.checked_sub(n)).map(|rest| left = rest).is_some()
            })
    }
}

impl FromIterator<NodeId> for Set {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Set {
        let mut all: Vec<u64> = nodes.into_iter().map(|n| n.0).collect();
        all.sort_unstable();
        all.dedup();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for n in all {
            match ranges.last_mut() {
                Some(last) if last.1 + 1 == n => last.1 = n,
                _ => ranges.push((n, n)),
            }
        }
        Set(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;
    use std::collections::BTreeSet;

    #[test]
    fn it_is_a_set() {
        check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(some, others)| {
            let set = |of: &[u8]| of.iter().map(|n| NodeId(u64::from(*n))).collect::<Set>();
            let (a, b) = (set(some), set(others));
            let plain: BTreeSet<u64> = some.iter().map(|n| u64::from(*n)).collect();
            assert!(a.is_sound());
            assert_eq!((a.len(), a.is_empty()), (plain.len(), plain.is_empty()));
            assert!(a.iter().map(|n| n.0).eq(plain.iter().copied()));
            for n in 0..=256 {
                assert_eq!(a.rank(NodeId(n)), plain.iter().position(|p| *p == n));
                assert_eq!(a.has(NodeId(n)), plain.contains(&n));
                assert_eq!(a.at(n as usize).map(|n| n.0), plain.iter().nth(n as usize).copied());
            }
            assert_eq!(a.is_within(&b), some.iter().all(|n| others.contains(n)));
            assert!(a.without(&b).iter().all(|n| a.has(n) && !b.has(n)));
        });
    }

    #[test]
    fn what_has_another_shape_is_seen() {
        let sound = |ranges: &[(u64, u64)]| Set(ranges.to_vec()).is_sound();
        assert!(sound(&[]) && sound(&[(1, 1), (3, 9)]));
        assert!(
            !sound(&[(2, 1)]) && !sound(&[(1, 2), (3, 4)]) && !sound(&[(5, 6), (1, 2)]) && !sound(&[(1, 5), (3, 9)])
        );
        assert!(!sound(&[(0, u64::MAX), (0, 0)]));
        assert!(sound(&[(0, 65_535)]) && !sound(&[(0, 65_535), (70_000, 70_000)]) && !sound(&[(0, u64::MAX)]));
    }
}
