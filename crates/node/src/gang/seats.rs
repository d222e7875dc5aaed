//! The gangs of this node: the processes of each are in a control group that runs while it is its turn, and else in one that runs only where nobody else
//! wants to.

use super::precedence::Precedence;
use crate::daemon::Node;
use pando_gang::{Clock, Pace, Table};
use pando_kernel::affinity;
use pando_kernel::turns::Turns;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The fabric's region of the table, and its event.
pub const TABLE: &str = "pando/gangs";

/// What the node that orders sends to all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Published {
    /// The table.
    pub table: Table,
    /// The number of the last beat that was sent before: with the next one the table's first row has its turn.
    pub after: u64,
    /// How long turns usually are, and how often beats come.
    #[serde(default)]
    pub pace: Pace,
}

/// The kernel forgets soon that there was a switch, and then the next one takes some of its ticks: so for so long before the end of a turn, microseconds, it
/// is reminded, and so often.
const STIRRED_US: u64 = 20_000;
const STIR_US: u64 = 3_000;
/// Such times are told of anew when there was none for so long, microseconds.
const RESTS_APART_US: u64 = 60_000_000;
/// Without a beat for longer, and for three of them, this node is cut off from who orders.
const SILENCE: Duration = Duration::from_secs(1);

impl Published {
    /// As bytes that go with one message. What would make it too long are the rows that a gang has besides its own: it does without them then.
    pub fn in_one_message(mut self) -> serde_json::Result<Vec<u8>> {
        let bytes = serde_json::to_vec(&self)?;
        if bytes.len() <= pando_fabric::MOST_AT_ONCE {
            return Ok(bytes);
        }
        self.table.jobs.values_mut().for_each(|rows| rows.truncate(1));
        serde_json::to_vec(&self)
    }
}

#[derive(Default)]
pub struct Seats {
    all: BTreeMap<u64, Seat>,
    table: Table,
    /// How long turns are of whom it says nothing else about, microseconds.
    usual_us: u64,
    clock: Clock,
    /// From when on the clock counts.
    begun: Option<Instant>,
    /// The one that comes with the next beat.
    next: Option<Published>,
    /// When the last beat came, and the time from one to the next.
    heard: Option<Instant>,
    period: Duration,
    /// Nothing is heard of who orders: all run until it is.
    alone: bool,
    /// Switching took too long: all run until then, by the clock.
    rests_until_us: u64,
    precedence: Precedence,
}

struct Seat {
    turns: Turns,
    /// As the matrix counts them.
    cpus: Vec<u16>,
    /// It was said that it can't be switched.
    failed: bool,
}

impl Seats {
    /// See [`super::Gangs::sit_down`].
    pub fn sit_down(&mut self, number: u64, turns: Turns, held: &[u16]) -> Result<PathBuf, String> {
        if self.all.contains_key(&number) {
            return Err("another gang has its number".into());
        }
        let entrance = turns.entrance();
        self.all.insert(number, Seat { turns, cpus: held.to_vec(), failed: false });
        self.set_turn();
        self.switch();
        Ok(entrance)
    }

    pub fn counts(&self) -> (usize, u16) {
        (self.all.len(), self.table.rows)
    }

    /// CPUs that gangs have here, and the lists of their processes.
    pub fn held(&self) -> (u32, Vec<PathBuf>) {
        let cpus: BTreeSet<u16> = self.all.values().flat_map(|seat| seat.cpus.iter().copied()).collect();
        (cpus.len() as u32, self.all.values().flat_map(|seat| seat.turns.lists()).collect())
    }

    /// Does it know of gangs, here or elsewhere?
    pub fn knows_of_any(&self) -> bool {
        !self.table.jobs.is_empty() || self.next.as_ref().is_some_and(|next| !next.table.jobs.is_empty())
    }

    pub fn stand_up(&mut self, number: u64) -> Option<impl Sized + use<>> {
        let gone = self.all.remove(&number).map(|seat| seat.turns);
        self.set_turn();
        gone
    }

