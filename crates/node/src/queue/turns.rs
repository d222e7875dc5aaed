//! Who is told next: whoever does not answer takes up his own user's room and nobody else's. Mail and webhooks have each their own, and what is tried again
//! has half of it. A pure state machine: the clock comes from outside.

use super::tell::{Notice, To};
use std::collections::{BTreeMap, VecDeque};
use tokio::time::Instant;

/// So many are told at a time by mail, and so many by webhook: those of one user, and all.
const AT_ONCE: (usize, usize) = (4, 16);

/// What is told now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its number in the journal.
    pub number: i64,
    /// How often it was tried before.
    pub times: u32,
    /// What is told.
    pub notice: Notice,
}

/// One user's, of one kind.
#[derive(Debug, Default)]
struct Lane {
    fresh: VecDeque<Turn>,
    again: BTreeMap<(Instant, i64), Turn>,
    /// So many are told now, and so many of those were tried before.
    busy: (usize, usize),
}

/// By mail? And whose.
type Name = (bool, String);

/// All that is to be told.
#[derive(Debug, Default)]
pub struct Turns {
    lanes: BTreeMap<Name, Lane>,
    newest: i64,
}

fn name(notice: &Notice) -> Name {
    (matches!(notice.to, To::Mail(_)), notice.user.clone())
}

impl Turns {
    /// The largest number that was ever added; 0 at first.
    pub fn newest(&self) -> i64 {
        self.newest
    }

    /// Is to be told as soon as there is room.
    pub fn add(&mut self, number: i64, notice: Notice) {
        self.newest = self.newest.max(number);
        self.lanes.entry(name(&notice)).or_default().fresh.push_back(Turn { number, times: 0, notice });
    }

    /// The next one that there is room for; it is under way until [`Turns::done`] or [`Turns::later`].
    pub fn next(&mut self, now: Instant) -> Option<Turn> {
        let all = |mail: bool| {
            let of = self.lanes.iter().filter(move |((by, _), _)| *by == mail).map(|(_, lane)| lane.busy);
            of.fold((0, 0), |sum, busy| (sum.0 + busy.0, sum.1 + busy.1))
        };
        let busy = [all(false), all(true)];
        let room = |one: usize, of: usize, share: usize| one < AT_ONCE.0 / share && of < AT_ONCE.1 / share;
        let ready = |((mail, _), lane): (&Name, &Lane)| {
            let of = busy[usize::from(*mail)];
            if !room(lane.busy.0, of.0, 1) {
                return None;
            }
            let due = lane.again.first_key_value().filter(|((at, _), _)| *at <= now && room(lane.busy.1, of.1, 2));
            lane.fresh.front().or(due.map(|(_, turn)| turn)).map(|turn| turn.number)
        };
        // Whoever has least is next, and then whoever waits longest.
        let best = self.lanes.iter().filter_map(|lane| Some((lane.1.busy.0, ready(lane)?, lane.0.clone()))).min();
        let lane = self.lanes.get_mut(&best?.2)?;
        let turn = lane.fresh.pop_front().or_else(|| lane.again.pop_first().map(|(_, turn)| turn))?;
        lane.busy = (lane.busy.0 + 1, lane.busy.1 + usize::from(turn.times > 0));
        Some(turn)
    }

    /// When the next one is to be tried again that waits for nothing but that.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let all = self.lanes.values().flat_map(|lane| lane.again.keys().map(|(at, _)| *at));
        all.filter(|at| *at > now).min()
    }

    /// It need not be told any more.
    pub fn done(&mut self, turn: &Turn) {
        let name = name(&turn.notice);
        let Some(lane) = self.lanes.get_mut(&name) else { return };
        let was_tried = usize::from(turn.times > 0);
        lane.busy = (lane.busy.0.saturating_sub(1), lane.busy.1.saturating_sub(was_tried));
        if lane.busy.0 == 0 && lane.fresh.is_empty() && lane.again.is_empty() {
            self.lanes.remove(&name);
        }
    }

    /// It was tried, and is to be tried again at that time.
    pub fn later(&mut self, turn: Turn, at: Instant) {
        self.done(&turn);
        let turn = Turn { times: turn.times.saturating_add(1), ..turn };
        self.lanes.entry(name(&turn.notice)).or_default().again.insert((at, turn.number), turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_queue::Id;
    use std::time::Duration;

    fn notice(user: &str, mail: bool) -> Notice {
        let to = if mail { To::Mail("a@b".into()) } else { To::Webhook("http://h/".into()) };
        let [name, event, state] = ["j", "END", "COMPLETED"].map(str::to_owned);
        Notice { to, job: Id::of(1), name, user: user.into(), event, state, at: 5 }
    }

    fn drain(turns: &mut Turns, now: Instant) -> Vec<Turn> {
        std::iter::from_fn(|| turns.next(now)).collect()
    }

    #[test]
    fn whoever_hangs_holds_nobody_else() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        (1..=100).for_each(|number| turns.add(number, notice("eve", false)));
        turns.add(101, notice("ann", false));
        turns.add(102, notice("eve", true));
        let first = drain(&mut turns, now);
        let mut numbers: Vec<i64> = first.iter().map(|turn| turn.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4, 101, 102]);
        turns.done(&first.into_iter().find(|turn| turn.number == 2).unwrap());
        turns.add(103, notice("bob", false));
        assert_eq!(turns.next(now).unwrap().number, 103, "who has nothing under way goes first");
        assert_eq!(turns.next(now).unwrap().number, 5);
        assert_eq!((turns.next(now), turns.newest()), (None, 103));
    }

    #[test]
    fn all_webhooks_together_leave_room_for_mail() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        for user in 0..10 {
            (1..=10).for_each(|i| turns.add(user * 10 + i, notice(&format!("u{user}"), false)));
        }
        assert_eq!(drain(&mut turns, now).len(), AT_ONCE.1);
        turns.add(1000, notice("ann", true));
        assert_eq!(turns.next(now).unwrap().number, 1000);
    }

    #[test]
    fn what_is_tried_again_waits_for_its_time_and_leaves_room_for_what_is_new() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        for user in 0..10 {
            (1..=4).for_each(|i| turns.add(user * 10 + i, notice(&format!("u{user}"), false)));
        }
        loop {
            let all = drain(&mut turns, now);
            if all.is_empty() {
                break;
            }
            all.into_iter().for_each(|turn| turns.later(turn, later));
        }
        assert_eq!((turns.due(now), turns.due(later)), (Some(later), None));
        let again = drain(&mut turns, later);
        assert_eq!(again.len(), AT_ONCE.1 / 2, "half of the room");
        assert!(again.iter().all(|turn| turn.times == 1));
        turns.add(1000, notice("u0", false));
        assert_eq!(turns.next(later).unwrap().number, 1000);
        again.iter().for_each(|turn| turns.done(turn));
        assert_eq!(drain(&mut turns, later).len(), AT_ONCE.1 / 2);
    }
}
