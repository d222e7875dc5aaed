//! Memory calls that the guest's side has made by itself: home makes them, too, before anything needs to find them made
//! (docs/decisions/0018).

use super::thread::State;
use super::{Deputy, HomeError, Result, at};
use crate::layout::{HOLE_BYTES, TOP};
use crate::message::{Area, Down, MAX_AREAS, MAX_MAP_CALLS, MapCall, OWN_MEMORY as OWN, OWN_MEMORY_AT_MOST as KINDS};
use pando_kernel::inject::{Call, TABLE_ENTRIES, call};
use pando_kernel::limit::{Limit, limit};
use pando_kernel::ptrace::Stop;
use pando_kernel::{PAGE, page_ceil, procfs};

/// Of this machine's memory a mapping that nobody asked home about may have one part in so many: the kernel refuses those that
/// could never be filled (vm.overcommit_memory 0).
const PART: u64 = 4;
/// How many areas the kernel lets a process have, unless somebody has set another number (vm.max_map_count): abroad that is gone by.
const MAX_MAP_COUNT: u64 = 65_530;
/// What the heap is mapped with.
const RW: u32 = (libc::PROT_READ | libc::PROT_WRITE) as u32;
/// Guards in memory (Linux 6.13).
const MADV_GUARD_INSTALL: u64 = 102;
/// So often calls are made that a limit of this moment may have refused.
const TRIES: u32 = 16;
/// No limit, and no number that anybody else would choose.
const LIFTED: u64 = (1 << 62) - 4097;
/// The limit of a process that can't be asked.
const NOTHING: Limit = Limit { rlim_cur: 0, rlim_max: 0 };

/// Do its limits let a process have as much memory as there is?
fn is_unlimited(pid: i32) -> bool {
    limits(pid).is_empty() && procfs::locked_memory(pid) == 0
}

/// Its limits on memory, where there are any.
fn limits(pid: i32) -> Vec<(u32, Limit)> {
    let of = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(|what| (what, limit(pid, what, None).unwrap_or(NOTHING)));
    of.into_iter().filter(|(_, limit)| limit.rlim_cur != libc::RLIM_INFINITY).collect()
}

/// A number of the kernel's.
fn sysctl(name: &str) -> Option<u64> {
    std::fs::read_to_string(format!("/proc/sys/vm/{name}")).ok()?.trim().parse().ok()
}

/// The call as home makes it; None: no honest node would have made it.
fn wanted(c: &MapCall, hole: u64) -> Option<Call> {
    let (start, end) = c.range();
    let a = &c.args;
    let whole = start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE) && start < end && end <= TOP;
    let clear = end <= hole || start >= hole + HOLE_BYTES;
    let fits = whole && clear;
    match i64::from(c.nr) {
        libc::SYS_brk => (a[0] <= TOP && a[0] > 0).then(|| call(libc::SYS_brk, &[a[0]])),
        libc::SYS_mmap => {
            let own = a[3] & !KINDS == 0 && a[3] & OWN == OWN && a[2] <= 7;
            let flags = a[3] | libc::MAP_FIXED_NOREPLACE as u64;
            (fits && own).then(|| call(libc::SYS_mmap, &[a[0], a[1], a[2], flags, u64::MAX, 0]))
        }
        libc::SYS_munmap => fits.then(|| call(libc::SYS_munmap, &[a[0], a[1]])),
        libc::SYS_mprotect => (fits && a[2] <= 7).then(|| call(libc::SYS_mprotect, &a[..3])),
        libc::SYS_madvise => (fits && a[2] == libc::MADV_DONTNEED as u64).then(|| call(libc::SYS_madvise, &a[..3])),
        _ => None,
    }
}

fn expected(c: &Call) -> i64 {
    if [libc::SYS_mmap, libc::SYS_brk].contains(&(c.nr as i64)) { c.args[0] as i64 } else { 0 }
}

/// The call once more, where an earlier one had failed: what it has mapped is in its place, and nobody has used it.
fn made_again(c: &mut Call) {
    if c.nr as i64 == libc::SYS_mmap {
        c.args[3] = c.args[3] & !(libc::MAP_FIXED_NOREPLACE as u64) | libc::MAP_FIXED as u64;
    }
}

impl Deputy {
    /// Now that the guest runs there is time to look for guards that the inspection came too early for (they do not show in the map): the
    /// guest may make memory calls where there are none.
    pub(super) fn let_map_abroad(&mut self, areas: &[Area]) -> Result<()> {
        let most = self.memory_here();
        if most == 0 {
            return Ok(());
        }
        let mut guards = Vec::new();
        for a in areas.iter().filter(|a| a.own) {
            guards.extend(at("scan for guards", self.pagemap.guards(a.start, a.end))?);
        }
        if guards.len() > MAX_AREAS {
            self.map_at_home = true;
            return Ok(());
        }
        self.fixed.extend(&guards);
        self.tell(&Down::MapAbroad(most, guards), &[])
    }

