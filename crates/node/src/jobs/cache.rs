//! Files that came with jobs, by their content: a second job brings nothing. Each user has his own; ranks can read and execute them, and not
//! change them (in system mode, where they are root's).

use pando_kernel::rank;
use pando_launch::{Parcel, sum};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files whose content is known, at most.
const KNOWN: usize = 1024;
/// Mode of what is kept.
const MODE: u32 = 0o555;

/// What changes when a file does. A kept one gets and loses names while nobody changes it.
type Looks = (u64, u64, u64, (i64, i64), (i64, i64));

fn looks(file: &File, kept: bool) -> io::Result<Looks> {
    let m = file.metadata()?;
    let changed = if kept { (0, 0) } else { (m.ctime(), m.ctime_nsec()) };
    Ok((m.dev(), m.ino(), m.size(), (m.mtime(), m.mtime_nsec()), changed))
}

/// The directory, and what is known of its files and others.
pub struct Cache {
    dir: PathBuf,
    /// Bytes of all that is kept.
    most: u64,
    /// Files that have been read, and the names of their contents.
    known: Mutex<BTreeMap<Looks, String>>,
    /// So many have come.
    count: AtomicU64,
}

/// One that comes.
pub struct Coming {
    file: File,
    path: PathBuf,
    goes_to: PathBuf,
}

impl Drop for Coming {
    fn drop(&mut self) {
        // Kept under its name by then, or never complete.
        let _ = fs::remove_file(&self.path);
    }
}

