//! Memory calls that this side can judge alone are made here at once; home hears of them before it needs to know
//! (docs/decisions/0018).
//!
//! They are those of which the result is certain at both sides: memory of the process's own that comes, goes, is cleared or protected.
//! Home has said before how far that holds (`Down::MapAbroad`), and where it does not the call is forwarded.

use super::{Guest, GuestError, Held, Leaving, Result, Stage, at};
use crate::area::Backing;
use crate::layout::{HOLE_BYTES, HUGE, TOP};
use crate::message::{MAX_AREAS, MAX_MAP_CALLS, MapCall, OWN_MEMORY as OWN, OWN_MEMORY_AT_MOST as KINDS, Up};
use crate::restart;
use pando_calls::Class;
use pando_kernel::inject::{self, Call, call};
use pando_kernel::{PAGE, page_ceil, procfs};

/// More areas than this, and home says whether there may be one more (vm.max_map_count is 65,530).
const MAX_OWN_AREAS: usize = 16_384;
/// The same for those that the kernel here counts, which are more: a call can make two of one.
const MAX_COUNTED: usize = 24_576;
/// They are counted again after so many calls.
const UNCOUNTED: usize = 4096;
/// So far from the stack nothing is put, which may grow.
const STACK_ROOM: u64 = 1 << 30;
/// Nor above the break, nor lower than here.
const LOWEST: u64 = 1 << 32;
const RW: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// What home has yet to hear.
#[derive(Default)]
pub(super) struct Deferred {
    calls: Vec<MapCall>,
    /// Some of it decides how home's pages may be read.
    pub urgent: bool,
    /// Most bytes that one call may add; 0: home judges all of them.
    pub most: u64,
    /// Home judges all that comes: a leave of it that is still under way came too late.
    at_home: bool,
    /// The lowest break that home is known to allow.
    pub lowest_break: u64,
    /// The break that home has when it has made all that it was told.
    pub told_break: u64,
    /// Areas that the kernel here has counted, and the calls made since: none has been counted yet.
    counted: Option<(usize, usize)>,
}

impl Deferred {
    /// Adds a call, unless it makes another one void.
    fn push(&mut self, new: MapCall) {
        if new.nr as i64 == libc::SYS_munmap && self.takes_back(&new) {
            return;
        }
        if new.nr as i64 == libc::SYS_brk && self.goes_on(new.args[0]) {
            return;
        }
        if self.calls.last() != Some(&new) {
            self.calls.push(new);
        }
    }

    /// The program has set the break by itself.
    pub fn break_set(&mut self, brk: u64) {
        self.lowest_break = self.lowest_break.min(brk);
        self.push(MapCall { nr: libc::SYS_brk as u32, args: [brk, 0, 0, 0] });
    }

    /// The break was at `brk` when home heard all.
    pub fn begin_at(&mut self, brk: u64) {
        (self.lowest_break, self.told_break) = (brk, brk);
    }

    /// The last call was one for the break, too, and this one makes it void: what came with it home has not heard of, or more goes.
    fn goes_on(&mut self, brk: u64) -> bool {
        let is_break = |c: &&MapCall| c.nr as i64 == libc::SYS_brk;
        let Some(last) = self.calls.last().filter(is_break).map(|c| c.args[0]) else { return false };
        let earlier = self.calls.iter().rev().filter(is_break).nth(1).map_or(self.told_break, |c| c.args[0]);
        // What goes and comes again is empty then: home must make both.
        if last < earlier && brk > last {
            return false;
        }
        self.calls.pop();
        if brk != earlier {
            self.calls.push(MapCall { nr: libc::SYS_brk as u32, args: [brk, 0, 0, 0] });
        }
        true
    }

    /// All that home has to hear.
    fn take(&mut self) -> Vec<MapCall> {
        let breaks = self.calls.iter().rev().find(|c| c.nr as i64 == libc::SYS_brk);
        self.told_break = breaks.map_or(self.told_break, |c| c.args[0]);
        self.urgent = false;
        std::mem::take(&mut self.calls)
    }

