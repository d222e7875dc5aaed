//! The break. This kernel is told home's before the program runs (prctl(2), PR_SET_MM_MAP), so that it can make brk(2) by itself from then
//! on: allocators that have one heap make it again and again. Where that can't be, the heap is mapped and unmapped as other memory is.
//!
//! Where home says so (`Start::free_break`) the filter lets brk(2) through and nobody is told (docs/decisions/0048): where the break is, is looked up
//! before home needs to know.

use super::{Guest, GuestError, Held, Leaving, Result, at};
use crate::area::{AreaMap, Backing};
use crate::layout::TOP;
use crate::message::{Run, Start, Up};
use pando_calls::Class;
use pando_kernel::inject::{Call, call};
use pando_kernel::limit::limit;
use pando_kernel::notify::Between;
use pando_kernel::ptrace::{Registers, Tracee};
use pando_kernel::vma::Vmas;
use pando_kernel::{PAGE, page_ceil, procfs};

/// prctl(2).
const PR_SET_MM: u64 = 35;
const PR_SET_MM_MAP: u64 = 14;
/// Bytes of `struct prctl_mm_map`: eleven addresses, that and the length of an auxiliary vector, a descriptor.
pub(super) const MAP_BYTES: usize = 104;
/// Below this no program is (vm.mmap_min_addr is at most that where it is the kernel's own); home knows how low its break may go.
const LOWEST: u64 = 1 << 16;
/// So far from what lies above it the break stays, unless home says.
const ROOM: u64 = 1 << 20;
/// Runs in one message.
const MAX_ZERO_RUNS: usize = 1024;
/// Of this machine's memory the break may take one part in so many at once: the kernel refuses what could never be filled.
const PART: u64 = 4;

/// What the kernel here does about the break.
#[derive(Debug)]
pub(super) struct Heap {
    /// This kernel does not say no where home's says yes.
    pub is_possible: bool,
    /// Most bytes by which it makes the break go up or down at once.
    most: u64,
    /// It makes brk(2) as home's would.
    pub native: bool,
    /// The thread that had it made last: it may not have been made yet.
    breaking: Option<i32>,
    /// The program sets it without a word.
    pub free: Option<Free>,
}

/// A break that the program sets without a word.
#[derive(Debug)]
pub(super) struct Free {
    /// Between these, whatever else it asks for.
    low: u64,
    high: u64,
    vmas: Vmas,
    /// Where home may still have what was there before the break went down and up again: what is not here is zero.
    stale: AreaMap,
}

impl Free {
    /// Is some of this where the break may go?
    fn touches(&self, start: u64, end: u64) -> bool {
        start < self.high && end > self.low
    }
}

impl Heap {
    /// Of a guest that is being made. It has this process's limits.
    pub fn new() -> Heap {
        const MYSELF: i32 = 0;
        let finite = |what| limit(MYSELF, what, None).map_or(true, |l| l.rlim_cur != libc::RLIM_INFINITY);
        let overcommit = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
        let strict = overcommit.map_or(true, |mode| mode.trim() == "2");
        let is_possible = !strict && !finite(libc::RLIMIT_DATA) && !finite(libc::RLIMIT_AS);
        Heap { is_possible, most: procfs::machine_memory() / PART, native: false, breaking: None, free: None }
    }
}

impl Heap {
    /// By a break that was asked for: a free one may go below that later without a word.
    pub fn grew(&mut self, start: u64, end: u64) {
        self.free.iter_mut().for_each(|free| free.stale.insert(start, end, Backing::Local));
    }
}

/// `struct prctl_mm_map`: all but the break is of no program's (`somewhere`), as nothing of this process's is but its memory.
pub(super) fn map(brk: u64, somewhere: u64) -> [u8; MAP_BYTES] {
    let mut words = [somewhere; MAP_BYTES / 8];
    words[1] = somewhere + 1;
    // Kernels with CONFIG_COMPAT_BRK go by the end of the data.
    (words[2], words[3], words[4], words[5]) = (LOWEST, LOWEST, LOWEST, brk);
    // No auxiliary vector, and no other program (-1).
    (words[11], words[12]) = (0, u64::from(u32::MAX) << 32);
    let mut bytes = [0; MAP_BYTES];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
    bytes
}

/// Tells the kernel what is at `at`, a [`map`].
pub(super) fn set_map(at: u64) -> Call {
    call(libc::SYS_prctl, &[PR_SET_MM, PR_SET_MM_MAP, at, MAP_BYTES as u64, 0])
}

impl Guest {
    /// Is a break there one that this kernel can set by itself, from what it is now?
    pub(super) fn breaks_natively(&self, new: u64) -> bool {
        self.heap.native && page_ceil(new).abs_diff(page_ceil(self.brk)) <= self.heap.most
    }

