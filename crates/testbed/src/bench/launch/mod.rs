//! `pando bench launch`: how fast parallel jobs start and end, as who starts them sees it, beside other launchers that are installed, all in one
//! run on one testbed.

mod calm;
pub mod command;
mod fit;
mod hydra;
mod hyperqueue;
mod larger;
mod load;
mod map;
mod program;
mod report;
pub mod slurm;

use super::{Step, fabric};
use crate::demo::report::median;
use crate::error::{Error, Result};
use crate::place::{Plan, Shape};
use crate::scratch::Scratch;
use crate::{CLOCK, api, down, entry, faults, sys, up};
use calm::Calm;
use command::{Done, timed};
use hydra::Hydra;
use serde::Serialize;
use slurm::Slurm;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Tasks of the job that has more of them than its nodes have CPUs, and those nodes.
const TASKS: (usize, usize) = (1000, 4);
/// After nodes have found each other, and how long they are watched at rest.
const SETTLING: Duration = Duration::from_secs(2);
const RESTING: Duration = Duration::from_secs(2);
/// Who has failed so often is not tried again.
const MOST_FAILURES: usize = 3;
/// Sizes of jobs that only we are tried with.
const BETWEEN: [usize; 3] = [4, 32, 48];
/// We.
const OURS: &str = "pando run";
/// Nodes of the job that is started under load.
const LOADED: usize = 16;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// As JSON.
    pub json: bool,
    /// Fewer runs.
    pub short: bool,
    /// Sizes of the jobs.
    pub sizes: Vec<usize>,
}

/// Several runs of one thing, milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// Half of them took no longer.
    pub median_ms: f64,
    /// The longest.
    pub worst_ms: f64,
    /// How many there were.
    pub runs: usize,
}

impl Spread {
    /// Of these.
    pub fn of(all: &[Duration]) -> Spread {
        let mut all: Vec<u64> = all.iter().map(|t| t.as_nanos() as u64).collect();
        let ms = |ns: Option<u64>| ns.map_or(f64::NAN, |ns| ns as f64 / 1e6);
        Spread { median_ms: ms(median(&mut all)), worst_ms: ms(all.last().copied()), runs: all.len() }
    }
}

/// `true`, one rank on each node.
#[derive(Clone, Debug, Serialize)]
pub struct Start {
    /// Who starts it.
    pub launcher: &'static str,
    /// Nodes.
    pub nodes: usize,
    /// The first time, when connections have to be made; not among the others.
    pub first_ms: f64,
    /// From the start of the command to its end.
    pub whole: Spread,
    /// From the last rank's last act to the end of the command.
    pub prompt: Option<Spread>,
    /// CPU time of all daemons for one of these jobs, milliseconds, without what they take at rest (Pando's only).
    pub daemons_ms: Option<f64>,
}

/// Many tasks on few nodes.
#[derive(Clone, Debug, Serialize)]
pub struct Tasks {
    /// Who starts them.
    pub launcher: &'static str,
    /// Tasks.
    pub tasks: usize,
    /// Nodes.
    pub nodes: usize,
    /// From the start of the command to its end.
    pub whole: Spread,
    /// Tasks a second.
    pub per_second: f64,
}

/// `true` while something else is going on.
#[derive(Clone, Debug, Serialize)]
pub struct Loaded {
    /// Who starts it.
    pub launcher: &'static str,
    /// What is going on.
    pub load: String,
    /// Nodes.
    pub nodes: usize,
    /// From the start of the command to its end.
    pub whole: Spread,
}

/// What all daemons have used since the testbed was up.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Daemons {
    /// CPU time of all when nothing is to do, seconds in a second.
    pub rest: f64,
    /// CPU time of all, seconds, in how many seconds.
    pub cpu_s: [f64; 2],
    /// Resident bytes: the mean, and the largest.
    pub resident: [f64; 2],
}

