//! Tasks in modes: each against its reference, with a verdict.

use crate::command::Task;
use crate::judge;
use crate::mover::{Mover, Plan, Still, Tally};
use crate::random::Random;
use crate::run::{self, Outcome, Way};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// A task that runs so long unmoved must be moved at least once in a run with many attempts.
const LONG_ENOUGH: Duration = Duration::from_millis(250);

/// A program of the suite that is moved once is moved within its first milliseconds ...
const ONCE_WITHIN: Duration = Duration::from_millis(500);
/// ... and works longer, in milliseconds, so that the move finds it alive.
pub const ONCE_MS: u64 = 700;

/// How often a run in which nothing moved is tried again.
const TRIES: u64 = 3;
/// A program that worked longer than this, in milliseconds, had time enough to be moved.
const LONGEST_TRY: u64 = 5_000;

/// How a task is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not moved.
    Unmoved,
    /// Moved once, at a random point.
    Once,
    /// Moved every 20 to 60 ms till it ends.
    PingPong,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::Unmoved, Mode::Once, Mode::PingPong];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Unmoved => "unmoved",
            Mode::Once => "once",
            Mode::PingPong => "pingpong",
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug)]
pub struct Job {
    /// What.
    pub task: Arc<Task>,
    /// How.
    pub mode: Mode,
    /// Which time; changes the random numbers.
    pub number: u64,
    /// How long a timed program works.
    pub ms: Option<u64>,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same as the reference.
    Same,
    /// The same, but no move succeeded.
    Stayed,
    /// Not the same.
    Different(Vec<String>),
    /// It did not end.
    Hang(String),
    /// It can't be run, or its reference is wrong.
    Broken(String),
}

/// A verdict and what belongs to it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The task's name.
    pub name: String,
    /// How it was run.
    pub mode: Mode,
    /// The verdict.
    pub verdict: Verdict,
    /// How long the run took.
    pub took: Duration,
    /// How long the reference took.
    pub reference: Duration,
    /// The moves.
    pub tally: Tally,
    /// Why it may stay at home.
    pub may_stay: Option<String>,
    /// Why it may end differently when moved.
    pub known_limit: Option<String>,
    /// What a failed run left.
    pub dir: Option<PathBuf>,
}

impl Report {
    /// Wrong, whatever one expects of moves.
    pub fn failed(&self) -> bool {
        !matches!(self.verdict, Verdict::Same | Verdict::Stayed)
    }

    /// No move succeeded, it is not one that may stay, and it lives long enough to be moved.
    pub fn stayed_without_reason(&self) -> bool {
        let long = self.reference >= LONG_ENOUGH;
        self.verdict == Verdict::Stayed && self.may_stay.is_none() && long
    }

    /// One line, with more below it where it failed.
    pub fn text(&self) -> String {
        let word = match &self.verdict {
            Verdict::Same => "same",
            Verdict::Stayed if self.may_stay.is_some() => "stayed",
            Verdict::Stayed => "NOT MOVED",
            Verdict::Different(_) => "DIFFERENT",
            Verdict::Hang(_) => "HANG",
            Verdict::Broken(_) => "BROKEN",
        };
        let (took, reference) = (self.took.as_secs_f64(), self.reference.as_secs_f64());
        let mut out = format!("{word:<10}{:<24}{:<9}{took:6.2} s ({reference:.2})", self.name, self.mode.as_str());
        if self.mode != Mode::Unmoved {
            out += &moves(&self.tally);
        }
        if let (Verdict::Stayed, Some(why)) = (&self.verdict, &self.tally.reason) {
            out += &format!("\n    {why}");
        }
        match &self.verdict {
            Verdict::Different(found) => out.extend(found.iter().map(|f| format!("\n    {f}"))),
            Verdict::Hang(seen) | Verdict::Broken(seen) => {
                out.extend(seen.lines().take(60).map(|l| format!("\n    {l}")));
            }
            _ => {}
        }
        if self.failed() && !self.tally.trail.is_empty() {
            out += &format!("\n    moves: {}", self.tally.trail.join(", "));
        }
        if let Some(dir) = &self.dir {
            out += &format!("\n    see {}", dir.display());
        }
        out
    }
}

fn moves(tally: &Tally) -> String {
    let mut out = format!("  {} moves", tally.moves());
    if tally.refused > 0 {
        out += &format!(", {} refused", tally.refused);
    }
    if tally.silent > 0 {
        out += &format!(", {} NOT ANSWERED", tally.silent);
    }
    let mut freezes = tally.freezes.clone();
    freezes.sort_unstable();
    if let (Some(middle), Some(most)) = (freezes.get(freezes.len() / 2), freezes.last()) {
        out += &format!(", freeze {:.1} ms, at most {:.1}", *middle as f64 / 1000.0, *most as f64 / 1000.0);
    }
    out
}

/// A reference that is made once, by the first who needs it.
type Reference = Arc<OnceLock<Result<Outcome, String>>>;

/// Different for each suite and testbed of this machine: the pid and a count.
pub fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{count}", std::process::id())
}

/// Runs jobs and remembers the references.
pub struct Suite {
    seed: u64,
    scratch: PathBuf,
    references: Mutex<BTreeMap<String, Reference>>,
}

impl Suite {
    /// With a directory for the runs.
    pub fn new(seed: u64) -> io::Result<Suite> {
        let scratch = std::env::temp_dir().join(format!("pando-suite-{}", unique()));
        fs::create_dir_all(&scratch)?;
        Ok(Suite { seed, scratch, references: Mutex::default() })
    }

