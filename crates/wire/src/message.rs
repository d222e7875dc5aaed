//! What two daemons tell each other on their control connection. Wire types: the daemon turns them into its own.

use crate::version::Versions;
use serde::{Deserialize, Serialize};

/// Members in one list.
pub const MAX_MEMBERS: usize = 1024;
/// Bytes of any text field.
pub const MAX_TEXT: usize = 1024;
/// The version that hellos themselves are framed with; the agreed one follows.
pub const HELLO_VERSION: u16 = 0;

/// The first frame in each direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// What the sender speaks.
    pub versions: Versions,
    /// Who the sender is and where it listens. The name must be the certificate's.
    pub me: Member,
    /// Changes when the sender's daemon starts anew.
    pub boot: u64,
    /// The program's version, for people.
    pub release: String,
}

/// One member, as all others know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where its daemon listens, `ADDR:PORT`.
    pub addr: String,
    /// When it said so, in milliseconds since 1970 by its own clock: the newest wins.
    pub stamp: u64,
}

/// How busy a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// CPUs that may be used.
    pub cpus: u32,
    /// Runnable threads, smoothed, in thousandths.
    pub runnable_milli: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes that can be had without swapping.
    pub free: u64,
    /// Guests here.
    pub guests: u32,
}

/// Every frame after the hellos.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// I live, and this is my load.
    Beat {
        /// Counts up.
        seq: u64,
        /// The load.
        load: Load,
    },
    /// All members I know.
    Members(Vec<Member>),
    /// I close this connection.
    Bye {
        /// Why.
        reason: String,
    },
}

/// A limit that a decoded message breaks.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{what}: {got}, the limit is {limit}")]
pub struct OverLimit {
    what: &'static str,
    got: usize,
    limit: usize,
}

fn within(what: &'static str, got: usize, limit: usize) -> Result<(), OverLimit> {
    if got > limit { Err(OverLimit { what, got, limit }) } else { Ok(()) }
}

impl Member {
    /// Checks lengths.
    pub fn check(&self) -> Result<(), OverLimit> {
        within("bytes of a member's name", self.name.len(), crate::name::MAX_NAME)?;
        within("bytes of an address", self.addr.len(), MAX_TEXT)
    }
}

impl Hello {
    /// Checks lengths.
    pub fn check(&self) -> Result<(), OverLimit> {
        within("bytes of a release", self.release.len(), MAX_TEXT)?;
        self.me.check()
    }
}

impl Message {
    /// Checks lengths and counts.
    pub fn check(&self) -> Result<(), OverLimit> {
        match self {
            Message::Beat { .. } => Ok(()),
            Message::Members(list) => {
                within("members in a list", list.len(), MAX_MEMBERS)?;
                list.iter().try_for_each(Member::check)
            }
            Message::Bye { reason } => within("bytes of a reason", reason.len(), MAX_TEXT),
        }
    }
}
