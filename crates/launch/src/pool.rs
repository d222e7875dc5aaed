//! Many short tasks over the slots of a cluster: which task goes where next, and what becomes of one that failed or whose node was lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Tasks wait at a node for about as long as this takes, milliseconds: so many can go there, and be told of, in one message. Many times a link's delay, and
/// nothing beside what anybody waits for.
const WAITS_MS: u64 = 32;
/// So many at most for each that runs there.
const MOST_AHEAD: u32 = 16;

/// One task: the words of its command are somebody else's.
pub type Number = u32;

struct Site {
    place: u32,
    slots: u32,
    here: BTreeSet<Number>,
    /// It is being given tasks, until it has all that it may have.
    fills: bool,
    /// It has given tasks back, and none has ended there since.
    stuck: bool,
}

/// What became of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done, and well.
    Done,
    /// It failed, and is tried again.
    Again,
    /// It has failed for good.
    Failed,
    /// Nobody waits for it.
    Unknown,
}

/// See above.
pub struct Pool {
    sites: Vec<Site>,
    /// Those that are to be run, next one first.
    queue: VecDeque<Number>,
    /// How often each has failed.
    failed: BTreeMap<Number, u32>,
    retries: u32,
    /// Tasks may wait at a node, so that the next one is there when a slot is free.
    hurries: bool,
    /// What a task takes, milliseconds, of late: rather too much than too little.
    takes_ms: u64,
    next: Number,
    /// Where the last one went.
    turn: usize,
}

impl Pool {
    /// How often a task that fails is tried again.
    pub fn new(retries: u32) -> Pool {
        let (sites, queue, failed) = Default::default();
        Pool { sites, queue, failed, retries, hurries: true, takes_ms: WAITS_MS, next: 0, turn: 0 }
    }

    /// No task waits at a node: it begins when it is sent.
    pub fn unhurried(self) -> Pool {
        Pool { hurries: false, ..self }
    }

    /// The task that is sent next.
    pub fn next(&self) -> Option<Number> {
        self.queue.front().copied()
    }

    /// Tasks may run at these places, in so many slots each.
    pub fn open(&mut self, sites: &[(u32, u32)]) {
        let sites = sites.iter().filter(|s| s.1 > 0);
        let site = |(place, slots): &(u32, u32)| Site {
            place: *place,
            slots: *slots,
            here: BTreeSet::new(),
            fills: true,
            stuck: false,
        };
        self.sites = sites.map(site).collect();
    }

    /// One more task; its number.
    pub fn add(&mut self) -> Number {
        self.next += 1;
        self.queue.push_back(self.next - 1);
        self.next - 1
    }

    /// Tasks that wait at a node for each that runs there: one, or more where they are short.
    fn ahead(&self, site: &Site) -> u32 {
        match self.hurries && !site.stuck {
            true => (WAITS_MS / self.takes_ms.max(1)).clamp(1, MOST_AHEAD.into()) as u32,
            false => 0,
        }
    }

    /// How many more it may have.
    fn room(&self, site: &Site) -> i64 {
        i64::from(site.slots) * i64::from(1 + self.ahead(site)) - site.here.len() as i64
    }

    /// The next task, and the place where it goes: the one with most room. Where many may wait it gets the next ones when half of them have gone.
    pub fn place_next(&mut self) -> Option<(u32, Number)> {
        for at in 0..self.sites.len() {
            let site = &self.sites[at];
            let (room, gone) = (self.room(site), i64::from(site.slots) * i64::from(self.ahead(site) / 2));
            self.sites[at].fills = room > 0 && (site.fills || room > gone);
        }
        let share = |at: &usize| self.room(&self.sites[*at]) * 1000 / i64::from(self.sites[*at].slots);
        // Of equals each has its turn.
        let count = self.sites.len();
        let order = (1..=count).map(|i| (self.turn + i) % count.max(1)).filter(|i| self.sites[*i].fills);
        let best = order.max_by_key(|i| (share(i), std::cmp::Reverse((*i + count - self.turn) % count)))?;
        let task = self.queue.pop_front()?;
        self.turn = best;
        self.sites[best].here.insert(task);
        Some((self.sites[best].place, task))
    }

    /// A task has ended, after so many milliseconds.
    pub fn ended(&mut self, place: u32, task: Number, well: bool, ran_ms: u64) -> Verdict {
        let Some(site) = self.sites.iter_mut().find(|s| s.place == place) else { return Verdict::Unknown };
        if !site.here.remove(&task) {
            return Verdict::Unknown;
        }
        site.stuck = false;
        // One that takes long counts at once, for others would wait behind the next one.
        self.takes_ms = match ran_ms > self.takes_ms {
            true => ran_ms,
            false => (self.takes_ms.saturating_mul(7).saturating_add(ran_ms)) / 8,
        };
        if well {
            self.failed.remove(&task);
            return Verdict::Done;
        }
        let count = self.failed.entry(task).or_default();
        *count += 1;
        if *count > self.retries {
            self.failed.remove(&task);
            return Verdict::Failed;
        }
        // Others have their turn before.
        self.queue.push_back(task);
        Verdict::Again
    }

    /// A place where tasks wait, while another one has a slot and nothing for it: it is to give them back. For who has seen nothing happen for a while.
    pub fn overdue(&self) -> Option<u32> {
        let waits = |site: &Site| site.here.len().saturating_sub(site.slots as usize);
        let idles = self.queue.is_empty() && self.sites.iter().any(|s| s.here.len() < s.slots as usize);
        self.sites.iter().filter(|s| idles && waits(s) > 0).max_by_key(|s| waits(s)).map(|s| s.place)
    }

