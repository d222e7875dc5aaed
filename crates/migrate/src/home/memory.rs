//! Home's copy of memory: serving and pushing pages, taking written ones back, growing the stack.

use super::thread::State;
use super::{Deputy, HomeError, Result, at};
use crate::channel::Channel;
use crate::layout::{TOP, by_page};
use crate::message::{Area, CHUNK, Down, MAX_AREAS, Run};
use pando_calls::Memory;
use pando_kernel::inject::call;
use pando_kernel::memory::ProcessMemory;
use pando_kernel::pagemap::Ranges;
use pando_kernel::{PAGE, page_floor};

/// Most pages in one answer.
const MAX_PULL: u32 = 64;
/// Most bytes that wait for calls that claim them.
const MAX_KEPT: usize = 256 << 20;
/// Most pages that wait for the stack to grow.
const MAX_HELD: usize = 65_536;
/// How far below its end at the freeze the stack may grow (the kernel has its own limits).
const STACK_REACH: u64 = 1 << 33;

/// Home's memory as the call table wants to see it.
pub(super) struct View<'a>(pub &'a ProcessMemory);

impl Memory for View<'_> {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> usize {
        self.0.read(addr, buf)
    }

    /// There is nowhere to pull from: what can't be read here is not there.
    fn can_pull(&mut self, _page: u64) -> bool {
        false
    }
}

/// Bytes of a written page that wait for the end of a call that may be writing there.
pub(crate) struct Kept {
    pub tid: i32,
    pub at: u64,
    pub bytes: Vec<u8>,
}

/// Puts what falls into `data`, which lies at `at`, over it.
fn lay_over(at: u64, data: &mut [u8], parts: &[(u64, Vec<u8>)]) {
    for (start, bytes) in parts {
        lay_over_one(at, data, *start, bytes);
    }
}

fn lay_over_one(at: u64, data: &mut [u8], start: u64, bytes: &[u8]) {
    let (from, to) = (at.max(start), (at + data.len() as u64).min(start + bytes.len() as u64));
    if from < to {
        let bytes = &bytes[(from - start) as usize..(to - start) as usize];
        data[(from - at) as usize..(to - at) as usize].copy_from_slice(bytes);
    }
}

fn is_zero(page: &[u8]) -> bool {
    page.chunks_exact(8).all(|w| w == [0; 8])
}

/// Splits pages into runs of equal kind; returns the runs and the ranges of `data` to send.
fn runs_of(addr: u64, data: &[u8]) -> (Vec<Run>, Vec<&[u8]>) {
    let mut runs: Vec<Run> = Vec::new();
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut begin = 0;
    let page = PAGE as usize;
    for (i, bytes) in data.chunks_exact(page).enumerate() {
        let zero = is_zero(bytes);
        match runs.last_mut() {
            Some(last) if last.zero == zero => last.pages += 1,
            _ => {
                if runs.last().is_some_and(|l| !l.zero) {
                    parts.push(&data[begin * page..i * page]);
                }
                begin = i;
                runs.push(Run { addr: addr + (i * page) as u64, pages: 1, zero });
            }
        }
    }
    if runs.last().is_some_and(|l| !l.zero) {
        parts.push(&data[begin * page..data.len() / page * page]);
    }
    (runs, parts)
}

impl Deputy {
    /// Ranges of pages that have content, and what of them huge pages map.
    pub(super) fn present_and_huge(&self, areas: &[Area]) -> Result<(Ranges, Ranges)> {
        let (mut present, mut huge) = (Vec::new(), Vec::new());
        for a in areas {
            let (here, of_them) = at("scan memory", self.pagemap.present_and_huge(a.start, a.end))?;
            present.extend(here);
            huge.extend(of_them);
        }
        huge.truncate(MAX_AREAS);
        Ok((present, huge))
    }

    /// A page of the program as it will be when the call in flight is done.
    pub(super) fn read_page_range(&self, addr: u64, data: &mut [u8]) -> usize {
        let got = self.memory.read(addr, data) / PAGE as usize * PAGE as usize;
        for (&page, bytes) in self.held.range(addr..addr + got as u64) {
            let from = (page - addr) as usize;
            data[from..from + PAGE as usize].copy_from_slice(bytes);
        }
        for kept in &self.kept {
            lay_over_one(addr, &mut data[..got], kept.at, &kept.bytes);
        }
        got
    }

