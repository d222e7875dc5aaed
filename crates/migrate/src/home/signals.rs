//! Stops of deputy threads: signals, job control, the end of a call.

use super::thread::State;
use super::{Deputy, HomeError, Result, at};
use crate::message::Down;
use crate::restart;
use pando_kernel::inject::{self, call};
use pando_kernel::ptrace::{Registers, Stop};
use pando_kernel::signal::{self, DefaultAction, SigInfo};

const SA_RESETHAND: u64 = 0x8000_0000;
/// `si_code` of the trap that int3 raises (SI_KERNEL).
const FROM_KERNEL: i32 = 0x80;

impl Deputy {
    pub(super) fn on_stop(&mut self, tid: i32, stop: Stop) -> Result<()> {
        match stop {
            Stop::Gone(_) if tid != self.pid => self.thread_gone(tid),
            Stop::Gone(status) => Err(HomeError::Ended(status)),
            Stop::Other(libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE) => {
                self.child_born(tid)
            }
            Stop::Other(_) => at("continue", self.threads[tid].tracee.cont(0)),
            Stop::Event(libc::SIGTRAP) => self.on_event(tid),
            Stop::Event(_) => {
                if self.threads[tid].state != State::JobStopped {
                    let first = !self.job_stopped();
                    let thread = &mut self.threads[tid];
                    thread.before_stop = thread.state;
                    thread.state = State::JobStopped;
                    if first {
                        self.tell(&Down::Pause, &[])?;
                        self.report_state();
                    }
                }
                at("listen", self.threads[tid].tracee.listen())
            }
            Stop::Signal(signal) => self.on_signal(tid, signal),
        }
    }

    /// Does job control hold the process?
    pub(super) fn job_stopped(&self) -> bool {
        self.threads.iter().any(|t| t.state == State::JobStopped)
    }

    /// An interrupt of ours, or the end of a job-control stop.
    fn on_event(&mut self, tid: i32) -> Result<()> {
        if self.threads[tid].state == State::JobStopped {
            self.threads[tid].state = self.threads[tid].before_stop;
            if !self.job_stopped() {
                self.tell(&Down::Resume, &[])?;
                self.report_state();
            }
        }
        let wanted = self.wants_thread(tid);
        let thread = &mut self.threads[tid];
        match thread.state {
            State::InCall if self.returning && !self.released => self.recalled(tid),
            State::InCall => at("continue", thread.tracee.cont(0)),
            State::Parked if thread.flight.is_none() && !wanted => at("continue", thread.tracee.cont(0)),
            State::Parked | State::Halted | State::JobStopped => {
                thread.halt();
                self.begin(tid)
            }
        }
    }

    /// The process goes home and its call has been broken off for that: it is made again there, natively.
    fn recalled(&mut self, tid: i32) -> Result<()> {
        let mut regs = at("registers", self.threads[tid].tracee.registers())?;
        let Some(flight) = self.threads[tid].flight.as_ref().filter(|f| f.begun) else {
            return self.call_never_made(tid);
        };
        if regs.rip == self.hole + inject::SINGLE_DONE {
            // It is complete, and the trap behind it waits behind this stop.
            return at("continue", self.threads[tid].tracee.cont(0));
        }
        if regs.rip != self.hole + inject::SINGLE_RETURN {
            return self.call_never_made(tid);
        }
        let (nr, mut args, done) = (flight.nr, flight.args, flight.done_before);
        let quiet = self.threads[tid].context.as_ref().is_none_or(|c| c.undelivered.is_empty());
        regs.orig_rax = nr;
        restart::make_good(&self.memory, &mut regs);
        let result = regs.rax as i64;
        let so_far = done + result.max(0) as u64;
        if quiet && so_far > 0 && (result > 0 || restart::CODES.contains(&result)) {
            args[1] -= done;
            args[2] += done;
            if restart::is_cut_short(self.pid, nr, &args, so_far as i64) {
                self.threads[tid].cut_short = Some((nr, args, so_far));
                if let Some(flight) = &mut self.threads[tid].flight {
                    flight.done_before = 0;
                }
                return self.call_interrupted(tid, restart::NOINTR);
            }
        }
        if quiet && result > 0 && restart::gives_the_same_again(self.pid, nr, &args, result) {
            return self.call_interrupted(tid, restart::NOINTR);
        }
        if !restart::CODES.contains(&result) {
            return self.call_done(tid, result);
        }
        self.call_interrupted(tid, result)
    }

