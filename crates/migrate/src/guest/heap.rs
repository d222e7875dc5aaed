//! The break. This kernel is told home's before the program runs (prctl(2), PR_SET_MM_MAP), so that it can make brk(2) by itself from then
//! on: allocators that have one heap make it again and again. Where that can't be, the heap is mapped and unmapped as other memory is.

use super::{Guest, Held, Result};
use pando_kernel::inject::{Call, call};
use pando_kernel::limit::limit;
use pando_kernel::{page_ceil, procfs};

/// prctl(2).
const PR_SET_MM: u64 = 35;
const PR_SET_MM_MAP: u64 = 14;
/// Bytes of `struct prctl_mm_map`: eleven addresses, that and the length of an auxiliary vector, a descriptor.
pub(super) const MAP_BYTES: usize = 104;
/// Below this no program is (vm.mmap_min_addr is at most that where it is the kernel's own); home knows how low its break may go.
const LOWEST: u64 = 1 << 16;
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
}

impl Heap {
    /// Of a guest that is being made. It has this process's limits.
    pub fn new() -> Heap {
        const MYSELF: i32 = 0;
        let finite = |what| limit(MYSELF, what, None).map_or(true, |l| l.rlim_cur != libc::RLIM_INFINITY);
        let overcommit = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
        let strict = overcommit.map_or(true, |mode| mode.trim() == "2");
        let is_possible = !strict && !finite(libc::RLIMIT_DATA) && !finite(libc::RLIMIT_AS);
        Heap { is_possible, most: procfs::machine_memory() / PART, native: false, breaking: None }
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
