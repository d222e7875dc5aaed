//! Who keeps the queue of batch jobs, and its rules.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where many systems keep the authorities that they trust.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// `[queue]`: batch jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// The node that keeps the cluster's queue; none: the one that made the cluster.
    pub node: Option<String>,
    /// Users, and groups (`@ops`), who may do everything with everybody's jobs, besides root.
    pub operators: Vec<String>,
    /// Milliseconds after which a node that is down is lost, and what ran there with it. A daemon that is started again within it loses nothing.
    pub lost_after_ms: u64,
    /// So many batch jobs may have the same CPU, and what they run in parallel takes turns there (`[gang]`); 1: nobody shares.
    pub turns: u32,
    /// A batch job's processes run on CPUs of their own, as many as it has.
    pub bind: bool,
    /// Programs that are run at the first node of each of its jobs before and after it, with the daemon's rights: this node's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prolog: Option<PathBuf>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epilog: Option<PathBuf>,
    /// Seconds that each of them may take.
    pub hook_s: u64,
    /// The program that sends mail, as sendmail does; none: no mail is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mailer: Option<PathBuf>,
    /// Jobs may name a URL that is told of them: the node that keeps the queue connects to any.
    pub webhooks: bool,
    /// A file with the authorities that `https://` is trusted for.
    pub roots: PathBuf,
    /// Who goes first, and how.
    pub rules: pando_queue::Settings,
}

impl Default for Queue {
    fn default() -> Self {
        Queue {
            node: None,
            operators: Vec::new(),
            lost_after_ms: 60_000,
            turns: 1,
            bind: true,
            prolog: None,
            epilog: None,
            hook_s: 60,
            mailer: None,
            webhooks: false,
            roots: ROOTS.into(),
            rules: pando_queue::Settings::default(),
        }
    }
}
