//! Pages that were huge at home become huge here when all of them have come (docs/decisions/0017).
//!
//! The kernel puts no page together whose writes are tracked one by one, so the range counts as written while that is done. What nobody
//! wrote meanwhile is found out by comparing, and is `clean` again.

use super::{Guest, GuestError, Leaving, Result, at};
use crate::area::{AreaMap, Backing};
use crate::layout::{HUGE, TOP};
use crate::message::MAX_AREAS;
use pando_kernel::{pidfd, procfs};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Huge pages that are made at one go.
const BATCH: usize = 8;
/// So long no page has come when the work begins: the background push has the processor first.
const QUIET: Duration = Duration::from_millis(20);
/// How often it is looked whether the kernel has done its part.
const PATIENCE: Duration = Duration::from_millis(2);
/// How often clean huge pages are looked after, and how many then.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOKS: usize = 32;
/// How often the kernel is asked for one: it gives up where a page is in use for a moment, or no huge one is free.
const TRIES: u8 = 8;

/// A huge page in the making.
struct Part {
    base: u64,
    /// Its content, equal to home's, if nothing of it had been written.
    before: Option<Vec<u8>>,
}

#[derive(PartialEq)]
enum Step {
    Gathering,
    Collapsing,
    Checking,
}

/// What is huge at home, and how far we are with it.
pub(super) struct Huge {
    wanted: AreaMap,
    /// Where pages have come since it was last looked at.
    fresh: BTreeSet<u64>,
    /// Huge, and equal to home's copy when last looked at. The kernel takes one apart when something is written there.
    clean: BTreeSet<u64>,
    /// What the kernel did not make huge, and how often; `later` are those to try again.
    failed: BTreeMap<u64, u8>,
    later: BTreeSet<u64>,
    batch: Vec<Part>,
    step: Step,
    collapser: Option<Collapser>,
    /// Something happened after which equal bytes do not prove that home has them.
    disturbed: bool,
    last_page: Instant,
    looked: Instant,
    next_look: u64,
}

impl Huge {
    pub fn new(now: Instant) -> Huge {
        Huge {
            wanted: AreaMap::default(),
            fresh: BTreeSet::new(),
            clean: BTreeSet::new(),
            failed: BTreeMap::new(),
            later: BTreeSet::new(),
            batch: Vec::new(),
            step: Step::Gathering,
            collapser: None,
            disturbed: false,
            last_page: now,
            looked: now,
            next_look: 0,
        }
    }

    /// Home has huge pages there.
    pub fn want(&mut self, ranges: &[(u64, u64)]) -> Result<()> {
        let whole = |&(start, end): &(u64, u64)| start.is_multiple_of(HUGE) && end.is_multiple_of(HUGE) && start < end;
        let ordered = ranges.windows(2).all(|w| w[0].1 <= w[1].0);
        if ranges.len() > MAX_AREAS || !ordered || !ranges.iter().all(|r| whole(r) && r.1 <= TOP) {
            return Err(GuestError::Protocol("strange huge pages".into()));
        }
        self.wanted = AreaMap::default();
        for &(start, end) in ranges {
            self.wanted.insert(start, end, Backing::Home);
        }
        Ok(())
    }

    /// Is some of this to be huge?
    pub fn has(&self, start: u64, end: u64) -> bool {
        !self.wanted.within(start, end).is_empty()
    }

    /// Pages have come.
    pub fn arrived(&mut self, start: u64, end: u64) {
        self.last_page = Instant::now();
        for (start, end, _) in self.wanted.within(start, end) {
            self.fresh.extend((start / HUGE..end.div_ceil(HUGE)).map(|n| n * HUGE));
        }
    }

    /// Bytes of these addresses are sent home.
    pub fn goes_home(&mut self, start: u64, end: u64) {
        self.disturbed |= self.batch.iter().any(|p| p.base < end && start < p.base + HUGE);
    }

    /// What an address means has changed, or what is written has been taken.
    pub fn disturb(&mut self) {
        self.disturbed = true;
    }

    /// A memory call changes these ranges (begin and length).
    pub fn map_changes(&mut self, nr: u64, ranges: &[(u64, u64)]) {
        self.disturb();
        if [libc::SYS_madvise, libc::SYS_mprotect].contains(&(nr as i64)) {
            return;
        }
        for &(start, len) in ranges {
            let end = start.saturating_add(len);
            self.wanted.remove(start, end);
            let low = (start / HUGE) * HUGE;
            for set in [&mut self.fresh, &mut self.clean, &mut self.later] {
                let gone: Vec<u64> = set.range(low..end.max(low)).copied().collect();
                for base in gone {
                    set.remove(&base);
                }
            }
        }
    }

