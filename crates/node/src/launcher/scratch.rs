//! A directory for what a job's ranks need in files while they run, and nobody after: it goes when its launcher does, or at the latest when
//! somebody looks for what was left ([`sweep`]). Its launcher holds a lock on it for as long as it lives.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How all their names begin.
pub const PREFIX: &str = "pando-pmix-";
/// In memory, if there is such a place: ranks of a node put there what they share.
const IN_MEMORY: &str = "/dev/shm";
/// Somebody may sweep just when we begin.
const TRIES: usize = 10;

/// See above.
pub struct Scratch {
    root: PathBuf,
    /// Where the library may put things: only this process's user gets in.
    pub own: PathBuf,
    /// Where ranks may: only theirs does.
    pub ranks: PathBuf,
    _lock: File,
}

fn base() -> PathBuf {
    let memory = Path::new(IN_MEMORY);
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

impl Scratch {
    /// Makes one for the ranks of a user (number and group); none: of ours.
    pub fn make(user: Option<(u32, u32)>) -> io::Result<Scratch> {
        for _ in 0..TRIES {
            // Straight from the kernel: what keys are made with takes its time to get ready in a new process.
            let mut secret = [0; 8];
            File::open("/dev/urandom")?.read_exact(&mut secret)?;
            let name: String = secret.iter().map(|b| format!("{b:02x}")).collect();
            let root = base().join(format!("{PREFIX}{name}"));
            DirBuilder::new().mode(0o700).create(&root)?;
            let Ok(lock) = open(&root) else { continue };
            if lock.try_lock().is_err() || !root.is_dir() {
                continue;
            }
            let made = Scratch { own: root.join("server"), ranks: root.join("ranks"), root, _lock: lock };
            for (path, mode) in [(&made.own, 0o700), (&made.ranks, 0o700)] {
                DirBuilder::new().mode(mode).create(path)?;
            }
            if let Some((uid, gid)) = user {
                std::os::unix::fs::lchown(&made.ranks, Some(uid), Some(gid))?;
                // The user passes through it.
                let through = std::os::unix::fs::PermissionsExt::from_mode(0o711);
                std::fs::set_permissions(&made.root, through)?;
            }
            return Ok(made);
        }
        Err(io::Error::other(format!("no directory of its own in {}", base().display())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// Takes away what launchers that were killed have left on this machine, if it is ours.
pub fn sweep() {
    let Ok(entries) = std::fs::read_dir(base()) else { return };
    let me = crate::sys::effective_uid();
    for entry in entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = entry.path();
        let Ok(held) = open(&path) else { continue };
        if held.metadata().is_ok_and(|about| about.uid() == me) && held.try_lock().is_ok() {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}
