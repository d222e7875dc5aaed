//! The measurements, one function each.

use super::peer::{self, Raw};
use super::program::Program;
use crate::api;
use crate::demo::report::median;
use crate::error::{Context, Error, Result};
use crate::faults;
use crate::place::{Plan, address};
use crate::sys;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Freeze times of one size, microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Freeze {
    /// Size of the heap.
    pub megabytes: usize,
    /// Threads that read it.
    pub threads: usize,
    /// Moves.
    pub moves: usize,
    /// Away: median.
    pub away_median_us: u64,
    /// Away: 99 of 100 were at most this.
    pub away_p99_us: u64,
    /// Home: median.
    pub home_median_us: u64,
    /// Home: 99 of 100 were at most this.
    pub home_p99_us: u64,
}

/// Costs abroad and at home, microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// At home, in the kernel.
    pub home_us: f64,
    /// Abroad.
    pub away_us: f64,
}

/// What a process pays while it is away.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// getppid.
    pub getppid: Cost,
    /// Writing 4 KB to a file.
    pub write: Cost,
    /// Reading 4 KB from it.
    pub read: Cost,
    /// Starting a program that does nothing, and waiting for it.
    pub spawn: Cost,
}

/// A page fault abroad.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Fault {
    /// Median, microseconds.
    pub us: f64,
    /// Faults that were seen.
    pub count: u64,
}

/// Bytes a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Streaming {
    /// Pushed to the target in the background.
    pub away: f64,
    /// Written pages on their way home.
    pub home: f64,
}

/// The same loop at home and abroad.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spin {
    /// Median at home, milliseconds.
    pub home_ms: f64,
    /// Median abroad.
    pub away_ms: f64,
    /// Abroad over home, less 1: the median over pairs of neighbouring rounds.
    pub slowdown: f64,
}

pub(super) const AWAY: &str = "n2";
pub(super) const HOME: &str = "home";

/// Moves and returns the freeze in microseconds.
pub(super) fn go(plan: &Plan, pid: u32, dest: &str) -> Result<u64> {
    if sys::interrupted().is_some() {
        return Err(Error::Interrupted);
    }
    let done = api::move_to(&plan.socket("n1"), pid, dest, "bench")?;
    done.map(|m| m.freeze_us).ok_or_else(|| Error::Other(format!("there is no record of the move to {dest}")))
}

/// Moves away.
pub fn go_away(plan: &Plan, pid: u32) -> Result<u64> {
    go(plan, pid, AWAY)
}

/// Plain TCP.
pub fn raw(plan: &Plan) -> Result<Raw> {
    let _server = Program::at(plan, "n2", &[crate::PEER])?;
    let text = crate::entry::pando(plan, "n1", &[crate::PEER, &address(1)])?;
    serde_json::from_str(&text).map_err(|e| Error::Other(e.to_string()))
}

/// Freeze times: a process that reads its memory all the time goes away and comes home again and again.
pub fn freeze(plan: &Plan, megabytes: usize, threads: usize, rounds: usize) -> Result<Freeze> {
    let heap = Program::at(plan, "n1", &[crate::HEAP, &megabytes.to_string(), &threads.to_string()])?;
    let (mut away, mut home) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        away.push(go(plan, heap.pid(), AWAY)?);
        std::thread::sleep(Duration::from_millis(50));
        home.push(go(plan, heap.pid(), HOME)?);
        std::thread::sleep(Duration::from_millis(20));
    }
    heap.finish("same")?;
    Ok(freeze_of(megabytes, threads, &mut away, &mut home))
}

/// What so many freezes of each kind come to.
pub(super) fn freeze_of(megabytes: usize, threads: usize, away: &mut [u64], home: &mut [u64]) -> Freeze {
    Freeze {
        megabytes,
        threads,
        moves: away.len() + home.len(),
        away_median_us: median(away).unwrap_or(0),
        away_p99_us: p99(away),
        home_median_us: median(home).unwrap_or(0),
        home_p99_us: p99(home),
    }
}

/// With less than a hundred values that is the largest.
fn p99(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    let at = (values.len() * 99).div_ceil(100).saturating_sub(1);
    values.get(at).copied().unwrap_or(0)
}

/// Calls: the probe measures itself at home and away.
pub fn costs(plan: &Plan) -> Result<Costs> {
    let mut probe = Program::at(plan, "n1", &[crate::PROBE])?;
    let path = plan.node_dir("n1").join("bench-file");
    let mut both = Vec::new();
    for round in 0..2 {
        if round == 1 {
            go(plan, probe.pid(), AWAY)?;
        }
        let getppid = probe.number("getppid 3000", "ns")? / 1000.0;
        let file = probe.ask(&format!("file {}", path.display()))?;
        let part = |key: &str| file[key].as_f64().unwrap_or(0.0) / 1000.0;
        let spawn = probe.number("spawn 100", "ns")? / 1000.0;
        both.push([getppid, part("write_ns"), part("read_ns"), spawn]);
    }
    let cost = |i: usize| Cost { home_us: both[0][i], away_us: both[1][i] };
    Ok(Costs { getppid: cost(0), write: cost(1), read: cost(2), spawn: cost(3) })
}

