//! Who is in the cluster, and how busy each of them is: two protocols without a master, as state machines without clock, socket or thread.
//!
//! *Membership* is SWIM (Das, Gupta and Motivala, 2002) with suspicion and incarnations, as the crate `foca` does it
//! (docs/decisions/0020). *Dissemination* is MOSIX's (Amar, Barak, Drezner and Okun, 2009): at each interval a node tells a few
//! random members its own load and the newest part of its window; nobody polls, nobody knows everything, and what a node sends does
//! not grow with the cluster.
//!
//! A [`Gossip`] is driven by what comes in and by the time, which is an argument; what is to be done comes out as [`Effect`]s. The
//! daemon and the simulator drive the same code.

mod core;
#[cfg(test)]
mod fuzz;
mod swim;
mod timers;
pub mod window;

pub use core::{Broken, Effect, Gossip, Said, Settings};
pub use foca::{Identity, State};
pub use window::News;