    /// Has a thread's own call make it. Two threads' calls come in the order in which they were asked for.
    pub(super) fn break_natively(&mut self, tid: i32, held: &Held) -> Result<()> {
        self.finish_breaking()?;
        let (old, new) = (page_ceil(self.brk), page_ceil(held.args[0]));
        self.threads[tid].changing = Some((old.min(new), old.max(new)));
        self.heap.breaking = Some(tid);
        Ok(())
    }

    /// What this kernel was to do about the break it has done when this returns.
    pub(super) fn finish_breaking(&mut self) -> Result<()> {
        let Some(tid) = self.heap.breaking.take().filter(|&tid| self.threads.has(tid)) else { return Ok(()) };
        match self.threads[tid].changing {
            Some((start, end)) => self.finish_changing(&[(start, end - start)]),
            None => Ok(()),
        }
    }

    /// Home has set the break: this kernel does, too, or it never makes one again.
    pub(super) fn mirrored_break(&mut self, ret: u64) -> Option<Call> {
        self.heap.native = self.breaks_natively(ret);
        self.heap.native.then(|| call(libc::SYS_brk, &[ret]))
    }

    /// Has this kernel set its break as home's is, and lets it be free, as far as home says and there is room, if it can be looked up here.
    pub(super) fn begin_heap(&mut self, base: &Registers, start: &Start) -> Result<()> {
        if !self.heap.is_possible {
            return Ok(());
        }
        let scratch = self.hole + crate::layout::SCRATCH;
        let bytes = map(start.brk, self.hole);
        if self.memory.write(scratch, &bytes) != bytes.len() {
            return Err(GuestError::Protocol("the scratch page can't be written".into()));
        }
        self.heap.native = self.inject(base, &[set_map(scratch)])? == [0];
        let Some((low, most)) = start.free_break.filter(|_| self.heap.native) else { return Ok(()) };
        let (brk, top) = (start.brk, page_ceil(start.brk));
        let others = self.areas.iter().map(|a| a.0).chain(self.taken().map(|t| t.0));
        let next = others.filter(|&start| start >= top).min().unwrap_or(TOP).saturating_sub(ROOM);
        let high = brk.saturating_add(most.min(self.heap.most)).min(next);
        let own = low <= brk && low >= LOWEST && brk <= high && self.is_own(page_ceil(low), top);
        // What has gone up to here went when the map was made.
        self.uffd.absorb();
        while self.uffd.next_gone().is_some() {}
        self.heap.free =
            Vmas::open(self.body.pid).filter(|_| own).map(|vmas| Free { low, high, vmas, stale: AreaMap::default() });
        Ok(())
    }

    /// What the filter lets through.
    pub(super) fn free_break(&self) -> Option<Between> {
        self.heap.free.as_ref().map(|f| Between { nr: libc::SYS_brk as u32, low: f.low, high: f.high })
    }

    /// Looks where the break is, if the program sets it without a word; home is yet to hear of it. Bytes within a page don't matter for that.
    pub(super) fn see_break(&mut self) -> Result<()> {
        // All has been seen of one that stands still for good, and it may be killed from now on.
        if matches!(self.leaving, Leaving::Frozen) {
            return Ok(());
        }
        if self.heap.free.is_some() {
            self.uffd.absorb();
        }
        self.note_gone();
        let Some(free) = &self.heap.free else { return Ok(()) };
        let known = page_ceil(self.brk);
        let top = at("the end of the heap", free.vmas.end_of(page_ceil(free.low), known, free.high.max(known)))?;
        if top != known {
            self.break_is_at(top);
        }
        Ok(())
    }

    /// The program has set it there.
    fn break_is_at(&mut self, brk: u64) {
        let (old, new) = (page_ceil(self.brk), page_ceil(brk));
        if old != new {
            self.huge.map_changes(libc::SYS_brk as u64, &[(old.min(new), old.abs_diff(new))]);
        }
        self.areas.insert(old, new, Backing::Local);
        self.areas.remove(new, old);
        if let Some(free) = &mut self.heap.free {
            free.stale.insert(old, new, Backing::Local);
            free.stale.remove(new, old);
        }
        self.brk = brk;
        self.deferred.break_set(brk);
    }

    /// Registered memory that has been unmapped since: where only the break can do that, it was down there.
    fn note_gone(&mut self) {
        while let Some((start, _)) = self.uffd.next_gone() {
            let Some(free) = &self.heap.free else { continue };
            if (page_ceil(free.low)..page_ceil(self.brk)).contains(&start) {
                self.break_is_at(start);
            }
        }
    }

