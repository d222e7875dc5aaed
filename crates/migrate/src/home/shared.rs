//! Files on file systems that the other node has, too (docs/decisions/0019): home says which file it is, and it is read there.
//!
//! Nothing here may wait for a server: what is not known is not asked for.

use super::files::Stamp;
use super::{Deputy, Result};
use crate::message::{Down, MAX_WAY};
use pando_kernel::procfs;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

/// Files that could not be read there; if there are more, none is tried any more.
const MOST_ELSEWHERE: usize = 1024;
/// Files that have been offered at a time.
const MOST_OFFERED: usize = 4096;

/// Those that have been spoken of.
#[derive(Debug, Default)]
pub(super) struct SharedFiles {
    offered: BTreeMap<u64, Stamp>,
    /// Those that the other node has not, by device and inode.
    elsewhere: BTreeSet<(u64, u64)>,
}

impl SharedFiles {
    /// The name of this file: the one that it has, or `next`.
    pub fn offer(&mut self, next: u64, stamp: Stamp) -> u64 {
        let known = self.offered.iter().find(|(_, s)| s.is_same_file(&stamp)).map(|(id, _)| *id);
        let id = known.unwrap_or(next);
        self.offered.insert(id, stamp);
        id
    }

    fn may_offer(&self, stamp: &Stamp) -> bool {
        let room = self.offered.len() < MOST_OFFERED && self.elsewhere.len() < MOST_ELSEWHERE;
        room && !self.elsewhere.contains(&stamp.file())
    }
}

/// A declared directory below which a file is, by name, and the way from there.
#[derive(Debug)]
pub(super) struct Way {
    pub below: String,
    pub path: String,
}

impl Deputy {
    /// Where the file is, by its path alone: whether it is that file the other node sees for itself.
    pub(super) fn shared_way(&self, theirs: &OwnedFd) -> Option<Way> {
        let link = match self.order.shared.is_empty() {
            true => return None,
            false => fs::read_link(format!("/proc/self/fd/{}", theirs.as_raw_fd())).ok()?,
        };
        let link = link.to_str()?;
        let way = |(name, directory): &(String, String)| {
            let path = link.strip_prefix(directory.trim_end_matches('/'))?.strip_prefix('/')?;
            (path.len() <= MAX_WAY).then(|| Way { below: name.clone(), path: path.to_owned() })
        };
        self.order.shared.iter().find_map(way)
    }

    /// May it be read there? Not what the process itself has open for writing: that may come to the file system late.
    pub(super) fn may_be_shared(&self, stamp: &Stamp) -> bool {
        let Ok(all) = fs::read_dir(format!("/proc/{}/fd", self.pid)) else { return false };
        let writes = |fd: i32| procfs::descriptor(self.pid, fd).is_none_or(|d| d.writes && d.inode == stamp.file().1);
        let numbers = all.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
        self.files.shared_files.may_offer(stamp) && !numbers.into_iter().any(writes)
    }

    /// The process has made a call that may have opened one of them for writing: it is read here from now on.
    pub(super) fn mind_own_writes(&mut self, nr: u64, ret: i64) -> Result<()> {
        let opens = [libc::SYS_open, libc::SYS_openat, libc::SYS_openat2, libc::SYS_creat];
        let fd = i32::try_from(ret).ok().filter(|fd| *fd >= 0 && opens.contains(&(nr as i64)));
        let Some(fd) = fd.filter(|_| !self.files.shared_files.offered.is_empty()) else { return Ok(()) };
        let Some(opened) = procfs::descriptor(self.pid, fd).filter(|d| d.writes) else { return Ok(()) };
        let same = |(id, known): (&u64, &Stamp)| (known.file().1 == opened.inode).then_some(*id);
        let ids: Vec<u64> = self.files.shared_files.offered.iter().filter_map(same).collect();
        for id in ids {
            self.files.shared_files.offered.remove(&id);
            self.tell(&Down::Unshared(id), &[])?;
        }
        Ok(())
    }

    /// The other node has not this file.
    pub(super) fn on_not_shared(&mut self, id: u64) -> Result<()> {
        // It may cross with our word that it is not to be read there any more.
        if id > self.files.last_id() {
            return Err(self.broken(&format!("file {id}, which it does not have")));
        }
        if let Some(stamp) = self.files.shared_files.offered.remove(&id) {
            self.files.shared_files.elsewhere.insert(stamp.file());
        }
        Ok(())
    }
}
