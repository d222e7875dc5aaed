//! Batch jobs. One node keeps the queue: crates/queue decides ([`clerk`]), what it decides is stored ([`journal`]) and taken to the nodes
//! ([`deliver`], [`errand`]); every node runs those that it is the first node of ([`batch`]). Users ask at any node ([`office`]).

pub use crate::batch_job::files::{Names, filled, pattern};
pub use crate::batch_job::variables;

pub mod ask;
pub mod batch;
mod clerk;
mod deliver;
pub mod errand;
pub mod has;
mod journal;
pub mod logs;
mod named;
pub mod office;
mod seen;
mod shown;
mod tell;
mod tied;
mod turns;
pub mod usage;
