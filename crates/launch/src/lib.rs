//! How a parallel job starts, speaks and ends on many nodes, as state machines without clock, socket or process: the tree of its nodes
//! ([`Order`]), each node's part in it ([`Part`]), who decides ([`Head`]), the process manager that its ranks speak to ([`pmi`]), and groups of ranks
//! that they start ([`Spawn`]).
//!
//! As in STORM (Frachtenberg, Petrini, Fernandez, Pakin and Coll, 2002) one order starts all ranks, what they have to say comes up a tree, and
//! their end is one reduction. Nobody begins before all are ready.
#![warn(missing_docs)]

mod frame;
mod groups;
mod head;
mod meetings;
mod message;
mod names;
mod needs;
mod order;
mod own;
mod parcel;
mod part;
mod plan;
pub mod pmi;
mod pool;
mod spawn;
#[cfg(test)]
mod trial;
#[cfg(test)]
mod trial_groups;

pub use frame::{Broken, Copies, Frames, MOST, encode};
pub use groups::{Bid, Word};
pub use head::{Act, Head};
pub use message::{
    Amount, Ask, Asker, Down, Ending, Granted, Identity, MOST_RAN, Modex, Own, Ran, Said, Stream, Tell, Up, Used, Wish,
    Work,
};
pub use names::{Name, Named};
pub use needs::{Wants, listed, needed, wants, wants_pmix};
pub use order::{Environment, Gang, Group, LONGEST_JOB_NAME, Manager, Order, STEP, Share, Stdin, Task};
pub use own::own;
pub use parcel::{Kind, Need, Parcel, Spread, Sum, arity, base, check as check_files, piece_size, sum};
pub use part::{Child, Effect, Event, Part};
pub use plan::{Candidate, Mpi, Request, Turns, plan};
pub use pool::{Pool, Verdict};
pub use spawn::{Program, Spawn, Spawned};
