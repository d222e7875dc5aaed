//! Files in memory with holes, whose bytes are in large pages: another process reads them as fast as a file of a disk.
//!
//! They are on a tmpfs of our own that is mounted nowhere. Those of memfd_create(2) are of small pages on most machines, and take twice as long to read.
//! Their maker writes them; whoever has a reader of one reads, and can do nothing else with it.

use crate::{PAGE, check, description, limit};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr::NonNull;

/// Memory of this size may be taken for the first byte in it. (A file that is written from its beginning to its end takes what is written: a large page does not
/// reach beyond the end that the file has when it is made.)
pub const BLOCK: u64 = 2 << 20;
/// What a kernel takes at once that has large pages of all sizes for such files (6.14).
const SMALLEST: u64 = 64 << 10;

/// Where such files are made.
#[derive(Debug)]
pub struct Place {
    mount: OwnedFd,
}

/// Turns a new descriptor into one that is ours.
fn owned(result: i64) -> io::Result<OwnedFd> {
    let fd = check(result)? as i32;
    // SAFETY: the call before has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Place {
    /// One of its own. An error where this may not be (it takes CAP_SYS_ADMIN), or where this kernel has no large pages for it.
    pub fn new() -> io::Result<Place> {
        const SET_STRING: u32 = 1;
        const CREATE: u32 = 6;
        const CLOEXEC: u32 = 1;
        const ATTRIBUTES: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let none = std::ptr::null::<libc::c_char>();
        // SAFETY: all strings end with a zero byte and live through the calls; the rest are plain values. The first attributes of fsmount(2) are the flags
        // of mount(2) by their values.
        let mount = unsafe {
            let fs = owned(libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), CLOEXEC))?;
            // No limit but memory's: what is kept is counted by who keeps it.
            for (key, value) in [(c"huge", c"within_size"), (c"size", c"0"), (c"mode", c"700")] {
                let (fs, key, value) = (fs.as_raw_fd(), key.as_ptr(), value.as_ptr());
                check(libc::syscall(libc::SYS_fsconfig, fs, SET_STRING, key, value, 0))?;
            }
            check(libc::syscall(libc::SYS_fsconfig, fs.as_raw_fd(), CREATE, none, none, 0))?;
            owned(libc::syscall(libc::SYS_fsmount, fs.as_raw_fd(), CLOEXEC, ATTRIBUTES))?
        };
        let place = Place { mount };
        let mut probe = place.file(SMALLEST)?;
        probe.put(SMALLEST - 1, &[1])?;
        probe.put(0, &[1])?;
        if probe.taken()? < SMALLEST {
            return Err(io::Error::other("no large pages for files in memory"));
        }
        Ok(place)
    }

    /// An empty file, which may grow to `size` bytes.
    pub fn file(&self, size: u64) -> io::Result<Sparse> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let length = usize::try_from(size).ok().filter(|s| *s > 0).ok_or_else(invalid)?;
        // Beyond this limit a write sends a signal that ends the process.
        if limit::limit(0, libc::RLIMIT_FSIZE, None)?.rlim_cur < size {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
        let (prot, shared) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: the path ends with a zero byte; the rest are plain values. A new mapping replaces nothing.
        unsafe {
            // Nobody else can open it for writing.
            let fd = owned(i64::from(libc::openat(self.mount.as_raw_fd(), c".".as_ptr(), flags, 0o400)))?;
            let map = libc::mmap(std::ptr::null_mut(), length, prot, shared, fd.as_raw_fd(), 0);
            if map == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            Ok(Sparse { fd, map: NonNull::new(map).ok_or_else(invalid)?, size: length })
        }
    }
}

/// One of them.
#[derive(Debug)]
pub struct Sparse {
    fd: OwnedFd,
    map: NonNull<libc::c_void>,
    size: usize,
}