    /// Everything before the start, for targets that can't fetch later.
    pub(super) fn copy_everything(&mut self, chan: &mut Channel, present: &[(u64, u64)], node: &str) -> Result<()> {
        let failed = |source| HomeError::Target { node: node.to_string(), source };
        let mut files = Vec::new();
        for m in at("its map", pando_kernel::procfs::maps(self.pid))? {
            let own = m.start >= self.hole && m.start < self.hole + crate::layout::HOLE_BYTES;
            if m.inode != 0 && !own && !pando_kernel::vdso::is_special(&m) {
                files.push((m.start, m.end));
            }
        }
        for &(start, end) in present.iter().chain(&files) {
            let mut addr = start;
            while addr < end {
                let len = (end - addr).min(CHUNK as u64);
                let mut data = vec![0; len as usize];
                let got = self.read_page_range(addr, &mut data);
                let (runs, parts) = runs_of(addr, &data[..got]);
                if !runs.is_empty() {
                    chan.send(&Down::Pages(runs), &parts).map_err(failed)?;
                    chan.deliver(self.lost_after()).map_err(failed)?;
                }
                addr += (got as u64).max(PAGE);
            }
        }
        Ok(())
    }

    /// The guest asks for pages.
    pub(super) fn on_pull(&mut self, addr: u64, pages: u32) -> Result<()> {
        if !addr.is_multiple_of(PAGE) || addr >= TOP {
            return self.tell(&Down::NoPage(addr), &[]);
        }
        let mut data = vec![0; pages.clamp(1, MAX_PULL) as usize * PAGE as usize];
        let got = self.read_page_range(addr, &mut data);
        if got == 0 {
            return self.tell(&Down::NoPage(addr), &[]);
        }
        self.pulled += (got / PAGE as usize) as u64;
        let (runs, parts) = runs_of(addr, &data[..got]);
        self.tell(&Down::Pages(runs), &parts)
    }

    /// Sends the next chunk of the background push. False when there is nothing left.
    pub(super) fn push_some(&mut self) -> Result<bool> {
        let Some(abroad) = &mut self.abroad else { return Ok(false) };
        let plain = !abroad.plain.is_empty();
        let queue = if plain { &mut abroad.plain } else { &mut abroad.push };
        let Some((start, end)) = queue.pop_front() else { return Ok(false) };
        let cut = end.min(start + CHUNK as u64);
        if cut < end {
            queue.push_front((cut, end));
        }
        let mut data = vec![0; (cut - start) as usize];
        let as_kin = self.is_as_kin_has_it();
        // Pages that are shared since a fork stay so. (Of one that has just ended nothing can be read.)
        let shares = self.pagemap.shares(start, cut).unwrap_or(true);
        let got = if as_kin && !shares {
            self.memory.read_present(start, &mut data) / PAGE as usize * PAGE as usize
        } else {
            self.read_page_range(start, &mut data)
        };
        let parts = if as_kin && shares && !plain {
            self.tell_known(start, &data[..got])?
        } else {
            vec![(start, &data[..got])]
        };
        for (start, data) in parts {
            self.pushed += data.len() as u64 / PAGE;
            let (runs, parts) = runs_of(start, data);
            if !runs.is_empty() {
                self.tell(&Down::Pages(runs), &parts)?;
            }
        }
        Ok(true)
    }

    fn forget_push(&mut self, start: u64, end: u64) {
        let Some(abroad) = &mut self.abroad else { return };
        for queue in [&mut abroad.push, &mut abroad.plain] {
            for (s, e) in std::mem::take(queue) {
                if s < start.min(e) {
                    queue.push_back((s, e.min(start)));
                }
                if e > end.max(s) {
                    queue.push_back((s.max(end), e));
                }
            }
        }
    }

