//! What is due when.

use std::collections::BTreeMap;

/// Events by their time in milliseconds; those of one time come in the order in which they were set.
#[derive(Debug)]
pub struct Timers<E> {
    due: BTreeMap<(u64, u64), E>,
    count: u64,
}

impl<E> Default for Timers<E> {
    fn default() -> Self {
        Timers { due: BTreeMap::new(), count: 0 }
    }
}

impl<E> Timers<E> {
    /// Sets one.
    pub fn set(&mut self, at_ms: u64, event: E) {
        self.due.insert((at_ms, self.count), event);
        self.count += 1;
    }

    /// When the first one is due.
    pub fn next(&self) -> Option<u64> {
        self.due.first_key_value().map(|(key, _)| key.0)
    }

    /// The first one that is due at `now_ms`.
    pub fn take(&mut self, now_ms: u64) -> Option<E> {
        Some(self.due.first_entry().filter(|e| e.key().0 <= now_ms)?.remove())
    }
}