impl Sparse {
    /// Writes bytes at `offset`. On failure a part of them may have been.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.size as u64) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        self.file().write_all_at(bytes, offset)
    }

    /// The memory that it takes, bytes.
    pub fn taken(&self) -> io::Result<u64> {
        self.file().metadata().map(|m| m.blocks() * 512)
    }

    fn file(&self) -> ManuallyDrop<File> {
        // SAFETY: the descriptor is open for as long as `self` is borrowed, and this file does not close it.
        ManuallyDrop::new(unsafe { File::from_raw_fd(self.fd.as_raw_fd()) })
    }

    /// Makes a hole: the memory of these bytes is free again.
    pub fn punch(&mut self, from: u64, to: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: plain values. Where it fails the memory is kept until the file goes.
        unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, from as i64, (to - from) as i64) };
    }

    /// The bytes `[from, to)`, which have been put there.
    pub fn bytes(&self, from: u64, to: u64) -> &[u8] {
        assert!(from <= to && to <= self.size as u64, "{from}..{to} of a file of {} bytes", self.size);
        // SAFETY: inside the mapping, which lives as long as `self`, and, having been put there, inside the file. Who changes the file borrows it (`put`, `punch`): all other descriptors of it are for
        // reading, and nothing here cuts it short.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<u8>().add(from as usize), (to - from) as usize) }
    }

    /// An open file description of its own, for reading only.
    pub fn reader(&self) -> io::Result<File> {
        description::open_anew(&self.fd, 0)
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        // Readers may have it longer than we.
        self.punch(0, (self.size as u64).next_multiple_of(PAGE));
        // SAFETY: the mapping is ours, and nothing borrows it any more.
        unsafe { libc::munmap(self.map.as_ptr(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn place(test: &str) -> Option<Place> {
        Place::new().inspect_err(|e| eprintln!("SKIPPED {test}: {e}")).ok()
    }

    #[test]
    fn what_is_put_is_read_until_a_hole_is_made() {
        let Some(place) = place("what_is_put_is_read_until_a_hole_is_made") else { return };
        let (size, piece) = (BLOCK + 10_000, 256 << 10);
        let mut sparse = place.file(size).unwrap();
        for at in (0..BLOCK).step_by(piece) {
            sparse.put(at, &vec![7; piece]).unwrap();
            assert_eq!(sparse.taken().unwrap(), at + piece as u64, "what is written in order takes no more");
        }
        sparse.put(size - 10, &[9; 10]).unwrap();
        assert!(sparse.put(size - 10, &[9; 11]).is_err(), "beyond its end");
        assert_eq!((sparse.bytes(4096, 4100), sparse.bytes(size - 2, size)), (&[7; 4][..], &[9; 2][..]));
        let mut reader = sparse.reader().unwrap();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        let at = |i: u64| all[i as usize];
        assert_eq!((all.len() as u64, at(0), at(BLOCK - 1), at(BLOCK), at(size - 1)), (size, 7, 7, 0, 9));
        let taken = sparse.taken().unwrap();
        sparse.punch(0, piece as u64);
        assert_eq!((sparse.bytes(4096, 4097), sparse.taken().unwrap()), (&[0][..], taken - piece as u64));
        sparse.punch(0, BLOCK);
        assert_eq!(sparse.taken().unwrap(), taken - BLOCK);
        sparse.put(4096, &[5; 4096]).unwrap();
        assert!(sparse.taken().unwrap() <= taken);
        drop(sparse);
        assert_eq!((reader.metadata().unwrap().blocks(), reader.metadata().unwrap().len()), (0, size));
    }

    #[test]
    fn a_reader_can_only_read() {
        let Some(place) = place("a_reader_can_only_read") else { return };
        let sparse = place.file(4096).unwrap();
        let reader = sparse.reader().unwrap();
        assert_eq!(description::flags(&reader).unwrap() & libc::O_ACCMODE, libc::O_RDONLY);
        assert!(reader.write_at(&[1], 0).is_err() && reader.set_len(0).is_err());
        // SAFETY: plain values; a mapping that is made would replace nothing.
        unsafe {
            assert_eq!(libc::fallocate(reader.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let map = libc::mmap(std::ptr::null_mut(), 4096, prot, libc::MAP_SHARED, reader.as_raw_fd(), 0);
            assert_eq!(map, libc::MAP_FAILED);
        }
        assert!(place.file(0).is_err() && place.file(u64::MAX).is_err());
    }
}
