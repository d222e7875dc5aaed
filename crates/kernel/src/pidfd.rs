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

/// Sends a signal through a pidfd.
pub fn send_signal(pidfd: &OwnedFd, signal: i32) -> io::Result<()> {
    // SAFETY: a null siginfo means the default one.
    check(unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, std::ptr::null::<libc::siginfo_t>(), 0)
    })?;
    Ok(())
}
