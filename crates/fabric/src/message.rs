//! What nodes say to each other. Links keep order and lose nothing as long as both ends live.

use crate::op::{Op, OpId, Outcome};
use crate::set::{NodeId, Set};
use serde::{Deserialize, Serialize};

/// Who is in the fabric, and who gives its operations an order. Each has the next number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct View {
    /// The number.
    pub epoch: u64,
    /// Who orders.
    pub manager: NodeId,
    /// All.
    pub members: Set,
}

/// A try to make the next view. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Ballot {
    /// Of the view that is to be.
    pub epoch: u64,
    /// Tries are counted.
    pub round: u64,
    /// Whose.
    pub by: NodeId,
}

/// An operation that a node has done in its view, and that not everybody may know of yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Did {
    /// Its number in the epoch.
    pub seq: u64,
    /// Whose.
    pub id: OpId,
    /// What.
    pub op: Op,
}

/// The next view, and what of the last one's operations was done somewhere and is to be done everywhere before it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Proposal {
    /// The view.
    pub view: View,
    /// The operations.
    pub done: Vec<Did>,
}

/// A message. Those of an epoch are nothing to nodes that are in another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub enum Message {
    /// One of an epoch.
    In(u64, Said),
    /// Is the sender's try the latest? Whoever answers does nothing more in its view.
    Prepare(Ballot),
    /// Yes; and what it has accepted and done.
    Promise {
        /// The try.
        ballot: Ballot,
        /// What it has accepted for that epoch.
        accepted: Option<(Ballot, Proposal)>,
        /// What it has done of its view's operations and others may not have.
        done: Vec<Did>,
    },
    /// No: there was a later one.
    Later(Ballot),
    /// Take this.
    Accept(Ballot, Proposal),
    /// It has.
    Accepted(Ballot),
    /// Most have: it is so.
    Install(Proposal),
    /// The sender has only come to this epoch, and has heard of a later one.
    Behind(u64),
}

impl Message {
    /// Can a node of the fabric have said it? `most`: bytes that a region has at most.
    pub(crate) fn is_sound(&self, most: u64) -> bool {
        let did = |done: &[Did]| done.iter().all(|d| d.op.is_sound(most));
        let proposal = |p: &Proposal| p.view.members.is_sound() && p.view.members.has(p.view.manager) && did(&p.done);
        match self {
            Message::In(_, said) => match said {
                Said::Begin(_, op) | Said::Ask(_, op) | Said::Query { op, .. } | Said::Commit { op, .. } => {
                    op.is_sound(most)
                }
                Said::Outcome(_, Outcome::Lost(set)) => set.is_sound(),
                _ => true,
            },
            Message::Promise { accepted, done, .. } => accepted.iter().all(|(_, p)| proposal(p)) && did(done),
            Message::Accept(ballot, p) => ballot.epoch == p.view.epoch && proposal(p),
            Message::Install(p) => proposal(p),
            Message::Prepare(_) | Message::Accepted(_) | Message::Later(_) | Message::Behind(_) => true,
        }
    }
}

/// What is said within an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub enum Said {
    /// The origin of a transfer, or a parent, is about to send so much.
    Begin(OpId, Op),
    /// The next bytes.
    Chunk(OpId, Vec<u8>),
    /// So many bytes have come.
    Got(OpId, u64),
    /// All of them have, here and everywhere below; or somebody there can't take them.
    Staged(OpId, bool),
    /// It will not be done after all.
    Drop(OpId),
    /// The origin asks the manager for an operation (a transfer when it is staged everywhere).
    Ask(OpId, Op),
    /// The manager: does it hold, there and everywhere below? `known`: what has a lower number is known everywhere and can be forgotten.
    Query {
        /// Its number in the epoch.
        seq: u64,
        /// See above.
        known: u64,
        /// Whose.
        id: OpId,
        /// What.
        op: Op,
    },
    /// It does, or does not.
    Answer(u64, bool),
    /// The manager: do it.
    Commit {
        /// Its number in the epoch.
        seq: u64,
        /// As in a query.
        known: u64,
        /// Whose.
        id: OpId,
        /// What.
        op: Op,
    },
    /// The manager: it does not hold somewhere.
    Abort(u64),
    /// It is done, there and everywhere below.
    Done(u64),
    /// The manager tells the origin.
    Outcome(OpId, Outcome),
    /// The origin knows.
    Seen(OpId),
}
