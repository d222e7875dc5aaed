//! Stops of the deputy: signals, job control, the end of a call.

use super::{Deputy, HomeError, Result, Thread, at};
use crate::message::Down;
use pando_kernel::inject::{self, call};
use pando_kernel::ptrace::Stop;
use pando_kernel::signal::{self, DefaultAction, SigInfo};

const SA_RESETHAND: u64 = 0x8000_0000;
/// `si_code` of the trap that int3 raises (SI_KERNEL).
const FROM_KERNEL: i32 = 0x80;
const RESTART_CODES: [i64; 4] = [-512, -513, -514, -516];

impl Deputy {
    pub(super) fn on_stop(&mut self, stop: Stop) -> Result<()> {
        match stop {
            Stop::Gone(status) => Err(HomeError::Ended(status)),
            Stop::Other(_) => at("continue", self.tracee.cont(0)),
            Stop::Event(libc::SIGTRAP) => self.on_event(),
            Stop::Event(_) => {
                if self.thread != Thread::JobStopped {
                    self.before_stop = self.thread;
                    self.thread = Thread::JobStopped;
                    self.tell(&Down::Pause, &[])?;
                }
                at("listen", self.tracee.listen())
            }
            Stop::Signal(signal) => self.on_signal(signal),
        }
    }

    /// An interrupt of ours, or the end of a job-control stop.
    fn on_event(&mut self) -> Result<()> {
        if self.thread == Thread::JobStopped {
            self.thread = self.before_stop;
            self.tell(&Down::Resume, &[])?;
        }
        match self.thread {
            Thread::InCall => at("continue", self.tracee.cont(0)),
            Thread::Parked if self.flight.is_some() || self.wants_thread() => {
                self.halt();
                self.begin()
            }
            Thread::Parked => at("continue", self.tracee.cont(0)),
            Thread::Halted | Thread::JobStopped => {
                self.halt();
                self.begin()
            }
        }
    }

    /// The way home needs the thread halted.
    pub(super) fn wants_thread(&self) -> bool {
        self.returning.is_some() || self.halt_wanted
    }

    fn on_signal(&mut self, signal: i32) -> Result<()> {
        let info = at("siginfo", self.tracee.siginfo())?;
        let regs = at("registers", self.tracee.registers())?;
        let ours = signal == libc::SIGTRAP && signal::code(&info) == FROM_KERNEL;
        if ours && regs.rip == self.hole + inject::SINGLE_DONE {
            return match self.thread {
                Thread::InCall => self.call_done(regs.rax as i64),
                _ => {
                    self.halt();
                    self.begin()
                }
            };
        }
        if self.handlers.contains_key(&signal) {
            return self.forward_signal(&info, &regs);
        }
        self.act_at_home(signal)
    }

    /// Ignored and default actions are home's kernel's business: ending, stopping, continuing, and telling the parent.
    fn act_at_home(&mut self, signal: i32) -> Result<()> {
        let ignored = self.ignored & signal::bit(signal) != 0;
        let default = signal::default_action(signal);
        if ignored || default == DefaultAction::Ignore {
            if let Some(flight) = &mut self.flight {
                flight.disturbed = true;
            }
        } else if default == DefaultAction::Core && self.wants_core() {
            return self.die_at_home(signal);
        }
        at("continue", self.tracee.cont(signal))
    }

    fn wants_core(&self) -> bool {
        let text = std::fs::read_to_string(format!("/proc/{}/limits", self.pid)).unwrap_or_default();
        let line = text.lines().find(|l| l.starts_with("Max core file size")).unwrap_or("");
        line.split_ascii_whitespace().nth(4).is_some_and(|w| w != "0")
    }

    /// A death that leaves a core file: memory comes home first, then the signal acts there.
    fn die_at_home(&mut self, signal: i32) -> Result<()> {
        let info = at("siginfo", self.tracee.siginfo())?;
        self.spent.remove(&signal);
        self.sent.push_back((self.signals + 1, info));
        self.signals += 1;
        if self.flight.is_some() {
            let regs = at("registers", self.tracee.registers())?;
            let code = if RESTART_CODES.contains(&(regs.rax as i64)) { regs.rax as i64 } else { -513 };
            self.call_interrupted(code)?;
        } else {
            self.halt();
        }
        self.come_home_for(&format!("it gets signal {signal}, which ends it with a core file"))
    }

    fn forward_signal(&mut self, info: &SigInfo, regs: &pando_kernel::ptrace::Registers) -> Result<()> {
        let number = signal::number(info);
        if self.returning.is_some() {
            return self.signal_while_returning(info, regs);
        }
        self.signals += 1;
        self.sent.push_back((self.signals, *info));
        self.tell(&Down::Signal(info.to_vec()), &[])?;
        let code = regs.rax as i64;
        let begun = self.flight.as_ref().is_some_and(|f| f.begun) && self.thread == Thread::InCall;
        let broke_off = self.broke_off(code).filter(|_| begun && regs.rip == self.hole + inject::SINGLE_RETURN);
        let not_entered = begun && regs.rip == self.hole + inject::SINGLE;
        if broke_off.is_some() || not_entered {
            self.call_interrupted(broke_off.unwrap_or(-513))?;
        } else if begun {
            // The call is complete; the trap behind it comes next.
            at("continue", self.tracee.cont(0))?;
        } else if self.flight.is_some() {
            // A call has come for the parked thread, but not begun: the handler runs first.
            self.call_interrupted(-513)?;
        } else {
            self.halt();
            // More may wait behind it: back to sleep at once, which is where signals are heard.
            self.halted_at = self.halted_at.checked_sub(super::away::PARK_AFTER).unwrap_or(self.halted_at);
        }
        self.reset_if_once(number)
    }

