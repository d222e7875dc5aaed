//! Forwarded calls: run by the deputy's own threads, with their own arguments.

use super::birth::{is_process, is_thread};
use super::fork::Birth;
use super::memory::View;
use super::thread::State;
use super::waits::Due;
use super::{Answered, Deputy, Flight, HomeError, Result, at};
use crate::channel::ChannelError;
use crate::layout::HOLE_BYTES;
use crate::message::{CHUNK, Down, Span};
use crate::restart;
use pando_calls::{Class, Plan, Range};
use pando_kernel::inject::{self, call};
use pando_kernel::page_ceil;
use pando_kernel::ptrace::Stop;
use std::time::{Duration, Instant};

/// So many calls in a row that a signal did not let begin are too many.
pub(super) const STARVED: u32 = 4;
/// Most output bytes that travel in the reply itself.
const INLINE: u64 = 128 * 1024;

/// So often while an answer leaves it is looked who waits for a file.
const SLICE: Duration = Duration::from_millis(50);

/// A call as the guest asks for it.
pub(super) struct Wanted {
    /// The thread as the program knows it.
    pub inner: i32,
    pub seq: u64,
    pub nr: u64,
    pub args: [u64; 6],
    pub resumes: bool,
}

impl Deputy {
    /// A call from the guest.
    pub(super) fn on_call(&mut self, wanted: Wanted, inputs: &[Span], body: &[u8], signals: u64) -> Result<()> {
        let Wanted { inner, seq, nr, mut args, resumes } = wanted;
        let Some(tid) = self.threads.known_inside(inner).filter(|_| !self.returning) else {
            return Err(self.broken(&format!("a call of thread {inner}, which there is not")));
        };
        if self.threads[tid].flight.is_some() {
            return Err(self.broken("a call while another one is running"));
        }
        if Some(seq) != self.last_seq.checked_add(1) {
            return Err(self.broken(&format!("call number {seq} after {}", self.last_seq)));
        }
        self.check_signals(tid, signals)?;
        let mut rest = body;
        for &(addr, len) in inputs {
            let Some((bytes, tail)) = rest.split_at_checked(len as usize) else {
                return Err(self.broken("a call with too few bytes"));
            };
            rest = tail;
            self.write_input(addr, bytes)?;
        }
        self.calls += 1;
        self.last_seq = seq;
        let thread = &mut self.threads[tid];
        thread.last_reply = None;
        thread.signals_seen(signals);
        let cut = thread.cut_short.take().filter(|cut| resumes && (cut.0, cut.1) == (nr, args));
        let done_before = cut.map_or(0, |(_, _, done)| done);
        if signals != thread.signals {
            thread.starved = thread.starved.saturating_add(1);
            // A signal is on its way to the guest: its handler runs first, then the call is made again; one that has moved something ends.
            let Some((_, _, done)) = cut else {
                return self.tell(&Down::Interrupted { seq, code: restart::NOINTR }, &[]);
            };
            // Kept: a guest that is leaving may not hear it, and its part must not be transferred twice.
            let ret = done as i64;
            thread.last_reply = Some(Answered { seq, ret, broken_off: false, outputs: Vec::new() });
            return self.tell(&Down::Reply { seq, ret, outputs: Vec::new() }, &[]);
        }
        if cut.is_some() {
            args[1] += done_before;
            args[2] = args[2].saturating_sub(done_before);
        }
        // Nothing is on its way to anyone: all have run since they got their last signals, so those have been delivered.
        if self.threads.iter().all(|t| t.sent.is_empty()) {
            self.spent.clear();
        }
        if let Some(error) = self.forbidden(tid, nr, &args)? {
            return self.tell(&Down::Reply { seq, ret: error, outputs: Vec::new() }, &[]);
        }
        let outputs_max = self.outputs_max(tid, nr, args);
        let birth = self.unborn.take().map(|(context, xstate)| {
            let mask = context.mask;
            Birth { context: *context, xstate, left: Vec::new(), claimed: Vec::new(), mask }
        });
        let birth = birth.filter(|_| nr == libc::SYS_clone as u64 && is_process(args[0])).map(Box::new);
        let (due, again) = self.due_of_call(tid, nr, &args, resumes);
        let flight = Flight { birth, due, again, ..Flight::new(seq, nr, args, outputs_max, done_before) };
        let at_home = self.cuts_its_map(nr, &args);
        self.threads[tid].flight = Some(Flight { at_home, ..flight });
        if at_home { self.cut_at_home() } else { self.begin(tid) }
    }

