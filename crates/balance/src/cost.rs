//! How fast a process runs where, and what a move costs.

use crate::{Process, Settings, Vector};

/// Of a process abroad, at most this part is taken to be lost to calls: it still computes.
const MOST_LOST: f64 = 0.9;

/// What gangs leave of a CPU that they hold: they wait at times, and whoever is no gang gets that, and a little besides. It is so little that nobody
/// comes for it, and still more for one than for two.
const LEFT_BY_GANGS: f64 = 0.1;

/// Work that one thread gets done a second there, among those that want to run: 1.0 is a whole CPU of the usual speed.
pub fn rate(node: &Vector) -> f64 {
    let speed = if node.speed == 0 { 1.0 } else { f64::from(node.speed) / 1000.0 };
    let held = node.reserved_milli.min(node.cpus_milli);
    let cpus = (f64::from(node.cpus_milli - held) + f64::from(held) * LEFT_BY_GANGS) / 1000.0;
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
