//! The strobe: the manager's heartbeat, by which the whole cluster goes from one known state to the next (Frachtenberg et al., 2002). Each beat
//! is a transfer of a few bytes to all members, so all of them have the same beats in the same order. Here: when one is due, and what a member
//! makes of those that come. Between two beats there may be *micro-heartbeats*, which cut the time into equal parts, as BCS-MPI cuts a slice into
//! the steps of its messages' exchange (Fernandez et al., 2003). Times are microseconds of any clock that does not go back.

use serde::{Deserialize, Serialize};

/// Beats that are not everywhere yet: no more are sent ahead.
const AHEAD: usize = 32;
/// Events of one beat.
const MOST_EVENTS: usize = 64;
/// Classes of what beats are off by: each is twice the one before, from one microsecond.
const CLASSES: usize = 32;

/// One beat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Beat {
    /// They are counted by each manager, micro-heartbeats as well.
    pub number: u64,
    /// From one heartbeat to the next.
    pub period_us: u64,
    /// Into so many parts the period is cut: each begins with a beat.
    pub parts: u16,
    /// The part that begins: 0 with a heartbeat, more with a micro-heartbeat.
    pub part: u16,
    /// What happens at all members with this beat.
    pub events: Vec<String>,
}

impl Beat {
    /// From one beat to the next.
    fn step_us(&self) -> u64 {
        self.period_us / u64::from(self.parts.max(1))
    }
}

/// At the manager: when the next beat is due.
#[derive(Debug, Default)]
pub struct Pacemaker {
    period_us: u64,
    parts: u16,
    /// The part that begins with the next beat.
    part: u16,
    due_us: u64,
    number: u64,
    under_way: usize,
    skipped: u64,
}

impl Pacemaker {
    /// When the next beat is due; none without a period.
    pub fn due(&self) -> Option<u64> {
        (self.period_us > 0).then_some(self.due_us)
    }

    /// From now on with this period, cut into so many parts of a microsecond at least; 0 for no beats.
    pub fn set_period(&mut self, now_us: u64, period_us: u64, parts: u16) {
        let parts = parts.clamp(1, u16::try_from(period_us).unwrap_or(u16::MAX).max(1));
        if (period_us, parts) != (self.period_us, self.parts) {
            (self.period_us, self.parts, self.part, self.due_us) = (period_us, parts, 0, now_us);
        }
    }

    /// The next beat, if it is due. Those that were missed are not made up for: they are counted. `events`: what it takes with it is
    /// taken out.
    pub fn beat(&mut self, now_us: u64, events: &mut Vec<String>) -> Option<Beat> {
        if self.period_us == 0 || now_us < self.due_us {
            return None;
        }
        let parts = u64::from(self.parts);
        let step_us = self.period_us / parts;
        let missed = (now_us - self.due_us) / step_us;
        self.due_us += (missed + 1) * step_us;
        self.skipped += missed;
        // The one that was due last: what begins now is its part.
        let part = ((u64::from(self.part) + missed) % parts) as u16;
        self.part = (part + 1) % self.parts;
        if self.under_way >= AHEAD {
            self.skipped += 1;
            return None;
        }
        self.under_way += 1;
        self.number += 1;
        let events = events.drain(..events.len().min(MOST_EVENTS)).collect();
        Some(Beat { number: self.number, period_us: self.period_us, parts: self.parts, part, events })
    }

    /// One of them has come to all members, or will not.
    pub fn ended(&mut self) {
        self.under_way -= 1;
    }

    /// The number of the last beat, 0 before the first one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Beats that were not sent: the machine, or the slowest member, did not keep up.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

/// What a member has seen of the strobe since it has had its period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pulse {
    /// Heartbeats that have come.
    pub beats: u64,
    /// Micro-heartbeats that have come.
    pub micro: u64,
    /// Those of both that came after more than one and a half times what is to be between two.
    pub late: u64,
    /// Those that never came.
    pub lost: u64,
    /// The longest time between two, microseconds.
    pub longest_us: u64,
    /// By how much the times between two were off: at less than 1, 2, 4, ... microseconds.
    off: Vec<u64>,
    last: Option<(u64, u64)>,
    period_us: u64,
    parts: u16,
}

impl Pulse {
    /// One has come.
    pub fn beat(&mut self, now_us: u64, beat: &Beat) {
        if (beat.period_us, beat.parts) != (self.period_us, self.parts) {
            *self = Pulse { period_us: beat.period_us, parts: beat.parts, ..Pulse::default() };
        }
        if let Some((when, number)) = self.last.filter(|(_, number)| *number < beat.number) {
            let apart = now_us.saturating_sub(when);
            self.lost = self.lost.saturating_add(beat.number - number - 1);
            let step_us = beat.step_us();
            self.late += u64::from(apart > step_us.saturating_add(step_us / 2));
            self.longest_us = self.longest_us.max(apart);
            let class = (u64::BITS - apart.abs_diff(step_us).leading_zeros()) as usize;
            self.off.resize(CLASSES, 0);
            self.off[class.min(CLASSES - 1)] += 1;
        }
        self.beats += u64::from(beat.part == 0);
        self.micro += u64::from(beat.part > 0);
        self.last = Some((now_us, beat.number));
    }

    /// Another manager counts from one; what was seen before still counts.
    pub fn other_manager(&mut self) {
        self.last = self.last.map(|(when, _)| (when, 0));
    }