    /// Written pages from the guest.
    pub(super) fn on_written(&mut self, runs: &[Run], body: &[u8]) -> Result<()> {
        let mut rest = body;
        for run in runs {
            let len = run.pages as usize * PAGE as usize;
            let valid = run.addr.is_multiple_of(PAGE) && run.addr < TOP && len as u64 <= TOP - run.addr;
            let split = rest.split_at_checked(if run.zero { 0 } else { len });
            let Some((data, tail)) = split.filter(|_| valid) else {
                return Err(self.broken("a page message that makes no sense"));
            };
            rest = tail;
            if run.zero {
                self.take_back_zeros(run.addr, run.addr + len as u64)?;
                continue;
            }
            if self.froze_abroad() {
                self.frozen_bytes += len as u64;
            }
            self.take_back(run.addr, data)?;
        }
        Ok(())
    }

    /// Nothing is there abroad: what there is here becomes zero.
    fn take_back_zeros(&mut self, start: u64, end: u64) -> Result<()> {
        // Of one that has just ended nothing is there.
        for (start, end) in self.pagemap.present(start, end).unwrap_or_default() {
            let mut at = start;
            while at < end {
                let len = (end - at).min(CHUNK as u64);
                self.take_back(at, &vec![0; len as usize])?;
                at += len;
            }
        }
        Ok(())
    }

    /// Bytes of written pages count at once, except those that a call in flight may write: they wait for its end.
    fn take_back(&mut self, start: u64, data: &[u8]) -> Result<()> {
        let end = start + data.len() as u64;
        let mut claims = self.claims(start, end);
        claims.sort_unstable();
        let mut at = start;
        for (from, to, tid) in claims {
            let from = from.max(at);
            if from >= to {
                continue;
            }
            self.put_back(at, &data[(at - start) as usize..(from - start) as usize])?;
            self.kept.retain(|k| k.at != from || k.tid != tid);
            self.kept.push(Kept {
                tid,
                at: from,
                bytes: data[(from - start) as usize..(to - start) as usize].to_vec(),
            });
            at = to;
        }
        if self.kept.len() > MAX_HELD || self.kept.iter().map(|k| k.bytes.len()).sum::<usize>() > MAX_KEPT {
            return Err(self.broken(&format!("more than {MAX_KEPT} bytes that must wait for a call")));
        }
        self.put_back(at, &data[(at - start) as usize..])
    }

    /// Parts of `[start, end)` that calls in flight may be writing: begin, end, thread.
    pub(super) fn claims(&self, start: u64, end: u64) -> Vec<(u64, u64, i32)> {
        let mut out = Vec::new();
        for thread in self.threads.iter() {
            let Some(flight) = thread.flight.as_ref().filter(|f| f.begun) else { continue };
            let parts = flight.outputs_max.iter().map(|r| (r.addr.max(start), r.end().min(end), thread.tracee.tid));
            out.extend(parts.filter(|(from, to, _)| from < to));
        }
        out
    }

    /// The call of `tid` has ended and written `outputs`: of what waited for it the rest counts now.
    pub(super) fn settle_kept(&mut self, tid: i32, outputs: &[(u64, Vec<u8>)]) {
        for kept in std::mem::take(&mut self.kept) {
            if kept.tid != tid {
                self.kept.push(kept);
                continue;
            }
            let mut bytes = kept.bytes;
            lay_over(kept.at, &mut bytes, outputs);
            self.memory.write(kept.at, &bytes);
        }
        for other in &mut self.kept {
            lay_over(other.at, &mut other.bytes, outputs);
        }
    }

    /// These addresses mean something else now: what was to be pushed from there, or waited to be written there, is void.
    pub(super) fn forget(&mut self, start: u64, end: u64) {
        self.kept.retain(|k| k.at >= end || k.at + k.bytes.len() as u64 <= start);
        self.forget_push(start, end);
    }

    /// Keeps a page for a stack that has yet to grow.
    fn hold(&mut self, addr: u64, page: &[u8]) -> Result<()> {
        self.held.insert(addr, page.to_vec());
        if self.held.len() > MAX_HELD {
            return Err(self.broken(&format!("more than {MAX_HELD} pages that must wait for the stack")));
        }
        Ok(())
    }

    pub(super) fn broken(&self, what: &str) -> HomeError {
        HomeError::Declined { node: self.place(), why: format!("sent {what}") }
    }

