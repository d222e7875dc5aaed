//! How long a node may take itself for the queue's keeper. Its lease in etcd ends by etcd's clock; by its own it ends sooner: counted from the moment before
//! the lease was last asked for, and a part of it less. Every write in etcd compares the leader's key besides, so one who stood still can't write.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A part of the lease that clocks may differ by, and an answer may be under way.
const MARGIN: u32 = 5;

/// A time as the queue's keeper.
#[derive(Clone, Debug)]
pub struct Tenure {
    /// The revision at which the leader's key was made: of two keepers the later one has the larger.
    pub term: u64,
    /// The leader's key.
    pub key: Vec<u8>,
    until: Arc<Mutex<Instant>>,
}

/// When a lease that was asked for then is over, by our clock.
pub fn ends(asked: Instant, lives: Duration) -> Instant {
    asked + lives - lives / MARGIN
}

impl Tenure {
    /// Until then, if nothing is heard.
    pub fn new(term: u64, key: Vec<u8>, until: Instant) -> Tenure {
        Tenure { term, key, until: Arc::new(Mutex::new(until)) }
    }

    /// When it ends.
    pub fn until(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does it last?
    pub fn holds(&self) -> bool {
        Instant::now() < self.until()
    }

    /// It lasts longer. One that is over does not begin again: somebody may have counted on it.
    pub fn prolong(&self, until: Instant) {
        let mut now = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() < *now {
            *now = until.max(*now);
        }
    }

    /// It is over.
    pub fn end(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_does_not_begin_again() {
        let (now, long) = (Instant::now(), Duration::from_secs(1000));
        let tenure = Tenure::new(1, Vec::new(), ends(now, long));
        assert!(tenure.holds() && tenure.until() < now + long);
        tenure.clone().end();
        assert!(!tenure.holds());
        tenure.prolong(now + long);
        assert!(!tenure.holds());
    }
}