    /// What a guest may not have done: calls that never come from an honest one, and anything that touches our pages.
    fn forbidden(&self, tid: i32, nr: u64, args: &[u64; 6]) -> Result<Option<i64>> {
        let clear = |start: u64, len: u64| start.saturating_add(len) <= self.hole || start >= self.hole + HOLE_BYTES;
        let not_forwarded = || self.broken(&format!("{}, which must not be forwarded", pando_calls::name(nr)));
        match pando_calls::class(nr, args) {
            Class::Home(_) | Class::Native | Class::Words(_) | Class::CpuTimer => Err(not_forwarded()),
            Class::Birth if nr == libc::SYS_clone as u64 && is_thread(args[0]) => Ok(None),
            Class::Birth if nr == libc::SYS_clone as u64 && is_process(args[0]) && self.unborn.is_some() => Ok(None),
            Class::Birth => Err(not_forwarded()),
            // The first thread outlives the others, or all of it is at home.
            _ if nr == libc::SYS_exit as u64 && tid == self.pid && self.threads.len() > 1 => Err(not_forwarded()),
            // The guest's kernel's business (docs/engine.md, Signals).
            Class::Both if nr == libc::SYS_sigaltstack as u64 => Err(not_forwarded()),
            Class::Memory => {
                let ranges = [(args[0], page_ceil(args[1])), (args[4], page_ceil(args[2]))];
                let moves = nr == libc::SYS_mremap as u64;
                let brk = nr == libc::SYS_brk as u64;
                let touches = ranges.iter().take(1 + usize::from(moves)).any(|&(s, l)| !clear(s, l));
                Ok((touches && !brk).then_some(-i64::from(libc::EINVAL)))
            }
            _ => match pando_calls::plan(nr, args, &mut View(&self.memory)) {
                Plan::Forward { outputs_max, .. } if outputs_max.iter().any(|r| !clear(r.addr, r.len)) => {
                    Ok(Some(-i64::from(libc::EFAULT)))
                }
                Plan::Home(_) => Err(not_forwarded()),
                _ => Ok(None),
            },
        }
    }

    /// Starts the waiting call of a thread, or sees to it that the thread becomes free for it.
    pub(super) fn begin(&mut self, tid: i32) -> Result<()> {
        match self.threads[tid].state {
            // It came with the last of its guest: it is made natively.
            State::Halted if self.returning && !self.released => self.call_never_made(tid),
            State::Halted if self.threads[tid].flight.as_ref().is_some_and(|f| f.at_home) => Ok(()),
            State::Halted => {
                self.grow_stack(tid)?;
                let births = self.threads[tid].flight.as_ref().is_some_and(|f| f.birth.is_some());
                let claimed = if births { self.claimed() } else { Vec::new() };
                let thread = &mut self.threads[tid];
                let Some(flight) = &mut thread.flight else { return Ok(()) };
                let wanted = inject::Call { nr: flight.nr, args: flight.args };
                if matches!(pando_calls::class(wanted.nr, &wanted.args), Class::Memory) {
                    // One after the other: abroad they are made in the order of the answers.
                    if self.changing_map.is_some() {
                        return Ok(());
                    }
                    self.changing_map = Some(tid);
                }
                flight.begun = true;
                if let Some(birth) = &mut flight.birth {
                    // One that ends before the child is seen may have written after the kernel copied its memory.
                    birth.claimed = claimed;
                    birth.mask = at("mask", thread.tracee.signal_mask())?;
                    at("mask", thread.tracee.set_signal_mask(inject::QUIET))?;
                }
                let is_birth = flight.birth.is_some();
                let wanted = match wanted.nr == libc::SYS_clone as u64 {
                    true if !is_birth => return self.bear(tid),
                    true => Self::fork_call(wanted.args[0]),
                    false => self.with_what_is_left(tid, wanted),
                };
                if self.threads[tid].starved >= STARVED && !is_birth {
                    self.enter_under_fire(tid, &wanted)?;
                } else {
                    self.run_in_deputy(tid, &wanted)?;
                }
                self.threads[tid].state = State::InCall;
                self.watch_briefly(tid)
            }
            // Its stop (PTRACE_EVENT_STOP) begins the call.
            State::Parked => at("interrupt", self.threads[tid].tracee.interrupt()),
            State::InCall | State::JobStopped => Ok(()),
        }
    }

