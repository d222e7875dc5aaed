//! Files at home that are read here: their bytes, and home's word that they are so (docs/engine.md, Files).

mod ahead;
mod budget;
mod description;
mod descriptors;
mod direct;
mod effect;
mod grant;
mod native;
mod reads;
mod store;

use super::{Guest, GuestError, Held, Result, Stage, at};
use crate::message::{File, MAX_FETCH, MAX_FILES, MAX_NUMBERS, Up};
use descriptors::Descriptors;
pub(super) use direct::Direct;
use effect::Effect;
use grant::Grant;
pub(super) use native::MOST_NUMBERS;
use native::Native;
use pando_kernel::clock;
use std::collections::{BTreeMap, VecDeque};
use store::Store;

/// A file that has not been read for so long is let go (its bytes stay): who writes to it does not wait then, nanoseconds.
const IDLE: u64 = 2_000_000_000;
/// Most bytes in one frame of a file.
const MOST: usize = crate::message::CHUNK;

/// A file that is granted, or on its way back.
#[derive(Debug)]
struct Granted {
    size: u64,
    /// What has been asked for and not come: from where to where, and when it was asked.
    fetches: VecDeque<(u64, u64, u64)>,
    /// When a read last needed it.
    used: u64,
    /// We have let it go; home will say `Forget`.
    released: bool,
}

/// All about files.
#[derive(Debug)]
pub(crate) struct Files {
    store: Store,
    grant: Grant,
    descriptors: Descriptors,
    granted: BTreeMap<u64, Granted>,
    native: Native,
    /// Those that are on a file system of this node.
    pub direct: Direct,
    /// Questions on their way: when they were sent.
    asks: BTreeMap<u64, u64>,
    /// Calls at home, by number: what they do to descriptors.
    calls: BTreeMap<u64, Effect>,
    /// Bytes that reads got here.
    pub served: u64,
    told: u64,
    /// Something has come that a read may wait for.
    pub news: bool,
}

impl Default for Files {
    fn default() -> Self {
        Files {
            store: Store::new(budget::budget(0)),
            grant: Grant::default(),
            descriptors: Descriptors::default(),
            granted: BTreeMap::new(),
            native: Native::default(),
            direct: Direct::default(),
            asks: BTreeMap::new(),
            calls: BTreeMap::new(),
            served: 0,
            told: 0,
            news: false,
        }
    }
}

fn wrong(what: String) -> GuestError {
    GuestError::Protocol(what)
}

impl Files {
    /// For a process of this user, at a node that has these file systems.
    pub fn new(shared: &[(String, String)], uid: u32) -> Files {
        Files { direct: Direct::new(shared, uid, pando_kernel::beneath::may_be_others()), ..Files::default() }
    }

    /// Is a call at home that does not bear that anyone has a hold on a file?
    fn lets_go(&self) -> bool {
        self.calls.values().any(|effect| *effect == Effect::LetGo)
    }

    /// May this file be answered from?
    fn is_live(&self, id: u64) -> bool {
        self.granted.get(&id).is_some_and(|g| !g.released)
    }
}

impl Guest {
    /// Home has granted a file.
    pub(super) fn on_granted(&mut self, ask: u64, file: &File) -> Result<()> {
        let File { id, size, position, same_as, ref numbers } = *file;
        let files = &mut self.files;
        if numbers.len() > MAX_NUMBERS {
            return Err(wrong(format!("file {id} with {} descriptors", numbers.len())));
        }
        let Some(sent) = files.asks.remove(&ask) else { return Err(wrong(format!("an answer to question {ask}"))) };
        match files.granted.get(&id) {
            Some(known) if known.size == size => {}
            None if files.granted.len() < MAX_FILES && i64::try_from(size).is_ok() => {
                let granted = Granted { size, fetches: VecDeque::new(), used: sent, released: false };
                files.granted.insert(id, granted);
                same_as.into_iter().filter(|old| *old != id).for_each(|old| files.store.take_over(old, id));
            }
            _ => return Err(wrong(format!("file {id} of {size} bytes"))),
        }
        files.grant.confirm(sent);
        let wanted = files.descriptors.granted(ask, id, position, numbers, clock::boottime_ns());
        if !wanted && !files.descriptors.has_file(id) {
            self.release(id)?;
        } else if !self.files.is_live(id) {
            // It has been let go meanwhile.
            self.files.descriptors.let_go(id);
        }
        self.answers_are_here()?;
        self.retry_reads()
    }

    /// Home refuses one.
    pub(super) fn on_refused(&mut self, ask: u64) -> Result<()> {
        if self.files.asks.remove(&ask).is_none() {
            return Err(wrong(format!("an answer to question {ask}")));
        }
        self.files.descriptors.refused(ask, clock::boottime_ns());
        self.answers_are_here()?;
        self.retry_reads()
    }

