//! The clocks of the two machines.
//!
//! The monotonic ones become home's by a time namespace. The time of day stays this machine's: a program that waits until some time of day waits by this
//! kernel's clock, so it had better read that, too.

use super::{GuestError, Result};
use crate::channel::Channel;
use crate::message::{CLOCK_QUESTIONS, Down, Up};
use pando_kernel::clock;
use std::time::Duration;

/// Differences of two clock readings below this say nothing, nanoseconds.
const NOISE_NS: u64 = 10_000_000;
/// The times of day may be so far apart, nanoseconds.
const APART_NS: u64 = 1_000_000_000;

/// Offsets that make this machine's monotonic clock and its time since boot read as home's, by the fastest of a few round trips; or why it can't
/// be done.
pub(super) fn compare(chan: &mut Channel, limit: Duration) -> Result<std::result::Result<(i64, i64), String>> {
    let mut best = (u64::MAX, 0);
    let mut ahead = 0;
    // Boot time less monotonic time: each is constant, and the smallest sample is the one that nothing came between.
    let (mut asleep_home, mut asleep_here) = (i64::MAX, i64::MAX);
    for _ in 0..CLOCK_QUESTIONS {
        let sent = clock::monotonic_ns();
        chan.send(&Up::AskClock, &[])?;
        let (Down::Clock { monotonic, boottime, realtime }, _) = chan.wait::<Down>(limit)? else {
            return Err(GuestError::Protocol("a clock was expected".into()));
        };
        let (now, boot) = (clock::monotonic_ns(), clock::boottime_ns());
        asleep_home = asleep_home.min(boottime.wrapping_sub(monotonic) as i64);
        asleep_here = asleep_here.min(boot.wrapping_sub(now) as i64);
        if now - sent < best.0 {
            ahead = clock::realtime_ns().wrapping_sub(realtime) as i64;
            // Home read its clock some time after we asked: so this is never ahead of it, and the way back never goes back in time.
            let (low, high) =
                ((monotonic as i64).wrapping_sub(now as i64), (monotonic as i64).wrapping_sub(sent as i64));
            // Clocks that may be equal (two nodes on one machine) are taken as equal.
            best = (now - sent, if low <= 0 && high >= 0 { 0 } else { low });
        }
    }
    let asleep = asleep_home.wrapping_sub(asleep_here);
    let asleep = if asleep.unsigned_abs() < NOISE_NS { 0 } else { asleep };
    Ok(apart(ahead).map_or(Ok((best.1, best.1.wrapping_add(asleep))), Err))
}

/// Why the times of day do not go together, if they don't; `ahead`: ours less home's.
fn apart(ahead: i64) -> Option<String> {
    let seconds = ahead.unsigned_abs() as f64 / 1e9;
    let which = if ahead > 0 { "ahead of" } else { "behind" };
    (ahead.unsigned_abs() > APART_NS).then(|| {
        format!("this node's time of day is {seconds:.1} s {which} home's: set both by NTP, 1 s apart at most")
    })
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn a_second_is_as_far_as_times_may_be_apart() {
        assert_eq!(apart(900_000_000), None);
        assert!(apart(-90_000_000_000).unwrap().contains("90.0 s behind"));
        assert!(apart(i64::MIN).unwrap().contains("behind"));
    }
}
