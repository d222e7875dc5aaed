//! The node daemon: peers, local API, launching the engine's helpers.
//!
//! One process with a small control plane on tokio. It never touches a program's memory: that is done by the
//! engine's helpers (`pando __deputy`, `pando __guest`), which are processes of their own and outlive it.
#![warn(missing_docs)]

pub mod admission;
mod api;
mod audit;
mod balancing;
mod batch_job;
mod choice;
pub mod client;
pub mod config;
mod daemon;
mod door;
mod engine;
mod events;
mod fabric;
mod follow;
mod gang;
mod guests;
mod helper;
mod jobs;
pub mod joining;
mod kept;
mod lacks;
mod launcher;
mod link;
mod load;
mod membership;
mod metrics;
mod moves;
mod naming;
mod notify;
mod owner;
mod pace;
mod peers;
pub mod place;
mod presence;
mod processes;
mod questions;
pub mod queue;
mod reports;
mod runnable;
mod scratch;
mod seats;
mod shortage;
mod speed;
pub mod sys;
pub mod views;
mod whose;
mod writer;

pub use daemon::{DaemonError, run};
pub use launcher::{hold_main, starter_main};
