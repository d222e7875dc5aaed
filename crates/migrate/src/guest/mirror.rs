//! Memory calls: done at home, then done here in the same places.

use super::{Guest, GuestError, Held, Result, at};
use crate::area::Backing;
use crate::message::Area;
use pando_kernel::inject::{self, Call, call};
use pando_kernel::{page_ceil, page_floor, procfs};

const PRIVATE_FIXED: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE) as u64;
const RW: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

fn map(start: u64, end: u64, prot: u64) -> Call {
    call(libc::SYS_mmap, &[start, end - start, prot, PRIVATE_FIXED, u64::MAX, 0])
}

fn is_file(held: &Held) -> bool {
    held.args[3] as i32 & libc::MAP_ANONYMOUS == 0
}

/// The protection of a mapping that had to be watched before any thread could touch it.
fn reveal(held: &Held, ret: u64) -> Option<Call> {
    let mapped = held.nr == libc::SYS_mmap as u64 && is_file(held) && held.args[2] & 7 != 0;
    mapped.then(|| call(libc::SYS_mprotect, &[ret, page_ceil(held.args[1]), held.args[2] & 7]))
}

/// mremap(2) of `old` bytes that become `new`. What is one mapping at home may be several here, one behind the other up to `ends`, of which some
/// come from home and some do not, or that nothing has put together again; the kernel takes one at a time.
fn moved(from: u64, (old, new): (u64, u64), to: u64, ends: impl Iterator<Item = u64>) -> Vec<Call> {
    let stays = from + old.min(new);
    let mut calls = Vec::new();
    if new < old {
        calls.push(call(libc::SYS_munmap, &[stays, old - new]));
    }
    let mut start = from;
    for end in ends.filter(|&end| end < stays).chain([stays]) {
        let (len, at) = (end - start, to + (start - from));
        let grown = if end == stays { len + (new - new.min(old)) } else { len };
        if to != from {
            let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
            calls.push(call(libc::SYS_mremap, &[start, len, grown, flags, at]));
        } else if grown > len {
            calls.push(call(libc::SYS_mremap, &[start, len, grown, 0]));
        }
        start = end;
    }
    calls
}

impl Guest {
    /// Home did `held` with result `ret`: do the same here and let the guest go on with that result.
    pub(super) fn mirror(&mut self, tid: i32, held: &Held, ret: i64) -> Result<()> {
        if let Some((start, len)) = self.changed(held, ret as u64).into_iter().find(|&(s, l)| !self.is_programs(s, l)) {
            let name = pando_calls::name(held.nr);
            return Err(GuestError::Protocol(format!("{name} that changes {len:#x} bytes at {start:#x}")));
        }
        self.huge.map_changes(held.nr, &self.changed(held, ret as u64));
        if held.nr == libc::SYS_brk as u64 {
            self.deferred.told_break = ret as u64;
        }
        let calls = self.mirrored(held, ret as u64)?;
        let breaks = held.nr == libc::SYS_brk as u64 && !calls.is_empty();
        if calls.is_empty() {
            self.after_mirror(held, ret as u64)?;
            return self.answer(held.id, ret);
        }
        self.finish_changing(&self.changed(held, ret as u64))?;
        self.finish_breaking()?;
        let natively = if breaks { self.mirrored_break(ret as u64) } else { None };
        self.get_out(tid, held, ret)?;
        let tracee = self.threads[tid].tracee;
        let regs = at("registers", tracee.registers())?;
        let mask = at("mask", tracee.signal_mask())?;
        at("mask", tracee.set_signal_mask(inject::QUIET))?;
        let done = match natively {
            Some(call) => self.inject_in(tracee, &regs, &[call])? == [ret],
            None => false,
        };
        let results = if done { Vec::new() } else { self.inject_in(tracee, &regs, &calls)? };
        self.heap.native &= done || !breaks;
        let advice = held.nr == libc::SYS_madvise as u64;
        if let Some(failed) = results.iter().find(|r| (-4095..0).contains(*r)).filter(|_| !advice) {
            let e = std::io::Error::from_raw_os_error(-*failed as i32);
            return Err(GuestError::Protocol(format!("{} {:x?} here: {e}", pando_calls::name(held.nr), held.args)));
        }
        self.after_mirror(held, ret as u64)?;
        self.take_faults()?;
        if let Some(reveal) = reveal(held, ret as u64) {
            self.inject_in(tracee, &regs, &[reveal])?;
        }
        at("registers", tracee.set_registers(&regs))?;
        at("mask", tracee.set_signal_mask(mask))?;
        self.go_on(tid)
    }

    /// What the mirrored call changes: begin and length. Home's result is one of the ends.
    pub(super) fn changed(&self, held: &Held, ret: u64) -> Vec<(u64, u64)> {
        let a = &held.args;
        match held.nr as i64 {
            libc::SYS_mmap => vec![(ret, page_ceil(a[1]))],
            libc::SYS_mremap => vec![(a[0], page_ceil(a[1])), (ret, page_ceil(a[2]))],
            libc::SYS_brk => {
                let (old, new) = (page_ceil(self.brk), page_ceil(ret));
                vec![(old.min(new), old.abs_diff(new))]
            }
            _ => vec![(a[0], page_ceil(a[1]))],
        }
    }