    /// Lets the halted thread run a call that may block; the int3 behind it reports the end.
    pub(super) fn run_in_deputy(&mut self, tid: i32, wanted: &inject::Call) -> Result<()> {
        let thread = &self.threads[tid];
        let regs = inject::registers_for(&thread.base, self.hole + inject::SINGLE, wanted);
        at("registers", thread.tracee.set_registers(&regs))?;
        at("continue", thread.tracee.cont(0))
    }

    /// Signals come faster than calls can begin (a timer of microseconds). The call is entered with signals held back, and they are let
    /// in there: a call that would wait is broken off by them, any other one is made, as it would be at home.
    fn enter_under_fire(&mut self, tid: i32, wanted: &inject::Call) -> Result<()> {
        let thread = &self.threads[tid];
        let tracee = thread.tracee;
        let mask = at("mask", tracee.signal_mask())?;
        at("mask", tracee.set_signal_mask(inject::QUIET))?;
        let regs = inject::registers_for(&thread.base, self.hole + inject::SINGLE, wanted);
        at("registers", tracee.set_registers(&regs))?;
        loop {
            at("enter", tracee.to_system_call(0))?;
            match at("wait", tracee.wait(true))? {
                Some(Stop::Signal(libc::SIGTRAP)) => break,
                Some(Stop::Signal(libc::SIGSTOP)) => {
                    at("stop again", pando_kernel::signal::kill(self.pid, libc::SIGSTOP))?
                }
                Some(Stop::Gone(status)) => return Err(HomeError::Ended(status)),
                _ => {}
            }
        }
        at("mask", tracee.set_signal_mask(mask))?;
        at("continue", tracee.cont(0))
    }

