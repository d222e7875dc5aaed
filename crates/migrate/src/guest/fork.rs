//! A process that the program makes begins at home (docs/decisions/0013): what has been written here goes there first, all at one moment.

use super::birth::Birth;
use super::leave::take_chunk;
use super::{Guest, Leaving, Result, Stage, at};
use crate::message::{Down, Up};
use crate::restart;
use pando_kernel::ptrace::Registers;
use std::collections::VecDeque;

/// A call that makes a process, on its way.
pub(super) struct Fork {
    pub tid: i32,
    birth: Birth,
    /// Written memory that is still to be sent; None: threads still run.
    queue: Option<VecDeque<(u64, u64)>>,
    /// The caller's registers, once it has been taken out of the call.
    registers: Option<Registers>,
}

impl Fork {
    /// There is something to send.
    pub fn is_busy(&self) -> bool {
        self.queue.is_some() && self.registers.is_none()
    }
}

impl Guest {
    /// The thread, held in its call, makes a process: all others come to rest first.
    pub(super) fn begin_fork(&mut self, tid: i32, birth: Birth) -> Result<()> {
        if let Some(call) = &mut self.threads[tid].call {
            call.stage = Stage::PutOff;
        }
        self.fork = Some(Fork { tid, birth, queue: None, registers: None });
        for other in self.threads.which(|t| t.tid != tid && !t.stopped && !t.ending && t.call.is_none()) {
            self.interrupt(other)?;
        }
        self.work_on_fork()
    }

    /// The next step, when the line is free.
    pub(super) fn work_on_fork(&mut self) -> Result<()> {
        let Some(fork) = self.fork.as_ref().filter(|f| f.registers.is_none()) else { return Ok(()) };
        let tid = fork.tid;
        if self.chan.wants_write() {
            return Ok(());
        }
        if fork.queue.is_none() {
            let at_rest = |t: &super::thread::GuestThread| t.tid == tid || !t.ending && (t.stopped || t.call.is_some());
            if !self.threads.iter().all(at_rest) || self.calls_pass() {
                return Ok(());
            }
            let mut queue = VecDeque::from(self.take_written()?);
            if let Leaving::Presync { queue: more, .. } = &mut self.leaving {
                queue.append(more);
            }
            self.set_queue(queue);
        }
        let Some(queue) = self.fork.as_mut().and_then(|f| f.queue.as_mut()) else { return Ok(()) };
        match take_chunk(queue) {
            Some(chunk) => self.send_written(&[chunk]),
            None => self.send_fork(tid),
        }
    }

    fn set_queue(&mut self, queue: VecDeque<(u64, u64)>) {
        if let Some(fork) = &mut self.fork {
            fork.queue = Some(queue);
        }
    }

    fn send_fork(&mut self, tid: i32) -> Result<()> {
        let Some(held) = self.threads[tid].call else { return Ok(()) };
        self.get_out(tid, &held, restart::NOINTR)?;
        let tracee = self.threads[tid].tracee;
        let registers = at("registers", tracee.registers())?;
        let (context, xstate) = self.freeze_thread(tid)?;
        self.tell_exact_break(tracee, &registers)?;
        at("mask", tracee.set_signal_mask(context.mask))?;
        at("registers", tracee.set_registers(&registers))?;
        self.threads[tid].stopped = true;
        self.send(&Up::Child(Box::new(context)), &[&xstate])?;
        let Some(fork) = &mut self.fork else { return Ok(()) };
        fork.registers = Some(registers);
        let args = fork.birth.args();
        self.send_call(tid, libc::SYS_clone as u64, args, Vec::new(), &[])
    }

    /// Home has made the process, or could not: all go on. `down` is the answer, `outputs` what it carries.
    pub(super) fn fork_answered(&mut self, down: &Down, outputs: &[(u64, Vec<u8>)]) -> Result<()> {
        let Some(fork) = self.fork.take() else { return Ok(()) };
        for (addr, bytes) in outputs {
            self.write_out(*addr, bytes);
        }
        if let (Down::Reply { ret, .. }, Some(mut registers)) = (down, fork.registers) {
            (registers.rax, registers.orig_rax) = (*ret as u64, u64::MAX);
            at("registers", self.threads[fork.tid].tracee.set_registers(&registers))?;
        }
        for tid in self.threads.which(|t| t.stopped) {
            self.go_on(tid)?;
        }
        self.take_put_off()?;
        self.retry_planning()?;
        self.retry_reads()
    }
}
