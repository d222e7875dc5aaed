//! The manager gives the operations of its view an order: of those that touch the same names one is done everywhere before the next begins.

use crate::op::{Op, OpId, Outcome};
use crate::set::Set;
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// Does it hold?
    Asking,
    /// It is being done.
    Doing,
    /// The origin has been told.
    Told,
}

#[derive(Debug)]
struct Running {
    id: OpId,
    op: Op,
    phase: Phase,
}

/// What the manager wants said.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// To the nodes of the operation.
    Query { seq: u64, known: u64, id: OpId, op: Op },
    /// To them.
    Commit { seq: u64, known: u64, id: OpId, op: Op },
    /// To them.
    Abort { seq: u64 },
    /// To its origin.
    Tell(OpId, Outcome),
}

/// What nodes may have to find again must fit into one message, twice, when the next view is made: operations that are not forgotten have no more
/// bytes than this, or there is one of them.
const MOST_UNFORGOTTEN: usize = 64 << 10;

/// The operations of one view.
#[derive(Debug)]
pub struct Manager {
    members: Set,
    next: u64,
    queue: VecDeque<(OpId, Op)>,
    running: BTreeMap<u64, Running>,
    /// Bytes of each that somebody may still have to find again.
    unforgotten: BTreeMap<u64, usize>,
}

impl Manager {
    /// Of a view with these members.
    pub fn new(members: Set) -> Manager {
        Manager { members, next: 1, queue: VecDeque::new(), running: BTreeMap::new(), unforgotten: BTreeMap::new() }
    }

    /// An operation is asked for; a transfer is staged everywhere.
    pub fn ask(&mut self, id: OpId, op: Op) -> Vec<Step> {
        if !op.set().is_within(&self.members) {
            return vec![Step::Tell(id, Outcome::Lost(op.set().without(&self.members)))];
        }
        self.queue.push_back((id, op));
        self.begin()
    }

    /// Those that nothing earlier is in the way of.
    fn begin(&mut self) -> Vec<Step> {
        let (mut steps, mut left) = (Vec::new(), VecDeque::new());
        let known = self.known();
        self.unforgotten = self.unforgotten.split_off(&known);
        let mut weight: usize = self.unforgotten.values().sum();
        while let Some((id, op)) = self.queue.pop_front() {
            let waits = |earlier: &Op| earlier.conflicts(&op) && !op.follows(earlier);
            let is_busy = |r: &Running| r.phase != Phase::Told && waits(&r.op);
            let is_full = weight > 0 && weight + op.weight() > MOST_UNFORGOTTEN;
            if is_full
                || self.running.values().any(is_busy)
                || left.iter().any(|(_, earlier): &(OpId, Op)| earlier.conflicts(&op))
            {
                left.push_back((id, op));
                continue;
            }
            let seq = self.next;
            self.next += 1;
            weight += op.weight();
            self.unforgotten.insert(seq, op.weight());
            let transfer = matches!(op, Op::Transfer { .. } | Op::Put { .. });
            let phase = if transfer { Phase::Doing } else { Phase::Asking };
            self.running.insert(seq, Running { id, op: op.clone(), phase });
            let known = self.known();
            steps.push(match transfer {
                true => Step::Commit { seq, known, id, op },
                false => Step::Query { seq, known, id, op },
            });
        }
        self.queue = left;
        steps
    }

    /// Operations with lower numbers are known to their origins.
    fn known(&self) -> u64 {
        self.running.keys().next().copied().unwrap_or(self.next)
    }

    /// The nodes have answered.
    pub fn answered(&mut self, seq: u64, holds: bool) -> Vec<Step> {
        let known = self.known();
        let Some(r) = self.running.get_mut(&seq).filter(|r| r.phase == Phase::Asking) else { return Vec::new() };
        let (id, op) = (r.id, r.op.clone());
        if holds && matches!(op, Op::Compare { write: Some(_), .. }) {
            r.phase = Phase::Doing;
            return vec![Step::Commit { seq, known, id, op }];
        }
        // Nothing was done that anybody would have to remember.
        self.running.remove(&seq);
        let mut steps = vec![Step::Abort { seq }, Step::Tell(id, Outcome::Compared(holds))];
        steps.extend(self.begin());
        steps
    }

