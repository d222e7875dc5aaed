//! `pando bench balance`: the MOSIX papers' experiments on the nodes of a testbed, moved by their own balancers, beside the simulator's figures for
//! the same experiments in the same size, and the best that is possible.
//!
//! The experiments are [`sim::experiment`]'s, from the same seeds; times, speeds and memory are scaled to what this machine has. A node is as fast
//! as its share of a CPU; what it gets done is measured first, and the work of each process is so many units of that.

mod at_rest;
mod play;
mod report;
mod watch;
pub mod work;

use crate::error::{Context, Error, Result};
use crate::place::{Plan, Shape};
use crate::scratch::Scratch;
use crate::{down, sys, up};
use at_rest::AtRest;
use report::Compared;
use serde::Serialize;
use sim::balance::Played;
use sim::experiment::{MEMORY, Scale, Trial};
use std::fmt::Write;

/// What is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// As JSON.
    pub json: bool,
    /// Which experiments.
    pub experiments: Vec<u32>,
    /// And what daemons cost at rest, in clusters of these sizes.
    pub at_rest: Vec<usize>,
    /// Nodes.
    pub nodes: usize,
    /// The first seed.
    pub seed: u64,
    /// Each experiment so often.
    pub seeds: u64,
    /// How long the best possible takes, seconds.
    pub seconds: f64,
    /// Settings of the balancer other than the defaults.
    pub set: Vec<(String, u64)>,
}

/// Of this machine's CPUs the nodes share so much; the rest is for what moves and measures.
const PART: f64 = 0.8;
/// Of the memory that can be had they take at most this part.
const MEMORY_PART: f64 = 0.5;
/// A node has no more memory than this, bytes.
const MOST_MEMORY: u64 = 1 << 30;
/// The experiment that is about memory, and how many times longer than the others it takes: the shorter, the faster memory is taken, while nodes
/// look as often as ever.
const OF_MEMORY: u32 = 3;
const LONGER: f64 = 1.5;

/// All that was found.
#[derive(Debug, Default, Serialize)]
pub struct Found {
    /// CPUs of this machine.
    pub cpus: usize,
    /// Can it put memory aside?
    pub swap: bool,
    /// The experiments.
    pub experiments: Vec<Compared>,
    /// What daemons cost.
    pub at_rest: Vec<AtRest>,
}

/// Runs it; the exit status.
pub fn run(wanted: &Wanted) -> Result<i32> {
    sys::catch_interrupts();
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut found = Found { cpus, swap: watch::has_swap(), ..Found::default() };
    let balance = settings(wanted)?;
    for &experiment in &wanted.experiments {
        let mut compared = Compared::new(experiment, wanted.nodes);
        for seed in wanted.seed..wanted.seed + wanted.seeds {
            say(&format!("experiment {experiment}, seed {seed}"));
            let trial = Trial::new(experiment, wanted.nodes, seed);
            let trial = trial.scaled(scale(experiment, &trial, wanted, cpus)?);
            one(&mut compared, &trial, seed, &balance)?;
        }
        found.experiments.push(compared);
    }
    for &nodes in &wanted.at_rest {
        say(&format!("{nodes} daemons at rest"));
        found.at_rest.push(at_rest::measure(nodes)?);
    }
    say("");
    if wanted.json {
        crate::say(&crate::json_text(&found.as_json())?);
    } else {
        crate::say(&found.text());
    }
    Ok(i32::from(found.experiments.iter().any(Compared::is_wrong)))
}

/// What is going on, for who watches.
fn say(what: &str) {
    if sys::is_terminal(2) {
        eprint!("\r\x1b[K{what}");
    }
}

/// So that the best possible takes as long as is wanted, and nodes share what this machine has.
fn scale(experiment: u32, trial: &Trial, wanted: &Wanted, cpus: usize) -> Result<Scale> {
    let text = std::fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let kilobytes = text.lines().find_map(|l| l.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse().ok());
    let available: u64 = kilobytes.unwrap_or(0) * 1024;
    let memory = MOST_MEMORY.min((available as f64 * MEMORY_PART) as u64 / wanted.nodes as u64);
    let speeds: Vec<f64> = trial.sites.iter().map(|s| s.size.speed).collect();
    let fastest = speeds.iter().copied().fold(0.0, f64::max);
    Ok(Scale {
        time: wanted.seconds * if experiment == OF_MEMORY { LONGER } else { 1.0 }
            / sim::ideal::one_computer(trial).last,
        // One process gets no more than a CPU.
        speed: (cpus as f64 * PART / speeds.iter().sum::<f64>()).min(1.0 / fastest),
        memory: memory as f64 / MEMORY as f64,
    })
}

