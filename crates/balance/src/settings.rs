//! Thresholds. All have defaults that the experiments of the simulator were made with.

use serde::{Deserialize, Serialize};

/// `[balance]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Milliseconds between two looks.
    pub every_ms: u64,
    /// By how much sooner a process must end elsewhere, percent.
    pub gain_percent: u32,
    /// CPU time that a process must have used before it is moved, milliseconds; or it has waited ten times as long for it.
    pub min_cpu_ms: u64,
    /// So long a process stays where it has just come, milliseconds.
    pub residency_ms: u64,
    /// So long it does not go back to where it left, milliseconds. No more than twice `residency_ms`: only the last place is remembered,
    /// and by way of a third one it takes that long.
    pub no_return_ms: u64,
    /// What is known of another node must not be older than this, milliseconds.
    pub oldest_ms: u64,
    /// Most moves that one look begins; on a node with very many processes, a quarter of them.
    pub at_once: usize,
    /// Bytes a second that a move gets.
    pub bandwidth: u64,
    /// Fixed cost of a move, milliseconds.
    pub move_ms: u64,
    /// What a call that home answers costs a process abroad, microseconds.
    pub call_us: u32,
    /// Memory that is to be free, thousandths of all; below three quarters of that processes are ushered away.
    pub free_milli: u32,
    /// The same in bytes, at least.
    pub free_least: u64,
    /// Major faults a second that count as paging when memory is low.
    pub paging: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            every_ms: 1_000,
            gain_percent: 15,
            min_cpu_ms: 100,
            residency_ms: 3_000,
            no_return_ms: 6_000,
            oldest_ms: 8_000,
            at_once: 4,
            bandwidth: 500 << 20,
            move_ms: 20,
            call_us: 60,
            free_milli: 100,
            free_least: 128 << 20,
            paging: 50,
        }
    }
}

impl Settings {
    /// What must be free before anything is brought in.
    pub(crate) fn to_keep(&self, node: &crate::Vector) -> u64 {
        node.watermark(self.free_milli, self.free_least)
    }

    /// Below this memory is short.
    pub(crate) fn short_of(&self, node: &crate::Vector) -> u64 {
        self.to_keep(node) / 4 * 3
    }
}