    /// The way home needs the thread halted.
    pub(super) fn wants_thread(&self, tid: i32) -> bool {
        (self.returning && !self.released) || self.threads[tid].halt_wanted
    }

    fn on_signal(&mut self, tid: i32, signal: i32) -> Result<()> {
        let thread = &self.threads[tid];
        let info = at("siginfo", thread.tracee.siginfo())?;
        let regs = at("registers", thread.tracee.registers())?;
        let ours = signal == libc::SIGTRAP && signal::code(&info) == FROM_KERNEL;
        if ours && regs.rip == self.hole + inject::SINGLE_DONE {
            return match thread.state {
                State::InCall => self.call_done(tid, regs.rax as i64),
                _ => {
                    self.threads[tid].halt();
                    self.begin(tid)
                }
            };
        }
        if self.handlers.contains_key(&signal) {
            return self.forward_signal(tid, &info, &regs);
        }
        self.act_at_home(tid, signal)
    }

    /// Ignored and default actions are home's kernel's business: ending, stopping, continuing, and telling the parent.
    fn act_at_home(&mut self, tid: i32, signal: i32) -> Result<()> {
        let ignored = self.ignored & signal::bit(signal) != 0;
        let default = signal::default_action(signal);
        if ignored || default == DefaultAction::Ignore {
            if let Some(flight) = &mut self.threads[tid].flight {
                flight.disturbed = true;
            }
        } else if default == DefaultAction::Core && self.wants_core() {
            return self.die_at_home(tid, signal);
        }
        at("continue", self.threads[tid].tracee.cont(signal))
    }

    fn wants_core(&self) -> bool {
        let text = std::fs::read_to_string(format!("/proc/{}/limits", self.pid)).unwrap_or_default();
        let line = text.lines().find(|l| l.starts_with("Max core file size")).unwrap_or("");
        line.split_ascii_whitespace().nth(4).is_some_and(|w| w != "0")
    }

    /// A death that leaves a core file: memory comes home first, then the signal acts there.
    fn die_at_home(&mut self, tid: i32, signal: i32) -> Result<()> {
        self.spent.remove(&signal);
        let thread = &mut self.threads[tid];
        let info = at("siginfo", thread.tracee.siginfo())?;
        thread.signals += 1;
        thread.sent.push_back((thread.signals, info));
        if let Some(context) = thread.context.as_mut().filter(|_| self.returning) {
            context.undelivered.push(info.to_vec());
        }
        if thread.flight.is_some() {
            let regs = at("registers", thread.tracee.registers())?;
            let result = regs.rax as i64;
            let code = if restart::CODES.contains(&result) { result } else { restart::NOINTR };
            self.call_interrupted(tid, code)?;
        } else {
            thread.halt();
        }
        if self.returning {
            return Ok(());
        }
        self.come_home_for(&format!("it gets signal {signal}, which ends it with a core file"))
    }

    fn forward_signal(&mut self, tid: i32, info: &SigInfo, regs: &Registers) -> Result<()> {
        let number = signal::number(info);
        let thread = &mut self.threads[tid];
        thread.signals += 1;
        thread.sent.push_back((thread.signals, *info));
        if self.returning {
            return self.signal_while_returning(tid, info, regs);
        }
        let inner = thread.inner;
        self.tell(&Down::Signal(inner, info.to_vec()), &[])?;
        let thread = &mut self.threads[tid];
        let flight = thread.flight.as_ref();
        let (has_flight, nr) = (flight.is_some(), flight.map_or(0, |f| f.nr));
        let begun = flight.is_some_and(|f| f.begun) && thread.state == State::InCall;
        let returned = begun && regs.rip == self.hole + inject::SINGLE_RETURN;
        let broke_off = restart::broke_off(nr, regs.rax as i64).filter(|_| returned);
        let not_entered = begun && regs.rip == self.hole + inject::SINGLE;
        if broke_off.is_some() || not_entered {
            self.call_interrupted(tid, broke_off.unwrap_or(restart::NOINTR))?;
        } else if returned && fires_again(info, thread.sent.iter().rev().skip(1).map(|s| s.1.as_slice())) {
            // The call is complete. A timer of microseconds has the next signal ready before the trap behind it is reached, again and again.
            self.call_done(tid, regs.rax as i64)?;
        } else if begun {
            // The trap behind the call comes next.
            at("continue", thread.tracee.cont(0))?;
        } else if has_flight {
            // A call has come for the parked thread, but not begun: the handler runs first.
            self.call_interrupted(tid, restart::NOINTR)?;
        } else {
            thread.halt();
            // More may wait behind it: back to sleep at once, which is where signals are heard.
            thread.halted_at = thread.halted_at.checked_sub(super::away::PARK_AFTER).unwrap_or(thread.halted_at);
        }
        self.reset_if_once(tid, number)
    }