    /// Bytes have come. Who waits for them is looked at later.
    ///
    /// They are home's word only in their turn: a `Forget` that came before them may still wait.
    pub(super) fn keep_file_data(&mut self, id: u64, offset: u64, bytes: Vec<u8>) -> Result<()> {
        let files = &mut self.files;
        let size = files.granted.get(&id).map_or(0, |g| g.size);
        let next = files.granted.get_mut(&id).and_then(|g| g.fetches.front_mut());
        let asked = next.as_ref().is_some_and(|n| n.0 == offset && offset + bytes.len() as u64 <= n.1);
        let Some(next) = next.filter(|_| asked && !bytes.is_empty() && bytes.len() <= MOST) else {
            return Err(wrong(format!("{} bytes of file {id} at {offset}, which nobody asked for", bytes.len())));
        };
        next.0 += bytes.len() as u64;
        let (at, end, sent) = *next;
        if self.stash.is_empty() {
            files.grant.confirm(sent);
        }
        if at == end {
            files.granted.get_mut(&id).and_then(|g| g.fetches.pop_front());
        }
        files.store.insert(id, size, offset, bytes);
        files.news = true;
        Ok(())
    }

    /// Nothing more may be answered from this file, or home has let it go as we wanted.
    pub(super) fn on_forget(&mut self, id: u64) -> Result<()> {
        let Some(granted) = self.files.granted.remove(&id) else {
            return Err(wrong(format!("file {id}, which it has not granted, is to be forgotten")));
        };
        if granted.released {
            return self.retry_reads();
        }
        self.tell_positions()?;
        self.files.descriptors.forget(id, clock::boottime_ns());
        self.send(&Up::Release(id), &[])?;
        self.retry_reads()
    }

    /// Home's word has been confirmed.
    pub(super) fn on_renewed(&mut self, number: u64) -> Result<()> {
        if !self.files.grant.answered(number, clock::boottime_ns()) {
            return Err(wrong(format!("an answer to renewal {number}")));
        }
        self.retry_reads()
    }

    /// No descriptor needs this file any more.
    fn release(&mut self, id: u64) -> Result<()> {
        self.files.direct.remove(id);
        let Some(granted) = self.files.granted.get_mut(&id).filter(|g| !g.released) else { return Ok(()) };
        granted.released = true;
        self.files.descriptors.let_go(id);
        self.send(&Up::Release(id), &[])
    }

    /// Where descriptors stand, for home.
    fn tell_positions(&mut self) -> Result<()> {
        for (fd, at) in self.files.descriptors.untold() {
            self.send(&Up::Position(fd, at), &[])?;
        }
        Ok(())
    }

    /// The call is about to go home: what it may see there is put right, and what it may change is not counted on.
    pub(super) fn files_before(&mut self, seq: u64, nr: u64, args: &[u64; 6]) -> Result<()> {
        self.tell_positions()?;
        let effect = effect::effect(nr, args, self.may_carry(nr, args));
        if effect == Effect::LetGo || nr == libc::SYS_truncate as u64 {
            // What it changes itself may come late to a file system that is shared.
            self.drop_direct(|_| true)?;
        }
        if effect == Effect::LetGo {
            for id in self.files.granted.keys().copied().collect::<Vec<u64>>() {
                self.release(id)?;
            }
        }
        for id in self.files.descriptors.call_goes(seq, &effect, clock::boottime_ns()) {
            self.release(id)?;
        }
        if effect != Effect::None {
            self.files.calls.insert(seq, effect);
        }
        Ok(())
    }

    /// A call that was on its way before this side came to be.
    pub(super) fn files_find(&mut self, seq: u64, nr: u64, args: &[u64; 6]) {
        let effect = effect::effect(nr, args, true);
        // Nothing is known yet that it could end.
        self.files.descriptors.call_goes(seq, &effect, clock::boottime_ns());
        self.files.calls.insert(seq, effect);
    }

    /// Must the call wait until it is known what else is granted, which it does not bear?
    pub(super) fn waits_for_files(&self, held: &Held) -> bool {
        !self.files.asks.is_empty() && effect::effect(held.nr, &held.args, true) == Effect::LetGo
    }

    /// Calls go on that waited for that.
    fn answers_are_here(&mut self) -> Result<()> {
        if !self.files.asks.is_empty() {
            return Ok(());
        }
        for tid in self.threads.which(|t| t.call.is_some_and(|c| c.stage == Stage::PutOff)) {
            let waits = |held: &Held| effect::effect(held.nr, &held.args, true) == Effect::LetGo;
            if let Some(held) = self.threads[tid].call.filter(waits) {
                self.dispatch(tid, held)?;
            }
        }
        Ok(())
    }

