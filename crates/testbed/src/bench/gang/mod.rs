//! `pando bench gang`: what sharing CPUs by turns costs, as in figure 3 of STORM (Frachtenberg et al., 2002): two copies of a program at once
//! beside one after the other, for turns from 0.3 ms to 8 s; one that computes and one that talks.

mod limit;
mod report;

use super::launch::command::{installed, timed_within};
use super::{Step, fabric};
use crate::demo::report::median;
use crate::error::{Context, Error, Result};
use crate::place::{Plan, Shape};
use crate::scratch::Scratch;
use crate::{down, entry, sys, up};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Turns, milliseconds.
const QUANTA: [f64; 9] = [0.3, 1.0, 2.0, 5.0, 10.0, 50.0, 200.0, 1000.0, 8000.0];
const SHORT: [f64; 4] = [1.0, 2.0, 10.0, 100.0];
/// No run takes longer.
const PATIENCE: Duration = Duration::from_secs(300);
/// A wait for a CPU that is longer is the end of a turn, microseconds.
const GAP_US: f64 = 500.0;
/// Longer turns cost next to nothing, however they are switched, milliseconds.
const LIMITS_BELOW: f64 = 100.0;
/// Turns at which it is looked how far nodes are apart, milliseconds.
const SKEW_AT: f64 = 10.0;
/// Numbers that a talking rank works through between two sums: about a millisecond.
const GRAIN: u64 = 300_000;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// As JSON.
    pub json: bool,
    /// Fewer turns, and shorter programs.
    pub short: bool,
}

/// Of one length of turns.
#[derive(Clone, Debug, Serialize)]
pub struct Shared {
    /// Milliseconds.
    pub quantum_ms: f64,
    /// One copy after the other, just before, seconds: a machine is not as fast in each minute.
    pub serial_s: f64,
    /// Two copies at once, seconds.
    pub both_s: f64,
    /// More than one after the other takes, of a hundred.
    pub over_percent: f64,
    /// The same where whoever sees all processes stops and continues them by signals, just after: what such turns cost on this machine at least.
    pub limit_percent: Option<f64>,
}

/// Of one program.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    /// For people.
    pub name: String,
    /// One copy that has its CPUs for itself, seconds.
    pub alone_s: f64,
    /// By turns.
    pub shared: Vec<Shared>,
    /// Two copies at once that take no turns, seconds.
    pub without_s: Option<f64>,
}

/// All figures.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// CPUs of this machine.
    pub cpus: usize,
    /// Its load average when the run began: figures of a busy machine say little.
    pub load: f64,
    /// See there.
    pub programs: Vec<Program>,
    /// Microseconds between the moments at which the two ranks of a gang go on, at turns of 10 ms: half of them are less, and 95 of 100.
    pub skew_us: Option<[f64; 2]>,
    /// What could not be measured, and why.
    pub failed: BTreeMap<String, String>,
    /// What was not tried, and why.
    pub skipped: BTreeMap<String, String>,
}

/// Two nodes with one CPU each.
struct Bed {
    plan: Plan,
    scratch: Scratch,
}

/// Measures; the exit status.
pub fn run(wanted: &Wanted) -> Result<i32> {
    sys::catch_interrupts();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut figures = Figures {
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        load: load.split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0),
        ..Figures::default()
    };
    let mut failed = BTreeMap::new();
    // One rank on each node, then four.
    let outcome = [1, 4].into_iter().try_for_each(|ranks| {
        let name = format!("bench-{}", std::process::id());
        let shape = Shape { nodes: 2, still: true, pin: true, counts_on: Some(ranks as f64), ..Shape::default() };
        let scratch = Scratch::make(&name)?;
        let made = up::up(&name, shape, true, Some(&scratch.0)).map(|plan| Bed { plan, scratch });
        let measured =
            made.and_then(|bed| measure(&bed, ranks, wanted, &mut figures, &mut Step { failed: &mut failed }));
        let gone = down::down(&name);
        measured.and(gone.map(drop))
    });
    sys::clear_interrupt();
    outcome?;
    figures.failed = failed;
    match wanted.json {
        true => crate::say(&crate::json_text(&figures)?),
        false => crate::say(&report::text(&figures)),
    }
    Ok(if figures.failed.is_empty() { 0 } else { 1 })
}

