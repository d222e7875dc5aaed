//! How much of a file is fetched for a read, and ahead of the next ones. Pure.

/// The first window of a reader that reads one byte after the other, and the least one ...
pub(crate) const FIRST: u64 = 256 << 10;
/// ... and the largest.
pub(crate) const LARGEST: u64 = 4 << 20;
/// A file of at most this is fetched whole after a few reads here and there.
const SMALL: u64 = 16 << 20;
const A_FEW: u32 = 4;
const PAGE: u64 = 4096;

/// What one descriptor has read.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Where the next read begins if it goes on like this.
    next: u64,
    window: u64,
    /// Up to where has been fetched.
    edge: u64,
    elsewhere: u32,
    /// The last question and its answer: a read that waits asks again and again.
    last: ((u64, u64), (u64, u64)),
}

impl Ahead {
    /// `[from, to)` is being read of a file of `size` bytes: what should be here, or on its way. It has `[from, to)` in it.
    pub fn want(&mut self, from: u64, to: u64, size: u64) -> (u64, u64) {
        if self.last.0 != (from, to) {
            self.last = ((from, to), self.look(from, to, size));
        }
        self.last.1
    }

    fn look(&mut self, from: u64, to: u64, size: u64) -> (u64, u64) {
        let goes_on = from == self.next;
        self.next = to;
        if !goes_on {
            (self.window, self.edge) = (0, 0);
            self.elsewhere = self.elsewhere.saturating_add(1);
            if size <= SMALL && self.elsewhere >= A_FEW {
                return (0, size);
            }
            return (from / PAGE * PAGE, to.next_multiple_of(PAGE).min(size).max(to));
        }
        if self.edge < to.saturating_add(self.window / 2) {
            self.window = (self.window * 2).clamp(FIRST, LARGEST);
            self.edge = to.saturating_add(self.window).min(u64::MAX - FIRST).next_multiple_of(FIRST);
        }
        (from / PAGE * PAGE, self.edge.min(size).max(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn a_window_grows_and_is_bounded() {
        let (mut ahead, size) = (Ahead::default(), 1 << 30);
        let mut edges = Vec::new();
        for i in 0..4096u64 {
            let (from, to) = (i * 131_072, (i + 1) * 131_072);
            edges.push(ahead.want(from, to, size).1 - to);
        }
        assert_eq!((edges[0], edges.iter().max()), (FIRST + 131_072, Some(&(LARGEST + 131_072))));
        // What is fetched lies in blocks.
        assert!((0..edges.len() as u64).all(|i| (edges[i as usize] + (i + 1) * 131_072).is_multiple_of(FIRST)));
        // It is moved on before it is used up.
        assert!(edges[200..].iter().all(|&e| e >= LARGEST / 2 - 131_072), "{edges:?}");
    }

    #[test]
    fn reads_here_and_there_fetch_little_or_all() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.want(40_960, 41_000, 1 << 30), (40_960, 45_056));
        for i in 2..20u64 {
            let wanted = ahead.want(i * 100_000, i * 100_000 + 9, 1 << 22);
            assert_eq!(wanted == (0, 1 << 22), i >= 4, "{i}: {wanted:?}");
        }
    }

    #[test]
    fn what_is_read_is_wanted() {
        check!().with_type::<(Vec<(u32, u16, bool)>, u32)>().for_each(|(reads, size)| {
            let (mut ahead, size, mut at) = (Ahead::default(), u64::from(*size), 0);
            for &(from, len, goes_on) in reads {
                let from = if goes_on { at } else { u64::from(from) }.min(size);
                let to = (from + u64::from(len)).min(size);
                at = to;
                let (start, end) = ahead.want(from, to, size);
                assert!(
                    start <= from && to <= end && end <= size && end - start <= SMALL.max(LARGEST + FIRST + 70_000)
                );
            }
        });
    }
}
