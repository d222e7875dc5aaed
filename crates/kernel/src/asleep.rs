//! Since when a thread sleeps (`/proc/PID/sched`), and whether it has slept all the time.

use crate::{affinity, procfs};
use std::fs;
use std::time::Duration;

/// How long thread `tid` has been asleep, as far as the scheduler says so (CONFIG_SCHED_DEBUG); none where it doesn't.
///
/// The scheduler's clock is each CPU's own and stands still while that CPU serves interrupts or other machines, so it is read on the CPU
/// where the thread went to sleep. The answer is too short rather than too long, by that and a tick.
pub fn for_how_long(tid: i32) -> Option<Duration> {
    let slept = last_ran(&tid.to_string())?;
    let cpu = procfs::last_cpu(tid)?;
    let before = affinity::allowed(0).ok()?;
    affinity::only(cpu).ok()?;
    // The scheduler notes the time of the one that runs when that gives way.
    std::thread::yield_now();
    let now = last_ran("thread-self");
    affinity::these(&before).ok()?;
    let ms = now? - slept;
    (ms > 0.0).then(|| Duration::from_secs_f64(ms / 1000.0))
}

/// When `who` ran last, milliseconds of its CPU's clock.
fn last_ran(who: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{who}/sched")).ok()?;
    text.lines().find_map(|l| l.strip_prefix("se.exec_start")?.trim_start_matches([' ', ':']).trim().parse().ok())
}

/// How often a thread has gone to sleep, in number: as long as that is the same it sleeps, or has not slept since.
pub fn times(tid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    text.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_sleeper_sleeps_no_longer_than_since_it_was_told_to() {
        let begun = Instant::now();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
        let tid = child.id() as i32;
        let name = |n: &str| procfs::name(tid) == n && procfs::status(tid).is_ok_and(|s| s.state == 'S');
        while !name("sleep") {
            std::thread::yield_now();
        }
        let (first, times_first) = (for_how_long(tid), times(tid));
        let slept = for_how_long(tid);
        assert!(slept.is_none_or(|slept| slept <= begun.elapsed()) && slept >= first, "{first:?} {slept:?}");
        assert!(times_first.is_some() && times(tid) == times_first);
        child.kill().and_then(|()| child.wait()).expect("its end");
    }
}