    /// Where exactly a free break is, which whoever goes on from here must know. The thread is stopped, its signals are blocked, and its registers
    /// are left changed.
    pub(super) fn learn_break(&mut self, tracee: Tracee, base: &Registers) -> Result<Option<u64>> {
        if self.heap.free.is_none() {
            return Ok(None);
        }
        self.see_break()?;
        let brk = self.inject_in(tracee, base, &[call(libc::SYS_brk, &[0])])?[0] as u64;
        if page_ceil(brk) != page_ceil(self.brk) {
            return Err(GuestError::Protocol(format!("a break at {brk:#x} of a heap that ends at {:#x}", self.brk)));
        }
        Ok(Some(brk))
    }

    /// The same, and home hears of it as of any other break: a thread is free there to make it.
    pub(super) fn tell_exact_break(&mut self, tracee: Tracee, base: &Registers) -> Result<()> {
        match self.learn_break(tracee, base)? {
            Some(brk) if brk != self.brk => self.break_is_at(brk),
            _ => {}
        }
        Ok(())
    }

    /// Why a call can't be made while the break is free: home would go by a heap that it does not know.
    pub(super) fn disturbs_break(&mut self, held: &Held) -> Result<Option<&'static str>> {
        if self.heap.free.is_none() {
            return Ok(None);
        }
        if pando_calls::limits_memory(held.nr, &held.args) {
            return Ok(Some("it limits or locks its memory"));
        }
        if pando_calls::class(held.nr, &held.args) != Class::Memory {
            return Ok(None);
        }
        self.see_break()?;
        if held.nr == libc::SYS_brk as u64 {
            let here = self.breaks_natively(held.args[0]) && self.may_break(held.args[0]);
            return Ok((!here).then_some("its heap goes where home has not said that it may"));
        }
        let Some(free) = &self.heap.free else { return Ok(None) };
        let a = &held.args;
        let touches = |start: u64, len: u64| free.touches(start, page_ceil(start.saturating_add(len.max(1))));
        match held.nr as i64 {
            libc::SYS_mmap if a[0] != 0 && touches(a[0], a[1]) => Ok(Some("it maps memory where its heap is")),
            libc::SYS_mremap if touches(a[0], a[1].max(a[2])) || touches(a[4], a[2]) && a[3] & 2 != 0 => {
                Ok(Some("it moves memory of its heap"))
            }
            libc::SYS_munmap if touches(a[0], a[1]) => Ok(Some("it unmaps some of its heap")),
            libc::SYS_mprotect | libc::SYS_madvise if touches(a[0], a[1]) => {
                // What is special about memory there ends where the break goes below it: that must be seen.
                let parts = self.areas.within(page_ceil(free.low), page_ceil(self.brk));
                let mut made_here = parts.iter().filter(|p| p.2 == Backing::Local);
                let watched = made_here.all(|&(start, end, _)| self.uffd.track(start, end).is_ok());
                Ok((!watched).then_some("its heap changes under its hands"))
            }
            _ => Ok(None),
        }
    }

    /// Something else has been mapped there.
    pub(super) fn mapped_beside_heap(&mut self, start: u64, end: u64) -> Result<()> {
        let Some(free) = self.heap.free.as_mut().filter(|f| f.touches(start, end)) else { return Ok(()) };
        free.high = free.high.min(start);
        self.want_home("something was mapped where its heap may grow".into())
    }

    /// Home hears where it is to have nothing of what it had.
    pub(super) fn send_stale(&mut self) -> Result<()> {
        let Some(free) = &mut self.heap.free else { return Ok(()) };
        let stale = std::mem::take(&mut free.stale);
        let mut runs = Vec::new();
        for (start, end, _) in stale.iter() {
            let there = at("scan for present pages", self.pagemap.present(start, end))?;
            let mut from = start;
            for (there, to) in there.into_iter().chain([(end, end)]) {
                let pages = (there.saturating_sub(from) / PAGE) as u32;
                runs.extend((pages > 0).then_some(Run { addr: from, pages, zero: true }));
                from = to;
            }
        }
        runs.chunks(MAX_ZERO_RUNS).try_for_each(|runs| self.send(&Up::Written(runs.to_vec()), &[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_laid_out_as_the_kernel_has_it() {
        let bytes = map(0x5555_0000_1234, 0x1000_0000_0000);
        let word = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap());
        assert_eq!((word(4), word(5)), (LOWEST, 0x5555_0000_1234));
        assert!(word(0) < word(1) && word(2) <= word(3) && word(7) <= word(8) && word(9) <= word(10));
        assert_eq!((word(11), word(12) as u32, (word(12) >> 32) as i32), (0, 0, -1));
    }
}
