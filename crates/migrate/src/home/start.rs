//! The last step of a move away: the context goes to the prepared node, and its first message is the commit.

use super::freeze::Frozen;
use super::offer::holds;
use super::target::Prepared;
use super::{Abroad, Deputy, HomeError, Result, Thread, at};
use crate::channel::ChannelError;
use crate::message::{Context, Down, Start, Up, said, signal_frames};
use pando_kernel::ptrace::Stop;
use pando_kernel::{PAGE, clock, page_floor};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

impl Deputy {
    /// Pages that the guest needs in its first microseconds.
    fn eager(&self, frozen: &Frozen) -> (Vec<u64>, Vec<u8>) {
        let r = &frozen.registers;
        let wanted = [r.rip, r.rsp, r.rsp.wrapping_add(PAGE), r.rsp.wrapping_sub(256), r.fs_base, self.rseq.0, r.rbp];
        let mut pages: Vec<u64> = wanted.iter().map(|&a| page_floor(a)).filter(|&a| a != 0).collect();
        pages.sort_unstable();
        pages.dedup();
        pages.retain(|&a| frozen.areas.iter().any(|area| area.start <= a && a < area.end));
        let mut bytes = Vec::new();
        pages.retain(|&a| {
            let mut page = [0; PAGE as usize];
            let read = self.read_page_range(a, &mut page) == page.len();
            if read {
                bytes.extend_from_slice(&page);
            }
            read
        });
        (pages, bytes)
    }

    /// The handlers that a guest needs: those there are, and those that act once for a signal that it has yet to get.
    fn handlers_for(&self, context: &Context) -> Vec<(i32, Vec<u8>)> {
        let comes = |n: i32| context.undelivered.iter().any(|i| i32::from(i[0]) == n);
        let once = self.spent.iter().filter(|(n, _)| comes(**n));
        self.handlers.iter().chain(once).map(|(s, h)| (*s, h.clone())).collect()
    }

    /// Starts the guest at a prepared node and waits for its first message: the commit.
    pub(super) fn start_at(&mut self, mut prepared: Prepared, frozen: &Frozen, copy_all: bool) -> Result<()> {
        let node = prepared.node.clone();
        let failed = |source| HomeError::Target { node: node.clone(), source };
        if copy_all || !prepared.post_copy {
            let present = self.present_pages(&frozen.areas)?;
            self.copy_everything(&mut prepared.chan, &present, &node)?;
        }
        let (eager, bytes) = self.eager(frozen);
        if self.thread == Thread::Halted
            && let Some(Stop::Gone(status)) = at("wait", self.tracee.wait(false))?
        {
            return Err(HomeError::Ended(status));
        }
        self.frozen_bytes = bytes.len() as u64;
        for body in signal_frames(&frozen.context.undelivered) {
            prepared.chan.send(&Down::Undelivered, &[&body]).map_err(failed)?;
        }
        let start = Start {
            context: frozen.context.clone(),
            areas: frozen.areas.clone(),
            brk: self.brk,
            handlers: self.handlers_for(&frozen.context),
            ignored: self.ignored,
            altstack: frozen.altstack.clone(),
            eager,
            paused: self.thread == Thread::JobStopped,
            signals: self.signals,
            clock: clock::monotonic_ns().saturating_sub(self.froze.elapsed().as_nanos() as u64),
            calls: self.last_seq,
            cpu_abroad_ns: self.cpu_by_node.values().sum(),
        };
        prepared.chan.send(&Down::Start(Box::new(start)), &[&frozen.xstate, &bytes]).map_err(failed)?;
        holds(&self.order).at("send");
        let limit = Duration::from_millis(self.order.limits.freeze_ms);
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(failed(ChannelError::Timeout(limit.as_millis() as u64)));
            }
            match prepared.chan.wait::<Up>(left).map_err(failed)?.0 {
                Up::Started => break,
                Up::Ping | Up::Usage(..) => {}
                Up::Failed(why) => {
                    return Err(HomeError::Declined { node, why: format!("could not start it: {}", said(&why)) });
                }
                other => {
                    return Err(HomeError::Declined { node, why: said(&format!("started it out of turn: {other:?}")) });
                }
            }
        }
        holds(&self.order).at("commit");
        // A guest that has died since is none: what it did had no effect, and all of the process is still here.
        if prepared.chan.hung_up() {
            return Err(failed(ChannelError::Closed));
        }
        // The commit. From here on the process must not outlive its helper: part of its memory will be elsewhere.
        if self.thread != Thread::JobStopped && self.thread != Thread::InCall && self.thread != Thread::Parked {
            at("set EXITKILL", self.tracee.set_options(libc::PTRACE_O_EXITKILL))?;
        }
        self.abroad =
            Some(Abroad { node, chan: prepared.chan, push: VecDeque::new(), cpu_ns: 0, since: Instant::now() });
        self.thawed = self.froze.elapsed();
        let push = self.present_pages(&frozen.areas)?;
        if let Some(abroad) = &mut self.abroad {
            abroad.push = push.into();
        }
        Ok(())
    }
}
