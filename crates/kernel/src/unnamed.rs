//! Files in memory without a name.

use crate::check;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};

/// A file with these bytes that anybody who has it may execute, and nobody may write. It is closed at exec.
pub fn program(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name ends with a zero byte; the descriptor is new and nobody else's.
    let mut file =
        unsafe { File::from_raw_fd(check(libc::memfd_create(c"script".as_ptr(), libc::MFD_CLOEXEC).into())? as i32) };
    file.write_all(bytes)?;
    // What somebody may write is not executed: the descriptor for writing goes.
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_script_of_a_file_without_a_name_runs() {
        use std::os::fd::AsRawFd;
        let file = super::program(b"#!/bin/sh\ncat /proc/self/comm >/dev/null; exit 7\n").unwrap();
        let fd = file.as_raw_fd();
        // The interpreter opens it once more, so it has to stay open: here by a shell that inherits it.
        let path = format!("/proc/{}/fd/{fd}", std::process::id());
        assert_eq!(std::process::Command::new(path).status().unwrap().code(), Some(7));
    }
}