impl Cache {
    /// In this directory; what did not come whole before goes.
    pub fn open(dir: PathBuf, most: u64) -> Cache {
        for user in fs::read_dir(&dir).into_iter().flatten().flatten() {
            for entry in fs::read_dir(user.path()).into_iter().flatten().flatten() {
                if entry.path().extension().is_some() {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
        Cache { dir, most, known: Mutex::default(), count: AtomicU64::new(0) }
    }

    /// Bytes of all that may be kept.
    pub fn most(&self) -> u64 {
        self.most
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Looks, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, uid: u32, name: &str) -> PathBuf {
        self.dir.join(uid.to_string()).join(name)
    }

    /// The file with this content that came for this user before.
    pub fn find(&self, uid: u32, parcel: &Parcel) -> Option<File> {
        let path = self.place(uid, &parcel.content());
        let file = File::open(&path).ok()?;
        let me = crate::sys::effective_uid();
        let is_ours = file.metadata().is_ok_and(|m| m.uid() == me && m.mode() & 0o7777 == MODE);
        if !is_ours || !self.holds(&file, parcel, true) {
            // Its owner has changed it.
            let _ = fs::remove_file(&path);
            return None;
        }
        // The one that was used last goes last.
        let used = file.set_modified(std::time::SystemTime::now()).and_then(|()| looks(&file, true));
        let _ = used.map(|now| self.remember(now, parcel.content()));
        Some(file)
    }

    /// One that was found, or has come.
    pub fn open_kept(&self, uid: u32, parcel: &Parcel) -> io::Result<File> {
        File::open(self.place(uid, &parcel.content()))
    }

    /// Gives it another name: it stays for as long as it has one.
    pub fn link(&self, uid: u32, parcel: &Parcel, to: &Path) -> io::Result<()> {
        let from = self.place(uid, &parcel.content());
        match fs::hard_link(&from, to) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound || e.kind() == io::ErrorKind::AlreadyExists => Err(e),
            // On another file system, or one that knows no such names.
            Err(_) => fs::copy(&from, to).map(|_| ()),
        }
    }

    /// Has this file the content? It is read once for as long as it looks the same.
    fn holds(&self, file: &File, parcel: &Parcel, kept: bool) -> bool {
        let Ok(before) = looks(file, kept) else { return false };
        if before.2 != parcel.size {
            return false;
        }
        if let Some(name) = self.known().get(&before) {
            return *name == parcel.content();
        }
        let mut buffer = Vec::new();
        for index in 0..parcel.count() {
            let (offset, length) = parcel.range(index);
            buffer.resize(length, 0);
            if file.read_exact_at(&mut buffer, offset).is_err() || sum(&buffer) != parcel.sums[index as usize] {
                return false;
            }
        }
        looks(file, kept).is_ok_and(|after| after == before) && self.remember(before, parcel.content())
    }

    fn remember(&self, now: Looks, name: String) -> bool {
        let mut known = self.known();
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(now, name);
        true
    }

    /// Makes room, and a file for what comes.
    pub fn begin(&self, uid: u32, parcel: &Parcel) -> io::Result<Coming> {
        if parcel.size > self.most {
            let text = format!("its {} MB are more than [jobs] cache_mb allows", parcel.size >> 20);
            return Err(io::Error::other(text));
        }
        let goes_to = self.place(uid, &parcel.content());
        let dir = goes_to.parent().unwrap_or(&self.dir);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        self.make_room(parcel.size, &goes_to);
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let path = goes_to.with_extension(format!("{count}-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Coming { file, path, goes_to })
    }

    /// Those that were used longest ago go first. Programs that run have their files open: they go on.
    fn make_room(&self, bytes: u64, but: &Path) {
        let users = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let files = users.flat_map(|u| fs::read_dir(u.path()).into_iter().flatten().flatten());
        let mut all: Vec<(std::time::SystemTime, u64, PathBuf)> = files
            .filter_map(|f| {
                let about = f.metadata().ok()?;
                Some((about.modified().ok()?, about.len(), f.path()))
            })
            .filter(|(_, _, path)| path != but && path.extension().is_none())
            .collect();
        all.sort();
        let mut sum: u64 = all.iter().map(|f| f.1).sum();
        for (_, size, path) in all {
            if sum + bytes <= self.most {
                return;
            }
            if fs::remove_file(&path).is_ok() {
                sum -= size;
            }
        }
    }

    /// All of it is there: the file that is executed.
    pub fn finish(&self, coming: Coming, parcel: &Parcel) -> io::Result<File> {
        coming.file.set_permissions(fs::Permissions::from_mode(MODE))?;
        // A file that is open for writing can't be executed.
        let file = File::open(&coming.path)?;
        fs::rename(&coming.path, &coming.goes_to)?;
        self.remember(looks(&file, true)?, parcel.content());
        Ok(file)
    }
}

impl Coming {
    /// Keeps a piece.
    pub fn keep(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Reads one that has come.
    pub fn piece(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        piece(&self.file, offset, length)
    }
}

/// Reads a piece.
pub fn piece(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// The file of this name at this node, if it has the same content, and the user may read it.
pub fn same_here(cache: &Cache, path: &Path, user: (u32, u32), parcel: &Parcel) -> Option<File> {
    open_as(path, user).ok().filter(|file| cache.holds(file, parcel, false))
}

/// Opens a user's file, as he may. Nobody is waited for: at the other end of a pipe, say.
pub fn open_as(path: &Path, user: (u32, u32)) -> io::Result<File> {
    let no_file = || io::Error::other("it is no file");
    let user = (crate::sys::effective_uid() == 0).then_some(user);
    let file = rank::as_user(user, || {
        if !fs::metadata(path)?.is_file() {
            return Err(no_file());
        }
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
    })?;
    // It may have become another one in between.
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_launch::Kind;
    use serde_bytes::ByteBuf;
    use std::io::{Read, Write};

    fn program(bytes: &[u8]) -> Parcel {
        let sums = bytes.chunks(256 << 10).map(sum).collect();
        let (name, path) = (ByteBuf::from("p"), ByteBuf::from("/p"));
        Parcel { kind: Kind::Program, name, path, size: bytes.len() as u64, sums, always: true }
    }

    #[test]
    fn what_came_once_is_there_until_others_need_the_room() {
        let dir = std::env::temp_dir().join(format!("pando-programs-{}", std::process::id()));
        let cache = Cache::open(dir.clone(), 1 << 20);
        let uid = crate::sys::effective_uid();
        let put = |byte: u8| {
            let bytes = vec![byte; 400 << 10];
            let program = program(&bytes);
            let coming = cache.begin(uid, &program).unwrap();
            for index in 0..program.count() {
                let (offset, length) = program.range(index);
                coming.keep(offset, &bytes[offset as usize..][..length]).unwrap();
            }
            let mut content = Vec::new();
            cache.finish(coming, &program).unwrap().read_to_end(&mut content).unwrap();
            assert!(content == bytes);
            program
        };
        let (first, second) = (put(1), put(2));
        assert!(cache.find(uid, &first).is_some() && cache.find(uid + 1, &first).is_none());
        let third = put(3);
        let there = [&first, &second, &third].map(|p| cache.find(uid, p).is_some());
        assert_eq!(there, [true, false, true], "the one that nobody used for longest went");
        // Another daemon knows nothing of it, reads it, and finds what its owner did to it.
        let path = cache.place(uid, &third.content());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().write_all(b"x").unwrap();
        assert!(Cache::open(dir.clone(), 1 << 20).find(uid, &third).is_none());
        assert!(cache.find(uid, &third).is_none() && !path.exists());
        assert!(cache.begin(uid, &program(&vec![0; 2 << 20])).is_err());
        drop(cache.begin(uid, &second).unwrap());
        assert_eq!(fs::read_dir(dir.join(uid.to_string())).unwrap().count(), 1, "what did not come whole is gone");
        fs::remove_dir_all(&dir).unwrap();
    }
}
