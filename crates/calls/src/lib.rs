//! What each system call reads and writes in memory, as data. Pure: no I/O.
//!
//! A call made by a moved program runs at home with its own, unchanged arguments. The guest side asks [`plan`] which bytes
//! the call reads and sends them; home writes them at the same addresses, runs the call, asks [`outputs`] which bytes the kernel
//! wrote and sends those back. No pointer is ever rewritten.
//!
//! Two rules hold everywhere in the tables:
//! - an input may be larger than what the kernel reads;
//! - an output that may be larger than what the kernel writes is an input too, so that the bytes the kernel left alone come
//!   back as they went. For lengths that only the kernel knows, the side that applies outputs keeps to [`Plan::Forward`]'s
//!   `outputs_max` (see [`clip`]).
//!
//! Memory at home was written by the other side, which may be hostile: every count is bounded and no range wraps around.

#![forbid(unsafe_code)]

mod class;
mod eintr;
mod family;
mod item;
mod limit;
mod names;
mod native;
mod range;
mod walk;

pub use class::{Class, class, clock_owner, cpu_clock, limits_memory, mask_place, temporary_mask};
pub use eintr::gives_eintr_by_itself;
pub use limit::{Limit, limit};
pub use names::name;
pub use native::{NativeRule, natives};
pub use range::{MAX_LEN, MAX_RANGES, MAX_TOTAL, Range, TOP, clip};

use walk::Walk;

/// Memory of the program on the side that asks.
pub trait Memory {
    /// Fills as much of `buf` as is readable from `addr` and returns how many bytes (0: the page is absent or not mapped).
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> usize;

    /// Whether `page`, which can't be read here, is at home and can be pulled. Where nothing is mapped: `false`, and the call
    /// is planned as the kernel would see it (`EFAULT`), else [`plan`] would ask for that page for ever.
    fn can_pull(&mut self, page: u64) -> bool {
        let _ = page;
        true
    }
}

/// What to do with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Send it home.
    Forward {
        /// Every byte that the kernel may read. Parts that are absent here need not be sent: home has them.
        inputs: Vec<Range>,
        /// Every byte that the kernel may write.
        outputs_max: Vec<Range>,
    },
    /// These pages (addresses, ascending) hold nested pointers and can't be read here: pull them, then plan again.
    NeedPages(Vec<u64>),
    /// The call can't be described: the process comes home, for this reason ("it called fork").
    Home(&'static str),
}

/// Says what the call reads and may write. Runs on the side where the program is, before the call.
pub fn plan(nr: u64, args: &[u64; 6], mem: &mut dyn Memory) -> Plan {
    if let Class::Home(reason) = class(nr, args) {
        return Plan::Home(reason);
    }
    let mut walk = Walk::new(args, None, mem);
    walk.describe(family::spec(nr, args));
    walk.into_plan()
}

/// Says what the kernel wrote or, where that can't be known to the byte, what it may have written and was an input, given that
/// the call returned `ret` (restart codes -512..-516 count as interrupted). Runs at home after the call, over home's memory, in
/// which the inputs are by then. Whoever uses them clips them to `outputs_max` (see [`clip`]):
/// the buffer may have been smaller than the length that the kernel reports.
pub fn outputs(nr: u64, args: &[u64; 6], ret: i64, mem: &mut dyn Memory) -> Vec<Range> {
    let mut walk = Walk::new(args, Some(ret), mem);
    walk.describe(family::spec(nr, args));
    walk.into_outputs()
}
