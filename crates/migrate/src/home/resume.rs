//! The guest has frozen: the process goes on at home, or at the next node.

use super::freeze::Frozen;
use super::offer::{areas_of, holds};
use super::{Deputy, HomeError, Result, Thread, at};
use crate::control::{Destination, MoveRecord};
use crate::layout::{HOLE_BYTES, SCRATCH};
use crate::message::{Context, Down};
use pando_kernel::inject::{self, Call, call};
use pando_kernel::ptrace::{self, Registers};
use pando_kernel::signal::{self, SigInfo};
use pando_kernel::{PAGE, procfs};
use std::time::{Duration, Instant};

/// Will these registers make that call (again) as soon as they run?
fn is_about_to(r: &Registers, nr: u64, args: &[u64; 6]) -> bool {
    r.orig_rax == nr && [-513, -514].contains(&(r.rax as i64)) && [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] == *args
}

impl Deputy {
    /// The guest at home's request has stopped running.
    pub(super) fn froze_abroad(&self) -> bool {
        self.wish.as_ref().is_some_and(|w| w.called)
    }

    /// All of the process is here.
    pub(super) fn on_frozen(&mut self, mut context: Context, xstate: Vec<u8>, signals: u64, cpu_ns: u64) -> Result<()> {
        if !self.froze_abroad() {
            return Err(self.broken("a frozen process that was not asked for"));
        }
        let Some(mut registers) =
            ptrace::from_words(&context.registers).filter(|_| xstate.len() == context.xstate as usize)
        else {
            return Err(self.broken("a register set that makes no sense"));
        };
        self.check_signals(signals)?;
        context.undelivered = std::mem::take(&mut self.arriving);
        if let Some(odd) = context.undelivered.iter().find(|i| !is_signal(i)) {
            return Err(self.broken(&format!("a signal that there is not (number {:?})", odd.get(..4))));
        }
        registers.cs = self.base.cs;
        registers.ss = self.base.ss;
        self.froze = Instant::now();
        self.signals_seen(signals);
        context.undelivered.extend(self.sent.drain(..).map(|(_, info)| info.to_vec()));
        if context.altstack.len() == 24 {
            self.altstack.clone_from(&context.altstack);
        }
        self.settle_call(&mut context, &mut registers);
        context.registers = ptrace::to_words(&registers);
        self.let_guest_go(cpu_ns);
        self.returning = Some(Box::new(context));
        self.returning_xstate = xstate;
        self.set_phase("resume");
        holds(&self.order).at("resume");
        let next = self.wish.as_mut().and_then(|w| w.prepared.take());
        if let Some(prepared) = next {
            return self.go_on_to(prepared);
        }
        if self.flight.is_some() {
            // It waits in its call, at home: that is where it is now, however long the call takes.
            self.arrived_home();
            return Ok(());
        }
        self.take_thread()
    }

    fn arrived_home(&mut self) {
        let (home, freeze) = (self.order.node.clone(), self.froze.elapsed());
        if self.wish.as_ref().is_some_and(|w| w.dest == Destination::Home) {
            self.arrived(&home, freeze);
        }
        self.set_phase("home");
    }

    /// The guest left while it waited for a call: has that been answered meanwhile?
    fn settle_call(&mut self, context: &mut Context, registers: &mut Registers) {
        let Some(seq) = context.in_call else { return };
        if self.flight.as_ref().is_some_and(|f| f.seq == seq) {
            return;
        }
        context.in_call = None;
        // Without a kept answer it was never begun: the code in the registers makes the kernel run it again.
        if let Some(answer) = self.last_reply.take().filter(|a| a.seq == seq) {
            for (addr, bytes) in &answer.outputs {
                self.memory.write(*addr, bytes);
            }
            registers.rax = answer.ret as u64;
            if !answer.broken_off {
                registers.orig_rax = u64::MAX;
            }
        }
    }

    fn let_guest_go(&mut self, cpu_ns: u64) {
        if let Some(mut abroad) = self.abroad.take() {
            *self.cpu_by_node.entry(abroad.node.clone()).or_default() += abroad.believable(cpu_ns);
            let _ = abroad.chan.send(&Down::End, &[]);
            abroad.chan.drain(Duration::from_millis(100));
            self.left = abroad.node;
        }
    }

    /// Gets the thread out of its sleep.
    fn take_thread(&mut self) -> Result<()> {
        match self.thread {
            Thread::Parked | Thread::JobStopped => at("interrupt", self.tracee.interrupt()),
            Thread::Halted | Thread::InCall => Ok(()),
        }
    }

