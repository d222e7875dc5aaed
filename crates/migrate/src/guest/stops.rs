//! Stops of the guest: signals to deliver, faults, and interrupts that we asked for.

use super::{Guest, GuestError, Held, Result, at};
use crate::message::MAX_UNDELIVERED;
use pando_kernel::procfs;
use pando_kernel::ptrace::Stop;
use pando_kernel::signal::{self, DefaultAction, SigInfo};

/// Offset of `uc_sigmask` from the stack pointer at the first instruction of a handler (`struct rt_sigframe`).
pub(super) const FRAME_MASK: u64 = 304;

impl Guest {
    pub(super) fn on_stop(&mut self, stop: Stop) -> Result<()> {
        match stop {
            Stop::Gone(status) => Err(GuestError::Died(status)),
            // A fault of the last instruction waits behind the stop: it comes now, or it would come in the middle of our own code.
            Stop::Event(_) if self.leaving.freezing() && self.fault_is_due()? => at("continue", self.tracee.cont(0)),
            Stop::Event(_) => {
                self.interrupting = false;
                if self.leaving.freezing() {
                    self.stopped = true;
                    self.freeze_now()
                } else if self.paused {
                    self.stopped = true;
                    Ok(())
                } else {
                    at("continue", self.tracee.cont(0))
                }
            }
            Stop::Signal(_) if self.leaving.freezing() => self.keep_signal(),
            Stop::Signal(signal) => self.deliver(signal),
            Stop::Other(_) => at("continue", self.tracee.cont(0)),
        }
    }

