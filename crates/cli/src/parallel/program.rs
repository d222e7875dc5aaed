//! The files that go along with a job, for those nodes that have not got them: the program, its libraries, and what the user names. They are read with
//! our rights, summed here, and sent as far as they are asked for.

use super::Line;
use super::libraries::{self, Wishes};
use crate::args::Bcast;
use pando_launch::{Ask, Kind, Mpi, Need, Parcel, base, check_files, needed, piece_size, sum, wants_pmix};
use serde_bytes::ByteBuf;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

/// What the system brings is at every node, as its system needs it.
const OF_THE_SYSTEM: [&str; 6] = ["/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/opt/"];
/// Pieces whose sums one thread makes.
const SHARE: u32 = 16;

/// One file.
struct Source {
    file: File,
    /// What is said of it.
    parcel: Parcel,
    sent: u32,
}

/// See above.
#[derive(Default)]
pub struct Sources {
    all: Vec<Source>,
    /// What the nodes are to have themselves.
    pub needs: Vec<Need>,
}

pub fn is_of_the_system(path: &Path) -> bool {
    OF_THE_SYSTEM.iter().any(|dir| path.starts_with(dir))
}

/// Opens what is a file, and waits for nobody: at the other end of a pipe, say.
pub fn open_file(path: &Path) -> io::Result<File> {
    let no_file = || io::Error::other("it is no file");
    if !fs::metadata(path)?.is_file() {
        return Err(no_file());
    }
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
}

impl Sources {
    /// Of the program that the user has named, its libraries, and the files `with` it. The error is for people.
    pub fn find(word: &OsStr, directory: &Path, bcast: Bcast, with: &[PathBuf]) -> Result<Sources, String> {
        let mut sources = Sources::default();
        let always = bcast == Bcast::Always;
        let program = place(word, directory);
        let goes = |path: &&PathBuf| always || !is_of_the_system(path);
        if let Some(path) = program.as_ref().filter(|_| bcast != Bcast::Never).filter(goes) {
            sources.add(Kind::Program, base_of(path), path, always)?;
        }
        for file in with {
            // Here, and not where the ranks begin: it is a word of this command.
            let path = std::path::absolute(file).map_err(|e| format!("{}: {e}", file.display()))?;
            let source = Source::open(Kind::File, base_of(&path), &path, always);
            sources.all.push(source.map_err(|e| format!("--with {}: {e}", file.display()))?);
        }
        if bcast != Bcast::Never {
            sources.libraries(program, directory, always)?;
        }
        let hint = if with.is_empty() { " (--bcast=never: nothing goes along)" } else { "" };
        check_files(&sources.files(), &sources.needs).map_err(|why| format!("{why}{hint}"))?;
        Ok(sources)
    }

    /// What the loader would load for them.
    fn libraries(&mut self, program: Option<PathBuf>, directory: &Path, always: bool) -> Result<(), String> {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let (preload, library_path) = (variable("LD_PRELOAD"), variable("LD_LIBRARY_PATH"));
        // All of a program of the system's is the system's, unless the user says something else.
        if self.all.is_empty() && preload.is_none() && library_path.is_none() {
            return Ok(());
        }
        let with = self.all.iter().filter(|s| s.parcel.kind == Kind::File);
        let with = with.map(|s| PathBuf::from(OsStr::from_bytes(&s.parcel.path)));
        let roots: Vec<PathBuf> = program.into_iter().chain(with).collect();
        let found = libraries::find(&roots, &Wishes { preload, library_path, directory: directory.to_owned() });
        for (name, path) in found.own {
            // It goes along as the user has named it.
            let path = std::path::absolute(&path).unwrap_or(path);
            if !self.all.iter().any(|s| s.parcel.kind != Kind::Program && s.parcel.name.as_slice() == name.as_bytes()) {
                self.add(Kind::Library, &name, &path, always)?;
            }
        }
        // A program that does not go along is each node's own, and so is what it needs.
        if self.all.first().is_some_and(|s| s.parcel.kind == Kind::Program) {
            self.needs = found.needs;
        }
        Ok(())
    }

