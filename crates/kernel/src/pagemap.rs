//! PAGEMAP_SCAN (Linux 6.7): which pages are there, and which were written.

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const SCAN: u64 = 0xc060_6610;
const WRITTEN: u64 = 1 << 1;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const PFNZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;
/// Since Linux 6.15.
const GUARD: u64 = 1 << 8;
const WP_MATCHING: u64 = 1;

#[repr(C)]
#[derive(Default)]
struct Args {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Begin and end of each.
pub type Ranges = Vec<(u64, u64)>;

/// The regions that have these categories, neighbours put together.
fn joined(regions: &[Region], categories: u64) -> Ranges {
    let mut out: Ranges = Vec::new();
    for r in regions.iter().filter(|r| r.categories & categories == categories) {
        match out.last_mut() {
            Some(last) if last.1 == r.start => last.1 = r.end,
            _ => out.push((r.start, r.end)),
        }
    }
    out
}

/// An open `/proc/PID/pagemap`. Belongs to the address space at open.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
}

impl Pagemap {
    /// Opens the pagemap of `pid`.
    pub fn open(pid: i32) -> io::Result<Self> {
        Ok(Pagemap { file: File::open(format!("/proc/{pid}/pagemap"))? })
    }

    fn regions(&self, start: u64, end: u64, mut template: Args) -> io::Result<Vec<Region>> {
        let mut out = Vec::new();
        let mut regions = [Region::default(); 512];
        template.size = size_of::<Args>() as u64;
        template.start = start;
        template.end = end;
        template.vec = regions.as_mut_ptr() as u64;
        template.vec_len = regions.len() as u64;
        while template.start < end {
            template.walk_end = 0;
            // SAFETY: PAGEMAP_SCAN reads and writes Args and writes at most vec_len regions at vec, which is `regions`.
            let n = check(unsafe { i64::from(libc::ioctl(self.file.as_raw_fd(), SCAN, &mut template)) })?;
            out.extend_from_slice(&regions[..n as usize]);
            if template.walk_end <= template.start {
                break;
            }
            template.start = template.walk_end;
        }
        Ok(out)
    }

    fn scan(&self, start: u64, end: u64, template: Args) -> io::Result<Vec<(u64, u64)>> {
        Ok(joined(&self.regions(start, end, template)?, 0))
    }

    /// Ranges of pages with content of their own (in memory or swapped; the shared zero page does not count).
    pub fn present(&self, start: u64, end: u64) -> io::Result<Vec<(u64, u64)>> {
        Ok(self.present_and_huge(start, end)?.0)
    }

    /// The same, and those of them that huge pages map.
    pub fn present_and_huge(&self, start: u64, end: u64) -> io::Result<(Ranges, Ranges)> {
        let args = Args {
            category_inverted: PFNZERO,
            category_mask: PFNZERO,
            category_anyof_mask: PRESENT | SWAPPED,
            return_mask: PRESENT | HUGE,
            ..Args::default()
        };
        let regions = self.regions(start, end, args)?;
        Ok((joined(&regions, 0), joined(&regions, HUGE)))
    }

    /// Ranges of guards (`MADV_GUARD_INSTALL`). A kernel that can't tell says none.
    pub fn guards(&self, start: u64, end: u64) -> io::Result<Ranges> {
        let args = Args { category_mask: GUARD, return_mask: GUARD, ..Args::default() };
        match self.scan(start, end, args) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Ranges of pages that an access finds (or the kernel swaps in): the shared zero page counts.
    pub fn mapped(&self, start: u64, end: u64) -> io::Result<Vec<(u64, u64)>> {
        self.scan(start, end, Args { category_anyof_mask: PRESENT | SWAPPED, return_mask: PRESENT, ..Args::default() })
    }

    /// Ranges written since they were last write-protected.
    pub fn written(&self, start: u64, end: u64) -> io::Result<Vec<(u64, u64)>> {
        self.scan_written(start, end, 0)
    }

    /// Ranges written since they were last write-protected; protects them again in the same step.
    /// The range must be tracked by userfaultfd (`Uffd::track` or `register`); other parts are passed over.
    pub fn take_written(&self, start: u64, end: u64) -> io::Result<Vec<(u64, u64)>> {
        self.scan_written(start, end, WP_MATCHING)
    }

    fn scan_written(&self, start: u64, end: u64, flags: u64) -> io::Result<Vec<(u64, u64)>> {
        self.scan(
            start,
            end,
            Args {
                flags,
                category_inverted: PFNZERO,
                category_mask: WRITTEN | PFNZERO,
                category_anyof_mask: PRESENT | SWAPPED,
                return_mask: WRITTEN,
                ..Args::default()
            },
        )
    }
}

/// What `/proc/PID/pagemap` says of a page (Documentation/admin-guide/mm/pagemap.rst).
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    fn frame(self) -> u64 {
        self.0 & ((1 << 55) - 1)
    }

