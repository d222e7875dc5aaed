//! Opening a plain file below a directory, and nothing else, with the rights of somebody else.

use crate::check;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// The group of those who have none.
const NO_GROUP: u32 = 65_534;

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// RESOLVE_NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH: no way leads out of the directory, nor to another file system.
const NO_WAY_OUT: u64 = 1 | 2 | 4 | 8;

fn openat2(at: i32, path: impl AsRef<OsStr>, flags: i32, resolve: u64) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_ref().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let how = OpenHow { flags: (flags | libc::O_CLOEXEC) as u64, mode: 0, resolve };
    // SAFETY: `path` ends with a zero byte; it and `how` live through the call; the new descriptor is ours.
    unsafe {
        let new = check(libc::syscall(libc::SYS_openat2, at, path.as_ptr(), &raw const how, size_of::<OpenHow>()))?;
        Ok(OwnedFd::from_raw_fd(new as i32))
    }
}

/// Opens the plain file at `path` below `root` for reading. `uid`: with the rights of this user, without those of any group; of this thread alone.
/// Nothing that is not a plain file is opened, so that nothing happens to it.
pub fn open(root: &str, path: &str, uid: Option<u32>) -> io::Result<File> {
    let root = openat2(libc::AT_FDCWD, root, libc::O_PATH | libc::O_DIRECTORY, 0)?;
    let _as_user = uid.map(Rights::of).transpose()?;
    let named = openat2(root.as_raw_fd(), path, libc::O_PATH | libc::O_NOFOLLOW, NO_WAY_OUT)?;
    let named = File::from(named);
    if !named.metadata()?.is_file() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // By its path once more, since a magic link would not ask for the rights along the way; that it is the same file is looked at then.
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let file = File::from(openat2(root.as_raw_fd(), path, flags, NO_WAY_OUT)?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// Opens a directory below one that is open: no way leads out, nor to another file system.
pub fn directory(top: &File, path: &std::path::Path) -> io::Result<File> {
    openat2(top.as_raw_fd(), path, libc::O_RDONLY | libc::O_DIRECTORY, NO_WAY_OUT).map(File::from)
}

/// Opens a file as its path says, but by no magic link (`/proc/self/fd/3`): those lead to what this process has open, whatever the rights along the way.
pub fn open_plainly(path: &std::path::Path, flags: i32) -> io::Result<File> {
    const NO_MAGICLINKS: u64 = 2;
    let path = path.to_str().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput));
    openat2(libc::AT_FDCWD, path?, flags, NO_MAGICLINKS).map(File::from)
}

/// May this process take the rights of other users?
pub fn may_be_others() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// The rights of another user, of this thread, as long as it lives. Needs root; with them the capabilities that pass over permissions are away.
struct Rights;

impl Rights {
    fn of(uid: u32) -> io::Result<Rights> {
        // SAFETY: plain numbers; the raw calls change this thread only.
        unsafe {
            check(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
            let rights = Rights;
            libc::syscall(libc::SYS_setfsgid, NO_GROUP);
            libc::syscall(libc::SYS_setfsuid, uid);
            // They say what was before, whatever they did.
            let now = libc::syscall(libc::SYS_setfsuid, u32::MAX);
            let group = libc::syscall(libc::SYS_setfsgid, u32::MAX);
            if now as u32 != uid || group as u32 != NO_GROUP || uid == 0 {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            Ok(rights)
        }
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        // SAFETY: plain numbers; who came here is root.
        unsafe {
            libc::syscall(libc::SYS_setfsuid, 0);
            libc::syscall(libc::SYS_setfsgid, 0);
        }
    }
}
