//! Project quotas: how much of its file system everything below a directory may take, as the kernel holds it to (ext4 with `prjquota`, xfs with
//! `pquota`). They bind programs that do not know of them; the owner of a file may take it out of its project.

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// What is ours among the numbers of projects begins here: administrators give small ones.
const OURS: u32 = 1 << 30;
/// An inode's number may be somebody else's project, who has left files there: then others are tried, so many.
const TRIES: u32 = 8;

const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801c_581f;
const FS_IOC_FSSETXATTR: libc::c_ulong = 0x401c_5820;
/// What is made below has the same project.
const PROJINHERIT: u32 = 0x200;
const PRJQUOTA: i32 = 2;
const Q_GETQUOTA: i32 = 0x80_0007;
const Q_SETQUOTA: i32 = 0x80_0008;
const Q_XGETQSTATV: i32 = 0x5808;
/// Projects are counted, and held to their limits.
const ENFORCED: u16 = 1 << 4 | 1 << 5;
const QIF_BLIMITS: u32 = 1;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent: u32,
    extents: u32,
    project: u32,
    cow_extent: u32,
    pad: [u8; 8],
}

/// `struct if_dqblk`.
#[repr(C)]
#[derive(Default)]
struct Account {
    hard_kb: u64,
    soft_kb: u64,
    bytes: u64,
    files_hard: u64,
    files_soft: u64,
    files: u64,
    bytes_until: u64,
    files_until: u64,
    valid: u32,
}

/// The project of one directory and all that is below it.
#[derive(Debug)]
pub struct Project {
    dir: File,
    number: u32,
}

fn quotactl(dir: &File, command: i32, project: u32, about: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: each caller gives what its command reads and writes, which lives through the call.
    let done = unsafe {
        libc::syscall(libc::SYS_quotactl_fd, dir.as_raw_fd(), command << 8 | PRJQUOTA, project as libc::c_int, about)
    };
    check(done).map(|_| ())
}

fn account(dir: &File, project: u32) -> io::Result<Account> {
    let mut about = Account::default();
    match quotactl(dir, Q_GETQUOTA, project, (&raw mut about).cast()) {
        // xfs: nobody has had it yet.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(Account::default()),
        done => done.map(|()| about),
    }
}

fn limit(dir: &File, project: u32, bytes: u64) -> io::Result<()> {
    let mut about = Account { hard_kb: bytes.div_ceil(1024), valid: QIF_BLIMITS, ..Account::default() };
    quotactl(dir, Q_SETQUOTA, project, (&raw mut about).cast())
}

fn attributes(dir: &File) -> io::Result<Attributes> {
    let mut now = Attributes::default();
    // SAFETY: the kernel writes an fsxattr there, which it is.
    check(unsafe { libc::ioctl(dir.as_raw_fd(), FS_IOC_FSGETXATTR as _, &raw mut now) }.into())?;
    Ok(now)
}

fn set_attributes(dir: &File, new: &Attributes) -> io::Result<()> {
    // SAFETY: the kernel reads an fsxattr there, which it is.
    check(unsafe { libc::ioctl(dir.as_raw_fd(), FS_IOC_FSSETXATTR as _, std::ptr::from_ref(new)) }.into()).map(|_| ())
}

/// Numbers that a directory's project may have: as long as it is there, no other directory of this file system has its inode's number.
fn candidates(inode: u64) -> impl Iterator<Item = u32> {
    let first = OURS | (inode as u32 & (OURS - 1));
    let others = (1..TRIES).map(move |n| (OURS * 2) | (first.wrapping_mul(0x9e37_79b1).wrapping_add(n) & (OURS - 1)));
    std::iter::once(first).chain(others)
}

/// Does the file system of this directory hold projects to their limits? Asking needs no rights.
pub fn is_enforced(dir: &File) -> bool {
    // `struct fs_quota_statv`: a version, a byte, flags, and figures for which this is room enough.
    let mut said = [0u64; 32];
    said[0] = 1;
    quotactl(dir, Q_XGETQSTATV, 0, said.as_mut_ptr().cast())
        .is_ok_and(|()| (said[0] >> 16) as u16 & ENFORCED == ENFORCED)
}

impl Project {
    /// Makes an empty directory one, with a limit in bytes; 0: without one, its use is counted only.
    ///
    /// # Errors
    ///
    /// The kernel's, where the file system has no such quotas, or we have not the rights.
    pub fn begin(dir: File, bytes: u64) -> io::Result<Project> {
        let inode = dir.metadata()?.ino();
        for number in candidates(inode) {
            let now = account(&dir, number)?;
            if now.files > 0 || now.bytes > 0 {
                continue;
            }
            limit(&dir, number, bytes)?;
            let before = attributes(&dir)?;
            set_attributes(&dir, &Attributes { flags: before.flags | PROJINHERIT, project: number, ..before })?;
            return Ok(Project { dir, number });
        }
        Err(io::Error::other(format!("{TRIES} project numbers have been others'")))
    }

    /// Bytes that it has now.
    pub fn used(&self) -> io::Result<u64> {
        account(&self.dir, self.number).map(|about| about.bytes)
    }
}

/// The directory is to be removed: what is in it may be moved about, and the limit of its project is nobody's any more.
pub fn end(dir: &File) {
    let Ok(now) = attributes(dir) else { return };
    if now.flags & PROJINHERIT != 0 {
        let _ = set_attributes(dir, &Attributes { flags: now.flags & !PROJINHERIT, ..now });
    }
    // Not what its user may have made of it: that may be another one's.
    for number in dir.metadata().into_iter().flat_map(|about| candidates(about.ino())) {
        match account(dir, number) {
            Ok(about) if about.hard_kb > 0 => _ = limit(dir, number, 0),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ours_and_differ() {
        for inode in [0, 1, 12_345, u64::MAX, 1 << 40 | 7] {
            let all: Vec<u32> = candidates(inode).collect();
            assert!(all.iter().all(|n| (OURS..OURS * 3).contains(n)), "{inode}: {all:?}");
            assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), TRIES as usize, "{inode}");
        }
        assert_ne!(candidates(2).next(), candidates(3).next());
    }

    #[test]
    fn where_there_is_none_that_is_said() {
        let dir = std::env::temp_dir().join(format!("pando-quota-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = File::open(&dir).unwrap();
        if is_enforced(&file) {
            eprintln!("SKIPPED where_there_is_none_that_is_said: {} has project quotas", dir.display());
        } else {
            assert!(Project::begin(file.try_clone().unwrap(), 1 << 20).is_err());
            end(&file);
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