    /// The kernel has made one, or not.
    fn outcome(&mut self, base: u64, huge: bool) {
        if huge {
            self.failed.remove(&base);
            return;
        }
        let times = self.failed.entry(base).or_default();
        *times = times.saturating_add(1);
        if *times < TRIES {
            self.later.insert(base);
        }
    }

    fn idle(&self) -> bool {
        self.step == Step::Gathering && self.batch.is_empty()
    }
}

impl Guest {
    fn may_make_huge_pages(&self) -> bool {
        matches!(self.leaving, Leaving::No) && !self.paused && !self.still.is_on() && !self.map_is_changing()
    }

    /// When there is something to do for huge pages.
    pub(super) fn huge_pages_due(&self) -> Duration {
        let h = &self.huge;
        let quiet = QUIET.saturating_sub(h.last_page.elapsed());
        match h.step {
            _ if !self.may_make_huge_pages() => Duration::MAX,
            Step::Gathering if h.fresh.is_empty() && h.idle() => match h.clean.is_empty() && h.later.is_empty() {
                true => Duration::MAX,
                false => LOOK_AGAIN.saturating_sub(h.looked.elapsed()),
            },
            Step::Gathering => quiet,
            Step::Collapsing => PATIENCE,
            Step::Checking => Duration::ZERO,
        }
    }

    /// One step, so short that calls and faults do not wait for it.
    pub(super) fn work_on_huge_pages(&mut self) -> Result<()> {
        if !self.may_make_huge_pages() {
            return Ok(());
        }
        match self.huge.step {
            Step::Gathering => {
                self.look_after_clean()?;
                if self.huge.last_page.elapsed() < QUIET || self.huge.fresh.is_empty() && self.huge.idle() {
                    return Ok(());
                }
                if self.huge.idle() {
                    self.huge.disturbed = false;
                }
                self.gather()?;
                if self.huge.batch.len() == BATCH || self.huge.fresh.is_empty() && !self.huge.batch.is_empty() {
                    self.collapse();
                }
                Ok(())
            }
            Step::Collapsing => {
                if self.huge.collapser.as_ref().is_none_or(Collapser::is_done) {
                    self.huge.step = Step::Checking;
                }
                Ok(())
            }
            Step::Checking => match self.huge.batch.pop() {
                Some(part) => self.check(part),
                None => {
                    self.huge.step = Step::Gathering;
                    Ok(())
                }
            },
        }
    }

    /// Finds the next range that is all here and stops tracking writes there.
    fn gather(&mut self) -> Result<()> {
        if self.huge.collapser.is_none() {
            self.huge.collapser = Collapser::new(self.body.pid).unwrap_or_default();
            if self.huge.collapser.is_none() {
                // Not permitted, or not wanted on this machine: small pages do, too.
                (self.huge.wanted, self.huge.fresh) = (AreaMap::default(), BTreeSet::new());
            }
        }
        for _ in 0..LOOKS {
            let Some(base) = self.huge.fresh.pop_first() else { break };
            let end = base + HUGE;
            let ours: u64 =
                self.areas.within(base, end).iter().filter(|a| a.2 == Backing::Home).map(|a| a.1 - a.0).sum();
            let (present, huge) = at("scan for pages", self.pagemap.present_and_huge(base, end))?;
            if ours < HUGE || present != [(base, end)] || !huge.is_empty() {
                continue;
            }
            let before = self.read_clean(base)?;
            self.huge.wanted.remove(base, end);
            // Where that can't be done nothing has changed, or more counts as written than was.
            if self.uffd.unprotect(base, end).is_ok() {
                self.huge.batch.push(Part { base, before });
                break;
            }
        }
        Ok(())
    }

    fn all_present(&self, base: u64) -> Result<bool> {
        Ok(at("scan for present pages", self.pagemap.present(base, base + HUGE))? == [(base, base + HUGE)])
    }

    /// The content of a range of which nothing has been written.
    fn read_clean(&self, base: u64) -> Result<Option<Vec<u8>>> {
        let unwritten =
            || Ok::<_, GuestError>(at("scan for written pages", self.pagemap.written(base, base + HUGE))?.is_empty());
        if !unwritten()? {
            return Ok(None);
        }
        let mut bytes = vec![0; HUGE as usize];
        let whole = self.memory.read_present(base, &mut bytes) == bytes.len();
        Ok(Some(bytes).filter(|_| whole).filter(|_| unwritten().unwrap_or(false)))
    }

    fn collapse(&mut self) {
        let bases: Vec<u64> = self.huge.batch.iter().map(|p| p.base).collect();
        if let Some(collapser) = &self.huge.collapser {
            collapser.begin(bases);
        }
        self.huge.step = Step::Collapsing;
    }

