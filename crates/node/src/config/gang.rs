//! Gangs: jobs that run by turns.

use serde::{Deserialize, Serialize};

/// `[gang]`: parallel jobs that share CPUs by turns (`pando run --gang`).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gang {
    /// Length of a turn, milliseconds, if `pando gang --quantum` has said nothing else. What counts is how the node has it that orders in the fabric.
    pub quantum_ms: f64,
    /// This node's CPUs for gangs, by the machine's numbers; empty: all that the daemon may use.
    pub cpus: Vec<u16>,
    /// How jobs come into rows.
    pub rules: pando_gang::Rules,
}

impl Default for Gang {
    fn default() -> Self {
        Gang { quantum_ms: 10.0, cpus: Vec::new(), rules: pando_gang::Rules::default() }
    }
}
