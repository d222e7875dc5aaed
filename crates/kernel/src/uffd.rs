//! userfaultfd(2): missing-page faults and asynchronous write protection of another process's memory.

use crate::check;
use std::cell::RefCell;
use std::collections::VecDeque;
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
/// UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_ASYNC. Without the first, mremap(2)
/// takes the registration not only from what it moves but also from a neighbour that it merges with (mremap_userfaultfd_prep in
/// fs/userfaultfd.c). The second says where a break that the program sets by itself has been.
const FEATURES: u64 = 1 << 2 | 1 << 6 | 1 << 13 | 1 << 15;
const EVENT_PAGEFAULT: u8 = 0x12;
const EVENT_UNMAP: u8 = 0x16;
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

/// A userfaultfd of some process. Whoever unmaps or moves what is registered waits in its call until its message has been read
/// ([`Uffd::absorb`]), and until it goes on the kernel puts no pages in.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
    faults: RefCell<VecDeque<u64>>,
    gone: RefCell<VecDeque<(u64, u64)>>,
}

impl Uffd {
    /// Takes over a descriptor from `create` and agrees on the features.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let mut args = ApiArgs { api: 0xaa, features: FEATURES, ioctls: 0 };
        // SAFETY: UFFDIO_API reads and writes an ApiArgs.
        check(unsafe { i64::from(libc::ioctl(fd.as_raw_fd(), API, &mut args)) })?;
        Ok(Uffd { fd, faults: RefCell::default(), gone: RefCell::default() })
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
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => self.let_the_map_change(),
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

    /// Reads all messages that wait.
    pub fn absorb(&self) {
        loop {
            let mut msg = [0u8; 32];
            // SAFETY: `msg` is valid for its length (a uffd_msg is 32 bytes).
            let n = unsafe { libc::read(self.fd.as_raw_fd(), msg.as_mut_ptr().cast(), 32) };
            if n != 32 {
                return;
            }
            let word = |at: usize| {
                let mut word = [0; 8];
                word.copy_from_slice(&msg[at..at + 8]);
                u64::from_le_bytes(word)
            };
            match msg[0] {
                EVENT_PAGEFAULT => self.faults.borrow_mut().push_back(crate::page_floor(word(16))),
                EVENT_UNMAP => self.gone.borrow_mut().push_back((word(8), word(16))),
                _ => {}
            }
        }
    }

    /// The kernel puts nothing in while somebody changes the map: reads what they wait to be read, and lets them run.
    pub fn let_the_map_change(&self) {
        self.absorb();
        std::thread::yield_now();
    }

    /// Is there something that has been read and not been taken?
    pub fn has_news(&self) -> bool {
        !self.faults.borrow().is_empty() || !self.gone.borrow().is_empty()
    }

    /// The next missing-page fault that has been read (its page address).
    pub fn next_fault(&self) -> Option<u64> {
        self.faults.borrow_mut().pop_front()
    }

    /// The next stretch of registered memory that has been unmapped, as far as has been read: begin and end.
    pub fn next_gone(&self) -> Option<(u64, u64)> {
        self.gone.borrow_mut().pop_front()
    }
}
