//! Where batch jobs really compute and what that takes of each node, beside the queue's books: so many CPUs as there are, and nobody computes twice.

use pando_queue::{Id, Share};
use std::collections::BTreeMap;

type Key = (Id, u32);

/// One that runs.
struct Real {
    /// CPUs of each node; of both while it is on its way.
    has: Vec<(String, u32)>,
    still: bool,
    left_ms: u64,
    since: u64,
    /// How often it was made to stand still: ends that were expected before do not come.
    times: u32,
}

/// All of them.
#[derive(Default)]
pub struct Places {
    /// Those that there are, of each node.
    pub cpus: BTreeMap<String, u32>,
    used: BTreeMap<String, u32>,
    all: BTreeMap<Key, Real>,
    /// Moves that were made, and that were not.
    pub moves: (u64, u64),
    /// How often one stood still.
    pub stills: u64,
}

impl Places {
    /// Nobody yet, on nodes with so many CPUs.
    pub fn new(cpus: BTreeMap<String, u32>) -> Places {
        Places { cpus, ..Places::default() }
    }

    fn take(&mut self, (node, cpus): &(String, u32)) -> Result<(), String> {
        let used = self.used.entry(node.clone()).or_default();
        *used += cpus;
        match *used > self.cpus[node] {
            true => Err(format!("{used} CPUs of {node} are promised")),
            false => Ok(()),
        }
    }

    fn give(&mut self, (node, cpus): &(String, u32)) {
        *self.used.entry(node.clone()).or_default() -= cpus;
    }

    /// It begins, and computes for so long.
    pub fn starts(&mut self, key: Key, shares: &[Share], now: u64, left_ms: u64) -> Result<(), String> {
        let has: Vec<(String, u32)> = shares.iter().map(|share| (share.node.clone(), share.cpus)).collect();
        has.iter().try_for_each(|has| self.take(has))?;
        let real = Real { has, still: false, left_ms, since: now, times: 0 };
        match self.all.insert(key, real) {
            Some(_) => Err(format!("job {} runs twice", key.0)),
            None => Ok(()),
        }
    }

    fn real(&mut self, key: Key) -> Result<&mut Real, String> {
        self.all.get_mut(&key).ok_or_else(|| format!("job {} does not run", key.0))
    }

    /// Its CPUs are others'.
    pub fn stands_still(&mut self, key: Key, now: u64) -> Result<(), String> {
        self.stills += 1;
        let real = self.real(key)?;
        real.left_ms = real.left_ms.saturating_sub(now - real.since);
        (real.still, real.times) = (true, real.times + 1);
        let has = real.has.clone();
        has.iter().for_each(|has| self.give(has));
        Ok(())
    }

    /// It goes on: for how long, and the number of this stretch.
    pub fn goes_on(&mut self, key: Key, now: u64) -> Result<(u64, u32), String> {
        let real = self.real(key)?;
        (real.still, real.since) = (false, now);
        let (has, left) = (real.has.clone(), (real.left_ms, real.times));
        has.iter().try_for_each(|has| self.take(has))?;
        Ok(left)
    }

    /// Is its end due that was expected in that stretch?
    pub fn ends_now(&self, key: Key, times: u32) -> bool {
        self.all.get(&key).is_some_and(|real| !real.still && real.times == times)
    }

    /// It is to be moved there.
    pub fn moves(&mut self, key: Key, to: &str) -> Result<(), String> {
        let real = self.real(key)?;
        if real.still || real.has.len() != 1 {
            return Err(format!("job {} is moved though it stands still, or is on its way", key.0));
        }
        let has = (to.to_owned(), real.has[0].1);
        real.has.push(has.clone());
        self.take(&has)
    }

    /// It is there, or stays. Nothing comes of it where it has ended meanwhile.
    pub fn arrives(&mut self, key: Key, went: bool) {
        let Some(real) = self.all.get_mut(&key) else { return };
        let left = if went { real.has.remove(0) } else { real.has.remove(1) };
        match went {
            true => self.moves.0 += 1,
            false => self.moves.1 += 1,
        }
        self.give(&left);
    }

    /// Nothing is left of it.
    pub fn ends(&mut self, key: Key) {
        let Some(real) = self.all.remove(&key) else { return };
        if !real.still {
            real.has.iter().for_each(|has| self.give(has));
        }
    }
}