    /// Most bytes that one memory call may add abroad before home has heard of it; 0 where home's kernel could say no.
    fn memory_here(&mut self) -> u64 {
        let strict = sysctl("overcommit_memory").is_none_or(|mode| mode == 2);
        let few = sysctl("max_map_count").is_none_or(|count| count < MAX_MAP_COUNT);
        let changing =
            self.threads.iter().filter_map(|t| t.flight.as_ref()).any(|f| pando_calls::limits_memory(f.nr, &f.args));
        self.map_at_home = strict || few || changing || !is_unlimited(self.pid);
        if self.map_at_home { 0 } else { procfs::machine_memory() / PART }
    }

    /// How far the guest's kernel may set the break by itself: as low as the heap is memory of the program's own, and by how much up.
    pub(super) fn free_break(&mut self, areas: &[Area]) -> Option<(u64, u64)> {
        let most = Some(self.memory_here()).filter(|&most| most > 0)?;
        let (begin, top) = (procfs::heap_start(self.pid)?, page_ceil(self.brk));
        if page_ceil(begin) == top {
            return (begin <= self.brk).then_some((self.brk, most));
        }
        let last = areas.iter().find(|a| a.end == top && a.own && a.prot == RW)?;
        Some((last.start.max(begin), most)).filter(|&(low, _)| low <= self.brk)
    }

    /// The guest's memory has changed like this.
    pub(super) fn on_mapped(&mut self, calls: &[MapCall]) -> Result<()> {
        if self.returning || calls.len() > MAX_MAP_CALLS {
            return Err(self.broken("memory calls out of place"));
        }
        let made: Option<Vec<Call>> = calls.iter().map(|c| wanted(c, self.hole)).collect();
        let Some(made) = made else { return Err(self.broken("a memory call that must not be made without home")) };
        let Some((tid, held)) = self.thread_to_map()? else {
            return Err(self.broken("memory calls of a process whose threads are all in calls"));
        };
        let mut lifted = Vec::new();
        let all_made = self.make_all(tid, &made, &mut lifted);
        for &(what, old) in &lifted {
            // One that has been set meanwhile stays.
            match limit(self.pid, what, Some(old)) {
                Ok(now) if now.rlim_cur != LIFTED.min(now.rlim_max) => drop(limit(self.pid, what, Some(now))),
                _ => {}
            }
        }
        all_made?;
        self.mind_limits()?;
        if held { self.stop_again(tid) } else { Ok(()) }
    }

    /// Limits that somebody else has set are home's to see to.
    pub(super) fn mind_limits(&mut self) -> Result<()> {
        if self.map_at_home || self.abroad.is_none() || limits(self.pid).is_empty() {
            return Ok(());
        }
        self.map_at_home = true;
        self.tell(&Down::MapAtHome, &[])
    }

    /// Limits that somebody else has set meanwhile begin to hold after calls that have been made: until then they are `lifted`.
    fn lift_limits(&self, lifted: &mut Vec<(u32, Limit)>) {
        // Neither infinite nor lifted, as far as may be.
        let is_near = |what: u32, now: &Limit| {
            lifted.iter().any(|(w, old)| *w == what && (now.rlim_cur, now.rlim_max) == (old.rlim_max, old.rlim_max))
        };
        let holds = |(what, now): &(u32, Limit)| now.rlim_cur < LIFTED && !is_near(*what, now);
        let holding: Vec<(u32, Limit)> = limits(self.pid).into_iter().filter(holds).collect();
        for (what, old) in holding {
            // Without the right to, at least as far as its owner may.
            let far = Limit { rlim_cur: LIFTED, rlim_max: libc::RLIM_INFINITY };
            let near = Limit { rlim_cur: LIFTED.min(old.rlim_max), ..old };
            let _ = limit(self.pid, what, Some(far)).or_else(|_| limit(self.pid, what, Some(near)));
            lifted.retain(|(other, _)| *other != what);
            lifted.push((what, old));
        }
    }

    fn make_all(&mut self, tid: i32, made: &[Call], lifted: &mut Vec<(u32, Limit)>) -> Result<()> {
        for part in made.chunks(TABLE_ENTRIES) {
            let (mut left, mut tries) = (part.to_vec(), 0);
            while !left.is_empty() {
                self.lift_limits(lifted);
                let results = self.inject_quietly(tid, &left)?;
                let failed =
                    left.iter().zip(&results).position(|(c, result)| *result != expected(c)).unwrap_or(left.len());
                for c in left.drain(..failed) {
                    self.note_map(c.nr, &c.args, expected(&c) as u64);
                }
                let Some(c) = left.first() else { break };
                // It may have been a limit that was set in this moment.
                let limited = |(c, result): (&Call, &i64)| {
                    *result == expected(c) || *result == -i64::from(libc::ENOMEM) || c.nr as i64 == libc::SYS_brk
                };
                tries += 1;
                if tries == TRIES || !left.iter().zip(&results[failed..]).all(limited) {
                    return Err(self.refused(c, results[failed]));
                }
                left.iter_mut().for_each(made_again);
            }
        }
        Ok(())
    }

