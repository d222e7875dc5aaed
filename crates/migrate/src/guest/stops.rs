//! Stops of guest threads: signals to deliver, faults, and interrupts that we asked for.

use super::{Guest, GuestError, Held, Result, at};
use crate::message::MAX_UNDELIVERED;
use crate::restart;
use pando_kernel::procfs;
use pando_kernel::ptrace::{Registers, Stop};
use pando_kernel::signal::{self, DefaultAction, SigInfo};

/// Offset of `uc_sigmask` from the stack pointer at the first instruction of a handler (`struct rt_sigframe`).
pub(super) const FRAME_MASK: u64 = 304;

impl Guest {
    pub(super) fn on_stop(&mut self, tid: i32, stop: Stop) -> Result<()> {
        self.read_is_over(tid)?;
        let tracee = self.threads[tid].tracee;
        self.threads[tid].changing = None;
        match stop {
            Stop::Gone(status) => self.thread_gone(tid, status),
            // A fault of the last instruction waits behind the stop: it comes now, or it would come in the middle of our own code.
            Stop::Event(_) if self.leaving.freezing() && fault_is_due(tracee.tid)? => at("continue", tracee.cont(0)),
            Stop::Event(_) => {
                self.threads[tid].interrupting = false;
                self.make_random_whole(tid)?;
                if self.leaving.freezing() { self.stopped_for_good(tid) } else { self.go_on(tid) }
            }
            Stop::Signal(_) if self.leaving.freezing() => self.keep_signal(tid),
            Stop::Signal(signal) => self.deliver(tid, signal),
            Stop::Other(libc::PTRACE_EVENT_CLONE) => Err(GuestError::Smuggled(format!("by {tid}"))),
            Stop::Other(_) => at("continue", tracee.cont(0)),
        }
    }

    /// A stop of ours ends getrandom(2) at the next page, as a signal would: it is made again, whole.
    fn make_random_whole(&self, tid: i32) -> Result<()> {
        let thread = &self.threads[tid];
        let mut regs = at("registers", thread.tracee.registers())?;
        let part = regs.orig_rax == libc::SYS_getrandom as u64 && regs.rax as i64 > 0 && regs.rax < regs.rsi;
        if !part || !thread.undelivered.is_empty() {
            return Ok(());
        }
        regs.rax = restart::NOINTR as u64;
        at("registers", thread.tracee.set_registers(&regs))
    }

    fn stopped_for_good(&mut self, tid: i32) -> Result<()> {
        self.threads[tid].stopped = true;
        self.freeze_if_all_stopped()
    }

    /// Keeps a signal that is about to be delivered for home, and goes on to the stop we asked for.
    fn keep_signal(&mut self, tid: i32) -> Result<()> {
        let thread = &mut self.threads[tid];
        let info = at("siginfo", thread.tracee.siginfo())?;
        let known = thread.undelivered.has(signal::number(&info));
        // A fault happens again at home, at the same instruction; a breakpoint does not.
        let again = signal::is_fault(&info) && signal::number(&info) != libc::SIGTRAP;
        if !known && !again {
            thread.undelivered.push(info);
        }
        thread.interrupting = false;
        self.stopped_for_good(tid)
    }

