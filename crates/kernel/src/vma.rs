//! Areas of another process's memory, asked for one by one (PROCMAP_QUERY, Linux 6.11): much cheaper than reading its map.

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const QUERY: u64 = 0xc068_6611;

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name_addr: u64,
    build_id_addr: u64,
}

/// The map of a process. Belongs to the address space at open.
#[derive(Debug)]
pub struct Vmas {
    file: File,
}

impl Vmas {
    /// None where this kernel can't be asked so.
    pub fn open(pid: i32) -> Option<Vmas> {
        let vmas = Vmas { file: File::open(format!("/proc/{pid}/maps")).ok()? };
        vmas.covering(0).is_ok().then_some(vmas)
    }

    /// The area that has this address: begin and end.
    pub fn covering(&self, addr: u64) -> io::Result<Option<(u64, u64)>> {
        let mut query = Query { size: size_of::<Query>() as u64, addr, ..Query::default() };
        // SAFETY: PROCMAP_QUERY reads and writes a Query of the size that it says; no name and no build id is asked for.
        match check(unsafe { i64::from(libc::ioctl(self.file.as_raw_fd(), QUERY, &mut query)) }) {
            Ok(_) => Ok(Some((query.start, query.end))),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Where memory that begins at `from` ends, without a gap, but not behind `most`. `guess`: where it may end.
    pub fn end_of(&self, from: u64, guess: u64, most: u64) -> io::Result<u64> {
        let mut end = from;
        if guess > from && self.covering(guess - 1)?.is_some() {
            end = guess;
        }
        while end < most {
            let Some((_, next)) = self.covering(end)? else { break };
            end = next;
        }
        Ok(end.min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;

    #[test]
    fn the_end_is_where_nothing_follows() {
        let Some(vmas) = Vmas::open(std::process::id() as i32) else {
            println!("SKIPPED: this kernel has no PROCMAP_QUERY (Linux 6.11)");
            return;
        };
        let (prot, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory that nothing else uses; parts of it are given back and protected.
        let start = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 16 * PAGE as usize, prot, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::munmap(at.byte_add(8 * PAGE as usize), 8 * PAGE as usize), 0);
            assert_eq!(libc::mprotect(at.byte_add(2 * PAGE as usize), PAGE as usize, libc::PROT_READ), 0);
            at as u64
        };
        let end = start + 8 * PAGE;
        for guess in [0, start, start + PAGE, end, end + 2 * PAGE] {
            assert_eq!(vmas.end_of(start, guess, end + 4 * PAGE).unwrap(), end, "{guess:x}");
        }
        assert_eq!(vmas.end_of(start, end, start + 3 * PAGE).unwrap(), start + 3 * PAGE);
        assert_eq!(vmas.end_of(end, end, end + PAGE).unwrap(), end);
        // SAFETY: as above.
        unsafe { libc::munmap(start as *mut libc::c_void, 8 * PAGE as usize) };
    }
}