    /// From one foreign node to the next, without running at home.
    pub(super) fn go_on_to(&mut self, prepared: super::Prepared) -> Result<()> {
        if self.stack_wanted.is_some() && self.flight.is_none() {
            self.halt_idle_thread()?;
            self.grow_stack()?;
            self.apply_held();
        }
        let Some(context) = self.returning.take() else { return Ok(()) };
        let xstate = std::mem::take(&mut self.returning_xstate);
        let registers = ptrace::from_words(&context.registers).unwrap_or(self.base);
        let maps = at("its map", procfs::maps(self.pid))?;
        let altstack = self.altstack.clone();
        let frozen = Frozen {
            context: *context,
            xstate,
            registers,
            original: registers,
            areas: areas_of(&maps, self.hole),
            altstack,
        };
        let node = prepared.node.clone();
        match self.start_at(prepared, &frozen, false) {
            Ok(()) => {
                self.set_phase("away");
                let freeze = self.thawed;
                self.arrived(&node, freeze);
                Ok(())
            }
            Err(e) => {
                let text = format!("{e}; it runs at home");
                if let Some(wish) = self.wish.take() {
                    self.move_done(wish.request, Err(text));
                }
                self.returning = Some(Box::new(frozen.context));
                self.returning_xstate = frozen.xstate;
                if self.flight.is_none() { self.take_thread() } else { Ok(()) }
            }
        }
    }

    pub(super) fn arrived(&mut self, node: &str, freeze: Duration) {
        if let Some(wish) = self.wish.take() {
            let record = MoveRecord {
                from: self.left.clone(),
                to: node.to_string(),
                reason: wish.reason,
                freeze_us: freeze.as_micros() as u64,
                total_us: wish.asked.elapsed().as_micros() as u64,
                frozen_bytes: self.frozen_bytes,
            };
            self.move_done(wish.request, Ok(record));
        }
        self.frozen_bytes = 0;
    }

    /// The call that outlived the guest has ended: with a result, or broken off by a signal.
    pub(super) fn call_ended_at_home(&mut self, ret: Option<i64>, code: Option<i64>) -> Result<()> {
        let Some(context) = &mut self.returning else { return Ok(()) };
        let Some(mut registers) = ptrace::from_words(&context.registers) else { return Ok(()) };
        match (ret, code) {
            (Some(ret), _) => {
                registers.rax = ret as u64;
                registers.orig_rax = u64::MAX;
            }
            (None, Some(code)) => registers.rax = code as u64,
            (None, None) => {}
        }
        context.in_call = None;
        context.registers = ptrace::to_words(&registers);
        Ok(())
    }

    /// Everything is here and the thread is free: let the process go on by itself.
    pub(super) fn finished_returning(&mut self) -> Result<bool> {
        if self.returning.is_none() || self.flight.is_some() || self.thread != Thread::Halted {
            return Ok(false);
        }
        self.grow_stack()?;
        self.apply_held();
        let Some(context) = self.returning.take() else { return Ok(false) };
        let registers = ptrace::from_words(&context.registers).unwrap_or(self.base);
        if let Some((nr, args, done)) = self.cut_short.take().filter(|c| is_about_to(&registers, c.0, &c.1)) {
            self.returning = Some(context);
            self.transfer_rest(nr, args, done)?;
            return Ok(false);
        }
        let xstate = std::mem::take(&mut self.returning_xstate);
        let spoiled = self.go_on_here(&context, &registers, &xstate)?;
        self.arrived_home();
        if !spoiled.is_empty() {
            self.escort(spoiled)?;
        }
        Ok(true)
    }

    /// The kernel does not take what came from abroad.
    fn unusable(&self, what: &'static str, error: std::io::Error) -> HomeError {
        match self.left.as_str() {
            "" => HomeError::Kernel(what, error),
            node => {
                HomeError::Declined { node: node.into(), why: format!("sent {what} that no kernel takes: {error}") }
            }
        }
    }

    /// Gives the program the signals that have not been delivered. Real-time signals keep their order: those of the same numbers
    /// that home's kernel has queued since are taken out and come behind. Returns those whose order a new one has spoiled.
    fn requeue(&self, undelivered: &[Vec<u8>]) -> Result<Vec<SigInfo>> {
        let set = undelivered.iter().map(|i| i32::from(i[0])).filter(|&n| n >= 32).fold(0, |s, n| s | signal::bit(n));
        let mut all = undelivered.to_vec();
        all.extend(self.take_pending(set)?);
        self.queue(&all)?;
        let whole = |i: &Vec<u8>| SigInfo::try_from(i.as_slice()).ok();
        let wanted: Vec<SigInfo> =
            all.iter().filter_map(whole).filter(|i| set & signal::bit(signal::number(i)) != 0).collect();
        let mut pending = self.tracee.pending(true);
        pending.retain(|i| set & signal::bit(signal::number(i)) != 0);
        let in_order = pending.iter().zip(&wanted).all(|(p, w)| p[..32] == w[..32]);
        Ok(if in_order { Vec::new() } else { wanted })
    }

