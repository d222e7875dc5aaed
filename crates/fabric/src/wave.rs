//! One operation's way down a tree and up again, at one node.

use crate::op::{Op, OpId};
use crate::set::NodeId;
use std::collections::BTreeSet;

/// See above.
#[derive(Debug)]
pub struct Wave {
    pub id: OpId,
    pub op: Op,
    /// None at the root.
    pub parent: Option<NodeId>,
    waiting: BTreeSet<NodeId>,
    /// Here, and at all below that have answered.
    pub holds: bool,
    /// It is done here; before, it is only asked whether it is to be.
    pub committed: bool,
}

impl Wave {
    /// Does it hold?
    pub fn asked(id: OpId, op: Op, parent: Option<NodeId>, children: Vec<NodeId>, holds: bool) -> Wave {
        Wave { id, op, parent, waiting: children.into_iter().collect(), holds, committed: false }
    }

    /// It is done.
    pub fn committed(id: OpId, op: Op, parent: Option<NodeId>, children: Vec<NodeId>) -> Wave {
        Wave { id, op, parent, waiting: children.into_iter().collect(), holds: true, committed: true }
    }

    /// A child has answered. False: it was not waited for.
    pub fn heard(&mut self, from: NodeId, holds: bool) -> bool {
        let waited = self.waiting.remove(&from);
        self.holds &= holds || !waited;
        waited
    }

    /// All have.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }
}