    /// Home has not heard of the mapping that goes: nothing of it need be told.
    fn takes_back(&mut self, gone: &MapCall) -> bool {
        let (start, end) = gone.range();
        let made = |c: &MapCall| c.nr as i64 == libc::SYS_mmap && c.range() == (start, end);
        let Some(from) = self.calls.iter().rposition(made) else { return false };
        let inside = |c: &MapCall| c.range().0 >= start && c.range().1 <= end;
        let apart = |c: &MapCall| c.range().1 <= start || c.range().0 >= end;
        // The break has no range; it is nowhere near.
        if !self.calls[from..].iter().all(|c| inside(c) || apart(c)) {
            return false;
        }
        let later = self.calls.split_off(from);
        self.calls.extend(later.into_iter().filter(|c| !inside(c)));
        true
    }
}

/// How a call is made here.
enum Way {
    /// Nothing but this answer.
    Answer(u64),
    /// The guest's kernel runs it as it is.
    AsItIs,
    /// The same for the break.
    Break,
    /// This one, with this result.
    Instead(Call, u64),
}

impl Guest {
    /// From now on memory calls may be made here, but not where there are guards.
    pub(super) fn may_map(&mut self, most: u64, guards: &[(u64, u64)]) -> Result<()> {
        if guards.len() > MAX_AREAS || guards.iter().any(|&(start, end)| start >= end || end > TOP) {
            return Err(GuestError::Protocol("guards that make no sense, or too many".into()));
        }
        guards.iter().for_each(|&(start, end)| self.own.remove(start, end));
        if !self.deferred.at_home {
            self.deferred.most = most;
        }
        Ok(())
    }

    /// Makes a memory call here if its result is certain. False: home has to.
    pub(super) fn make_here(&mut self, tid: i32, held: &Held) -> Result<bool> {
        if self.threads[tid].asks_home.take() == Some((held.nr, held.args)) {
            return Ok(false);
        }
        if self.deferred.most == 0 || pando_calls::class(held.nr, &held.args) != Class::Memory {
            return Ok(false);
        }
        let home_changes = |c: Held| matches!(c.stage, Stage::Sent(_)) && changes_map(&c);
        let waits = self.threads.iter().filter_map(|t| t.call).any(home_changes);
        let frozen = self.leaving.closed() || matches!(self.leaving, Leaving::Presync { .. }) && self.threads.len() > 1;
        if waits || frozen || !self.has_room_for_areas()? {
            return Ok(false);
        }
        let Some(way) = self.way(held) else { return Ok(false) };
        match way {
            Way::Answer(ret) => {
                self.threads[tid].call = None;
                self.note_deferred(held, ret)?;
                self.answer(held.id, ret as i64)?;
            }
            Way::AsItIs => {
                if held.nr as i64 == libc::SYS_madvise && !self.turns_local(held) {
                    return Ok(false);
                }
                self.note_deferred(held, 0)?;
                self.threads[tid].changing = Some((held.args[0], page_ceil(held.args[0] + held.args[1])));
                self.run_natively(tid, held)?;
            }
            Way::Break => {
                self.break_natively(tid, held)?;
                self.note_deferred(held, held.args[0])?;
                self.run_natively(tid, held)?;
            }
            Way::Instead(wanted, ret) => self.make_instead(tid, held, &wanted, ret)?,
        }
        Ok(true)
    }

    /// May there be more areas, as far as can be said here?
    fn has_room_for_areas(&mut self) -> Result<bool> {
        let (areas, calls) = match self.deferred.counted {
            Some((areas, calls)) if calls < UNCOUNTED => (areas, calls + 1),
            _ => (at("the guest's map", procfs::maps(self.body.pid))?.len(), 1),
        };
        self.deferred.counted = Some((areas, calls));
        Ok(self.areas.len() <= MAX_OWN_AREAS && areas + 2 * calls <= MAX_COUNTED)
    }

    fn way(&self, held: &Held) -> Option<Way> {
        let a = &held.args;
        let (start, end) = (a[0], page_ceil(a[0].checked_add(a[1])?.min(TOP + 1)));
        let whole = start.is_multiple_of(PAGE) && a[1] > 0 && end <= TOP && start < end;
        match held.nr as i64 {
            libc::SYS_mmap => self.way_to_map(a),
            libc::SYS_brk => self.way_to_break(a[0]),
            libc::SYS_munmap => (whole && self.may_go(start, end)).then_some(Way::AsItIs),
            libc::SYS_mprotect => {
                // More than there is may be reserved, but not made writable.
                let fits = a[2] & libc::PROT_WRITE as u64 == 0 || end - start <= self.deferred.most;
                (whole && a[2] <= 7 && fits && self.is_own(start, end)).then_some(Way::AsItIs)
            }
            libc::SYS_madvise => {
                let discards = a[2] == libc::MADV_DONTNEED as u64;
                (whole && discards && self.is_own(start, end)).then_some(Way::AsItIs)
            }
            _ => None,
        }
    }