    /// Takes pending signals of `set` out of home's kernel, many at once.
    fn take_pending(&self, set: u64) -> Result<Vec<Vec<u8>>> {
        const AT_ONCE: u64 = 30;
        let scratch = self.hole + SCRATCH;
        let (which, now) = (scratch + AT_ONCE * 128, scratch + AT_ONCE * 128 + 8);
        let mut out = Vec::new();
        if set == 0 {
            return Ok(out);
        }
        loop {
            self.memory.write(which, &[set, 0, 0].map(u64::to_le_bytes).concat());
            let calls: Vec<Call> =
                (0..AT_ONCE).map(|i| call(libc::SYS_rt_sigtimedwait, &[which, scratch + i * 128, now, 8])).collect();
            let results = self.inject(&calls)?;
            let mut infos = vec![0; AT_ONCE as usize * 128];
            self.memory.read(scratch, &mut infos);
            // Others send meanwhile: one call may find nothing and the next one something.
            let taken = infos.chunks(128).zip(&results).filter(|(_, r)| **r > 0);
            out.extend(taken.map(|(info, _)| info.to_vec()));
            if results.last().is_none_or(|r| *r <= 0) {
                break;
            }
        }
        Ok(out)
    }

    /// Queues signals for the process, many at once: others may send meanwhile.
    fn queue(&self, infos: &[Vec<u8>]) -> Result<()> {
        let scratch = self.hole + SCRATCH;
        for batch in infos.chunks((PAGE / 128) as usize) {
            self.memory.write(scratch, &batch.concat());
            let places = (0u64..).map(|i| scratch + i * 128);
            let send = |(info, at): (&Vec<u8>, u64)| {
                call(libc::SYS_rt_sigqueueinfo, &[self.pid as u64, u64::from(info[0]), at])
            };
            let calls: Vec<Call> = batch.iter().zip(places).map(send).collect();
            self.inject(&calls)?;
        }
        Ok(())
    }

    /// Puts the process back as it is in `context` and lets go of it. The thread must be halted. If real-time signals came out of
    /// order, they are returned, and it is not let go of (see escort.rs).
    pub(super) fn go_on_here(
        &mut self,
        context: &Context,
        registers: &Registers,
        xstate: &[u8],
    ) -> Result<Vec<SigInfo>> {
        let scratch = self.hole + SCRATCH;
        at("mask", self.tracee.set_signal_mask(inject::QUIET))?;
        let mut calls: Vec<Call> = Vec::new();
        let (rseq, size, signature) = context.rseq;
        if rseq != 0 {
            calls.push(call(libc::SYS_rseq, &[rseq, u64::from(size), 0, u64::from(signature)]));
        }
        if self.altstack.len() == 24 {
            self.memory.write(scratch + 128, &self.altstack);
            calls.push(call(libc::SYS_sigaltstack, &[scratch + 128, 0]));
        }
        for (i, timer) in (0u64..).zip(context.timers) {
            if timer.iter().any(|&v| v != 0) {
                let bytes: Vec<u8> = timer.iter().flat_map(|v| v.to_le_bytes()).collect();
                self.memory.write(scratch + i * 32, &bytes);
                calls.push(call(libc::SYS_setitimer, &[i + 1, scratch + i * 32, 0]));
            }
        }
        self.inject(&calls)?;
        self.settle_once(&context.undelivered)?;
        let spoiled = self.requeue(&context.undelivered)?;
        let fill = call(libc::SYS_munmap, &[self.hole, HOLE_BYTES]);
        inject::step_call(self.tracee, &self.base, self.syscall_ip, &fill)?;
        self.tracee.set_xstate(xstate).map_err(|e| self.unusable("extended state", e))?;
        at("mask", self.tracee.set_signal_mask(context.mask))?;
        // Last: without them it can't go on, so nobody ever sees it half restored.
        self.tracee.set_registers(registers).map_err(|e| self.unusable("registers", e))?;
        if spoiled.is_empty() {
            at("let it go", self.tracee.detach(0))?;
        } else {
            at("let it live on by itself", self.tracee.set_options(0))?;
            at("continue", self.tracee.cont(0))?;
        }
        Ok(spoiled)
    }
}

/// Has it the size and the number of a signal?
fn is_signal(info: &[u8]) -> bool {
    SigInfo::try_from(info).is_ok_and(|i| (1..=64).contains(&signal::number(&i)))
}
