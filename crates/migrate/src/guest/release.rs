//! Pages of which home gives its copies back: they count as written here from now on, so that they go home with the guest.

use super::{Guest, GuestError, Leaving, Result, at};
use crate::area::Backing;
use crate::layout::TOP;
use crate::message::{MAX_TAKEN, Up};

impl Guest {
    /// Home wants to give back its copies of these ranges: answers which of them are all here.
    pub(super) fn take_over(&mut self, ranges: &[(u64, u64)]) -> Result<()> {
        if ranges.len() > MAX_TAKEN || ranges.iter().any(|&(start, end)| start >= end || end > TOP) {
            return Err(GuestError::Protocol("ranges to take over that make no sense, or too many".into()));
        }
        // What is being looked at or collapsed counts as written, whatever comes of that.
        self.huge.disturb();
        let mut took = Vec::new();
        // One that leaves, or whose memory is being sent for a child, has enough to do.
        if matches!(self.leaving, Leaving::No) && self.fork.is_none() && self.body.full_uffd {
            for &(start, end) in ranges {
                for (start, end, _) in self.areas.within(start, end).into_iter().filter(|a| a.2 == Backing::Home) {
                    for (start, end, _) in self.own.within(start, end) {
                        self.take_present(start, end, &mut took)?;
                    }
                }
            }
        }
        took.truncate(MAX_TAKEN);
        self.send(&Up::Took(took), &[])
    }

    fn take_present(&mut self, start: u64, end: u64, took: &mut Vec<(u64, u64)>) -> Result<()> {
        for (start, end) in at("scan for present pages", self.pagemap.present(start, end))? {
            // Where that can't be done (two areas of the kernel's in one of ours) home keeps its copy.
            if self.uffd.unprotect(start, end).is_ok() {
                took.push((start, end));
            }
        }
        Ok(())
    }
}
