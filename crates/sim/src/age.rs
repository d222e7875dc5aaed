//! `sim age`: how old is what a node knows of others?
//!
//! *The model.* Each node tells `f` random others in each interval, at a phase of its own. Look back from a node at some moment: what it
//! knows can only have come from those who told it something, and from those who told these before, and so on. Seen so, backwards, those
//! whose word of the last `t` intervals can have reached it grow by `f` for each of them and interval, less those that are there
//! already: of `n` nodes
//!
//! ```text
//! B(t) = n · e^ft / (n - 1 + e^ft)
//! ```
//!
//! in the mean, which is what Amar, Barak, Drezner and Okun (2009) have for `f` = 1 (were all to tell at the same moment it would be `(1
//! + f)^t`). The mean time until there are `k` is a little longer than where `B` is `k`, since few to begin with may be slow: from `i`
//! to `i + 1` it takes `(n - 1) / (f · i · (n - i))` intervals, so
//!
//! ```text
//! T(k) = Σ (n - 1) / (f · i · (n - i))     for i = 1 .. k - 1
//! ```
//!
//! A message has only the `b` newest, the own one first. So what is older than `T(b)` is not told any more, and from there on each
//! message brings `b` of the `n`, those that are known already among them; the last one is heard as a whole, half of it too much in the
//! mean:
//!
//! ```text
//! T(k) = T(b) + n/(f·b) · ln((n - b) / (n - k)) + 1/(2·f)     for k > b
//! ```
//!
//! until the window (`w` entries, the newest) is full. So beyond some hundred nodes nothing depends on the size of the cluster any more.
//! Compared are the intervals until one knows so many nodes (itself among them): 8, the batch, half the window and all of it; half of
//! the cluster and nineteen in twenty of it, if it is smaller.

use crate::machine::Size;
use crate::queue::SECOND;
use crate::world::{Settings, World};

/// What was measured.
pub(crate) struct Ages {
    /// For each mark: so many nodes, the intervals measured, the model's.
    pub marks: Vec<(usize, f64, f64)>,
    /// Ages of all that is known, in intervals: the mean, half of it, nine of ten, the oldest.
    pub mean: f64,
    pub half: f64,
    pub most: f64,
    pub oldest: f64,
    /// Entries known, in the mean.
    pub known: f64,
    /// A node sends so many messages with loads, and bytes, a second.
    pub messages: f64,
    pub bytes: f64,
    /// The same for membership.
    pub swim: (f64, f64),
}

/// Intervals after which the model says that `k` nodes are known.
fn model(k: usize, nodes: usize, f: f64, batch: usize) -> f64 {
    let n = nodes as f64;
    let told: f64 = (1..k.min(batch)).map(|i| (n - 1.0) / (f * i as f64 * (n - i as f64))).sum();
    if k <= batch {
        return told;
    }
    let (k, b) = (k as f64, batch as f64);
    told + n / (f * b) * ((n - b) / (n - k)).ln() + 0.5 / f
}

/// Bytes of loads and membership that a node sends in a second, when each tells its load every `tell_ms`.
pub fn sent(nodes: usize, seed: u64, seconds: u64, tell_ms: u64) -> f64 {
    let mut settings = Settings::for_nodes(seed, nodes);
    settings.gossip.tell_ms = tell_ms;
    let ages = watched(nodes, seconds, nodes <= Settings::FULL, settings);
    ages.bytes + ages.swim.1
}

/// Runs a cluster of that size without work. `full`: with membership.
pub(crate) fn age(nodes: usize, seed: u64, seconds: u64, full: bool) -> Ages {
    watched(nodes, seconds, full, Settings::for_nodes(seed, nodes))
}