    /// The restart code if a signal broke the call in flight off: its handler comes first, under the mask that the call may have set
    /// for its time. Some calls say EINTR at once, which is what ERESTARTNOHAND becomes when the handler has run.
    fn broke_off(&self, code: i64) -> Option<i64> {
        let nr = self.flight.as_ref().map_or(0, |f| f.nr);
        let at_once = code == -i64::from(libc::EINTR) && pando_calls::gives_eintr_by_itself(nr);
        if at_once { Some(-514) } else { RESTART_CODES.contains(&code).then_some(code) }
    }

    /// SA_RESETHAND: the disposition at home changes as it does abroad.
    fn reset_if_once(&mut self, number: i32) -> Result<()> {
        let word = |h: &Vec<u8>, i: usize| u64::from_le_bytes(h[i..i + 8].try_into().unwrap_or_default());
        let Some(handler) = self.handlers.get(&number).filter(|h| word(h, 8) & SA_RESETHAND != 0).cloned() else {
            return Ok(());
        };
        self.handlers.remove(&number);
        self.spent.insert(number, handler);
        self.reset_wanted.push(number);
        if self.thread == Thread::Halted { self.reset_handlers() } else { Ok(()) }
    }

    /// Resets at home what SA_RESETHAND has reset abroad. The thread must be halted.
    pub(super) fn reset_handlers(&mut self) -> Result<()> {
        if self.reset_wanted.is_empty() {
            return Ok(());
        }
        let scratch = self.hole + crate::layout::SCRATCH;
        let numbers = std::mem::take(&mut self.reset_wanted);
        let calls: Vec<inject::Call> =
            numbers.iter().map(|&n| call(libc::SYS_rt_sigaction, &[n as u64, scratch, 0, 8])).collect();
        let mask = at("mask", self.tracee.signal_mask())?;
        at("mask", self.tracee.set_signal_mask(inject::QUIET))?;
        self.memory.write(scratch, &[0; 32]);
        let reset = self.inject(&calls);
        at("mask", self.tracee.set_signal_mask(mask))?;
        reset.map(drop)
    }

    /// Handlers that act once, when the process goes on by itself here: gone if their signal was delivered abroad, in place if it comes
    /// now. The thread must be halted with its signals blocked.
    pub(super) fn settle_once(&mut self, undelivered: &[Vec<u8>]) -> Result<()> {
        let comes = |n: i32| undelivered.iter().any(|i| i32::from(i[0]) == n);
        let wanted = std::mem::take(&mut self.reset_wanted);
        let gone = wanted.iter().filter(|n| !comes(**n)).map(|n| (*n, vec![0; 32]));
        let back = std::mem::take(&mut self.spent).into_iter().filter(|(n, _)| comes(*n) && !wanted.contains(n));
        let actions: Vec<(i32, Vec<u8>)> = gone.chain(back).collect();
        let place = |i: u64| self.hole + crate::layout::SCRATCH + 32 * i;
        let mut calls = Vec::new();
        for (i, (number, action)) in (0..).zip(&actions) {
            self.memory.write(place(i), action);
            calls.push(call(libc::SYS_rt_sigaction, &[*number as u64, place(i), 0, 8]));
        }
        if calls.is_empty() { Ok(()) } else { self.inject(&calls).map(drop) }
    }

    /// The guest is gone, the call it waited for still runs here: the signal ends that and is delivered by home's kernel.
    fn signal_while_returning(&mut self, info: &SigInfo, regs: &pando_kernel::ptrace::Registers) -> Result<()> {
        self.signals += 1;
        self.sent.push_back((self.signals, *info));
        if let Some(context) = &mut self.returning {
            context.undelivered.push(info.to_vec());
        }
        let code = regs.rax as i64;
        let begun = self.flight.as_ref().is_some_and(|f| f.begun);
        if begun && regs.rip == self.hole + inject::SINGLE_RETURN && self.broke_off(code).is_none() {
            return at("continue", self.tracee.cont(0));
        }
        self.call_interrupted(self.broke_off(code).unwrap_or(-513))
    }

    /// It can't have seen more signals than were sent.
    pub(super) fn check_signals(&self, seen: u64) -> Result<()> {
        if seen > self.signals { Err(self.broken("more signals than there were")) } else { Ok(()) }
    }

    /// The guest has seen signals up to this number.
    pub(super) fn signals_seen(&mut self, seen: u64) {
        while self.sent.front().is_some_and(|s| s.0 <= seen) {
            self.sent.pop_front();
        }
    }
}
