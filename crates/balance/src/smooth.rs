//! A node's demand, smoothed: it rises at once and falls slowly, so that a pause of a program is no invitation (MOSIX against fluttering).

use std::time::Duration;

/// Of what has ended, so much is left after this time: 1/e.
const FALL: Duration = Duration::from_secs(2);

/// Threads that want to run, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Smooth {
    milli: f64,
}

impl Smooth {
    /// So many were counted, `since` after the last count.
    pub fn count(&mut self, since: Duration, milli: u32) {
        let now = f64::from(milli);
        let keep = match now >= self.milli {
            true => 0.0,
            false => (-since.as_secs_f64() / FALL.as_secs_f64()).exp(),
        };
        self.milli = now + (self.milli - now) * keep;
    }

    /// A process has come (or gone): what is known for certain needs no time.
    pub fn shift(&mut self, milli: i64) {
        self.milli = (self.milli + milli as f64).max(0.0);
    }

    /// The smoothed number.
    pub fn milli(&self) -> u32 {
        self.milli.round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_at_once_falls_slowly_and_knows_what_moved() {
        let second = Duration::from_secs(1);
        let mut load = Smooth::default();
        load.count(second, 4000);
        assert_eq!(load.milli(), 4000);
        load.count(second, 2000);
        assert!((3000..3500).contains(&load.milli()), "{}", load.milli());
        for _ in 0..20 {
            load.count(second, 2000);
        }
        assert_eq!(load.milli(), 2000);
        load.shift(-1000);
        load.count(second, 1000);
        assert_eq!(load.milli(), 1000);
        load.shift(-5000);
        assert_eq!(load.milli(), 0);
    }
}
