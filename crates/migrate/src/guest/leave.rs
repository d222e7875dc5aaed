//! Going home: written pages first while the program runs, then the rest.

use super::{Guest, Result, Stage, at};
use crate::message::{CHUNK, Context, Run, Up, signal_frames};
use pando_calls::{Class, Memory};
use pando_kernel::inject::{self, call};
use pando_kernel::memory::ProcessMemory;
use pando_kernel::ptrace::{self, Stop};
use pando_kernel::{PAGE, signal, vdso};
use std::collections::VecDeque;

/// Fewer written bytes than this are sent while frozen.
const SMALL: u64 = 512 * 1024;
/// Most instructions stepped to leave the vDSO.
const MAX_STEPS: u32 = 4096;
/// Most rounds while the program runs.
const ROUNDS: u32 = 5;

/// How far the guest is on its way home.
#[derive(Debug, Default)]
pub(super) enum Leaving {
    /// It is not.
    #[default]
    No,
    /// Written pages are sent while it runs.
    Presync { round: u32, queue: VecDeque<(u64, u64)>, sent: u64 },
    /// All that could be sent has been; no further call is taken, and it is stopped as soon as the map is at rest.
    Settling,
    /// It has been asked to stop.
    Freezing,
    /// Everything is on its way.
    Frozen,
}

impl Leaving {
    pub(super) fn freezing(&self) -> bool {
        matches!(self, Leaving::Freezing | Leaving::Frozen)
    }

    /// No new calls: the stop is near.
    pub(super) fn closed(&self) -> bool {
        matches!(self, Leaving::Settling | Leaving::Freezing | Leaving::Frozen)
    }

    pub(super) fn busy(&self) -> bool {
        matches!(self, Leaving::Presync { .. } | Leaving::Settling)
    }

    pub(super) fn phase(&self) -> &'static str {
        match self {
            Leaving::No => "away",
            Leaving::Presync { .. } | Leaving::Settling => "presync",
            Leaving::Freezing => "freeze-abroad",
            Leaving::Frozen => "residual",
        }
    }
}

/// Memory without further knowledge.
pub(super) struct Plain<'a>(pub &'a ProcessMemory);

impl Memory for Plain<'_> {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> usize {
        self.0.read(addr, buf)
    }
}

impl Guest {
    pub(super) fn begin_leaving(&mut self) -> Result<()> {
        if !matches!(self.leaving, Leaving::No) {
            return Ok(());
        }
        // The first round begins with an empty queue: what is written is looked for when the map is at rest.
        self.leaving = Leaving::Presync { round: 0, queue: VecDeque::new(), sent: u64::MAX };
        self.report_state();
        self.hold("presync");
        Ok(())
    }

    /// A step of the presync, when the line is free.
    pub(super) fn work_on_leaving(&mut self) -> Result<()> {
        if self.chan.wants_write() {
            return Ok(());
        }
        if self.map_is_changing() {
            return Ok(());
        }
        if matches!(self.leaving, Leaving::Settling) {
            return self.stop_for_good();
        }
        let Leaving::Presync { round, queue, sent } = &mut self.leaving else { return Ok(()) };
        if let Some(chunk) = take_chunk(queue) {
            *sent += chunk.1 - chunk.0;
            return self.send_written(&[chunk]);
        }
        let (round, sent) = (*round, *sent);
        let waits = self.call.is_some_and(|c| c.stage == Stage::GoesHome) || self.stopped;
        if sent > SMALL && round < ROUNDS && !waits {
            let queue = self.take_written()?.into();
            self.leaving = Leaving::Presync { round: round + 1, queue, sent: 0 };
            return Ok(());
        }
        self.leaving = Leaving::Settling;
        Ok(())
    }

    fn stop_for_good(&mut self) -> Result<()> {
        self.leaving = Leaving::Freezing;
        if self.stopped {
            return self.freeze_now();
        }
        self.interrupt()?;
        if let Some(held) = self.call {
            // Let it out of the kernel; the registers will show the call as to be made again.
            self.answer(held.id, super::calls::RESTART_NOINTR)?;
        }
        Ok(())
    }