    fn way_to_map(&self, a: &[u64; 6]) -> Option<Way> {
        let ours = a[0] == 0 && a[3] & !KINDS == 0 && a[3] & OWN == OWN && a[2] <= 7 && a[5].is_multiple_of(PAGE);
        if !ours || a[1] == 0 || a[1] > self.deferred.most {
            return None;
        }
        let len = page_ceil(a[1]);
        let start = self.room_for(len)?;
        let flags = a[3] | (libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE) as u64;
        Some(Way::Instead(call(libc::SYS_mmap, &[start, len, a[2], flags, u64::MAX, 0]), start))
    }

    /// Can this break be set without asking home?
    pub(super) fn may_break(&self, wanted: u64) -> bool {
        self.way_to_break(wanted).is_some()
    }

    fn way_to_break(&self, wanted: u64) -> Option<Way> {
        let (old, new) = (page_ceil(self.brk), page_ceil(wanted.min(TOP)));
        if wanted == 0 {
            return Some(Way::Answer(self.brk));
        }
        if wanted > TOP || new.abs_diff(old) > self.deferred.most {
            return None;
        }
        // What is too much for this kernel home judges, and this kernel never makes one again.
        let way = |instead: Call| match self.heap.native {
            true => self.breaks_natively(wanted).then_some(Way::Break),
            false => Some(Way::Instead(instead, wanted)),
        };
        match old.cmp(&new) {
            // Where it may not go below, only home knows.
            _ if wanted < self.deferred.lowest_break => None,
            // A free one is asked of the kernel here, which must know it to the byte.
            std::cmp::Ordering::Equal if self.heap.free.is_some() => Some(Way::Break),
            std::cmp::Ordering::Equal => Some(Way::Answer(wanted)),
            std::cmp::Ordering::Less => {
                let clear = self.areas.within(old, new + HUGE).is_empty() && self.is_clear(old, new + HUGE);
                let flags = OWN | (libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE) as u64;
                let map = call(libc::SYS_mmap, &[old, new - old, RW, flags, u64::MAX, 0]);
                way(map).filter(|_| clear)
            }
            std::cmp::Ordering::Greater => {
                let unmap = call(libc::SYS_munmap, &[new, old - new]);
                way(unmap).filter(|_| self.is_local(new, old))
            }
        }
    }

    /// Is all of it memory that was made here?
    fn is_local(&self, start: u64, end: u64) -> bool {
        let parts = self.areas.within(start, end);
        parts.iter().all(|p| p.2 == Backing::Local) && parts.iter().map(|p| p.1 - p.0).sum::<u64>() == end - start
    }

    /// Is all of it private memory of no file, wherever it was made?
    pub(super) fn is_own(&self, start: u64, end: u64) -> bool {
        self.own_and_all(start, end) == (end.saturating_sub(start), end.saturating_sub(start))
    }

    /// How many bytes of the range are such memory, and how many are in areas.
    fn own_and_all(&self, start: u64, end: u64) -> (u64, u64) {
        let own = |&(s, e, backing): &(u64, u64, Backing)| match backing {
            Backing::Home => self.own.within(s, e).iter().map(|p| p.1 - p.0).sum(),
            Backing::Local => e - s,
            Backing::Grown => 0,
        };
        let parts = self.areas.within(start, end);
        (parts.iter().map(own).sum(), parts.iter().map(|p| p.1 - p.0).sum())
    }

    /// What is discarded comes from home no more: the kernel supplies zeros, as in all memory that was made here, for itself and for us.
    fn turns_local(&self, held: &Held) -> bool {
        let (start, end) = (held.args[0], page_ceil(held.args[0] + held.args[1]));
        let kernels = || self.uffd.unregister(start, end).and_then(|()| self.uffd.track(start, end));
        self.is_local(start, end) || kernels().is_ok()
    }

