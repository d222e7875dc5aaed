//! Scratch directories (`[node] scratch`): each job has one of its own at its nodes, with its user's rights, and nothing of it is left when it has
//! ended. A limit (`--scratch`) is held by the kernel where the file system has project quotas; elsewhere what is there is counted.

pub mod count;
pub mod remove;

use count::Counts;
use pando_kernel::quota::{self, Project};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a job finds it.
pub const VARIABLE: &str = "PANDO_SCRATCH";
/// And how many megabytes it may have there, if there is a limit.
pub const VARIABLE_MB: &str = "PANDO_SCRATCH_MB";
/// Programs put there what is temporary.
pub const TEMPORARY: &str = "TMPDIR";
/// When a daemon begins it is looked for so long at what is there.
const LOOKS: Duration = Duration::from_secs(2);
/// Users pass through the directory of all, and see no names there.
const THROUGH: u32 = 0o711;

/// Where a node has them.
#[derive(Clone, Debug)]
pub struct Place {
    base: PathBuf,
    /// Megabytes that jobs may be promised.
    pub total_mb: u32,
    /// The kernel holds limits.
    pub held: bool,
}

/// One that a job is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// It is made.
    pub dir: PathBuf,
    /// 0: as much as there is.
    pub limit_mb: u64,
    /// The kernel can hold that.
    pub held: bool,
}

impl Place {
    /// In a directory that an administrator has named, for a node. `of`: megabytes that jobs may be promised; what is free there now, and what earlier
    /// jobs have there, if nobody has said it.
    pub fn open(dir: &Path, node: &str, of: Option<u32>) -> io::Result<Place> {
        let base = dir.join(format!("pando-{node}"));
        match DirBuilder::new().mode(THROUGH).create(&base) {
            // Whatever the mask is.
            Ok(()) => fs::set_permissions(&base, Permissions::from_mode(THROUGH))?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_ours(&base)? => {}
            Err(e) => return Err(e),
        }
        let total = || {
            let had = count::bytes(&base, LOOKS).unwrap_or(0) >> 20;
            Ok::<u64, io::Error>(count::free_mb(&base)?.saturating_add(had))
        };
        let total_mb = of.map_or_else(|| total().map(|mb| u32::try_from(mb).unwrap_or(u32::MAX)), Ok)?;
        let held = is_held(&base);
        Ok(Place { base, total_mb, held })
    }

    /// That of a job, by a name that no other has had.
    pub fn wanted(&self, name: &str, limit_mb: u64) -> Wanted {
        Wanted { dir: self.base.join(name), limit_mb, held: self.held }
    }

    /// All that are there but those.
    pub fn others(&self, but: &[PathBuf]) -> Vec<PathBuf> {
        let all = fs::read_dir(&self.base).into_iter().flatten().flatten().map(|found| found.path());
        all.filter(|dir| !but.contains(dir)).collect()
    }
}

/// Is it a directory, and can nobody else write in it?
fn is_ours(path: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    Ok(found.is_dir() && found.uid() == crate::sys::effective_uid() && found.mode() & 0o022 == 0)
}

/// The file system says that it holds limits, and we may set them: it is tried.
fn is_held(base: &Path) -> bool {
    let dir = base.join("try");
    let tried = || {
        let _ = remove::remove(&dir);
        DirBuilder::new().mode(0o700).create(&dir)?;
        let open = open(&dir)?;
        Ok::<bool, io::Error>(quota::is_enforced(&open) && Project::begin(open, 1 << 20).is_ok())
    };
    let held = tried().unwrap_or(false);
    let _ = remove::remove(&dir);
    held
}

fn open(dir: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(dir)
}

/// One that is there. With this it goes.
pub struct Scratch {
    dir: PathBuf,
    /// Bytes; 0: none.
    limit: u64,
    project: Option<Project>,
    counts: Counts,
    /// The most bytes that were seen there.
    peak: u64,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = remove::remove(&self.dir) {
            // The next daemon tries again.
            eprintln!("pando: the scratch directory {}: {e}", self.dir.display());
        }
    }
}

impl Scratch {
    /// Makes it for a user (number and group); none: for ourselves.
    pub fn make(wanted: &Wanted, user: Option<(u32, u32)>) -> io::Result<Scratch> {
        let dir = wanted.dir.clone();
        // What an earlier helper has left, who was killed before it began anything.
        remove::remove(&dir)?;
        DirBuilder::new().mode(0o700).create(&dir)?;
        let limit = wanted.limit_mb << 20;
        let mut made = Scratch { dir, limit, project: None, counts: Counts::default(), peak: 0 };
        let fresh = open(&made.dir)?;
        made.project = wanted.held.then(|| Project::begin(fresh, limit)).transpose()?;
        if let Some((uid, gid)) = user {
            lchown(&made.dir, Some(uid), Some(gid))?;
        }
        // Whatever the mask is.
        fs::set_permissions(&made.dir, Permissions::from_mode(0o700))?;
        Ok(made)
    }

    /// What a program finds of it in its environment.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let path = self.dir.to_string_lossy().into_owned();
        let mut all = vec![(VARIABLE, path.clone()), (TEMPORARY, path)];
        all.extend((self.limit > 0).then(|| (VARIABLE_MB, (self.limit >> 20).to_string())));
        all
    }

    /// The most megabytes that were seen there.
    pub fn peak_mb(&self) -> u64 {
        self.peak.div_ceil(1 << 20)
    }

    /// How much is there now? Asked for now and then: where it is counted that takes its time, and the answer is that of a while ago. Gives bytes and limit, if
    /// there are more than there may be: root is held to no quota by the kernel.
    pub fn look(&mut self) -> Option<(u64, u64)> {
        let now = match &self.project {
            Some(project) => project.used().unwrap_or(0),
            None => self.counts.look(&self.dir),
        };
        self.peak = self.peak.max(now);
        (self.limit > 0 && now > self.limit).then_some((now, self.limit))
    }

    /// The same for the last time: nobody writes there any more.
    pub fn look_again(&mut self) {
        let now = match &self.project {
            Some(project) => project.used().unwrap_or(0),
            None => self.counts.finish(&self.dir),
        };
        self.peak = self.peak.max(now);
    }
}

#[cfg(test)]
mod tests;
