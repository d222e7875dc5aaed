//! File leases, as a question.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Does nobody have this file open for writing? Asks for a read lease, which the kernel grants only then, and gives it back.
/// None where leases are not possible (the file is not ours and we are not root).
pub fn nobody_writes(file: &File) -> Option<bool> {
    // SAFETY: fcntl with plain integer arguments.
    unsafe {
        if libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) != 0 {
            let busy = std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
            return busy.then_some(false);
        }
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
    }
    Some(true)
}
