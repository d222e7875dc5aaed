//! File leases: the kernel's word that nobody writes to a file, and that whoever wants to waits until we have given it back (fcntl(2)).

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Does nobody have this file open for writing? Asks for a read lease, which the kernel grants only then, and gives it back.
/// None where leases are not possible (the file is not ours and we are not root).
pub fn nobody_writes(file: &File) -> Option<bool> {
    const F_SETSIG: i32 = 10;
    // Whoever wants to write just now would have SIGIO sent to us, which ends who does not expect it. This one is ignored.
    // SAFETY: fcntl with plain integer arguments.
    unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) };
    match set(file, libc::F_RDLCK) {
        Ok(()) => {
            let _ = set(file, libc::F_UNLCK);
            Some(true)
        }
        Err(e) => (e.raw_os_error() == Some(libc::EAGAIN)).then_some(false),
    }
}

fn set(file: &File, kind: i32) -> io::Result<()> {
    // SAFETY: fcntl with plain integer arguments.
    check(unsafe { i64::from(libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind)) }).map(drop)
}

/// A file that nobody can write to or cut short while this lives. When somebody wants to, SIGIO comes (block it) and `is_whole` is
/// false; he waits until this is dropped, or until the kernel's patience (/proc/sys/fs/lease-break-time, 45 s) is at its end.
#[derive(Debug)]
pub struct ReadLease {
    file: File,
}

impl ReadLease {
    /// Takes the lease on a description that is ours alone: it ends with that.
    pub fn take(file: File) -> io::Result<ReadLease> {
        set(&file, libc::F_RDLCK)?;
        Ok(ReadLease { file })
    }

    /// Has nobody asked for it back?
    pub fn is_whole(&self) -> bool {
        // SAFETY: fcntl without further arguments.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }
}
