//! `pando bench`. `move` and `files`: how fast moving is, with the limit beside each figure, all in one run on a testbed of two. `balance`:
//! how well nodes spread work, beside the best possible ([`balance`]). `fabric`: the three primitives and the strobe ([`fabric`]). `launch`: how
//! fast parallel jobs start ([`launch`]). `jobs`: how fast the queue of batch jobs is ([`jobs`]).

pub mod balance;
mod build;
mod criu;
pub mod fabric;
pub mod files;
pub mod jobs;
pub mod launch;
mod measure;
mod memory;
pub mod peer;
pub mod probe;
mod program;
mod table;

use crate::error::{Error, Result};
use crate::place::{Plan, Shape};
use crate::{down, sys, up};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// All figures. What could not be measured is missing, and `failed` says why.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// CPUs of this machine.
    pub cpus: usize,
    /// The machine's load average when the run began: figures of a busy machine say little.
    pub load: f64,
    /// Plain TCP between the nodes.
    pub raw: Option<peer::Raw>,
    /// Freeze times by size.
    pub freeze: Vec<measure::Freeze>,
    /// Background streaming.
    pub streaming: Option<measure::Streaming>,
    /// A page fault abroad.
    pub fault: Option<measure::Fault>,
    /// Forwarded calls.
    pub costs: Option<measure::Costs>,
    /// Files at home, read abroad.
    pub files: Option<files::Files>,
    /// CPU-bound slowdown.
    pub spin: Option<measure::Spin>,
    /// What depends on memory, at home and abroad.
    pub memory: Option<memory::Memory>,
    /// Freeze times of a process that writes all the time.
    pub writing: Option<measure::Freeze>,
    /// The same with huge pages, abroad long enough for them to be huge there.
    pub writing_huge: Option<measure::Freeze>,
    /// A C project, built.
    pub build: Option<build::Build>,
    /// CRIU, if it is installed.
    pub criu: Vec<criu::Criu>,
    /// What could not be measured, and why.
    pub failed: BTreeMap<String, String>,
    /// What was not tried, and why.
    pub skipped: BTreeMap<String, String>,
}

/// Sizes in megabytes, threads, and rounds.
const SIZES: [(usize, usize, usize); 4] = [(1, 1, 50), (100, 1, 25), (1024, 1, 10), (100, 8, 25)];

/// Which benchmark.
#[derive(Clone, Debug, PartialEq)]
pub enum Bench {
    /// How fast moving is.
    Move(Wanted),
    /// How well work is spread.
    Balance(balance::Wanted),
    /// How fast the three primitives are.
    Fabric(fabric::Wanted),
    /// How fast parallel jobs start.
    Launch(launch::Wanted),
    /// How fast the queue of batch jobs is.
    Jobs(jobs::Wanted),
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// As JSON.
    pub json: bool,
    /// Size of the file that is read, bytes.
    pub file: u64,
    /// Nothing but files.
    pub only_files: bool,
}

/// Runs it; the exit status.
pub fn run(bench: &Bench) -> Result<i32> {
    match bench {
        Bench::Move(wanted) => of_moves(wanted),
        Bench::Balance(wanted) => balance::run(wanted),
        Bench::Fabric(wanted) => fabric::run(wanted),
        Bench::Launch(wanted) => launch::run(wanted),
        Bench::Jobs(wanted) => jobs::run(wanted),
    }
}

fn of_moves(wanted: &Wanted) -> Result<i32> {
    sys::catch_interrupts();
    let name = format!("bench-{}", std::process::id());
    let shape = Shape { nodes: 2, still: true, ..Shape::default() };
    let figures = up::up(&name, shape, true, None).and_then(|plan| all(&plan, wanted));
    sys::clear_interrupt();
    let gone = down::down(&name);
    let figures = figures?;
    gone?;
    if wanted.json {
        crate::say(&crate::json_text(&figures)?);
    } else {
        crate::say(&table::table(&figures));
    }
    Ok(if figures.failed.is_empty() { 0 } else { 1 })
}

fn all(plan: &Plan, wanted: &Wanted) -> Result<Figures> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut figures = Figures {
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get()),
        load: load.split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0),
        ..Figures::default()
    };
    let mut failed = BTreeMap::new();
    let mut step = Step { failed: &mut failed };
    figures.raw = step.take("plain TCP", || measure::raw(plan))?;
    figures.files = step.take("files", || files::measure(plan, wanted.file))?;
    if wanted.only_files {
        figures.failed = failed;
        return Ok(figures);
    }
    for (megabytes, threads, rounds) in SIZES {
        let what = format!("freeze of {megabytes} MB with {threads} threads");
        figures.freeze.extend(step.take(&what, || measure::freeze(plan, megabytes, threads, rounds))?);
    }
    figures.streaming = step.take("streaming", || measure::streaming(plan))?;
    figures.fault = step.take("page fault", || measure::fault(plan))?;
    figures.costs = step.take("forwarded calls", || measure::costs(plan))?;
    figures.spin = step.take("slowdown", || measure::spin(plan))?;
    figures.memory = step.take("memory", || memory::measure(plan))?;
    let written = |memory: &str, moves, stay| {
        memory::freeze_while_writing(plan, memory, 1024, moves, Duration::from_millis(stay))
    };
    figures.writing = step.take("freeze of 1024 MB being written", || written("alloc", 10, 50))?;
    figures.writing_huge = step.take("the same, huge pages", || written("huge", 4, 6000))?;
    match build::missing() {
        Some(tool) => drop(figures.skipped.insert("make -j4".into(), format!("there is no {tool} here"))),
        None => figures.build = step.take("make -j4", || build::measure(plan))?,
    }
    let criu = if criu::installed() { step.take("criu", criu::usable)? } else { None };
    if criu.is_some() {
        for (megabytes, ..) in SIZES.into_iter().filter(|s| s.1 == 1) {
            let what = format!("criu with {megabytes} MB");
            figures.criu.extend(step.take(&what, || criu::measure(plan, megabytes))?);
        }
    }
    figures.failed = failed;
    Ok(figures)
}

/// Runs one measurement after the other; one that fails does not keep the others from being made.
struct Step<'a> {
    failed: &'a mut BTreeMap<String, String>,
}

impl Step<'_> {
    fn take<T>(&mut self, what: &str, measure: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        if sys::is_terminal(2) {
            eprint!("\r\x1b[Kmeasuring: {what}");
        }
        let outcome = measure();
        if sys::is_terminal(2) {
            eprint!("\r\x1b[K");
        }
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(_) if sys::interrupted().is_some() => Err(Error::Interrupted),
            Err(e) => {
                self.failed.insert(what.to_string(), e.to_string());
                Ok(None)
            }
        }
    }
}
