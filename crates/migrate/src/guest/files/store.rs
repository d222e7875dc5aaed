//! The bytes of home's files that are here. Pure: no clock, no I/O. What was used least recently goes first when there is no more room.

use std::collections::BTreeMap;

/// All of it.
#[derive(Debug)]
pub(crate) struct Store {
    files: BTreeMap<u64, BTreeMap<u64, Chunk>>,
    /// When each chunk was last used: the file and its offset there.
    ages: BTreeMap<u64, (u64, u64)>,
    clock: u64,
    bytes: u64,
    budget: u64,
}

#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    age: u64,
}

impl Chunk {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl Store {
    pub fn new(budget: u64) -> Self {
        Store { files: BTreeMap::new(), ages: BTreeMap::new(), clock: 0, bytes: 0, budget }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How much there may be from now on.
    pub fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
        self.shrink();
    }

    /// File `new` has the content that `old` had.
    pub fn take_over(&mut self, old: u64, new: u64) {
        let Some(chunks) = self.files.remove(&old) else { return };
        for (offset, chunk) in &chunks {
            self.ages.insert(chunk.age, (new, *offset));
        }
        self.files.insert(new, chunks);
    }

    /// Puts bytes in. Those that lie over others are not needed.
    pub fn insert(&mut self, id: u64, offset: u64, bytes: Vec<u8>) {
        let end = offset + bytes.len() as u64;
        if bytes.is_empty() || self.missing(id, offset, end) != [(offset, end)] {
            return;
        }
        self.clock += 1;
        self.bytes += bytes.len() as u64;
        self.ages.insert(self.clock, (id, offset));
        self.files.entry(id).or_default().insert(offset, Chunk { bytes, age: self.clock });
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes > self.budget {
            let Some((_, (id, offset))) = self.ages.pop_first() else { return };
            let Some(chunks) = self.files.get_mut(&id) else { continue };
            if let Some(chunk) = chunks.remove(&offset) {
                self.bytes -= chunk.len();
            }
            if chunks.is_empty() {
                self.files.remove(&id);
            }
        }
    }

    /// The stretches of `[from, to)` that are not here.
    pub fn missing(&self, id: u64, from: u64, to: u64) -> Vec<(u64, u64)> {
        let (mut out, mut at) = (Vec::new(), from);
        for (start, end) in self.overlapping(id, from, to) {
            if at < start {
                out.push((at, start));
            }
            at = at.max(end);
        }
        if at < to {
            out.push((at, to));
        }
        out
    }

    /// Chunks that have a part in `[from, to)`, as ranges.
    fn overlapping(&self, id: u64, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let chunks = self.files.get(&id);
        let before = chunks.and_then(|c| c.range(..=from).next_back()).filter(|(o, c)| *o + c.len() > from);
        let begin = before.map_or(from, |(offset, _)| *offset);
        let range = chunks.into_iter().flat_map(move |c| c.range(begin..to.max(begin)));
        range.map(|(offset, chunk)| (*offset, *offset + chunk.len()))
    }

    /// The bytes `[from, to)` in order, if all of them are here.
    pub fn read(&mut self, id: u64, from: u64, to: u64) -> Option<Vec<&[u8]>> {
        if from >= to || !self.missing(id, from, to).is_empty() {
            return (from >= to).then(Vec::new);
        }
        let used: Vec<u64> = self.overlapping(id, from, to).map(|c| c.0).collect();
        let chunks = self.files.get_mut(&id)?;
        for offset in &used {
            let Some(chunk) = chunks.get_mut(offset) else { continue };
            self.clock += 1;
            self.ages.remove(&chunk.age);
            chunk.age = self.clock;
            self.ages.insert(self.clock, (id, *offset));
        }
        let chunks = &*chunks;
        let part = |offset: u64| {
            let chunk = &chunks[&offset].bytes;
            let (begin, end) = (from.saturating_sub(offset), (to - offset).min(chunk.len() as u64));
            &chunk[begin as usize..end as usize]
        };
        Some(used.into_iter().map(part).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::{TypeGenerator, check};

    fn content(id: u64, from: u64, to: u64) -> Vec<u8> {
        (from..to).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(id * 77) >> 3) as u8).collect()
    }

    #[derive(Debug, TypeGenerator)]
    enum Step {
        Insert(u8, u8, u8),
        Read(u8, u8, u8),
        Budget(u16),
        TakeOver(u8),
    }

    /// Whatever comes in and goes: what is read is what the file has, there is never more than the budget, and what is missing is told.
    #[test]
    fn what_is_read_is_what_is_in_the_file() {
        check!().with_type::<Vec<Step>>().for_each(|steps| {
            let mut store = Store::new(600);
            // File 2 takes over what 1 has, again and again: the same content.
            for step in steps {
                match *step {
                    Step::Insert(id, at, len) => {
                        let (id, from) = (u64::from(id % 3), u64::from(at));
                        store.insert(id, from, content(id.min(1), from, from + u64::from(len)));
                    }
                    Step::Read(id, at, len) => {
                        let (id, from) = (u64::from(id % 3), u64::from(at));
                        let to = from + u64::from(len);
                        let missing = store.missing(id, from, to);
                        assert!(missing.windows(2).all(|w| w[0].1 < w[1].0), "{missing:?}");
                        assert!(missing.iter().all(|m| from <= m.0 && m.0 < m.1 && m.1 <= to), "{missing:?}");
                        match store.read(id, from, to) {
                            Some(parts) => assert_eq!(parts.concat(), content(id.min(1), from, to)),
                            None => assert!(!missing.is_empty()),
                        }
                    }
                    Step::Budget(budget) => store.set_budget(u64::from(budget)),
                    Step::TakeOver(_) if !store.files.contains_key(&2) => store.take_over(1, 2),
                    Step::TakeOver(_) => {}
                }
                let all = || store.files.values().flat_map(|c| c.values());
                assert_eq!(store.bytes, all().map(Chunk::len).sum::<u64>());
                assert_eq!(store.ages.len(), all().count());
                assert!(store.bytes <= store.budget);
            }
        });
    }
}