/// All figures. What could not be measured is missing, and `failed` says why.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// CPUs of this machine, which all nodes share.
    pub cpus: usize,
    /// The machine's load average when the run began.
    pub load: f64,
    /// Nodes of the testbed.
    pub nodes: usize,
    /// `true` at the first node without any launcher: nobody is faster.
    pub alone: Option<Spread>,
    /// `true` on some nodes.
    pub starts: Vec<Start>,
    /// The same without Pando's daemons on the machine.
    pub without: Vec<Start>,
    /// Many tasks on few nodes.
    pub tasks: Vec<Tasks>,
    /// A program that is sent to the nodes.
    pub programs: Vec<program::Sent>,
    /// Many tasks that have nothing to do with each other.
    pub mapped: Vec<map::Mapped>,
    /// Under load.
    pub loaded: Vec<Loaded>,
    /// What the launcher script costs that Hydra uses in place of ssh.
    pub script: Option<Spread>,
    /// `pando run` of `true` on sizes between those that were asked for.
    pub between: Vec<(usize, Spread)>,
    /// What the medians of `true` come to.
    pub fit: Option<fit::Fit>,
    /// Larger clusters.
    pub larger: Vec<larger::Larger>,
    /// What daemons used meanwhile.
    pub daemons: Option<Daemons>,
    /// What could not be measured, and why.
    pub failed: BTreeMap<String, String>,
    /// What was not tried, and why.
    pub skipped: BTreeMap<String, String>,
}

/// Who starts a job.
pub enum Launcher {
    /// `pando run`, with these options.
    Pando(&'static [&'static str]),
    /// MPICH's.
    Hydra(Hydra),
    /// `srun`, of daemons that run as long as this is there.
    Slurm(Slurm),
}

impl Launcher {
    fn name(&self) -> &'static str {
        match self {
            Launcher::Pando(_) => OURS,
            Launcher::Hydra(_) => "Hydra",
            Launcher::Slurm(_) => "srun",
        }
    }

    fn slurm(&self) -> Option<&Slurm> {
        if let Launcher::Slurm(slurm) = self { Some(slurm) } else { None }
    }

    /// The command that runs `words` so many times on so many nodes, as at the first node.
    fn command(&self, plan: &Plan, nodes: usize, ranks: usize, words: &[&str]) -> Result<Command> {
        match self {
            Launcher::Pando(options) => pando(plan, nodes, ranks, options, words),
            Launcher::Hydra(hydra) => hydra.command(plan, nodes, ranks, words),
            Launcher::Slurm(slurm) => slurm.command(plan, nodes, ranks, words),
        }
    }
}

/// `pando run -N NODES OPTIONS WORDS`, as at the first node.
fn pando(plan: &Plan, nodes: usize, ranks: usize, options: &[&str], words: &[&str]) -> Result<Command> {
    let mut command = entry::command(plan, "n1", &"pando".into())?;
    command.args(["run", "-N", &nodes.to_string()]);
    if ranks != nodes {
        command.args(["-n", &ranks.to_string()]);
    }
    command.args(options).args(words);
    Ok(command)
}

