//! A small explicit-state model checker, and the models of the moving engine that it explores.
//!
//! [`checker`] walks every schedule of a [`Model`] (breadth first, so a counterexample is a shortest one).
//! [`prototype`] is the design of the first prototype, whose known hang the checker must find.
//! [`baton`] is the engine as `docs/engine.md` and `docs/states.md` describe it, with mutants of it that the
//! checker must catch, so that we know it can fail.
//! [`deferred`] is what is done abroad before home has heard of it.
//! [`heap`] is a break that nobody is told of.
//! [`lease`] is what is said about a file at home that is read abroad.
//! [`threads`] is the same for a process with two threads.

pub mod baton;
pub mod checker;
pub mod deferred;
pub mod heap;
pub mod lease;
pub mod prototype;
pub mod threads;

pub use checker::{Explored, Failure, Model, Step, Verdict, explore};
