//! Pages that a process shares with another one since a fork are not sent to a node that has them of that one (docs/decisions/0049).

use super::{Deputy, Result};
use crate::message::{Down, MAX_KIN, MAX_UNKNOWN, SUM_PAGES};
use pando_kernel::pagemap::Pagemap;
use pando_kernel::{PAGE, procfs};

/// Most ranges that wait to be sent because they were not known after all.
const MAX_PLAIN: usize = 65_536;
const SUM_BYTES: usize = (SUM_PAGES * PAGE) as usize;

/// A process of the same owner of which a guest is at the target.
pub(crate) struct Kin {
    pid: i32,
    pagemap: Pagemap,
}

impl Kin {
    /// Those that the target has named, as far as they are processes of that owner here.
    pub fn open(pids: &[i32], uid: u32) -> Vec<Kin> {
        let ours = |pid: &&i32| procfs::status(**pid).is_ok_and(|s| s.uids[0] == uid);
        let open = |&pid: &i32| Some(Kin { pid, pagemap: Pagemap::open(pid).ok()? });
        pids.iter().take(MAX_KIN).filter(ours).filter_map(open).collect()
    }
}

/// Which of them has all pages of each unit. `shared`: of each whether it has that page, too; nothing if it has ended.
fn owners(shared: &[Vec<bool>], pages: usize) -> Vec<Option<usize>> {
    let unit = SUM_PAGES as usize;
    let has = |of: &Vec<bool>, n: usize| {
        let part = of.get(n * unit..pages.min((n + 1) * unit)).unwrap_or_default();
        !part.is_empty() && part.iter().all(|&page| page)
    };
    (0..pages.div_ceil(unit)).map(|n| shared.iter().position(|of| has(of, n))).collect()
}

impl Deputy {
    /// Tells of what the target probably has, and returns the parts of `data` (at `start`) that are to be sent.
    pub(super) fn tell_known<'a>(&mut self, start: u64, data: &'a [u8]) -> Result<Vec<(u64, &'a [u8])>> {
        let Some(abroad) = self.abroad.as_ref().filter(|a| !a.kin.is_empty()) else { return Ok(vec![(start, data)]) };
        let end = start + data.len() as u64;
        let shared = abroad.kin.iter().map(|k| self.pagemap.shared_with(&k.pagemap, start, end).unwrap_or_default());
        let owners = owners(&shared.collect::<Vec<_>>(), data.len() / PAGE as usize);
        let pids: Vec<Option<i32>> = owners.into_iter().map(|o| o.map(|k| abroad.kin[k].pid)).collect();
        let (mut left, mut from) = (Vec::new(), 0);
        for run in pids.chunk_by(|a, b| a == b) {
            let to = (from + run.len() * SUM_BYTES).min(data.len());
            let (addr, part) = (start + from as u64, &data[from..to]);
            from = to;
            let Some(kin) = run[0] else {
                left.push((addr, part));
                continue;
            };
            let pages = (part.len() as u64 / PAGE) as u32;
            self.found += u64::from(pages);
            let sums = part.chunks(SUM_BYTES).map(|unit| *blake3::hash(unit).as_bytes()).collect();
            self.tell(&Down::Known { kin, addr, pages, sums }, &[])?;
        }
        Ok(left)
    }

    /// The target does not have these after all.
    pub(super) fn on_unknown(&mut self, ranges: &[(u64, u64)]) -> Result<()> {
        let whole =
            |&(s, e): &(u64, u64)| s < e && e <= crate::layout::TOP && s.is_multiple_of(PAGE) && e.is_multiple_of(PAGE);
        let pages: u64 = ranges.iter().map(|r| r.1.saturating_sub(r.0) / PAGE).sum();
        let Some(abroad) = &mut self.abroad else { return Ok(()) };
        let room = ranges.len() <= MAX_UNKNOWN && abroad.plain.len() + ranges.len() <= MAX_PLAIN;
        if !room || !ranges.iter().all(whole) || pages > self.found {
            return Err(self.broken("pages that it was not told of"));
        }
        self.found -= pages;
        abroad.plain.extend(ranges);
        Ok(())
    }

    /// Nobody else knows what has been written here by a call in flight, or waits for one.
    pub(super) fn is_as_kin_has_it(&self) -> bool {
        self.held.is_empty() && self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::owners;

    #[test]
    fn a_unit_is_his_who_has_all_of_it() {
        let pages = |units: [usize; 3], last: usize| -> Vec<bool> {
            let full = units.into_iter().flat_map(|has| (0..16).map(move |page| page < has));
            full.chain((0..5).map(|page| page < last)).collect()
        };
        let shared = [pages([16, 15, 0], 4), Vec::new(), pages([16, 16, 1], 5)];
        assert_eq!(owners(&shared, 53), [Some(0), Some(2), None, Some(2)]);
        assert_eq!(owners(&shared[..2], 53), [Some(0), None, None, None]);
        assert_eq!(owners(&[], 1), [None]);
        assert!(owners(&shared, 0).is_empty());
    }
}