    /// Between a memory call at home and its mirror here the two maps differ: no page may be sent. The end of a handler, too,
    /// is half done then. Neither blocks.
    pub(super) fn map_is_changing(&self) -> bool {
        let sent = self.call.filter(|c| matches!(c.stage, Stage::Sent(_)));
        // Our stubs in the vDSO are not known elsewhere, and step_out begins them anew: their question must have been answered.
        // Calls that run on both sides must have run on both.
        let passing = |c: super::Held| {
            c.by_vdso || matches!(pando_calls::class(c.nr, &c.args), Class::Memory | Class::Native | Class::Both)
        };
        sent.is_some_and(passing)
    }

    /// Sends those pages of `ranges` that are still there: since they were looked for the program may have given some back, and to
    /// read a missing page the fast way is to wait for ourselves.
    fn send_written(&mut self, ranges: &[(u64, u64)]) -> Result<()> {
        for &(start, end) in ranges {
            for (start, end) in at("scan for present pages", self.pagemap.present(start, end))? {
                self.send_present(start, end)?;
            }
        }
        Ok(())
    }

    fn send_present(&mut self, start: u64, end: u64) -> Result<()> {
        let mut addr = start;
        while addr < end {
            let len = (end - addr).min(CHUNK as u64);
            let mut data = vec![0; len as usize];
            let got = self.memory.read_present(addr, &mut data) as u64 / PAGE * PAGE;
            if got > 0 {
                let run = Run { addr, pages: (got / PAGE) as u32, zero: false };
                self.send(&Up::Written(vec![run]), &[&data[..got as usize]])?;
            }
            addr += got.max(PAGE);
        }
        Ok(())
    }

    /// The guest has stopped for good: send what is left.
    pub(super) fn freeze_now(&mut self) -> Result<()> {
        if matches!(self.leaving, Leaving::Frozen) {
            return Ok(());
        }
        self.hold("freeze-abroad");
        let mask = match self.frame_mask.take() {
            Some(mask) => mask,
            None => at("mask", self.tracee.signal_mask())?,
        };
        at("mask", self.tracee.set_signal_mask(inject::QUIET))?;
        self.step_out()?;
        let mut regs = at("registers", self.tracee.registers())?;
        let xstate = at("extended state", self.tracee.xstate())?;
        if self.call.is_none() && self.attach.is_some() && (regs.orig_rax as i64) < 0 && self.at_syscall(regs.rip) {
            // About to enter the call that is already running at home: as if it had just been broken off.
            regs.orig_rax = regs.rax;
            regs.rip += 2;
            regs.rax = super::calls::RESTART_NOINTR as u64;
        }
        if self.is_unreceived(&regs) {
            regs.rax = super::calls::RESTART_NOINTR as u64;
        }
        let in_syscall = regs.orig_rax as i64 >= 0;
        let code = regs.rax as i64;
        if in_syscall && code == -516 && regs.orig_rax == libc::SYS_futex as u64 {
            // Its restart block stays here; waiting again from the beginning is the closest.
            regs.rax = -512i64 as u64;
        }
        let in_call = match (self.call.map(|c| c.stage), self.attach) {
            (Some(Stage::Sent(seq)), _) => Some(seq),
            (_, Some(attach)) => Some(attach.seq),
            _ => None,
        };
        let base = regs;
        at("mask", self.tracee.set_signal_mask(inject::QUIET))?;
        let (timers, altstack) = self.take_timers(&base)?;
        self.leaving = Leaving::Frozen;
        self.report_state();
        self.keep_timers_signals();
        let written = self.take_written()?;
        self.send_written(&written)?;
        self.hold("residual");
        let context = Context {
            registers: ptrace::to_words(&regs),
            xstate: xstate.len() as u32,
            mask,
            rseq: self.rseq,
            altstack,
            timers,
            in_call,
            undelivered: self.undelivered.iter().chain(&self.waiting).map(|i| i.to_vec()).collect(),
        };
        for body in signal_frames(&context.undelivered) {
            self.send(&Up::Undelivered, &[&body])?;
        }
        let (signals, cpu_ns) = (self.signals, self.cpu_ns());
        self.send(&Up::Frozen { context: Box::new(context), signals, cpu_ns }, &[&xstate])
    }