    /// A thread is about to receive `signal`: hand it the siginfo that home saw.
    pub(super) fn deliver(&mut self, tid: i32, signal: i32) -> Result<()> {
        let tracee = self.threads[tid].tracee;
        let mut regs = at("registers", tracee.registers())?;
        let unreceived = self.is_unreceived(tid, &regs);
        if unreceived {
            regs.rax = restart::NOINTR as u64;
        }
        let resumed = self.still_in_resumed(tid, &mut regs, Some(signal));
        let cut = self.ends_with_its_part(tid, &mut regs);
        if self.leave_stub(&mut regs) || unreceived || resumed || cut {
            at("registers", tracee.set_registers(&regs))?;
        }
        if self.threads[tid].attach.is_some() {
            // A timer of this kernel's own (take_signal). Faults happen again.
            let info = at("siginfo", tracee.siginfo())?;
            if !signal::is_fault(&info) {
                self.threads[tid].waiting.push(info);
                return at("continue", tracee.cont(0));
            }
        }
        let thread = &mut self.threads[tid];
        thread.broke_off = false;
        // One that came along, and that no handler takes, acts at home.
        let unhandled = self.caught & signal::bit(signal) == 0;
        if unhandled && thread.undelivered.has(signal) {
            return self.acts_at_home(tid, signal);
        }
        if !unhandled {
            thread.resumed = None;
        }
        if let Some(info) = thread.undelivered.take(signal) {
            self.fill_queue(tid, 1)?;
            at("siginfo", tracee.set_siginfo(&info))?;
            return match self.threads[tid].frame_mask.take() {
                Some(mask) => self.deliver_with_mask(tid, signal, mask),
                None => at("deliver", tracee.cont(signal)),
            };
        }
        let info = at("siginfo", tracee.siginfo())?;
        let bit = signal::bit(signal);
        let blocked = at("mask", tracee.signal_mask())? & bit != 0;
        // A program that keeps to a level may have used more all the same: home's CPU can do it.
        let beyond_level = signal == libc::SIGILL && signal::is_fault(&info) && self.offer.needs.level.is_some();
        if self.caught & bit != 0 && !(blocked && signal::is_fault(&info)) && !beyond_level {
            return at("deliver", tracee.cont(signal));
        }
        if !signal::is_fault(&info) && signal::default_action(signal) == DefaultAction::Ignore {
            return at("ignore", tracee.cont(0));
        }
        // Nobody handles it: it acts at home, with core file and status as they would have been.
        let thread = &mut self.threads[tid];
        if !signal::is_fault(&info) || signal == libc::SIGTRAP {
            thread.undelivered.push(info);
        }
        (thread.stopped, thread.for_home) = (true, true);
        self.want_home(match beyond_level {
            true => "it used an instruction that this CPU lacks".into(),
            false if signal::is_fault(&info) => {
                format!(
                    "it gets signal {signal} at {:#x}, about {:#x}, which ends it",
                    regs.rip,
                    signal::address(&info)
                )
            }
            false => format!("it gets signal {signal}, which ends it"),
        })
    }

    /// A signal with its default action, which its siginfo is kept for.
    fn acts_at_home(&mut self, tid: i32, signal: i32) -> Result<()> {
        let thread = &mut self.threads[tid];
        if signal::default_action(signal) == DefaultAction::Ignore {
            thread.undelivered.take(signal);
            return at("ignore", thread.tracee.cont(0));
        }
        (thread.stopped, thread.for_home) = (true, true);
        self.want_home(format!("it gets signal {signal}, which nothing here handles"))
    }

    /// A transfer that a freeze cut short, and that was to be made again, ends with what it had moved when a signal comes.
    fn ends_with_its_part(&mut self, tid: i32, regs: &mut Registers) -> bool {
        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
        let again = restart::CODES.contains(&(regs.rax as i64));
        let cut = self.threads[tid].cut_short.filter(|c| again && (c.0, c.1) == (regs.orig_rax, args));
        let Some((_, _, done)) = cut else { return false };
        self.threads[tid].cut_short = None;
        (regs.rax, regs.orig_rax) = (done, u64::MAX);
        true
    }

    /// The call that the signal broke off had set a mask of its own (sigsuspend, ppoll, ...): the handler runs under
    /// that mask, and its frame must restore `mask`. The kernel keeps that in a flag which we can't set, so the frame is
    /// corrected at the handler's first instruction.
    fn deliver_with_mask(&mut self, tid: i32, signal: i32, mask: u64) -> Result<()> {
        let tracee = self.threads[tid].tracee;
        at("deliver", tracee.step(signal))?;
        // The frame may go to a page that is still at home.
        loop {
            match at("wait", tracee.wait(false))? {
                Some(Stop::Gone(status)) => return Err(GuestError::Died(status)),
                Some(Stop::Event(_)) => {
                    // The stop that was asked for meanwhile; asked for again below.
                    at("step", tracee.step(0))?;
                }
                Some(_) => break,
                None => self.serve_faults_only()?,
            }
        }
        let regs = at("registers", tracee.registers())?;
        self.memory.write(regs.rsp.wrapping_add(FRAME_MASK), &mask.to_le_bytes());
        if std::mem::take(&mut self.threads[tid].interrupting) {
            self.interrupt(tid)?;
        }
        at("continue", tracee.cont(0))
    }

    /// A signal from home.
    pub(super) fn on_signal(&mut self, tid: i32, info: &[u8]) -> Result<()> {
        self.signal_came()?;
        if self.threads.has(tid) {
            self.threads[tid].signals += 1;
            return self.take_signal(tid, info);
        }
        // One that could not be made here is there at home for a moment: the first thread takes what it gets.
        if let Some(stillborn) = self.stillborn.values_mut().find(|s| s.tid == tid) {
            stillborn.signals += 1;
            return self.take_signal(self.offer.inner_pid, info);
        }
        Err(GuestError::Protocol(format!("a signal for thread {tid}, which there is not")))
    }

