//! Turns that begin between two beats of the strobe: a thread of its own counts them, for no other task of the daemon may make them late.

use super::lock;
use crate::daemon::Node;
use std::sync::Arc;
use std::thread::{Builder, Thread, park, park_timeout};

/// Its name, by which it comes before programs.
pub const NAME: &str = "pando-turns";

/// Begins; it waits until it is told of a beat ([`Thread::unpark`]).
///
/// # Errors
///
/// The kernel's, where no thread can be made: a turn lasts until the next beat then.
pub fn start(node: Arc<Node>) -> std::io::Result<Thread> {
    let turns = move || {
        loop {
            let pause = lock(&node.gangs.seats).turn();
            pause.map_or_else(park, park_timeout);
        }
    };
    Builder::new().name(NAME.into()).spawn(turns).map(|begun| begun.thread().clone())
}
