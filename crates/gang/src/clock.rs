//! Which slot it is at a node. Beats of the strobe are several turns apart where turns are short, for a message to each node with each turn would cost more
//! than the switch; between two beats each node goes by its own clock, which is set with each of them. So nodes are as far apart as their beats are.

use serde::{Deserialize, Serialize};

/// Beats are no closer together than this, microseconds, unless turns are longer: fifty a second took a hundredth of each node's CPU, and who begins waits
/// for the next one.
const BEATS_US: u64 = 50_000;
/// Turns from one beat to the next, at most.
const MOST: u64 = 1_000;
/// A switch that takes no longer is as it should be, microseconds: the kernel may wait for all CPUs first, some of its ticks long.
const QUICK_US: u64 = 30_000;
/// Switches that take longer have one part of so many of the time.
const SHARE: u64 = 20;
/// Nobody is kept from his turns for longer, microseconds.
const LONGEST_REST_US: u64 = 10_000_000;

/// The usual length of turns, and how often beats come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Pace {
    /// Microseconds.
    pub turn_us: u64,
    /// From one beat to the next, microseconds.
    pub period_us: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { turn_us: BEATS_US, period_us: BEATS_US }
    }
}

impl Pace {
    /// For turns of so many microseconds, the shortest of which take so many: with each beat one of those begins.
    pub fn of(turn_us: u64, shortest_us: u64) -> Pace {
        let shortest_us = shortest_us.max(1);
        let turns = BEATS_US.div_ceil(shortest_us).clamp(1, MOST);
        Pace { turn_us: turn_us.max(1), period_us: shortest_us.saturating_mul(turns) }
    }

    /// For one that another machine made: is it within its limits?
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        match self.turn_us >= 1 && self.period_us >= 1 {
            true => Ok(()),
            false => Err(format!("turns of {} us, and {} us from one beat to the next", self.turn_us, self.period_us)),
        }
    }
}

/// See the module. Times are microseconds of any clock that goes on evenly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    period_us: u64,
    /// Of this node: turns of others may be longer or shorter.
    turn_us: u64,
    /// Slots are counted from the beat after this one.
    after: u64,
    beat: u64,
    at_us: u64,
}

impl Clock {
    /// From the beat after this one on slots are counted anew, which take so long here.
    pub fn set(&mut self, after: u64, period_us: u64, turn_us: u64) {
        (self.after, self.period_us) = (after, period_us);
        self.set_turn(turn_us);
    }

    /// Turns take so long here, and have since slots are counted. Not so short that there are more of them between two beats than whoever orders them
    /// may want ([`Pace::of`]): what another machine says must not have this one switch without pause.
    pub fn set_turn(&mut self, turn_us: u64) {
        self.turn_us = turn_us.max(self.period_us.div_ceil(MOST));
    }

    /// A beat has come.
    pub fn beat(&mut self, number: u64, now_us: u64) {
        (self.beat, self.at_us) = (number, now_us);
    }

    /// The slot that it is now. While a beat is late the moment before it goes on.
    pub fn slot(&self, now_us: u64) -> u64 {
        let since = now_us.saturating_sub(self.at_us).min(self.period_us.saturating_sub(1));
        self.before_us().saturating_add(since) / self.turn_us.max(1)
    }

    /// When the next one begins by this clock, if that is before the next beat.
    pub fn next_us(&self, now_us: u64) -> Option<u64> {
        let next = self.ends_us(now_us);
        (next.saturating_sub(self.at_us) < self.period_us).then_some(next)
    }

    /// When the turn ends, if nobody is late.
    pub fn ends_us(&self, now_us: u64) -> u64 {
        let end = self.slot(now_us).saturating_add(1).saturating_mul(self.turn_us.max(1));
        self.at_us.saturating_add(end.saturating_sub(self.before_us()))
    }

    /// A switch has taken so long: for how long nobody is to be switched, if that was too long. While processes are moved between groups the kernel lets
    /// nobody begin one, so a node on which many begin is left alone for most of the time.
    pub fn rest_us(&self, took_us: u64) -> Option<u64> {
        let rest = took_us.saturating_mul(SHARE);
        (took_us > QUICK_US && rest > self.turn_us).then_some(rest.min(LONGEST_REST_US))
    }

