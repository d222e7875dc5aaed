//! Open file descriptions: what they are open for, where they stand, and opening their file anew.

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Its status flags (F_GETFL).
pub fn flags(fd: &impl AsRawFd) -> io::Result<i32> {
    // SAFETY: fcntl without further arguments.
    Ok(check(unsafe { i64::from(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL)) })? as i32)
}

/// Who reads or writes it waits from now on (without O_NONBLOCK).
pub fn wait_again(fd: &impl AsRawFd) -> io::Result<()> {
    let flags = flags(fd)? & !libc::O_NONBLOCK;
    // SAFETY: fcntl with a plain number.
    check(unsafe { i64::from(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags)) }).map(drop)
}

/// Its position.
pub fn position(fd: &impl AsRawFd) -> io::Result<u64> {
    // SAFETY: no pointers.
    Ok(check(unsafe { libc::lseek(fd.as_raw_fd(), 0, libc::SEEK_CUR) })? as u64)
}

/// Puts it at another position.
pub fn seek(fd: &impl AsRawFd, to: u64) -> io::Result<()> {
    let to = i64::try_from(to).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: no pointers.
    check(unsafe { libc::lseek(fd.as_raw_fd(), to, libc::SEEK_SET) }).map(drop)
}

/// Do two processes have one table of descriptors (kcmp(2))? No, if that may not be asked.
pub fn same_table(one: i32, other: i32) -> bool {
    const KCMP_FILES: libc::c_int = 2;
    // SAFETY: plain numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0, 0) == 0 }
}

/// Is our descriptor one of the same open file description as descriptor `fd` of thread `tid` (kcmp(2))?
pub fn is_same(ours: RawFd, tid: i32, fd: i32) -> io::Result<bool> {
    const KCMP_FILE: libc::c_int = 0;
    // SAFETY: plain numbers.
    Ok(check(unsafe { libc::syscall(libc::SYS_kcmp, libc::getpid(), tid, KCMP_FILE, i64::from(ours), i64::from(fd)) })?
        == 0)
}

/// What its file is (statx(2)), as far as that is known here: no server is asked.
pub fn known(fd: &impl AsRawFd) -> io::Result<libc::statx> {
    const FLAGS: i32 = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the path is an empty string; `out` is plain old data, valid for the call to write.
    unsafe {
        let mut out: libc::statx = std::mem::zeroed();
        let result = libc::statx(fd.as_raw_fd(), c"".as_ptr(), FLAGS, libc::STATX_BASIC_STATS, &mut out);
        check(i64::from(result))?;
        Ok(out)
    }
}

/// The kind of its file system (`f_type` of statfs(2)).
pub fn file_system(fd: &impl AsRawFd) -> io::Result<i64> {
    // SAFETY: `statfs` is plain old data, valid for the call to write.
    unsafe {
        let mut out: libc::statfs = std::mem::zeroed();
        check(i64::from(libc::fstatfs(fd.as_raw_fd(), &mut out)))?;
        Ok(out.f_type as i64)
    }
}

/// Opens its file anew for reading: a description of its own, with its own position. Never waits for somebody's lease.
pub fn open_anew(fd: &OwnedFd, flags: i32) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}\0", fd.as_raw_fd());
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY | (flags & libc::O_NOATIME);
    // SAFETY: `path` ends with a zero byte and lives through the call; the new descriptor is ours.
    unsafe {
        let new = check(i64::from(libc::open(path.as_ptr().cast(), flags)))?;
        Ok(File::from_raw_fd(new as i32))
    }
}

/// Reads at `offset` what is in memory already, at most `most` bytes, behind what `into` has. An error of kind WouldBlock: the disk has to be asked; it has
/// been asked to bring them.
pub fn read_at_once(file: &File, into: &mut Vec<u8>, most: usize, offset: u64) -> io::Result<usize> {
    const RWF_NOWAIT: i32 = 8;
    into.reserve(most);
    let free = into.spare_capacity_mut();
    let most = most.min(free.len());
    let part = libc::iovec { iov_base: free.as_mut_ptr().cast(), iov_len: most };
    // SAFETY: `part` describes memory of ours, to which the kernel writes.
    let got = unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, offset as i64, RWF_NOWAIT) };
    match check(got as i64) {
        Ok(got) => {
            // SAFETY: so many bytes have been written.
            unsafe { into.set_len(into.len() + got as usize) };
            Ok(got as usize)
        }
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            // SAFETY: no pointers.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), offset as i64, most as i64, libc::POSIX_FADV_WILLNEED) };
            Err(e)
        }
        Err(e) => Err(e),
    }
}
