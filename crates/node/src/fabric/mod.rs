//! This node's part in the fabric: the pure core (crates/fabric) with a clock, links to other nodes and this daemon's types.
//!
//! A node takes part in *lives*: each begins with empty memory when a view takes it in ([`find`]), and ends when it is left out of one.

pub mod ask;
mod beside;
mod cast;
mod chores;
mod find;
mod lane;
mod life;
mod line;
mod rail;
mod strobe;
mod watch;
mod wire;

pub use ask::post_here;
pub use beside::{
    last_beat, life_of, manager, members, ordering, period, put_everywhere, set_period, set_variable, store, variable,
};
pub use chores::keep;
pub use find::{about, take_in};
pub use line::accept;

use life::Life;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// See above.
pub struct Part {
    inner: Mutex<Inner>,
    begun: Instant,
    /// An event was signalled, a variable written, or there is another view.
    changed: Notify,
    air: cast::Opening,
    rail: rail::Opening,
    casts: cast::Counts,
    /// Something is being cast.
    casting: Notify,
}

struct Inner {
    /// The number of the life that there is, or that is to be.
    number: u64,
    life: Option<Life>,
    /// Why there is none.
    waits: String,
}

impl Default for Part {
    fn default() -> Self {
        let inner = Inner { number: another(), life: None, waits: "it has just begun".into() };
        let (air, casts, casting) = (cast::Opening::new(), cast::Counts::default(), Notify::new());
        let rail = rail::Opening::new();
        Part { inner: Mutex::new(inner), begun: Instant::now(), changed: Notify::new(), air, rail, casts, casting }
    }
}

impl Part {
    /// Never held across an await.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this node casts with; none: it does not.
    fn air(&self) -> Option<&cast::Air> {
        self.air.get().and_then(|air| air.as_ref().ok())
    }

    /// What this node sends with by libfabric; none: it does not.
    fn rail(&self) -> Option<&Arc<rail::Rail>> {
        self.rail.get().and_then(|rail| rail.as_ref().ok())
    }

    /// Leaves nothing in the system that a process which ends does not take with it.
    pub(crate) fn close(&self) {
        self.rail().iter().for_each(|rail| rail.close());
    }

    /// The strobe's clock, microseconds.
    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// The core's clock, milliseconds.
    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }
}

/// A number that no life has.
fn another() -> u64 {
    let mut bytes = [0; 8];
    pando_wire::token::random(&mut bytes);
    u64::from_be_bytes(bytes)
}
