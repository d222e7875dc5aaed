//! Many short tasks over the slots of a cluster: which task goes where next, and what becomes of one that failed or whose node was lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One task: the words of its command are somebody else's.
pub type Number = u32;

struct Site {
    place: u32,
    slots: u32,
    here: BTreeSet<Number>,
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
    /// Tasks that wait at a node for each that runs there: the next one is there when a slot is free.
    ahead: u32,
    next: Number,
    /// Where the last one went.
    turn: usize,
}

impl Pool {
    /// How often a task that fails is tried again.
    pub fn new(retries: u32) -> Pool {
        Pool { sites: Vec::new(), queue: VecDeque::new(), failed: BTreeMap::new(), retries, ahead: 1, next: 0, turn: 0 }
    }

    /// No task waits at a node: it begins when it is sent.
    pub fn unhurried(self) -> Pool {
        Pool { ahead: 0, ..self }
    }

    /// The task that is sent next.
    pub fn next(&self) -> Option<Number> {
        self.queue.front().copied()
    }

    /// Tasks may run at these places, in so many slots each.
    pub fn open(&mut self, sites: &[(u32, u32)]) {
        let sites = sites.iter().filter(|s| s.1 > 0);
        self.sites = sites.map(|(place, slots)| Site { place: *place, slots: *slots, here: BTreeSet::new() }).collect();
    }

    /// One more task; its number.
    pub fn add(&mut self) -> Number {
        self.next += 1;
        self.queue.push_back(self.next - 1);
        self.next - 1
    }

    /// The next task, and the place where it goes: the one with most room.
    pub fn place_next(&mut self) -> Option<(u32, Number)> {
        let room = |s: &Site| i64::from(s.slots) * i64::from(1 + self.ahead) - s.here.len() as i64;
        // Of equals each has its turn.
        let count = self.sites.len();
        let order = (1..=count).map(|i| (self.turn + i) % count.max(1));
        let best = order.max_by_key(|i| {
            (
                room(&self.sites[*i]) * 1000 / i64::from(self.sites[*i].slots),
                std::cmp::Reverse((*i + count - self.turn) % count),
            )
        })?;
        if room(&self.sites[best]) <= 0 {
            return None;
        }
        let task = self.queue.pop_front()?;
        self.turn = best;
        self.sites[best].here.insert(task);
        Some((self.sites[best].place, task))
    }

    /// A task has ended.
    pub fn ended(&mut self, place: u32, task: Number, well: bool) -> Verdict {
        let site = self.sites.iter_mut().find(|s| s.place == place);
        if !site.is_some_and(|s| s.here.remove(&task)) {
            return Verdict::Unknown;
        }
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
        assert_eq!(pool.ended(1, 9999, true), Verdict::Unknown);
        let mut pool = Pool::new(0).unhurried();
        pool.open(&[(1, 1), (2, 3)]);
        (0..20).for_each(|_| _ = pool.add());
        assert_eq!((std::iter::from_fn(|| pool.place_next()).count(), pool.next()), (4, Some(4)));
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
            let mut what = what.iter().copied().chain(std::iter::repeat((1, 0)));
            while pool.places() > 0 && well.len() + bad.len() < usize::from(*tasks) {
                at.extend(std::iter::from_fn(|| pool.place_next()));
                let (kind, which) = what.next().unwrap();
                let (place, task) = at[usize::from(which) % at.len()];
                if kind == 0 {
                    pool.lost(place);
                    at.retain(|a| a.0 != place);
                    continue;
                }
                at.retain(|a| *a != (place, task));
                *tries.entry(task).or_default() += 1;
                match pool.ended(place, task, kind % 3 != 2) {
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