    /// May it be unmapped without asking? Not the stack, nor what is not the program's, nor what may be sealed.
    fn may_go(&self, start: u64, end: u64) -> bool {
        let stack_end = self.areas.find(self.stack_low).map_or(self.stack_low, |(end, _)| end);
        let stack = start < stack_end && end > self.stack_low.saturating_sub(STACK_ROOM);
        let (own, all) = self.own_and_all(start, end);
        !stack && own == all && self.is_clear(start, end)
    }

    /// Nothing of the engine's or the kernel's is there.
    fn is_clear(&self, start: u64, end: u64) -> bool {
        self.taken().all(|(s, e)| end <= s || start >= e)
    }

    /// Places that are no area and yet not free: the engine's, the kernel's, and what threads are just giving back.
    pub(super) fn taken(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let hole = (self.hole, self.hole + HOLE_BYTES + (1 << 24));
        let changing = self.threads.iter().filter_map(|t| t.changing);
        std::iter::once(hole).chain(self.kernels.iter().copied()).chain(changing)
    }

    /// The highest place for `len` bytes, as the kernel would take it.
    fn room_for(&self, len: u64) -> Option<u64> {
        let taken: Vec<(u64, u64)> = self.taken().collect();
        let below = self.areas.end_below(self.stack_low.saturating_sub(STACK_ROOM))?;
        let above = LOWEST.max(page_ceil(self.brk) + STACK_ROOM);
        let aligned = (len >= HUGE).then(|| self.areas.highest_gap(len, HUGE, (above, below), &taken)).flatten();
        aligned.or_else(|| self.areas.highest_gap(len, PAGE, (above, below), &taken))
    }

    /// Takes the thread out of its call, makes `wanted`, and lets it go on as if its call had returned `ret`.
    fn make_instead(&mut self, tid: i32, held: &Held, wanted: &Call, ret: u64) -> Result<()> {
        self.threads[tid].call = None;
        self.get_out(tid, held, restart::NOINTR)?;
        let tracee = self.threads[tid].tracee;
        let mut regs = at("registers", tracee.registers())?;
        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
        let comes_again = regs.rax as i64 == restart::NOINTR && (regs.orig_rax, args) == (held.nr, held.args);
        if self.threads[tid].stopped {
            return Ok(());
        }
        if !comes_again {
            // A signal came first: its handler runs, then the call is made again.
            return self.go_on(tid);
        }
        let mask = at("mask", tracee.signal_mask())?;
        at("mask", tracee.set_signal_mask(inject::QUIET))?;
        let results = self.inject_in(tracee, &regs, &[*wanted])?;
        let expected = if wanted.nr as i64 == libc::SYS_mmap { wanted.args[0] as i64 } else { 0 };
        if results == [expected] {
            (regs.rax, regs.orig_rax) = (ret, u64::MAX);
            self.note_deferred(held, ret)?;
        } else {
            self.threads[tid].asks_home = Some((held.nr, held.args));
        }
        at("registers", tracee.set_registers(&regs))?;
        at("mask", tracee.set_signal_mask(mask))?;
        self.go_on(tid)
    }

    /// The call has, or will have, this result at both sides.
    fn note_deferred(&mut self, held: &Held, ret: u64) -> Result<()> {
        let a = &held.args;
        let told = match held.nr as i64 {
            libc::SYS_mmap => Some([ret, page_ceil(a[1]), a[2], a[3]]),
            libc::SYS_brk => (ret != self.brk).then_some([ret, 0, 0, 0]),
            _ => Some([a[0], page_ceil(a[0] + a[1]) - a[0], a[2] * u64::from(held.nr as i64 != libc::SYS_munmap), 0]),
        };
        if let Some(args) = told {
            self.deferred.push(MapCall { nr: held.nr as u32, args });
        }
        let (start, end) = (a[0], page_ceil(a[0].saturating_add(a[1])));
        match held.nr as i64 {
            libc::SYS_mprotect => self.deferred.urgent |= !self.is_local(start, end),
            libc::SYS_madvise => self.areas.insert(start, end, Backing::Local),
            _ => {}
        }
        self.huge.map_changes(held.nr, &self.changed(held, ret));
        self.after_mirror(held, ret)?;
        if self.deferred.calls.len() >= MAX_MAP_CALLS { self.tell_map() } else { Ok(()) }
    }

