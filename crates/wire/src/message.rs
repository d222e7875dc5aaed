//! What two daemons tell each other on their control connection. Wire types: the daemon turns them into its own.

use crate::version::Versions;
use serde::{Deserialize, Serialize};

/// Members of a cluster that a node knows at a time.
pub const MAX_MEMBERS: usize = 4096;
/// Members in one list: whoever joins hears of the others by gossip.
pub const MAX_LISTED: usize = 1024;
/// Loads in one message.
pub const MAX_LOADS: usize = 256;
/// Bytes of a membership packet.
pub const MAX_PACKET: usize = 16 * 1024;
/// Bytes of what is answered.
pub const MAX_ANSWER: usize = 32 * 1024;
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

/// Whom a node takes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// Guests are welcome.
    #[default]
    Open,
    /// Its limit of guests is reached.
    Full,
    /// Its own user works there.
    Owner,
    /// It is being emptied.
    Drained,
}

/// How busy a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// CPUs that may be used, in thousandths.
    pub cpus_milli: u32,
    /// Of these, held by gangs.
    pub reserved_milli: u32,
    /// How fast one of them is, 1000 being usual; 0 where nobody measured.
    pub speed: u32,
    /// Runnable threads that are no gang's, smoothed, in thousandths.
    pub runnable_milli: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes that can be had without swapping.
    pub free: u64,
    /// Major page faults a second.
    pub paging: u32,
    /// Guests here.
    pub guests: u32,
    /// Whom it takes in.
    pub standing: Standing,
}

/// The load of some node, as the sender knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Of whom.
    pub who: String,
    /// When that node's daemon started: of two lives the later one counts.
    pub life: u64,
    /// Counts up in a life.
    pub number: u64,
    /// How old it is, milliseconds.
    pub age_ms: u64,
    /// The load.
    pub load: Load,
}

/// What one daemon asks another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// May this process come?
    Admit {
        /// Its home.
        home: String,
        /// Its pid there.
        pid: u32,
        /// Bytes of memory that it needs.
        needs: u64,
        /// Threads that want to run, in thousandths.
        demand_milli: u32,
        /// The part of a CPU that it gets where it is, in thousandths; none if it does not come for speed.
        has_milli: Option<u32>,
    },
    /// What was asked for with [`Question::Admit`] does not come after all.
    ComesNot {
        /// Its home.
        home: String,
        /// Its pid there.
        pid: u32,
    },
    /// A process of yours is a guest here, and should go there.
    Advise {
        /// Its pid at home.
        pid: u32,
        /// Where to: a node's name.
        to: String,
        /// Why.
        reason: String,
        /// It can't stay: memory is short, or the node is being emptied.
        must: bool,
        /// Bytes of memory that it has there, which come by its home.
        bytes: u64,
    },
    /// Take no more guests and send those away that are there; or take guests again. An administrator at the asking node wants it so.
    Drain {
        /// Which of the two.
        on: bool,
        /// Why, for others to see.
        reason: String,
        /// Who he is.
        by: String,
    },
    /// What did you decide of late? An administrator at the asking node wants to know.
    Decisions,
    /// A process of yours, with this pid, is a guest here: where may it go, and what keeps it here?
    Keeps(u32),
    /// Which view of the fabric do you know?
    Fabric,
    /// Take me into it: this is my life's number.
    TakeIn(u64),
    /// This event is to happen at all members of the fabric with one of the next beats.
    Post(String),
    /// Do you keep the queue of batch jobs?
    Queue,
}

/// Every frame after the hellos.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// A packet of the membership protocol (crates/gossip).
    Swim(Vec<u8>),
    /// Loads: the sender's own first.
    Loads(Vec<Told>),
    /// A question, which is answered under its number.
    Ask {
        /// The number.
        number: u64,
        /// The question.
        question: Question,
    },
    /// The answer to a question: yes, or why not.
    Answer {
        /// The question's number.
        number: u64,
        /// Yes, with what was asked for (JSON; most questions want no more than the yes), or why not.
        answer: Result<String, String>,
    },
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
        within("bytes of an address", self.addr.len(), MAX_TEXT)?;
        // It is shown to people, on terminals.
        within("control characters in an address", self.addr.chars().filter(|c| c.is_control()).count(), 0)
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
            Message::Swim(packet) => within("bytes of a membership packet", packet.len(), MAX_PACKET),
            Message::Loads(all) => {
                within("loads in a list", all.len(), MAX_LOADS)?;
                all.iter().try_for_each(|t| within("bytes of a member's name", t.who.len(), crate::name::MAX_NAME))
            }
            Message::Ask { question: Question::Advise { to, reason, .. }, .. } => {
                within("bytes of a member's name", to.len(), crate::name::MAX_NAME)?;
                within("bytes of a reason", reason.len(), MAX_TEXT)
            }
            Message::Ask { question: Question::Admit { home, .. } | Question::ComesNot { home, .. }, .. } => {
                within("bytes of a member's name", home.len(), crate::name::MAX_NAME)
            }
            Message::Ask { question: Question::Drain { reason, by, .. }, .. } => {
                within("bytes of a reason", reason.len() + by.len(), MAX_TEXT)
            }
            Message::Ask {
                question:
                    Question::Decisions | Question::Keeps(_) | Question::Fabric | Question::TakeIn(_) | Question::Queue,
                ..
            } => Ok(()),
            Message::Ask { question: Question::Post(event), .. } => within("bytes of an event", event.len(), MAX_TEXT),
            Message::Answer { answer: Ok(text), .. } => within("bytes of an answer", text.len(), MAX_ANSWER),
            Message::Answer { answer: Err(reason), .. } | Message::Bye { reason } => {
                within("bytes of a reason", reason.len(), MAX_TEXT)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_does_no_harm_to_a_terminal() {
        let member = |addr: &str| Member { name: "n1".into(), addr: addr.into(), stamp: 1 };
        assert_eq!(member("[fe80::1%eth0]:7117").check(), Ok(()));
        assert!(member("\u{1b}]0;x\u{7}").check().is_err());
    }
}
