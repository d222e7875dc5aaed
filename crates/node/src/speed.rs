//! How fast a CPU of this machine is, measured once: so that unequal nodes balance by speed.

use crate::config::LoadSource;
use crate::place::replace_file;
use pando_kernel::clock::thread_cpu_ns;
use std::path::Path;
use std::time::Duration;

/// Steps that a usual CPU makes in a second: it has speed 1000.
const USUAL: f64 = 400e6;
/// Steps of one try, and how many tries there are: the best one counts.
const STEPS: u64 = 2_000_000;
const TRIES: u32 = 8;
/// Where the figure is kept, in the state directory.
const FILE: &str = "speed";

/// From the configuration, from the file, or measured now.
pub fn of_this_machine(source: &LoadSource, state: &Path) -> u32 {
    if let Some(speed) = source.speed {
        return (speed.clamp(0.001, 1000.0) * 1000.0) as u32;
    }
    let file = state.join(FILE);
    let kept = std::fs::read_to_string(&file).ok().and_then(|t| t.trim().parse::<u32>().ok()).filter(|s| *s > 0);
    kept.unwrap_or_else(|| {
        let speed = measure();
        if let Err(e) = replace_file(&file, format!("{speed}\n").as_bytes()) {
            tracing::warn!("the speed of this machine can't be kept in {}: {e}", file.display());
        }
        speed
    })
}

/// CPU time counts, not the clock on the wall: others may be busy just now.
fn measure() -> u32 {
    let best = (0..TRIES).map(|_| one_try()).min().unwrap_or(Duration::MAX).max(Duration::from_nanos(1));
    (STEPS as f64 / best.as_secs_f64() / USUAL * 1000.0).clamp(1.0, 1e6) as u32
}

/// Multiplications, branches and memory that fits a cache, as in programs.
fn one_try() -> Duration {
    let mut memory = [0u64; 512];
    let begun = thread_cpu_ns();
    let mut x = 88_172_645_463_325_252u64;
    for _ in 0..STEPS {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let place = &mut memory[(x >> 55) as usize];
        *place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(x);
        if *place & 1 == 0 {
            x = x.wrapping_add(*place | 1);
        }
    }
    std::hint::black_box((x, &memory));
    Duration::from_nanos(thread_cpu_ns() - begun)
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_measurements_agree() {
        let (a, b) = (super::measure(), super::measure());
        assert!(a.max(b) < a.min(b) * 2, "{a} and {b}");
    }
}
