//! Removes a directory that its user has filled, as whoever is root must: no link in it leads anywhere, it may be deeper than there are descriptors, and
//! others of that user may still be writing there.

use super::count::{entries, path_of};
use pando_kernel::quota;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Each round takes away a level, and what somebody has made meanwhile: so long it goes on.
const LONGEST: Duration = Duration::from_secs(300);
/// What was deeper gets this name at the top, with a number.
const RAISED: &str = ".pando-raised-";

/// Removes it; that it is not there is as well.
pub fn remove(dir: &Path) -> io::Result<()> {
    let top = match super::open(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        // It is no directory, or one that its own user may not read.
        Err(_) if fs::symlink_metadata(dir)?.is_dir() => {
            open_to_us(dir);
            super::open(dir)?
        }
        Err(_) => return fs::remove_file(dir),
        Ok(top) => top,
    };
    open_to_us(dir);
    quota::end(&top);
    let mut raised = 0;
    let begun = Instant::now();
    while round(&top, &mut raised)? && begun.elapsed() < LONGEST {}
    fs::remove_dir(dir)
}

/// One's own directories may be closed even to oneself; root needs no such thing.
fn open_to_us(dir: &Path) {
    if crate::sys::effective_uid() != 0 {
        let _ = fs::set_permissions(dir, Permissions::from_mode(0o700));
    }
}

/// Removes what is at the top, and raises what was below that. Gives whether there was anything.
fn round(top: &File, raised: &mut u64) -> io::Result<bool> {
    let (mut found, mut failed) = (false, Ok(()));
    for entry in entries(top)? {
        let entry = entry?;
        let here = path_of(top).join(entry.file_name());
        let done = match entry.file_type()?.is_dir() {
            true => empty(top, &here, raised).and_then(|()| fs::remove_dir(&here)),
            false => fs::remove_file(&here),
        };
        // Of several only some may be stubborn.
        match done {
            Err(e) if e.kind() != io::ErrorKind::NotFound => failed = failed.and(Err(e)),
            _ => found = true,
        }
    }
    // Somebody may have put something into what was just emptied: another round takes that.
    if found { Ok(true) } else { failed.map(|()| false) }
}

fn empty(top: &File, dir: &Path, raised: &mut u64) -> io::Result<()> {
    open_to_us(dir);
    let open = super::open(dir)?;
    // What is raised must not be held to be another project's.
    quota::end(&open);
    for entry in entries(&open)? {
        let entry = entry?;
        let here = path_of(&open).join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => {
                open_to_us(&here);
                *raised += 1;
                fs::rename(&here, path_of(top).join(format!("{RAISED}{raised}")))?;
            }
            false => fs::remove_file(&here)?,
        }
    }
    Ok(())
}