    /// For so long nothing has come though it should have; none where no beats are expected.
    pub fn silent_us(&self, now_us: u64) -> Option<u64> {
        let (when, _) = self.last.filter(|_| self.period_us > 0)?;
        Some(now_us.saturating_sub(when).saturating_sub(self.period_us))
    }

    /// The period, microseconds; 0 for none.
    pub fn period_us(&self) -> u64 {
        self.period_us
    }

    /// The parts of a period.
    pub fn parts(&self) -> u16 {
        self.parts
    }

    /// So many of a thousand beats were off by less than this, microseconds (within a factor of two).
    pub fn off_us(&self, of_thousand: u64) -> Option<u64> {
        let all: u64 = self.off.iter().sum();
        let mut seen = 0;
        let within = self.off.iter().position(|n| {
            seen += n;
            seen * 1000 >= all * of_thousand
        })?;
        (all > 0).then_some(1 << within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    fn beat(number: u64) -> Beat {
        Beat { number, period_us: 1000, parts: 1, part: 0, events: Vec::new() }
    }

    #[test]
    fn it_beats_in_time_and_what_is_missed_is_counted() {
        let mut p = Pacemaker::default();
        let mut events = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!((p.due(), p.beat(5, &mut events)), (None, None));
        p.set_period(10, 1000, 1);
        let first = p.beat(10, &mut events).unwrap();
        assert_eq!((first.number, first.events, events.len()), (1, vec!["a".to_owned(), "b".to_owned()], 0));
        assert_eq!((p.due(), p.beat(1009, &mut events)), (Some(1010), None));
        assert_eq!(p.beat(1015, &mut events), Some(beat(2)), "a little late");
        assert_eq!(p.due(), Some(2010), "and the next one is not");
        assert_eq!(p.beat(5500, &mut events), Some(beat(3)));
        assert_eq!((p.due(), p.skipped()), (Some(6010), 3));
    }

    #[test]
    fn it_does_not_run_ahead_of_the_slowest() {
        let mut p = Pacemaker::default();
        p.set_period(0, 1000, 1);
        let sent = (0..100).filter(|i| p.beat(i * 1000, &mut Vec::new()).is_some()).count();
        assert_eq!((sent, p.skipped()), (AHEAD, 100 - AHEAD as u64));
        p.ended();
        assert_eq!(p.beat(100_000, &mut Vec::new()).map(|b| b.number), Some(AHEAD as u64 + 1));
    }

    #[test]
    fn events_go_with_the_next_beats() {
        let mut p = Pacemaker::default();
        p.set_period(0, 1000, 1);
        let mut events: Vec<String> = (0..MOST_EVENTS + 1).map(|n| n.to_string()).collect();
        assert_eq!(p.beat(0, &mut events).unwrap().events.len(), MOST_EVENTS);
        assert_eq!(p.beat(1000, &mut events).unwrap().events, [MOST_EVENTS.to_string()]);
    }

    #[test]
    fn what_a_member_sees() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.silent_us(9), None);
        for (when, number) in [(100, 1), (1100, 2), (2103, 3), (3100, 4), (5100, 6)] {
            pulse.beat(when, &beat(number));
        }
        assert_eq!((pulse.beats, pulse.late, pulse.lost, pulse.longest_us), (5, 1, 1, 2000));
        // Off by 0, 3, 3 and 1000.
        assert_eq!([250, 500, 750, 1000].map(|n| pulse.off_us(n)), [1, 4, 4, 1024].map(Some));
        assert_eq!((pulse.silent_us(6000), pulse.silent_us(7100)), (Some(0), Some(1000)));
        pulse.other_manager();
        pulse.beat(6100, &beat(1));
        assert_eq!((pulse.beats, pulse.lost), (6, 1), "that one counts anew");
        pulse.beat(7000, &Beat { period_us: 5, ..beat(2) });
        assert_eq!(
            (pulse.beats, pulse.late, pulse.lost),
            (1, 0, 0),
            "and so is everything counted with another period"
        );
    }

    #[test]
    fn micro_heartbeats_cut_the_time_between_two_heartbeats() {
        let (mut p, mut pulse) = (Pacemaker::default(), Pulse::default());
        p.set_period(0, 1000, 4);
        let mut parts = Vec::new();
        // The beats due at 1500, 1750 and 2000 are missed: what begins at 2250 is the second part.
        for now in [0, 250, 500, 750, 1000, 1250, 2260, 2500] {
            let beat = p.beat(now, &mut Vec::new()).unwrap();
            pulse.beat(now, &beat);
            p.ended();
            parts.push(beat.part);
        }
        assert_eq!((parts, p.skipped(), p.due()), (vec![0, 1, 2, 3, 0, 1, 1, 2], 3, Some(2750)));
        assert_eq!((pulse.beats, pulse.micro, pulse.late, pulse.lost, pulse.longest_us), (2, 6, 1, 0, 1010));
        // A part has a microsecond at least.
        p.set_period(3000, 3, 1000);
        assert_eq!(p.beat(3000, &mut Vec::new()).map(|b| (b.parts, b.step_us())), Some((3, 1)));
    }

    #[test]
    fn whatever_a_manager_says() {
        check!().with_type::<Vec<(u32, Beat)>>().for_each(|beats| {
            let (mut pulse, mut now) = (Pulse::default(), 0);
            for (after, beat) in beats {
                now += u64::from(*after);
                pulse.beat(now, beat);
                pulse.silent_us(now);
            }
            assert!(pulse.beats + pulse.micro <= beats.len() as u64);
            pulse.off_us(990);
        });
    }
}
