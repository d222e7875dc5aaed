//! What nodes say to each other. Links keep order and lose nothing as long as both ends live.

use crate::cast::{Cast, Heard};
use crate::op::{Op, OpId, Outcome};
use crate::set::{NodeId, Set};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Epochs and tries are counted, and nobody counts so far.
const FARTHEST: u64 = 1 << 40;

/// Bytes of a node's name.
const LONGEST_NAME: usize = 64;

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

/// Who a number is: a node's name, and which of its lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Who {
    /// The node's name.
    pub name: String,
    /// Another one each time it begins with empty memory.
    pub life: u64,
}

/// All members, by number.
pub type Roster = BTreeMap<NodeId, Who>;

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
    /// Members that the last view did not have.
    pub joined: Roster,
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
    /// Most have: it is so. With all members for those who did not have a say in it.
    Install(Proposal, Option<Roster>),
    /// The sender has only come to this epoch, and has heard of a later one.
    Behind(u64),
    /// So it is at the sender: these can't be heard by the first one.
    Unheard(NodeId, Set),
}

impl Message {
    /// Is it about the bytes of a transfer? Those have links of their own, so that nothing else waits behind them; each link keeps order.
    pub fn is_bulk(&self) -> bool {
        let Message::In(_, said) = self else { return false };
        let cast = matches!(said, Said::Sent(..) | Said::Heard(..) | Said::Lack(..) | Said::Patch(..));
        cast || matches!(said, Said::Begin(..) | Said::Chunk(..) | Said::Got(..) | Said::Staged(..) | Said::Drop(_))
    }

    /// Can a node of the fabric have said it? `most`: bytes that a region has at most.
    pub(crate) fn is_sound(&self, most: u64) -> bool {
        let did = |done: &[Did]| done.iter().all(|d| d.op.is_sound(most));
        let named = |r: &Roster| r.values().all(|who| who.name.len() <= LONGEST_NAME);
        let near = |n: u64| n < FARTHEST;
        let ballot = |b: &Ballot| near(b.epoch) && near(b.round);
        let members =
            |p: &Proposal| near(p.view.epoch) && p.view.members.is_sound() && p.view.members.has(p.view.manager);
        let proposal = |p: &Proposal| {
            members(p) && did(&p.done) && named(&p.joined) && p.joined.keys().all(|n| p.view.members.has(*n))
        };
        match self {
            Message::In(_, said) => match said {
                Said::Begin(_, op, cast) => {
                    let length = if let Op::Transfer { length, .. } = op { *length } else { 0 };
                    op.is_sound(most) && cast.iter().all(|cast| cast.is_sound(length))
                }
                Said::Heard(_, heard) => heard.deaf.is_sound(),
                Said::Ask(_, op) | Said::Query { op, .. } | Said::Commit { op, .. } => op.is_sound(most),
                Said::Outcome(_, Outcome::Lost(set)) => set.is_sound(),
                _ => true,
            },
            Message::Promise { ballot: b, accepted, done } => {
                ballot(b) && accepted.iter().all(|(_, p)| proposal(p)) && did(done)
            }
            Message::Accept(b, p) => ballot(b) && b.epoch == p.view.epoch && proposal(p),
            Message::Install(p, None) => proposal(p),
            Message::Install(p, Some(all)) => {
                proposal(p)
                    && named(all)
                    && all.len() == p.view.members.len()
                    && p.view.members.iter().all(|n| all.contains_key(&n))
            }
            Message::Unheard(_, set) => set.is_sound(),
            Message::Prepare(b) | Message::Accepted(b) | Message::Later(b) => ballot(b),
            Message::Behind(_) => true,
        }
    }
}

/// What is said within an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub enum Said {
    /// The origin of a transfer, or a parent, is about to send so much; or it is cast.
    Begin(OpId, Op, Option<Cast>),
    /// The next bytes.
    Chunk(OpId, #[serde(with = "serde_bytes")] Vec<u8>),
    /// So many bytes have come.
    Got(OpId, u64),
    /// All of them have, here and everywhere below; or somebody there can't take them.
    Staged(OpId, bool),
    /// It will not be done after all.
    Drop(OpId),
    /// Of a cast, so many pieces are on their way or lost.
    Sent(OpId, u32),
    /// How far the sender is with one, and all below.
    Heard(OpId, Heard),
    /// It lacks these pieces: each range from the first to the one after the last.
    Lack(OpId, Vec<(u32, u32)>),
    /// Here are some, from this one on.
    Patch(OpId, u32, #[serde(with = "serde_bytes")] Vec<u8>),
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
