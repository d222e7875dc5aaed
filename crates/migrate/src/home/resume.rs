//! The guest has frozen: the process goes on at home, or at the next node.

use super::offer::{areas_of, holds};
use super::thread::State;
use super::{Deputy, HomeError, Result, at};
use crate::control::{Destination, MoveRecord};
use crate::layout::{HOLE_BYTES, SCRATCH};
use crate::message::{Context, CpuTimers, Down, MAX_UNDELIVERED, MAX_XSTATE};
use crate::{restart, thread_state};
use pando_kernel::inject::{self, Call, call};
use pando_kernel::ptrace::{self, Registers};
use pando_kernel::signal::{self, SigInfo};
use pando_kernel::{PAGE, page_ceil, procfs, xstate};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Will these registers make that call (again) as soon as they run?
pub(super) fn is_about_to(r: &Registers, nr: u64, args: &[u64; 6]) -> bool {
    let again = [restart::NOINTR, restart::NOHAND].contains(&(r.rax as i64));
    r.orig_rax == nr && again && [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] == *args
}

impl Deputy {
    /// The guest at home's request has stopped running.
    pub(super) fn froze_abroad(&self) -> bool {
        self.wish.as_ref().is_some_and(|w| w.called)
    }

    /// A thread is here.
    pub(super) fn on_thread(&mut self, inner: i32, mut context: Context, xstate: Vec<u8>) -> Result<()> {
        let known = self.threads.known_inside(inner).filter(|&tid| self.threads[tid].context.is_none());
        let Some(tid) = known.filter(|_| self.froze_abroad()) else {
            return Err(self.broken("a frozen thread that was not asked for"));
        };
        let whole = xstate.len() == context.xstate as usize && xstate.len() <= MAX_XSTATE;
        let Some(mut registers) = ptrace::from_words(&context.registers).filter(|_| whole) else {
            return Err(self.broken("a register set that makes no sense"));
        };
        self.check_signals(tid, context.signals)?;
        context.undelivered = std::mem::take(&mut self.arriving);
        let others = self.threads.iter().filter_map(|t| t.context.as_ref()).map(|c| c.undelivered.len());
        if others.sum::<usize>() + context.undelivered.len() > MAX_UNDELIVERED {
            return Err(self.broken("more signals than may come along"));
        }
        if let Some(odd) = context.undelivered.iter().find(|i| !is_signal(i)) {
            return Err(self.broken(&format!("a signal that there is not (number {:?})", odd.get(..4))));
        }
        if context.altstack.len() != 24 {
            return Err(self.broken("a signal stack that makes no sense"));
        }
        let thread = &mut self.threads[tid];
        registers.cs = thread.base.cs;
        registers.ss = thread.base.ss;
        thread.signals_seen(context.signals);
        thread.cut_short = thread.cut_short.take().filter(|_| context.cut_short.is_some());
        context.registers = ptrace::to_words(&registers);
        (thread.context, thread.xstate) = (Some(Box::new(context)), xstate);
        Ok(())
    }

    /// All of the process is here.
    pub(super) fn on_frozen(&mut self, timers: CpuTimers, cpu_ns: u64, brk: Option<u64>) -> Result<()> {
        if !self.froze_abroad() || self.threads.iter().any(|t| t.context.is_none()) {
            return Err(self.broken("a frozen process that was not asked for, or not all of it"));
        }
        if brk.is_some_and(|brk| page_ceil(brk) != page_ceil(self.brk)) {
            return Err(self.broken("a break in another page than its heap ends in"));
        }
        self.froze = Instant::now();
        self.timers = timers;
        self.brk = brk.unwrap_or(self.brk);
        self.let_guest_go(cpu_ns);
        self.files.end();
        self.returning = true;
        for tid in self.threads.ids() {
            self.settle(tid);
        }
        self.set_phase("resume");
        holds(&self.order).at("resume");
        let next = self.wish.as_mut().and_then(|w| w.prepared.take());
        match next {
            Some(prepared) => self.go_on_to(prepared),
            None => self.take_threads(),
        }
    }

    fn arrived_home(&mut self) {
        let (home, freeze) = (self.order.node.clone(), self.froze.elapsed());
        if self.wish.as_ref().is_some_and(|w| w.dest == Destination::Home) {
            self.arrived(&home, freeze);
        }
        self.set_phase("home");
    }

