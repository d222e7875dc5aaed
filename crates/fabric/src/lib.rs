//! The three primitives on which STORM builds a cluster's system software (Frachtenberg, Petrini, Fernandez, Pakin and Coll, 2002), as a state machine
//! without clock, socket or thread: *Xfer-And-Signal* brings bytes to a set of nodes and signals events there, all or nobody; *Test-Event*
//! asks whether one was signalled; *Compare-And-Write* compares a variable at each node of a set and, if that holds everywhere, writes one
//! everywhere.
//!
//! The nodes are in a [`View`]: its members, and the manager that gives the operations an order. Bytes and questions go down
//! trees that everybody computes for himself, answers come up. When somebody is lost, the rest agree on the next view
//! (the module `election`), in which what was done at one of them is done at all of them.
//!
//! Links keep order and lose nothing while both ends live; who can't be heard is told by [`Fabric::suspect`], in the same way to all sooner or
//! later. A node that comes back after it was lost is another one ([`NodeId`]) and begins with empty memory.

mod cast;
mod core;
mod election;
#[cfg(test)]
mod fuzz;
mod manager;
mod memory;
pub mod message;
mod op;
mod session;
mod set;
mod strobe;
mod transfer;
mod tree;
#[cfg(test)]
mod trial;
mod wave;

pub use cast::{Cast, Heard, Key, LONGEST_PIECE};
pub use core::{Effect, Fabric, Settings, Ways};
pub use memory::Memory;
pub use message::{Ballot, Did, Message, Proposal, Roster, View, Who};
pub use op::{Comparison, LONGEST_NAME, MOST_AT_ONCE, Name, Op, OpId, Outcome};
pub use session::{Miscounted, Session};
pub use set::{NodeId, Set};
pub use strobe::{Beat, Pacemaker, Pulse};
pub use tree::Tree;
