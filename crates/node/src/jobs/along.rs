//! The directory in which a job's ranks find the files that came along. Only we can write in it, so that nobody leads us astray when it goes: at
//! the job's end, whatever ends it, or when the next daemon begins ([`sweep`]). It is beside our state, which is closed to users.

use pando_kernel::rank;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Users pass through the directory of all jobs, and see no names there.
const THROUGH: u32 = 0o711;

/// See above.
pub struct Along {
    path: PathBuf,
}

/// Where all of them are, of the node with this state.
pub fn base(state: &Path) -> PathBuf {
    let mut name = state.file_name().unwrap_or_default().to_owned();
    name.push("-jobs");
    state.with_file_name(name)
}

/// Is it a directory, and can nobody else write in it?
fn is_ours(path: &Path) -> bool {
    let me = crate::sys::effective_uid();
    fs::symlink_metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == me && m.mode() & 0o022 == 0)
}

impl Along {
    /// Makes one for a user (number and group).
    pub fn make(base: &Path, user: (u32, u32)) -> io::Result<Along> {
        match DirBuilder::new().mode(THROUGH).create(base) {
            // Whatever the mask is.
            Ok(()) => fs::set_permissions(base, Permissions::from_mode(THROUGH))?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_ours(base) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let text = format!("others can write in {}: it is to be the node's own", base.display());
                return Err(io::Error::other(text));
            }
            Err(e) => return Err(e),
        }
        // Who does not know its name does not find it.
        let mut secret = [0; 16];
        pando_wire::token::random(&mut secret);
        let name: String = secret.iter().map(|b| format!("{b:02x}")).collect();
        let made = Along { path: base.join(name) };
        DirBuilder::new().mode(0o700).create(&made.path)?;
        if crate::sys::effective_uid() == 0 {
            std::os::unix::fs::lchown(&made.path, Some(0), Some(user.1))?;
            fs::set_permissions(&made.path, Permissions::from_mode(0o750))?;
            rank::as_user(Some(user), || fs::metadata(made.path.join(".")))
                .map_err(|e| io::Error::new(e.kind(), format!("its user does not get into {}: {e}", base.display())))?;
        }
        Ok(made)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Along {
    fn drop(&mut self) {
        clear(&self.path);
    }
}

/// There are only files and links in it: nothing is followed.
fn clear(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let _ = fs::remove_file(entry.path());
    }
    if let Err(e) = fs::remove_dir(path) {
        tracing::warn!("jobs: {} is left: {e}", path.display());
    }
}

/// Takes away what an earlier daemon has left: there are no jobs yet.
pub fn sweep(base: &Path) {
    if !is_ours(base) {
        return;
    }
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    entries.map(|e| e.path()).filter(|path| is_ours(path)).for_each(|path| clear(&path));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_left_goes_and_nothing_is_followed() {
        let dir = std::env::temp_dir().join(format!("pando-along-{}", std::process::id()));
        let (state, treasure) = (dir.join("state"), dir.join("treasure"));
        fs::create_dir_all(&treasure).unwrap();
        fs::write(treasure.join("x"), "x").unwrap();
        let (base, me) = (base(&state), (crate::sys::effective_uid(), crate::sys::effective_gid()));
        let along = Along::make(&base, me).unwrap();
        fs::write(along.path().join("file"), "y").unwrap();
        symlink(&treasure, along.path().join("link")).unwrap();
        symlink(&treasure, base.join("link")).unwrap();
        let path = along.path().to_owned();
        std::mem::forget(along);
        sweep(&base);
        assert!(!path.exists() && treasure.join("x").exists() && base.join("link").exists());
        // Where others can write nothing is made, and nothing taken away.
        let along = Along::make(&base, me).unwrap();
        fs::set_permissions(&base, Permissions::from_mode(0o777)).unwrap();
        sweep(&base);
        assert!(along.path().exists());
        assert!(Along::make(&base, me).err().unwrap().to_string().contains("others can write in"));
        fs::remove_dir_all(&base).unwrap();
        symlink(&treasure, &base).unwrap();
        sweep(&base);
        assert!(Along::make(&base, me).is_err() && treasure.join("x").exists());
        drop(along);
        fs::remove_dir_all(&dir).unwrap();
    }
}
