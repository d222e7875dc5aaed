//! The bytes of home's files that are here. No clock. What was used least recently goes first when there is no more room.
//!
//! Those of larger files are in a file in memory, at the same offsets: the guest's own kernel can read them there (native.rs).

use pando_kernel::sparse::{BLOCK, Place, Sparse};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// Files of less than this are kept in pieces only: a program may read very many of them.
pub(super) const LARGE: u64 = 256 << 10;
/// So are smaller pieces of others, unless they have company: each takes a block of memory there.
const PIECE: u64 = 128 << 10;
/// Files beyond this are, too: no address space for them.
const HUGE: u64 = 1 << 40;
/// Most files in memory: each has a descriptor.
const MOST: usize = 128;

/// All of it.
#[derive(Debug)]
pub(crate) struct Store {
    files: BTreeMap<u64, Kept>,
    /// When each chunk was last used: the file and its offset there.
    ages: BTreeMap<u64, (u64, u64)>,
    /// What must stay where it is, for whom: the file, from where to where.
    pins: BTreeMap<i32, (u64, u64, u64)>,
    clock: u64,
    bytes: u64,
    budget: u64,
    /// `LARGE` and `PIECE`, but for tests.
    large: u64,
    piece: u64,
    /// Where files in memory are made. None: not tried yet; or it can't be done here.
    place: Option<Option<Place>>,
}

/// What there is of a file.
#[derive(Debug, Default)]
struct Kept {
    chunks: BTreeMap<u64, Chunk>,
    /// With its name: each has another one.
    sparse: Option<(u64, Sparse)>,
    /// Memory that is taken: by pieces, and by the file in memory.
    pieces: u64,
    taken: u64,
}

#[derive(Debug)]
struct Chunk {
    len: u64,
    /// None: they are in the file in memory.
    bytes: Option<Vec<u8>>,
    age: u64,
}

impl Kept {
    fn memory(&self) -> u64 {
        self.pieces + self.taken
    }

    /// `piece`: so many bytes are worth a block.
    fn insert(&mut self, offset: u64, bytes: Vec<u8>, age: u64, piece: u64) {
        let (len, block) = (bytes.len() as u64, offset / BLOCK);
        let worth_it = len >= piece || self.has_company(block);
        let inside = (offset + len - 1) / BLOCK == block;
        let put = match &mut self.sparse {
            Some((_, sparse)) if worth_it && inside => sparse.put(offset, &bytes).is_ok(),
            _ => false,
        };
        self.pieces += if put { 0 } else { len };
        self.chunks.insert(offset, Chunk { len, bytes: (!put).then_some(bytes), age });
        if worth_it && inside && !put {
            self.make_hole(offset, len);
        }
        self.count();
    }

    fn remove(&mut self, offset: u64) {
        let Some(chunk) = self.chunks.remove(&offset) else { return };
        match chunk.bytes {
            Some(_) => self.pieces -= chunk.len,
            None => self.make_hole(offset, chunk.len),
        }
        self.count();
    }

    /// Has this block other bytes?
    fn has_company(&self, block: u64) -> bool {
        self.chunks.range(block * BLOCK..(block + 1) * BLOCK).any(|(_, chunk)| chunk.bytes.is_none())
    }

    /// Bytes go, and their block with the last of them.
    fn make_hole(&mut self, offset: u64, len: u64) {
        let block = offset / BLOCK;
        let (from, to) = match self.has_company(block) {
            true => (offset, offset + len),
            false => (block * BLOCK, (block + 1) * BLOCK),
        };
        self.sparse.iter_mut().for_each(|(_, sparse)| sparse.punch(from, to));
    }

    fn count(&mut self) {
        if let Some((_, sparse)) = &self.sparse {
            // It can't fail; if it did the last number would do.
            self.taken = sparse.taken().unwrap_or(self.taken);
        }
    }

    fn bytes(&self, offset: u64, from: u64, to: u64) -> &[u8] {
        match (&self.chunks[&offset].bytes, &self.sparse) {
            (Some(bytes), _) => &bytes[(from - offset) as usize..(to - offset) as usize],
            (None, Some((_, sparse))) => sparse.bytes(from, to),
            (None, None) => &[],
        }
    }
}

