//! Home's copies of pages that the guest has are given back when this node is short of memory (docs/decisions/0022).

use super::offer::areas_of;
use super::thread::State;
use super::{Deputy, Result, at};
use crate::layout::{HOLE_BYTES, TOP};
use crate::message::{Down, MAX_TAKEN};
use pando_kernel::inject::{Call, call};
use pando_kernel::{PAGE, page_ceil, page_floor, procfs};
use std::time::{Duration, Instant};

/// When it could not be done: it is tried again after this time.
const AGAIN: Duration = Duration::from_millis(100);
/// Calls that may be in flight meanwhile: what they read of memory they have read when they wait, and what they write does not depend on what is there.
const QUIET_CALLS: [i64; 11] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_pause,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
];

/// How far it is.
#[derive(Debug, Default)]
pub(crate) enum Releasing {
    /// Nobody wants it.
    #[default]
    No,
    /// From then on.
    Wanted(Instant),
    /// The guest has been asked.
    Asked,
}

impl Deputy {
    /// This node is short of memory.
    pub(super) fn want_release(&mut self) {
        if matches!(self.releasing, Releasing::No) {
            self.releasing = Releasing::Wanted(Instant::now());
        }
    }

    /// Asks the guest which pages it has, of those that have been sent.
    pub(super) fn work_on_release(&mut self) -> Result<()> {
        let due = matches!(self.releasing, Releasing::Wanted(from) if from <= Instant::now());
        let Some(abroad) = self.abroad.as_ref().filter(|_| due && !self.returning && self.wish.is_none()) else {
            return Ok(());
        };
        if !self.can_discard() {
            return Ok(());
        }
        let mut unsent: Vec<(u64, u64)> = abroad.push.iter().chain(&abroad.plain).copied().collect();
        unsent.sort_unstable();
        let maps = at("its map", procfs::maps(self.pid))?;
        let mut ranges = Vec::new();
        for a in areas_of(&maps, self.hole, &self.fixed).iter().filter(|a| a.own) {
            ranges.extend(at("scan memory", self.pagemap.present(a.start, a.end))?);
        }
        let mut ranges = without(&ranges, &unsent);
        ranges.truncate(MAX_TAKEN);
        if ranges.is_empty() {
            self.releasing = if unsent.is_empty() { Releasing::No } else { Releasing::Wanted(Instant::now() + AGAIN) };
            return Ok(());
        }
        self.releasing = Releasing::Asked;
        self.tell(&Down::TakeOver(ranges), &[])
    }

    /// Is there a thread to do it, and no call that may still read what would go? Nobody is asked before, since to answer is work.
    fn can_discard(&self) -> bool {
        let quiet = |nr: u64| QUIET_CALLS.contains(&(nr as i64));
        let free = self.threads.iter().any(|t| matches!(t.state, State::Halted | State::Parked) && t.flight.is_none());
        let disturbed = self.threads.iter().filter_map(|t| t.flight.as_ref()).any(|f| !quiet(f.nr));
        free && !disturbed && self.kept.is_empty() && self.held.is_empty() && self.unborn.is_none()
    }

    /// Of these pages the guest has the only copy that counts, from now on.
    pub(super) fn on_took(&mut self, ranges: &[(u64, u64)]) -> Result<()> {
        if !matches!(self.releasing, Releasing::Asked) || ranges.len() > MAX_TAKEN {
            return Err(self.broken("pages that it was not asked to take"));
        }
        let hole = (self.hole, self.hole + HOLE_BYTES);
        let whole = |v: u64| v.is_multiple_of(PAGE);
        let good = |&(start, end): &(u64, u64)| {
            start < end && end <= TOP && whole(start) && whole(end) && (end <= hole.0 || start >= hole.1)
        };
        if !ranges.iter().all(good) {
            return Err(self.broken("pages to take for a place that is not the program's"));
        }
        self.releasing = Releasing::Wanted(Instant::now() + AGAIN);
        if self.returning || !self.can_discard() {
            return Ok(());
        }
        let Some(tid) = self.free_thread()? else { return Ok(()) };
        let discard = |&(start, end): &(u64, u64)| -> Call {
            call(libc::SYS_madvise, &[start, end - start, libc::MADV_DONTNEED as u64])
        };
        // What a call in flight has written, or still may, has not been sent: that stays.
        let mut written: Vec<(u64, u64)> =
            self.claims(0, TOP).iter().map(|c| (page_floor(c.0), page_ceil(c.1))).collect();
        written.sort_unstable();
        let calls: Vec<Call> = without(ranges, &written).iter().map(discard).collect();
        self.inject_quietly(tid, &calls)?;
        let sends = self.abroad.as_ref().is_some_and(|a| a.pushes() || a.chan.wants_write());
        if ranges.is_empty() && !sends {
            self.releasing = Releasing::No;
        }
        Ok(())
    }
}

/// The parts of `all` that are in none of `others`; both in order, and neither overlaps itself.
fn without(all: &[(u64, u64)], others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (mut out, mut others) = (Vec::new(), others);
    for &(start, end) in all {
        let mut at = start;
        others = &others[others.iter().take_while(|o| o.1 <= start).count()..];
        for &(from, to) in others.iter().take_while(|o| o.0 < end) {
            if at < from {
                out.push((at, from));
            }
            at = at.max(to);
        }
        if at < end {
            out.push((at, end));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn what_is_not_sent_yet_is_not_asked_for() {
        let all = [(0, 10), (20, 30), (40, 50)];
        assert_eq!(without(&all, &[]), all);
        assert_eq!(without(&all, &[(0, 100)]), []);
        assert_eq!(without(&all, &[(5, 22), (25, 27), (49, 60)]), [(0, 5), (22, 25), (27, 30), (40, 49)]);
        // Page by page it is the same.
        for bits in 0..1u32 << 12 {
            let of =
                |bits: u32| -> Vec<(u64, u64)> { (0..6).filter(|i| bits >> i & 1 != 0).map(|i| (i, i + 1)).collect() };
            let (a, b) = (of(bits), of(bits >> 6));
            let expected: Vec<(u64, u64)> = a.iter().copied().filter(|r| !b.contains(r)).collect();
            assert_eq!(without(&a, &b), expected);
        }
    }
}
