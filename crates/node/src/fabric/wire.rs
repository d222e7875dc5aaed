//! What two ends of a link say to each other.

use pando_fabric::{Key, Message, NodeId};
use pando_kernel::libfabric::MOST_ADDRESS;
use serde::{Deserialize, Serialize};

/// Of the frames below. Ends of two versions have no link.
pub const VERSION: u16 = 3;

/// Bytes of a provider's name.
const MOST_PROVIDER: usize = 64;

/// Where something can be sent beside a connection, by libfabric. Each is for one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Both ends need the same.
    pub provider: String,
    /// As that provider has them.
    pub address: Vec<u8>,
    /// In each message.
    pub tag: u64,
    /// What they are sealed with.
    pub key: Key,
}

impl Ticket {
    /// Can it be what a node would say?
    pub fn is_sound(&self) -> bool {
        self.provider.len() <= MOST_PROVIDER && self.address.len() <= MOST_ADDRESS
    }
}

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
    /// What is large may be sent to it beside the connection.
    pub beside: Option<Ticket>,
}

/// What the other one answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// So many have come here; and as in [`Hello`].
    Have(u64, Option<Ticket>),
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
    /// The next message, as a frame of its own, is the one with this number of those that go beside the connection.
    Beside(u32),
    /// What was sent to try that way has come.
    Reached,
}
