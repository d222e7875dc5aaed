//! How many threads want to run: the mean of a few counts, smoothed ([`Smooth`]), with what is known to have come or gone.

use pando_balance::Smooth;
use std::collections::VecDeque;
use std::time::Duration;

/// What is counted at one instant is chance: the mean of so many counts is taken for what runs.
const COUNTS: usize = 4;

/// Threads, in thousandths.
#[derive(Debug, Default)]
pub struct Runnable {
    counts: VecDeque<i64>,
    smooth: Smooth,
}

impl Runnable {
    /// So many were counted, `since` after the last count. Meanwhile so much has come for certain, and so much has gone. What runs was counted: what
    /// has gone is nothing of that, however much it was.
    pub fn count(&mut self, since: Duration, counted: i64, come: i64, gone: i64) {
        self.counts.iter_mut().for_each(|c| *c += come);
        self.smooth.shift(come);
        if self.counts.len() >= COUNTS {
            self.counts.pop_front();
        }
        self.counts.push_back(counted);
        self.counts.iter_mut().for_each(|c| *c = (*c - gone).max(counted.min(*c)));
        self.smooth.shift(-gone);
        let mean = self.counts.iter().sum::<i64>() / self.counts.len() as i64;
        self.smooth.count(since, u32::try_from(mean).unwrap_or(u32::MAX));
    }

    /// The smoothed number.
    pub fn milli(&self) -> u32 {
        self.smooth.milli()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(250);

    fn of(counts: &[i64]) -> Runnable {
        let mut runnable = Runnable::default();
        counts.iter().for_each(|c| runnable.count(TICK, *c, 0, 0));
        runnable
    }

    #[test]
    fn one_count_is_chance_and_what_comes_and_goes_is_none() {
        let mut r = of(&[2000; 8]);
        r.count(TICK, 0, 0, 0);
        assert!(r.milli() > 1800, "{}", r.milli());
        let mut r = of(&[3000; 8]);
        r.count(TICK, 2000, 0, 1000);
        assert_eq!(r.milli(), 2000, "at once");
        r.count(TICK, 0, 0, 2000);
        assert_eq!(r.milli(), 0);
        r.count(TICK, 1000, 1000, 0);
        assert_eq!(r.milli(), 1000);
    }

    #[test]
    fn programs_that_follow_each_other_are_as_much_as_one_that_stays() {
        // make -j8: all that ran have ended, and as many others run.
        let mut r = of(&[8000; 8]);
        for _ in 0..8 {
            r.count(TICK, 8000, 0, 8000);
            assert_eq!(r.milli(), 8000);
        }
        // One of two ended between the count and the look at who is there: the other one still counts whole.
        let mut r = of(&[2000, 2000, 2000, 1000]);
        r.count(TICK, 1000, 0, 1000);
        assert_eq!(r.milli(), 1000);
    }
}