    /// Tracks writes again if nothing has been written since `before` was read.
    fn check(&mut self, part: Part) -> Result<()> {
        let (base, end) = (part.base, part.base + HUGE);
        let (_, huge) = at("scan for pages", self.pagemap.present_and_huge(base, end))?;
        self.huge.outcome(base, huge == [(base, end)]);
        let Some(before) = part.before.filter(|_| !self.huge.disturbed) else { return Ok(()) };
        at("scan for written pages", self.pagemap.take_written(base, end))?;
        let mut now = vec![0; HUGE as usize];
        if self.all_present(base)? && self.memory.read_present(base, &mut now) == now.len() && now == before {
            self.huge.clean.insert(base);
            return Ok(());
        }
        match self.uffd.unprotect(base, end) {
            // The program has given it back meanwhile.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => at("count a range as written", other),
        }
    }

    /// Clean ranges that the kernel has taken apart, because something was written, are made huge once more and stay written.
    fn look_after_clean(&mut self) -> Result<()> {
        if self.huge.looked.elapsed() < LOOK_AGAIN {
            return Ok(());
        }
        self.huge.looked = Instant::now();
        let later = std::mem::take(&mut self.huge.later);
        self.huge.fresh.extend(later);
        let some: Vec<u64> = self.huge.clean.range(self.huge.next_look..).take(LOOKS).copied().collect();
        self.huge.next_look = some.last().map_or(0, |last| last + HUGE);
        for base in some {
            if !at("scan for written pages", self.pagemap.written(base, base + HUGE))?.is_empty() {
                self.huge.clean.remove(&base);
                self.huge.fresh.insert(base);
            }
        }
        Ok(())
    }
}

/// A thread of the helper that does one thing: the system call that puts pages together, which may wait for other processors. It knows
/// nothing and shares nothing.
struct Collapser {
    orders: Sender<Vec<u64>>,
    done: Receiver<()>,
}

impl Collapser {
    /// None where it is not permitted.
    fn new(pid: i32) -> std::io::Result<Option<Collapser>> {
        let guest = pidfd::open(pid)?;
        if !pidfd::may_collapse(&guest) || !procfs::huge_pages_wanted() {
            return Ok(None);
        }
        let (orders, ordered) = channel();
        let (tell, done) = channel();
        std::thread::Builder::new().name("huge-pages".into()).spawn(move || work(&guest, &ordered, &tell))?;
        Ok(Some(Collapser { orders, done }))
    }

    fn begin(&self, bases: Vec<u64>) {
        // A thread that has ended is done: see below.
        drop(self.orders.send(bases));
    }

    fn is_done(&self) -> bool {
        !matches!(self.done.try_recv(), Err(TryRecvError::Empty))
    }
}

fn work(guest: &OwnedFd, ordered: &Receiver<Vec<u64>>, tell: &Sender<()>) {
    for bases in ordered {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for base in bases {
            match ranges.last_mut() {
                Some(last) if last.1 == base => last.1 += HUGE,
                _ => ranges.push((base, base + HUGE)),
            }
        }
        for (start, end) in ranges {
            // What could not be made huge is what it was.
            drop(pidfd::collapse(guest, start, end));
        }
        if tell.send(()).is_err() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_memory_call_changes_is_wanted_no_more() {
        let mut huge = Huge::new(Instant::now());
        huge.want(&[(HUGE, 5 * HUGE)]).unwrap();
        huge.arrived(HUGE + 4096, 3 * HUGE + 1);
        assert_eq!(huge.fresh, BTreeSet::from([HUGE, 2 * HUGE, 3 * HUGE]));
        huge.map_changes(libc::SYS_mprotect as u64, &[(0, TOP)]);
        assert_eq!(huge.fresh.len(), 3);
        huge.map_changes(libc::SYS_munmap as u64, &[(2 * HUGE + 4096, 4096)]);
        assert_eq!(huge.fresh, BTreeSet::from([HUGE, 3 * HUGE]));
        assert!(huge.disturbed && huge.has(4 * HUGE, 5 * HUGE) && !huge.has(2 * HUGE + 4096, 2 * HUGE + 8192));
    }

    #[test]
    fn what_fails_is_tried_again_for_a_while() {
        let mut huge = Huge::new(Instant::now());
        let tried = (0..20).filter(|_| {
            huge.outcome(HUGE, false);
            huge.later.pop_first().is_some()
        });
        assert_eq!(tried.count(), usize::from(TRIES) - 1);
        huge.outcome(HUGE, true);
        assert!(huge.failed.is_empty() && huge.later.is_empty());
    }

    #[test]
    fn strange_ranges_are_refused() {
        let mut huge = Huge::new(Instant::now());
        for bad in [&[(4096, HUGE)][..], &[(0, 0)], &[(0, HUGE), (0, HUGE)], &[(HUGE, u64::MAX - HUGE + 1)]] {
            assert!(huge.want(bad).is_err(), "{bad:x?}");
        }
    }
}
