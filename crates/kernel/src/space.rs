//! How much room a file system has.

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Bytes that are free for those who are not root.
pub fn free(of: &File) -> io::Result<u64> {
    // SAFETY: statvfs is plain data for which all zeroes is a valid value; the pointer is to a live object of ours.
    let about = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        check(libc::fstatvfs(of.as_raw_fd(), &mut about).into())?;
        about
    };
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_is_some() {
        assert!(super::free(&std::fs::File::open("/").unwrap()).unwrap() > 0);
    }
}