    /// Back to sleep, and into the stop of job control that it was taken out of: its next event says so.
    fn stop_again(&mut self, tid: i32) -> Result<()> {
        self.run_in_deputy(tid, &call(libc::SYS_pause, &[]))?;
        self.threads[tid].before_stop = State::Parked;
        at("interrupt", self.threads[tid].tracee.interrupt())
    }

    /// The program has been told that it succeeded, and goes by that.
    fn refused(&self, c: &Call, result: i64) -> HomeError {
        let error = match result {
            -4095..0 => std::io::Error::from_raw_os_error(-result as i32).to_string(),
            elsewhere => format!("{elsewhere:#x} instead of {:#x}", c.args[0]),
        };
        let name = pando_calls::name(c.nr);
        let why = format!("made {name} for it, which fails here ({error}; were its limits changed from outside?)");
        HomeError::Declined { node: self.place(), why }
    }

    /// A thread that can make calls now, and whether job control holds it. The one that made them abroad can: it is in no call here.
    fn thread_to_map(&mut self) -> Result<Option<(i32, bool)>> {
        loop {
            if let Some(tid) = self.free_thread()? {
                return Ok(Some((tid, false)));
            }
            let stopped =
                |t: &&super::thread::DeputyThread| t.state == State::JobStopped && t.before_stop != State::InCall;
            let Some(tid) = self.threads.iter().find(stopped).map(|t| t.tracee.tid) else { return Ok(None) };
            let tracee = self.threads[tid].tracee;
            at("interrupt", tracee.interrupt())?;
            match at("wait", tracee.wait(true))? {
                // Still stopped: it runs for us alone, and then listens again.
                Some(Stop::Event(signal)) if signal != libc::SIGTRAP => return Ok(Some((tid, true))),
                Some(stop) => self.on_stop(tid, stop)?,
                None => {}
            }
        }
    }

    /// These addresses mean something else now, and the break may be another one.
    pub(super) fn note_map(&mut self, nr: u64, a: &[u64; 6], ret: u64) {
        let end = |start: u64, len: u64| page_ceil(start.saturating_add(len));
        match nr as i64 {
            libc::SYS_mmap => self.forget(ret, end(ret, a[1])),
            libc::SYS_munmap | libc::SYS_madvise => {
                let range = (pando_kernel::page_floor(a[0]), end(a[0], a[1]));
                self.forget(range.0, range.1);
                // The next node must know that they are there.
                let known = self.fixed.iter().any(|&(start, end)| start <= range.0 && range.1 <= end);
                if nr as i64 == libc::SYS_madvise && a[2] == MADV_GUARD_INSTALL && !known {
                    self.fixed.push(range);
                }
            }
            libc::SYS_mremap => {
                self.forget(pando_kernel::page_floor(a[0]), end(a[0], a[1]));
                self.forget(pando_kernel::page_floor(ret), end(ret, a[2]));
            }
            libc::SYS_brk => {
                let (low, high) = (self.brk.min(ret), self.brk.max(ret));
                self.forget(page_ceil(low), page_ceil(high));
                self.brk = ret;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLE: u64 = 0x1000_0000_0000;

    fn asked(nr: i64, args: [u64; 4]) -> bool {
        wanted(&MapCall { nr: nr as u32, args }, HOLE).is_some()
    }

    #[test]
    fn nothing_but_private_memory_of_its_own_is_changed_unasked() {
        let at = 0x7000_0000_0000;
        assert!(asked(libc::SYS_mmap, [at, 0x1000, 3, OWN]));
        for flags in [
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            libc::MAP_PRIVATE,
            libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS,
        ] {
            assert!(!asked(libc::SYS_mmap, [at, 0x1000, 3, flags as u64]));
        }
        assert!(!asked(libc::SYS_mmap, [at, 0x1000, 3 | 0x0100_0000, OWN]), "grows down");
        assert!(!asked(libc::SYS_madvise, [at, 0x1000, libc::MADV_HWPOISON as u64, 0]));
        assert!(!asked(libc::SYS_mremap, [at, 0x1000, 0x2000, 0]));
        assert!(!asked(libc::SYS_execve, [at, 0x1000, 0, 0]));
        for nr in [libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect] {
            assert!(!asked(nr, [HOLE, 0x1000, 1, OWN]), "the engine's");
            assert!(!asked(nr, [at + 1, 0x1000, 1, OWN]));
            assert!(!asked(nr, [u64::MAX - 0xfff, 0x1000, 1, OWN]));
            assert!(!asked(nr, [at, 0, 1, OWN]));
            assert!(!asked(nr, [at, u64::MAX, 1, OWN]));
        }
    }
}
