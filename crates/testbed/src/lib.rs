//! Several Pando nodes on one machine, each in a network namespace of its own: a *testbed*. `pando demo` and
//! `pando bench` run on one.
//!
//! - [`cli`]: `pando testbed up N`, `exec`, `status`, `cut`, `heal`, `stall`, `kill`, `start`, `down`.
//! - [`demo`]: real programs spreading over nodes, live, and the proof that nobody could tell.
//! - [`bench`]: how fast moving is, how well work is spread, how fast jobs start.
//! - [`hidden`]: programs that those start; `pando` passes `__NAME` on to it for the names that [`is_hidden`] knows.

mod api;
mod args;
mod bench;
mod cgroup;
mod cluster;
mod demo;
mod down;
mod entry;
mod error;
mod faults;
mod holder;
mod network;
mod place;
mod processes;
mod relay;
mod scratch;
mod seat;
mod status;
mod sys;
mod up;
pub mod usage;

pub use error::{Error, Result};
pub use place::{Plan, Shape};

use args::Verb;
use std::ffi::OsString;

/// The word by which `pando` starts the process that keeps a testbed's namespaces.
const HOLDER: &str = "__testbed-holder";
/// The benchmark's process with a heap.
const HEAP: &str = "__heap";
/// The benchmark's process that measures itself.
const PROBE: &str = "__probe";
/// The benchmark's process with an amount of work.
const WORK: &str = "__work";
/// The benchmark's plain TCP partner.
const PEER: &str = "__bench-peer";
/// The benchmark's rank that says when it ends.
const CLOCK: &str = "__clock";

/// `pando testbed ...`; returns the exit status.
pub fn cli(args: Vec<OsString>) -> i32 {
    finish("testbed", args::testbed(args).and_then(|(name, verb)| run(&name, verb)))
}

fn run(name: &str, verb: Verb) -> Result<i32> {
    let plan = || Plan::load(name);
    match verb {
        Verb::Up(shape) => {
            sys::catch_interrupts();
            let plan = up::up(name, shape, false, None)?;
            println!("testbed {name} is up: {}", plan.nodes().join(" "));
            let option = if name == place::DEFAULT_NAME { String::new() } else { format!("--name {name} ") };
            println!("try: pando testbed exec {option}n1 -- pando nodes");
        }
        Verb::Exec(node, command) => return entry::exec(&plan()?, &node, &command),
        Verb::Status { json } => {
            let status = status::status(&plan()?)?;
            if json {
                println!("{}", serde_json::to_string_pretty(&status).map_err(|e| Error::Other(e.to_string()))?);
            } else {
                say(&status::text(&status));
            }
        }
        Verb::Cut(node) => faults::cut(&plan()?, &node)?,
        Verb::Heal(node) => faults::heal(&plan()?, &node)?,
        Verb::Stall(node, seconds) => {
            sys::catch_interrupts();
            faults::stall(&plan()?, &node, seconds)?;
        }
        Verb::Kill { node, daemon } => {
            let ended = faults::kill(&plan()?, &node, daemon)?;
            let what = if ended == 1 { "process" } else { "processes" };
            println!("{ended} {what} of {node} killed");
        }
        Verb::Start(node) => faults::start(&plan()?, &node)?,
        Verb::Down => {
            if !down::down(name)? {
                println!("testbed {name} was not up");
            }
        }
        Verb::Help => help("testbed"),
    }
    Ok(0)
}

/// `pando demo ...`; returns the exit status.
pub fn demo(args: Vec<OsString>) -> i32 {
    let outcome = args::demo(args).and_then(|wish| match wish {
        Some(wish) => demo::run(&wish),
        None => {
            help("demo");
            Ok(0)
        }
    });
    finish("demo", outcome)
}

/// `pando bench ...`; returns the exit status.
pub fn bench(args: Vec<OsString>) -> i32 {
    let outcome = args::bench(args).and_then(|wanted| match wanted {
        Some(wanted) => bench::run(&wanted),
        None => {
            help("bench");
            Ok(0)
        }
    });
    finish("bench", outcome)
}

fn help(command: &str) {
    say(&format!("{}\n", usage::of(command)));
}

/// Prints; a reader that has gone away (`| head`) is no error.
fn say(text: &str) {
    use std::io::Write;
    drop(std::io::stdout().write_all(text.as_bytes()));
}

/// A result for machines, with its line's end.
fn json_text<T: serde::Serialize>(value: &T) -> Result<String> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::Other(e.to_string()))?;
    Ok(text + "\n")
}

/// Says what went wrong; the exit status.
fn finish(command: &str, outcome: Result<i32>) -> i32 {
    outcome.unwrap_or_else(|e| {
        eprintln!("pando {command}: {e}");
        if matches!(e, Error::Usage(_)) {
            eprintln!("`pando {command} --help` shows what there is");
        }
        e.status()
    })
}

/// Whether `word` (with its leading underscores) names one of this crate's hidden programs.
pub fn is_hidden(word: &str) -> bool {
    [HOLDER, HEAP, PROBE, PEER, WORK, CLOCK].contains(&word)
}

/// Runs a hidden program: `name` is the first word of the command line, as [`is_hidden`] knows it, `args` what
/// follows. Returns the exit status.
pub fn hidden(name: &str, args: Vec<OsString>) -> i32 {
    let words: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let first = words.first().cloned().unwrap_or_default();
    match name {
        HOLDER => holder::main(&first),
        HEAP => finish(name, bench::probe::heap(&words).map(|()| 0)),
        PROBE => finish(name, bench::probe::probe().map(|()| 0)),
        WORK => finish(name, bench::balance::work::main(&words).map(|()| 0)),
        PEER => finish(name, bench::peer::main(&words).map(|()| 0)),
        CLOCK => finish(name, bench::launch::clock().map(|()| 0)),
        _ => finish(name, Err(Error::Other("there is no such program".into()))),
    }
}