    /// What the guest had not seen when it left: signals, and the answer to the call that the thread waited for.
    fn settle(&mut self, tid: i32) {
        let thread = &mut self.threads[tid];
        let Some(context) = &mut thread.context else { return };
        context.undelivered.extend(thread.sent.drain(..).map(|(_, info)| info.to_vec()));
        let Some(seq) = context.in_call.filter(|&seq| thread.flight.as_ref().is_none_or(|f| f.seq != seq)) else {
            return;
        };
        context.in_call = None;
        // Without a kept answer it was never begun: the code in the registers makes the kernel run it again.
        let Some(answer) = thread.last_reply.take().filter(|a| a.seq == seq) else { return };
        let (ret, code) = if answer.broken_off { (None, Some(answer.ret)) } else { (Some(answer.ret), None) };
        self.call_ended_at_home(tid, ret, code);
        self.settle_kept(tid, &answer.outputs);
        for (addr, bytes) in &answer.outputs {
            self.memory.write(*addr, bytes);
        }
    }

    fn let_guest_go(&mut self, cpu_ns: u64) {
        if let Some(mut abroad) = self.abroad.take() {
            *self.cpu_by_node.entry(abroad.node.clone()).or_default() += abroad.believable(cpu_ns, self.threads.len());
            let _ = abroad.chan.send(&Down::End, &[]);
            abroad.chan.drain(Duration::from_millis(100));
            self.left = abroad.node;
        }
    }

    /// Gets the threads out of their sleep, and out of their calls, which are made again natively.
    fn take_threads(&mut self) -> Result<()> {
        for thread in self.threads.iter().filter(|t| t.state != State::Halted) {
            match thread.tracee.interrupt() {
                // It has just ended: its stop will tell.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                other => at("interrupt", other)?,
            }
        }
        Ok(())
    }

