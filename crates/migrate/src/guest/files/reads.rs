//! Reads and seeks that are answered here.

use super::Granted;
use super::ahead::{FIRST, LARGEST};
use super::description::{Choice, Place};
use crate::area::Backing;
use crate::guest::faults::CLUSTER;
use crate::guest::{Guest, Held, Result, Stage, at};
use crate::message::Up;
use pando_kernel::{PAGE, clock, page_ceil, page_floor};

/// Longer reads are home's: they are worth their round trip.
const LONGEST: u64 = 1 << 20;
/// Most buffers of one read.
const BUFFERS: u64 = 64;

/// A read: of this descriptor, to here, from there or from where it stands.
pub(super) struct Wanted {
    pub fd: i32,
    pub buffers: Vec<(u64, u64)>,
    offset: Option<u64>,
}

/// What became of a call.
#[derive(Debug, PartialEq, Eq)]
enum Done {
    Answered,
    Waits,
    /// It is home's.
    Not,
}

/// A read by offset: of which descriptor.
pub(super) fn by_offset(held: &Held) -> Option<i32> {
    [libc::SYS_pread64, libc::SYS_preadv].contains(&(held.nr as i64)).then_some(held.args[0] as i32)
}

/// Did this read get all that it asked for?
pub(super) fn is_full(held: &Held, ret: i64) -> bool {
    match held.nr as i64 {
        libc::SYS_read | libc::SYS_pread64 => ret > 0 && ret as u64 == held.args[2],
        libc::SYS_readv | libc::SYS_preadv => ret >= PAGE as i64,
        // A place somewhere in a file is followed by reads.
        libc::SYS_lseek => ret > 0,
        _ => false,
    }
}

impl Guest {
    /// Answers a held read or seek, if that can be done here. True: it is answered, or waits for what is on its way.
    pub(crate) fn read_here(&mut self, tid: i32, held: &Held) -> Result<bool> {
        let thread = &self.threads[tid];
        // Signals that came before it come first; and what was begun at home is finished there.
        if !thread.undelivered.is_empty() || thread.cut_short.is_some() {
            return Ok(false);
        }
        let done = if held.nr == libc::SYS_lseek as u64 {
            self.seek_here(held)?
        } else {
            match self.wanted(held) {
                Some(wanted) => self.serve(tid, held, &wanted)?,
                None => Done::Not,
            }
        };
        let thread = &mut self.threads[tid];
        match done {
            Done::Answered => thread.call = None,
            Done::Waits => thread.call.iter_mut().for_each(|c| c.stage = Stage::Reading),
            Done::Not => {}
        }
        Ok(done != Done::Not)
    }

    /// Something has come that a read waited for.
    pub(super) fn read_again(&mut self, tid: i32) -> Result<()> {
        let Some(held) = self.threads[tid].call else { return Ok(()) };
        if self.read_here(tid, &held)? {
            return Ok(());
        }
        if let Some(call) = &mut self.threads[tid].call {
            call.stage = Stage::Pulling;
        }
        self.plan_call(tid)
    }

    /// What the call reads, if it is one of those that can be answered.
    fn wanted(&self, held: &Held) -> Option<Wanted> {
        let a = &held.args;
        let vector = |at: u64, count: u64| {
            let mut bytes = vec![0; 16 * usize::try_from(count).ok().filter(|&n| n as u64 <= BUFFERS)?];
            let whole = self.memory.read_all(at, &mut bytes);
            let word = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
            whole.then(|| bytes.chunks_exact(16).map(|b| (word(&b[..8]), word(&b[8..]))).collect())
        };
        let (buffers, offset): (Vec<(u64, u64)>, _) = match held.nr as i64 {
            libc::SYS_read => (vec![(a[1], a[2])], None),
            libc::SYS_pread64 => (vec![(a[1], a[2])], Some(a[3])),
            libc::SYS_readv => (vector(a[1], a[2])?, None),
            libc::SYS_preadv => (vector(a[1], a[2])?, Some(a[3])),
            _ => return None,
        };
        let total = buffers.iter().try_fold(0u64, |sum, b| sum.checked_add(b.1))?;
        // Odd numbers are the kernel's to judge.
        let plain = total > 0 && total <= LONGEST && offset.unwrap_or(0) <= 1 << 60;
        plain.then_some(Wanted { fd: a[0] as i32, buffers, offset })
    }