    /// All nodes have done it.
    pub fn done(&mut self, seq: u64) -> Vec<Step> {
        let Some(r) = self.running.get_mut(&seq).filter(|r| r.phase == Phase::Doing) else { return Vec::new() };
        r.phase = Phase::Told;
        let outcome = match r.op {
            Op::Transfer { .. } | Op::Put { .. } => Outcome::Transferred,
            Op::Compare { .. } => Outcome::Compared(true),
        };
        let mut steps = vec![Step::Tell(r.id, outcome)];
        steps.extend(self.begin());
        steps
    }

    /// The origin knows.
    pub fn seen(&mut self, id: OpId) -> Vec<Step> {
        self.running.retain(|_, r| r.id != id || r.phase != Phase::Told);
        self.begin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Comparison;
    use crate::set::NodeId;

    fn id(number: u64) -> OpId {
        OpId { origin: NodeId(1), number }
    }

    fn compare(variable: &str, nodes: &[u64]) -> Op {
        let set = nodes.iter().map(|n| NodeId(*n)).collect();
        let write = Some(("w".to_owned() + variable, 1));
        Op::Compare { set, variable: variable.into(), comparison: Comparison::Equal, value: 0, write }
    }

    #[test]
    fn what_touches_the_same_names_is_done_one_after_the_other() {
        let mut manager = Manager::new((1..=3).map(NodeId).collect());
        let began = |steps: &[Step]| {
            let of = |s: &Step| if let Step::Query { id, .. } = s { Some(id.number) } else { None };
            steps.iter().filter_map(of).collect::<Vec<_>>()
        };
        assert_eq!(began(&manager.ask(id(1), compare("x", &[1, 2]))), [1]);
        assert_eq!(began(&manager.ask(id(2), compare("x", &[3]))), []);
        assert_eq!(began(&manager.ask(id(3), compare("y", &[1]))), [3]);
        assert_eq!(began(&manager.ask(id(4), compare("x", &[1]))), [], "the second goes first");
        let steps = manager.answered(1, true);
        assert!(matches!(steps[..], [Step::Commit { seq: 1, known: 1, .. }]), "{steps:?}");
        let steps = manager.done(1);
        assert_eq!(steps[0], Step::Tell(id(1), Outcome::Compared(true)));
        assert_eq!(began(&steps), [2]);
        // The first is not forgotten before its origin knows.
        assert!(matches!(steps[1], Step::Query { seq: 3, known: 1, .. }), "{steps:?}");
        assert_eq!(manager.seen(id(1)), []);
        let steps = manager.answered(3, false);
        assert_eq!(steps[1], Step::Tell(id(2), Outcome::Compared(false)));
        assert!(matches!(steps[2], Step::Query { seq: 4, known: 2, .. }), "{steps:?}");
    }

    #[test]
    fn what_may_have_to_be_found_again_is_not_too_much() {
        let mut manager = Manager::new((1..=3).map(NodeId).collect());
        let put = |n: u64| Op::Put {
            set: [NodeId(2)].into_iter().collect(),
            region: n.to_string(),
            offset: 0,
            bytes: vec![0; 4096],
            signal: None,
        };
        let began: usize = (1..=100).map(|n| manager.ask(id(n), put(n)).len()).sum();
        assert!((10..20).contains(&began), "{began}");
        // All but the first are known to their origins: who is stopped holds up all others.
        let more: usize = (2..=began as u64).map(|n| manager.done(n).len() - 1 + manager.seen(id(n)).len()).sum();
        assert_eq!(more, 0);
        manager.done(1);
        assert_eq!(manager.seen(id(1)).len(), began);
    }

    #[test]
    fn nobody_is_asked_for_what_can_not_be() {
        let mut manager = Manager::new((1..=3).map(NodeId).collect());
        let lost = [NodeId(4)].into_iter().collect();
        assert_eq!(manager.ask(id(1), compare("x", &[3, 4])), [Step::Tell(id(1), Outcome::Lost(lost))]);
    }
}
