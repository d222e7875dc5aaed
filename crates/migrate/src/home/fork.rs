//! Processes that a moved process makes: children of the body at home, where they begin (docs/decisions/0013).
//!
//! All that the guest had written has come home before the call. The child gets the registers of the guest's thread and goes on by itself.

use super::birth::CLEAR_HANDLERS;
use super::{Deputy, HomeError, Result, at};
use crate::layout::{HOLE_BYTES, SCRATCH, TABLE};
use crate::message::Context;
use crate::thread_state;
use pando_kernel::inject::{self, Call, InjectError, call};
use pando_kernel::memory::ProcessMemory;
use pando_kernel::pagemap::{self, Pagemap};
use pando_kernel::ptrace::{self, Stop, Tracee};
use pando_kernel::{PAGE, procfs, xstate};
use std::time::{Duration, Instant};

/// SIGTRAP at the entry into or the exit from a system call (PTRACE_O_TRACESYSGOOD).
const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// How long a child is followed at a time, and how soon its next stop is expected.
const FOLLOWED: Duration = Duration::from_millis(20);
const NEXT_STOP: Duration = Duration::from_micros(300);
/// The longest wait for a child that is to be let go; the end of this helper lets go of it, too.
const LET_GO: Duration = Duration::from_secs(1);

/// A child that is being made.
#[derive(Clone, Debug)]
pub(crate) struct Birth {
    /// The thread that makes it, as it was when it called.
    pub context: Context,
    pub xstate: Vec<u8>,
    /// What it wrote to memory that was its parent's before it ended (vfork).
    pub left: Vec<(u64, Vec<u8>)>,
    /// Memory that calls of other threads may write meanwhile.
    pub claimed: Vec<(u64, u64)>,
    /// Signals that the thread blocks; all are blocked while it makes the child, or under fire it never would.
    pub mask: u64,
}

/// A child that, to its parent, borrows the parent's memory until its exec or its end (vfork).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Borrower {
    /// The thread that waits for it.
    pub parent: i32,
    /// It is in execve: what it left is with its parent, and its memory may already be that of the new program.
    pub in_exec: bool,
}

impl Deputy {
    /// The call as home's kernel makes it. The parent's memory is always copied: what a child that borrows it leaves there is
    /// carried over (`left_behind`).
    pub(super) fn fork_call(flags: u64) -> Call {
        let kept = flags & (0xff | libc::CLONE_VFORK as u64);
        call(libc::SYS_clone, &[kept, 0, 0, 0, 0])
    }

    /// Memory that calls may write, those, too, that have come but not begun.
    pub(super) fn claimed(&self) -> Vec<(u64, u64)> {
        let flights = self.threads.iter().filter_map(|t| t.flight.as_ref());
        flights.flat_map(|f| f.outputs_max.iter().map(|r| (r.addr, r.end()))).collect()
    }

    /// The kernel has made the child; it and its parent stand still.
    pub(super) fn child_born(&mut self, tid: i32) -> Result<()> {
        let parent = self.threads[tid].tracee;
        let child = Tracee { tid: at("the child's id", parent.event_message())? as i32 };
        let claimed = self.claimed();
        let flight = self.threads[tid].flight.as_mut();
        let found = flight.and_then(|f| {
            let birth = f.birth.as_mut()?;
            birth.claimed.extend(claimed);
            Some((f.args, birth.clone()))
        });
        let Some((args, birth)) = found else {
            self.newborn.insert(child.tid);
            return Err(self.broken("a child of nobody"));
        };
        // Until it goes its own way it goes with this helper.
        let raised = at_rest(child, self.newborn.replace(child.tid).is_some()).and_then(|()| {
            self.bring_up(child, args, &birth)?;
            if args[0] & libc::CLONE_VFORK as u64 == 0 {
                return at("let the child go", child.detach(0));
            }
            let events = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_TRACESYSGOOD;
            at("watch the child", child.set_options(events))?;
            self.borrowers.insert(child.tid, Borrower { parent: tid, in_exec: false });
            at("let the child run", child.to_system_call(0))
        });
        match raised {
            // It was killed before it began; its parent hears of it as of any child.
            Err(e) if has_gone(&e) => drop(self.borrowers.remove(&child.tid)),
            other => other?,
        }
        self.newborn.remove(&child.tid);
        at("mask", parent.set_signal_mask(birth.mask))?;
        at("continue", parent.cont(0))?;
        self.follow(child.tid)
    }