    fn serve(&mut self, tid: i32, held: &Held, wanted: &Wanted) -> Result<Done> {
        let now = clock::boottime_ns();
        let slow = self.files.grant.is_slow(now);
        if slow && !self.files.direct.is_on() || self.files.lets_go() {
            return Ok(Done::Not);
        }
        let (id, from) = match self.files.descriptors.read(wanted.fd, wanted.offset, now) {
            Choice::Forward => return Ok(Done::Not),
            Choice::Wait => return Ok(Done::Waits),
            Choice::Ask(ask, owners) => {
                self.files.asks.insert(ask, now);
                self.send(&Up::Ask(ask, wanted.fd, owners), &[])?;
                return Ok(Done::Waits);
            }
            Choice::Serve(id, from) => (id, from),
        };
        if self.files.direct.size(id).is_some() {
            return self.serve_direct(held, wanted, id, from);
        }
        let Some(granted) = self.files.granted.get_mut(&id).filter(|_| !slow) else { return Ok(Done::Not) };
        granted.used = now;
        let size = granted.size;
        if !self.is_confirmed(now)? {
            return Ok(Done::Waits);
        }
        let total: u64 = wanted.buffers.iter().map(|b| b.1).sum();
        let to = from.saturating_add(total).min(size.max(from));
        if from < to {
            let Some(d) = self.files.descriptors.get_mut(wanted.fd) else { return Ok(Done::Not) };
            let (start, end) = d.ahead.want(from, to, size);
            self.fetch(id, start, end)?;
            if !self.files.store.missing(id, from, to).is_empty() {
                return Ok(Done::Waits);
            }
            let known = self.body.full_uffd && self.files.native.knows(tid, &wanted.buffers);
            let mut present = if known { Done::Answered } else { self.make_present(&wanted.buffers)? };
            if present == Done::Answered && self.read_natively(tid, held, wanted, (id, from, to))? {
                self.count_read(wanted, from, to);
                return Ok(Done::Answered);
            }
            if known {
                present = self.make_present(&wanted.buffers)?;
            }
            if present != Done::Answered {
                return Ok(present);
            }
        }
        if !self.copy_out(id, from, to, &wanted.buffers) {
            // A buffer that is not all there: the kernel at home says what comes of it.
            return Ok(Done::Not);
        }
        self.served(held, wanted, from, to)
    }

    /// The bytes are where the program wants them.
    fn served(&mut self, held: &Held, wanted: &Wanted, from: u64, to: u64) -> Result<Done> {
        self.count_read(wanted, from, to);
        self.answer(held.id, (to - from) as i64)?;
        Ok(Done::Answered)
    }

    fn count_read(&mut self, wanted: &Wanted, from: u64, to: u64) {
        self.files.served += to - from;
        if let Some(d) = self.files.descriptors.get_mut(wanted.fd).filter(|_| wanted.offset.is_none()) {
            d.moved(to);
        }
    }

    /// The same from a file that is on a file system of this node.
    fn serve_direct(&mut self, held: &Held, wanted: &Wanted, id: u64, from: u64) -> Result<Done> {
        let present = self.make_present(&wanted.buffers)?;
        if present != Done::Answered {
            return Ok(present);
        }
        let total: u64 = wanted.buffers.iter().map(|b| b.1).sum();
        let bytes = match self.direct_bytes(held.id, id, from, total as usize)? {
            None => return Ok(Done::Waits),
            Some(Err(_)) => return Ok(Done::Not),
            Some(Ok(bytes)) => bytes,
        };
        let mut rest = bytes.as_slice();
        for &(addr, len) in &wanted.buffers {
            let (now, later) = rest.split_at(rest.len().min(len as usize));
            if !now.is_empty() && !self.memory.write_parts(addr, &[now]) {
                return Ok(Done::Not);
            }
            rest = later;
        }
        self.served(held, wanted, from, from + bytes.len() as u64)
    }