impl Store {
    pub fn new(budget: u64) -> Self {
        Store {
            files: BTreeMap::new(),
            ages: BTreeMap::new(),
            pins: BTreeMap::new(),
            clock: 0,
            bytes: 0,
            budget,
            large: LARGE,
            piece: PIECE,
            place: None,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From here to there it must stay as it is, until `who` says otherwise.
    pub fn pin(&mut self, who: i32, id: u64, from: u64, to: u64) {
        self.pins.insert(who, (id, from, to));
    }

    pub fn unpin(&mut self, who: i32) {
        self.pins.remove(&who);
    }

    /// How much there may be from now on.
    pub fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
        self.shrink();
    }

    /// File `new` has the content that `old` had.
    pub fn take_over(&mut self, old: u64, new: u64) {
        let Some(kept) = self.files.remove(&old) else { return };
        for (offset, chunk) in &kept.chunks {
            self.ages.insert(chunk.age, (new, *offset));
        }
        self.pins.values_mut().filter(|p| p.0 == old).for_each(|p| p.0 = new);
        self.files.insert(new, kept);
    }

    /// Puts in bytes of a file of this size. Those that lie over others are not needed.
    pub fn insert(&mut self, id: u64, size: u64, offset: u64, bytes: Vec<u8>) {
        let len = bytes.len() as u64;
        if bytes.is_empty() || self.missing(id, offset, offset + len) != [(offset, offset + len)] {
            return;
        }
        self.clock += 1;
        let age = self.clock;
        if !self.files.contains_key(&id) {
            let sparse = self.new_sparse(size).map(|sparse| (age, sparse));
            self.files.insert(id, Kept { sparse, ..Kept::default() });
        }
        let Some(kept) = self.files.get_mut(&id) else { return };
        let before = kept.memory();
        kept.insert(offset, bytes, age, self.piece);
        self.bytes = self.bytes - before + kept.memory();
        self.ages.insert(age, (id, offset));
        self.shrink();
    }

    fn new_sparse(&mut self, size: u64) -> Option<Sparse> {
        if !(self.large..=HUGE).contains(&size) || !self.has_room() {
            return None;
        }
        self.place.get_or_insert_with(|| Place::new().ok()).as_ref()?.file(size).ok()
    }

    /// Makes room for another file in memory: the one goes that was used least recently.
    fn has_room(&mut self) -> bool {
        let sparse = |kept: &&Kept| kept.sparse.is_some();
        if self.files.values().filter(sparse).count() < MOST {
            return true;
        }
        let pinned = |id: &u64| self.pins.values().any(|p| p.0 == *id);
        let used = |kept: &Kept| kept.chunks.values().map(|c| c.age).max();
        let all = self.files.iter().filter(|(id, kept)| sparse(kept) && !pinned(id));
        let Some(oldest) = all.min_by_key(|(_, kept)| used(kept)).map(|(id, _)| *id) else { return false };
        let Some(kept) = self.files.remove(&oldest) else { return false };
        self.bytes -= kept.memory();
        self.ages.retain(|_, place| place.0 != oldest);
        true
    }

    fn shrink(&mut self) {
        while self.bytes > self.budget {
            let free = |place: &(u64, u64)| !self.is_pinned(place.0, place.1);
            let Some((&age, &(id, offset))) = self.ages.iter().find(|(_, place)| free(place)) else { return };
            self.ages.remove(&age);
            let Some(kept) = self.files.get_mut(&id) else { continue };
            let before = kept.memory();
            kept.remove(offset);
            self.bytes = self.bytes - before + kept.memory();
            if kept.chunks.is_empty() {
                self.bytes -= kept.memory();
                self.files.remove(&id);
            }
        }
    }

    /// Is somebody reading a part of the chunk?
    fn is_pinned(&self, id: u64, offset: u64) -> bool {
        let len = self.files.get(&id).and_then(|kept| kept.chunks.get(&offset)).map_or(0, |c| c.len);
        self.pins.values().any(|p| p.0 == id && p.1 < offset + len && offset < p.2)
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
        let chunks = self.files.get(&id).map(|kept| &kept.chunks);
        let before = chunks.and_then(|c| c.range(..=from).next_back()).filter(|(o, c)| *o + c.len > from);
        let begin = before.map_or(from, |(offset, _)| *offset);
        let range = chunks.into_iter().flat_map(move |c| c.range(begin..to.max(begin)));
        range.map(|(offset, chunk)| (*offset, *offset + chunk.len))
    }

    /// The chunks that have a part in `[from, to)`, if all of it is here; they have been used now.
    fn used(&mut self, id: u64, from: u64, to: u64) -> Option<Vec<u64>> {
        if !self.missing(id, from, to).is_empty() {
            return None;
        }
        let used: Vec<u64> = self.overlapping(id, from, to).map(|c| c.0).collect();
        for offset in &used {
            let Some(chunk) = self.files.get_mut(&id).and_then(|kept| kept.chunks.get_mut(offset)) else { continue };
            self.clock += 1;
            self.ages.remove(&chunk.age);
            chunk.age = self.clock;
            self.ages.insert(self.clock, (id, *offset));
        }
        Some(used)
    }

    /// The bytes `[from, to)` in order, if all of them are here.
    pub fn read(&mut self, id: u64, from: u64, to: u64) -> Option<Vec<&[u8]>> {
        if from >= to {
            return Some(Vec::new());
        }
        let used = self.used(id, from, to)?;
        let kept = self.files.get(&id)?;
        let part = |offset: u64| kept.bytes(offset, from.max(offset), to.min(offset + kept.chunks[&offset].len));
        Some(used.into_iter().map(part).collect())
    }

    /// The name of the file in memory that has all the bytes `[from, to)`, if there is one.
    pub fn in_memory(&mut self, id: u64, from: u64, to: u64) -> Option<u64> {
        let name = self.files.get(&id)?.sparse.as_ref()?.0;
        let used = self.used(id, from, to)?;
        let kept = self.files.get(&id)?;
        used.iter().all(|offset| kept.chunks[offset].bytes.is_none()).then_some(name)
    }

    /// A reader of it.
    pub fn reader(&self, id: u64) -> io::Result<File> {
        let sparse = self.files.get(&id).and_then(|kept| kept.sparse.as_ref());
        sparse.map_or_else(|| Err(io::ErrorKind::NotFound.into()), |(_, sparse)| sparse.reader())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::{TypeGenerator, check};
    use std::os::unix::fs::FileExt;

    /// Blocks are large: so many bytes for one that the steps speak of.
    const SCALE: u64 = 10_000;

    fn content(id: u64, from: u64, to: u64) -> Vec<u8> {
        (from..to).map(|i| (i.wrapping_add(id * 77) >> 3) as u8).collect()
    }

    #[derive(Debug, TypeGenerator)]
    enum Step {
        Insert(u8, u8, u8),
        Read(u8, u8, u8),
        Budget(u16),
        TakeOver(u8),
        Pin(u8),
        Unpin,
    }

    /// Whatever comes in and goes: what is read is what the file has, there is never more than the budget, and what is missing is told.
    #[test]
    fn what_is_read_is_what_is_in_the_file() {
        check!().with_type::<Vec<Step>>().for_each(|steps| {
            // Files 1 and 2 are in memory, 0 is not.
            let mut store = Store { large: SCALE * 400, piece: SCALE * 20, ..Store::new(SCALE * 600) };
            let mut native: Option<(File, u64, u64, u64)> = None;
            // File 2 takes over what 1 has, again and again: the same content.
            for step in steps {
                match *step {
                    Step::Insert(id, at, len) => {
                        let (id, from) = (u64::from(id % 3), SCALE * u64::from(at));
                        store.insert(
                            id,
                            SCALE * (399 + 200 * id.min(1)),
                            from,
                            content(id.min(1), from, from + SCALE * u64::from(len)),
                        );
                    }
                    Step::Read(id, at, len) => {
                        let (id, from) = (u64::from(id % 3), SCALE * u64::from(at));
                        let to = from + SCALE * u64::from(len);
                        let missing = store.missing(id, from, to);
                        assert!(missing.windows(2).all(|w| w[0].1 < w[1].0), "{missing:?}");
                        assert!(missing.iter().all(|m| from <= m.0 && m.0 < m.1 && m.1 <= to), "{missing:?}");
                        match store.read(id, from, to) {
                            Some(parts) => {
                                assert!(parts.concat() == content(id.min(1), from, to), "{id}: {from}..{to}")
                            }
                            None => assert!(!missing.is_empty()),
                        }
                    }
                    Step::Budget(budget) => store.set_budget(SCALE * u64::from(budget % 1024)),
                    Step::TakeOver(_) if !store.files.contains_key(&2) => store.take_over(1, 2),
                    Step::TakeOver(_) => {}
                    Step::Pin(which) => {
                        let chunks = |(id, kept): (&u64, &Kept)| {
                            kept.chunks.iter().map(|(at, c)| (*id, *at, at + c.len)).collect::<Vec<_>>()
                        };
                        let all: Vec<(u64, u64, u64)> = store.files.iter().flat_map(chunks).collect();
                        let Some(&(id, from, to)) = all.get(usize::from(which) % all.len().max(1)) else { continue };
                        if store.in_memory(id, from, to).is_some() {
                            native = Some((store.reader(id).unwrap(), id.min(1), from, to));
                            store.pin(5, id, from, to);
                        }
                    }
                    Step::Unpin => {
                        native = None;
                        store.unpin(5);
                        store.shrink();
                    }
                }
                let all = || store.files.values().flat_map(|kept| kept.chunks.values());
                assert_eq!(store.bytes, store.files.values().map(Kept::memory).sum::<u64>());
                assert_eq!(store.ages.len(), all().count());
                assert!(store.bytes <= store.budget || native.is_some());
                // Whoever reads it natively has its bytes, however late.
                if let Some((file, id, from, to)) = &native {
                    let mut bytes = vec![0; (to - from) as usize];
                    file.read_exact_at(&mut bytes, *from).unwrap();
                    assert!(bytes == content(*id, *from, *to), "{id}: {from}..{to}");
                }
            }
        });
    }
}