    /// The engine's own pages are not the guest's to write.
    fn put_back(&mut self, addr: u64, data: &[u8]) -> Result<()> {
        let end = addr + data.len() as u64;
        if addr < self.hole + crate::layout::HOLE_BYTES && end > self.hole {
            return Err(self.broken("pages for a place that is not the program's"));
        }
        if data.is_empty() || self.memory.write_fast(addr, data) == data.len() {
            return Ok(());
        }
        // The stack may have to grow first; else the area is gone at home, and so nothing is lost.
        for (part, len) in by_page(addr, data.len() as u64) {
            let bytes = &data[(part - addr) as usize..(part - addr + len) as usize];
            let grows = part < self.stack_low && self.stack_wanted.is_some_and(|w| w <= part);
            if self.memory.write(part, bytes) != bytes.len() && grows && len == PAGE {
                self.hold(part, bytes)?;
            }
        }
        Ok(())
    }

    /// The guest's stack reaches down to here.
    pub(super) fn on_stack_grew(&mut self, to: u64) -> Result<()> {
        if to >= self.stack_low {
            return Ok(());
        }
        let ours = (self.hole..self.hole + crate::layout::HOLE_BYTES).contains(&to);
        if !to.is_multiple_of(PAGE) || self.stack_low - to > STACK_REACH || ours {
            return Err(self.broken("a stack that is nowhere near its own"));
        }
        self.stack_wanted = Some(self.stack_wanted.map_or(to, |w| w.min(to)));
        Ok(())
    }

    /// Lets the kernel grow home's stack as the guest's has grown, by the thread `tid`, which must be halted.
    pub(super) fn grow_stack(&mut self, tid: i32) -> Result<()> {
        let halted = self.threads[tid].state == State::Halted;
        let Some(to) = self.stack_wanted.filter(|_| halted) else { return Ok(()) };
        self.stack_wanted = None;
        if to >= self.stack_low {
            return Ok(());
        }
        // What has come home already may have made it grow.
        let mut there = [0; 8];
        self.memory.read(page_floor(to), &mut there);
        // The kernel writes the old mask there: that touch is the growth.
        let touched = self.inject_quietly(tid, &[call(libc::SYS_rt_sigprocmask, &[0, 0, page_floor(to), 8])]);
        if touched? != [0] {
            return Err(self.broken("a stack that home's kernel does not let grow so far"));
        }
        self.memory.write(page_floor(to), &there);
        self.stack_low = page_floor(to);
        self.apply_held();
        Ok(())
    }

    /// Writes the pages that waited for the stack.
    pub(super) fn apply_held(&mut self) {
        for (addr, bytes) in std::mem::take(&mut self.held) {
            self.memory.write(addr, &bytes);
        }
    }

    /// Writes input bytes into home's copy, where they differ (a read-only page of a file stays shared that way).
    pub(super) fn write_input(&mut self, addr: u64, bytes: &[u8]) -> Result<()> {
        let end = addr.saturating_add(bytes.len() as u64);
        if end > TOP || (addr < self.hole + crate::layout::HOLE_BYTES && end > self.hole) {
            return Err(self.broken("input for a place that is not the program's"));
        }
        if bytes.len() > CHUNK / 4 {
            self.memory.write(addr, bytes);
            return Ok(());
        }
        for (start, len) in by_page(addr, bytes.len() as u64) {
            let part = &bytes[(start - addr) as usize..(start - addr + len) as usize];
            let mut now = vec![0; part.len()];
            if !self.memory.read_all(start, &mut now) || now != part {
                self.memory.write(start, part);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_pages_are_not_sent() {
        let mut data = vec![0u8; 5 * PAGE as usize];
        data[PAGE as usize + 7] = 1;
        data[2 * PAGE as usize] = 2;
        data[4 * PAGE as usize + 4095] = 3;
        let (runs, parts) = runs_of(0x10000, &data);
        let kinds: Vec<(u64, u32, bool)> = runs.iter().map(|r| (r.addr, r.pages, r.zero)).collect();
        assert_eq!(kinds, vec![(0x10000, 1, true), (0x11000, 2, false), (0x13000, 1, true), (0x14000, 1, false)]);
        assert_eq!(parts.iter().map(|p| p.len() as u64 / PAGE).collect::<Vec<_>>(), vec![2, 1]);
        assert_eq!(parts[0][7], 1);
        assert_eq!(parts[1][4095], 3);
    }
}
