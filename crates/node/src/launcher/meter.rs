//! What a job's ranks use here, and the memory that they may have.

use super::family;
use pando_kernel::job_group::JobGroup;
use pando_kernel::{procfs, turns, usage};
use pando_launch::{Amount, Order, Ran, Used};
use serde_bytes::ByteBuf;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Interval, interval};

/// Memory is looked at so often where it is limited.
const LOOK: Duration = Duration::from_millis(100);

fn path(bytes: &ByteBuf) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Who else counts what ranks use.
#[derive(Clone, Copy)]
pub struct Counted {
    /// Their batch job's control groups do.
    by_job: bool,
    /// They take turns, and where there is one hierarchy for all that has them in no group of their batch job.
    apart: bool,
}

impl Counted {
    /// Of a batch job's groups and a gang's list of processes, if there are any.
    pub fn of(groups: &[ByteBuf], gang: Option<&ByteBuf>) -> Counted {
        let apart = gang.is_some_and(|list| !turns::is_alone(&path(list)));
        let counts = || JobGroup::again(groups.iter().map(path).collect()).cpu_ms().is_some();
        Counted { by_job: !groups.is_empty() && !apart && counts(), apart }
    }
}

/// Megabytes that a step's batch job may have of each node, as its environment says.
fn of_job(order: &Order) -> u64 {
    let found = order.task.environment.iter().find(|(name, _)| name.as_slice() == b"SLURM_MEM_PER_NODE");
    found.and_then(|(_, mb)| std::str::from_utf8(mb).ok()?.parse().ok()).unwrap_or(0)
}

/// See above.
pub struct Meter {
    /// Of jobs that this process has served before.
    before: usage::Used,
    /// Its batch job's control group counts for it.
    counted: bool,
    /// Bytes.
    limit: u64,
    looks: Option<Interval>,
    name: String,
}

impl Meter {
    /// Of a job that is to begin.
    pub fn new(order: &Order, counted: Counted) -> Meter {
        let most = match order.memory_mb {
            // Nobody else holds them to that.
            0 if counted.apart => of_job(order),
            mb => mb,
        };
        let limit = most.min(1 << 40) << 20;
        let looks = (limit > 0).then(|| interval(LOOK));
        Meter { before: usage::of_children(), counted: counted.by_job, limit, looks, name: order.name.clone() }
    }

    /// Returns when it is time to look.
    pub async fn look(&mut self) {
        match &mut self.looks {
            Some(looks) => _ = looks.tick().await,
            None => std::future::pending().await,
        }
    }

    /// They have more than they may: that, for people. It is said once.
    pub fn exceeded(&mut self) -> Option<String> {
        let now: u64 = family::all().into_iter().map(procfs::footprint).sum();
        if now <= self.limit {
            return None;
        }
        self.looks = None;
        let (name, has, asked) = (&self.name, now >> 20, self.limit >> 20);
        Some(format!("{name} has {has} MB of memory here, and asked for {asked} (--mem): its ranks are ended"))
    }

    /// What all of them have used, when nothing is left of them. `largest`: the most bytes that one process has had.
    pub fn used(&self, largest: u64, ranks: Vec<Ran>) -> Used {
        let now = usage::of_children();
        let all = Amount {
            cpu_ms: now.cpu_ms.saturating_sub(self.before.cpu_ms),
            memory: largest,
            read: now.read.saturating_sub(self.before.read),
            written: now.written.saturating_sub(self.before.written),
        };
        Used { all, away: if self.counted { Amount::default() } else { all }, ranks }
    }
}
