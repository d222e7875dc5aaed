//! Reads that the guest's own kernel makes, from a file in memory that has the bytes (docs/decisions/0021).
//!
//! The guest holds a read-only description of that file at the number that the program knows. When home's word is good and all bytes are there, its kernel is let
//! make the held call. Nobody tells when it has: until its thread is seen again the bytes stay where they are and the number means what it means. A read that
//! moves a position is made so only while the program has one thread, so that nothing can come between; where it stands then is asked
//! when that thread is seen again.

use super::reads::{Wanted, by_offset};
use crate::guest::{Guest, Held, Result};
use crate::message::Up;
use pando_kernel::description;
use std::collections::BTreeMap;
use std::fs::File;

/// Numbers from here on are not used: a table of so many costs memory.
pub(crate) const MOST_NUMBERS: i32 = 4096;
/// Most descriptions that have a reader.
const MOST_READERS: usize = 256;
/// Most threads that may be in such a read: what they read can't be dropped.
const MOST_THREADS: usize = 32;

/// A description of a file in memory, which stands for one of the program's.
#[derive(Debug)]
struct Reader {
    /// The program's.
    description: u64,
    /// The name of the file in memory.
    name: u64,
    file: File,
    /// Where it stands.
    at: u64,
}

/// A read that may not have ended.
#[derive(Debug)]
struct Running {
    fd: i32,
    reader: u64,
    /// Where the reader stands after it, if it moves that.
    to: Option<u64>,
}

/// All about them.
#[derive(Debug, Default)]
pub(super) struct Native {
    readers: BTreeMap<u64, Reader>,
    made: u64,
    /// The reader that a number means in the guest's kernel. 0: none can be put there.
    installed: BTreeMap<i32, u64>,
    /// By thread.
    running: BTreeMap<i32, Running>,
    /// The buffer of a thread's last read, which was all there.
    buffers: BTreeMap<i32, (u64, u64)>,
}

impl Native {
    /// Could a read of another thread still take what this number means for another reader?
    fn is_taken(&self, fd: i32, reader: u64) -> bool {
        self.running.values().any(|r| r.fd == fd && r.reader != reader)
    }

    fn known(&self, description: u64, name: u64) -> Option<u64> {
        let known = |r: &Reader| (r.description, r.name) == (description, name);
        self.readers.iter().find(|(_, r)| known(r)).map(|(key, _)| *key)
    }

    /// Has this thread just read into the same memory? Then it will be there, and if it is not its kernel asks us for it as for any other.
    pub fn knows(&self, tid: i32, buffers: &[(u64, u64)]) -> bool {
        matches!(buffers, [one] if self.buffers.get(&tid) == Some(one))
    }

    /// Readers that are of no use any more go. (What the guest has of them is empty when the store has let the bytes go.)
    pub fn keep(&mut self, is_known: impl Fn(u64) -> bool) {
        let running: Vec<u64> = self.running.values().map(|r| r.reader).collect();
        self.readers.retain(|key, r| running.contains(key) || is_known(r.description));
        let readers = &self.readers;
        self.installed.retain(|_, reader| *reader == 0 || readers.contains_key(reader));
        // So do threads that are no more.
        self.buffers.clear();
    }
}

impl Guest {
    /// Lets the guest's kernel make a read of `[from, to)`, all of which is here, if that is possible and pays.
    pub(super) fn read_natively(
        &mut self,
        tid: i32,
        held: &Held,
        wanted: &Wanted,
        span: (u64, u64, u64),
    ) -> Result<bool> {
        let (id, from, to) = span;
        let alone = self.threads.len() == 1 && self.stillborn.is_empty();
        // With other threads a vector could change between our look and the kernel's, a position be moved, and where the kernel's own faults are not seen a page go.
        let sure = alone || self.body.full_uffd && held.nr == libc::SYS_pread64 as u64;
        if !sure || !(0..MOST_NUMBERS).contains(&wanted.fd) {
            return Ok(false);
        }
        let native = &self.files.native;
        if native.installed.get(&wanted.fd) == Some(&0) || native.running.len() >= MOST_THREADS {
            return Ok(false);
        }
        let Some(reader) = self.reader(wanted.fd, id, from, to) else { return Ok(false) };
        if !self.stands_ready(held, wanted.fd, reader) {
            return Ok(false);
        }
        let native = &mut self.files.native;
        let moves = by_offset(held).is_none();
        if let Some(r) = native.readers.get_mut(&reader).filter(|_| moves) {
            if r.at != from && description::seek(&r.file, from).is_err() {
                return Ok(false);
            }
            r.at = to;
        }
        native.buffers.insert(tid, wanted.buffers[0]);
        native.running.insert(tid, Running { fd: wanted.fd, reader, to: moves.then_some(to) });
        self.files.store.pin(tid, id, from, to);
        self.run_natively(tid, held)?;
        Ok(true)
    }

    /// The reader for this descriptor of the program, if the bytes are all in one file in memory.
    fn reader(&mut self, fd: i32, id: u64, from: u64, to: u64) -> Option<u64> {
        let files = &mut self.files;
        let name = files.store.in_memory(id, from, to)?;
        let description = files.descriptors.key(fd)?;
        if let Some(known) = files.native.known(description, name) {
            return Some(known);
        }
        if files.native.readers.len() >= MOST_READERS {
            files.native.keep(|description| files.descriptors.has(description));
        }
        if files.native.readers.len() >= MOST_READERS {
            return None;
        }
        let file = files.store.reader(id).ok()?;
        // The file in memory that it had until now is gone.
        files.native.keep(|other| other != description);
        files.native.made += 1;
        files.native.readers.insert(files.native.made, Reader { description, name, file, at: 0 });
        Some(files.native.made)
    }

    /// Sees to it that the number means the reader in the guest.
    fn stands_ready(&mut self, held: &Held, fd: i32, reader: u64) -> bool {
        let native = &mut self.files.native;
        if native.is_taken(fd, reader) {
            return false;
        }
        if native.installed.get(&fd) == Some(&reader) {
            return true;
        }
        let (Some(r), Some(listener)) = (native.readers.get(&reader), &self.listener) else { return false };
        let given = listener.give(held.id, &r.file, fd).is_ok();
        native.installed.insert(fd, if given { reader } else { 0 });
        given
    }

    /// The thread is seen again: the read that its kernel was let make is over.
    pub(crate) fn read_is_over(&mut self, tid: i32) -> Result<()> {
        let Some(running) = self.files.native.running.remove(&tid) else { return Ok(()) };
        self.files.store.unpin(tid);
        let Some(r) = self.files.native.readers.get_mut(&running.reader).filter(|_| running.to.is_some()) else {
            return Ok(());
        };
        r.at = super::at("where a file stands", description::position(&r.file))?;
        if running.to == Some(r.at) {
            return Ok(());
        }
        // A part of the buffer could not be written to.
        let (at, fd) = (r.at, running.fd);
        self.files.descriptors.get_mut(fd).into_iter().for_each(|d| d.moved(at));
        self.send(&Up::Position(fd, at), &[])
    }
}
