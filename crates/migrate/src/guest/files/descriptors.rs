//! The program's descriptors whose reads may be answered here: which file each is, and who knows where it stands. Pure.
//!
//! A position is in one place at a time: at home, or here while reads are answered here. It goes home before anyone there could look.

use super::ahead::Ahead;
use super::effect::Effect;
use std::collections::BTreeMap;

/// Reads by offset that are forwarded before the file is asked for.
const READS_BEFORE: u32 = 4;
/// After a refusal it is asked again after so long, then after twice that ...
const FIRST_PATIENCE: u64 = 20_000_000;
/// ... up to this.
const LAST_PATIENCE: u64 = 8_000_000_000;
/// Most descriptors that are followed.
const MOST: usize = 4096;

/// Who knows where a descriptor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Home.
    Home,
    /// We do. `told`: home has heard.
    Here { at: u64, told: bool },
    /// Others may move it: it stays at home for good.
    Shared,
}

/// One descriptor.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub place: Place,
    pub file: Option<u64>,
    pub ahead: Ahead,
    /// The question on its way. If it is in doubt, the position in the answer is of no use.
    asked: Option<u64>,
    doubt: bool,
    /// Calls at home that may be moving it.
    busy: u32,
    /// Full reads that were forwarded.
    reads: u32,
    patience: u64,
    not_before: u64,
    /// No other one has this number, even if it has the same descriptor's.
    birth: u64,
}

/// A call at home that uses descriptors: these, born then.
type Uses = Vec<(i32, u64)>;
/// Among them: it uses all there are.
const ALL: i32 = i32::MIN;

/// What is to be done about a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Home makes it.
    Forward,
    /// An answer is on its way.
    Wait,
    /// Ask this first, and wait.
    Ask(u64),
    /// Answer it here, from this file at this offset.
    Serve(u64, u64),
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    all: BTreeMap<i32, Descriptor>,
    /// By the numbers of their calls.
    uses: BTreeMap<u64, Uses>,
    births: u64,
    questions: u64,
}

impl Descriptors {
    fn insert(&mut self, fd: i32, place: Place) {
        self.all.remove(&fd);
        if self.all.len() >= MOST || fd < 0 {
            return;
        }
        self.births += 1;
        let new = Descriptor {
            place,
            file: None,
            ahead: Ahead::default(),
            asked: None,
            doubt: false,
            busy: 0,
            reads: 0,
            patience: FIRST_PATIENCE,
            not_before: 0,
            birth: self.births,
        };
        self.all.insert(fd, new);
    }

    /// The program has opened `fd` for reading, here: nobody else has it.
    pub fn opened(&mut self, fd: i32) {
        // A call that names this number may have begun before or after.
        let named = self.uses.values().flatten().any(|u| u.0 == fd || u.0 == ALL);
        self.insert(fd, if named { Place::Shared } else { Place::Home });
    }

    pub fn get(&self, fd: i32) -> Option<&Descriptor> {
        self.all.get(&fd)
    }

    pub fn get_mut(&mut self, fd: i32) -> Option<&mut Descriptor> {
        self.all.get_mut(&fd)
    }

    /// Is some descriptor of this file left?
    pub fn has_file(&self, id: u64) -> bool {
        self.all.values().any(|d| d.file == Some(id))
    }

    /// What becomes of a read of `fd`, at `offset` or where it stands. Of a descriptor that we have not seen before we know nothing: what is
    /// read by offset does not need more.
    pub fn read(&mut self, fd: i32, offset: Option<u64>, now: u64) -> Choice {
        if offset.is_some() && !self.all.contains_key(&fd) {
            self.insert(fd, Place::Shared);
        }
        let Some(d) = self.all.get_mut(&fd) else { return Choice::Forward };
        let at = match (offset, d.place) {
            (Some(offset), _) => Some(offset),
            (None, Place::Here { at, .. }) => Some(at),
            (None, Place::Shared) => return Choice::Forward,
            (None, Place::Home) => None,
        };
        if let (Some(id), Some(at)) = (d.file, at) {
            return Choice::Serve(id, at);
        }
        if d.asked.is_some() {
            return Choice::Wait;
        }
        let known = d.file.is_some();
        let enough = if offset.is_some() { READS_BEFORE } else { 1 };
        if d.busy > 0 || now < d.not_before || !known && d.reads < enough {
            return Choice::Forward;
        }
        self.questions += 1;
        (d.asked, d.doubt) = (Some(self.questions), false);
        Choice::Ask(self.questions)
    }

    /// Home has answered a question. False: to a question that nobody asks any more.
    pub fn granted(&mut self, ask: u64, id: u64, position: u64) -> bool {
        let Some(d) = self.all.values_mut().find(|d| d.asked == Some(ask)) else { return false };
        (d.asked, d.file, d.patience) = (None, Some(id), FIRST_PATIENCE);
        if d.place == Place::Home && !d.doubt {
            d.place = Place::Here { at: position, told: true };
        }
        true
    }

