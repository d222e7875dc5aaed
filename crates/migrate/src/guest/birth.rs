//! Threads that the program makes and ends: home has done so already (docs/decisions/0012).

use super::thread::{GuestThread, is_thread_id};
use super::{Guest, GuestError, Held, Result, Stillborn, at};
use crate::layout::TABLE;
use crate::message::{Context, Up};
use crate::restart;
use pando_calls::Memory;
use pando_kernel::inject::{self, call};
use pando_kernel::procfs;
use pando_kernel::ptrace::{Registers, Stop, Tracee};
use std::time::Duration;

/// Bytes of `struct clone_args` that we understand (its first version has 64, later fields must be 0).
const CLONE_ARGS: usize = 88;

/// A stop comes within microseconds, or the thread waits for a page.
const BEFORE_SERVING: Duration = Duration::from_micros(500);

/// What clone(2) and clone3(2) ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Birth {
    pub flags: u64,
    /// Stack pointer of the child, 0: its parent's.
    pub stack: u64,
    pub parent_tid: u64,
    pub child_tid: u64,
    pub tls: u64,
}

impl Birth {
    /// As the arguments of clone(2).
    pub fn args(&self) -> [u64; 6] {
        [self.flags, self.stack, self.parent_tid, self.child_tid, self.tls, 0]
    }

    pub fn of(args: &[u64; 6]) -> Birth {
        let [flags, stack, parent_tid, child_tid, tls, _] = *args;
        Birth { flags, stack, parent_tid, child_tid, tls }
    }

    /// From `struct clone_args`. None: it asks for something else.
    fn of_clone3(bytes: &[u8]) -> Option<Birth> {
        let mut words = [0u64; CLONE_ARGS / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let [flags, _, child_tid, parent_tid, exit_signal, stack, size, tls, set_tid, set_size, cgroup] = words;
        let odd = [set_tid, set_size, cgroup].iter().any(|&w| w != 0);
        let flags_fit = flags & 0xff == 0 && exit_signal <= 64;
        let flags = flags | exit_signal;
        let stack = if stack == 0 { 0 } else { stack.checked_add(size)? };
        (!odd && flags_fit && bytes.len() <= CLONE_ARGS).then_some(Birth { flags, stack, parent_tid, child_tid, tls })
    }
}

/// What the program's thread asks for in `held`, if it can be read.
pub(super) enum Asked {
    Thread(Birth),
    Process(Birth),
    /// A page of its arguments is not here.
    NotHere(u64),
    /// Something that only home can make.
    Else,
}

/// Calls that may unmap or move registered memory: they end when the message about that has been read.
const CHANGE_THE_MAP: [i64; 4] = [libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mmap, libc::SYS_brk];

impl Guest {
    pub(super) fn asked_birth(&self, held: &Held, view: &mut dyn Memory) -> Asked {
        const VFORK: u64 = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
        let plain = |flags: u64| Birth::of(&[flags | libc::SIGCHLD as u64, 0, 0, 0, 0, 0]);
        let birth = match held.nr as i64 {
            libc::SYS_clone3 => {
                let mut bytes = vec![0; (held.args[1] as usize).min(CLONE_ARGS + 1)];
                let got = view.read(held.args[0], &mut bytes);
                if got < bytes.len() {
                    return Asked::NotHere(held.args[0] + got as u64);
                }
                Birth::of_clone3(&bytes)
            }
            libc::SYS_fork => Some(plain(0)),
            libc::SYS_vfork => Some(plain(VFORK)),
            _ => Some(Birth::of(&held.args)),
        };
        match birth {
            Some(birth) if crate::home::is_thread(birth.flags) => Asked::Thread(birth),
            // A child that its parent waits for is traced at home until it has its own memory, which in personal mode would take the rights
            // of a set-user-id program away.
            Some(birth)
                if crate::home::is_process(birth.flags) && (self.body.full_uffd || birth.flags & VFORK == 0) =>
            {
                Asked::Process(birth)
            }
            _ => Asked::Else,
        }
    }

