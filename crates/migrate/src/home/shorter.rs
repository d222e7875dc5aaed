//! A file that the process cuts short under a private mapping of its own.
//!
//! The kernel takes away what lies beyond the new end, pages that the program has written too, and touching it is SIGBUS from then on. What is
//! abroad of these pages is beyond its reach, so the call is made when all of the process is here.

use super::memory::View;
use super::{Deputy, Result};
use pando_calls::Memory;
use pando_kernel::{page_ceil, procfs};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

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
    /// Does this call take pages of a private mapping away? (Only of a file that it could cut short, and as the path leads there now.)
    pub(super) fn cuts_its_map(&self, nr: u64, args: &[u64; 6]) -> bool {
        let (file, size) = match cut(nr, args) {
            None => return false,
            Some(Cut::Descriptor(fd, size)) => (format!("/proc/{}/fd/{fd}", self.pid).into(), size),
            Some(Cut::Path(from, at, size)) => match self.path_at(from, at) {
                Some(path) => (path, size),
                None => return false,
            },
        };
        let Ok(file) = std::fs::metadata(file) else { return false };
        if !file.is_file() || file.size() <= size {
            return false;
        }
        let end = page_ceil(size);
        let maps = procfs::maps(self.pid).unwrap_or_default();
        // The device is left out: some file systems show another one here than there.
        maps.iter().any(|m| !m.shared && m.inode == file.ino() && m.offset + (m.end - m.start) > end)
    }

    /// Where a path in the program's memory leads, seen from here.
    fn path_at(&self, from: i32, at: u64) -> Option<std::path::PathBuf> {
        let mut text = Vec::new();
        while text.len() < LONGEST_PATH {
            // Page by page: the next one need not be there.
            let place = at + text.len() as u64;
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
                return Some(std::path::Path::new(&format!("/proc/{}/{base}", self.pid)).join(path));
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
