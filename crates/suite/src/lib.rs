//! The correctness suite: one small program per kernel object or trap, run unmoved and moved.
//!
//! `programs/NAME.c` are the programs. Each runs as it is (the reference), moved once at a random point, and moved
//! to and fro all the time; what it prints and how it ends must be the same. Real programs of the system run the
//! same way. Everything random comes from one printed seed: `PANDO_SUITE_SEED` sets it.
//!
//! `cargo run -p pando-suite` runs them by hand; the integration tests run them in CI.

pub mod aftermath;
pub mod api;
pub mod built;
pub mod command;
pub mod evidence;
pub mod faults;
pub mod faults_by_phase;
pub mod judge;
pub mod mover;
pub mod pando;
pub mod pool;
pub mod processes;
pub mod program;
pub mod random;
pub mod real;
pub mod run;
pub mod session;
pub mod suite;
pub mod testbed;
pub mod tree;
