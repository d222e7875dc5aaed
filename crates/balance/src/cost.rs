//! How fast a process runs where, and what a move costs.

use crate::{Process, Settings, Vector};

/// Of a process abroad, at most this part is taken to be lost to calls: it still computes.
const MOST_LOST: f64 = 0.9;

/// Work that one thread gets done a second there, among those that want to run: 1.0 is a whole CPU of the usual speed.
pub fn rate(node: &Vector) -> f64 {
    let speed = if node.speed == 0 { 1.0 } else { f64::from(node.speed) / 1000.0 };
    let cpus = f64::from(node.cpus_milli.saturating_sub(node.reserved_milli)) / 1000.0;
    let wanted = (f64::from(node.runnable_milli) / 1000.0).max(1.0);
    // One thread has one CPU at most.
    speed * (cpus / wanted).min(1.0)
}

/// The same for a process: what it does abroad is slowed by calls that home answers.
pub(crate) fn rate_of(process: &Process, node: &Vector, at: &str, settings: &Settings) -> f64 {
    let lost = match at == process.home {
        true => 0.0,
        false => (f64::from(process.calls) * f64::from(settings.call_us) / 1e6).min(MOST_LOST),
    };
    rate(node) * (1.0 - lost)
}

/// Milliseconds that a process loses by a move, on the cautious side: it is pulled over while it runs.
pub fn cost_ms(process: &Process, settings: &Settings) -> u64 {
    settings.move_ms + process.resident.saturating_mul(1000) / settings.bandwidth.max(1)
}
