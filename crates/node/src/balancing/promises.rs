//! What has been promised to those that are on their way.

use super::facts::Key;
use pando_balance::Promised;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One that has not come within this time does not come.
const HOLDS: Duration = Duration::from_secs(10);

/// The promises, by home and pid there.
#[derive(Default)]
pub struct Promises {
    all: BTreeMap<Key, (Instant, Promised)>,
}

impl Promises {
    /// One more.
    pub fn add(&mut self, key: Key, bytes: u64, demand_milli: u32) {
        self.all.insert(key, (Instant::now(), Promised { bytes, demand_milli }));
    }

    /// One has come, or will not: what was promised to it.
    pub fn kept(&mut self, key: &Key) -> Option<Promised> {
        self.all.remove(key).map(|(_, promised)| promised)
    }

    /// To how many but this one something has been promised.
    pub fn to_others(&self, key: &Key) -> usize {
        self.all.len() - usize::from(self.all.contains_key(key))
    }

    /// All that still hold.
    pub fn sum(&mut self) -> Promised {
        self.all.retain(|_, (when, _)| when.elapsed() < HOLDS);
        let add = |sum: Promised, (_, p): &(Instant, Promised)| Promised {
            bytes: sum.bytes.saturating_add(p.bytes),
            demand_milli: sum.demand_milli.saturating_add(p.demand_milli),
        };
        self.all.values().fold(Promised::default(), add)
    }
}
