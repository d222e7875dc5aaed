//! Random numbers from a seed that can be given again.

use std::hash::{BuildHasher, Hasher};

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A stream of its own for something with a name, so that the order in which things run does not matter.
    pub fn named(seed: u64, name: &str) -> Random {
        let hash =
            name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        Random(hash)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` to `high`, both included.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.number() % (high - low + 1)
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[(self.number() % from.len() as u64) as usize]
    }
}

/// The seed of this run: `PANDO_SUITE_SEED`, or a fresh one.
pub fn seed() -> u64 {
    if let Some(seed) = std::env::var("PANDO_SUITE_SEED").ok().and_then(|s| s.parse().ok()) {
        return seed;
    }
    std::collections::hash_map::RandomState::new().build_hasher().finish() % 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_name_give_the_same_numbers() {
        let take = |name: &str| {
            let mut random = Random::named(7, name);
            [random.number(), random.within(20, 60), random.within(0, 1)]
        };
        assert_eq!(take("pipe"), take("pipe"));
        assert_ne!(take("pipe"), take("pty"));
        assert!((20..=60).contains(&take("pipe")[1]));
    }
}
