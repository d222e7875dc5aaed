//! What a node says of itself.

use serde::{Deserialize, Serialize};

/// So long it takes until a process that is to leave has left with its memory, seconds.
const SOON_S: u64 = 1;

/// Whom a node takes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// Guests are welcome.
    #[default]
    Open,
    /// No more guests: its administrator set a limit, and it is reached.
    Full,
    /// Its own user works there: guests leave.
    Owner,
    /// It is being emptied.
    Drained,
}

/// A load vector. Each node measures its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    /// CPUs that may be used, in thousandths: a container has less than its machine.
    pub cpus_milli: u32,
    /// Of these, held by gangs, whether they run just now or not.
    pub reserved_milli: u32,
    /// How fast one CPU is; 1000 is the machine that everything is compared with. 0: not measured, taken for 1000.
    pub speed: u32,
    /// Threads that run or want to, smoothed, in thousandths; those of gangs are not among them.
    pub runnable_milli: u32,
    /// Bytes of memory that may be used.
    pub memory: u64,
    /// Of these, to be had without swapping.
    pub free: u64,
    /// By how many bytes a second that goes down. Each node knows it of itself only; of others it is 0.
    pub falling: u64,
    /// Pages that came from swap or files again, a second (major faults); or waits for memory that come to as much.
    pub paging: u32,
    /// Processes of other nodes here.
    pub guests: u32,
    /// Whom it takes in.
    pub standing: Standing,
}

impl Vector {
    /// Bytes below which memory must not fall: `part` thousandths of all, and at least `least`.
    pub fn watermark(&self, part_milli: u32, least: u64) -> u64 {
        (self.memory / 1000 * u64::from(part_milli)).max(least.min(self.memory / 4))
    }

    /// Bytes that will be free in a moment, when help could come.
    pub(crate) fn soon(&self) -> u64 {
        self.free.saturating_sub(self.falling.saturating_mul(SOON_S))
    }

    /// The same node with so much more (or less) to do.
    #[must_use]
    pub fn with_demand(mut self, milli: i64) -> Vector {
        self.runnable_milli = (i64::from(self.runnable_milli) + milli).clamp(0, i64::from(u32::MAX)) as u32;
        self
    }

    /// The same node with so much more memory taken (or given back).
    #[must_use]
    pub fn with_memory(mut self, bytes: i64) -> Vector {
        self.free = self.free.saturating_add_signed(-bytes).min(self.memory);
        self
    }
}
