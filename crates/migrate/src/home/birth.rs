//! Threads that a moved process makes and ends: here first, then abroad (docs/decisions/0012).

use super::thread::DeputyThread;
use super::{Deputy, Flight, Result, at};
use crate::layout::{HOLE_BYTES, TABLE, TOP};
use crate::message::{Down, MAX_THREADS};
use pando_kernel::inject::{self, THREAD_FLAGS};
use pando_kernel::procfs;

/// What the flags of a thread's clone(2) may say beside what it shares: of these the guest's side takes care.
const FREE_FLAGS: u64 = (libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_SETTID
    | libc::CLONE_CHILD_CLEARTID
    | libc::CLONE_DETACHED) as u64;

/// CLONE_CLEAR_SIGHAND of clone3(2).
pub(super) const CLEAR_HANDLERS: u64 = 1 << 32;

/// Are these the flags of a process that the engine can make: one that gets a copy of all (fork), or one that its parent waits for until it
/// has other memory (vfork)? The signal at its end is in the low bits.
pub(crate) fn is_process(flags: u64) -> bool {
    let (vm, vfork) = (libc::CLONE_VM as u64, libc::CLONE_VFORK as u64);
    flags & 0xff <= 64 && [0, vfork, vm | vfork].contains(&(flags & !0xff & !FREE_FLAGS & !CLEAR_HANDLERS))
}

/// Are these the flags of a thread that the engine can make?
pub(crate) fn is_thread(flags: u64) -> bool {
    flags & 0xffff_ffff & !FREE_FLAGS == u64::from(THREAD_FLAGS)
}

impl Deputy {
    /// The thread in which `tid` halts calls clone: makes the deputy thread and says its id, as the program knows it.
    pub(super) fn bear(&mut self, tid: i32) -> Result<()> {
        let Some(flight) = self.threads[tid].flight.take() else { return Ok(()) };
        if self.threads.len() >= MAX_THREADS {
            return self.reply(tid, &flight, -i64::from(libc::EAGAIN), Vec::new());
        }
        let thread = &self.threads[tid];
        let (parent, base) = (thread.tracee, thread.base);
        let mask = at("mask", parent.signal_mask())?;
        at("mask", parent.set_signal_mask(inject::QUIET))?;
        let born = inject::clone_thread(parent, &self.memory, &base, self.hole, self.hole + TABLE);
        at("mask", parent.set_signal_mask(mask))?;
        let (result, outputs) = match born? {
            Err(error) => (error, Vec::new()),
            Ok(child) => {
                at("mask", child.set_signal_mask(mask))?;
                let inner = at("its thread id", procfs::innermost_tid(child.tid))?;
                self.threads.insert(DeputyThread::new(child.tid, inner, base));
                (i64::from(inner), self.announce(&flight, inner))
            }
        };
        self.reply(tid, &flight, result, outputs)
    }

    /// Writes the id of a new thread or process where the program wants it. (That of a process goes to its own memory in bring_up.)
    pub(super) fn announce(&self, flight: &Flight, tid: i32) -> Vec<(u64, Vec<u8>)> {
        let [flags, _, parent, child, ..] = flight.args;
        let thread = is_thread(flags);
        let wanted = [(libc::CLONE_PARENT_SETTID, parent, true), (libc::CLONE_CHILD_SETTID, child, thread)];
        let places =
            wanted.iter().filter(|(flag, _, here)| *here && flags & *flag as u64 != 0).map(|(_, place, _)| *place);
        let ours = |p: u64| p + 4 > self.hole && p < self.hole + HOLE_BYTES;
        let places = places.filter(|&p| p <= TOP - 4 && !ours(p));
        let outputs: Vec<(u64, Vec<u8>)> = places.map(|p| (p, tid.to_le_bytes().to_vec())).collect();
        for (place, bytes) in &outputs {
            self.memory.write(*place, bytes);
        }
        outputs
    }

    /// A thread other than the first one is gone: it ended by its call, or all of them are ending.
    pub(super) fn thread_gone(&mut self, tid: i32) -> Result<()> {
        let flight = self.threads[tid].flight.take();
        self.threads.remove(tid);
        match flight.filter(|f| f.nr == libc::SYS_exit as u64) {
            Some(flight) => self.tell(&Down::Reply { seq: flight.seq, ret: 0, outputs: Vec::new() }, &[]),
            None => {
                self.dying = true;
                Ok(())
            }
        }
    }
}