    /// The directory for the runs.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// The outcome of the unmoved task: run once, then remembered.
    pub fn reference(&self, task: &Task) -> Result<Outcome, String> {
        let mut all = self.references.lock().expect("no holder panics");
        let cell = Arc::clone(all.entry(task.name.clone()).or_default());
        drop(all);
        cell.get_or_init(|| {
            let dir = self.scratch.join(format!("{}.reference", task.name));
            let way = Way {
                mover: &Still,
                plan: Plan::Never,
                random: Random::new(0),
                ms: None,
                deadline: Duration::from_secs(120),
            };
            let outcome = run::run(task, way, &dir).map_err(|e| e.to_string())?;
            let wrong = judge::reference(task, &outcome);
            if !wrong.is_empty() {
                return Err(format!("the reference run is wrong: {} (see {})", wrong.join("; "), dir.display()));
            }
            Ok(outcome)
        })
        .clone()
    }

    /// Does one job; again, with more time, while it ends before it could be moved (on a busy machine).
    pub fn run_until_moved(&self, job: &Job, mover: &dyn Mover) -> Report {
        let mut job = job.clone();
        loop {
            let report = self.run(&job, mover);
            let tries = job.number >> 16;
            let long = job.ms.is_some_and(|ms| ms > LONGEST_TRY);
            if !report.stayed_without_reason() || tries >= TRIES || long {
                return report;
            }
            job.number += 1 << 16;
            job.ms = job.ms.map(|ms| ms * 2);
        }
    }

    /// Does one job.
    pub fn run(&self, job: &Job, mover: &dyn Mover) -> Report {
        let task = &*job.task;
        let mut report = Report {
            name: task.name.clone(),
            mode: job.mode,
            verdict: Verdict::Same,
            took: Duration::ZERO,
            reference: Duration::ZERO,
            tally: Tally::default(),
            may_stay: task.may_stay.clone(),
            known_limit: task.known_limit.clone(),
            dir: None,
        };
        let reference = match self.reference(task) {
            Ok(reference) => reference,
            Err(why) => {
                return Report { verdict: Verdict::Broken(why), ..report };
            }
        };
        report.reference = reference.took;
        let dir = self.scratch.join(format!("{}.{}.{}", task.name, job.mode.as_str(), job.number));
        let way = self.way(job, mover, reference.took);
        let outcome = match run::run(task, way, &dir) {
            Ok(outcome) => outcome,
            Err(e) => {
                return Report { verdict: Verdict::Broken(e.to_string()), ..report };
            }
        };
        report.verdict = verdict(job.mode, &reference, &outcome);
        report.took = outcome.took;
        report.tally = outcome.tally;
        if report.failed() {
            self.keep(task, &report, &dir);
            report.dir = Some(dir);
        } else {
            let _ = fs::remove_dir_all(&dir);
        }
        report
    }

    fn way<'a>(&self, job: &Job, mover: &'a dyn Mover, reference: Duration) -> Way<'a> {
        let mut random = Random::named(self.seed.wrapping_add(job.number << 32), &job.task.name);
        let (plan, mover) = match job.mode {
            Mode::Unmoved => (Plan::Never, &Still as &dyn Mover),
            Mode::Once => {
                let lasts = if job.task.timed { ONCE_WITHIN } else { reference };
                let most = (lasts.as_micros() as u64 * 4 / 5).max(1);
                (Plan::Once(Duration::from_micros(random.within(0, most))), mover)
            }
            Mode::PingPong => (Plan::Often(20, 60), mover),
        };
        let worked = Duration::from_millis(job.ms.unwrap_or(0)).max(reference);
        Way { mover, plan, random, ms: job.ms, deadline: deadline(worked) }
    }

    /// Puts what the reference printed beside what a failed run printed.
    fn keep(&self, task: &Task, report: &Report, dir: &Path) {
        let reference = self.scratch.join(format!("{}.reference", task.name));
        for stream in ["stdout", "stderr"] {
            let _ = fs::copy(reference.join(stream), dir.join(format!("{stream}.reference")));
        }
        let _ = fs::write(dir.join("report"), report.text());
        if let Verdict::Hang(seen) = &report.verdict {
            let _ = fs::write(dir.join("evidence"), seen);
        }
    }

    /// Removes what is not needed to look at failures.
    pub fn tidy_up(&self, failed: bool) {
        let all = fs::read_dir(&self.scratch).into_iter().flatten().flatten();
        for entry in all.filter(|_| failed) {
            if entry.file_name().to_string_lossy().ends_with(".reference") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        if !failed {
            let _ = fs::remove_dir_all(&self.scratch);
        }
    }
}

/// A run must have ended after this; `PANDO_SUITE_DEADLINE` (seconds) is used instead when it is set.
fn deadline(worked: Duration) -> Duration {
    let set = std::env::var("PANDO_SUITE_DEADLINE").ok().and_then(|s| s.parse().ok());
    set.map_or(Duration::from_secs(30) + worked * 10, Duration::from_secs)
}

fn verdict(mode: Mode, reference: &Outcome, outcome: &Outcome) -> Verdict {
    if let Some(seen) = &outcome.hang {
        return Verdict::Hang(seen.clone());
    }
    let found = judge::differences(reference, outcome);
    if !found.is_empty() {
        return Verdict::Different(found);
    }
    if mode != Mode::Unmoved && outcome.tally.moves() == 0 { Verdict::Stayed } else { Verdict::Same }
}