    pub fn table(&mut self, bytes: &[u8]) {
        let published: Published = match serde_json::from_slice(bytes) {
            Ok(published) => published,
            Err(e) => return tracing::warn!("gangs: a table that makes no sense: {e}"),
        };
        if let Err(why) = published.table.check().and_then(|()| published.pace.check()) {
            return tracing::warn!("gangs: a table that makes no sense: {why}");
        }
        // Where nobody takes turns there may be no beats; nor is there anybody to be in step with.
        let at_once = published.table.rows <= 1;
        self.next = Some(published);
        if at_once {
            self.take_next();
        }
    }

    fn take_next(&mut self) {
        if let Some(Published { table, after, pace }) = self.next.take() {
            (self.table, self.usual_us) = (table, pace.turn_us);
            self.clock.set(after, pace.period_us, pace.turn_us);
            self.set_turn();
            self.switch();
        }
    }

    /// Those who run here have turns of one length: they share a node.
    fn set_turn(&mut self) {
        let runs = |number: &&u64| self.table.jobs.get(*number).is_some_and(|rows| !rows.is_empty());
        let one = self.all.keys().find(runs);
        self.clock.set_turn(one.map_or(self.usual_us, |number| self.table.turn_us(*number, self.usual_us)));
    }

    /// All nodes have the same beats, so all of them switch to the same row.
    pub fn beat(&mut self, number: u64, period_us: u64) {
        (self.heard, self.period) = (Some(Instant::now()), Duration::from_micros(period_us));
        let now_us = self.now_us();
        self.clock.beat(number, now_us);
        let was_alone = std::mem::take(&mut self.alone);
        match self.next {
            Some(_) => self.take_next(),
            None if self.table.rows > 1 || was_alone => self.switch(),
            None => {}
        }
    }

    /// A turn may be over by this node's clock. How long the next one is away, if it begins before the next beat.
    pub fn turn(&mut self) -> Option<Duration> {
        if self.table.rows < 2 || self.alone {
            return None;
        }
        self.switch();
        let now_us = self.now_us();
        let (next, ends) = (self.clock.next_us(now_us), self.clock.ends_us(now_us));
        let left = ends.saturating_sub(now_us);
        let wake = match left {
            // The next beat is late.
            0 => return None,
            _ if left > STIRRED_US => Some(ends - STIRRED_US),
            _ if left > STIR_US => {
                if now_us >= self.rests_until_us {
                    self.all.values().for_each(|seat| drop(seat.turns.stir()));
                }
                Some(now_us + STIR_US)
            }
            _ => next,
        };
        wake.map(|at| Duration::from_micros(at.saturating_sub(now_us)))
    }

    fn now_us(&mut self) -> u64 {
        self.begun.get_or_insert_with(Instant::now).elapsed().as_micros() as u64
    }

    /// Where no beats come nobody's turn is over: all run, as processes do that know of no turns.
    pub fn mind_silence(&mut self) {
        let most = SILENCE.max(self.period * 3);
        if self.table.rows > 1 && !self.alone && self.heard.is_none_or(|when| when.elapsed() > most) {
            self.alone = true;
            self.switch();
        } else if self.table.rows <= 1 || self.alone {
            // No beat switches, and still somebody may be where he is not to be: who has entered a gang that stands still for one of a higher level, and who was
            // begun aside just when its gang went on.
            self.switch();
        }
    }

    /// Those whose turn it is first: the other way about there is for a moment nobody of weight at a CPU, and what the kernel owes whom from that moment it
    /// pays back in the turn. All are put again where they are with each turn, for what they have begun meanwhile.
    fn switch(&mut self) {
        let now_us = self.now_us();
        let (slot, rests) = (self.clock.slot(now_us), now_us < self.rests_until_us);
        self.precedence.take(self.table.rows > 1 && !self.alone);
        for runs in [true, false] {
            for (number, seat) in &mut self.all {
                if (self.alone || rests || self.table.runs(*number, slot)) != runs {
                    continue;
                }
                let failed = seat.turns.run(runs);
                if let Err(e) = &failed
                    && !seat.failed
                {
                    tracing::warn!("gangs: a process of gang {number:x} can't be switched: {e}");
                }
                seat.failed |= failed.is_err();
            }
        }
        let (over_us, was_resting) = (self.now_us(), self.rests_until_us);
        if let Some(rest) = self.clock.rest_us(over_us.saturating_sub(now_us)) {
            self.rests_until_us = over_us.saturating_add(rest);
            // Once for a time in which it is so again and again.
            if was_resting == 0 || over_us.saturating_sub(was_resting) > RESTS_APART_US {
                let took_ms = over_us.saturating_sub(now_us) / 1000;
                tracing::warn!(
                    "gangs: a switch took {took_ms} ms, for too many processes begin and end here: all gangs of this node run at once for {} ms",
                    rest / 1000
                );
            }
        }
    }
}

