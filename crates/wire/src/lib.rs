//! Identities, TLS, the handshake, frames and their limits.
//!
//! Everything a node reads from another machine passes through this crate first. Nothing here does I/O on its own
//! account except [`Identity`], which lives in files: the rest turns bytes into values and back, and says no to
//! whatever breaks a limit.
#![warn(missing_docs)]

pub mod datagram;
pub mod frame;
pub mod identity;
pub mod join;
pub mod message;
pub mod name;
pub mod sniff;
pub mod tls;
pub mod token;
pub mod version;

pub use identity::Identity;
pub use name::NodeName;
pub use rustls;
pub use tls::peer_name;

/// SNI of a connection between two daemons.
pub const SNI_NODE: &str = "node.pando";
/// SNI of a link of the fabric (crates/fabric) between two daemons.
pub const SNI_FABRIC: &str = "fabric.pando";
/// SNI of a link of a parallel job (crates/launch) between two daemons.
pub const SNI_JOB: &str = "job.pando";
/// SNI of an errand of a queue of batch jobs (crates/queue) between two daemons.
pub const SNI_QUEUE: &str = "queue.pando";
/// SNI of the data connection of a moving process. The daemon hands it to a helper before TLS begins.
pub const SNI_MOVE: &str = "move.pando";
/// SNI of a machine that is not a member yet and brings a token.
pub const SNI_JOIN: &str = "join.pando";