    /// From one foreign node to the next, without running at home.
    pub(super) fn go_on_to(&mut self, prepared: super::Prepared) -> Result<()> {
        if self.stack_wanted.is_some()
            && let Some(tid) = self.free_thread()?
        {
            self.grow_stack(tid)?;
            self.apply_held();
        }
        let maps = at("its map", procfs::maps(self.pid))?;
        let node = prepared.node.clone();
        match self.start_at(prepared, &areas_of(&maps, self.hole, &self.fixed)) {
            Ok(()) => {
                self.returning = false;
                for thread in self.threads.iter_mut() {
                    thread.context = None;
                }
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
                self.take_threads()
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

    /// The call that outlived the guest has ended: with a result, or broken off.
    pub(super) fn call_ended_at_home(&mut self, tid: i32, ret: Option<i64>, code: Option<i64>) {
        let Some(context) = &mut self.threads[tid].context else { return };
        let Some(mut registers) = ptrace::from_words(&context.registers) else { return };
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
    }

    /// Everything is here: lets those threads go on by themselves that are free. True when that was the last one.
    pub(super) fn finished_returning(&mut self) -> Result<bool> {
        if !self.returning {
            return Ok(false);
        }
        if self.released {
            let done = |t: &&super::thread::DeputyThread| t.state == State::Halted && t.flight.is_none();
            let free: Vec<i32> = self.threads.iter().filter(done).map(|t| t.tracee.tid).collect();
            self.let_go(&free)?;
            return Ok(self.threads.len() == 0);
        }
        if !self.threads.all_halted() || self.threads.any_flight() {
            return Ok(false);
        }
        if let Some(tid) = self.threads.halted() {
            self.grow_stack(tid)?;
        }
        self.apply_held();
        let (mut free, mut busy) = (Vec::new(), Vec::new());
        for tid in self.threads.ids() {
            let cut = self.threads[tid].cut_short.take();
            let registers = self.threads[tid].context.as_ref().and_then(|c| ptrace::from_words(&c.registers));
            match cut.filter(|c| registers.is_some_and(|r| is_about_to(&r, c.0, &c.1))) {
                // A signal comes first: it ends with what it has moved.
                Some((_, _, done)) if self.is_signalled(tid) => {
                    self.call_ended_at_home(tid, Some(done as i64), None);
                    free.push(tid);
                }
                Some(cut) => busy.push((tid, cut)),
                None => free.push(tid),
            }
        }
        self.restore_process(self.pid)?;
        self.let_go(&free)?;
        self.arrived_home();
        self.released = true;
        for (tid, (nr, args, done)) in busy {
            let mask = self.threads[tid].context.as_ref().map_or(inject::QUIET, |c| c.mask);
            at("mask", self.threads[tid].tracee.set_signal_mask(mask))?;
            self.transfer_rest(tid, nr, args, done)?;
        }
        Ok(self.threads.len() == 0)
    }

    /// Will a handler run as soon as the thread goes on?
    fn is_signalled(&self, tid: i32) -> bool {
        let Some(context) = &self.threads[tid].context else { return false };
        let pending = procfs::status(tid).map_or(0, |s| s.pending);
        let set = context.undelivered.iter().fold(pending, |set, info| set | signal::bit(i32::from(info[0])));
        self.handlers.keys().any(|&n| set & !context.mask & signal::bit(n) != 0)
    }

    /// The kernel does not take what came from abroad.
    pub(super) fn unusable(&self, what: &'static str, error: std::io::Error) -> HomeError {
        match self.left.as_str() {
            "" => HomeError::Kernel(what, error),
            node => {
                HomeError::Declined { node: node.into(), why: format!("sent {what} that no kernel takes: {error}") }
            }
        }
    }

    /// Gives a thread the signals that have not been delivered. Real-time signals keep their order: those of the same numbers
    /// that home's kernel has queued since are taken out and come behind. Returns those whose order a new one has spoiled.
    fn requeue(&self, tid: i32, undelivered: &[Vec<u8>]) -> Result<Vec<SigInfo>> {
        let set = undelivered.iter().map(|i| i32::from(i[0])).filter(|&n| n >= 32).fold(0, |s, n| s | signal::bit(n));
        let mut all = undelivered.to_vec();
        all.extend(self.take_pending(tid, set)?);
        self.queue(tid, &all)?;
        if set == 0 {
            // A look through a queue of a hundred thousand, which may wait there for a signalfd, takes the kernel most of a minute.
            return Ok(Vec::new());
        }
        let whole = |i: &Vec<u8>| SigInfo::try_from(i.as_slice()).ok();
        let wanted: Vec<SigInfo> =
            all.iter().filter_map(whole).filter(|i| set & signal::bit(signal::number(i)) != 0).collect();
        let mut pending = self.threads[tid].tracee.pending(true);
        pending.retain(|i| set & signal::bit(signal::number(i)) != 0);
        let in_order = pending.iter().zip(&wanted).all(|(p, w)| p[..32] == w[..32]);
        Ok(if in_order { Vec::new() } else { wanted })
    }

    /// Takes pending signals of `set` out of home's kernel, many at once.
    fn take_pending(&self, tid: i32, set: u64) -> Result<Vec<Vec<u8>>> {
        const AT_ONCE: u64 = 30;
        let scratch = self.hole + SCRATCH;
        let (which, now) = (scratch + AT_ONCE * 128, scratch + AT_ONCE * 128 + 8);
        let (mut out, mut timers) = (Vec::new(), BTreeSet::new());
        if set == 0 {
            return Ok(out);
        }
        loop {
            self.memory.write(which, &[set, 0, 0].map(u64::to_le_bytes).concat());
            let calls: Vec<Call> =
                (0..AT_ONCE).map(|i| call(libc::SYS_rt_sigtimedwait, &[which, scratch + i * 128, now, 8])).collect();
            let results = self.inject(tid, &calls)?;
            let mut infos = vec![0; AT_ONCE as usize * 128];
            self.memory.read(scratch, &mut infos);
            // Others send meanwhile: one call may find nothing and the next one something.
            let taken = infos.chunks(128).zip(&results).filter(|(_, r)| **r > 0);
            let before = out.len();
            out.extend(taken.filter(|(info, _)| is_first(info, &mut timers)).map(|(info, _)| info.to_vec()));
            // A fast timer has its next signal ready each time.
            if results.last().is_none_or(|r| *r <= 0) || out.len() == before {
                break;
            }
        }
        Ok(out)
    }

    /// Queues signals for the process or, of several threads, for the one that home's kernel had chosen; many at once, since others may send
    /// meanwhile. Of signals of any kind only the thread that gets them may say who sent them.
    fn queue(&self, tid: i32, infos: &[Vec<u8>]) -> Result<()> {
        let alone = self.threads.len() == 1 && !self.released;
        // The process makes these calls itself.
        let (pid, tid_inside) = (self.threads[self.pid].inner as u64, self.threads[tid].inner as u64);
        let scratch = self.hole + SCRATCH;
        for batch in infos.chunks((PAGE / 128) as usize) {
            self.memory.write(scratch, &batch.concat());
            let places = (0u64..).map(|i| scratch + i * 128);
            let send = |(info, at): (&Vec<u8>, u64)| {
                let number = u64::from(info[0]);
                match alone {
                    true => call(libc::SYS_rt_sigqueueinfo, &[pid, number, at]),
                    false => call(libc::SYS_rt_tgsigqueueinfo, &[pid, tid_inside, number, at]),
                }
            };
            let calls: Vec<Call> = batch.iter().zip(places).map(send).collect();
            self.inject(tid, &calls)?;
        }
        Ok(())
    }

    /// What all threads have in common goes back to home's kernel, by the thread `tid`. All must be halted.
    fn restore_process(&mut self, tid: i32) -> Result<()> {
        let scratch = self.hole + SCRATCH;
        for thread in self.threads.iter() {
            at("mask", thread.tracee.set_signal_mask(inject::QUIET))?;
        }
        // Here it may still be at the end of its page.
        let mut calls: Vec<Call> = vec![call(libc::SYS_brk, &[self.brk])];
        for (i, timer) in (0u64..).zip(self.timers) {
            if timer.iter().any(|&v| v != 0) {
                let bytes: Vec<u8> = timer.iter().flat_map(|v| v.to_le_bytes()).collect();
                self.memory.write(scratch + i * 32, &bytes);
                calls.push(call(libc::SYS_setitimer, &[i + 1, scratch + i * 32, 0]));
            }
        }
        self.inject(tid, &calls)?;
        let contexts = self.threads.iter().filter_map(|t| t.context.as_ref());
        let undelivered: Vec<Vec<u8>> = contexts.flat_map(|c| c.undelivered.iter().cloned()).collect();
        self.settle_once(tid, &undelivered)
    }

    /// Puts what home's kernel keeps for a halted thread back as it is in its context. Returns real-time signals that came out of order.
    fn restore_thread(&mut self, tid: i32, context: &Context) -> Result<Vec<SigInfo>> {
        let scratch = self.hole + SCRATCH;
        at("mask", self.threads[tid].tracee.set_signal_mask(inject::QUIET))?;
        self.memory.write(scratch, &context.altstack);
        self.inject(tid, &thread_state::calls(context, scratch))?;
        let thread = &self.threads[tid];
        if self.tiles && xstate::has_tiles(&thread.xstate) {
            inject::use_tiles(thread.tracee, &self.memory, &thread.base, (self.hole, scratch))?;
        }
        self.requeue(tid, &context.undelivered)
    }

    /// Puts these halted threads back as they are in their contexts and lets go of them; with the last one goes the engine's code. If
    /// real-time signals of the only thread came out of order, it is escorted (escort.rs).
    fn let_go(&mut self, tids: &[i32]) -> Result<()> {
        let alone = self.threads.len() == 1;
        let last = tids.len() == self.threads.len();
        let mut ready = Vec::new();
        let mut spoiled = Vec::new();
        let mut sleepers = Vec::new();
        for &tid in tids {
            let Some(context) = self.threads[tid].context.take() else { continue };
            spoiled = self.restore_thread(tid, &context)?;
            ready.push((tid, context));
        }
        if let Some(&tid) = tids.first().filter(|_| last) {
            let fill = call(libc::SYS_munmap, &[self.hole, HOLE_BYTES]);
            inject::step_call(self.threads[tid].tracee, &self.threads[tid].base, self.syscall_ip, &fill)?;
        }
        for (tid, context) in &ready {
            let thread = &self.threads[*tid];
            let tracee = thread.tracee;
            let mut registers = ptrace::from_words(&context.registers).unwrap_or(thread.base);
            self.waits_again(*tid, context.mask, &mut registers);
            // The helper has to end behind those that it puts to sleep.
            sleepers.extend(self.shorten_wait(*tid, &mut registers).filter(|_| last && spoiled.is_empty()));
            let thread = &self.threads[*tid];
            tracee.set_xstate(&thread.xstate).map_err(|e| self.unusable("extended state", e))?;
            at("mask", tracee.set_signal_mask(context.mask))?;
            // Last: without them it can't go on, so nobody ever sees it half restored.
            tracee.set_registers(&registers).map_err(|e| self.unusable("registers", e))?;
        }
        ready.retain(|(tid, _)| sleepers.iter().all(|s| s.tid != *tid));
        for (tid, _) in ready {
            let tracee = self.threads[tid].tracee;
            if alone && !spoiled.is_empty() {
                at("let it live on by itself", tracee.set_options(0))?;
                at("continue", tracee.cont(0))?;
                self.arrived_home();
                self.escort(tracee, std::mem::take(&mut spoiled))?;
            } else {
                match tracee.detach(0) {
                    // Another one that runs already has ended the process.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) && !alone => {}
                    other => at("let it go", other)?,
                }
            }
            self.threads.remove(tid);
        }
        self.put_to_sleep(sleepers)
    }
}

/// No other signal of the same timer is among those so far: of a timer only one waits, the others are its overrun.
fn is_first(info: &[u8], timers: &mut BTreeSet<(i32, i32)>) -> bool {
    let Ok(info) = SigInfo::try_from(info) else { return false };
    signal::of_timer(&info).is_none_or(|(timer, _)| timers.insert((signal::number(&info), timer)))
}

/// Has it the size and the number of a signal?
fn is_signal(info: &[u8]) -> bool {
    SigInfo::try_from(info).is_ok_and(|i| (1..=64).contains(&signal::number(&i)))
}