    /// Home has made the thread `born`: here it is made by `tid`, which is held in the call.
    pub(super) fn give_birth(&mut self, tid: i32, held: &Held, birth: Birth, born: i64) -> Result<()> {
        let id = i32::try_from(born).ok().filter(|&id| is_thread_id(id) && !self.threads.has(id));
        let Some(born) = id else {
            return Err(GuestError::Protocol(format!("a new thread with the id {born}")));
        };
        self.get_out(tid, held, i64::from(born))?;
        let parent = self.threads[tid].tracee;
        let mut regs = at("registers", parent.registers())?;
        let mask = at("mask", parent.signal_mask())?;
        at("mask", parent.set_signal_mask(inject::QUIET))?;
        match self.make_thread(tid, &regs, born)? {
            Ok(child) => {
                let mut theirs = regs;
                (theirs.rax, theirs.orig_rax) = (0, u64::MAX);
                theirs.rsp = if birth.stack == 0 { regs.rsp } else { birth.stack };
                if birth.flags & libc::CLONE_SETTLS as u64 != 0 {
                    theirs.fs_base = birth.tls;
                }
                let mut thread = GuestThread::new(born, child);
                thread.home_mask = self.threads[tid].home_mask;
                if birth.flags & libc::CLONE_CHILD_CLEARTID as u64 != 0 {
                    thread.tid_address = birth.child_tid;
                    let wanted = [call(libc::SYS_set_tid_address, &[birth.child_tid])];
                    self.inject_in(child, &regs, &wanted)?;
                }
                at("registers", child.set_registers(&theirs))?;
                at("mask", child.set_signal_mask(mask))?;
                self.threads.insert(thread);
                self.go_on(born)?;
            }
            Err(_) => {
                // This machine has no room for it; home's had. There the call is made once more.
                self.bury(Stillborn { tid: born, signals: 0 })?;
                self.note_no_more_threads();
                (regs.rax, regs.orig_rax) = (held.nr, u64::MAX);
                regs.rip -= 2;
            }
        }
        at("registers", parent.set_registers(&regs))?;
        at("mask", parent.set_signal_mask(mask))?;
        self.go_on(tid)
    }

    /// Has the stopped thread `tid` make one with this id. The inner error is the kernel's.
    fn make_thread(&mut self, tid: i32, base: &Registers, born: i32) -> Result<std::result::Result<Tracee, i64>> {
        if self.body.next_tid(born).is_err() {
            return Ok(Err(-i64::from(libc::EAGAIN)));
        }
        let parent = self.threads[tid].tracee;
        let made = inject::clone_thread(parent, &self.memory, base, self.hole, self.hole + TABLE)?;
        if let Ok(child) = made
            && at("its thread id", procfs::innermost_tid(child.tid))? != born
        {
            return Err(GuestError::Protocol(format!("the id {born} for a thread, which is taken here")));
        }
        Ok(made)
    }

    /// A thread that came along from home, at the start: made by the first one.
    pub(super) fn bring_thread(&mut self, base: &Registers, tid: i32, context: &Context) -> Result<()> {
        let made = self.make_thread(self.offer.inner_pid, base, tid)?;
        let child = made.map_err(|e| {
            let e = std::io::Error::from_raw_os_error(-e as i32);
            GuestError::Protocol(format!("more threads than this machine has room for: {e}"))
        })?;
        self.threads.insert(GuestThread::new(tid, child));
        self.restore_thread_state(base, tid, context)
    }

    /// Ends home's half of a thread that could not be made here.
    pub(super) fn bury(&mut self, stillborn: Stillborn) -> Result<()> {
        self.seq += 1;
        self.stillborn.insert(self.seq, stillborn);
        let (nr, Stillborn { tid, signals }) = (libc::SYS_exit as u64, stillborn);
        let up = Up::Call { tid, seq: self.seq, nr, args: [0; 6], inputs: Vec::new(), signals, resumes: false };
        self.send(&up, &[])
    }

    /// The thread has ended at home: now it may end here, which is what those see that wait for it.
    pub(super) fn let_end(&mut self, tid: i32, held: &Held) -> Result<()> {
        self.threads[tid].ending = true;
        self.run_natively(tid, held)
    }

    /// A thread is gone here.
    pub(super) fn thread_gone(&mut self, tid: i32, status: i32) -> Result<()> {
        if tid == self.offer.inner_pid || !self.threads[tid].ending {
            return Err(GuestError::Died(status));
        }
        self.threads.remove(tid);
        if self.leaving.freezing() { self.freeze_if_all_stopped() } else { Ok(()) }
    }