    /// Most calls take microseconds: look for their end before going to sleep.
    fn watch_briefly(&mut self, tid: i32) -> Result<()> {
        let tracee = self.threads[tid].tracee;
        for _ in 0..24 {
            if let Some(stop) = at("wait", tracee.wait(false))? {
                return self.on_stop(tid, stop);
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// The thread waits in pause(2) until there is work or a signal.
    pub(super) fn park(&mut self, tid: i32) -> Result<()> {
        self.run_in_deputy(tid, &call(libc::SYS_pause, &[]))?;
        self.threads[tid].state = State::Parked;
        Ok(())
    }

    /// The call in flight has returned.
    pub(super) fn call_done(&mut self, tid: i32, ret: i64) -> Result<()> {
        self.call_returned(tid, ret)?;
        self.map_has_changed(tid)
    }

    fn call_returned(&mut self, tid: i32, mut ret: i64) -> Result<()> {
        self.threads[tid].halt();
        self.threads[tid].starved = 0;
        self.reset_handlers(tid)?;
        let Some(mut flight) = self.threads[tid].flight.take() else { return Ok(()) };
        if flight.disturbed && ret == -i64::from(libc::EINTR) && pando_calls::gives_eintr_by_itself(flight.nr) {
            flight.disturbed = false;
            flight.again = true;
            self.threads[tid].flight = Some(flight);
            return self.begin(tid);
        }
        if super::urgency::may_change(flight.nr) && !self.returning {
            self.tell_urgency()?;
        }
        if flight.done_before > 0 {
            ret = flight.done_before as i64 + ret.max(0);
        }
        self.files.note_call(flight.nr, ret);
        self.mind_own_writes(flight.nr, ret)?;
        let mut outputs = self.outputs(tid, &flight, ret);
        if let Some(birth) = flight.birth.take() {
            at("mask", self.threads[tid].tracee.set_signal_mask(birth.mask))?;
            outputs = birth.left;
            outputs.extend((ret > 0).then(|| self.announce(&flight, ret as i32)).into_iter().flatten());
        }
        self.settle_kept(tid, &outputs);
        self.note_effects(&flight, ret);
        if self.returning {
            self.call_ended_at_home(tid, Some(ret), None);
            return Ok(());
        }
        self.reply(tid, &flight, ret, outputs)
    }

    /// If it was the thread `tid` that changed the map, the next one may (`begin_waiting`).
    fn map_has_changed(&mut self, tid: i32) -> Result<()> {
        if self.changing_map != Some(tid) {
            return Ok(());
        }
        self.changing_map = None;
        Ok(())
    }

    /// Memory calls that waited for another one, and calls that waited for the way home.
    pub(super) fn begin_waiting(&mut self) -> Result<()> {
        let returning = self.returning;
        let waits = |t: &&super::thread::DeputyThread| {
            let memory = |f: &Flight| matches!(pando_calls::class(f.nr, &f.args), Class::Memory);
            let may = |f: &Flight| !f.begun && (memory(f) || f.at_home && returning);
            t.state == State::Halted && t.flight.as_ref().is_some_and(may)
        };
        while self.changing_map.is_none() {
            let Some(next) = self.threads.iter().find(waits).map(|t| t.tracee.tid) else { break };
            self.begin(next)?;
        }
        Ok(())
    }

    /// What a call may write. Asked before it is made: the kernel may write a length that is larger than the buffer.
    pub(super) fn outputs_max(&self, tid: i32, nr: u64, args: [u64; 6]) -> Vec<Range> {
        let (nr, args) = self.threads[tid].real_call(nr, args);
        match pando_calls::plan(nr, &args, &mut View(&self.memory)) {
            Plan::Forward { outputs_max, .. } => outputs_max,
            _ => Vec::new(),
        }
    }

    fn outputs(&self, tid: i32, flight: &Flight, ret: i64) -> Vec<(u64, Vec<u8>)> {
        let (nr, args) = self.threads[tid].real_call(flight.nr, flight.args);
        if matches!(pando_calls::class(nr, &args), Class::Memory) {
            return Vec::new();
        }
        let ranges = pando_calls::outputs(nr, &args, ret, &mut View(&self.memory));
        let mut out = Vec::with_capacity(ranges.len());
        for range in pando_calls::clip(&ranges, &flight.outputs_max) {
            let mut bytes = vec![0; range.len as usize];
            let got = self.memory.read(range.addr, &mut bytes);
            bytes.truncate(got);
            out.push((range.addr, bytes));
        }
        out
    }

    pub(super) fn reply(&mut self, tid: i32, flight: &Flight, ret: i64, outputs: Vec<(u64, Vec<u8>)>) -> Result<()> {
        let total: u64 = outputs.iter().map(|o| o.1.len() as u64).sum();
        if total > INLINE {
            for (addr, bytes) in &outputs {
                self.send_output(*addr, bytes)?;
            }
            self.tell(&Down::Reply { seq: flight.seq, ret, outputs: Vec::new() }, &[])?;
        } else {
            let spans: Vec<Span> = outputs.iter().map(|(a, b)| (*a, b.len() as u32)).collect();
            let parts: Vec<&[u8]> = outputs.iter().map(|(_, b)| b.as_slice()).collect();
            self.tell(&Down::Reply { seq: flight.seq, ret, outputs: spans }, &parts)?;
        }
        self.threads[tid].last_reply = Some(Answered { seq: flight.seq, ret, broken_off: false, outputs });
        Ok(())
    }

    fn send_output(&mut self, addr: u64, bytes: &[u8]) -> Result<()> {
        for (i, part) in (0u64..).zip(bytes.chunks(CHUNK)) {
            self.tell(&Down::Output(addr + i * CHUNK as u64), &[part])?;
            self.deliver()?;
        }
        Ok(())
    }

    /// Waits until what has been said is on its way. Who wants to write to a file that is read abroad need not wait for that.
    fn deliver(&mut self) -> Result<()> {
        let (patience, begun) = (self.lost_after(), Instant::now());
        while let Some(abroad) = &mut self.abroad {
            let lost = |source| HomeError::Target { node: abroad.node.clone(), source };
            match abroad.chan.deliver(SLICE.min(patience)) {
                Err(ChannelError::NotTaken(_)) if begun.elapsed() < patience => self.mind_leases()?,
                other => return other.map_err(lost),
            }
        }
        Ok(())
    }

    /// A signal with a handler broke the call off, or the process goes home.
    pub(super) fn call_interrupted(&mut self, tid: i32, code: i64) -> Result<()> {
        if self.threads[tid].flight.as_ref().is_some_and(|f| f.done_before > 0) {
            // Part of it has been transferred: the call ends with that, as the kernel would have it.
            return self.call_done(tid, code);
        }
        let thread = &mut self.threads[tid];
        thread.halt();
        let Some(flight) = thread.flight.take() else { return self.map_has_changed(tid) };
        let code = if flight.begun { code } else { restart::NOINTR };
        thread.starved = if code == restart::NOINTR { thread.starved + 1 } else { 0 };
        if code == restart::BLOCK && flight.nr != libc::SYS_restart_syscall as u64 {
            thread.restart = Some((flight.nr, flight.args));
        }
        let outputs = if flight.begun { self.outputs(tid, &flight, code) } else { Vec::new() };
        self.settle_kept(tid, &outputs);
        if self.returning {
            let due = flight.due.map(|at| Due { nr: flight.nr, args: flight.args, at });
            self.threads[tid].due = due;
            self.call_ended_at_home(tid, None, Some(code));
            return self.map_has_changed(tid);
        }
        for (addr, bytes) in &outputs {
            self.send_output(*addr, bytes)?;
        }
        self.tell(&Down::Interrupted { seq: flight.seq, code }, &[])?;
        self.threads[tid].last_reply = Some(Answered { seq: flight.seq, ret: code, broken_off: true, outputs });
        self.map_has_changed(tid)
    }

    /// What a call changed that the engine must know.
    fn note_effects(&mut self, flight: &Flight, ret: i64) {
        if (-4095..0).contains(&ret) {
            return;
        }
        match flight.nr as i64 {
            libc::SYS_rt_sigaction => self.note_handler(flight.args[0] as i32, flight.args[1]),
            _ => self.note_map(flight.nr, &flight.args, ret as u64),
        }
    }

    fn note_handler(&mut self, signal: i32, at: u64) {
        let mut action = vec![0; 32];
        if at == 0 || !self.memory.read_all(at, &mut action) {
            return;
        }
        let bit = pando_kernel::signal::bit(signal);
        self.handlers.remove(&signal);
        self.spent.remove(&signal);
        self.ignored &= !bit;
        match action[..8] {
            [0, 0, 0, 0, 0, 0, 0, 0] => {}
            [1, 0, 0, 0, 0, 0, 0, 0] => self.ignored |= bit,
            _ => {
                self.handlers.insert(signal, action);
            }
        }
    }
}