    /// SA_RESETHAND: the disposition at home changes as it does abroad.
    fn reset_if_once(&mut self, tid: i32, number: i32) -> Result<()> {
        let word = |h: &Vec<u8>, i: usize| u64::from_le_bytes(h[i..i + 8].try_into().unwrap_or_default());
        let Some(handler) = self.handlers.get(&number).filter(|h| word(h, 8) & SA_RESETHAND != 0).cloned() else {
            return Ok(());
        };
        self.handlers.remove(&number);
        self.spent.insert(number, handler);
        self.reset_wanted.push(number);
        if self.threads[tid].state == State::Halted { self.reset_handlers(tid) } else { Ok(()) }
    }

    /// Resets at home what SA_RESETHAND has reset abroad, by the thread `tid`, which must be halted.
    pub(super) fn reset_handlers(&mut self, tid: i32) -> Result<()> {
        if self.reset_wanted.is_empty() {
            return Ok(());
        }
        let scratch = self.hole + crate::layout::SCRATCH;
        let numbers = std::mem::take(&mut self.reset_wanted);
        let calls: Vec<inject::Call> =
            numbers.iter().map(|&n| call(libc::SYS_rt_sigaction, &[n as u64, scratch, 0, 8])).collect();
        self.memory.write(scratch, &[0; 32]);
        self.inject_quietly(tid, &calls).map(drop)
    }

    /// Handlers that act once, when the process goes on by itself here: gone if their signal was delivered abroad, in place if it comes
    /// now. The thread `tid` must be halted with its signals blocked.
    pub(super) fn settle_once(&mut self, tid: i32, undelivered: &[Vec<u8>]) -> Result<()> {
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
        if calls.is_empty() { Ok(()) } else { self.inject(tid, &calls).map(drop) }
    }

    /// The guest is gone: the signal is delivered by home's kernel, and ends the call that the thread is still in.
    fn signal_while_returning(&mut self, tid: i32, info: &SigInfo, regs: &Registers) -> Result<()> {
        let thread = &mut self.threads[tid];
        let mut again = false;
        if let Some(context) = &mut thread.context {
            again = fires_again(info, context.undelivered.iter().map(Vec::as_slice));
            context.undelivered.push(info.to_vec());
        }
        let flight = thread.flight.as_ref();
        let broke_off = restart::broke_off(flight.map_or(0, |f| f.nr), regs.rax as i64);
        if flight.is_some_and(|f| f.begun) && regs.rip == self.hole + inject::SINGLE_RETURN && broke_off.is_none() {
            return match again {
                true => self.call_done(tid, regs.rax as i64),
                false => at("continue", self.threads[tid].tracee.cont(0)),
            };
        }
        self.call_interrupted(tid, broke_off.unwrap_or(restart::NOINTR))
    }

    /// It can't have seen more signals than were sent.
    pub(super) fn check_signals(&self, tid: i32, seen: u64) -> Result<()> {
        if seen > self.threads[tid].signals { Err(self.broken("more signals than there were")) } else { Ok(()) }
    }
}

/// Is this the signal of a timer of which an earlier one has not been delivered?
fn fires_again<'a>(info: &SigInfo, mut earlier: impl Iterator<Item = &'a [u8]>) -> bool {
    let whose = |i: &SigInfo| signal::of_timer(i).map(|(timer, _)| (signal::number(i), timer));
    let this = whose(info);
    this.is_some() && earlier.any(|i| SigInfo::try_from(i).is_ok_and(|i| whose(&i) == this))
}
