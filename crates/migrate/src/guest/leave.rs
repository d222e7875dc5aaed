//! Going home: written pages first while the program runs, then the rest.

use super::thread::GuestThread;
use super::{Guest, Result, Stage, at};
use crate::message::{CHUNK, Context, CpuTimers, Run, Up, signal_frames};
use crate::restart;
use pando_calls::{Class, Memory};
use pando_kernel::inject::{self, call};
use pando_kernel::memory::ProcessMemory;
use pando_kernel::ptrace::{self, Stop, Tracee};
use pando_kernel::{PAGE, procfs, signal, vdso};
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

    /// Memory that is to be sent has moved, and with it the knowledge that it was looked for.
    pub(super) fn remap(&mut self, old: u64, len: u64, new: u64) {
        let Leaving::Presync { queue, .. } = self else { return };
        let end = old.saturating_add(len);
        for (start, stop) in std::mem::take(queue) {
            let (from, to) = (start.max(old), stop.min(end));
            let parts = if from < to && new != old {
                [(start, from), (new + (from - old), new + (to - old)), (to, stop)]
            } else {
                [(start, stop), (0, 0), (0, 0)]
            };
            queue.extend(parts.into_iter().filter(|(start, stop)| start < stop));
        }
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
        if self.leaving.busy() {
            self.finish_changing(&[(0, u64::MAX)])?;
        }
        if matches!(self.leaving, Leaving::Settling) {
            return self.stop_for_good();
        }
        let Leaving::Presync { round, queue, sent } = &mut self.leaving else { return Ok(()) };
        if let Some(chunk) = take_chunk(queue) {
            *sent += chunk.1 - chunk.0;
            self.send_written(&[chunk])?;
            return self.take_put_off();
        }
        let (round, sent) = (*round, *sent);
        let waits = |t: &GuestThread| t.stopped || t.call.is_some_and(|c| c.stage == Stage::GoesHome);
        if sent > SMALL && round < ROUNDS && !self.threads.iter().any(waits) {
            let queue = self.take_written()?.into();
            self.leaving = Leaving::Presync { round: round + 1, queue, sent: 0 };
            return self.take_put_off();
        }
        self.leaving = Leaving::Settling;
        Ok(())
    }

    fn stop_for_good(&mut self) -> Result<()> {
        // Threads that have ended at home end here, too, and write to memory while they do.
        if self.threads.iter().any(|t| t.ending) {
            return Ok(());
        }
        self.leaving = Leaving::Freezing;
        self.files_end()?;
        for tid in self.threads.which(|t| !t.stopped) {
            self.interrupt(tid)?;
            if let Some(held) = self.threads[tid].call {
                // Let it out of the kernel; the registers will show the call as to be made again.
                self.answer(held.id, restart::NOINTR)?;
            }
        }
        self.freeze_if_all_stopped()
    }

    pub(super) fn freeze_if_all_stopped(&mut self) -> Result<()> {
        if self.threads.all_stopped() { self.freeze_now() } else { Ok(()) }
    }

    /// Between a memory call at home and its mirror here the two maps differ: no page may be sent. The end of a handler, too,
    /// is half done then. Neither blocks.
    pub(super) fn map_is_changing(&self) -> bool {
        self.fork.is_some() || self.calls_pass()
    }

    /// Is there a call between home and here that must have happened at both?
    pub(super) fn calls_pass(&self) -> bool {
        // Our stubs in the vDSO are not known elsewhere, and step_out begins them anew: their question must have been answered.
        // Calls that run on both sides must have run on both.
        let passing = |c: super::Held| {
            let both =
                matches!(pando_calls::class(c.nr, &c.args), Class::Memory | Class::Native | Class::Both | Class::Birth);
            c.by_vdso || both || c.nr == libc::SYS_exit as u64
        };
        let calls = self.threads.iter().filter_map(|t| t.call);
        calls.filter(|c| matches!(c.stage, Stage::Sent(_))).any(passing) || !self.stillborn.is_empty()
    }

    /// Sends those pages of `ranges` that are still there: since they were looked for the program may have given some back, and to
    /// read a missing page the fast way is to wait for ourselves.
    pub(super) fn send_written(&mut self, ranges: &[(u64, u64)]) -> Result<()> {
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

    /// All threads have stopped for good: send what is left.
    fn freeze_now(&mut self) -> Result<()> {
        if matches!(self.leaving, Leaving::Frozen) {
            return Ok(());
        }
        self.hold("freeze-abroad");
        let mut frozen = Vec::new();
        for tid in self.threads.ids() {
            frozen.push((tid, self.freeze_thread(tid)?));
        }
        let (timers, brk) = self.take_timers()?;
        self.leaving = Leaving::Frozen;
        self.report_state();
        self.keep_timers_signals()?;
        let written = self.take_written()?;
        self.send_written(&written)?;
        self.hold("residual");
        for (tid, (context, xstate)) in frozen {
            let thread = &self.threads[tid];
            let undelivered: Vec<Vec<u8>> =
                thread.undelivered.iter().chain(&thread.waiting).map(|i| i.to_vec()).collect();
            for body in signal_frames(&undelivered) {
                self.send(&Up::Undelivered, &[&body])?;
            }
            self.send(&Up::Thread(tid, Box::new(context)), &[&xstate])?;
        }
        let cpu_ns = self.cpu_ns();
        self.send(&Up::Frozen { timers, cpu_ns, brk }, &[])
    }

    /// The context of a stopped thread, and its extended state.
    pub(super) fn freeze_thread(&mut self, tid: i32) -> Result<(Context, Vec<u8>)> {
        let tracee = self.threads[tid].tracee;
        let mask = match self.threads[tid].frame_mask.take() {
            Some(mask) => mask,
            None => at("mask", tracee.signal_mask())?,
        };
        at("mask", tracee.set_signal_mask(inject::QUIET))?;
        self.step_out(tracee)?;
        let mut regs = at("registers", tracee.registers())?;
        let xstate = at("extended state", tracee.xstate())?;
        let rseq = tracee.rseq();
        let thread = &self.threads[tid];
        if thread.call.is_none() && thread.attach.is_some() && (regs.orig_rax as i64) < 0 && self.at_syscall(regs.rip) {
            // About to enter the call that is already running at home: as if it had just been broken off.
            regs.orig_rax = regs.rax;
            regs.rip += 2;
            regs.rax = restart::NOINTR as u64;
        }
        if self.is_unreceived(tid, &regs) {
            regs.rax = restart::NOINTR as u64;
        }
        // What runs at home already is entered again as it is.
        if thread.attach.is_none() && !thread.call.is_some_and(|c| matches!(c.stage, Stage::Sent(_))) {
            self.still_in_resumed(tid, &mut regs, None);
        }
        if (regs.orig_rax as i64) < 0 {
            restart::leave_rseq(&self.memory, rseq.pointer, &mut regs);
        } else if regs.orig_rax == libc::SYS_futex as u64 {
            restart::make_good(&self.memory, &mut regs);
        }
        let in_call = match (thread.call.map(|c| c.stage), thread.attach) {
            (Some(Stage::Sent(seq)), _) => Some(seq),
            (_, Some(attach)) => Some(attach.seq),
            _ => None,
        };
        let context = Context {
            registers: ptrace::to_words(&regs),
            xstate: xstate.len() as u32,
            mask,
            rseq: (rseq.pointer, rseq.size, rseq.signature),
            tid_address: thread.tid_address,
            in_call,
            cut_short: thread.cut_short.map(|(_, _, done)| done),
            signals: thread.signals,
            cpu_abroad_ns: thread.cpu_before_ns.saturating_add(procfs::thread_cpu_ns(tracee.tid)),
            ..self.kernel_state(tracee, &regs)?
        };
        Ok((context, xstate))
    }

    /// Alternative signal stack and robust list.
    fn kernel_state(&self, tracee: Tracee, base: &ptrace::Registers) -> Result<Context> {
        let scratch = self.hole + crate::layout::SCRATCH;
        at("mask", tracee.set_signal_mask(inject::QUIET))?;
        let calls = [
            call(libc::SYS_sigaltstack, &[0, scratch]),
            call(libc::SYS_get_robust_list, &[0, scratch + 32, scratch + 40]),
        ];
        let results = self.inject_in(tracee, base, &calls)?;
        let mut altstack = vec![0; 24];
        self.memory.read_all(scratch, &mut altstack);
        let word = |at: u64| self.memory.word(scratch + at).filter(|_| results[1] == 0).unwrap_or(0);
        Ok(Context { altstack, robust: (word(32), word(40)), ..Context::default() })
    }

    /// Signals of CPU timers and limits are this kernel's own: home has not seen them.
    fn keep_timers_signals(&mut self) -> Result<()> {
        const OWN: [i32; 3] = [libc::SIGVTALRM, libc::SIGPROF, libc::SIGXCPU];
        let own = OWN.iter().fold(0, |set, &s| set | signal::bit(s));
        for (i, tid) in self.threads.ids().into_iter().enumerate() {
            let tracee = self.threads[tid].tracee;
            // Looking through a long queue takes the kernel long.
            if at("status", procfs::status(tracee.tid))?.pending & own == 0 {
                continue;
            }
            let of_all = if i == 0 { tracee.pending(true) } else { Vec::new() };
            for info in tracee.pending(false).into_iter().chain(of_all) {
                let number = signal::number(&info);
                let undelivered = &mut self.threads[tid].undelivered;
                if OWN.contains(&number) && !undelivered.has(number) {
                    undelivered.push(info);
                }
            }
        }
        Ok(())
    }

    pub(super) fn at_syscall(&self, rip: u64) -> bool {
        self.memory.word(rip).is_some_and(|w| w as u16 == 0x050f)
    }

    /// Was the guest kicked out of a call before we saw it? Its kernel says ERESTARTSYS, which some handlers turn into EINTR; but
    /// the call was never made.
    pub(super) fn is_unreceived(&self, tid: i32, regs: &ptrace::Registers) -> bool {
        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
        let kicked = regs.orig_rax as i64 >= 0 && regs.rax as i64 == restart::SYS && !self.threads[tid].broke_off;
        let asked = pando_calls::class(regs.orig_rax, &args) != Class::Native;
        let seen = [libc::SYS_rt_sigreturn, libc::SYS_set_tid_address].contains(&(regs.orig_rax as i64));
        kicked && (asked || seen)
    }

    /// Our vDSO differs from home's in the bytes of a few functions: leave it, instruction by instruction.
    fn step_out(&mut self, tracee: Tracee) -> Result<()> {
        for _ in 0..MAX_STEPS {
            let mut regs = at("registers", tracee.registers())?;
            if !(self.vdso.0..self.vdso.1).contains(&regs.rip) {
                return Ok(());
            }
            if self.leave_stub(&mut regs) {
                return at("registers", tracee.set_registers(&regs));
            }
            if self.at_syscall(regs.rip) {
                return Ok(());
            }
            at("step", tracee.step(0))?;
            loop {
                match at("wait", tracee.wait(false))? {
                    Some(Stop::Gone(status)) => return Err(super::GuestError::Died(status)),
                    Some(Stop::Signal(libc::SIGTRAP)) => break,
                    // It faults here, and would again and again.
                    Some(Stop::Signal(_)) if signal::is_fault(&at("siginfo", tracee.siginfo())?) => return Ok(()),
                    Some(_) => at("step", tracee.step(0))?,
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

    /// CPU timers, which all threads share, and the break, where home does not know it to the byte.
    fn take_timers(&mut self) -> Result<(CpuTimers, Option<u64>)> {
        let scratch = self.hole + crate::layout::SCRATCH;
        let first = self.threads[self.offer.inner_pid].tracee;
        let base = at("registers", first.registers())?;
        let calls = [1, 2].map(|w| call(libc::SYS_getitimer, &[w, scratch + (w - 1) * 32]));
        self.inject_in(first, &base, &calls)?;
        let brk = self.learn_break(first, &base)?;
        let mut timers = CpuTimers::default();
        for (i, timer) in timers.iter_mut().enumerate() {
            for (j, word) in timer.iter_mut().enumerate() {
                *word = self.memory.word(scratch + i as u64 * 32 + j as u64 * 8).unwrap_or(0);
            }
        }
        Ok((timers, brk))
    }
}

/// Up to a chunk of the queue.
pub(super) fn take_chunk(queue: &mut VecDeque<(u64, u64)>) -> Option<(u64, u64)> {
    let (start, end) = queue.pop_front()?;
    let cut = end.min(start + CHUNK as u64);
    if cut < end {
        queue.push_front((cut, end));
    }
    Some((start, cut))
}

#[cfg(test)]
mod tests {
    use super::Leaving;

    #[test]
    fn what_is_to_be_sent_moves_with_its_memory() {
        let queue = [(0x1000, 0x5000), (0x8000, 0x9000)].into();
        let mut leaving = Leaving::Presync { round: 1, queue, sent: 0 };
        leaving.remap(0x2000, 0x2000, 0x20000);
        leaving.remap(0x8000, 0x1000, 0x8000);
        let Leaving::Presync { queue, .. } = leaving else { unreachable!() };
        assert_eq!(queue, [(0x1000, 0x2000), (0x20000, 0x22000), (0x4000, 0x5000), (0x8000, 0x9000)]);
    }
}