    /// Checks a signal that home sent, and makes it pending as soon as it may act.
    pub(super) fn take_signal(&mut self, tid: i32, info: &[u8]) -> Result<()> {
        let info: SigInfo = info.try_into().map_err(|_| GuestError::Protocol("a siginfo of the wrong size".into()))?;
        let number = signal::number(&info);
        if !(1..=64).contains(&number) || number == libc::SIGKILL || number == libc::SIGSTOP {
            return Err(GuestError::Protocol(format!("signal {number} from home")));
        }
        if self.threads[tid].attach.is_none() {
            return self.queue_signal(tid, info);
        }
        if self.threads[tid].waiting.len() < MAX_UNDELIVERED {
            self.threads[tid].waiting.push(info);
        }
        Ok(())
    }

    /// Makes a signal pending in the guest's kernel; `deliver` sees it when it is about to run.
    pub(super) fn queue_signal(&mut self, tid: i32, info: SigInfo) -> Result<()> {
        let number = signal::number(&info);
        let standard = number < 32;
        let undelivered = &mut self.threads[tid].undelivered;
        if standard && undelivered.has(number) {
            return Ok(()); // pending already; standard signals do not queue
        }
        if undelivered.overruns(&info) {
            return Ok(());
        }
        if undelivered.len() < MAX_UNDELIVERED {
            undelivered.push(info);
        }
        match self.make_pending(tid, number)? {
            true => Ok(()),
            false => {
                self.threads[tid].unqueued.add(number);
                Ok(())
            }
        }
    }

    /// False where this kernel's queue is full (RLIMIT_SIGPENDING): the signal waits until others have been delivered.
    fn make_pending(&mut self, tid: i32, number: i32) -> Result<bool> {
        let thread = &self.threads[tid];
        match signal::tgkill(self.body.pid, thread.tracee.tid, number) {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
            // It is ending, here too.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) && thread.ending => Ok(true),
            other => at("queue a signal", other).map(|()| true),
        }
    }

    /// Puts up to `most` of the signals that wait for it into this kernel's queue.
    fn fill_queue(&mut self, tid: i32, most: usize) -> Result<()> {
        for _ in 0..most {
            let Some(number) = self.threads[tid].unqueued.lowest() else { return Ok(()) };
            if !self.make_pending(tid, number)? {
                return Ok(());
            }
            self.threads[tid].unqueued.remove(number);
        }
        Ok(())
    }

    /// The kernel flushes signals that come to be ignored, and stop signals when a continue comes: so must we. The thread is held.
    pub(super) fn forget_flushed(&mut self, tid: i32) -> Result<()> {
        self.fill_queue(tid, MAX_UNDELIVERED)?;
        let thread = &mut self.threads[tid];
        if !thread.undelivered.is_empty() {
            let pending = at("status", procfs::status(thread.tracee.tid))?.pending;
            thread.undelivered.keep(pending | thread.unqueued.numbers());
        }
        Ok(())
    }

    /// A signal broke `held` off at home: the guest's kernel now does what it does then (restart, or EINTR after a handler).
    pub(super) fn break_off(&mut self, tid: i32, held: Held, code: i64) -> Result<()> {
        let mut view = super::leave::Plain(&self.memory);
        let temporary = pando_calls::temporary_mask(held.nr, &held.args, &mut view);
        let undelivered = &self.threads[tid].undelivered;
        let admitted = |mask: u64| undelivered.numbers() & !mask != 0;
        let temporary = temporary.filter(|&m| code != restart::NOINTR && admitted(m));
        self.interrupt(tid)?;
        self.answer(held.id, code)?;
        self.threads[tid].broke_off = true;
        let Some(temporary) = temporary else { return Ok(()) };
        let tracee = self.threads[tid].tracee;
        match at("wait", tracee.wait(true))? {
            Some(Stop::Event(_)) => {}
            Some(Stop::Gone(status)) => return Err(GuestError::Died(status)),
            other => return Err(GuestError::Protocol(format!("stop {other:?} while a call was broken off"))),
        }
        let mask = at("mask", tracee.signal_mask())?;
        at("mask", tracee.set_signal_mask(temporary))?;
        let thread = &mut self.threads[tid];
        thread.interrupting = false;
        thread.frame_mask = Some(mask);
        self.go_on(tid)
    }
}

fn fault_is_due(here: i32) -> Result<bool> {
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGTRAP, libc::SIGFPE, libc::SIGSYS];
    let faults = faults.map(signal::bit).iter().fold(0, |set, bit| set | bit);
    let status = at("status", procfs::status(here))?;
    Ok(status.pending & !status.blocked & faults != 0)
}
