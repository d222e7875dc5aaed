//! `pando bench jobs`: what the queue of batch jobs takes in, starts and ends in a second, how soon a job begins, and what a look at a long queue
//! takes; beside Slurm, if it is installed, all in one run on one testbed.

mod ask;
mod disk;
mod pass;
mod report;
mod slurm;

use super::launch::Spread;
use super::launch::slurm as daemons;
use super::{Step, fabric};
use crate::error::{Error, Result};
use crate::place::{Plan, Shape};
use crate::scratch::Scratch;
use crate::{api, down, sys, up};
use ask::Asker;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nodes of the testbed.
const NODES: usize = 4;
/// CPUs that each of them is said to have, with us and with Slurm: what is measured is not whether jobs that do nothing find one.
const CPUS: f64 = 16.0;
/// Who submit at the same time.
const CLIENTS: usize = 16;
/// Tasks of the array.
const TASKS: u32 = 1000;
/// Jobs that wait while the daemon's memory is looked at.
const WAITING: usize = 10_000;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// As JSON.
    pub json: bool,
    /// Fewer of everything.
    pub short: bool,
}

/// So many in a while.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rate {
    /// How many.
    pub count: usize,
    /// Seconds, from the first submission to the last answer or end.
    pub seconds: f64,
    /// In a second.
    pub per_second: f64,
}

impl Rate {
    fn of(count: usize, took: Duration) -> Rate {
        let seconds = took.as_secs_f64();
        Rate { count, seconds, per_second: count as f64 / seconds.max(1e-9) }
    }
}

/// Resident bytes of the daemon that keeps the queue.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Before any job.
    pub rest: f64,
    /// With so many that wait.
    pub waiting: usize,
    /// Then.
    pub then: f64,
}

/// What Slurm does.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Theirs {
    /// An array of `true`, from `sbatch` until none of it is left in the queue.
    pub array: Option<Rate>,
    /// Calls of `sbatch`, so many at the same time as with us.
    pub submitted: Option<Rate>,
}

/// All figures. What could not be measured is missing, and `failed` says why.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// CPUs of this machine, which all nodes share.
    pub cpus: usize,
    /// The machine's load average when the run began.
    pub load: f64,
    /// Writes of one page that the disk has stored for good, a second, one after the other: the limit of whoever stores one thing at a time.
    pub disk: Option<f64>,
    /// Jobs that were acknowledged, and so are stored.
    pub submitted: Option<Rate>,
    /// `true`, each a job of its own, from the first submission until all have ended.
    pub batch: Option<Rate>,
    /// The same as one array.
    pub array: Option<Rate>,
    /// From just before the submission to the program's first act, on an idle cluster, milliseconds.
    pub first: Option<Spread>,
    /// 95 of 100 of these took no longer.
    pub first_p95_ms: Option<f64>,
    /// One look at a long queue.
    pub passes: Vec<pass::Pass>,
    /// The daemon's memory.
    pub memory: Option<Memory>,
    /// Slurm.
    pub slurm: Option<Theirs>,
    /// What could not be measured, and why.
    pub failed: BTreeMap<String, String>,
    /// What was not tried, and why.
    pub skipped: BTreeMap<String, String>,
}

/// Measures; the exit status.
pub fn run(wanted: &Wanted) -> Result<i32> {
    sys::catch_interrupts();
    let name = format!("bench-{}", std::process::id());
    let scratch = Scratch::make(&name)?;
    let shape = Shape { nodes: NODES, still: true, counts_on: Some(CPUS), ..Shape::default() };
    let outcome = up::up(&name, shape, true, Some(&scratch.0)).and_then(|plan| figures(&plan, wanted, &scratch));
    sys::clear_interrupt();
    let gone = down::down(&name);
    let figures = outcome?;
    gone?;
    match wanted.json {
        true => crate::say(&crate::json_text(&figures)?),
        false => crate::say(&report::text(&figures)),
    }
    Ok(if figures.failed.is_empty() { 0 } else { 1 })
}

fn figures(plan: &Plan, wanted: &Wanted, scratch: &Scratch) -> Result<Figures> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut figures = Figures {
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get()),
        load: load.split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0),
        ..Figures::default()
    };
    let mut failed = BTreeMap::new();
    let mut step = Step { failed: &mut failed };
    let part = if wanted.short { 5 } else { 1 };
    step.take("one view", || fabric::together(plan))?;
    let asker = Asker::new(plan, scratch)?;
    // The queue begins with the first job; what comes later finds it, and links to all nodes, there.
    step.take("a first array", || asker.array(64).and_then(|id| asker.wait(id)))?;
    let rest = step.take("memory at rest", || resident(plan))?;
    figures.disk = step.take("the disk", || disk::stores(&plan.node_dir("n1")))?;
    let runs = if wanted.short { 20 } else { 100 };
    if let Some(mut times) = step.take("submit to first act", || first(&asker, runs))? {
        figures.first = Some(Spread::of(&times));
        times.sort_unstable();
        figures.first_p95_ms = times.get(times.len() * 95 / 100).map(|t| t.as_secs_f64() * 1e3);
    }
    figures.array = step.take("an array of `true`", || array(&asker, TASKS / part as u32))?;
    figures.batch = step.take("a batch of `true`", || batch(&asker, 2 * TASKS as usize / part))?;
    figures.submitted = step.take("submissions", || Ok(asker.submit(CLIENTS, WAITING / part, true)?.0))?;
    if let (Some(rest), Some(rate)) = (rest, figures.submitted) {
        let then = step.take("memory with a long queue", || resident(plan))?;
        figures.memory = then.map(|then| Memory { rest, waiting: rate.count, then });
    }
    figures.passes = pass::measure(if wanted.short { 3 } else { 15 })?;
    match daemons::missing(plan).or_else(slurm::missing) {
        None => {
            if let Some(slurm) = step.take("Slurm", || daemons::start(plan, scratch))? {
                let array = step.take("Slurm's array", || slurm::array(&slurm, plan, TASKS / part as u32))?;
                let submitted = step.take("sbatch", || slurm::submissions(&slurm, plan, 400 / part))?;
                figures.slurm = Some(Theirs { array, submitted });
            }
        }
        Some(why) => drop(figures.skipped.insert("Slurm".into(), why)),
    }
    figures.failed = failed;
    Ok(figures)
}

fn resident(plan: &Plan) -> Result<f64> {
    let figures = api::figures(&plan.socket("n1"))?;
    let none = || Error::Other("the daemon does not say how much memory it has".into());
    figures.get("pando_daemon_resident_bytes").copied().ok_or_else(none)
}

fn array(asker: &Asker, tasks: u32) -> Result<Rate> {
    let begun = Instant::now();
    let id = asker.array(tasks)?;
    asker.wait(id)?;
    Ok(Rate::of(tasks as usize, begun.elapsed()))
}

fn batch(asker: &Asker, jobs: usize) -> Result<Rate> {
    let begun = Instant::now();
    let (_, last) = asker.submit(CLIENTS, jobs, false)?;
    asker.wait_for_all(last)?;
    Ok(Rate::of(jobs, begun.elapsed()))
}

/// One job after the other, each on an idle cluster.
fn first(asker: &Asker, runs: usize) -> Result<Vec<Duration>> {
    let one = |_| {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let said = asker.clock()?;
        Ok(said.saturating_sub(begun))
    };
    (0..runs).map(one).collect()
}
