//! Many tasks that have nothing to do with each other: `pando map` over some nodes, beside what one machine has for that, and beside a loop that does nothing but
//! start them, which shows what the machine can do at all.

use super::calm::Calm;
use super::command::{installed, timed_within};
use super::{Spread, TASKS, hyperqueue};
use crate::bench::Step;
use crate::entry;
use crate::error::{Context, Error, Result};
use crate::place::Plan;
use crate::scratch::Scratch;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Tasks of one run.
const LINES: usize = 10_000;
/// One process that starts all of them gets its share of a busy machine, no more.
const PATIENCE: Duration = Duration::from_secs(180);

/// The loop.
pub const BARE: &str = "fork and exec";

/// So many tasks, each a process that does nothing.
#[derive(Clone, Debug, Serialize)]
pub struct Mapped {
    /// Who runs them.
    pub who: &'static str,
    /// Tasks.
    pub tasks: usize,
    /// Nodes; one where it knows of no others, with as many tasks at a time as all nodes have.
    pub nodes: usize,
    /// From the start of the command to its end.
    pub whole: Spread,
    /// Tasks a second.
    pub per_second: f64,
}

/// Who can be had here. All nodes share this machine's CPUs, so what runs on one alone has no less of them.
fn who(skipped: &mut BTreeMap<String, String>) -> Vec<&'static str> {
    let mut who = vec!["pando map", BARE, "xargs -P"];
    match hyperqueue::missing() {
        None => who.push(hyperqueue::NAME),
        Some(why) => drop(skipped.insert(hyperqueue::NAME.into(), why)),
    }
    who.retain(|who| *who != "xargs -P" || installed("xargs").is_some());
    // moreutils has another program of this name.
    let version = Command::new("parallel").arg("--version").output();
    if version.is_ok_and(|said| said.stdout.starts_with(b"GNU parallel")) {
        who.push("parallel");
    }
    who
}

/// By turns, so that what disturbs one disturbs the others.
pub fn measure(
    (plan, scratch): (&Plan, &Scratch),
    step: &mut Step,
    skipped: &mut BTreeMap<String, String>,
    runs: usize,
) -> Result<Vec<Mapped>> {
    let path = scratch.0.join("lines");
    let text: String = (0..LINES).map(|i| format!("{i}\n")).collect();
    std::fs::write(&path, text).at("write", &path)?;
    let nodes = TASKS.1;
    let slots = nodes * std::thread::available_parallelism().map_or(1, |n| n.get());
    let at_once = slots;
    let (path, nodes_text, slots) = (path.to_string_lossy(), nodes.to_string(), slots.to_string());
    let who = who(skipped);
    let mut all = vec![Vec::new(); who.len()];
    let mut calm = Calm::default();
    for _ in 0..runs {
        for (who, times) in who.iter().zip(&mut all) {
            let (program, words) = match *who {
                "pando map" => ("pando", vec!["map", "-N", &nodes_text, "-a", &path, "--", "true", "{}"]),
                "xargs -P" => ("xargs", vec!["-P", &slots, "-a", &path, "-I{}", "true", "{}"]),
                _ => ("parallel", vec!["--will-cite", "-j", &slots, "-a", &path, "true", "{}"]),
            };
            let run = || {
                match *who {
                    BARE => return bare(at_once),
                    hyperqueue::NAME => return hyperqueue::run(plan, scratch, (LINES, at_once)),
                    _ => {}
                }
                let mut command = entry::command(plan, "n1", &program.into())?;
                command.args(words);
                Ok(timed_within(PATIENCE, command, who)?.took)
            };
            calm.wait()?;
            times.extend(step.take(&format!("{LINES} separate tasks, {who}"), run)?);
        }
    }
    let row = |(who, times): (&'static str, Vec<_>)| {
        let whole = (!times.is_empty()).then(|| Spread::of(&times))?;
        let nodes = if who == "pando map" { nodes } else { 1 };
        Some(Mapped { who, tasks: LINES, nodes, whole, per_second: LINES as f64 * 1000.0 / whole.median_ms })
    };
    Ok(who.into_iter().zip(all).filter_map(row).collect())
}

/// As many processes one after the other, so many at a time: each task costs that at least, whoever starts it.
fn bare(at_once: usize) -> Result<Duration> {
    let start = Instant::now();
    let mut run = VecDeque::new();
    let end = |child: Child| -> Result<()> {
        let mut child = child;
        match child.wait().context("wait for `true`")?.success() {
            true => Ok(()),
            false => Err(Error::Other("`true` has failed".into())),
        }
    };
    for number in 0..LINES {
        let mut command = Command::new("true");
        command.arg(number.to_string()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        run.push_back(command.spawn().context("start `true`")?);
        if run.len() >= at_once {
            run.pop_front().map_or(Ok(()), end)?;
        }
    }
    run.into_iter().try_for_each(end)?;
    Ok(start.elapsed())
}