    /// From when slots are counted until the last beat that has come.
    fn before_us(&self) -> u64 {
        // Another one who orders counts beats from 1 again, until it sends its own table.
        self.beat.saturating_sub(self.after.saturating_add(1)).saturating_mul(self.period_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_turns_share_a_beat_and_long_ones_have_their_own() {
        for (turn, turns) in
            [(100, 500), (300, 167), (1_000, 50), (5_000, 10), (49_999, 2), (50_000, 1), (8_000_000, 1)]
        {
            let pace = Pace::of(turn, turn);
            assert_eq!((pace.turn_us, pace.period_us), (turn, turn * turns));
            assert!(pace.check().is_ok() && pace.period_us >= BEATS_US);
        }
        assert_eq!(Pace::of(8_000_000, 5_000), Pace { turn_us: 8_000_000, period_us: 50_000 });
        let none = [Pace { turn_us: 0, period_us: 1 }, Pace { turn_us: 1, period_us: 0 }];
        assert!(none.iter().all(|pace| pace.check().is_err()));
    }

    #[test]
    fn nodes_whose_beats_come_and_are_missed_at_different_times_are_in_the_same_slot() {
        bolero::check!().with_type::<(Pace, u16, [(u8, u16); 8])>().for_each(|&(any, after, ref beats)| {
            // Turns may be longer or shorter than the time between two beats.
            let period = any.period_us % 100_000 + 1;
            let turn = (any.turn_us % 50_000 + 1).max(period.div_ceil(MOST));
            let (mut one, mut other) = (Clock::default(), Clock::default());
            let mut due_us = 1_000_000;
            one.set(after.into(), period, turn);
            other.set(after.into(), period, turn);
            for (i, &(missed, late)) in beats.iter().enumerate() {
                let number = u64::from(after) + 1 + i as u64;
                let late = u64::from(late) % period;
                one.beat(number, due_us);
                let missed = missed <= 20 && i > 0;
                if !missed {
                    other.beat(number, due_us + late);
                }
                for since in [0, period / 3, period / 2, period - 1] {
                    let (now, slot) = (due_us + since, (i as u64 * period + since) / turn);
                    assert_eq!(one.slot(now), slot, "it goes on evenly from beat to beat");
                    if missed {
                        assert!(other.slot(now) <= slot, "it waits in a slot that is over");
                        continue;
                    }
                    assert_eq!(other.slot(now + late), slot);
                    let ends = due_us + (slot + 1) * turn - i as u64 * period;
                    assert_eq!(one.ends_us(now), ends);
                    assert_eq!(one.next_us(now), (ends < due_us + period).then_some(ends));
                }
                due_us += period;
            }
        });
    }

    #[test]
    fn nobody_has_a_node_switch_without_pause() {
        let mut clock = Clock::default();
        clock.set(0, 1_000_000_000, 1);
        clock.beat(1, 5_000);
        assert_eq!(clock.ends_us(5_000), 1_005_000, "a thousandth of the time between two beats");
    }

    #[test]
    fn slow_switches_have_a_small_part_of_the_time() {
        let mut clock = Clock::default();
        clock.set(0, 20_000, 2_000);
        let rests = [40, 30_000, 30_001, 100_000, u64::MAX].map(|took| clock.rest_us(took));
        assert_eq!(rests, [None, None, Some(600_020), Some(2_000_000), Some(LONGEST_REST_US)]);
        clock.set_turn(4_000_000);
        assert_eq!((clock.rest_us(200_000), clock.rest_us(200_001)), (None, Some(4_000_020)));
    }

    #[test]
    fn hostile_numbers_are_no_panic() {
        bolero::check!().with_type::<(Pace, u64, u64, u64, u64)>().for_each(|&(pace, after, beat, at, now)| {
            let mut clock = Clock::default();
            clock.set(after, pace.period_us, pace.turn_us);
            clock.beat(beat, at);
            let _ = (
                clock.slot(now),
                clock.next_us(now),
                clock.ends_us(now),
                clock.rest_us(at),
                Pace::of(now, at),
                pace.check(),
            );
        });
    }
}