    /// A child makes dozens of calls before its exec, and stops at each: its next stop is looked for before anything else, for a while.
    pub(super) fn follow(&mut self, child: i32) -> Result<()> {
        let begun = Instant::now();
        while self.borrowers.contains_key(&child) && begun.elapsed() < FOLLOWED {
            match at("wait for the child", Tracee { tid: child }.wait_within(NEXT_STOP))? {
                Some(stop) => self.on_borrower(child, stop)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Makes of the copy of a deputy what the copy of the program would be.
    fn bring_up(&self, child: Tracee, [flags, stack, _, child_tid, tls, _]: [u64; 6], birth: &Birth) -> Result<()> {
        let memory = at("the child's memory", ProcessMemory::open(child.tid))?;
        let context = &birth.context;
        let Some(mut registers) = ptrace::from_words(&context.registers) else {
            return Err(self.broken("a child with strange registers"));
        };
        let mut base = at("registers", child.registers())?;
        (registers.cs, registers.ss) = (base.cs, base.ss);
        (registers.rax, registers.orig_rax) = (0, u64::MAX);
        if stack != 0 {
            registers.rsp = stack;
        }
        if flags & libc::CLONE_SETTLS as u64 != 0 {
            registers.fs_base = tls;
        }
        for kept in &self.kept {
            memory.write(kept.at, &kept.bytes);
        }
        at("mask", child.set_signal_mask(inject::QUIET))?;
        base.rsp = self.hole + HOLE_BYTES - 64;
        let scratch = self.hole + SCRATCH;
        memory.write(scratch, &context.altstack);
        memory.write(scratch + 64, &[0; 32]);
        let clears = flags & libc::CLONE_CHILD_CLEARTID as u64 != 0;
        let shares = flags & libc::CLONE_VM as u64 != 0;
        // As in the kernel: a child has no robust list, and one that shares its parent's memory no rseq.
        let keeps = Context {
            robust: (0, 0),
            rseq: if shares { (0, 0, 0) } else { context.rseq },
            tid_address: if clears { child_tid } else { 0 },
            ..context.clone()
        };
        let mut calls = thread_state::calls(&keeps, scratch);
        if flags & CLEAR_HANDLERS != 0 {
            let defaults = self.handlers.keys().map(|&s| call(libc::SYS_rt_sigaction, &[s as u64, scratch + 64, 0, 8]));
            calls.extend(defaults);
        }
        inject::table_calls(child, &memory, &base, self.hole, self.hole + TABLE, &calls)?;
        inject::step_call(child, &base, self.syscall_ip, &call(libc::SYS_munmap, &[self.hole, HOLE_BYTES]))?;
        if flags & libc::CLONE_CHILD_SETTID as u64 != 0 {
            let inner = at("the child's id", procfs::innermost_tid(child.tid))?;
            memory.write(child_tid, &inner.to_le_bytes());
        }
        let unusable = |what: &'static str, e: std::io::Error| match e.raw_os_error() {
            Some(libc::ESRCH) => HomeError::Kernel(what, e),
            _ => self.unusable(what, e),
        };
        child.set_xstate(&xstate::without_tiles(&birth.xstate)).map_err(|e| unusable("extended state", e))?;
        at("mask", child.set_signal_mask(context.mask))?;
        child.set_registers(&registers).map_err(|e| unusable("registers", e))
    }

    /// A child that its parent waits for: until it has memory of its own.
    pub(super) fn on_borrower(&mut self, child: i32, stop: Stop) -> Result<()> {
        let tracee = Tracee { tid: child };
        let result = match stop {
            Stop::Other(libc::PTRACE_EVENT_EXIT) => {
                self.left_behind(child)?;
                self.borrowers.remove(&child);
                tracee.detach(0)
            }
            Stop::Other(libc::PTRACE_EVENT_EXEC) => {
                self.borrowers.remove(&child);
                tracee.detach(0)
            }
            Stop::Gone(_) => {
                self.borrowers.remove(&child);
                Ok(())
            }
            Stop::Signal(AT_CALL) => {
                let calls = [libc::SYS_execve, libc::SYS_execveat];
                let entry = |r: &ptrace::Registers| r.rax as i64 == -i64::from(libc::ENOSYS);
                let execs = tracee.registers().is_ok_and(|r| calls.contains(&(r.orig_rax as i64)) && entry(&r));
                if execs {
                    self.left_behind(child)?;
                }
                if let Some(borrower) = self.borrowers.get_mut(&child) {
                    borrower.in_exec = execs;
                }
                tracee.to_system_call(0)
            }
            Stop::Signal(signal) => tracee.to_system_call(signal),
            Stop::Event(libc::SIGTRAP) | Stop::Other(_) => tracee.to_system_call(0),
            Stop::Event(_) => tracee.listen(),
        };
        match result {
            // It was killed meanwhile.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => at("the child", other),
        }
    }

    /// A child that had borrowed its parent's memory ends or gets its own: what it wrote there stays (posix_spawn(3) says so why it failed).
    fn left_behind(&mut self, child: i32) -> Result<()> {
        // One that is killed in its exec has left nothing since; its parent may have gone on.
        let borrower = self.borrowers.get(&child).filter(|b| !b.in_exec && self.threads.has(b.parent));
        let Some(&Borrower { parent, .. }) = borrower else { return Ok(()) };
        let birth = self.threads[parent].flight.as_ref().and_then(|f| f.birth.as_ref());
        let claimed = birth.map_or_else(Vec::new, |b| b.claimed.clone());
        // One that has been killed leaves nothing more.
        let left = self.written_by(child, &claimed).unwrap_or_default();
        for (addr, bytes) in &left {
            self.memory.write(*addr, bytes);
        }
        let flight = self.threads[parent].flight.as_mut();
        match flight.and_then(|f| f.birth.as_mut()) {
            Some(birth) => birth.left.extend(left),
            None => return Err(HomeError::Kernel("a child's parent", std::io::Error::other("it is gone"))),
        }
        Ok(())
    }

    /// Where the memory of a child differs from its parent's, and no call of another thread may be why.
    fn written_by(&self, child: i32, claimed: &[(u64, u64)]) -> std::io::Result<Vec<(u64, Vec<u8>)>> {
        let (memory, pagemap) = (ProcessMemory::open(child)?, Pagemap::open(child)?);
        let mut left = Vec::new();
        for m in procfs::maps(child)? {
            if m.shared || m.prot & procfs::WRITE == 0 || pando_kernel::vdso::is_special(&m) {
                continue;
            }
            for (start, end) in pagemap.present(m.start, m.end)? {
                for page in pagemap::pages_of_its_own(child, start, end)? {
                    let (mut new, mut old) = ([0; PAGE as usize], [0; PAGE as usize]);
                    if !memory.read_all(page, &mut new) || !self.memory.read_all(page, &mut old) {
                        continue;
                    }
                    for &(from, to) in claimed.iter().filter(|c| c.0 < page + PAGE && c.1 > page) {
                        let (from, to) = ((from.max(page) - page) as usize, (to.min(page + PAGE) - page) as usize);
                        new[from..to].copy_from_slice(&old[from..to]);
                    }
                    left.extend(differences(page, &old, &new));
                }
            }
        }
        Ok(left)
    }

    /// Ends children that have not begun.
    pub(super) fn end_newborn(&self) {
        for &child in &self.newborn {
            let _ = pando_kernel::signal::kill(child, libc::SIGKILL);
        }
    }

    /// Lets children go that are still watched.
    pub(super) fn let_borrowers_go(&self) {
        for &child in self.borrowers.keys() {
            let tracee = Tracee { tid: child };
            // One that stands still already, with its stop seen, has no other to wait for.
            if tracee.detach(0).is_err() && tracee.interrupt().is_ok() && tracee.wait_within(LET_GO).is_ok() {
                let _ = tracee.detach(0);
            }
        }
    }
}

/// Waits until the child stands still, unless that has been seen.
fn at_rest(child: Tracee, seen: bool) -> Result<()> {
    if seen {
        return Ok(());
    }
    loop {
        match at("wait for the child", child.wait(true))? {
            Some(Stop::Event(_)) => return Ok(()),
            Some(Stop::Gone(status)) => return Err(HomeError::Inject(InjectError::Gone(status))),
            _ => at("continue", child.cont(0))?,
        }
    }
}

/// Did this fail because the child is dead?
fn has_gone(e: &HomeError) -> bool {
    let dead =
        |e: &std::io::Error| [Some(libc::ESRCH), Some(libc::ECHILD), Some(libc::ENOENT)].contains(&e.raw_os_error());
    match e {
        HomeError::Inject(InjectError::Gone(_)) => true,
        HomeError::Inject(InjectError::Trace(e)) | HomeError::Kernel(_, e) => dead(e),
        _ => false,
    }
}

/// Where `new` differs from `old`, both at `addr`.
fn differences(addr: u64, old: &[u8], new: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
    for i in (0..new.len()).filter(|&i| old[i] != new[i]) {
        match out.last_mut() {
            Some((start, bytes)) if *start + bytes.len() as u64 == addr + i as u64 => bytes.push(new[i]),
            _ => out.push((addr + i as u64, vec![new[i]])),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_carried_over() {
        let found = differences(0x1000, b"abcdefgh", b"aXXdefgY");
        assert_eq!(found, vec![(0x1001, b"XX".to_vec()), (0x1007, b"Y".to_vec())]);
        assert!(differences(0, b"same", b"same").is_empty());
    }
}
