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