/// Measures; the exit status.
pub fn run(wanted: &Wanted) -> Result<i32> {
    sys::catch_interrupts();
    let name = format!("bench-{}", std::process::id());
    let scratch = Scratch::make(&name)?;
    let most = wanted.sizes.iter().copied().max().unwrap_or(1).max(TASKS.1);
    let shape = Shape { nodes: most, still: true, ..Shape::default() };
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
        nodes: plan.shape.nodes,
        ..Figures::default()
    };
    let mut failed = BTreeMap::new();
    let mut step = Step { failed: &mut failed };
    step.take("one view", || fabric::together(plan))?;
    let rest = step.take("daemons at rest", || at_rest(plan))?.unwrap_or(0.0);
    let (begun, before) = (Instant::now(), used(plan)?);
    let sends = program::is_known(plan)?;
    let mut launchers = launchers((plan, scratch), sends, &mut step, &mut figures)?;
    let runs = if wanted.short { 4 } else { 10 };
    figures.alone = step.take("`true` alone", || alone(plan))?;
    for &nodes in &wanted.sizes {
        let mut all = starts(plan, &launchers, &mut step, nodes, runs)?;
        if let Some(ours) = all.first_mut().filter(|s| s.launcher == launchers[0].name()) {
            let what = format!("CPU time of daemons on {nodes} nodes");
            ours.daemons_ms = step.take(&what, || of_daemons(plan, nodes, rest))?;
        }
        figures.starts.extend(all);
    }
    figures.tasks = tasks(plan, &launchers, &mut step, if wanted.short { 1 } else { 3 })?;
    if sends {
        for &nodes in &wanted.sizes {
            let sizes = (nodes, if wanted.short { 1 } else { 3 });
            let theirs = launchers.iter().find_map(Launcher::slurm);
            figures.programs.extend(program::measure((plan, scratch), theirs, &mut step, sizes)?);
        }
    } else {
        figures.skipped.insert("a program of 12 MB".into(), "not yet: `pando run` has no --bcast".into());
    }
    let (place, runs_of_map) = ((plan, scratch), if wanted.short { 1 } else { 3 });
    figures.mapped = map::measure(place, &mut step, &mut figures.skipped, runs_of_map)?;
    figures.loaded = loaded(plan, &launchers, &mut step, runs)?;
    figures.between = between(plan, &launchers, &mut step, runs, &wanted.sizes)?;
    figures.fit = fitted(&figures);
    figures.larger = larger::all(figures.fit.as_ref());
    figures.daemons = Some(daemons(plan, rest, begun, before)?);
    // As many daemons as there are nodes share the CPUs here, and take from them while others are measured: once more without.
    launchers.remove(0);
    if !launchers.is_empty() {
        step.take("the end of the daemons", || {
            plan.nodes().iter().try_for_each(|node| faults::kill(plan, node, true).map(drop))
        })?;
        for &nodes in &wanted.sizes {
            figures.without.extend(starts(plan, &launchers, &mut step, nodes, runs)?);
        }
    }
    figures.failed = failed;
    Ok(figures)
}

/// Ours alone on sizes between the smallest and the largest, so that what is fitted to all of them can be wrong.
fn between(
    plan: &Plan,
    launchers: &[Launcher],
    step: &mut Step,
    runs: usize,
    sizes: &[usize],
) -> Result<Vec<(usize, Spread)>> {
    let (least, most) = (sizes.iter().copied().min().unwrap_or(1), sizes.iter().copied().max().unwrap_or(1));
    let mut all = Vec::new();
    for nodes in BETWEEN.into_iter().filter(|n| (least..most).contains(n) && !sizes.contains(n)) {
        let true_on = |launcher: &Launcher| Ok(once(plan, launcher, nodes, nodes, &["true"])?.took);
        let spread = rounds(&launchers[..1], step, (&format!("`true` on {nodes} nodes"), runs), true_on)?;
        all.extend(spread.into_iter().flatten().map(|spread| (nodes, spread)));
    }
    Ok(all)
}

fn fitted(figures: &Figures) -> Option<fit::Fit> {
    let medians = figures.starts.iter().filter(|s| s.launcher == OURS).map(|s| (s.nodes, s.whole.median_ms));
    let between = figures.between.iter().map(|(nodes, spread)| (*nodes, spread.median_ms));
    fit::fit(&medians.chain(between).collect::<Vec<_>>())
}

/// All that can be had here, Pando first.
fn launchers(
    (plan, scratch): (&Plan, &Scratch),
    sends: bool,
    step: &mut Step,
    figures: &mut Figures,
) -> Result<Vec<Launcher>> {
    // Our own program is large and at each node: what it would take to see that is not what is measured.
    let ours = if sends { Launcher::Pando(&["--bcast=never"]) } else { Launcher::Pando(&[]) };
    let mut launchers = vec![ours];
    match hydra::find(plan, scratch) {
        Ok(hydra) => {
            figures.script = step.take("Hydra's launcher script", || hydra.script(plan))?;
            launchers.push(Launcher::Hydra(hydra));
        }
        Err(why) => drop(figures.skipped.insert("Hydra (mpiexec.hydra)".into(), why)),
    }
    match slurm::missing(plan) {
        None => launchers.extend(step.take("Slurm (srun)", || slurm::start(plan, scratch))?.map(Launcher::Slurm)),
        Some(why) => drop(figures.skipped.insert("Slurm (srun)".into(), why)),
    }
    Ok(launchers)
}