    /// Can messages carry descriptors? Only with control data.
    fn may_carry(&self, nr: u64, args: &[u64; 6]) -> bool {
        const CONTROL_LENGTH: u64 = 40;
        nr != libc::SYS_sendmsg as u64 || self.memory.word(args[1].wrapping_add(CONTROL_LENGTH)) != Some(0)
    }

    /// It has been answered. None: it was broken off.
    pub(super) fn files_after(&mut self, seq: u64, held: &Held, ret: Option<i64>) -> Result<()> {
        let full = reads::is_full(held, ret.unwrap_or(0));
        let effect = self.files.calls.remove(&seq).unwrap_or(Effect::None);
        let new = ret.and_then(|fd| i32::try_from(fd).ok()).filter(|fd| *fd >= 0 && effect.makes_one());
        self.tell_positions()?;
        for id in self.files.descriptors.call_returns(seq, &effect, new, full, clock::boottime_ns()) {
            self.release(id)?;
        }
        if let Some(fd) = reads::by_offset(held).filter(|_| full) {
            self.files.descriptors.read_elsewhere(fd);
        }
        Ok(())
    }

    /// The program stops here: home knows again where all descriptors stand, and nothing more is answered here.
    pub(super) fn files_end(&mut self) -> Result<()> {
        self.tell_positions()?;
        self.files.descriptors = Descriptors::default();
        Ok(())
    }

    /// Once a second: how much may be kept, and how much was of use.
    pub(super) fn count_files(&mut self) -> Result<()> {
        let now = clock::boottime_ns();
        let idle = |g: &Granted| !g.released && g.fetches.is_empty() && now.saturating_sub(g.used) > IDLE;
        let idle: Vec<u64> = self.files.granted.iter().filter(|(_, g)| idle(g)).map(|(id, _)| *id).collect();
        self.tell_positions()?;
        idle.into_iter().try_for_each(|id| self.release(id))?;
        let files = &mut self.files;
        files.native.keep(|description| files.descriptors.has(description));
        let stored = self.files.store.bytes();
        if stored > 0 {
            self.files.store.set_budget(budget::budget(stored));
        }
        if std::mem::replace(&mut self.files.told, self.files.served) != self.files.served {
            self.send(&Up::Served(self.files.served), &[])?;
        }
        Ok(())
    }

    /// Reads that waited for something that may have come.
    pub(super) fn retry_reads(&mut self) -> Result<()> {
        if self.fork.is_some() || self.leaving.freezing() || !self.stash.is_empty() {
            // What waits may say that a file is to be forgotten.
            self.files.news |= !self.stash.is_empty();
            return Ok(());
        }
        self.files.news = false;
        for tid in self.threads.which(|t| t.call.is_some_and(|c| c.stage == Stage::Reading)) {
            self.read_again(tid)?;
        }
        Ok(())
    }

    /// Asks for what is missing of `[from, to)` and not on its way.
    fn fetch(&mut self, id: u64, from: u64, to: u64) -> Result<()> {
        let now = clock::boottime_ns();
        for (from, to) in self.files.store.missing(id, from, to) {
            let Some(granted) = self.files.granted.get_mut(&id) else { return Ok(()) };
            let mut gaps = vec![(from, to)];
            for &(start, end, _) in &granted.fetches {
                gaps = gaps.into_iter().flat_map(|gap| without(gap, (start, end))).collect();
            }
            let mut under_way: u64 = granted.fetches.iter().map(|f| f.1 - f.0).sum();
            let mut questions = Vec::new();
            for (from, to) in gaps {
                let to = to.min(from + MAX_FETCH.saturating_sub(under_way));
                if from < to && granted.fetches.len() < 64 {
                    under_way += to - from;
                    granted.fetches.push_back((from, to, now));
                    questions.push(Up::Fetch(id, from, (to - from) as u32));
                }
            }
            for question in questions {
                self.send(&question, &[])?;
            }
        }
        Ok(())
    }
}

/// What is left of a range without another one.
fn without((from, to): (u64, u64), (start, end): (u64, u64)) -> Vec<(u64, u64)> {
    if end <= from || to <= start {
        return vec![(from, to)];
    }
    [(from, start.min(to)), (end.max(from), to)].into_iter().filter(|p| p.0 < p.1).collect()
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn ranges_without_others() {
        assert_eq!(without((0, 10), (3, 5)), [(0, 3), (5, 10)]);
        assert_eq!(without((0, 10), (0, 5)), [(5, 10)]);
        assert_eq!(without((0, 10), (5, 50)), [(0, 5)]);
        assert_eq!(without((0, 10), (10, 50)), [(0, 10)]);
        assert!(without((2, 9), (0, 50)).is_empty());
    }
}
