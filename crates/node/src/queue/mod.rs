//! Batch jobs. One node keeps the queue: crates/queue decides ([`clerk`]), what it decides is stored ([`journal`]) and taken to the nodes
//! ([`deliver`], [`errand`]); every node runs those that it is the first node of ([`batch`]). Users ask at any node ([`office`]).

pub use crate::batch_job::files::{Names, filled, pattern};
pub use crate::batch_job::variables;

pub mod ask;
pub mod batch;
mod campaign;
mod clerk;
mod deliver;
pub mod errand;
mod etcd;
pub mod gangs;
pub mod has;
mod journal;
pub mod keeper;
pub mod logs;
mod named;
pub mod office;
pub mod pool;
mod seen;
mod shown;
mod sofar;
mod sqlite;
mod store;
mod tell;
mod tenure;
mod terms;
mod tied;
mod turns;
pub mod usage;