/// By turns, so that what disturbs one disturbs the others, and none the next one. None for who has not done it once; failures are noted.
fn rounds(
    launchers: &[Launcher],
    step: &mut Step,
    (what, runs): (&str, usize),
    run: impl Fn(&Launcher) -> Result<Duration>,
) -> Result<Vec<Option<Spread>>> {
    let mut all = vec![(Vec::new(), 0); launchers.len()];
    let mut calm = Calm::default();
    for _ in 0..runs {
        for (launcher, (times, failures)) in launchers.iter().zip(&mut all).filter(|(_, (_, n))| *n < MOST_FAILURES) {
            calm.wait()?;
            match step.take(&format!("{what}, {}", launcher.name()), || run(launcher))? {
                Some(time) => times.push(time),
                None => *failures += 1,
            }
        }
    }
    Ok(all.iter().map(|(times, _)| (!times.is_empty()).then(|| Spread::of(times))).collect())
}

fn once(plan: &Plan, launcher: &Launcher, nodes: usize, ranks: usize, words: &[&str]) -> Result<Done> {
    timed(launcher.command(plan, nodes, ranks, words)?, &format!("{} on {nodes} nodes", launcher.name()))
}

fn alone(plan: &Plan) -> Result<Spread> {
    let one = || Ok(timed(entry::command(plan, "n1", &"true".into())?, "true")?.took);
    Ok(Spread::of(&(0..20).map(|_| one()).collect::<Result<Vec<_>>>()?))
}

fn starts(plan: &Plan, launchers: &[Launcher], step: &mut Step, nodes: usize, runs: usize) -> Result<Vec<Start>> {
    let what = format!("`true` on {nodes} nodes");
    let true_on = |launcher: &Launcher| Ok(once(plan, launcher, nodes, nodes, &["true"])?.took);
    let first = rounds(launchers, step, (&what, 1), true_on)?;
    let whole = rounds(launchers, step, (&what, runs), true_on)?;
    // Ranks that say something ask more of a launcher than `true` does.
    let what = format!("last exit to prompt on {nodes} nodes");
    let exe = plan.exe.to_string_lossy();
    let last = |launcher: &Launcher| since_last(&once(plan, launcher, nodes, nodes, &[&exe, CLOCK])?, nodes);
    let prompt = rounds(launchers, step, (&what, runs.div_ceil(2)), last)?;
    let row = |(i, launcher): (usize, &Launcher)| {
        Some(Start {
            launcher: launcher.name(),
            nodes,
            first_ms: first[i].map_or(f64::NAN, |f| f.median_ms),
            whole: whole[i]?,
            prompt: prompt[i],
            daemons_ms: None,
        })
    };
    Ok(launchers.iter().enumerate().filter_map(row).collect())
}

/// From the latest time that a rank has said to the end of the command. The clock is the same: it is one machine.
fn since_last(done: &Done, ranks: usize) -> Result<Duration> {
    let said: Vec<u64> = done.out.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    if said.len() != ranks {
        return Err(Error::Other(format!("{} of {ranks} ranks have said when they ended", said.len())));
    }
    let last = UNIX_EPOCH + Duration::from_micros(said.into_iter().max().unwrap_or(0));
    Ok(done.ended.duration_since(last).unwrap_or_default())
}

fn tasks(plan: &Plan, launchers: &[Launcher], step: &mut Step, runs: usize) -> Result<Vec<Tasks>> {
    let (tasks, nodes) = TASKS;
    let what = format!("{tasks} tasks on {nodes} nodes");
    let run = |launcher: &Launcher| Ok(once(plan, launcher, nodes, tasks, &["true"])?.took);
    let all = rounds(launchers, step, (&what, runs), run)?;
    let row = |(launcher, whole): (&Launcher, Option<Spread>)| {
        let whole = whole?;
        let per_second = tasks as f64 * 1000.0 / whole.median_ms;
        Some(Tasks { launcher: launcher.name(), tasks, nodes, whole, per_second })
    };
    Ok(launchers.iter().zip(all).filter_map(row).collect())
}

