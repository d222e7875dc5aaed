//! What the integration tests share: a testbed or a reason to skip, many jobs, one verdict over all.

use crate::command::Task;
use crate::mover::{Mover, Still};
use crate::suite::{Job, Mode, Report, Suite, Verdict, unique};
use crate::testbed::{self, Testbed};
use crate::{pando, pool, program, random};
use std::io::Write;
use std::sync::Arc;

/// Says something that the test harness does not hide.
pub fn loudly(text: &str) {
    let _ = std::io::stderr().write_all(format!("\n{text}\n").as_bytes());
}

/// A suite and, where programs are to be moved, a testbed.
pub struct Session {
    /// The jobs' results go through this.
    pub suite: Suite,
    /// The testbed.
    pub testbed: Option<Testbed>,
    /// The seed of everything random.
    pub seed: u64,
}

impl Session {
    /// Opens one; none (and a loud word) where this machine can't run it. Panics where it should and does not.
    pub fn open(what: &str, moving: bool) -> Option<Session> {
        Session::configured(what, moving, "")
    }

    /// The same with more of the nodes' configuration.
    pub fn configured(what: &str, moving: bool, config: &str) -> Option<Session> {
        let why = program::missing_compiler().or_else(|| testbed::missing().filter(|_| moving));
        if let Some(why) = why {
            loudly(&format!("SKIPPED {what}: {why}"));
            return None;
        }
        let seed = random::seed();
        loudly(&format!("{what}: PANDO_SUITE_SEED={seed}"));
        let suite = Suite::new(seed).unwrap_or_else(|e| panic!("a directory for the runs: {e}"));
        let testbed = moving.then(|| {
            let name = format!("suite-{}", unique());
            let file = suite.scratch().join("nodes.toml");
            std::fs::write(&file, config).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let up = |p: std::path::PathBuf| Testbed::configured(&p, &name, 3, false, Some(&file));
            pando::find().and_then(up).unwrap_or_else(|e| panic!("testbed: {e}"))
        });
        Some(Session { suite, testbed, seed })
    }

    /// The tasks of all programs.
    pub fn programs(&self) -> Vec<Arc<Task>> {
        let programs = program::all().unwrap_or_else(|e| panic!("the programs: {e}"));
        let mut tasks = Vec::new();
        pool::each(
            2,
            programs,
            |p| Task::of(&p),
            |task| {
                tasks.push(Arc::new(task.unwrap_or_else(|e| panic!("{e}"))));
                true
            },
        );
        tasks.sort_by(|a, b| a.name.cmp(&b.name));
        tasks
    }

    /// Runs every task in a mode.
    pub fn run(&self, tasks: &[Arc<Task>], mode: Mode, ms: Option<u64>, threads: usize) -> Vec<Report> {
        let jobs = tasks.iter().map(|t| Job { task: Arc::clone(t), mode, number: 0, ms }).collect();
        let mut reports = Vec::new();
        pool::each(
            threads,
            jobs,
            |job| self.suite.run_until_moved(&job, self.mover()),
            |report: Report| {
                println!("{}", report.text());
                if report.failed() {
                    loudly(&report.text());
                }
                reports.push(report);
                true
            },
        );
        reports
    }

    /// Moves things, or does not.
    pub fn mover(&self) -> &dyn Mover {
        self.testbed.as_ref().map_or(&Still, |t| t)
    }

    /// Says what came of it and panics if anything is wrong. `must_move`: a run in which no move succeeded is wrong
    /// too, unless the program may stay at home.
    pub fn judge(self, what: &str, reports: &[Report], must_move: bool) {
        let known = |r: &Report| r.mode != Mode::Unmoved && r.known_limit.is_some();
        for r in reports.iter().filter(|r| r.failed() && known(r)) {
            loudly(&format!("KNOWN LIMIT met by {}: {}", r.name, r.known_limit.as_deref().unwrap_or_default()));
        }
        let wrong = |r: &&Report| (r.failed() && !known(r)) || (must_move && r.stayed_without_reason());
        let failed: Vec<String> = reports
            .iter()
            .filter(wrong)
            .map(|r| format!("{} {} ({})", r.name, r.mode.as_str(), if r.failed() { "wrong" } else { "not moved" }))
            .collect();
        let stayed: Vec<&str> =
            reports.iter().filter(|r| r.verdict == Verdict::Stayed).map(|r| r.name.as_str()).collect();
        let moves: usize = reports.iter().map(|r| r.tally.moves()).sum();
        loudly(&format!("{what}: {} runs, {moves} moves, {} failed, seed {}", reports.len(), failed.len(), self.seed));
        if !stayed.is_empty() {
            loudly(&format!("not moved at all: {}", stayed.join(", ")));
        }
        self.suite.tidy_up(!failed.is_empty());
        assert!(failed.is_empty(), "{}; again with PANDO_SUITE_SEED={}", failed.join(", "), self.seed);
    }
}
