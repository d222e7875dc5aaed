//! When, what and where to move. Each node decides alone, by what it sees of itself and what gossip told it of some others; all of it is
//! functions of their arguments, without clock, I/O or randomness of its own.
//!
//! The model is MOSIX's (Barak, Guday and Wheeler, 1993; Amir et al., 2000), in units of work: of `n` threads that want to run on `c`
//! CPUs of speed `s` each gets `s · min(1, c/n)`. A process moves when what it has still to do, its remaining work, ends clearly sooner
//! elsewhere, the move included. Nobody knows the remaining work; of processes that have run for `t` half run for another `t`
//! (Harchol-Balter and Downey, 1997), so `t` it is.

mod admit;
mod brake;
mod cost;
#[cfg(test)]
mod fuzz;
mod place;
mod process;
mod settings;
mod smooth;
mod spread;
#[cfg(test)]
mod tests;
mod usher;
mod vector;
mod why;

pub use admit::{Asked, Promised, Refusal, admit};
pub use brake::{Taker, brake};
pub use cost::{cost_ms, rate};
pub use place::{Placed, place};
pub use process::{Children, Process, Wish};
pub use settings::Settings;
pub use smooth::Smooth;
pub use spread::{Move, Other, spread};
pub use usher::{need, suspect, usher};
pub use vector::{Standing, Vector};
pub use why::{Stays, Why};
