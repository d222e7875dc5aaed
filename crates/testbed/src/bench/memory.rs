//! What a program does with memory, at home and abroad by turns: the probe's part and the benchmark's.

use super::measure::{self, Freeze};
use super::program::Program;
use crate::demo::report::median;
use crate::error::{Context, Error, Result};
use crate::place::Plan;
use crate::sys;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Memory of the loops, megabytes.
const MEGABYTES: usize = 256;
/// Random reads in one round.
const READS: usize = 4_000_000;
/// Rounds in one place, of which the best counts.
const ROUNDS: usize = 12;
/// Time abroad before it counts: all memory has to come first, and to become huge pages again.
const SETTLING: Duration = Duration::from_secs(4);
/// There and back.
const TRIPS: usize = 5;

/// Nanoseconds for each, at home and abroad, and by how much it takes longer (the median over the trips).
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair {
    /// At home.
    pub home_ns: f64,
    /// Abroad.
    pub away_ns: f64,
    /// Abroad over home, less 1.
    pub slowdown: f64,
}

/// What depends on memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// A read of a word somewhere in 256 MB, huge pages advised.
    pub random: Pair,
    /// A word of the sum over them, one after the other.
    pub sum: Pair,
    /// malloc and free of all sizes, in a heap that is about as large as it will be.
    pub malloc: Pair,
    /// The same in a heap that grows from nothing and is given back, with some that come by mmap and go by munmap.
    pub mapped: Pair,
}

/// The measurement.
pub fn measure(plan: &Plan) -> Result<Memory> {
    let mut probe = Program::at(plan, "n1", &[crate::PROBE])?;
    probe.ask(&format!("huge {MEGABYTES}"))?;
    let mut random = Series::default();
    let mut sum = Series::default();
    for _ in 0..TRIPS {
        let here = best(&mut probe, ROUNDS)?;
        measure::go(plan, probe.pid(), measure::AWAY)?;
        let settled = Instant::now() + SETTLING;
        while Instant::now() < settled {
            probe.ask("walk")?;
        }
        let there = best(&mut probe, ROUNDS)?;
        measure::go(plan, probe.pid(), measure::HOME)?;
        random.add(here.0, there.0);
        sum.add(here.1, there.1);
    }
    drop(probe);
    Ok(Memory {
        random: random.pair(),
        sum: sum.pair(),
        malloc: malloc(plan, "malloc")?,
        mapped: malloc(plan, "mapped")?,
    })
}

fn best(probe: &mut Program, rounds: usize) -> Result<(f64, f64)> {
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..rounds {
        let answer = probe.ask("walk")?;
        let part = |key: &str| answer[key].as_f64().ok_or_else(|| Error::Other(format!("it said `{answer}`")));
        best = (best.0.min(part("random_ns")?), best.1.min(part("sum_ns")?));
    }
    Ok(best)
}

fn malloc(plan: &Plan, how: &str) -> Result<Pair> {
    let mut probe = Program::at(plan, "n1", &[crate::PROBE])?;
    let mut series = Series::default();
    let best = |probe: &mut Program| -> Result<f64> {
        (0..ROUNDS).try_fold(f64::MAX, |best, _| Ok(best.min(probe.number(&format!("{how} 20000"), "ns")?)))
    };
    for _ in 0..TRIPS {
        let here = best(&mut probe)?;
        measure::go(plan, probe.pid(), measure::AWAY)?;
        let there = best(&mut probe)?;
        measure::go(plan, probe.pid(), measure::HOME)?;
        series.add(here, there);
    }
    Ok(series.pair())
}

#[derive(Default)]
struct Series {
    home: Vec<u64>,
    away: Vec<u64>,
    ratios: Vec<u64>,
}

impl Series {
    /// In thousandths of a nanosecond.
    fn add(&mut self, home: f64, away: f64) {
        self.home.push((home * 1000.0) as u64);
        self.away.push((away * 1000.0) as u64);
        self.ratios.push((away / home.max(1e-9) * 1e6) as u64);
    }

