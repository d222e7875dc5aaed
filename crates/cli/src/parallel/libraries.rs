//! What the dynamic loader (ld.so(8)) would load for a program, found as it would find it: from what the files say, and from LD_PRELOAD and
//! LD_LIBRARY_PATH. Nothing is executed for it, as ldd(1) does.

use super::program::{is_of_the_system, open_file};
use pando_launch::{Need, Wants, base, listed, wants};
use serde_bytes::ByteBuf;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Most of them, and bytes that are read at a time.
const MOST: usize = 512;
const BLOCK: usize = 16 << 10;
const LIST: &str = "/etc/ld.so.cache";
/// Where every loader looks at last.
const USUAL: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// What was found.
#[derive(Default)]
pub struct Libraries {
    /// Those that are not the system's: what the loader calls them, and where they are.
    pub own: Vec<(OsString, PathBuf)>,
    /// Those of the system, and the loader.
    pub needs: Vec<Need>,
}

/// What the user says about it.
pub struct Wishes {
    pub preload: Option<OsString>,
    pub library_path: Option<OsString>,
    pub directory: PathBuf,
}

/// A file that was loaded.
struct Object {
    /// The directory that it means by $ORIGIN.
    origin: PathBuf,
    wants: Wants,
    /// Who wanted it.
    by: Option<usize>,
}

struct Walk<'a> {
    wishes: &'a Wishes,
    objects: Vec<Object>,
    /// What the loader calls them.
    seen: BTreeSet<Vec<u8>>,
    list: Option<Vec<u8>>,
    machine: u16,
    found: Libraries,
}

/// Of these files, of which the first may be the program.
pub fn find(roots: &[PathBuf], wishes: &Wishes) -> Libraries {
    let mut walk = Walk {
        wishes,
        objects: Vec::new(),
        seen: BTreeSet::new(),
        list: None,
        machine: 0,
        found: Libraries::default(),
    };
    for root in roots {
        // The loader knows a program by where its links lead.
        let Some((path, wants)) = fs::canonicalize(root).ok().and_then(|path| look(&path).map(|w| (path, w))) else {
            continue;
        };
        if walk.machine == 0 {
            walk.machine = wants.machine;
        }
        if let Some(loader) = &wants.interpreter {
            walk.found.needs.push(Need { path: ByteBuf::from(loader.as_bytes()), anywhere: false });
        }
        walk.add(&path, wants, None);
    }
    if walk.machine != 0 {
        walk.preload();
        walk.all();
    }
    walk.found
}

/// What a file says to the loader, if it is one for it.
fn look(path: &Path) -> Option<Wants> {
    let file = open_file(path).ok()?;
    wants(blocks(&file))
}

/// Reads blocks: what is asked for is mostly near to what was asked for before.
fn blocks(file: &File) -> impl Fn(u64, &mut [u8]) -> bool + '_ {
    let block = RefCell::new((0, Vec::new()));
    move |at, to| {
        let (start, bytes) = &mut *block.borrow_mut();
        let here = |start: u64, bytes: &[u8], to: &mut [u8]| {
            let found = at.checked_sub(start).and_then(|o| usize::try_from(o).ok());
            let found = found.and_then(|o| bytes.get(o..o.checked_add(to.len())?));
            found.map(|found| to.copy_from_slice(found)).is_some()
        };
        if here(*start, bytes, to) {
            return true;
        }
        bytes.resize(BLOCK.max(to.len()), 0);
        let read = file.read_at(bytes, at).unwrap_or(0);
        bytes.truncate(read);
        *start = at;
        here(at, bytes, to)
    }
}

