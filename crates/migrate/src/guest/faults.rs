//! Pages that are missing: asking for them, and putting in what comes.

use super::{Guest, GuestError, Result, at};
use crate::area::Backing;
use crate::message::{CHUNK, Down, MAX_BODY, Run, Up};
use pando_kernel::{PAGE, poll, procfs};
use std::os::fd::AsRawFd;

/// Pages asked for at a fault: the one and its neighbours above.
pub(super) const CLUSTER: u64 = 16;
/// Most messages that may wait while only pages are taken, and the bytes of their bodies.
const MAX_STASH: usize = 4096;
const MAX_STASH_BYTES: usize = 64 * MAX_BODY;
/// Most runs in one message, and bytes in one run.
const MAX_RUNS: usize = 1024;
const MAX_RUN: u64 = 2 * CHUNK as u64;
/// How far below the stack a fault may be to count as its growth (the kernel has already checked its own limits).
const STACK_REACH: u64 = 1 << 33;

impl Guest {
    /// Takes all faults that wait.
    pub(super) fn take_faults(&mut self) -> Result<()> {
        self.uffd.absorb();
        self.see_break()?;
        let faults: Vec<u64> = std::iter::from_fn(|| self.uffd.next_fault()).collect();
        for addr in faults {
            match self.areas.find(addr) {
                Some((end, Backing::Home)) => self.pull(addr, end)?,
                Some((_, Backing::Grown)) => self.grow_stack(addr)?,
                Some((_, Backing::Local)) => self.zero(addr),
                None if addr < self.stack_low && self.stack_low - addr < STACK_REACH => self.grow_stack(addr)?,
                // Another thread has taken it away meanwhile.
                None if self.heap.free.is_some() => self.uffd.wake(addr, PAGE),
                None => self.want_home(format!("it touched {addr:#x}, which no area has"))?,
            }
        }
        Ok(())
    }

    /// Waits a little, doing nothing but to bring missing pages.
    pub(super) fn serve_faults_only(&mut self) -> Result<()> {
        let fds =
            [(self.chan.raw(), self.chan.wants_write()), (self.uffd.raw(), false), (self.children.as_raw_fd(), false)];
        at("poll", poll::wait(&fds, 100_000))?;
        poll::drain(self.children.as_raw_fd());
        self.chan.flush()?;
        self.take_faults()?;
        // Pages may overtake; everything else keeps its order and waits for the loop.
        while let Some((down, body)) = self.chan.next_frame::<Down>()? {
            match down {
                Down::Pages(runs) => self.install(&runs, &body)?,
                Down::FileData(id, offset) => self.keep_file_data(id, offset, body)?,
                Down::End => return Err(GuestError::Ended),
                Down::Ping => {}
                other => self.stash.push_back((other, body)),
            }
            if self.stash.len() > MAX_STASH || self.stash.iter().map(|s| s.1.len()).sum::<usize>() > MAX_STASH_BYTES {
                return Err(GuestError::Protocol("more than can wait while a page is missing".into()));
            }
        }
        self.heartbeat()
    }

    fn zero(&self, addr: u64) {
        while let Err(e) = self.uffd.zero(addr, PAGE) {
            if e.raw_os_error() != Some(libc::EAGAIN) {
                return self.uffd.wake(addr, PAGE);
            }
            self.uffd.let_the_map_change();
        }
    }

    fn grow_stack(&mut self, addr: u64) -> Result<()> {
        if addr < self.stack_low {
            self.areas.insert(addr, self.stack_low, Backing::Grown);
            self.stack_low = addr;
            self.send(&Up::StackGrew(addr), &[])?;
        }
        self.zero(addr);
        Ok(())
    }

    /// In personal mode nobody tells that the stack has grown: it is looked at before home needs to know.
    pub(super) fn note_stack_growth(&mut self) -> Result<()> {
        if self.body.full_uffd {
            return Ok(());
        }
        let maps = at("the guest's map", procfs::maps(self.body.pid))?;
        let low = self.stack_low;
        if let Some(stack) = maps.iter().find(|m| m.start < low && low < m.end) {
            self.areas.insert(stack.start, low, Backing::Grown);
            self.stack_low = stack.start;
            self.send(&Up::StackGrew(stack.start), &[])?;
        }
        Ok(())
    }