    fn fault_is_due(&self) -> Result<bool> {
        let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGTRAP, libc::SIGFPE, libc::SIGSYS];
        let faults = faults.map(signal::bit).iter().fold(0, |set, bit| set | bit);
        let status = at("status", procfs::status(self.body.pid))?;
        Ok(status.pending & !status.blocked & faults != 0)
    }

    /// Keeps a signal that is about to be delivered for home, and goes on to the stop we asked for.
    fn keep_signal(&mut self) -> Result<()> {
        let info = at("siginfo", self.tracee.siginfo())?;
        let known = self.undelivered.iter().any(|i| signal::number(i) == signal::number(&info));
        // A fault happens again at home, at the same instruction; a breakpoint does not.
        let again = signal::is_fault(&info) && signal::number(&info) != libc::SIGTRAP;
        if !known && !again {
            self.undelivered.push(info);
        }
        self.stopped = true;
        self.interrupting = false;
        self.freeze_now()
    }

    /// The guest is about to receive `signal`: hand it the siginfo that home saw.
    pub(super) fn deliver(&mut self, signal: i32) -> Result<()> {
        let mut regs = at("registers", self.tracee.registers())?;
        let unreceived = self.is_unreceived(&regs);
        if unreceived {
            regs.rax = super::calls::RESTART_NOINTR as u64;
        }
        if self.leave_stub(&mut regs) || unreceived {
            at("registers", self.tracee.set_registers(&regs))?;
        }
        if self.attach.is_some() {
            // A timer of this kernel's own (take_signal). Faults happen again.
            let info = at("siginfo", self.tracee.siginfo())?;
            if !signal::is_fault(&info) {
                self.waiting.push(info);
                return at("continue", self.tracee.cont(0));
            }
        }
        self.broke_off = false;
        if let Some(i) = self.undelivered.iter().position(|i| signal::number(i) == signal) {
            let info = self.undelivered.remove(i);
            if let Some(next) = self.unqueued.pop_front() {
                self.make_pending(next)?;
            }
            at("siginfo", self.tracee.set_siginfo(&info))?;
            return match self.frame_mask.take() {
                Some(mask) => self.deliver_with_mask(signal, mask),
                None => at("deliver", self.tracee.cont(signal)),
            };
        }
        let info = at("siginfo", self.tracee.siginfo())?;
        let bit = signal::bit(signal);
        let blocked = at("mask", self.tracee.signal_mask())? & bit != 0;
        if self.caught & bit != 0 && !(blocked && signal::is_fault(&info)) {
            return at("deliver", self.tracee.cont(signal));
        }
        if !signal::is_fault(&info) && signal::default_action(signal) == DefaultAction::Ignore {
            return at("ignore", self.tracee.cont(0));
        }
        // Nobody handles it: it acts at home, with core file and status as they would have been.
        if !signal::is_fault(&info) || signal == libc::SIGTRAP {
            self.undelivered.push(info);
        }
        self.stopped = true;
        self.want_home(format!("it gets signal {signal}, which ends it"))
    }

    /// The call that the signal broke off had set a mask of its own (sigsuspend, ppoll, ...): the handler runs under
    /// that mask, and its frame must restore `mask`. The kernel keeps that in a flag which we can't set, so the frame is
    /// corrected at the handler's first instruction.
    fn deliver_with_mask(&mut self, signal: i32, mask: u64) -> Result<()> {
        at("deliver", self.tracee.step(signal))?;
        // The frame may go to a page that is still at home.
        loop {
            match at("wait", self.tracee.wait(false))? {
                Some(Stop::Gone(status)) => return Err(GuestError::Died(status)),
                Some(Stop::Event(_)) => {
                    // The stop that was asked for meanwhile; asked for again below.
                    at("step", self.tracee.step(0))?;
                }
                Some(_) => break,
                None => self.serve_faults_only()?,
            }
        }
        let regs = at("registers", self.tracee.registers())?;
        self.memory.write(regs.rsp.wrapping_add(FRAME_MASK), &mask.to_le_bytes());
        if std::mem::take(&mut self.interrupting) {
            self.interrupt()?;
        }
        at("continue", self.tracee.cont(0))
    }

    /// A signal from home.
    pub(super) fn on_signal(&mut self, info: &[u8]) -> Result<()> {
        self.signals += 1;
        self.take_signal(info)
    }

    /// Checks a signal that home sent, and makes it pending as soon as it may act.
    pub(super) fn take_signal(&mut self, info: &[u8]) -> Result<()> {
        let info: SigInfo = info.try_into().map_err(|_| GuestError::Protocol("a siginfo of the wrong size".into()))?;
        let number = signal::number(&info);
        if !(1..=64).contains(&number) || number == libc::SIGKILL || number == libc::SIGSTOP {
            return Err(GuestError::Protocol(format!("signal {number} from home")));
        }
        if self.attach.is_none() {
            return self.queue_signal(info);
        }
        if self.waiting.len() < MAX_UNDELIVERED {
            self.waiting.push(info);
        }
        Ok(())
    }

    /// Makes a signal pending in the guest's kernel; `deliver` sees it when it is about to run.
    pub(super) fn queue_signal(&mut self, info: SigInfo) -> Result<()> {
        let number = signal::number(&info);
        let standard = number < 32;
        if standard && self.undelivered.iter().any(|i| signal::number(i) == number) {
            return Ok(()); // pending already; standard signals do not queue
        }
        if self.undelivered.len() < MAX_UNDELIVERED {
            self.undelivered.push(info);
        }
        self.make_pending(number)
    }

    /// Where this kernel's queue is full (RLIMIT_SIGPENDING), a signal waits until others have been delivered.
    fn make_pending(&mut self, number: i32) -> Result<()> {
        match signal::tgkill(self.body.pid, self.body.pid, number) {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => self.unqueued.push_back(number),
            other => at("queue a signal", other)?,
        }
        Ok(())
    }

    /// The kernel flushes signals that come to be ignored, and stop signals when a continue comes: so must we. The guest is held.
    pub(super) fn forget_flushed(&mut self) -> Result<()> {
        for number in std::mem::take(&mut self.unqueued) {
            self.make_pending(number)?;
        }
        if !self.undelivered.is_empty() {
            let pending = at("status", procfs::status(self.body.pid))?.pending;
            let unqueued = &self.unqueued;
            self.undelivered.retain(|i| {
                let number = signal::number(i);
                pending & signal::bit(number) != 0 || unqueued.contains(&number)
            });
        }
        Ok(())
    }

    /// A signal broke `held` off at home: the guest's kernel now does what it does then (restart, or EINTR after a handler).
    pub(super) fn break_off(&mut self, held: Held, code: i64) -> Result<()> {
        let mut view = super::leave::Plain(&self.memory);
        let temporary = pando_calls::temporary_mask(held.nr, &held.args, &mut view);
        let admitted = |mask: u64| self.undelivered.iter().any(|i| signal::bit(signal::number(i)) & mask == 0);
        let temporary = temporary.filter(|&m| code != -513 && admitted(m));
        self.interrupt()?;
        self.answer(held.id, code)?;
        self.broke_off = true;
        let Some(temporary) = temporary else { return Ok(()) };
        match at("wait", self.tracee.wait(true))? {
            Some(Stop::Event(_)) => {}
            Some(Stop::Gone(status)) => return Err(GuestError::Died(status)),
            other => return Err(GuestError::Protocol(format!("stop {other:?} while a call was broken off"))),
        }
        self.interrupting = false;
        let mask = at("mask", self.tracee.signal_mask())?;
        at("mask", self.tracee.set_signal_mask(temporary))?;
        self.frame_mask = Some(mask);
        if self.paused || self.leaving.freezing() {
            self.stopped = true;
            return Ok(());
        }
        at("continue", self.tracee.cont(0))
    }
}
