//! The guest's picture of its address space: which parts home backs, and which were made here.

use pando_kernel::page_ceil;
use std::collections::BTreeMap;

/// Where an absent page of an area comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Pulled from home.
    Home,
    /// Made abroad: absent pages are zero, the kernel supplies them.
    Local,
    /// The stack below what home had at the start: zero, but faults come to us.
    Grown,
}

/// Disjoint areas by start address.
#[derive(Clone, Debug, Default)]
pub struct AreaMap {
    areas: BTreeMap<u64, (u64, Backing)>,
}

impl AreaMap {
    /// Removes `[start, end)`.
    pub fn remove(&mut self, start: u64, end: u64) {
        let hit: Vec<(u64, u64, Backing)> = self.touching(start, end).collect();
        for (s, e, backing) in hit {
            self.areas.remove(&s);
            if s < start {
                self.areas.insert(s, (start, backing));
            }
            if e > end {
                self.areas.insert(end, (e, backing));
            }
        }
    }

    /// Sets `[start, end)`.
    pub fn insert(&mut self, start: u64, end: u64, backing: Backing) {
        if start < end {
            self.remove(start, end);
            self.areas.insert(start, (end, backing));
        }
    }

    /// The area at `addr`: its end and backing.
    pub fn find(&self, addr: u64) -> Option<(u64, Backing)> {
        self.areas.range(..=addr).next_back().filter(|&(_, &(e, _))| e > addr).map(|(_, &v)| v)
    }

    /// All areas.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, Backing)> + '_ {
        self.areas.iter().map(|(&s, &(e, b))| (s, e, b))
    }

    /// The parts of `[start, end)` that are areas.
    pub fn within(&self, start: u64, end: u64) -> Vec<(u64, u64, Backing)> {
        self.touching(start, end).map(|(s, e, b)| (s.max(start), e.min(end), b)).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.areas.len()
    }

    /// The highest end of an area that is not above `limit`.
    pub fn end_below(&self, limit: u64) -> Option<u64> {
        self.areas.range(..limit).rev().map(|(_, &(end, _))| end).find(|&end| end <= limit)
    }

    /// The highest multiple of `align` between the bounds where `len` bytes are free of areas and of what is `taken`.
    pub fn highest_gap(&self, len: u64, align: u64, bounds: (u64, u64), taken: &[(u64, u64)]) -> Option<u64> {
        let (above, mut ceiling) = bounds;
        for (start, end, _) in self.areas.range(..ceiling).rev().map(|(&s, &(e, b))| (s, e, b)) {
            if let Some(found) = highest_free(len, align, (end.max(above), ceiling), taken) {
                return Some(found);
            }
            ceiling = ceiling.min(start);
            if ceiling <= above {
                return None;
            }
        }
        highest_free(len, align, (above, ceiling), taken)
    }

    /// All areas that have something of `[start, end)`. They are disjoint: at most one begins before `start`.
    fn touching(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, Backing)> + '_ {
        let before = self.areas.range(..start).next_back().filter(|&(_, &(e, _))| e > start && start < end);
        let inside = self.areas.range(start..end.max(start));
        before.into_iter().chain(inside).map(|(&s, &(e, b))| (s, e, b))
    }

    /// What mremap(2) did: `[old, old+old_len)` is now at `new` with `new_len` bytes.
    pub fn remap(&mut self, old: u64, old_len: u64, new: u64, new_len: u64) {
        let (old_len, new_len) = (page_ceil(old_len), page_ceil(new_len));
        let parts = self.within(old, old.saturating_add(old_len.min(new_len)));
        let last = parts.last().map(|&(_, _, b)| b);
        self.remove(old, old.saturating_add(old_len));
        self.remove(new, new.saturating_add(new_len));
        for (s, e, backing) in parts {
            self.insert(new + (s - old), new + (e - old), backing);
        }
        if new_len > old_len {
            let backing = if last == Some(Backing::Local) { Backing::Local } else { Backing::Home };
            self.insert(new + old_len, new + new_len, backing);
        }
    }
}

/// The highest multiple of `align` in `[low, high)` where `len` bytes are free of what is `taken`.
fn highest_free(len: u64, align: u64, (low, high): (u64, u64), taken: &[(u64, u64)]) -> Option<u64> {
    let mut high = high;
    loop {
        let at = high.checked_sub(len)? / align * align;
        if at < low {
            return None;
        }
        match taken.iter().find(|&&(start, end)| start < at + len && end > at) {
            Some(&(start, _)) => high = start.min(high - 1),
            None => return Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_gap_is_found() {
        let mut map = AreaMap::default();
        map.insert(0x10000, 0x20000, Backing::Home);
        map.insert(0x23000, 0x30000, Backing::Local);
        let find = |len, align, taken: &[(u64, u64)]| map.highest_gap(len, align, (0x1000, 0x34000), taken);
        assert_eq!(find(0x2000, 0x1000, &[]), Some(0x32000));
        assert_eq!(find(0x2000, 0x1000, &[(0x33000, 0x35000)]), Some(0x31000));
        assert_eq!(find(0x3000, 0x1000, &[(0x33000, 0x35000)]), Some(0x30000));
        assert_eq!(find(0x3000, 0x1000, &[(0x32000, 0x35000)]), Some(0x20000));
        assert_eq!(find(0x8000, 0x1000, &[]), Some(0x8000));
        assert_eq!(find(0x4000, 0x8000, &[]), Some(0x30000));
        assert_eq!(find(0x3000, 0x10000, &[(0x30000, 0x34000)]), Some(0x20000));
        assert_eq!(find(0x3000, 0x10000, &[(0x20000, 0x34000)]), None);
        assert_eq!(find(0x10000, 0x1000, &[]), None);
        assert_eq!(map.end_below(0x30000), Some(0x30000));
        assert_eq!(map.end_below(0x2ffff), Some(0x20000));
        assert_eq!(map.end_below(0x10000), None);
    }

    #[test]
    fn a_hole_in_the_middle_splits_an_area() {
        let mut map = AreaMap::default();
        map.insert(0x1000, 0x9000, Backing::Home);
        map.insert(0x3000, 0x4000, Backing::Local);
        map.remove(0x5000, 0x6000);
        let all: Vec<_> = map.iter().collect();
        assert_eq!(
            all,
            vec![
                (0x1000, 0x3000, Backing::Home),
                (0x3000, 0x4000, Backing::Local),
                (0x4000, 0x5000, Backing::Home),
                (0x6000, 0x9000, Backing::Home)
            ]
        );
        assert_eq!(map.find(0x5000), None);
        assert_eq!(map.find(0x3fff), Some((0x4000, Backing::Local)));
    }

    #[test]
    fn a_grown_remap_keeps_what_it_had_and_asks_home_for_the_rest() {
        let mut map = AreaMap::default();
        map.insert(0x1000, 0x3000, Backing::Home);
        map.remap(0x1000, 0x2000, 0x10000, 0x4000);
        assert_eq!(map.find(0x1000), None);
        assert_eq!(map.within(0, u64::MAX).iter().map(|a| a.1 - a.0).sum::<u64>(), 0x4000);
        map.remap(0x10000, 0x4000, 0x10000, 0x1000);
        assert_eq!(map.find(0x11000), None);
        assert_eq!(map.find(0x10000), Some((0x11000, Backing::Home)));
    }
}