    /// Asks home for a page, unless it is on its way.
    pub(super) fn pull(&mut self, addr: u64, area_end: u64) -> Result<()> {
        if self.pulls.contains(&addr) {
            return Ok(());
        }
        if self.deferred.urgent {
            self.tell_map()?;
        }
        let pages = CLUSTER.min((area_end - addr) / PAGE).max(1);
        self.pulls.insert(addr);
        self.send(&Up::Pull(addr, pages as u32), &[])
    }

    /// Installs the pages of a message.
    pub(super) fn install(&mut self, runs: &[Run], body: &[u8]) -> Result<()> {
        let mut rest = body;
        let short = || GuestError::Protocol("a page message with the wrong length".into());
        if runs.len() > MAX_RUNS {
            return Err(short());
        }
        for run in runs {
            let len = u64::from(run.pages) * PAGE;
            if !run.addr.is_multiple_of(PAGE) || len > MAX_RUN || run.addr.checked_add(len).is_none() {
                return Err(short());
            }
            if run.zero {
                for (addr, end, _) in self.home_parts(run.addr, run.addr + len) {
                    // A page that the kernel shares would keep the others from being one.
                    if !self.huge.has(addr, end) {
                        self.install_zero(addr, end);
                    } else if !self.install_bytes(addr, &vec![0; (end - addr) as usize]) {
                        self.no_memory_for_pages()?;
                    }
                }
            } else {
                let (data, tail) = rest.split_at_checked(len as usize).ok_or_else(short)?;
                rest = tail;
                for (addr, end, _) in self.home_parts(run.addr, run.addr + len) {
                    let from = (addr - run.addr) as usize;
                    if !self.install_bytes(addr, &data[from..from + (end - addr) as usize]) {
                        self.no_memory_for_pages()?;
                    }
                }
            }
            for (addr, end, _) in self.home_parts(run.addr, run.addr + len) {
                self.huge.arrived(addr, end);
            }
            let arrived: Vec<u64> = self.pulls.range(run.addr..run.addr + len).copied().collect();
            if arrived.is_empty() {
                self.counted.2 += u64::from(run.pages);
            } else {
                self.counted.1 += u64::from(run.pages);
            }
            for addr in arrived {
                self.pulls.remove(&addr);
                self.uffd.wake(addr, PAGE);
            }
        }
        self.retry_planning()?;
        self.retry_reads()
    }

    fn home_parts(&self, start: u64, end: u64) -> Vec<(u64, u64, Backing)> {
        self.areas.within(start, end).into_iter().filter(|p| p.2 == Backing::Home).collect()
    }

    /// Puts in bytes of whole pages; those that are there already stay as they are (they are newer). False: this machine has no memory
    /// for all of them.
    fn install_bytes(&self, start: u64, data: &[u8]) -> bool {
        let (mut done, mut single, mut room) = (0usize, 0u32, true);
        while done < data.len() {
            let take = if single > 0 { PAGE as usize } else { data.len() - done };
            let (copied, error) = self.uffd.copy(start + done as u64, &data[done..done + take]);
            done += copied;
            single = single.saturating_sub(1);
            let Some(error) = error else { continue };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => self.uffd.let_the_map_change(),
                Some(libc::EEXIST) => {
                    self.uffd.wake(start + done as u64, PAGE);
                    done += PAGE as usize;
                }
                // The range crosses from one mapping into the next: page by page for a while.
                Some(libc::ENOENT | libc::EINVAL) if single == 0 && take > PAGE as usize => single = 64,
                other => {
                    room &= other != Some(libc::ENOMEM);
                    done += PAGE as usize;
                }
            }
        }
        room
    }

    fn install_zero(&self, start: u64, end: u64) {
        if self.uffd.zero(start, end - start).is_ok() {
            return;
        }
        let mut addr = start;
        while addr < end {
            self.zero(addr);
            addr += PAGE;
        }
    }

    /// Ranges that were written since the last look, with home's idea of them out of date.
    pub(super) fn take_written(&mut self) -> Result<Vec<(u64, u64)>> {
        self.note_stack_growth()?;
        self.see_break()?;
        self.huge.disturb();
        let areas: Vec<(u64, u64, Backing)> = self.areas.iter().collect();
        let mut out = Vec::new();
        for (start, end, backing) in areas {
            if backing == Backing::Local {
                // Made here: tracked from now on; what is there counts as written the first time.
                let _ = self.uffd.track(start, end);
            }
            out.extend(at("scan for written pages", self.pagemap.take_written(start, end))?);
        }
        self.send_stale()?;
        Ok(out)
    }
}
