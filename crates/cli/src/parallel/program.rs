//! The program's file, for those nodes that have not got it: read with our rights, summed here, and sent as far as it is asked for.

use super::Line;
use crate::args::Bcast;
use pando_launch::{Ask, Mpi, Program, needed, piece_size, sum, wants_pmix};
use serde_bytes::ByteBuf;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

/// What the system brings is at every node, as its system needs it.
const OF_THE_SYSTEM: [&str; 6] = ["/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/opt/"];
/// Pieces whose sums one thread makes.
const SHARE: u32 = 16;

/// See above.
pub struct Source {
    file: File,
    /// What is said of it.
    pub program: Program,
    sent: u32,
}

impl Source {
    /// Of the program that the user has named. None where nothing goes along.
    pub fn find(word: &OsStr, directory: &Path, bcast: Bcast) -> Result<Option<Source>, String> {
        let Some(path) = place(word, directory).filter(|_| bcast != Bcast::Never) else { return Ok(None) };
        let of_the_system = OF_THE_SYSTEM.iter().any(|dir| path.starts_with(dir));
        if bcast == Bcast::Auto && of_the_system {
            return Ok(None);
        }
        match Source::open(path.clone(), bcast == Bcast::Always) {
            Ok(source) => Ok(source),
            Err(e) if bcast == Bcast::Always => Err(format!("{}: {e}", path.display())),
            // One that may be executed and not be read stays where it is.
            Err(_) => Ok(None),
        }
    }

    fn open(path: PathBuf, always: bool) -> io::Result<Option<Source>> {
        let file = File::open(&path)?;
        let size = file.metadata()?.len();
        let Some(piece) = piece_size(size).filter(|_| size > 0) else { return Ok(None) };
        let count = size.div_ceil(piece) as u32;
        let program = Program { path: ByteBuf::from(path.as_os_str().as_bytes()), size, sums: Vec::new(), always };
        let sums = |first: u32| -> io::Result<Vec<_>> {
            (first..count.min(first + SHARE)).map(|i| read(&file, &program, i).map(|bytes| sum(&bytes))).collect()
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
        let program = Program { sums, ..program };
        Ok(Some(Source { file, program, sent: 0 }))
    }

    /// The head wants pieces up to this one. The error is for people.
    pub fn send(&mut self, upto: u32, line: &Line) -> Result<(), String> {
        while self.sent < upto.min(self.program.count()) {
            let index = self.sent;
            let bytes = read(&self.file, &self.program, index).ok().filter(|bytes| self.program.is_piece(index, bytes));
            let bytes = bytes.ok_or("the program's file was changed while it was sent")?;
            line.ask(&Ask::Piece { index, bytes });
            self.sent += 1;
        }
        Ok(())
    }
}

fn read(file: &File, program: &Program, index: u32) -> io::Result<Vec<u8>> {
    let (offset, length) = program.range(index);
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
