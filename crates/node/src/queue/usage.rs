//! What users' jobs have used, added up from the history: by day, user, account and name of the job.

use super::journal::Old;
use super::sqlite::Sqlite;
use pando_queue::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A run that never began has this number in the history.
const NEVER: u32 = u32::MAX;
const DAY_MS: u64 = 86_400_000;

/// What is added up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// Tasks that ended.
    pub tasks: u64,
    /// Those of them that did not end well.
    pub failed: u64,
    /// Steps that they had.
    #[serde(default)]
    pub steps: u64,
    /// CPU time, milliseconds.
    pub cpu_ms: u64,
    /// How long they had nodes, milliseconds.
    pub wall_ms: u64,
    /// The same, times their CPUs.
    pub cpus_ms: u64,
    /// The most memory that one had at its first node, megabytes.
    pub memory_mb: u64,
    /// The most of a scratch directory that one had in use, megabytes.
    #[serde(default)]
    pub scratch_mb: u64,
    /// Bytes read from disks.
    pub read: u64,
    /// Bytes written to disks.
    pub written: u64,
    /// Energy, millijoules; none where no node said it.
    pub energy_mj: Option<u64>,
}

/// A row of `pando usage`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// When that day began, milliseconds since 1970, universal time.
    pub day: u64,
    /// Whose.
    pub user: String,
    /// Whose share it was taken from.
    #[serde(default)]
    pub account: String,
    /// What the jobs are called.
    pub name: String,
    /// See there.
    #[serde(flatten)]
    pub sum: Sum,
}

impl Sum {
    /// And all of another one.
    pub fn add_all(&mut self, other: &Sum) {
        self.tasks += other.tasks;
        self.failed += other.failed;
        self.steps += other.steps;
        self.cpu_ms += other.cpu_ms;
        self.wall_ms += other.wall_ms;
        self.cpus_ms += other.cpus_ms;
        self.memory_mb = self.memory_mb.max(other.memory_mb);
        self.scratch_mb = self.scratch_mb.max(other.scratch_mb);
        self.read += other.read;
        self.written += other.written;
        if let Some(energy) = other.energy_mj {
            *self.energy_mj.get_or_insert(0) += energy;
        }
    }

    fn add(&mut self, old: &Old) {
        let (outcome, usage) = (&old.outcome, &old.outcome.usage);
        // What goes back to the queue has used something, and has not ended.
        let ended = outcome.state != State::Requeued;
        self.tasks += u64::from(ended);
        self.failed += u64::from(ended && outcome.state != State::Completed);
        if outcome.run.run == NEVER {
            return;
        }
        let wall = outcome.run.ran(outcome.ended);
        self.steps += outcome.run.steps.all.len() as u64 + outcome.run.steps.more;
        self.cpu_ms += usage.cpu_ms;
        self.wall_ms += wall;
        self.cpus_ms += wall.saturating_mul(outcome.run.cpus());
        self.memory_mb = self.memory_mb.max(usage.memory_mb);
        self.scratch_mb = self.scratch_mb.max(usage.scratch_mb);
        self.read += usage.read;
        self.written += usage.written;
        if let Some(energy) = usage.energy_mj {
            *self.energy_mj.get_or_insert(0) += energy;
        }
    }
}

/// Adds up, of what ended since then. It reads the journal's file beside the queue, which goes on meanwhile. The error is for people.
pub fn sums(file: &Path, user: Option<&str>, since: u64) -> Result<Vec<Row>, String> {
    let mut all: BTreeMap<(u64, String, String, String), Sum> = BTreeMap::new();
    let add = |old: Old| {
        let day = old.outcome.ended / DAY_MS * DAY_MS;
        all.entry((day, old.user.clone(), old.account.clone(), old.name.clone())).or_default().add(&old);
    };
    Sqlite::read_beside(file).and_then(|journal| journal.each(user, since, add)).map_err(|e| e.to_string())?;
    Ok(all.into_iter().map(|((day, user, account, name), sum)| Row { day, user, account, name, sum }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_queue::{How, Id, Outcome, Run, Usage};

    fn old(user: &str, run: u32, ended: u64, state: State, usage: Usage) -> Old {
        let share = pando_queue::Share { node: "n1".into(), ranks: 1, cpus: 3, memory: 0, gres: Vec::new() };
        let run = Run::new(run, ended - 1000, vec![share]);
        let id = Id::of(ended);
        let outcome = Outcome {
            id,
            state,
            how: How::Exit(0),
            usage,
            run,
            ended,
            directory: Default::default(),
            files: Default::default(),
            asked: Default::default(),
        };
        Old { name: "job".into(), user: user.into(), account: String::new(), outcome }
    }

    #[test]
    fn by_day_and_user() {
        let file = std::env::temp_dir().join(format!("pando-usage-{}.db", std::process::id()));
        let mut journal = Sqlite::open(&file).unwrap();
        let usage = Usage { cpu_ms: 500, memory_mb: 10, scratch_mb: 3, read: 1, written: 2, energy_mj: None };
        let more = Usage { memory_mb: 20, energy_mj: Some(7), ..usage };
        let all = [
            old("ann", 0, DAY_MS + 5000, State::Completed, usage),
            old("ann", 1, DAY_MS + 6000, State::Requeued, more),
            old("ann", NEVER, DAY_MS + 7000, State::Cancelled, Usage::default()),
            old("bob", 0, 2 * DAY_MS + 5000, State::Failed, usage),
        ];
        journal.write(&[], &all, &[]).unwrap();
        let rows = sums(&file, None, 0).unwrap();
        let ann =
            Sum { tasks: 2, failed: 1, cpu_ms: 1000, wall_ms: 2000, cpus_ms: 6000, memory_mb: 20, ..Sum::default() };
        assert_eq!(rows[0].sum, Sum { scratch_mb: 3, read: 2, written: 4, energy_mj: Some(7), ..ann });
        assert_eq!(
            (rows.len(), rows[1].day, rows[1].user.as_str(), rows[1].sum.energy_mj),
            (2, 2 * DAY_MS, "bob", None)
        );
        assert_eq!(sums(&file, Some("bob"), 0).unwrap().len(), 1);
        assert_eq!(sums(&file, None, 2 * DAY_MS).unwrap().len(), 1);
        drop(journal);
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", file.display()));
        }
    }
}
