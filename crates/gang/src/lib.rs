//! Gang scheduling as a state machine without clock, socket or process: Ousterhout's matrix (Scheduling Techniques for Concurrent Systems, 1982).
//! Its columns are the CPUs of all nodes, its rows are time slots. All ranks of a job are in one row, so they run at the same time, and whoever
//! waits for a message in a loop waits for somebody who runs. One row after the other has its slot; STORM's strobe switches all nodes at once.
//!
//! [`Matrix`] is at one node: things come in ([`Input`]), effects come out ([`Effect`]). What all others must know is a [`Table`], of which
//! they compute by themselves who runs in which slot.
//!
//! - *A job's CPUs stay the same for its life; its row may change.* It goes where nobody shares more than before, if there is such a place; within
//!   a row by best fit, or into blocks of powers of two ([`Packing`]; Feitelson, Packing Schemes for Gang Scheduling, 1996).
//! - *Alternative slots*: it also runs in other rows in which all its CPUs are free.
//! - *Slot unification*: where all of a row fit into others, they move there and the row is gone.
//! - *Repacking*: where jobs have to go around each other so that there is a row less, or room for one more, they do.
//! - *Levels*: a job stands still while one of a higher level, which does not stand still itself, has a CPU of its.
//! - *Lengths of turns*: gangs that share nodes have turns of the same length, the shortest that one of them wants; others have their own.
//! - *Busy nodes*: of places that are as good it gets those where least runs besides gangs.
//! - *First come, first served*: who finds no room waits in a line ([`Desk`]).
//! - *What stands still keeps its CPUs in its row*, so that it can always go on. Jobs of other levels, and alternative slots, use them in the
//!   meantime; rows in which all stand still are not in the table.
//!
//! | File | What it is |
//! |---|---|
//! | `wish` | inputs, effects, rules |
//! | `table` | what all nodes know |
//! | `layout`, `cells` | CPUs of the cluster as bits |
//! | `matrix` | jobs and rows, and what changes them |
//! | `choose` | in which row there is room; why not |
//! | `fit`, `buddy` | where in a row |
//! | `settle` | who stands still; slot unification |
//! | `repack` | rows anew, by moving jobs around each other |
//! | `draw` | the table of the matrix: alternative slots, whose row is next |
//! | `lengths` | how long whose turns are |
//! | `desk` | who waits for a place, and who is next |
//! | `clock` | which slot it is, between the beats of the strobe |
//! | `tally` | how many slots each has had |
//! | `view` | what people see |
#![warn(missing_docs)]

mod buddy;
mod cells;
mod choose;
mod clock;
mod desk;
#[cfg(test)]
mod desk_trial;
mod draw;
mod fit;
#[cfg(test)]
mod fuzz;
mod layout;
mod lengths;
mod matrix;
mod repack;
#[cfg(test)]
mod repack_trial;
mod settle;
mod table;
mod tally;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trial;
mod view;
mod wish;

pub use clock::{Clock, Pace};
pub use desk::{Desk, SILENT_MS};
pub use matrix::Matrix;
pub use table::{MOST_JOBS, MOST_LENGTHS, MOST_ROWS, Table};
pub use tally::Tally;
pub use view::{Line, Seen, Standing};
pub use wish::{Effect, Gang, Input, Packing, Place, Rules, Shape};