    /// A place has given these back: they come first.
    pub fn returned(&mut self, place: u32, tasks: &[Number]) {
        let Some(site) = self.sites.iter_mut().find(|s| s.place == place) else { return };
        let mine: Vec<Number> = tasks.iter().copied().filter(|task| site.here.remove(task)).collect();
        site.stuck = true;
        mine.into_iter().rev().for_each(|task| self.queue.push_front(task));
    }

    /// A place is lost: what was there is run elsewhere, first of all. Those tasks.
    pub fn lost(&mut self, place: u32) -> Vec<Number> {
        let Some(at) = self.sites.iter().position(|s| s.place == place) else { return Vec::new() };
        let tasks: Vec<Number> = self.sites.remove(at).here.into_iter().collect();
        tasks.iter().rev().for_each(|task| self.queue.push_front(*task));
        self.turn = 0;
        tasks
    }

    /// Nothing that waits is begun any more. Those tasks.
    pub fn give_up(&mut self) -> Vec<Number> {
        self.queue.drain(..).collect()
    }

    /// Tasks that are at a node.
    pub fn running(&self) -> usize {
        self.sites.iter().map(|s| s.here.len()).sum()
    }

    /// Tasks that wait for one.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Nodes that are left.
    pub fn places(&self) -> usize {
        self.sites.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn tasks_go_where_there_is_most_room() {
        let mut pool = Pool::new(0);
        pool.open(&[(0, 0), (1, 1), (2, 3)]);
        (0..20).for_each(|_| _ = pool.add());
        let mut went = BTreeMap::new();
        while let Some((place, _)) = pool.place_next() {
            *went.entry(place).or_insert(0) += 1;
        }
        assert_eq!(went, BTreeMap::from([(1, 2), (2, 6)]), "each slot has one, and one ahead");
        assert_eq!(pool.ended(1, 9999, true, 1), Verdict::Unknown);
        let mut pool = Pool::new(0).unhurried();
        pool.open(&[(1, 1), (2, 3)]);
        (0..20).for_each(|_| _ = pool.add());
        assert_eq!((std::iter::from_fn(|| pool.place_next()).count(), pool.next()), (4, Some(4)));
    }

    #[test]
    fn short_ones_go_many_at_once_and_come_back_when_they_wait_for_a_long_one() {
        let mut pool = Pool::new(0);
        pool.open(&[(1, 2), (2, 2)]);
        (0..1000).for_each(|_| _ = pool.add());
        let give = |pool: &mut Pool| std::iter::from_fn(|| pool.place_next()).count();
        assert_eq!(give(&mut pool), 8, "as long as nobody knows what they take");
        let mut groups = Vec::new();
        for at in 0..200 {
            let site = &pool.sites[at % 2];
            let (place, task) = (site.place, *site.here.first().unwrap());
            pool.ended(place, task, true, 2);
            let count = give(&mut pool);
            groups.extend((at >= 100).then_some(count));
        }
        groups.retain(|count| *count > 0);
        let mean = groups.iter().sum::<usize>() as f64 / groups.len() as f64;
        assert!(mean >= 8.0, "{groups:?}");
        // Those at one place end, and then nothing does at the other one.
        pool.give_up();
        let left: Vec<Number> = pool.sites[0].here.iter().copied().collect();
        left.iter().for_each(|task| _ = pool.ended(1, *task, true, 2));
        assert_eq!(pool.overdue(), Some(2));
        let waits: Vec<Number> = pool.sites[1].here.iter().copied().skip(2).collect();
        pool.returned(2, &waits);
        assert_eq!(pool.waiting(), waits.len());
        assert!(std::iter::from_fn(|| pool.place_next()).all(|(place, _)| place == 1));
        assert_eq!((pool.overdue(), pool.sites[1].here.len()), (None, 2));
    }

    #[test]
    fn every_task_is_done_once_whoever_fails_and_is_lost() {
        check!().with_type::<(Vec<u8>, u8, u8, Vec<(u8, u8)>)>().for_each(|(slots, tasks, retries, what)| {
            let sites: Vec<(u32, u32)> = (0..).zip(slots.iter().take(8).map(|s| u32::from(s % 5))).collect();
            let mut pool = Pool::new(u32::from(retries % 4));
            pool.open(&sites);
            let (mut at, mut well, mut bad) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
            let mut tries: BTreeMap<Number, u32> = BTreeMap::new();
            (0..*tasks).for_each(|_| _ = pool.add());
            let mut what = what.iter().copied().chain(std::iter::repeat((3, 0)));
            while pool.places() > 0 && well.len() + bad.len() < usize::from(*tasks) {
                at.extend(std::iter::from_fn(|| pool.place_next()));
                let (kind, which) = what.next().unwrap();
                let (place, task) = at[usize::from(which) % at.len()];
                if kind == 0 {
                    pool.lost(place);
                    at.retain(|a| a.0 != place);
                    continue;
                }
                if kind % 16 == 1 {
                    pool.returned(place, &[task, task, u32::from(which)]);
                    at.retain(|a| *a != (place, task) && *a != (place, u32::from(which)));
                    continue;
                }
                at.retain(|a| *a != (place, task));
                *tries.entry(task).or_default() += 1;
                match pool.ended(place, task, kind % 3 != 2, u64::from(kind / 8)) {
                    Verdict::Done => assert!(well.insert(task)),
                    Verdict::Failed => {
                        assert!(bad.insert(task) && tries[&task] == u32::from(retries % 4) + 1);
                    }
                    Verdict::Again => {}
                    Verdict::Unknown => panic!("{task} at {place}"),
                }
            }
            assert!(well.is_disjoint(&bad));
            assert_eq!(pool.running() + pool.waiting() + well.len() + bad.len(), usize::from(*tasks));
        });
    }
}