/// The CPUs of each rank, by the machine's numbers. What the matrix calls 0 is the first CPU that this node gives to gangs.
pub fn cpus_of(node: &Node, mine: &[u16], each: u16) -> Vec<Vec<u16>> {
    let allowed: Vec<u16> = match node.config.gang.cpus.is_empty() {
        true => affinity::allowed(0).unwrap_or_default().into_iter().filter_map(|c| u16::try_from(c).ok()).collect(),
        false => node.config.gang.cpus.clone(),
    };
    if allowed.is_empty() || each == 0 {
        return Vec::new();
    }
    // A node may say that it has more than it may use: it is not refused for that.
    let real = |cpu: &u16| allowed[usize::from(*cpu) % allowed.len()];
    mine.chunks(each.into()).map(|rank| rank.iter().map(real).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_table_fits_into_one_message() {
        let rows: Vec<u16> = (0..pando_gang::MOST_ROWS).collect();
        let jobs = (0..crate::gang::office::MOST as u64).map(|job| (u64::MAX - job, rows.clone())).collect();
        // Each of the lengths there may be is somebody's.
        let mut lengths: Vec<(u64, Vec<u16>)> =
            (0..pando_gang::MOST_LENGTHS as u64).map(|i| (3_600_000_000 - i, Vec::new())).collect();
        for place in 0..crate::gang::office::MOST {
            lengths[place % pando_gang::MOST_LENGTHS].1.push(place as u16);
        }
        let table = Table { version: u64::MAX, rows: pando_gang::MOST_ROWS, jobs, first: 63, lengths };
        let bytes = Published { table, after: u64::MAX, pace: Pace::of(u64::MAX, u64::MAX) }.in_one_message().unwrap();
        assert!(bytes.len() <= pando_fabric::MOST_AT_ONCE, "{}", bytes.len());
        let mut seats = Seats::default();
        seats.table(&bytes);
        assert_eq!(seats.next.unwrap().table.jobs[&u64::MAX], [0], "its own row is in it");
    }

    fn published(after: u64, first: u16) -> Vec<u8> {
        let jobs = [(1, vec![0]), (2, vec![1])].into();
        serde_json::to_vec(&Published {
            table: Table { version: 1, rows: 2, jobs, first, lengths: Vec::new() },
            after,
            pace: Pace::of(1_000_000, 1_000_000),
        })
        .unwrap()
    }

    #[test]
    fn a_table_counts_from_the_beat_after_it_and_is_the_same_everywhere() {
        let row = |seats: &Seats| seats.table.row(seats.clock.slot(0));
        let (mut one, mut other) = (Seats::default(), Seats::default());
        one.table(&published(7, 1));
        other.table(&published(7, 1));
        // One of them has not heard beat 8.
        one.beat(8, 1000);
        assert_eq!(row(&one), 1);
        one.beat(9, 1000);
        other.beat(9, 1000);
        assert_eq!((row(&one), row(&other)), (0, 0));
        one.beat(10, 1000);
        other.beat(10, 1000);
        assert_eq!((row(&one), row(&other)), (1, 1));
        one.table(b"{\"table\":{\"version\":1,\"rows\":9999,\"jobs\":{},\"first\":0},\"after\":0}");
        one.beat(11, 1000);
        assert_eq!(row(&one), 0, "what makes no sense is not taken");
    }
}