    /// The calls to make here.
    fn mirrored(&self, held: &Held, ret: u64) -> Result<Vec<Call>> {
        let a = &held.args;
        Ok(match held.nr as i64 {
            // What comes from a file can't be touched before faults on it are seen (see `reveal`).
            libc::SYS_mmap if is_file(held) => vec![map(ret, ret + page_ceil(a[1]), 0)],
            libc::SYS_mmap => vec![map(ret, ret + page_ceil(a[1]), a[2] & 7)],
            libc::SYS_munmap => vec![call(libc::SYS_munmap, &[a[0], a[1]])],
            libc::SYS_mprotect => vec![call(libc::SYS_mprotect, &[a[0], a[1], a[2]])],
            libc::SYS_mremap => {
                let maps = at("the guest's map", procfs::maps(self.body.pid))?;
                let ends = maps.iter().map(|m| m.end).filter(|&end| end > a[0]);
                moved(a[0], (page_ceil(a[1]), page_ceil(a[2])), ret, ends)
            }
            libc::SYS_brk => {
                let (old, new) = (page_ceil(self.brk), page_ceil(ret));
                match old.cmp(&new) {
                    std::cmp::Ordering::Less => vec![map(old, new, RW)],
                    std::cmp::Ordering::Greater => vec![call(libc::SYS_munmap, &[new, old - new])],
                    std::cmp::Ordering::Equal => Vec::new(),
                }
            }
            libc::SYS_madvise => match a[2] as i32 {
                libc::MADV_DONTNEED | libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE | 24 | 102 | 103 => {
                    vec![call(libc::SYS_madvise, &[a[0], a[1], a[2]])]
                }
                _ => Vec::new(),
            },
            _ => Vec::new(),
        })
    }

    /// Brings our picture of the map up to date.
    pub(super) fn after_mirror(&mut self, held: &Held, ret: u64) -> Result<()> {
        let a = &held.args;
        match held.nr as i64 {
            libc::SYS_mmap => {
                let end = ret + page_ceil(a[1]);
                self.mapped_beside_heap(ret, end)?;
                if !is_file(held) {
                    self.areas.insert(ret, end, Backing::Local);
                } else {
                    self.watch(&Area { start: ret, end, prot: a[2] as u32 & 7, stack: false, own: false })?;
                }
            }
            libc::SYS_munmap => self.areas.remove(page_floor(a[0]), page_ceil(a[0].saturating_add(a[1]))),
            libc::SYS_mremap => {
                self.mapped_beside_heap(ret, ret + page_ceil(a[2]))?;
                self.areas.remap(a[0], a[1], ret, a[2]);
                self.leaving.remap(a[0], page_ceil(a[1]), ret);
                // What has grown is watched, too.
                for (start, end, backing) in self.areas.within(ret, ret + page_ceil(a[2])) {
                    if backing == Backing::Home {
                        self.watch(&Area { start, end, prot: 0, stack: false, own: false })?;
                    }
                }
            }
            libc::SYS_brk => {
                let (old, new) = (page_ceil(self.brk), page_ceil(ret));
                if new > old {
                    self.areas.insert(old, new, Backing::Local);
                    self.heap.grew(old, new);
                } else {
                    self.areas.remove(new, old);
                }
                self.brk = ret;
                self.deferred.lowest_break = self.deferred.lowest_break.min(ret);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(from: u64, len: (u64, u64), to: u64, ends: &[u64]) -> Vec<[u64; 6]> {
        moved(from, len, to, ends.iter().copied()).into_iter().map(|c| c.args).collect()
    }

    #[test]
    fn what_is_several_mappings_here_moves_one_by_one() {
        const MOVE: u64 = 3;
        let ends = [0x12000, 0x13000, 0x15000];
        let grows = [[0x10000, 0x2000, 0x2000, MOVE, 0x50000, 0], [0x12000, 0x1000, 0x1000, MOVE, 0x52000, 0]];
        let last = [0x13000, 0x2000, 0x4000, MOVE, 0x53000, 0];
        assert_eq!(arguments(0x10000, (0x5000, 0x7000), 0x50000, &ends), [grows[0], grows[1], last]);
        let unmapped = [0x12000, 0x3000, 0, 0, 0, 0];
        assert_eq!(arguments(0x10000, (0x5000, 0x2000), 0x50000, &ends), [unmapped, grows[0]]);
        assert_eq!(arguments(0x10000, (0x5000, 0x2000), 0x10000, &ends), [unmapped]);
        assert_eq!(arguments(0x10000, (0x5000, 0x7000), 0x10000, &ends), [[0x13000, 0x2000, 0x4000, 0, 0, 0]]);
        assert_eq!(arguments(0x10000, (0x5000, 0x5000), 0x10000, &ends), [[0; 6]; 0]);
        assert_eq!(
            arguments(0x10000, (0x5000, 0x6000), 0x50000, &[0x15000]),
            [[0x10000, 0x5000, 0x6000, MOVE, 0x50000, 0]]
        );
    }
}