    pub fn refused(&mut self, ask: u64, now: u64) {
        let Some(d) = self.all.values_mut().find(|d| d.asked == Some(ask)) else { return };
        d.asked = None;
        d.not_before = now.saturating_add(d.patience);
        d.patience = (d.patience * 2).min(LAST_PATIENCE);
    }

    /// The file is not ours any more: it is asked for again after a while.
    pub fn forget(&mut self, id: u64, now: u64) {
        for d in self.all.values_mut().filter(|d| d.file == Some(id)) {
            d.file = None;
            d.not_before = now.saturating_add(d.patience);
            d.patience = (d.patience * 2).min(LAST_PATIENCE);
            d.bring_home();
        }
    }

    /// The same without fault of the file's.
    pub fn let_go(&mut self, id: u64) {
        for d in self.all.values_mut().filter(|d| d.file == Some(id)) {
            d.file = None;
            d.bring_home();
        }
    }

    /// Positions that home has not heard of. It will have.
    pub fn untold(&mut self) -> Vec<(i32, u64)> {
        let tell = |(fd, d): (&i32, &mut Descriptor)| match &mut d.place {
            Place::Here { at, told: told @ false } => {
                *told = true;
                Some((*fd, *at))
            }
            _ => None,
        };
        self.all.iter_mut().filter_map(tell).collect()
    }

    /// Call `seq` goes home. All positions have been told. Gives the files that no descriptor needs any more.
    pub fn call_goes(&mut self, seq: u64, effect: &Effect) -> Vec<u64> {
        match effect {
            Effect::None | Effect::LetGo => {}
            Effect::Uses(fds) => {
                let uses = fds.iter().map(|fd| (*fd, self.all.get_mut(fd).map_or(0, Descriptor::used))).collect();
                self.uses.insert(seq, uses);
            }
            Effect::Shares(fd, other) => {
                self.uses.insert(seq, vec![(*fd, 0)]);
                self.all.get_mut(fd).into_iter().for_each(|d| d.place = Place::Shared);
                return other.map_or_else(Vec::new, |fd| self.end(fd..=fd));
            }
            Effect::SharesAll => {
                self.uses.insert(seq, vec![(ALL, 0)]);
                self.all.values_mut().for_each(|d| d.place = Place::Shared);
            }
            Effect::Ends(fds) => return self.end(fds.clone()),
        }
        Vec::new()
    }

    fn end(&mut self, fds: std::ops::RangeInclusive<i32>) -> Vec<u64> {
        if fds.is_empty() {
            return Vec::new();
        }
        let gone: Vec<i32> = self.all.range(fds).map(|(fd, _)| *fd).collect();
        let mut files: Vec<u64> =
            gone.into_iter().filter_map(|fd| self.all.remove(&fd)).filter_map(|d| d.file).collect();
        files.sort_unstable();
        files.dedup();
        files.retain(|&id| !self.has_file(id));
        files
    }

    /// Call `seq` has been answered. `full`: it was a read that got all it asked for.
    pub fn call_returns(&mut self, seq: u64, effect: &Effect, full: bool) -> Vec<u64> {
        for (fd, birth) in self.uses.remove(&seq).unwrap_or_default() {
            let Some(d) = self.all.get_mut(&fd).filter(|d| d.birth == birth) else { continue };
            d.busy -= 1;
            d.reads = if full { d.reads.saturating_add(1) } else { 0 };
        }
        match effect {
            // A number that another thread got meanwhile, from an open that came first.
            Effect::Ends(fds) => self.end(fds.clone()),
            Effect::Shares(_, Some(fd)) => self.end(*fd..=*fd),
            _ => Vec::new(),
        }
    }

    /// A read by offset was forwarded and got all it asked for.
    pub fn read_elsewhere(&mut self, fd: i32) {
        self.all.get_mut(&fd).into_iter().for_each(|d| d.reads = d.reads.saturating_add(1));
    }
}

impl Descriptor {
    /// A call at home uses it from now on. When it was born.
    fn used(&mut self) -> u64 {
        (self.busy, self.doubt) = (self.busy + 1, true);
        self.bring_home();
        self.birth
    }

    fn bring_home(&mut self) {
        if let Place::Here { told, .. } = self.place {
            debug_assert!(told, "home must hear first");
            self.place = Place::Home;
        }
    }

    /// It stands there now, which home has yet to hear.
    pub fn moved(&mut self, to: u64) {
        if let Place::Here { at, told } = &mut self.place {
            (*told, *at) = (*told && *at == to, to);
        }
    }
}

#[cfg(test)]
#[path = "descriptors_tests.rs"]
mod tests;