    /// Signals of CPU timers and limits are this kernel's own: home has not seen them.
    fn keep_timers_signals(&mut self) {
        let pending = self.tracee.pending(false).into_iter().chain(self.tracee.pending(true));
        for info in pending {
            let number = signal::number(&info);
            let own = [libc::SIGVTALRM, libc::SIGPROF, libc::SIGXCPU].contains(&number);
            if own && !self.undelivered.iter().any(|u| signal::number(u) == number) {
                self.undelivered.push(info);
            }
        }
    }

    fn at_syscall(&self, rip: u64) -> bool {
        self.memory.word(rip).is_some_and(|w| w as u16 == 0x050f)
    }

    /// Was the guest kicked out of a call before we saw it? Its kernel says ERESTARTSYS, which some handlers turn into EINTR; but
    /// the call was never made.
    pub(super) fn is_unreceived(&self, regs: &ptrace::Registers) -> bool {
        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
        let kicked = regs.orig_rax as i64 >= 0 && regs.rax as i64 == -512 && !self.broke_off;
        let asked = pando_calls::class(regs.orig_rax, &args) != Class::Native;
        kicked && (asked || regs.orig_rax == libc::SYS_rt_sigreturn as u64)
    }

    /// Our vDSO differs from home's in the bytes of a few functions: leave it, instruction by instruction.
    fn step_out(&mut self) -> Result<()> {
        for _ in 0..MAX_STEPS {
            let mut regs = at("registers", self.tracee.registers())?;
            if !(self.vdso.0..self.vdso.1).contains(&regs.rip) {
                return Ok(());
            }
            if self.leave_stub(&mut regs) {
                return at("registers", self.tracee.set_registers(&regs));
            }
            if self.at_syscall(regs.rip) {
                return Ok(());
            }
            at("step", self.tracee.step(0))?;
            loop {
                match at("wait", self.tracee.wait(false))? {
                    Some(Stop::Gone(status)) => return Err(super::GuestError::Died(status)),
                    Some(Stop::Signal(libc::SIGTRAP)) => break,
                    Some(_) => at("step", self.tracee.step(0))?,
                    None => self.serve_faults_only()?,
                }
            }
        }
        Ok(())
    }

    /// Our bytes in the vDSO are unknown at home: neither registers nor the frame of a signal handler may point into them. A clock
    /// function that has asked returns; one that has not begins anew. True if `regs` were in one.
    pub(super) fn leave_stub(&self, regs: &mut ptrace::Registers) -> bool {
        let Some(&stub) = self.stubs.iter().find(|&&s| (s..=s + vdso::STUB_RETURN).contains(&regs.rip)) else {
            return false;
        };
        let asks_again = regs.orig_rax as i64 >= 0 && (-516..=-512).contains(&(regs.rax as i64));
        if regs.rip - stub <= vdso::STUB_CALL || asks_again {
            regs.rip = stub;
        } else {
            let Some(caller) = self.memory.word(regs.rsp) else { return false };
            regs.rip = caller;
            regs.rsp = regs.rsp.wrapping_add(8);
        }
        regs.orig_rax = u64::MAX;
        true
    }

    /// CPU timers and the alternative signal stack.
    fn take_timers(&mut self, base: &ptrace::Registers) -> Result<([[u64; 4]; 2], Vec<u8>)> {
        let scratch = self.hole + crate::layout::SCRATCH;
        let calls = [1, 2].map(|w| call(libc::SYS_getitimer, &[w, scratch + (w - 1) * 32]));
        self.inject(base, &calls)?;
        self.inject(base, &[call(libc::SYS_sigaltstack, &[0, scratch + 128])])?;
        let mut altstack = vec![0; 24];
        self.memory.read_all(scratch + 128, &mut altstack);
        let mut timers = [[0u64; 4]; 2];
        for (i, timer) in timers.iter_mut().enumerate() {
            for (j, word) in timer.iter_mut().enumerate() {
                *word = self.memory.word(scratch + i as u64 * 32 + j as u64 * 8).unwrap_or(0);
            }
        }
        Ok((timers, altstack))
    }
}

/// Up to a chunk of the queue.
fn take_chunk(queue: &mut VecDeque<(u64, u64)>) -> Option<(u64, u64)> {
    let (start, end) = queue.pop_front()?;
    let cut = end.min(start + CHUNK as u64);
    if cut < end {
        queue.push_front((cut, end));
    }
    Some((start, cut))
}