fn watched(nodes: usize, seconds: u64, full: bool, mut settings: Settings) -> Ages {
    if full {
        settings.sample = None;
        settings.gossip.probe_ms = pando_gossip::Settings::default().probe_ms;
    }
    settings.moves = false;
    let gossip = settings.gossip.clone();
    let mut world = World::new(settings, &vec![Size { cpus: 1.0, speed: 1.0, memory: 4 << 30 }; nodes]);
    world.boot_all();
    world.run(40 * SECOND);
    let before = (world.tally.loads, world.tally.swim);
    let mut sample = Sample::new(nodes, &gossip);
    let from = world.queue.now();
    for _ in 0..seconds {
        let next = world.queue.now() + SECOND;
        world.run(next);
        sample.take(&world, &gossip);
    }
    let each = nodes as f64 * (world.queue.now() - from) as f64 / SECOND as f64;
    let rate = |after: (u64, u64), before: (u64, u64)| {
        ((after.0 - before.0) as f64 / each, (after.1 - before.1) as f64 / each)
    };
    let (loads, swim) = (rate(world.tally.loads, before.0), rate(world.tally.swim, before.1));
    Ages { messages: loads.0, bytes: loads.1, swim, ..sample.ages(nodes, &gossip) }
}

/// Ages that were seen.
struct Sample {
    marks: Vec<usize>,
    /// For each mark: sum of ages in intervals, and of how many nodes.
    sums: Vec<(f64, f64)>,
    /// Ages in hundredths of an interval.
    all: Vec<u64>,
    nodes: f64,
}

impl Sample {
    fn new(nodes: usize, gossip: &pando_gossip::Settings) -> Self {
        let (n, w, b) = (nodes, gossip.window, gossip.tell_most);
        let mut marks = match n > w {
            true => vec![8, b, w / 2, w],
            false => vec![8, b, n / 2, n * 19 / 20],
        };
        marks.sort_unstable();
        marks.dedup();
        Sample { sums: vec![(0.0, 0.0); marks.len()], marks, all: vec![0; 100_000], nodes: 0.0 }
    }

    fn take(&mut self, world: &World, gossip: &pando_gossip::Settings) {
        let now = world.queue.now();
        // Some are enough of many.
        for node in world.nodes.iter().step_by(world.nodes.len().div_ceil(512)) {
            let Some(known) = &node.gossip else { continue };
            let local = node.clock.ms(now);
            let interval = gossip.tell_ms as f64;
            let mut ages: Vec<f64> = known.window().iter().map(|(_, e)| e.age_ms(local) as f64 / interval).collect();
            ages.sort_by(f64::total_cmp);
            self.nodes += 1.0;
            for age in &ages {
                self.all[((age * 100.0) as usize).min(99_999)] += 1;
            }
            for (mark, sum) in self.marks.iter().zip(&mut self.sums) {
                // The own one is one of them.
                if let Some(age) = ages.get(mark.saturating_sub(2)) {
                    *sum = (sum.0 + age, sum.1 + 1.0);
                }
            }
        }
    }

    fn ages(&self, nodes: usize, gossip: &pando_gossip::Settings) -> Ages {
        let (f, b) = (gossip.tell_whom as f64, gossip.tell_most);
        let mark = |(k, sum): (&usize, &(f64, f64))| (*k, sum.0 / sum.1.max(1.0), model(*k, nodes, f, b));
        let total: u64 = self.all.iter().sum();
        let part = |part: f64| {
            let mut left = (total as f64 * part) as u64;
            let found = self.all.iter().position(|&count| {
                let here = count > left;
                left = left.saturating_sub(count);
                here
            });
            found.unwrap_or(0) as f64 / 100.0
        };
        let sum: f64 = (0u32..).zip(&self.all).map(|(age, count)| f64::from(age) / 100.0 * *count as f64).sum();
        let oldest = self.all.iter().rposition(|&c| c > 0).unwrap_or(0) as f64 / 100.0;
        Ages {
            marks: self.marks.iter().zip(&self.sums).map(mark).collect(),
            mean: sum / total.max(1) as f64,
            half: part(0.5),
            most: part(0.9),
            oldest,
            known: total as f64 / self.nodes.max(1.0),
            messages: 0.0,
            bytes: 0.0,
            swim: (0.0, 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_as_old_as_the_model_says_and_costs_no_more_in_a_larger_cluster() {
        let (small, large) = (age(64, 1, 5, false), age(300, 1, 5, false));
        for (k, measured, model) in small.marks.iter().chain(&large.marks) {
            assert!((measured / model - 1.0).abs() < 0.15, "{k} nodes: {measured} intervals, the model says {model}");
        }
        assert!(large.bytes < small.bytes * 1.1 && large.messages < small.messages * 1.1);
        assert!(large.known > 200.0);
    }
}
