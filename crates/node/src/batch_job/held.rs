//! What a batch job's processes are held in: a control group where one can be made, and the helper's own descendants. Whatever the job starts is in
//! one of them, so that all of it is found.

use super::Task;
use crate::jobs::numbers::Numbers;
use crate::launcher::family;
use crate::queue::errand::Key;
use pando_kernel::job_group::{self, JobGroup, Parents};
use pando_kernel::power::{self, Meter};
use pando_kernel::signal;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Between two rounds of killing what is left.
const AGAIN: Duration = Duration::from_millis(5);

/// A run's file in the node's state: what a daemon that begins later has to know of it. Files of earlier versions have the key only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Which.
    #[serde(flatten)]
    pub key: Key,
    /// Whose it is.
    #[serde(default)]
    pub user: String,
    /// Its CPUs here; none: it has no particular ones.
    #[serde(default)]
    pub cpus: Vec<u16>,
    /// Its generic resources here, by number.
    #[serde(default)]
    pub numbers: Numbers,
    /// Its control groups.
    #[serde(default)]
    pub groups: Vec<PathBuf>,
    /// Its scratch directory.
    #[serde(default)]
    pub scratch: Option<PathBuf>,
    /// The node where its processes compute; none: here.
    #[serde(default)]
    pub away: Option<String>,
}

impl Kept {
    /// Of one of which nothing is known yet.
    pub fn new(key: Key, user: &str) -> Kept {
        let (cpus, numbers, groups) = (Vec::new(), Numbers::new(), Vec::new());
        Kept { key, user: user.to_owned(), cpus, numbers, groups, scratch: None, away: None }
    }
}

/// What the control groups of a helper's jobs are called: they are one job's after the other.
pub fn group_name(task: &Task) -> String {
    let helper = task.spare.file_name().unwrap_or_default();
    format!("{}{}", job_group::prefix(&task.mark), helper.display())
}

/// Ends all that is in a group whose helper is no more.
pub fn end_group(group: &JobGroup) {
    while group.kill() > 0 {
        std::thread::sleep(AGAIN);
    }
    if let Err(e) = group.remove() {
        tracing::debug!("a batch job's control group: {e}");
    }
}

/// All of one job.
pub struct Held {
    group: JobGroup,
    /// The kernel holds it to a limit of memory.
    pub has_limit: bool,
    /// What the node has used since it began, energy and CPU time.
    meter: Option<(Meter, u64)>,
}

impl Held {
    /// For a job that is to begin. `left`: the groups of an earlier one, which nobody else knows any more.
    pub fn make(task: &Task, parents: &Parents, left: Option<JobGroup>) -> Held {
        let memory = task.order.shares.first().map(|share| share.memory << 20).filter(|bytes| *bytes > 0);
        let name = group_name(task);
        let left = left.and_then(|left| match task.fresh {
            true => left.remove().ok().and(None),
            false => left.renew(memory),
        });
        let group = left.unwrap_or_else(|| parents.make(&name, memory));
        let meter = Meter::open().and_then(|meter| Some((meter, power::busy_ms()?)));
        Held { has_limit: memory.is_some() && group.holds_memory(), group, meter }
    }

    /// See there.
    pub fn group(&self) -> &JobGroup {
        &self.group
    }

    /// They outlive this.
    pub fn into_group(self) -> JobGroup {
        self.group
    }

    /// Of the node's energy since it began what belongs to so much CPU time, millijoules: shared out by time, for nobody knows better. To be asked now and
    /// then, see [`Meter`].
    pub fn energy_mj(&mut self, cpu_ms: u64) -> Option<u64> {
        let (meter, before) = self.meter.as_mut()?;
        let (all, busy) = (meter.read() / 1000, power::busy_ms()?.saturating_sub(*before).max(cpu_ms).max(1));
        Some((u128::from(all) * u128::from(cpu_ms) / u128::from(busy)) as u64)
    }

    /// To every process.
    pub fn signal(&self, number: i32) {
        let mut all = family::all();
        all.extend(self.group.pids());
        all.sort_unstable();
        all.dedup();
        // One that has ended meanwhile needs none.
        all.into_iter().for_each(|pid| _ = signal::kill(pid, number));
    }

    /// Ends all that there is, and what is started meanwhile.
    pub async fn end(&self) {
        loop {
            family::end_all().await;
            if self.group.kill() == 0 {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_queue::Id;

    #[test]
    fn files_of_earlier_versions_are_read() {
        let key = Key { keeper: "n1".into(), id: Id { job: 7, task: Some(2) }, run: 1 };
        let old: Kept = serde_json::from_slice(&serde_json::to_vec(&key).unwrap()).unwrap();
        assert_eq!((old.key, old.cpus, old.groups), (key.clone(), vec![], vec![]));
        let new = Kept {
            key: key.clone(),
            user: "ann".into(),
            cpus: vec![1],
            numbers: [("gpu".into(), vec![0])].into(),
            groups: vec!["/g".into()],
            scratch: Some("/s".into()),
            away: Some("n2".into()),
        };
        let text = serde_json::to_vec(&new).unwrap();
        assert_eq!(serde_json::from_slice::<Kept>(&text).unwrap(), new);
        assert_eq!(serde_json::from_slice::<Key>(&text).unwrap(), key, "an earlier version reads it, too");
    }
}