    /// Is home's word still good? It is asked for it in time.
    fn is_confirmed(&mut self, now: u64) -> Result<bool> {
        if let Some(number) = self.files.grant.question(now) {
            self.send(&Up::Renew(number), &[])?;
        }
        Ok(self.files.grant.is_good(now))
    }

    /// Sees to it that no page of the buffers waits for us: who writes to such a page waits for ever.
    fn make_present(&mut self, buffers: &[(u64, u64)]) -> Result<Done> {
        let mut absent = Vec::new();
        for &(addr, len) in buffers.iter().filter(|b| b.1 > 0) {
            let (start, end) = (page_floor(addr), page_ceil(addr.saturating_add(len)));
            for (start, end, backing) in self.areas.within(start, end) {
                let there = at("look for pages", self.pagemap.mapped(start, end))?;
                let mut from = start;
                for (begin, stop) in there.into_iter().chain([(end, end)]) {
                    absent.extend((from < begin).then_some((from, begin, backing)));
                    from = stop;
                }
            }
        }
        let mut done = Done::Answered;
        for (start, end, backing) in absent {
            if backing == Backing::Home {
                for page in (start..end).step_by((CLUSTER * PAGE) as usize) {
                    self.pull(page, end)?;
                }
                done = Done::Waits;
                continue;
            }
            // The kernel brings new memory, unless it asks us for it.
            let there = |page: u64| self.memory.word(page).is_some();
            for page in (start..end).step_by(PAGE as usize) {
                if !there(page) && self.uffd.zero(page, PAGE).is_err() && !there(page) {
                    return Ok(Done::Not);
                }
            }
        }
        Ok(done)
    }

    /// Writes the bytes where the program wants them. False: not all could be.
    fn copy_out(&mut self, id: u64, from: u64, to: u64, buffers: &[(u64, u64)]) -> bool {
        let (memory, mut at) = (&self.memory, from);
        for &(addr, len) in buffers {
            let end = at.saturating_add(len).min(to);
            if at >= end {
                continue;
            }
            let Some(parts) = self.files.store.read(id, at, end) else { return false };
            if !memory.write_parts(addr, &parts) {
                return false;
            }
            at = end;
        }
        at == to
    }

    /// A seek to a place that is known to be good.
    fn seek_here(&mut self, held: &Held) -> Result<Done> {
        let now = clock::boottime_ns();
        let (fd, offset, whence) = (held.args[0] as i32, held.args[1] as i64, held.args[2] as i32);
        let Some(d) = self.files.descriptors.get(fd) else { return Ok(Done::Not) };
        let (Place::Here { at, .. }, Some(id)) = (d.place, d.file) else { return Ok(Done::Not) };
        let granted = self.files.granted.get(&id).map(|&Granted { size, .. }| size);
        let Some(size) = granted.or(self.files.direct.size(id)) else { return Ok(Done::Not) };
        let base = match whence {
            libc::SEEK_SET => Some(0),
            libc::SEEK_CUR => Some(at),
            libc::SEEK_END if granted.is_some() && self.files.grant.is_good(now) => Some(size),
            _ => None,
        };
        let to = base.and_then(|base| base.checked_add_signed(offset)).filter(|&to| to <= size);
        let Some(to) = to else { return Ok(Done::Not) };
        self.files.descriptors.get_mut(fd).into_iter().for_each(|d| d.moved(to));
        self.answer(held.id, to as i64)?;
        Ok(Done::Answered)
    }
}

const _: () = assert!(LONGEST + LARGEST + FIRST < crate::message::MAX_FETCH);
