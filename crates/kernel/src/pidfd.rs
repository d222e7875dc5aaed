//! Stable references to processes, and descriptors taken from them.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Opens a pidfd.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes no pointers; the result is a new descriptor that we own.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Takes a copy of descriptor `fd` of the process.
pub fn getfd(pidfd: &OwnedFd, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is a new descriptor that we own.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

const COLLAPSE: libc::c_int = 25;

/// May this process have the kernel put another one's small pages together (CAP_SYS_NICE)?
pub fn may_collapse(pidfd: &OwnedFd) -> bool {
    madvise(pidfd, &[], COLLAPSE).is_ok()
}

/// Has the kernel put the pages of `[start, end)`, whose ends are multiples of a huge page, together into huge ones. What it can't it leaves
/// as it is; the content never changes.
pub fn collapse(pidfd: &OwnedFd, start: u64, end: u64) -> io::Result<()> {
    let range = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: (end - start) as usize };
    madvise(pidfd, &[range], COLLAPSE)
}

fn madvise(pidfd: &OwnedFd, ranges: &[libc::iovec], advice: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads `ranges`, which lives through the call; the addresses are the other process's and checked by the kernel.
    check(unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            ranges.as_ptr(),
            ranges.len(),
            i64::from(advice),
            0u64,
        )
    })?;
    Ok(())
}