    /// Answers a held call and has its thread stop before it runs on.
    pub(super) fn get_out(&mut self, tid: i32, held: &Held, ret: i64) -> Result<()> {
        self.interrupt(tid)?;
        self.answer(held.id, ret)?;
        self.see_stop(tid)
    }

    /// Waits for the stop of a thread that is in no call; signals that come before are delivered. Their frames may go to pages that are still
    /// at home, and then the kernel waits for us.
    pub(super) fn see_stop(&mut self, tid: i32) -> Result<()> {
        self.interrupt(tid)?;
        loop {
            match at("wait", self.threads[tid].tracee.wait_within(BEFORE_SERVING))? {
                Some(Stop::Event(_)) => break,
                Some(Stop::Gone(status)) => return Err(GuestError::Died(status)),
                Some(Stop::Signal(signal)) => {
                    self.deliver(tid, signal)?;
                    if self.threads[tid].stopped {
                        // It is held for home to judge the signal. The stop that was asked for comes while calls are injected.
                        break;
                    }
                }
                Some(_) => at("continue", self.threads[tid].tracee.cont(0))?,
                None => self.serve_faults_only()?,
            }
        }
        let thread = &mut self.threads[tid];
        (thread.interrupting, thread.changing) = (false, None);
        Ok(())
    }

    /// Lets a thread run that we have stopped for a moment, unless it is to stand still.
    pub(super) fn go_on(&mut self, tid: i32) -> Result<()> {
        let thread = &mut self.threads[tid];
        let stays = self.paused || self.still.is_on() || self.room.is_full();
        if thread.for_home || stays || self.leaving.freezing() || self.fork.is_some() {
            thread.stopped = true;
            return Ok(());
        }
        thread.stopped = false;
        let tracee = thread.tracee;
        self.without_restart_block(tracee)?;
        at("continue", tracee.cont(0))
    }

    /// A futex wait with a time limit that a stop of ours has broken off would go on by restart_syscall(2), which is home's to answer.
    fn without_restart_block(&self, tracee: Tracee) -> Result<()> {
        let mut regs = at("registers", tracee.registers())?;
        if regs.orig_rax != libc::SYS_futex as u64 || regs.rax as i64 != restart::BLOCK {
            return Ok(());
        }
        restart::make_good(&self.memory, &mut regs);
        at("registers", tracee.set_registers(&regs))
    }

    /// Runs calls in a stopped thread.
    pub(super) fn inject_in(&self, tracee: Tracee, base: &Registers, calls: &[inject::Call]) -> Result<Vec<i64>> {
        let places = (self.hole, self.hole + TABLE);
        let waits = |c: &inject::Call| CHANGE_THE_MAP.contains(&(c.nr as i64));
        if calls.iter().any(waits) {
            return Ok(inject::table_calls_served(tracee, &self.memory, base, places, calls, &mut || {
                self.uffd.absorb()
            })?);
        }
        Ok(inject::table_calls(tracee, &self.memory, base, places.0, places.1, calls)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn clone3_is_clone_with_the_end_of_the_stack() {
        let flags = u64::from(inject::THREAD_FLAGS) | libc::CLONE_SETTLS as u64;
        let asked = Birth::of_clone3(&bytes(&[flags, 0x40, 0x30, 0x40, 0, 0x10000, 0x8000, 0x99])).expect("a thread");
        assert_eq!(asked.args(), [flags, 0x18000, 0x40, 0x30, 0x99, 0]);
        assert_eq!(Birth::of(&asked.args()), asked);
    }

    #[test]
    fn more_than_a_thread_is_something_else() {
        let flags = u64::from(inject::THREAD_FLAGS);
        for odd in [[flags, 0, 0, 0, 170, 0, 0, 0], [flags | 17, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(Birth::of_clone3(&bytes(&odd)), None, "{odd:x?}");
        }
        assert_eq!(Birth::of_clone3(&bytes(&[flags, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0])), None);
        assert_eq!(Birth::of_clone3(&bytes(&[flags, 0, 0, 0, 0, u64::MAX, 2, 0])), None);
    }
}
