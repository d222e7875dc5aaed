//! A transfer at one node: what has come, and how far each child is. Chunks are sent on as they come (cut through), and no further ahead
//! of a child than its window.

use crate::cast::Casting;
use crate::op::Op;
use crate::set::NodeId;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Default)]
struct Child {
    sent: u64,
    got: u64,
    staged: bool,
}

/// What is staged: nobody sees it before it is committed.
#[derive(Debug)]
pub struct Staging {
    pub op: Op,
    /// None at the origin, and where nothing more is to come.
    pub parent: Option<NodeId>,
    bytes: Held,
    length: u64,
    children: BTreeMap<NodeId, Child>,
    /// Its bytes come by multicast, and chunks are sent only to who asks.
    pub casting: Option<Casting>,
    /// It finds out who hears, and is never done.
    pub probe: bool,
    /// Nobody below refused so far.
    pub ok: bool,
    /// Its parent knows.
    pub told: bool,
}

/// The origin has all of it from the beginning.
#[derive(Debug)]
enum Held {
    All(Bytes),
    Coming(Vec<u8>),
}

impl Staging {
    /// At the origin.
    pub fn of_origin(op: Op, bytes: Bytes, children: Vec<NodeId>) -> Staging {
        let length = bytes.len() as u64;
        Staging::new(op, None, Held::All(bytes), length, children)
    }

    /// At another node.
    pub fn coming(op: Op, parent: NodeId, children: Vec<NodeId>) -> Staging {
        let length = if let Op::Transfer { length, .. } = op { length } else { 0 };
        // A system gives memory when it is written: what never comes costs nothing.
        let mut bytes = Vec::new();
        let _ = bytes.try_reserve_exact(usize::try_from(length).unwrap_or(0));
        Staging::new(op, Some(parent), Held::Coming(bytes), length, children)
    }

    fn new(op: Op, parent: Option<NodeId>, bytes: Held, length: u64, children: Vec<NodeId>) -> Staging {
        let children = children.into_iter().map(|child| (child, Child::default())).collect();
        Staging { op, parent, bytes, length, children, casting: None, probe: false, ok: true, told: false }
    }

    /// All of it, bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What is here.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Held::All(bytes) => bytes,
            Held::Coming(bytes) => bytes,
        }
    }

    /// The same, to keep.
    pub fn into_bytes(self) -> Bytes {
        match self.bytes {
            Held::All(bytes) => bytes,
            Held::Coming(bytes) => bytes.into(),
        }
    }

    /// The next bytes; false if there are too many.
    pub fn take(&mut self, more: &[u8]) -> bool {
        let fits = (self.bytes().len() + more.len()) as u64 <= self.length;
        match &mut self.bytes {
            Held::Coming(bytes) if fits => {
                bytes.extend_from_slice(more);
                true
            }
            _ => false,
        }
    }

    /// Bytes that belong there. No further ahead than what is asked for, so memory is written about in order.
    pub fn place(&mut self, at: Range<usize>, more: &[u8]) {
        let Held::Coming(bytes) = &mut self.bytes else { return };
        if bytes.len() < at.start {
            bytes.resize(at.start, 0);
        }
        if bytes.len() == at.start {
            bytes.extend_from_slice(more);
        } else {
            bytes[at].copy_from_slice(more);
        }
    }

    /// These, without a copy at the origin.
    pub fn part(&self, at: Range<usize>) -> Bytes {
        match &self.bytes {
            Held::All(bytes) => bytes.slice(at),
            Held::Coming(bytes) => Bytes::copy_from_slice(&bytes[at]),
        }
    }

    /// All of it is here.
    fn is_whole(&self) -> bool {
        self.casting.as_ref().map_or(self.bytes().len() as u64 == self.length, Casting::is_whole)
    }

    /// What each child may be sent now, in chunks of at most `chunk` bytes and at most `window` bytes ahead of what it has.
    pub fn pump(&mut self, chunk: usize, window: u64) -> Vec<(NodeId, Vec<u8>)> {
        let bytes = match &self.bytes {
            Held::All(bytes) => &bytes[..],
            Held::Coming(bytes) => &bytes[..],
        };
        let mut due = Vec::new();
        for (node, child) in &mut self.children {
            while child.sent < bytes.len() as u64 && child.sent - child.got < window {
                let from = child.sent as usize;
                let to = (from + chunk.max(1)).min(bytes.len());
                due.push((*node, bytes[from..to].to_vec()));
                child.sent = to as u64;
            }
        }
        due
    }

    /// A child has so much. False: that can't be.
    pub fn got(&mut self, node: NodeId, bytes: u64) -> bool {
        let child = self.children.get_mut(&node).filter(|c| c.got <= bytes && bytes <= c.sent);
        child.map(|c| c.got = bytes).is_some()
    }

    /// A child, and all below it, has all of it, or can't take it. False: that can't be.
    pub fn staged(&mut self, node: NodeId, ok: bool) -> bool {
        let (length, cast) = (self.length, self.casting.is_some());
        let child = self.children.get_mut(&node).filter(|c| !ok || cast || c.sent == length);
        let known = child.map(|c| c.staged = true).is_some();
        self.ok &= ok || !known;
        known
    }

    /// All of it is here and below, or somebody can't take it.
    pub fn is_over(&self) -> bool {
        !self.ok || self.is_whole() && self.children.values().all(|c| c.staged)
    }

    /// Those below.
    pub fn children(&self) -> Vec<NodeId> {
        self.children.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::Set;

    fn op() -> Op {
        Op::Transfer { set: Set::default(), region: "r".into(), offset: 0, length: 10, signal: None }
    }

    #[test]
    fn it_is_sent_on_as_it_comes_and_not_too_far_ahead() {
        let (child, other) = (NodeId(2), NodeId(3));
        let mut staging = Staging::coming(op(), NodeId(1), vec![child, other]);
        assert!(staging.pump(2, 4).is_empty());
        assert!(staging.take(b"abcdefg"));
        let due = staging.pump(2, 4);
        assert_eq!(due.iter().filter(|d| d.0 == child).map(|d| &d.1[..]).collect::<Vec<_>>(), [b"ab", b"cd"]);
        assert!(staging.pump(2, 4).is_empty(), "the window is full");
        assert!(!staging.got(child, 5), "it was not sent so much");
        assert!(staging.got(child, 4));
        assert_eq!(staging.pump(2, 4), [(child, b"ef".to_vec()), (child, b"g".to_vec())]);
        assert!(!staging.take(b"hijk"), "more than there is");
        assert!(staging.take(b"hij"));
        assert!(!staging.staged(child, true), "it has not got all of it");
        for node in [child, other] {
            while !staging.pump(2, 4).is_empty() || !staging.got(node, 10) {
                let sent = staging.children[&node].sent;
                assert!(staging.got(node, sent));
            }
        }
        assert!(staging.staged(child, true) && !staging.is_over() && staging.staged(other, true) && staging.is_over());
    }

    #[test]
    fn one_that_can_not_is_enough() {
        let mut staging = Staging::coming(op(), NodeId(1), vec![NodeId(2), NodeId(3)]);
        assert!(staging.staged(NodeId(3), false) && staging.is_over() && !staging.ok);
        assert!(!staging.staged(NodeId(7), false), "a stranger");
    }
}
