//! Who could not be moved is left alone, each time for longer: an obstacle is more likely to stay than to go (as `follow` has it), and each attempt
//! costs a line in the audit log.

use super::facts::Key;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// For how long after the first refusal.
const FIRST: Duration = Duration::from_secs(5);
/// And at the most.
const LONGEST: Duration = Duration::from_secs(120);

/// Those that are left alone, or were of late.
#[derive(Default)]
pub struct Refusals {
    all: BTreeMap<Key, (Instant, Duration, String)>,
}

impl Refusals {
    /// It could not be moved.
    pub fn add(&mut self, key: &Key, now: Instant, why: &str) {
        let wait = self.all.get(key).map_or(FIRST, |(_, before, _)| (*before * 2).min(LONGEST));
        self.all.insert(key.clone(), (now, wait, why.to_owned()));
    }

    /// It has been moved.
    pub fn forget(&mut self, key: &Key) {
        self.all.remove(key);
    }

    /// Why it is left alone, if it is.
    pub fn holds(&self, key: &Key, now: Instant) -> Option<&str> {
        let held = self.all.get(key).filter(|(when, wait, _)| now.duration_since(*when) < *wait);
        held.map(|(_, _, why)| why.as_str())
    }

    /// Forgets those that nobody has tried to move since they were left alone, for as long again and a little.
    pub fn prune(&mut self, now: Instant) {
        self.all.retain(|_, (when, wait, _)| now.duration_since(*when) < *wait * 2 + FIRST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_can_not_be_moved_is_tried_ever_more_seldom() {
        let (mut refusals, key, begun) = (Refusals::default(), ("n1".to_owned(), 7), Instant::now());
        // Looked at each second for an hour, tried whenever that may be.
        let mut tries = Vec::new();
        for second in 0..3600 {
            let now = begun + Duration::from_secs(second);
            refusals.prune(now);
            if refusals.holds(&key, now).is_none() {
                tries.push(second);
                refusals.add(&key, now, "it maps a device");
                assert_eq!(refusals.holds(&key, now), Some("it maps a device"));
            }
        }
        assert_eq!(tries[..6], [0, 5, 15, 35, 75, 155]);
        assert_eq!(tries.len(), 34, "every two minutes in the end: {tries:?}");
        let later = begun + Duration::from_secs(3600);
        refusals.forget(&key);
        refusals.add(&key, later, "");
        assert!(refusals.holds(&key, later + FIRST).is_none(), "it has been moved meanwhile");
        refusals.prune(later + FIRST * 3);
        assert!(refusals.all.is_empty());
    }
}
