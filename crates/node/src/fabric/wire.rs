//! What two ends of a link say to each other.

use pando_fabric::{Message, NodeId};
use serde::{Deserialize, Serialize};

/// Of the frames below. Ends of two versions have no link.
pub const VERSION: u16 = 2;

/// Which link, between which lives: the first frame of whoever connects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Which fabric.
    pub founding: u64,
    /// The sender's number in it, and its life's.
    pub from: (NodeId, u64),
    /// The same of whom it wants to speak to.
    pub to: (NodeId, u64),
    /// For the bytes of transfers.
    pub bulk: bool,
    /// So many messages have come to the sender.
    pub have: u64,
}

/// What the other one answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// So many have come here.
    Have(u64),
    /// That life is over, and does not come back.
    Over,
    /// The sender is in no view any more, here in this epoch.
    LeftOut(u64),
    /// Later: it is about to begin, or to connect itself.
    Later,
}

/// Every frame after these.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Frame {
    /// The next message.
    Said(Message),
    /// So many have come.
    Have(u64),
}
