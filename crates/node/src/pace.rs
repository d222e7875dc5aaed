//! When the daemon's regular chores are done: those with the same period at the same moment, so that one waking up serves all of them. To wake is most of
//! what a daemon at rest costs.

use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Ticks at once, and then whenever so much time has passed since the first one who asked for any. What is missed is left out.
pub fn every(period: Duration) -> Interval {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(Instant::now);
    let mut ticks = interval_at(last(origin, Instant::now(), period), period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// The last one before now.
fn last(origin: Instant, now: Instant, period: Duration) -> Instant {
    let passed = now.saturating_duration_since(origin).as_nanos();
    now - Duration::from_nanos((passed % period.as_nanos().max(1)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_one_period_come_at_once_whenever_they_began() {
        let ms = Duration::from_millis;
        let origin = Instant::now();
        for (passed, before) in [(0, 0), (1, 0), (249, 0), (250, 250), (1003, 1000)] {
            assert_eq!(last(origin, origin + ms(passed), ms(250)), origin + ms(before), "{passed} ms");
        }
        assert_eq!(last(origin + ms(5), origin, ms(250)), origin);
    }

    #[tokio::test]
    async fn the_first_one_comes_at_once_and_the_others_together() {
        let period = Duration::from_millis(200);
        let mut first = every(period);
        first.tick().await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        let mut second = every(period);
        second.tick().await;
        let (a, b) = (first.tick().await, second.tick().await);
        let apart = a.max(b) - a.min(b);
        assert_eq!(apart.as_nanos() % period.as_nanos(), 0, "{apart:?}");
    }
}
