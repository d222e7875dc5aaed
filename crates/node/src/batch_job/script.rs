//! A batch job's script as a file: `$0` is its name, as with Slurm. It is beside the node's state, in a directory of the run, where its user may read and
//! execute it and nobody may write; it goes with the job, or with what is told of its end.

use super::Task;
use crate::queue::errand::Order;
use pando_kernel::rank;
use pando_queue::Work;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown};
use std::path::{Path, PathBuf};

/// What Slurm calls it.
const NAME: &str = "slurm_script";
/// Users pass through the directory of all, and see no names there.
const THROUGH: u32 = 0o711;

/// Gone with this.
pub struct Script {
    dir: PathBuf,
}

impl Drop for Script {
    fn drop(&mut self) {
        remove_dir(&self.dir);
    }
}

fn remove_dir(dir: &Path) {
    // It may be gone, or never have been there: most jobs of a program have none.
    let _ = fs::remove_file(dir.join(NAME));
    let _ = fs::remove_dir(dir);
}

/// That of a run with this file in the node's state.
fn dir(run: &Path) -> Option<PathBuf> {
    let state = run.parent()?.parent()?;
    let mut name = state.file_name()?.to_owned();
    name.push("-scripts");
    Some(state.with_file_name(name).join(run.file_name()?))
}

/// Of a run whose helper may not have done it.
pub fn remove(run: &Path) {
    dir(run).into_iter().for_each(|dir| remove_dir(&dir));
}

impl Script {
    /// Makes it for a user (number and group; none: for ourselves). It may be that he does not get there.
    pub fn make(text: &[u8], run: &Path, user: Option<(u32, u32)>) -> io::Result<Script> {
        let dir = dir(run).ok_or(io::ErrorKind::NotFound)?;
        let base = dir.parent().ok_or(io::ErrorKind::NotFound)?;
        match DirBuilder::new().mode(THROUGH).create(base) {
            // Whatever the mask is.
            Ok(()) => fs::set_permissions(base, Permissions::from_mode(THROUGH))?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_ours(base)? => {}
            Err(e) => return Err(e),
        }
        // What an earlier helper has left, who was killed before it began anything.
        remove_dir(&dir);
        DirBuilder::new().mode(0o700).create(&dir)?;
        let made = Script { dir };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(made.path())?;
        file.write_all(text)?;
        give(&file, &made.dir, user)?;
        drop(file);
        rank::as_user(user, || File::open(made.path()))?;
        Ok(made)
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.dir.join(NAME)
    }
}

fn give(file: &File, dir: &Path, user: Option<(u32, u32)>) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(0o500))?;
    if let Some((uid, gid)) = user {
        fchown(file.as_fd(), Some(uid), Some(gid))?;
        lchown(dir, None, Some(gid))?;
        fs::set_permissions(dir, Permissions::from_mode(0o750))?;
    }
    Ok(())
}

/// Is it a directory, and can nobody else write in it?
fn is_ours(path: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    Ok(found.is_dir() && found.uid() == crate::sys::effective_uid() && found.mode() & 0o022 == 0)
}

/// The file of a script. Where its user does not get there it has none: then it is in memory.
pub fn of(task: &Task, who: Option<(u32, u32)>) -> Option<Script> {
    let Work::Script { text, .. } = &task.order.work else { return None };
    let made = Script::make(&text.0, &task.file, who);
    made.inspect_err(|e| eprintln!("pando: the script of job {}: {e}; it has no name", task.order.key.id)).ok()
}

/// Its words, and for a script without a name its file, which the interpreter opens.
pub fn command(order: &Order, named: Option<PathBuf>) -> io::Result<(Vec<OsString>, Option<File>)> {
    let words = |all: &[pando_queue::Bytes]| all.iter().map(|w| OsStr::from_bytes(&w.0).to_owned()).collect::<Vec<_>>();
    match &order.work {
        Work::Words(all) if all.is_empty() => Ok((vec![OsString::new()], None)),
        Work::Words(all) => Ok((words(all), None)),
        Work::Script { arguments, .. } if let Some(path) = named => {
            let mut all = vec![path.into_os_string()];
            all.extend(words(arguments));
            Ok((all, None))
        }
        Work::Script { text, arguments } => {
            let file = pando_kernel::unnamed::program(&text.0)?;
            let name = if order.name.is_empty() { "script" } else { &order.name };
            let mut all = vec![name.into()];
            all.extend(words(arguments));
            Ok((all, Some(file)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_a_name_and_goes() {
        let top = std::env::temp_dir().join(format!("pando-script-{}", std::process::id()));
        let state = top.join("state");
        fs::create_dir_all(state.join("batch")).unwrap();
        let run = state.join("batch/n1.7.0");
        for _ in 0..2 {
            let script = Script::make(b"#!/bin/sh\necho $0\n", &run, None).unwrap();
            let out = std::process::Command::new(script.path()).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), script.path().to_str().unwrap());
            // One whose helper was killed is made anew.
            std::mem::forget(script);
        }
        remove(&run);
        assert_eq!(fs::read_dir(top.join("state-scripts")).unwrap().count(), 0);
        fs::set_permissions(top.join("state-scripts"), Permissions::from_mode(0o777)).unwrap();
        assert!(Script::make(b"#!/bin/sh\n", &run, None).is_err(), "others could put another one there");
        fs::remove_dir_all(top).unwrap();
    }
}