    fn pair(&mut self) -> Pair {
        let middle = |values: &mut Vec<u64>| median(values).unwrap_or(0) as f64;
        Pair {
            home_ns: middle(&mut self.home) / 1000.0,
            away_ns: middle(&mut self.away) / 1000.0,
            slowdown: middle(&mut self.ratios) / 1e6 - 1.0,
        }
    }
}

/// Freeze times of a process that writes to each hundredth of its pages all the time; `stay`: how long it is abroad each time.
pub fn freeze_while_writing(
    plan: &Plan,
    memory: &str,
    megabytes: usize,
    moves: usize,
    stay: Duration,
) -> Result<Freeze> {
    let mut probe = Program::at(plan, "n1", &[crate::PROBE])?;
    probe.ask(&format!("{memory} {megabytes}"))?;
    probe.ask(&format!("scribble {memory}"))?;
    let (mut away, mut home) = (Vec::new(), Vec::new());
    for _ in 0..moves {
        away.push(measure::go(plan, probe.pid(), measure::AWAY)?);
        std::thread::sleep(stay);
        home.push(measure::go(plan, probe.pid(), measure::HOME)?);
        std::thread::sleep(Duration::from_millis(20));
    }
    sys::kill(probe.pid(), libc::SIGUSR1).context("stop the writer")?;
    if probe.number_of_line("lost")? != 0.0 {
        return Err(Error::Other("it lost what it had written".into()));
    }
    Ok(measure::freeze_of(megabytes, 1, &mut away, &mut home))
}

/// The probe's part: random reads and a sum.
pub fn walk(words: &[u64]) -> serde_json::Value {
    let (mut state, mut found) = (88_172_645_463_325_252u64, 0u64);
    let before = Instant::now();
    for _ in 0..READS {
        let place = super::probe::next(&mut state) as usize % words.len().max(1);
        found ^= words.get(place).copied().unwrap_or(0);
    }
    let random = before.elapsed().as_nanos() as f64 / READS as f64;
    let before = Instant::now();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    let streamed = before.elapsed().as_nanos() as f64 / words.len().max(1) as f64;
    std::hint::black_box((found, sum));
    serde_json::json!({ "random_ns": random, "sum_ns": streamed })
}

/// The probe's part: memory of all sizes comes and goes. Who keeps `heap` from one time to the next is like a program that has been running for a while.
pub fn churn(count: usize, heap: &mut Vec<Vec<u8>>, mapped: bool) -> serde_json::Value {
    /// Above all that glibc's threshold grows to: always mmap and munmap.
    const MAPPED: usize = 33 << 20;
    heap.resize(512, Vec::new());
    let mut state = 88_172_645_463_325_252u64;
    let before = Instant::now();
    for i in 0..count {
        let dice = super::probe::next(&mut state) as usize;
        let size = if mapped && i % 512 == 0 { MAPPED } else { 16 << (dice % 12) };
        let slot = dice / 4096 % heap.len();
        let mut fresh = Vec::with_capacity(size);
        fresh.extend_from_slice(&[i as u8; 16]);
        heap[slot] = std::hint::black_box(fresh);
    }
    let ns = before.elapsed().as_nanos() as f64 / count.max(1) as f64;
    serde_json::json!({ "ns": ns })
}

/// The probe's part: each hundredth page counts up until SIGUSR1 comes; how many have not kept their number.
pub fn scribble(words: &mut [u64]) -> serde_json::Value {
    const STEP: usize = 100 * 4096 / 8;
    sys::catch(libc::SIGUSR1);
    println!("{{}}");
    words.iter_mut().step_by(STEP).for_each(|word| *word = 0);
    let mut rounds = 0u64;
    while sys::interrupted().is_none() {
        rounds += 1;
        words.iter_mut().step_by(STEP).for_each(|word| *word = std::hint::black_box(*word + 1));
    }
    sys::clear_interrupt();
    let lost = words.iter().step_by(STEP).filter(|word| **word != rounds).count();
    serde_json::json!({ "lost": lost, "rounds": rounds })
}