/// Page faults, right after a move, before the background has brought everything.
pub fn fault(plan: &Plan) -> Result<Fault> {
    let mut probe = Program::at(plan, "n1", &[crate::PROBE])?;
    probe.ask("alloc 1024")?;
    go(plan, probe.pid(), AWAY)?;
    let answer = probe.ask("fault")?;
    let ns = answer["ns"].as_f64().ok_or_else(|| Error::Other("no touch of a page was a fault".into()))?;
    Ok(Fault { us: ns / 1000.0, count: answer["count"].as_u64().unwrap_or(0) })
}

/// Megabytes that are streamed.
const STREAMED: usize = 1024;

/// Background streaming, seen at the receiving node's network interface, while the process does nothing. Like the plain streams: the
/// best of several, because in a virtual machine memory that was never used before has to be fetched from the host first.
pub fn streaming(plan: &Plan) -> Result<Streaming> {
    let mut probe = Program::at(plan, "n1", &[crate::PROBE])?;
    let sum = probe.ask(&format!("alloc {STREAMED}"))?;
    let mut best = Streaming { away: 0.0, home: 0.0 };
    for _ in 0..peer::RUNS {
        best.away = best.away.max(still(&mut probe, |pid| stream(plan, 1, || go(plan, pid, AWAY)))?);
        probe.ask("dirty")?;
        best.home = best.home.max(still(&mut probe, |pid| stream(plan, 0, || go(plan, pid, HOME)))?);
        probe.ask("dirty")?;
        if probe.ask("sum")? != sum {
            return Err(Error::Other("the memory is not what it was".into()));
        }
    }
    Ok(best)
}

/// Does something while the probe computes and touches nothing.
fn still<T>(probe: &mut Program, act: impl FnOnce(u32) -> Result<T>) -> Result<T> {
    probe.ask("still")?;
    let done = act(probe.pid());
    sys::kill(probe.pid(), libc::SIGUSR1).context("wake the probe")?;
    probe.line()?;
    done
}

/// The rate at which a node receives between the first twentieth and nine tenths of the bytes.
fn stream(plan: &Plan, receiver: usize, act: impl FnOnce() -> Result<u64>) -> Result<f64> {
    let daemon = faults::daemon(plan, receiver).ok_or_else(|| Error::Other("a daemon is down".into()))?.pid;
    let start = received(daemon)?;
    let given_up = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(daemon, start, &given_up));
        let moved = act();
        given_up.store(moved.is_err(), Ordering::SeqCst);
        let rate = watcher.join().map_err(|_| Error::Other("the watcher died".into()))?;
        moved.and(rate)
    })
}

fn watch(daemon: u32, start: u64, given_up: &AtomicBool) -> Result<f64> {
    let total = (STREAMED << 20) as u64;
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut first = None;
    loop {
        let now = (Instant::now(), received(daemon)?.saturating_sub(start));
        if first.is_none() && now.1 > total / 20 {
            first = Some(now);
        }
        if let (Some(first), true) = (first, now.1 > total / 10 * 9) {
            return Ok((now.1 - first.1) as f64 / (now.0 - first.0).as_secs_f64().max(1e-6));
        }
        if now.0 > deadline || given_up.load(Ordering::SeqCst) || sys::interrupted().is_some() {
            let detail = format!(": {} of {} MB came", now.1 >> 20, total >> 20);
            return Err(Error::Late { what: "the end of streaming".into(), seconds: 60, detail });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes that a node's interface has received.
fn received(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.trim().strip_prefix("eth0:"));
    let bytes = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
    bytes.ok_or_else(|| Error::Other("a node's network counters cannot be read".into()))
}

/// The same loop at home and away by turns.
pub fn spin(plan: &Plan) -> Result<Spin> {
    let mut probe = Program::at(plan, "n1", &[crate::PROBE])?;
    let (mut home, mut away, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The best of a few: what other programs of this machine took away does not count, nor the loop with the move.
    let best = |probe: &mut Program| -> Result<u64> {
        probe.forget()?;
        let times = (0..10).map(|_| probe.number_of_line("ns")).collect::<Result<Vec<f64>>>()?;
        Ok(times[1..].iter().fold(f64::MAX, |a, b| a.min(*b)) as u64)
    };
    probe.send("spin")?;
    for _ in 0..8 {
        let here = best(&mut probe)?;
        go(plan, probe.pid(), AWAY)?;
        let there = best(&mut probe)?;
        go(plan, probe.pid(), HOME)?;
        home.push(here);
        away.push(there);
        ratios.push((there as f64 / here as f64 * 1e6) as u64);
    }
    let ms = |values: &mut Vec<u64>| median(values).unwrap_or(0) as f64 / 1e6;
    let slowdown = median(&mut ratios).unwrap_or(0) as f64 / 1e6 - 1.0;
    Ok(Spin { home_ms: ms(&mut home), away_ms: ms(&mut away), slowdown })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_99th_of_a_hundred() {
        let mut values: Vec<u64> = (1..=200).rev().collect();
        assert_eq!(p99(&mut values), 198);
        assert_eq!(p99(&mut [5, 9]), 9);
        assert_eq!(p99(&mut []), 0);
    }
}