impl Walk<'_> {
    fn add(&mut self, path: &Path, wants: Wants, by: Option<usize>) {
        let origin = path.parent().unwrap_or(Path::new("/")).to_owned();
        self.objects.push(Object { origin, wants, by });
    }

    /// What LD_PRELOAD names is loaded first.
    fn preload(&mut self) {
        let list = self.wishes.preload.clone().unwrap_or_default();
        let words = list.as_bytes().split(|b| b" :".contains(b)).filter(|w| !w.is_empty());
        for word in words {
            self.load(0, &String::from_utf8_lossy(word), true);
        }
    }

    fn all(&mut self) {
        let mut at = 0;
        while at < self.objects.len() && self.seen.len() < MOST {
            for library in self.objects[at].wants.libraries.clone() {
                self.load(at, &library, false);
            }
            at += 1;
        }
    }

    /// One that an object wants.
    fn load(&mut self, by: usize, name: &str, preloaded: bool) {
        if !self.seen.insert(name.as_bytes().to_vec()) {
            return;
        }
        let Some((path, wants)) = self.search(by, name) else { return };
        let text = ByteBuf::from(path.as_os_str().as_bytes());
        // One that is wanted by its whole path is loaded from there, or not at all.
        let movable = preloaded || !name.contains('/');
        if is_of_the_system(&path) || !movable {
            self.found.needs.push(Need { path: text, anywhere: movable && !preloaded });
        } else {
            self.found.own.push((OsStr::from_bytes(base(name.as_bytes())).to_owned(), path.clone()));
        }
        self.add(&path, wants, Some(by));
    }

    fn search(&mut self, by: usize, name: &str) -> Option<(PathBuf, Wants)> {
        let machine = self.machine;
        let fits = |path: PathBuf| look(&path).filter(|w| w.machine == machine).map(|w| (path, w));
        if name.contains('/') {
            let origin = self.objects[by].origin.clone();
            return expand(name, &origin).into_iter().find_map(|p| fits(self.wishes.directory.join(p)));
        }
        let dirs = self.directories(by);
        if let Some(found) = dirs.iter().find_map(|dir| fits(dir.join(name))) {
            return Some(found);
        }
        let list = self.list.get_or_insert_with(|| fs::read(LIST).unwrap_or_default());
        let listed: Vec<PathBuf> = listed(list, name).into_iter().map(|p| OsStr::from_bytes(p).into()).collect();
        listed.into_iter().find_map(fits).or_else(|| USUAL.iter().find_map(|dir| fits(Path::new(dir).join(name))))
    }

    /// Where it is looked for, before the system's own.
    fn directories(&self, by: usize) -> Vec<PathBuf> {
        let mut dirs = Vec::new();
        let mut add = |list: &str, origin: &Path| {
            let words = list.split([':', ';']);
            // An empty one is the working directory.
            let each = words.flat_map(|word| expand(word, origin)).map(|dir| self.wishes.directory.join(dir));
            dirs.extend(each);
        };
        let object = &self.objects[by];
        if object.wants.runpath.is_none() {
            // Its own, that of who wanted it, and so on.
            let mut next = Some(by);
            while let Some(object) = next.map(|at| &self.objects[at]) {
                let list = object.wants.rpath.as_ref().filter(|_| object.wants.runpath.is_none());
                list.into_iter().for_each(|list| add(list, &object.origin));
                next = object.by;
            }
        }
        let users = self.wishes.library_path.as_ref().filter(|list| !list.is_empty());
        users.into_iter().for_each(|list| add(&list.to_string_lossy(), &self.objects[0].origin));
        object.wants.runpath.iter().for_each(|list| add(list, &object.origin));
        dirs
    }
}

/// What $ORIGIN and $LIB stand for; the latter is another word on each system.
fn expand(word: &str, origin: &Path) -> Vec<PathBuf> {
    let origin = origin.as_os_str().as_bytes();
    let with = |library: &str| {
        let word = word.replace("${LIB}", library).replace("$LIB", library).replace("${ORIGIN}", "$ORIGIN");
        let parts: Vec<&[u8]> = word.split("$ORIGIN").map(str::as_bytes).collect();
        PathBuf::from(OsString::from_vec(parts.join(origin)))
    };
    match word.contains("$LIB") || word.contains("${LIB}") {
        true => ["lib64", "lib", "lib/x86_64-linux-gnu"].map(with).to_vec(),
        false => vec![with("")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_loader_are_understood() {
        let all = |word: &str| expand(word, Path::new("/a/b"));
        assert_eq!(all("$ORIGIN/../lib"), [PathBuf::from("/a/b/../lib")]);
        assert_eq!(all("${ORIGIN}"), [PathBuf::from("/a/b")]);
        assert_eq!(all("/x/$LIB")[..2], ["/x/lib64", "/x/lib"].map(PathBuf::from));
        assert_eq!(all(""), [PathBuf::new()]);
    }

    #[test]
    fn what_this_test_needs_is_the_systems() {
        let wishes = Wishes { preload: None, library_path: None, directory: "/".into() };
        let own = std::env::current_exe().unwrap();
        let found = find(&[own, "/etc/passwd".into(), "/no/such/file".into()], &wishes);
        let names: Vec<&[u8]> = found.needs.iter().map(|n| base(&n.path)).collect();
        if cfg!(target_env = "gnu") {
            assert!(found.own.is_empty() && names.contains(&b"libc.so.6".as_slice()), "{names:?}");
        }
    }
}
