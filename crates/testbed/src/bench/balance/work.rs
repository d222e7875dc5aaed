//! `pando __work`: a process with an amount of work, not of time, and memory that it takes on its way; and how much of it a node gets done.

use crate::bench::probe::next;
use crate::entry;
use crate::error::{Context, Error, Result};
use crate::place::Plan;
use crate::sys;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Steps of one unit: about half a millisecond of a usual CPU.
const STEPS: u64 = 200_000;
/// Pages that are looked at in each unit.
const LOOKS: usize = 4;
const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;
/// A node is tried for about so long, seconds.
const TRIAL_S: f64 = 2.5;

/// What a page has in it.
fn mark(page: usize) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// `pando __work UNITS BYTES GROW`: does so many units of work and has so many bytes when `GROW` of them are done, before that a part.
/// Looks at its memory all the while. Prints `done`, what came of the work (the same for the same words) and how many nanoseconds it took.
pub fn main(words: &[String]) -> Result<()> {
    let number = |i: usize| words.get(i).and_then(|w| w.parse::<u64>().ok()).unwrap_or(0);
    let (units, bytes, grow) = (number(0), number(1) as usize, number(2));
    let pages = bytes / PAGE;
    // Not there until it is written to.
    let mut memory = vec![0u64; pages * WORDS];
    let (mut there, mut state) = (0, 1u64);
    let begun = Instant::now();
    for unit in 1..=units {
        let due = if unit >= grow { pages } else { (pages as u128 * u128::from(unit) / u128::from(grow)) as usize };
        for page in there..due {
            memory[page * WORDS] = mark(page);
        }
        there = there.max(due);
        for _ in 0..STEPS {
            next(&mut state);
        }
        for _ in 0..LOOKS.min(there) {
            let page = next(&mut state) as usize % there;
            if memory[page * WORDS] != mark(page) {
                return Err(Error::Other(format!("page {page} is not what it was")));
            }
        }
    }
    println!("done {:016x} {}", std::hint::black_box(state), begun.elapsed().as_nanos());
    Ok(())
}

/// `pando __work`, as at `node`, with `first` before it.
pub fn command(plan: &Plan, node: &str, first: &[&str], words: [u64; 3]) -> Result<Command> {
    let mut command = entry::command(plan, node, &"pando".into())?;
    if !first.is_empty() {
        command.args(first).arg(&plan.exe);
    }
    command.arg(crate::WORK).args(words.map(|w| w.to_string())).stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command)
}

/// What it printed: what came of the work, and nanoseconds.
pub fn said(text: &str) -> Option<(String, f64)> {
    let mut words = text.trim().strip_prefix("done ")?.split(' ');
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}

/// What the nodes get done.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Speed {
    /// Milliseconds of a CPU for one unit, in the mean of all nodes.
    pub unit_ms: f64,
    /// How far the slowest node is below the mean of what its share promises, percent.
    pub slowest_percent: f64,
}

/// All nodes work at once, each as much as takes it some seconds.
pub fn measure(plan: &Plan) -> Result<Speed> {
    let nodes = plan.nodes();
    let share = |i: usize| plan.shape.cpus_of(i).unwrap_or(1.0);
    // A first guess, by one that nothing holds back.
    let mut guess = Command::new(&plan.exe);
    let output = guess.args([crate::WORK, "200", "0", "0"]).output().context("start pando")?;
    let guess_ms = took(&String::from_utf8_lossy(&output.stdout))? / 200.0;
    let units = |i: usize| (TRIAL_S * 1000.0 * share(i) / guess_ms).max(10.0) as u64;
    let start = |(i, node): (usize, &String)| -> Result<Child> {
        command(plan, node, &[], [units(i), 0, 0])?.spawn().context("start pando")
    };
    let all = nodes.iter().enumerate().map(start).collect::<Result<Vec<_>>>()?;
    let mut each = Vec::new();
    for (i, child) in all.into_iter().enumerate() {
        let output = child.wait_with_output().context("wait for work")?;
        if sys::interrupted().is_some() {
            return Err(Error::Interrupted);
        }
        each.push(took(&String::from_utf8_lossy(&output.stdout))? * share(i) / units(i) as f64);
    }
    let mean = each.iter().sum::<f64>() / each.len().max(1) as f64;
    let slowest = each.iter().copied().fold(0.0, f64::max);
    Ok(Speed { unit_ms: mean, slowest_percent: (slowest / mean - 1.0) * 100.0 })
}

/// Milliseconds.
fn took(text: &str) -> Result<f64> {
    said(text).map(|(_, ns)| ns / 1e6).ok_or_else(|| Error::Other(format!("the work said `{}`", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_work_says_is_read() {
        assert_eq!(said("done 00ff 1500000\n"), Some(("00ff".into(), 1.5e6)));
        assert_eq!(said("page 3 is not what it was"), None);
        assert!((took("done 0 2500000").unwrap() - 2.5).abs() < 1e-9 && took("").is_err());
    }
}