fn measure(bed: &Bed, ranks: usize, wanted: &Wanted, figures: &mut Figures, step: &mut Step) -> Result<()> {
    step.take("one view", || fabric::together(&bed.plan))?;
    let quanta = if wanted.short { &SHORT[..] } else { &QUANTA[..] };
    // So long that the longest turns are several.
    let seconds = if wanted.short { 1.5 } else { 12.0 };
    let Some(cpu) = step.take("cpu.c", || compile(bed, "cc", "cpu.c", include_str!("cpu.c")))? else { return Ok(()) };
    let total = 2 * ranks;
    if ranks == 1 {
        figures.skew_us = step.take("skew", || skew(bed, &cpu))?.flatten();
    }
    let one = |rounds: u64| vec![cpu.display().to_string(), (rounds / ranks as u64).max(1).to_string()];
    let name = format!("computes, {total} ranks on 2 nodes");
    figures.programs.extend(program(bed, step, (&name, total), one, (10_000, seconds), quanta)?);
    if installed("mpicc.mpich").is_none() {
        figures.skipped.insert("programs that talk".into(), "mpicc.mpich is not installed".into());
        return Ok(());
    }
    let made = step.take("talk.c", || compile(bed, "mpicc.mpich", "talk.c", include_str!("talk.c")))?;
    let Some(talk) = made else { return Ok(()) };
    let grain = (GRAIN / ranks as u64).to_string();
    let one = |rounds: u64| vec![talk.display().to_string(), rounds.to_string(), grain.clone()];
    let name = format!("talks each millisecond, {total} ranks on 2 nodes");
    figures.programs.extend(program(bed, step, (&name, total), one, (300, seconds), quanta)?);
    if ranks > 1 {
        // They wait in loops for others that have no CPU just now: the worst case of an MPI library that spins.
        let one = |rounds: u64| vec![talk.display().to_string(), rounds.to_string(), "0".to_owned()];
        let name = format!("only talks, {total} ranks on 2 nodes");
        figures.programs.extend(program(bed, step, (&name, total), one, (20, seconds.min(5.0)), &[SKEW_AT])?);
    }
    Ok(())
}

fn compile(bed: &Bed, compiler: &str, name: &str, source: &str) -> Result<PathBuf> {
    let file = bed.scratch.0.join(name);
    std::fs::write(&file, source).at("write", &file)?;
    let program = file.with_extension("");
    let mut command = Command::new(compiler);
    command.arg("-O2").arg("-o").arg(&program).arg(&file);
    timed_within(PATIENCE, command, compiler).map(|_| program)
}

/// One program by itself, then twice at once, with turns of each length, and without.
fn program(
    bed: &Bed,
    step: &mut Step,
    (name, ranks): (&str, usize),
    words: impl Fn(u64) -> Vec<String>,
    (trial, seconds): (u64, f64),
    quanta: &[f64],
) -> Result<Option<Program>> {
    let run = |copies: usize, rounds: u64, gang: bool| at_once(bed, copies, ranks, &words(rounds), gang);
    // How many rounds take as long as is wanted; the first run makes connections.
    let sized = step.take(&format!("{name}: its size"), || {
        run(1, trial, true)?;
        let took = run(1, trial, true)?;
        Ok(((trial as f64 * seconds / took.max(0.001)) as u64).max(1))
    })?;
    let Some(rounds) = sized else { return Ok(None) };
    let alone = || Ok([run(1, rounds, true)?, run(1, rounds, true)?].into_iter().fold(f64::MAX, f64::min));
    let Some(alone_s) = step.take(&format!("{name}: alone"), alone)? else { return Ok(None) };
    let mut shared = Vec::new();
    for &quantum_ms in quanta {
        let measured = step.take(&format!("{name}: turns of {quantum_ms} ms"), || {
            entry::pando(&bed.plan, "n1", &["gang", "--quantum", &quantum_ms.to_string()])?;
            let serial_s = run(1, rounds, true)? + run(1, rounds, true)?;
            let both_s = run(2, rounds, true)?;
            let over = |both_s: f64| (both_s / serial_s - 1.0) * 100.0;
            let stopped = (quantum_ms < LIMITS_BELOW).then(|| limit::stopped(bed, ranks, &words(rounds), quantum_ms));
            let limit_percent = stopped.transpose()?.map(over);
            Ok(Shared { quantum_ms, serial_s, both_s, over_percent: over(both_s), limit_percent })
        })?;
        shared.extend(measured);
    }
    let without_s = step.take(&format!("{name}: without turns"), || run(2, rounds, false))?;
    Ok(Some(Program { name: name.into(), alone_s, shared, without_s }))
}