    fn add(&mut self, kind: Kind, name: &OsStr, path: &Path, always: bool) -> Result<(), String> {
        match Source::open(kind, name, path, always) {
            Ok(source) => self.all.push(source),
            Err(e) if always => return Err(format!("{}: {e}", path.display())),
            // One that may be executed and not be read stays where it is.
            Err(_) => {}
        }
        Ok(())
    }

    /// What is said of them.
    pub fn files(&self) -> Vec<Parcel> {
        self.all.iter().map(|s| s.parcel.clone()).collect()
    }

    /// The head wants pieces of a file up to this one. The error is for people.
    pub fn send(&mut self, file: u16, upto: u32, line: &Line) -> Result<(), String> {
        let Some(source) = self.all.get_mut(usize::from(file)) else { return Ok(()) };
        while source.sent < upto.min(source.parcel.count()) {
            let index = source.sent;
            let bytes = read(&source.file, &source.parcel, index).ok();
            let bytes = bytes.filter(|bytes| source.parcel.is_piece(index, bytes)).ok_or_else(|| {
                format!("{} was changed while it was sent", String::from_utf8_lossy(&source.parcel.path))
            })?;
            line.ask(&Ask::Piece { file, index, bytes });
            source.sent += 1;
        }
        Ok(())
    }
}

fn base_of(path: &Path) -> &OsStr {
    OsStr::from_bytes(base(path.as_os_str().as_bytes()))
}

impl Source {
    fn open(kind: Kind, name: &OsStr, path: &Path, always: bool) -> io::Result<Source> {
        let file = open_file(path)?;
        let size = file.metadata()?.len();
        let piece = piece_size(size).ok_or_else(|| io::Error::other("it is too large to go along"))?;
        if size == 0 && kind != Kind::File {
            return Err(io::Error::other("it is empty"));
        }
        let count = size.div_ceil(piece) as u32;
        let (name, path) = (ByteBuf::from(name.as_bytes()), ByteBuf::from(path.as_os_str().as_bytes()));
        let parcel = Parcel { kind, name, path, size, sums: Vec::new(), always };
        let sums = |first: u32| -> io::Result<Vec<_>> {
            (first..count.min(first + SHARE)).map(|i| read(&file, &parcel, i).map(|bytes| sum(&bytes))).collect()
        };
        let all: io::Result<Vec<Vec<_>>> = thread::scope(|scope| {
            let firsts = (0..count).step_by(SHARE as usize);
            let parts: Vec<_> = match count {
                0..=SHARE => return firsts.map(sums).collect(),
                _ => firsts.map(|first| scope.spawn(move || sums(first))).collect(),
            };
            parts.into_iter().map(|part| part.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))).collect()
        });
        let sums = all?.concat();
        let parcel = Parcel { sums, ..parcel };
        Ok(Source { file, parcel, sent: 0 })
    }
}

fn read(file: &File, parcel: &Parcel, index: u32) -> io::Result<Vec<u8>> {
    let (offset, length) = parcel.range(index);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// What the program's libraries want, if the user has not said it. We look, and not the node: with its user's rights.
pub fn mpi(wish: Mpi, word: &OsStr, directory: &Path) -> Mpi {
    let file = place(word, directory).filter(|_| wish == Mpi::Auto).and_then(|path| File::open(path).ok());
    let Some(file) = file else { return wish };
    let names = needed(|at, to| file.read_exact_at(to, at).is_ok());
    if names.iter().any(|name| wants_pmix(name)) { Mpi::Pmix } else { wish }
}

/// Where a shell would find it.
fn place(word: &OsStr, directory: &Path) -> Option<PathBuf> {
    let is_program =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if word.as_bytes().contains(&b'/') {
        return Some(directory.join(word)).filter(is_program);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| directory.join(dir).join(word)).find(is_program)
}
