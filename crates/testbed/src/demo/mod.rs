//! `pando demo`: real programs start at one node, the nodes spread them by themselves, one node is drained and used again, and nobody
//! can tell from their output.

mod display;
mod live;
mod programs;
pub mod report;
mod run;

use crate::args::Demo;
use crate::error::{Context, Error, Result};
use crate::place::{Plan, Shape};
use crate::scratch::Scratch;
use crate::{down, place, processes, sys, up};
use display::Display;
use live::Live;
use programs::Data;
use std::path::Path;
use std::time::{Duration, Instant};

/// The same data on every machine and every day.
const SEED: u64 = 20_261_120;

/// Runs the demo; the exit status.
pub fn run(wish: &Demo) -> Result<i32> {
    sys::catch_interrupts();
    clear_remains();
    let name = format!("demo-{}", std::process::id());
    let scratch = Scratch::make(&name)?;
    let mut display = Display::new(wish.json);
    // Together the nodes have what this machine has.
    let counts_on = Some(machine_cpus() as f64 / wish.nodes as f64);
    let outcome = up::up(&name, Shape { nodes: wish.nodes, counts_on, ..Shape::default() }, true, Some(&scratch.0))
        .and_then(|plan| on(&plan, wish, &scratch.0, &mut display));
    sys::clear_interrupt();
    let gone = down::down(&name);
    let report = outcome?;
    gone?;
    if wish.json {
        crate::say(&crate::json_text(&report)?);
    } else {
        crate::say(&report::table(&report));
    }
    Ok(if report.ok { 0 } else { 1 })
}

fn on(plan: &Plan, wish: &Demo, dir: &Path, display: &mut Display) -> Result<report::Report> {
    let cpus = machine_cpus();
    for sub in ["moved", "unmoved"] {
        let sub = dir.join(sub);
        std::fs::create_dir(&sub).at("create", &sub)?;
    }
    let data = Data::make(dir, SEED)?;
    let mut programs = programs::installed();
    // All of them together keep the CPUs busy for the wanted time.
    let each = wish.seconds * cpus.min(programs.len()) as f64 / programs.len().max(1) as f64;
    run::scale(&mut programs, &data, each)?;
    let names: Vec<&str> = programs.iter().map(|p| p.name).collect();
    display.line(&format!("{} nodes are up; first without moving: {}", wish.nodes, names.join(", ")));
    let start = Instant::now();
    let unmoved = run::unmoved(&programs, &data, &dir.join("unmoved"), cpus)?;
    // How long the moved run will last, on this machine as busy as it is now.
    let expected = start.elapsed();
    let options = options(plan);
    display.line(&format!("now the same at n1, each by `{}`", [&["pando", "run"], options].concat().join(" ")));
    let start = Instant::now();
    let display = std::mem::replace(display, Display::new(wish.json));
    let mut live = Live::start(plan, &programs, &data, expected, options, display)?;
    let outcome = live.run(expected * 6 + Duration::from_secs(20));
    let took = start.elapsed().as_secs_f64();
    // A program that never ends is a finding, not a reason to say nothing about the others.
    match outcome {
        Err(e @ Error::Late { .. }) => eprintln!("pando demo: {e}"),
        other => other?,
    }
    let rows = programs.iter().zip(&live.pieces).zip(&unmoved);
    let rows = rows.map(|((p, piece), end)| report::row(p, piece, end.cpu.as_millis() as u64, dir));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    Ok(report::report(rows, &live.pieces, wish.nodes, plan.user_namespace, took))
}

fn machine_cpus() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get())
}

/// How programs are started. Where no control groups can be had, all nodes see the whole machine's load as theirs, and the balancer finds no
/// place better than another: each is sent to the best node when it begins.
fn options(plan: &Plan) -> &'static [&'static str] {
    match plan.cgroups.is_empty() {
        false => &[],
        true => {
            eprintln!(
                "pando demo: no control groups can be had here, so nodes can't tell whose load is whose; programs are sent out as they begin"
            );
            &["-b"]
        }
    }
}

/// Takes away what demos left whose process was killed.
fn clear_remains() {
    for name in place::existing() {
        let owner = name.strip_prefix("demo-").and_then(|pid| pid.parse().ok());
        if owner.is_some_and(|pid| processes::start_time(pid).is_none())
            && let Err(e) = down::down(&name)
        {
            eprintln!("pando demo: what an earlier demo left could not be taken away: {e}");
        }
    }
}