/// The balancer's settings, for real nodes and simulated ones.
fn settings(wanted: &Wanted) -> Result<pando_balance::Settings> {
    let made = || -> serde_json::Result<pando_balance::Settings> {
        let mut all = serde_json::to_value(pando_balance::Settings::default())?;
        // As much smaller as the nodes are.
        all["free_least"] = (32u64 << 20).into();
        for (key, number) in &wanted.set {
            all[key] = (*number).into();
        }
        serde_json::from_value(all)
    };
    made().map_err(|e| Error::Usage(format!("--set: {e}")))
}

/// One seed of one experiment: simulated, then on a testbed without moves and with them.
fn one(compared: &mut Compared, trial: &Trial, seed: u64, balance: &pando_balance::Settings) -> Result<()> {
    let name = format!("bench-{}", std::process::id());
    let scratch = Scratch::make(&name)?;
    let config = scratch.0.join("balance.toml");
    std::fs::write(&config, toml(balance)?).at("write", &config)?;
    let memory = trial.sites.first().map(|s| s.size.memory);
    let shape = Shape {
        nodes: trial.sites.len(),
        cpus: trial.sites.iter().map(|s| s.size.speed).collect(),
        memory: memory.filter(|_| compared.experiment == OF_MEMORY),
        config: Some(config),
        ..Shape::default()
    };
    let outcome = up::up(&name, shape, true, Some(&scratch.0)).and_then(|plan| both(compared, &plan, trial));
    sys::clear_interrupt();
    let gone = down::down(&name);
    let played = outcome?;
    gone?;
    compared.add(trial, &played, &sim::balance::simulate(trial, seed, balance, None));
    Ok(())
}

fn both(compared: &mut Compared, plan: &Plan, trial: &Trial) -> Result<Played> {
    let speed = work::measure(plan)?;
    let best_s = sim::ideal::one_computer(trial).last;
    let unmoved = play::play(plan, trial, false, speed.unit_ms, best_s)?;
    let moved = play::play(plan, trial, true, speed.unit_ms, best_s)?;
    compared.note(&speed, &unmoved, &moved);
    Ok(Played { unmoved: unmoved.outcome, moved: moved.outcome })
}

/// A section of the configuration.
fn toml(balance: &pando_balance::Settings) -> Result<String> {
    let all = serde_json::to_value(balance).map_err(|e| Error::Other(e.to_string()))?;
    let mut text = String::from("[balance]\n");
    for (key, value) in all.as_object().into_iter().flatten() {
        // Numbers are written alike in both.
        let _ = writeln!(text, "{key} = {value}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        let set = vec![("every_ms".to_string(), 500)];
        let (experiments, at_rest) = (vec![1], vec![]);
        Wanted { json: false, experiments, at_rest, nodes: 4, seed: 1, seeds: 1, seconds: 20.0, set }
    }

    #[test]
    fn the_scale_gives_the_wanted_time_and_no_more_cpus_than_there_are() {
        for experiment in 1..=4 {
            let trial = Trial::new(experiment, 4, 1);
            let small = trial.scaled(scale(experiment, &trial, &wanted(), 2).unwrap());
            let seconds = if experiment == OF_MEMORY { 30.0 } else { 20.0 };
            assert!((sim::ideal::one_computer(&small).last - seconds).abs() < 0.1);
            let all: f64 = small.sites.iter().map(|s| s.size.speed).sum();
            assert!((all - 1.6).abs() < 1e-9 && small.sites.iter().all(|s| s.size.speed <= 1.0));
            assert!(small.sites[0].size.memory <= MOST_MEMORY);
        }
    }

    #[test]
    fn settings_are_those_of_the_nodes_and_of_the_simulator() {
        let settings = settings(&wanted()).unwrap();
        assert_eq!((settings.every_ms, settings.free_least), (500, 32 << 20));
        assert!(toml(&settings).unwrap().contains("\nevery_ms = 500\n"));
        assert!(super::settings(&Wanted { set: vec![("evry_ms".into(), 1)], ..wanted() }).is_err());
    }
}