fn command(bed: &Bed, ranks: usize, words: &[String], gang: bool) -> Result<Command> {
    let mut command = entry::command(&bed.plan, "n1", &"pando".into())?;
    command.arg("run");
    if gang {
        command.arg("--gang");
    }
    command.args(["-N", "2", "-n", &ranks.to_string()]).args(words);
    Ok(command)
}

/// From the start of the first to the end of the last, seconds.
fn at_once(bed: &Bed, copies: usize, ranks: usize, words: &[String], gang: bool) -> Result<f64> {
    let commands = (0..copies).map(|_| command(bed, ranks, words, gang)).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    let ended: Vec<Result<_>> = std::thread::scope(|scope| {
        let run = |command| scope.spawn(move || timed_within(PATIENCE, command, "pando run"));
        let all: Vec<_> = commands.into_iter().map(run).collect();
        all.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(Error::Other("a thread ended".into())))).collect()
    });
    ended.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// How far apart the ranks of one gang go on, at two nodes whose clock is the same.
fn skew(bed: &Bed, cpu: &Path) -> Result<Option<[f64; 2]>> {
    entry::pando(&bed.plan, "n1", &["gang", "--quantum", &SKEW_AT.to_string()])?;
    let gang = |output: Option<&Path>| -> Result<Command> {
        let mut command = entry::command(&bed.plan, "n1", &"pando".into())?;
        command.args(["run", "--gang", "-N", "2", "-n", "2"]);
        if let Some(output) = output {
            command.arg("--output").arg(output.join("went-on.%r"));
        }
        command.arg(cpu).args(["60000", &GAP_US.to_string()]);
        Ok(command)
    };
    let (one, other) = (gang(Some(&bed.scratch.0))?, gang(None)?);
    std::thread::scope(|scope| {
        let all = [one, other].map(|c| scope.spawn(move || timed_within(PATIENCE, c, "pando run")));
        all.into_iter()
            .try_for_each(|one| one.join().unwrap_or_else(|_| Err(Error::Other("a thread ended".into()))).map(drop))
    })?;
    let times = |rank: usize| -> Result<Vec<f64>> {
        let file = bed.scratch.0.join(format!("went-on.{rank}"));
        let text = std::fs::read_to_string(&file).at("read", &file)?;
        Ok(text.lines().filter_map(|l| l.parse().ok()).collect())
    };
    let (mine, theirs) = (times(0)?, times(1)?);
    let nearest = |at: f64| theirs.iter().map(|t| (t - at).abs()).fold(f64::MAX, f64::min);
    let mut apart: Vec<u64> =
        mine.iter().map(|at| nearest(*at)).filter(|us| *us < SKEW_AT * 500.0).map(|us| us as u64).collect();
    apart.sort_unstable();
    let most = apart.get(apart.len() * 95 / 100).copied();
    Ok(median(&mut apart).zip(most).map(|(half, most)| [half as f64, most as f64]))
}
