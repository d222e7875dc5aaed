//! userfaultfd(2): missing-page faults and asynchronous write protection of another process's memory.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const API: u64 = 0xc018_aa3f;
const REGISTER: u64 = 0xc020_aa00;
const UNREGISTER: u64 = 0x8010_aa01;
const WAKE: u64 = 0x8010_aa02;
const COPY: u64 = 0xc028_aa03;
const ZEROPAGE: u64 = 0xc020_aa04;
const WRITEPROTECT: u64 = 0xc018_aa06;
const NEW: u64 = 0xaa00;
const MODE_MISSING: u64 = 1;
const MODE_WP: u64 = 2;
const COPY_MODE_WP: u64 = 2;
/// UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_ASYNC. Without the first, mremap(2) takes the registration
/// not only from what it moves but also from a neighbour that it merges with (mremap_userfaultfd_prep in fs/userfaultfd.c).
const FEATURES: u64 = 1 << 2 | 1 << 13 | 1 << 15;
const EVENT_PAGEFAULT: u8 = 0x12;
/// UFFD_USER_MODE_ONLY.
const USER_MODE_ONLY: i32 = 1;

#[repr(C)]
struct ApiArgs {
    api: u64,
    features: u64,
    ioctls: u64,
}
#[repr(C)]
struct RegisterArgs {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}
#[repr(C)]
struct RangeArgs {
    start: u64,
    len: u64,
}
#[repr(C)]
struct ProtectArgs {
    start: u64,
    len: u64,
    mode: u64,
}
#[repr(C)]
struct CopyArgs {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copy: i64,
}
#[repr(C)]
struct ZeroArgs {
    start: u64,
    len: u64,
    mode: u64,
    zeroed: i64,
}

/// Makes a userfaultfd for the calling process's memory. The bool says whether it also catches faults of the kernel
/// (needs a privilege or /dev/userfaultfd); if not, only those of user code.
pub fn create() -> io::Result<(OwnedFd, bool)> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: no pointers; new descriptors are owned here.
    unsafe {
        if let Ok(fd) = check(libc::syscall(libc::SYS_userfaultfd, flags)) {
            return Ok((OwnedFd::from_raw_fd(fd as i32), true));
        }
        if let Ok(dev) = std::fs::File::open("/dev/userfaultfd")
            && let Ok(fd) = check(i64::from(libc::ioctl(dev.as_raw_fd(), NEW, flags)))
        {
            return Ok((OwnedFd::from_raw_fd(fd as i32), true));
        }
        let fd = check(libc::syscall(libc::SYS_userfaultfd, flags | USER_MODE_ONLY))?;
        Ok((OwnedFd::from_raw_fd(fd as i32), false))
    }
}

/// A userfaultfd of some process.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
}

impl Uffd {
    /// Takes over a descriptor from `create` and agrees on the features.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let mut args = ApiArgs { api: 0xaa, features: FEATURES, ioctls: 0 };
        // SAFETY: UFFDIO_API reads and writes an ApiArgs.
        check(unsafe { i64::from(libc::ioctl(fd.as_raw_fd(), API, &mut args)) })?;
        Ok(Uffd { fd })
    }

    /// For poll.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn register_mode(&self, start: u64, end: u64, mode: u64) -> io::Result<()> {
        let mut args = RegisterArgs { start, len: end - start, mode, ioctls: 0 };
        // SAFETY: UFFDIO_REGISTER reads and writes a RegisterArgs.
        check(unsafe { i64::from(libc::ioctl(self.fd.as_raw_fd(), REGISTER, &mut args)) })?;
        Ok(())
    }

    /// Faults on absent pages of the range come here; writes to pages are tracked.
    pub fn register(&self, start: u64, end: u64) -> io::Result<()> {
        self.register_mode(start, end, MODE_MISSING | MODE_WP)
    }

    /// Only tracks writes in the range.
    pub fn track(&self, start: u64, end: u64) -> io::Result<()> {
        self.register_mode(start, end, MODE_WP)
    }

    /// The kernel alone supplies the range's pages again. (Registered once more for less it would stay as it is.)
    pub fn unregister(&self, start: u64, end: u64) -> io::Result<()> {
        let range = [start, end - start];
        // SAFETY: UFFDIO_UNREGISTER reads a uffdio_range: begin and length.
        check(unsafe { i64::from(libc::ioctl(self.fd.as_raw_fd(), UNREGISTER, &range)) }).map(drop)
    }

    /// Ends the tracking of writes to the pages that are there: they count as written until they are protected again.
    pub fn unprotect(&self, start: u64, end: u64) -> io::Result<()> {
        loop {
            let mut args = ProtectArgs { start, len: end - start, mode: 0 };
            // SAFETY: UFFDIO_WRITEPROTECT reads a ProtectArgs.
            match check(unsafe { i64::from(libc::ioctl(self.fd.as_raw_fd(), WRITEPROTECT, &mut args)) }) {
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {}
                other => return other.map(drop),
            }
        }
    }

    /// Lets threads that wait for these pages try again.
    pub fn wake(&self, start: u64, len: u64) {
        let args = RangeArgs { start, len };
        // SAFETY: UFFDIO_WAKE reads a RangeArgs.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), WAKE, &args) };
    }

    /// Installs pages, write-tracked. Returns the bytes installed before the first obstacle and that obstacle.
    pub fn copy(&self, dst: u64, data: &[u8]) -> (usize, Option<io::Error>) {
        let mut args = CopyArgs { dst, src: data.as_ptr() as u64, len: data.len() as u64, mode: COPY_MODE_WP, copy: 0 };
        // SAFETY: UFFDIO_COPY reads `len` bytes at `src` (inside `data`) and writes CopyArgs.
        let result = check(unsafe { i64::from(libc::ioctl(self.fd.as_raw_fd(), COPY, &mut args)) });
        match result {
            Ok(_) => (data.len(), None),
            Err(e) => (args.copy.max(0) as usize, Some(e)),
        }
    }

    /// Installs the zero page.
    pub fn zero(&self, start: u64, len: u64) -> io::Result<()> {
        let mut args = ZeroArgs { start, len, mode: 0, zeroed: 0 };
        // SAFETY: UFFDIO_ZEROPAGE reads and writes a ZeroArgs.
        check(unsafe { i64::from(libc::ioctl(self.fd.as_raw_fd(), ZEROPAGE, &mut args)) })?;
        Ok(())
    }

    /// Next missing-page fault (its page address), if one waits. Whoever moves memory that is registered waits in mremap(2) until this
    /// has been called.
    pub fn next_fault(&self) -> Option<u64> {
        loop {
            let mut msg = [0u8; 32];
            // SAFETY: `msg` is valid for its length (a uffd_msg is 32 bytes).
            let n = unsafe { libc::read(self.fd.as_raw_fd(), msg.as_mut_ptr().cast(), 32) };
            if n != 32 {
                return None;
            }
            if msg[0] == EVENT_PAGEFAULT {
                let mut address = [0; 8];
                address.copy_from_slice(&msg[16..24]);
                return Some(crate::page_floor(u64::from_le_bytes(address)));
            }
        }
    }
}