fn loaded(plan: &Plan, launchers: &[Launcher], step: &mut Step, runs: usize) -> Result<Vec<Loaded>> {
    let nodes = LOADED.min(plan.shape.nodes);
    // Those that are busy, too: else the idlest are taken.
    let busy: Vec<String> = plan.nodes().into_iter().take(nodes).collect();
    let among = ["-w", &busy.join(",")];
    let run = |launcher: &Launcher| match launcher {
        Launcher::Pando(_) => Ok(timed(pando(plan, nodes, nodes, &among, &["true"])?, "pando run")?.took),
        Launcher::Slurm(slurm) => Ok(timed(slurm.among(plan, nodes, nodes, &among, &["true"])?, "srun")?.took),
        other => Ok(once(plan, other, nodes, nodes, &["true"])?.took),
    };
    let mut all = Vec::new();
    for (what, start) in
        [("CPU load", load::loops as fn(&Plan, usize) -> Result<load::Load>), ("network load", load::streams)]
    {
        let Some(load) = step.take(what, || start(plan, nodes))? else { continue };
        let spreads = rounds(launchers, step, (what, runs), run)?;
        all.extend(launchers.iter().zip(spreads).filter_map(|(launcher, whole)| {
            Some(Loaded { launcher: launcher.name(), load: load.what.clone(), nodes, whole: whole? })
        }));
    }
    Ok(all)
}

/// CPU seconds of all daemons so far, and their resident bytes.
fn used(plan: &Plan) -> Result<(f64, Vec<f64>)> {
    let all = plan.nodes().iter().map(|n| api::figures(&plan.socket(n))).collect::<Result<Vec<_>>>()?;
    let of = |name: &str| all.iter().map(|f| f.get(name).copied().unwrap_or(f64::NAN)).collect::<Vec<f64>>();
    Ok((of("pando_daemon_cpu_seconds").iter().sum(), of("pando_daemon_resident_bytes")))
}

/// CPU time of all daemons when nothing is to do, seconds in a second.
fn at_rest(plan: &Plan) -> Result<f64> {
    fabric::pass(SETTLING)?;
    let (begun, before) = (Instant::now(), used(plan)?.0);
    fabric::pass(RESTING)?;
    Ok((used(plan)?.0 - before) / begun.elapsed().as_secs_f64())
}

/// CPU time of all daemons for one job, milliseconds: what they take anyway is not counted.
fn of_daemons(plan: &Plan, nodes: usize, rest: f64) -> Result<f64> {
    const JOBS: usize = 4;
    let (begun, before) = (Instant::now(), used(plan)?.0);
    for _ in 0..JOBS {
        timed(pando(plan, nodes, nodes, &[], &["true"])?, "pando run")?;
    }
    let taken = used(plan)?.0 - before - rest * begun.elapsed().as_secs_f64();
    Ok(taken.max(0.0) * 1000.0 / JOBS as f64)
}

fn daemons(plan: &Plan, rest: f64, begun: Instant, before: (f64, Vec<f64>)) -> Result<Daemons> {
    let (cpu, resident) = used(plan)?;
    let mean = resident.iter().sum::<f64>() / resident.len().max(1) as f64;
    Ok(Daemons {
        rest,
        cpu_s: [cpu - before.0, begun.elapsed().as_secs_f64()],
        resident: [mean, resident.iter().copied().fold(f64::NAN, f64::max)],
    })
}

/// `pando __clock`: says when it ends, microseconds since 1970.
pub fn clock() -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    crate::say(&format!("{}\n", now.as_micros()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_all_ranks_counts_and_none_may_be_missing() {
        let ended = UNIX_EPOCH + Duration::from_micros(5_000_300);
        let done = Done { took: Duration::ZERO, ended, out: "5000000\n5000200\n4000000\n".into() };
        assert_eq!(since_last(&done, 3).unwrap(), Duration::from_micros(100));
        assert!(since_last(&done, 4).is_err());
    }

    #[test]
    fn the_middle_and_the_worst() {
        let spread = Spread::of(&[3, 1, 2].map(Duration::from_millis));
        assert_eq!((spread.median_ms, spread.worst_ms, spread.runs), (2.0, 3.0, 3));
    }
}
