//! The clock and what is still to happen. Of two events of one time the one that was planned first comes first, so a seed gives one
//! history.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Microseconds in a second and in a millisecond.
pub const SECOND: u64 = 1_000_000;
/// See [`SECOND`].
pub const MS: u64 = 1_000;

struct Planned<E> {
    at: u64,
    count: u64,
    event: E,
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    /// The earliest is the greatest: the heap gives that first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.count).cmp(&(self.at, self.count))
    }
}

/// The queue; times are microseconds.
pub struct Queue<E> {
    now: u64,
    count: u64,
    heap: BinaryHeap<Planned<E>>,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Queue { now: 0, count: 0, heap: BinaryHeap::new() }
    }
}

impl<E> Queue<E> {
    /// The time.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Something is to happen then; never in the past.
    pub fn at(&mut self, at: u64, event: E) {
        self.count += 1;
        self.heap.push(Planned { at: at.max(self.now), count: self.count, event });
    }

    /// The same, so much later than now.
    pub fn after(&mut self, us: u64, event: E) {
        self.at(self.now + us, event);
    }

    /// The next one that is not after `until`. The clock goes there, or to `until` if there is none.
    pub fn next(&mut self, until: u64) -> Option<E> {
        match self.heap.peek() {
            Some(next) if next.at <= until => {
                let next = self.heap.pop()?;
                self.now = next.at;
                Some(next.event)
            }
            _ => {
                self.now = self.now.max(until);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_of_time_and_then_as_planned() {
        let mut q = Queue::default();
        for (at, what) in [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'd')] {
            q.at(at, what);
        }
        let mut got = String::new();
        while let Some(what) = q.next(5) {
            got.push(what);
            if what == 'a' {
                q.at(1, 'p');
            }
        }
        assert_eq!((got.as_str(), q.now()), ("apbc", 5));
        assert_eq!(q.next(20), Some('d'));
    }
}