    /// Home hears what it has not heard yet.
    pub(super) fn tell_map(&mut self) -> Result<()> {
        self.see_break()?;
        if self.deferred.calls.is_empty() {
            return Ok(());
        }
        let calls = self.deferred.take();
        calls.chunks(MAX_MAP_CALLS).try_for_each(|calls| self.send(&Up::Mapped(calls.to_vec()), &[]))
    }

    /// A call that only home can judge: limits that change, memory that is locked from now on.
    pub(super) fn note_limits(&mut self, nr: u64, args: &[u64; 6]) {
        if pando_calls::limits_memory(nr, args) {
            self.deferred.most = 0;
            self.deferred.at_home = true;
        }
    }

    /// What this kernel was to change by itself has been changed when this returns: of `ranges` (begin, bytes) something else is about to be made,
    /// or all of memory is looked at.
    pub(super) fn finish_changing(&mut self, ranges: &[(u64, u64)]) -> Result<()> {
        let hit = |t: &super::thread::GuestThread| {
            t.changing.is_some_and(|(s, e)| ranges.iter().any(|&(at, len)| at < e && at.saturating_add(len) > s))
        };
        for tid in self.threads.which(hit) {
            self.see_stop(tid)?;
            self.go_on(tid)?;
        }
        Ok(())
    }
}

fn changes_map(held: &Held) -> bool {
    matches!(pando_calls::class(held.nr, &held.args), Class::Memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, len: u64) -> MapCall {
        MapCall { nr: libc::SYS_mmap as u32, args: [start, len, 3, OWN] }
    }

    fn unmap(start: u64, len: u64) -> MapCall {
        MapCall { nr: libc::SYS_munmap as u32, args: [start, len, 0, 0] }
    }

    fn after(calls: &[MapCall]) -> Vec<MapCall> {
        let mut deferred = Deferred::default();
        calls.iter().for_each(|c| deferred.push(*c));
        deferred.calls
    }

    #[test]
    fn what_came_and_went_is_not_told() {
        let protect = |at| MapCall { nr: libc::SYS_mprotect as u32, args: [at, 0x1000, 1, 0] };
        let other = map(0x90000, 0x1000);
        assert_eq!(after(&[map(0x10000, 0x4000), protect(0x11000), other, unmap(0x10000, 0x4000)]), [other]);
        assert_eq!(after(&[map(0x10000, 0x4000), unmap(0x10000, 0x4000), other]), [other]);
    }

    #[test]
    fn a_break_that_comes_and_goes_is_not_told() {
        let brk = |to: u64| MapCall { nr: libc::SYS_brk as u32, args: [to, 0, 0, 0] };
        let told = |breaks: &[u64]| -> Vec<u64> {
            let mut deferred = Deferred::default();
            deferred.begin_at(100);
            breaks.iter().for_each(|to| deferred.push(brk(*to)));
            deferred.take().iter().map(|c| c.args[0]).collect()
        };
        assert!(told(&[200, 100]).is_empty());
        assert_eq!((told(&[200, 300]), told(&[200, 150]), told(&[200, 50])), (vec![300], vec![150], vec![50]));
        assert_eq!((told(&[50, 20]), told(&[50, 20, 20])), (vec![20], vec![20]));
        assert_eq!(told(&[50, 100]), [50, 100], "it is empty now");
        assert_eq!(told(&[50, 100, 200, 100, 50]), [50]);
        // What comes between may lie there.
        let mut deferred = Deferred::default();
        deferred.begin_at(100);
        [brk(0x20000), unmap(0x10000, 0x1000), brk(100)].into_iter().for_each(|c| deferred.push(c));
        assert_eq!(deferred.take(), [brk(0x20000), unmap(0x10000, 0x1000), brk(100)]);
        deferred.push(brk(50));
        deferred.push(brk(100));
        assert_eq!(deferred.take(), [brk(50), brk(100)]);
    }

    #[test]
    fn what_is_not_all_of_it_is_told() {
        let calls = [map(0x10000, 0x4000), unmap(0x10000, 0x1000)];
        assert_eq!(after(&calls), calls);
        let across = [map(0x10000, 0x4000), unmap(0x13000, 0x2000), unmap(0x10000, 0x4000)];
        assert_eq!(after(&across), across);
        assert_eq!(after(&[unmap(0x10000, 0x4000)]), [unmap(0x10000, 0x4000)]);
    }
}
