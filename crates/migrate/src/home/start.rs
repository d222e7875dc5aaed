//! The last step of a move away: the threads go to the prepared node, and its first message is the commit.

use super::kin::Kin;
use super::offer::{holds, special_of};
use super::target::Prepared;
use super::thread::State;
use super::{Abroad, Deputy, HomeError, Result, at};
use crate::channel::{Channel, ChannelError};
use crate::layout::TOP;
use crate::message::{Area, Context, Down, Run, Special, Start, Up, said, signal_frames};
use pando_kernel::ptrace::{self, Stop};
use pando_kernel::{PAGE, clock, page_floor, procfs};
use std::time::{Duration, Instant};

/// Of so many threads the first instructions' pages go along; others fetch theirs.
const EAGER_THREADS: usize = 16;

impl Deputy {
    /// Pages that the guest needs in its first microseconds, those of rseq for every thread.
    fn eager(&self, areas: &[Area]) -> Vec<u64> {
        let mut pages: Vec<u64> = Vec::new();
        for (i, context) in self.threads.iter().filter_map(|t| t.context.as_ref()).enumerate() {
            pages.push(context.rseq.0);
            if let Some(r) = ptrace::from_words(&context.registers).filter(|_| i < EAGER_THREADS) {
                pages.extend([r.rip, r.rsp, r.rsp.wrapping_add(PAGE), r.rsp.wrapping_sub(256), r.fs_base, r.rbp]);
            }
        }
        pages.iter_mut().for_each(|p| *p = page_floor(*p));
        pages.sort_unstable();
        pages.dedup();
        pages.retain(|&a| areas.iter().any(|area| area.start <= a && a < area.end));
        pages
    }

    /// The first pages, and every thread.
    fn send_threads(&mut self, chan: &mut Channel, areas: &[Area]) -> std::result::Result<(), ChannelError> {
        self.frozen_bytes = 0;
        for addr in self.eager(areas) {
            let mut page = [0; PAGE as usize];
            if self.read_page_range(addr, &mut page) == page.len() {
                self.frozen_bytes += PAGE;
                chan.send(&Down::Pages(vec![Run { addr, pages: 1, zero: false }]), &[&page])?;
            }
        }
        let first = self.pid;
        let others = self.threads.ids().into_iter().filter(|&tid| tid != first);
        for tid in std::iter::once(first).chain(others) {
            let thread = &mut self.threads[tid];
            let (inner, signals) = (thread.inner, thread.signals);
            let Some(context) = &mut thread.context else { continue };
            context.signals = signals;
            context.cut_short = thread.cut_short.map(|(_, _, done)| done);
            for body in signal_frames(&context.undelivered) {
                chan.send(&Down::Undelivered, &[&body])?;
            }
            chan.send(&Down::Thread(inner, context.clone()), &[&thread.xstate])?;
        }
        Ok(())
    }

    /// The handlers that a guest needs: those there are, and those that act once for a signal that it has yet to get.
    fn handlers_for(&self) -> Vec<(i32, Vec<u8>)> {
        let has = |c: &Context, n: i32| c.undelivered.iter().any(|i| i32::from(i[0]) == n);
        let comes = |n: i32| self.threads.iter().filter_map(|t| t.context.as_ref()).any(|c| has(c, n));
        let once = self.spent.iter().filter(|(n, _)| comes(**n));
        self.handlers.iter().chain(once).map(|(s, h)| (*s, h.clone())).collect()
    }

    /// Where a thread goes on there must be memory: what is known of the process is of one program, and of one that lives.
    fn runs_what_is_mapped(&self, areas: &[Area], special: &[Special]) -> Result<()> {
        let places = areas.iter().map(|a| (a.start, a.end)).chain(special.iter().map(|s| (s.start, s.end)));
        let places: Vec<(u64, u64)> = places.collect();
        for context in self.threads.iter().filter_map(|t| t.context.as_ref()) {
            let Some(ip) = ptrace::from_words(&context.registers).map(|r| r.rip).filter(|&ip| ip < TOP) else {
                continue;
            };
            if !places.iter().any(|&(start, end)| (start..end).contains(&ip)) {
                let why =
                    format!("goes on at {ip:#x}, where it has no memory: it is ending, or begins another program");
                return Err(HomeError::Refused(format!("process {} {why}; try again", self.pid)));
            }
        }
        Ok(())
    }

    /// What the guest starts with.
    fn start_of(&mut self, areas: &[Area]) -> Start {
        let stopped_at = clock::monotonic_ns().saturating_sub(self.froze.elapsed().as_nanos() as u64);
        Start {
            brk: self.brk,
            free_break: self.free_break(areas),
            handlers: self.handlers_for(),
            ignored: self.ignored,
            timers: self.timers,
            tiles: self.tiles,
            paused: self.job_stopped(),
            clock: stopped_at.wrapping_add_signed(clock::ahead_of_us(self.pid).0),
            calls: self.last_seq,
            cpu_abroad_ns: self.cpu_by_node.values().sum(),
        }
    }

    /// Starts the guest at a prepared node and waits for its first message: the commit.
    pub(super) fn start_at(&mut self, mut prepared: Prepared, areas: &[Area]) -> Result<()> {
        let node = prepared.node.clone();
        let failed = |source| HomeError::Target { node: node.clone(), source };
        let special = special_of(&at("its map", procfs::maps(self.pid))?);
        self.runs_what_is_mapped(areas, &special)?;
        if special != prepared.special {
            prepared.chan.send(&Down::Special(special), &[]).map_err(failed)?;
        }
        prepared.chan.send(&Down::Areas(areas.to_vec()), &[]).map_err(failed)?;
        if !prepared.post_copy {
            let (present, _) = self.present_and_huge(areas)?;
            self.copy_everything(&mut prepared.chan, &present, &node)?;
        }
        if self.threads[self.pid].state == State::Halted
            && let Some(Stop::Gone(status)) = at("wait", self.threads[self.pid].tracee.wait(false))?
        {
            return Err(HomeError::Ended(status));
        }
        self.send_threads(&mut prepared.chan, areas).map_err(failed)?;
        let start = self.start_of(areas);
        prepared.chan.send(&Down::Start(Box::new(start)), &[]).map_err(failed)?;
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
        // (One thread that is killed takes all along.)
        for thread in self.threads.iter().filter(|t| t.state == State::Halted) {
            let births = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK;
            let options = libc::PTRACE_O_EXITKILL | births;
            at("set EXITKILL", thread.tracee.set_options(options))?;
        }
        self.abroad = Some(Abroad::new(node, prepared.chan, Kin::open(&prepared.kin, self.uid)));
        self.thawed = self.froze.elapsed();
        self.forget_urgency();
        self.tell_urgency()?;
        self.begin_push(areas)
    }

    /// All that has content will follow; before that the guest hears what of it is huge.
    fn begin_push(&mut self, areas: &[Area]) -> Result<()> {
        let (push, huge) = self.present_and_huge(areas)?;
        if let Some(abroad) = &mut self.abroad {
            abroad.push = push.into();
        }
        if !huge.is_empty() {
            self.tell(&Down::Huge(huge), &[])?;
        }
        self.releasing = Default::default();
        if self.order.release {
            self.want_release();
        }
        self.let_map_abroad(areas)
    }
}
