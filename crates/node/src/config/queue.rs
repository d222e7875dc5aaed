//! Who keeps the queue of batch jobs, and its rules.

use serde::{Deserialize, Serialize};

/// `[queue]`: batch jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// The node that keeps the cluster's queue; none: the one that made the cluster.
    pub node: Option<String>,
    /// Users who may do everything with everybody's jobs, besides root.
    pub operators: Vec<String>,
    /// Milliseconds after which a node that is down is lost, and what ran there with it. A daemon that is started again within it loses nothing.
    pub lost_after_ms: u64,
    /// A batch job's processes run on CPUs of their own, as many as it has.
    pub bind: bool,
    /// Who goes first, and how.
    pub rules: pando_queue::Settings,
}

impl Default for Queue {
    fn default() -> Self {
        Queue {
            node: None,
            operators: Vec::new(),
            lost_after_ms: 60_000,
            bind: true,
            rules: pando_queue::Settings::default(),
        }
    }
}
