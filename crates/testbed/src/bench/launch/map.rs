//! Many tasks that have nothing to do with each other: `pando map` over some nodes, beside what one machine has for that.

use super::command::{installed, timed_within};
use super::{Spread, TASKS};
use crate::bench::Step;
use crate::entry;
use crate::error::{Context, Result};
use crate::place::Plan;
use crate::scratch::Scratch;
use serde::Serialize;
use std::process::Command;
use std::time::Duration;

/// Tasks of one run.
const LINES: usize = 10_000;
/// One process that starts all of them gets its share of a busy machine, no more.
const PATIENCE: Duration = Duration::from_secs(180);

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
fn who() -> Vec<&'static str> {
    let mut who = vec!["pando map", "xargs -P"];
    who.retain(|who| *who == "pando map" || installed("xargs").is_some());
    // moreutils has another program of this name.
    let version = Command::new("parallel").arg("--version").output();
    if version.is_ok_and(|said| said.stdout.starts_with(b"GNU parallel")) {
        who.push("parallel");
    }
    who
}

/// By turns, so that what disturbs one disturbs the others.
pub fn measure(plan: &Plan, scratch: &Scratch, step: &mut Step, runs: usize) -> Result<Vec<Mapped>> {
    let path = scratch.0.join("lines");
    let text: String = (0..LINES).map(|i| format!("{i}\n")).collect();
    std::fs::write(&path, text).at("write", &path)?;
    let nodes = TASKS.1;
    let slots = nodes * std::thread::available_parallelism().map_or(1, |n| n.get());
    let (path, nodes_text, slots) = (path.to_string_lossy(), nodes.to_string(), slots.to_string());
    let who = who();
    let mut all = vec![Vec::new(); who.len()];
    for _ in 0..runs {
        for (who, times) in who.iter().zip(&mut all) {
            let (program, words) = match *who {
                "pando map" => ("pando", vec!["map", "-N", &nodes_text, "-a", &path, "--", "true", "{}"]),
                "xargs -P" => ("xargs", vec!["-P", &slots, "-a", &path, "-I{}", "true", "{}"]),
                _ => ("parallel", vec!["--will-cite", "-j", &slots, "-a", &path, "true", "{}"]),
            };
            let run = || {
                let mut command = entry::command(plan, "n1", &program.into())?;
                command.args(words);
                Ok(timed_within(PATIENCE, command, who)?.took)
            };
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
