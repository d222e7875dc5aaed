//! Pages that another guest of the same owner and home has, too, since a fork at home: they are taken from there, and not sent
//! (docs/decisions/0049).

use super::{Guest, GuestError, Result};
use crate::control::{GuestOrder, Kin};
use crate::message::{CHUNK, MAX_KIN, Offer, Run, SUM_PAGES, Up};
use pando_kernel::PAGE;
use pando_kernel::memory::ProcessMemory;
use pando_kernel::procfs;
use std::collections::BTreeMap;

const SUM_BYTES: usize = (SUM_PAGES * PAGE) as usize;

/// So far below its helper a guest's process is, at most: there is the sandbox's init.
const GENERATIONS: usize = 2;

/// The memory of such guests, by their pids at home. A page of theirs that is not there is not waited for.
pub(super) type Memories = BTreeMap<i32, ProcessMemory>;

/// Those of this node that the offered process may share pages with.
pub(super) fn memories(order: &GuestOrder, offer: &Offer) -> Memories {
    let kin = order.kin.iter().filter(|k| k.home == offer.home && k.uid == offer.uid && k.pid as i32 != offer.pid);
    kin.take(MAX_KIN).filter_map(|k| Some((k.pid as i32, memory(k)?))).collect()
}

/// The memory of the guest that is meant, and of nobody who has got its number since.
fn memory(kin: &Kin) -> Option<ProcessMemory> {
    let memory = ProcessMemory::open(kin.body as i32).ok()?;
    let mut ancestors = std::iter::successors(procfs::parent(kin.body as i32), |&pid| procfs::parent(pid));
    ancestors.by_ref().take(GENERATIONS).any(|pid| pid == kin.helper as i32).then_some(memory)
}

impl Guest {
    /// Home thinks that the pages at `addr` are known here.
    pub(super) fn on_known(&mut self, kin: i32, addr: u64, pages: u32, sums: &[[u8; 32]]) -> Result<()> {
        let len = u64::from(pages) * PAGE;
        let fits = (1..=CHUNK as u64).contains(&len) && sums.len() == len.div_ceil(SUM_BYTES as u64) as usize;
        if !fits || !addr.is_multiple_of(PAGE) || addr.checked_add(len).is_none() || !self.kin.contains_key(&kin) {
            return Err(GuestError::Protocol("known pages that make no sense".into()));
        }
        let mut unknown: Vec<(u64, u64)> = Vec::new();
        for (i, sum) in sums.iter().enumerate() {
            let start = addr + (i * SUM_BYTES) as u64;
            let end = (start + SUM_BYTES as u64).min(addr + len);
            let mut bytes = vec![0; (end - start) as usize];
            if self.kin[&kin].read_all(start, &mut bytes) && blake3::hash(&bytes) == *sum {
                let run = Run { addr: start, pages: ((end - start) / PAGE) as u32, zero: false };
                // They were neither pulled nor pushed.
                let (_, pulled, pushed) = self.counted;
                self.install(&[run], &bytes)?;
                (self.counted.1, self.counted.2) = (pulled, pushed);
                self.found += u64::from(run.pages);
                continue;
            }
            match unknown.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => unknown.push((start, end)),
            }
        }
        if unknown.is_empty() { Ok(()) } else { self.send(&Up::Unknown(unknown), &[]) }
    }
}
