//! A file that the process cuts short under a private mapping of its own.
//!
//! The kernel takes away what lies beyond the new end, pages that the program has written too, and touching it is SIGBUS from then on. What is
//! abroad of these pages is beyond its reach, so the call is made when all of the process is here.

use super::memory::View;
use super::{Deputy, Result};
use pando_calls::Memory;
use pando_kernel::page_ceil;
use pando_kernel::procfs::{self, Mapping};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// PATH_MAX.
const LONGEST_PATH: usize = 4096;
const PAGE: usize = pando_kernel::PAGE as usize;

/// Which file a call cuts short, and to what size.
enum Cut {
    Descriptor(i32, u64),
    /// From the directory of a descriptor, or AT_FDCWD.
    Path(i32, u64, u64),
}

fn cut(nr: u64, a: &[u64; 6]) -> Option<Cut> {
    let truncates = |flags: u64| flags & libc::O_TRUNC as u64 != 0;
    match nr as i64 {
        libc::SYS_ftruncate => Some(Cut::Descriptor(a[0] as i32, a[1])),
        libc::SYS_truncate => Some(Cut::Path(libc::AT_FDCWD, a[0], a[1])),
        libc::SYS_creat => Some(Cut::Path(libc::AT_FDCWD, a[0], 0)),
        libc::SYS_open if truncates(a[1]) => Some(Cut::Path(libc::AT_FDCWD, a[0], 0)),
        libc::SYS_openat if truncates(a[2]) => Some(Cut::Path(a[0] as i32, a[1], 0)),
        _ => None,
    }
}

impl Deputy {
    /// Does this call take pages of a private mapping away? A path leads there if it ends in the name by which the file was mapped.
    pub(super) fn cuts_its_map(&self, nr: u64, args: &[u64; 6]) -> bool {
        let Some(cut) = cut(nr, args) else { return false };
        let mut maps = procfs::maps(self.pid).unwrap_or_default();
        maps.retain(|m| !m.shared && m.inode != 0);
        // A file is asked about only if it may be one of these: its server may be slow to answer, and we must not be.
        let (file, size) = match cut {
            Cut::Descriptor(fd, size) => {
                let inode = procfs::descriptor(self.pid, fd).map(|d| d.inode).filter(|&inode| inode != 0);
                maps.retain(|m| inode.is_none_or(|inode| m.inode == inode));
                (format!("/proc/{}/fd/{fd}", self.pid).into(), size)
            }
            Cut::Path(from, at, size) => {
                let Some(path) = self.path_at(from, at) else { return false };
                maps.retain(|m| Path::new(m.name.trim_end_matches(" (deleted)")).file_name() == path.file_name());
                (path, size)
            }
        };
        if maps.is_empty() {
            return false;
        }
        let Ok(file) = std::fs::metadata(file) else { return false };
        let end = page_ceil(size);
        // The device is left out: some file systems show another one here than there.
        let reaches = |m: &Mapping| m.inode == file.ino() && m.offset.saturating_add(m.end - m.start) > end;
        file.is_file() && file.size() > size && maps.iter().any(reaches)
    }

    /// Where a path in the program's memory leads, seen from here.
    fn path_at(&self, from: i32, at: u64) -> Option<PathBuf> {
        let mut text = Vec::new();
        while text.len() < LONGEST_PATH {
            // Page by page: the next one need not be there.
            let place = at.saturating_add(text.len() as u64);
            let mut part = vec![0; PAGE - place as usize % PAGE];
            let got = View(&self.memory).read(place, &mut part);
            let end = part[..got].iter().position(|&b| b == 0);
            text.extend_from_slice(&part[..end.unwrap_or(got)]);
            if end.is_some() {
                let base = match (text.first(), from) {
                    (Some(b'/'), _) => "root".to_string(),
                    (_, libc::AT_FDCWD) => "cwd".to_string(),
                    (_, fd) => format!("fd/{fd}"),
                };
                let path = OsStr::from_bytes(text.strip_prefix(b"/").unwrap_or(&text));
                return Some(Path::new(&format!("/proc/{}/{base}", self.pid)).join(path));
            }
            if got < part.len() {
                return None;
            }
        }
        None
    }

    /// Keeps such a call until the process is home.
    pub(super) fn cut_at_home(&mut self) -> Result<()> {
        self.come_home_for("it cuts a file short that it has mapped")
    }
}
