//! A range of addresses, and its limits.

/// The most bytes that Linux moves in one call (`MAX_RW_COUNT`); no range is longer.
pub const MAX_LEN: u64 = 0x7fff_f000;

/// The most ranges that a call may have; one with more comes home.
pub const MAX_RANGES: usize = 1 << 16;

/// The most bytes that a call may read, or write, over all its ranges.
pub const MAX_TOTAL: u64 = 1 << 32;

/// End of user addresses (with five-level page tables); no range reaches past it.
pub const TOP: u64 = (1 << 56) - 4096;

/// `len` bytes from `addr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// First byte.
    pub addr: u64,
    /// How many bytes; never 0 in a plan.
    pub len: u64,
}

impl Range {
    /// The part of `len` bytes at `addr` that user memory can have; `None` when there is none.
    pub(crate) fn bounded(addr: u64, len: u64) -> Option<Range> {
        if addr == 0 || addr >= TOP {
            return None;
        }
        let len = len.min(MAX_LEN).min(TOP - addr);
        (len > 0).then_some(Range { addr, len })
    }

    /// The first address after it.
    pub fn end(&self) -> u64 {
        self.addr.saturating_add(self.len)
    }
}

/// The parts of `outputs` that lie inside `max` (the `outputs_max` of the plan). Whoever applies outputs does this first: after
/// a call that reports a length larger than the buffer (`accept`, `getsockopt`), the table at home can't know how long
/// the buffer was.
pub fn clip(outputs: &[Range], max: &[Range]) -> Vec<Range> {
    let max = merged(max);
    let mut kept = Vec::with_capacity(outputs.len());
    for o in outputs {
        let first = max.partition_point(|m| m.end() <= o.addr);
        for m in max[first..].iter().take_while(|m| m.addr < o.end()) {
            let addr = o.addr.max(m.addr);
            kept.push(Range { addr, len: o.end().min(m.end()) - addr });
        }
    }
    kept
}

/// The same bytes in order, without overlaps.
fn merged(ranges: &[Range]) -> Vec<Range> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut out: Vec<Range> = Vec::with_capacity(sorted.len());
    for r in sorted.into_iter().filter(|r| r.len > 0) {
        match out.last_mut() {
            Some(last) if r.addr <= last.end() => last.len = last.end().max(r.end()) - last.addr,
            _ => out.push(r),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(addr: u64, len: u64) -> Range {
        Range { addr, len }
    }

    #[test]
    fn clip_keeps_what_is_inside() {
        let max = [r(30, 10), r(10, 10), r(15, 10)];
        assert_eq!(clip(&[r(0, 100)], &max), [r(10, 15), r(30, 10)]);
        assert_eq!(clip(&[r(12, 2), r(24, 7)], &max), [r(12, 2), r(24, 1), r(30, 1)]);
        assert_eq!(clip(&[r(40, 5), r(25, 5)], &max), []);
        assert_eq!(clip(&[r(1, 5)], &[]), []);
    }

    #[test]
    fn ranges_are_bounded() {
        assert_eq!(Range::bounded(0, 5), None);
        assert_eq!(Range::bounded(5, 0), None);
        assert_eq!(Range::bounded(TOP, 1), None);
        assert_eq!(Range::bounded(u64::MAX, u64::MAX), None);
        assert_eq!(Range::bounded(TOP - 4, 9), Some(r(TOP - 4, 4)));
        assert_eq!(Range::bounded(1, u64::MAX), Some(r(1, MAX_LEN)));
    }
}
