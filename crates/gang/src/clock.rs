//! Which slot it is at a node. Beats of the strobe are several turns apart where turns are short, for a message to each node with each turn would cost more
//! than the switch; between two beats each node goes by its own clock, which is set with each of them. So nodes are as far apart as their beats are.

use serde::{Deserialize, Serialize};

/// Beats are no closer together than this, microseconds, unless turns are longer.
const BEATS_US: u64 = 20_000;
/// Turns from one beat to the next, at most.
const MOST: u64 = 1_000;
/// A switch that takes no longer is as it should be, microseconds: the kernel may wait for all CPUs first, some of its ticks long.
const QUICK_US: u64 = 30_000;
/// Switches that take longer have one part of so many of the time.
const SHARE: u64 = 20;
/// Nobody is kept from his turns for longer, microseconds.
const LONGEST_REST_US: u64 = 10_000_000;

/// The length of turns, and how many there are from one beat to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Pace {
    /// Microseconds.
    pub turn_us: u64,
    /// At least one.
    pub turns: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { turn_us: BEATS_US, turns: 1 }
    }
}

impl Pace {
    /// For turns of so many microseconds.
    pub fn of(turn_us: u64) -> Pace {
        let turn_us = turn_us.max(1);
        Pace { turn_us, turns: BEATS_US.div_ceil(turn_us).clamp(1, MOST) }
    }

    /// From one beat to the next, microseconds.
    pub fn period_us(&self) -> u64 {
        self.turn_us.saturating_mul(self.turns)
    }

    /// For one that another machine made: is it within its limits?
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        match self.turn_us >= 1 && (1..=MOST).contains(&self.turns) {
            true => Ok(()),
            false => Err(format!("{} turns of {} us from one beat to the next", self.turns, self.turn_us)),
        }
    }
}

/// See the module. Times are microseconds of any clock that goes on evenly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    pace: Pace,
    /// Slots are counted from the beat after this one.
    after: u64,
    beat: u64,
    at_us: u64,
}

impl Clock {
    /// From the beat after this one on slots are counted anew.
    pub fn set(&mut self, after: u64, pace: Pace) {
        (self.after, self.pace) = (after, pace);
    }

    /// A beat has come.
    pub fn beat(&mut self, number: u64, now_us: u64) {
        (self.beat, self.at_us) = (number, now_us);
    }

    /// The slot that it is now. While a beat is late the slot before it goes on.
    pub fn slot(&self, now_us: u64) -> u64 {
        // Another one who orders counts beats from 1 again, until it sends its own table.
        let beats = self.beat.saturating_sub(self.after.saturating_add(1));
        beats.saturating_mul(self.pace.turns).saturating_add(self.turn(now_us))
    }

    /// When the next one begins by this clock, if that is before the next beat.
    pub fn next_us(&self, now_us: u64) -> Option<u64> {
        let next = self.turn(now_us) + 1;
        (next < self.pace.turns).then(|| self.at_us.saturating_add(next.saturating_mul(self.pace.turn_us)))
    }

    /// When the turn ends, if nobody is late.
    pub fn ends_us(&self, now_us: u64) -> u64 {
        self.at_us.saturating_add((self.turn(now_us) + 1).saturating_mul(self.pace.turn_us))
    }

    /// A switch has taken so long: for how long nobody is to be switched, if that was too long. While processes are moved between groups the kernel lets
    /// nobody begin one, so a node on which many begin is left alone for most of the time.
    pub fn rest_us(&self, took_us: u64) -> Option<u64> {
        let rest = took_us.saturating_mul(SHARE);
        (took_us > QUICK_US && rest > self.pace.turn_us).then_some(rest.min(LONGEST_REST_US))
    }

    /// Turns since the beat.
    fn turn(&self, now_us: u64) -> u64 {
        (now_us.saturating_sub(self.at_us) / self.pace.turn_us.max(1)).min(self.pace.turns.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_turns_share_a_beat_and_long_ones_have_their_own() {
        for (turn, turns) in [(100, 200), (300, 67), (1_000, 20), (5_000, 4), (19_999, 2), (20_000, 1), (8_000_000, 1)]
        {
            let pace = Pace::of(turn);
            assert_eq!((pace.turn_us, pace.turns), (turn, turns));
            assert!(pace.check().is_ok() && pace.period_us() >= BEATS_US);
        }
        assert!(Pace { turn_us: 0, turns: 1 }.check().is_err() && Pace { turn_us: 1, turns: 0 }.check().is_err());
    }

    #[test]
    fn nodes_whose_beats_come_and_are_missed_at_different_times_are_in_the_same_slot() {
        bolero::check!().with_type::<(Pace, u16, [(u8, u16); 8])>().for_each(|&(any, after, ref beats)| {
            let pace = Pace { turn_us: any.turn_us % 50_000 + 1, turns: any.turns % MOST + 1 };
            let (mut one, mut other) = (Clock::default(), Clock::default());
            let mut due_us = 1_000_000;
            one.set(after.into(), pace);
            other.set(after.into(), pace);
            for (i, &(missed, late)) in beats.iter().enumerate() {
                let number = u64::from(after) + 1 + i as u64;
                // Less late than a turn is long.
                let late = u64::from(late) % pace.turn_us;
                one.beat(number, due_us);
                if missed > 20 || i == 0 {
                    other.beat(number, due_us + late);
                    for turn in 0..pace.turns {
                        let now = due_us + turn * pace.turn_us + late;
                        assert_eq!((one.slot(now), other.slot(now)), (i as u64 * pace.turns + turn, one.slot(now)));
                        let next = (turn + 1 < pace.turns).then_some(now + pace.turn_us);
                        assert_eq!(other.next_us(now), next);
                    }
                } else {
                    assert!(other.slot(due_us) <= one.slot(due_us), "it waits in a slot that is over");
                }
                due_us += pace.period_us();
            }
        });
    }

    #[test]
    fn slow_switches_have_a_small_part_of_the_time() {
        let mut clock = Clock::default();
        clock.set(0, Pace::of(2_000));
        let rests = [40, 30_000, 30_001, 100_000, u64::MAX].map(|took| clock.rest_us(took));
        assert_eq!(rests, [None, None, Some(600_020), Some(2_000_000), Some(LONGEST_REST_US)]);
        clock.set(0, Pace::of(4_000_000));
        assert_eq!((clock.rest_us(200_000), clock.rest_us(200_001)), (None, Some(4_000_020)));
    }

    #[test]
    fn hostile_numbers_are_no_panic() {
        bolero::check!().with_type::<(Pace, u64, u64, u64, u64)>().for_each(|&(pace, after, beat, at, now)| {
            let mut clock = Clock::default();
            clock.set(after, pace);
            clock.beat(beat, at);
            let _ = (
                clock.slot(now),
                clock.next_us(now),
                clock.ends_us(now),
                clock.rest_us(at),
                pace.period_us(),
                pace.check(),
            );
        });
    }
}
