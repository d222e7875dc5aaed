//! The hole: a few pages that both sides put at the same, otherwise unused address of the program.
//!
//! `[code page][table of calls][scratch page]`. At home it holds the deputy's injected code, abroad also the table
//! by which the guest's memory is changed.

use pando_kernel::PAGE;
use pando_kernel::inject::TABLE_BYTES;
use pando_kernel::procfs::Mapping;

/// Bytes in the hole.
pub const HOLE_BYTES: u64 = PAGE + TABLE_BYTES + PAGE;
/// Bytes of a huge page.
pub const HUGE: u64 = 2 << 20;
/// Offset, behind the code, of limits that waits are given at home in place of the program's own: `LIMITS` of 16 bytes.
pub const LIMIT_PLACES: u64 = 1024;
/// How many.
pub const LIMITS: u64 = 128;
/// Offset of the table.
pub const TABLE: u64 = PAGE;
/// Offset of the scratch page.
pub const SCRATCH: u64 = PAGE + TABLE_BYTES;
/// Where we look first: far from the heap, the libraries and the stack of x86-64 processes.
const FIRST: u64 = 0x1000_0000_0000;
const STEP: u64 = 1 << 30;
/// Lowest address above user space.
pub const TOP: u64 = 0x7fff_ffff_f000;

/// A place for the hole that no mapping touches.
pub fn choose_hole(maps: &[Mapping]) -> Option<u64> {
    // The space right behind is used to set the vDSO aside while the guest is built.
    let need = HOLE_BYTES + (1 << 24);
    (0..1024).map(|i| FIRST + i * STEP).find(|&at| maps.iter().all(|m| m.end <= at || m.start >= at + need))
}

/// Splits `[addr, addr+len)` at page boundaries.
pub fn by_page(addr: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = addr.saturating_add(len);
    let mut at = addr;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let stop = (at | (PAGE - 1)).saturating_add(1).min(end);
            let part = (at, stop - at);
            at = stop;
            part
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_cut_at_their_boundaries() {
        let parts: Vec<_> = by_page(0x0fff, 0x1002).collect();
        assert_eq!(parts, vec![(0x0fff, 1), (0x1000, 0x1000), (0x2000, 1)]);
        assert_eq!(by_page(0x1000, 0).count(), 0);
        assert_eq!(by_page(u64::MAX - 5, 100).collect::<Vec<_>>(), vec![(u64::MAX - 5, 5)]);
    }
}