    /// Has a page that others may have, too.
    fn is_shared(self) -> bool {
        self.0 & (1 << 63 | 1 << 56) == 1 << 63
    }

    /// The same page of memory as another one. Who may not see which one that is takes two that are shared at one address for it.
    fn is_probably(self, other: Word) -> bool {
        self.is_shared() && other.is_shared() && self.frame() == other.frame()
    }
}

impl Pagemap {
    /// Which pages of `[start, end)` the two processes share since a fork: certainly if we may see page frame numbers, else probably.
    pub fn shared_with(&self, other: &Pagemap, start: u64, end: u64) -> io::Result<Vec<bool>> {
        let (mine, theirs) = (self.words(start, end)?, other.words(start, end)?);
        Ok(mine.iter().zip(&theirs).map(|(a, b)| a.is_probably(*b)).collect())
    }

    /// Has the process pages there that others may have, too?
    pub fn shares(&self, start: u64, end: u64) -> io::Result<bool> {
        Ok(self.words(start, end)?.iter().any(|w| w.is_shared()))
    }

    fn words(&self, start: u64, end: u64) -> io::Result<Vec<Word>> {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0u8; ((end - start) / crate::PAGE * 8) as usize];
        self.file.read_exact_at(&mut bytes, start / crate::PAGE * 8)?;
        let word = |part: &[u8]| Word(part.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        Ok(bytes.chunks_exact(8).map(word).collect())
    }
}

/// Pages of `[start, end)` that the process shares with no other one: since a fork it (or the other one) has written to them.
pub fn pages_of_its_own(pid: i32, start: u64, end: u64) -> io::Result<Vec<u64>> {
    use std::os::unix::fs::FileExt;
    const PRESENT_BIT: u64 = 1 << 63;
    const EXCLUSIVE_BIT: u64 = 1 << 56;
    const AT_ONCE: u64 = 8192;
    let file = File::open(format!("/proc/{pid}/pagemap"))?;
    let mut out = Vec::new();
    let (mut page, last) = (start / crate::PAGE, end / crate::PAGE);
    while page < last {
        let mut words = vec![0u8; (AT_ONCE.min(last - page) * 8) as usize];
        file.read_exact_at(&mut words, page * 8)?;
        for word in words.chunks_exact(8) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            if u64::from_le_bytes(bytes) & (PRESENT_BIT | EXCLUSIVE_BIT) == PRESENT_BIT | EXCLUSIVE_BIT {
                out.push(page * crate::PAGE);
            }
            page += 1;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    /// A child that shares all memory with us, has written to `at`, and ends when the other end is closed.
    fn child(at: *mut u8) -> (i32, UnixStream) {
        let (mine, theirs) = UnixStream::pair().unwrap();
        // SAFETY: the child makes system calls only, on what was there before the fork, and writes to memory of its own copy.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let mut byte = 0u8;
            // SAFETY: as above; `_exit` runs nothing of ours.
            unsafe {
                at.write_volatile(7);
                libc::write(theirs.as_raw_fd(), (&raw const byte).cast(), 1);
                libc::close(mine.as_raw_fd());
                libc::read(theirs.as_raw_fd(), (&raw mut byte).cast(), 1);
                libc::_exit(0);
            }
        }
        (&mine).read_exact(&mut [0]).unwrap();
        (pid, mine)
    }

    #[test]
    fn pages_are_shared_until_somebody_writes() {
        let mut memory = vec![1u8; 9 * PAGE as usize];
        let from = memory.as_ptr().align_offset(PAGE as usize);
        memory[from..].fill(3);
        let start = memory[from..].as_ptr() as u64;
        let (pid, hold) = child(&raw mut memory[from + 2 * PAGE as usize]);
        memory[from + 5 * PAGE as usize] = 9;
        let (me, other) = (Pagemap::open(std::process::id() as i32).unwrap(), Pagemap::open(pid).unwrap());
        let shared = me.shared_with(&other, start, start + 8 * PAGE).unwrap();
        let shares = [2, 5].map(|n| me.shares(start + n * PAGE, start + (n + 1) * PAGE).unwrap());
        let any = me.shares(start, start + 8 * PAGE).unwrap();
        drop(hold);
        // SAFETY: the child is ours; no status is asked for.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        assert_eq!(shared, [true, true, false, true, true, false, true, true]);
        assert!(any && !shares[0] && !shares[1]);
    }
}
