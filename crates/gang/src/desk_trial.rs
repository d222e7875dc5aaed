//! Random lives of the line before the matrix: gangs come, ask again and again, give up, fall silent, run and end; managers change. Nobody overtakes,
//! and nobody who goes on asking is left waiting.

use crate::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;

/// One who wants a place, as he knows it himself.
struct Wants {
    gang: Gang,
    since: u64,
    asked: u64,
}

struct World {
    chance: StdRng,
    desk: Desk,
    now: u64,
    /// When its manager's clock began.
    began: u64,
    next: u64,
    wants: BTreeMap<u64, Wants>,
    runs: BTreeMap<u64, (Gang, Vec<Place>)>,
    /// When managers changed last: the new one has heard of nobody who has not asked since.
    changed: u64,
    placed: u64,
    waited: u64,
    overtook: u64,
}

const NODES: [(&str, u16); 3] = [("a", 2), ("b", 2), ("c", 4)];
const LEARNS_MS: u64 = 1_000;
/// Between two questions of one who waits, at most.
const ASKS_MS: u64 = 400;

fn desk(learns_until_ms: u64) -> Desk {
    let mut desk = Desk::new(Matrix::new(Rules { rows: 2, ..Rules::default() }), learns_until_ms);
    NODES.iter().for_each(|(name, cpus)| _ = desk.handle(Input::Node { name: (*name).into(), cpus: *cpus }));
    desk
}

fn nodes_of(gang: &Gang) -> Vec<String> {
    match &gang.shape {
        Shape::Fixed(wants) => wants.iter().map(|(name, _)| name.clone()).collect(),
        Shape::Free { among, .. } if among.is_empty() => NODES.iter().map(|(name, _)| (*name).to_owned()).collect(),
        Shape::Free { among, .. } => among.clone(),
    }
}

impl World {
    fn gang(&mut self) -> Gang {
        self.next += 1;
        let name = NODES[self.chance.random_range(0..3)].0.to_owned();
        let shape = match self.chance.random_range(0..3) {
            0 => Shape::Fixed(vec![(name, self.chance.random_range(1..3))]),
            1 => {
                let ranks = self.chance.random_range(1..3);
                Shape::Free { ranks, cpus: 1, nodes: None, among: vec![name], per_node: None }
            }
            _ => {
                let ranks = self.chance.random_range(1..9);
                Shape::Free { ranks, cpus: 1, nodes: None, among: Vec::new(), per_node: None }
            }
        };
        let level = i32::from(self.chance.random_range(0..5) == 0);
        Gang { job: self.next, shape, urgent: false, level, turn_us: 0 }
    }

    fn asks(&mut self, job: u64) {
        let Some(wants) = self.wants.get_mut(&job) else { return };
        wants.asked = self.now;
        let (gang, since) = (wants.gang.clone(), wants.since);
        let effects = self.desk.ask(gang.clone(), self.now - since, self.now - self.began);
        match effects.first() {
            Some(Effect::Placed { places, .. }) => {
                // Everybody who asked before, is still asking, and wants what this one wanted, has been served.
                let heard = |w: &&Wants| w.asked >= self.changed && self.now - w.asked < SILENT_MS;
                let ahead = |w: &&Wants| (w.since, w.gang.job) < (since, job) && w.gang.level == gang.level;
                let meets = |w: &&Wants| nodes_of(&w.gang).iter().any(|n| nodes_of(&gang).contains(n));
                let passed: Vec<u64> =
                    self.wants.values().filter(heard).filter(ahead).filter(meets).map(|w| w.gang.job).collect();
                assert!(passed.is_empty(), "job {job} overtakes {passed:?}");
                self.overtook += u64::from(self.wants.values().any(|w| (w.since, w.gang.job) < (since, job)));
                self.placed += 1;
                self.runs.insert(job, (gang, places.clone()));
                self.wants.remove(&job);
            }
            Some(Effect::Refused { ever: false, .. }) => self.waited += 1,
            other => panic!("{other:?}"),
        }
        let line: Vec<u64> = self.desk.line(0).map(|(job, _)| job).collect();
        assert!(line.iter().all(|job| !self.runs.contains_key(job)), "who runs does not wait: {line:?}");
    }

    fn ends(&mut self, job: u64) {
        self.runs.remove(&job);
        self.wants.remove(&job);
        self.desk.handle(Input::Ended(job));
        assert!(!self.desk.waits(job));
    }

    fn any(&mut self, of: Vec<u64>) -> Option<u64> {
        (!of.is_empty()).then(|| of[self.chance.random_range(0..of.len())])
    }

    /// Time passes; all that are due ask, in any order.
    fn passes(&mut self) {
        self.now += self.chance.random_range(1..100);
        let due = self.wants.values().filter(|w| self.now - w.asked >= ASKS_MS - 100).map(|w| w.gang.job);
        let mut due: Vec<u64> = due.collect();
        while !due.is_empty() {
            let at = self.chance.random_range(0..due.len());
            let job = due.swap_remove(at);
            self.asks(job);
        }
    }

    fn another_manager(&mut self) {
        // Its own clock, which has just begun.
        self.began = self.now;
        self.desk = desk(LEARNS_MS);
        self.changed = self.now;
        for (gang, places) in self.runs.clone().into_values() {
            self.desk.handle(Input::Adopt(gang, places));
        }
    }

    fn happens(&mut self) {
        self.passes();
        match self.chance.random_range(0..40) {
            0..12 => {
                let gang = self.gang();
                let (job, since) = (gang.job, self.now);
                self.wants.insert(job, Wants { gang, since, asked: since });
                self.asks(job);
            }
            12..22 => {
                let job = self.any(self.runs.keys().copied().collect());
                job.into_iter().for_each(|job| self.ends(job));
            }
            22 => {
                let job = self.any(self.wants.keys().copied().collect());
                job.into_iter().for_each(|job| self.ends(job));
            }
            // Its node is gone: nobody says so.
            23 => {
                let job = self.any(self.wants.keys().copied().collect());
                job.into_iter().for_each(|job| _ = self.wants.remove(&job));
            }
            24 if self.chance.random_range(0..10) == 0 => self.another_manager(),
            _ => {}
        }
    }
}

fn trial(seed: u64) -> (u64, u64, u64) {
    let (chance, desk) = (StdRng::seed_from_u64(seed), desk(0));
    let (wants, runs) = (BTreeMap::new(), BTreeMap::new());
    let mut world =
        World { chance, desk, now: 1, began: 0, next: 0, wants, runs, changed: 0, placed: 0, waited: 0, overtook: 0 };
    (0..400).for_each(|_| world.happens());
    // Nobody comes any more: whoever is first gets in as soon as those end who run, whatever else there is.
    let mut left = 2 * (world.wants.len() as u64 + 2) * (SILENT_MS / 50);
    while !world.wants.is_empty() {
        world.passes();
        let job = world.any(world.runs.keys().copied().collect());
        job.into_iter().for_each(|job| world.ends(job));
        left -= 1;
        assert!(left > 0, "they wait for ever: {:?}", world.wants.keys());
    }
    (world.placed, world.waited, world.overtook)
}

#[test]
fn whoever_asked_first_is_served_first() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds = match number("GANG_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GANG_SEEDS").unwrap_or(100),
    };
    let many = seeds.end - seeds.start >= 100;
    let mut sum = [0; 3];
    for seed in seeds {
        let died = std::panic::catch_unwind(|| trial(seed));
        let Ok((placed, waited, overtook)) = died else { panic!("seed {seed}: GANG_SEED={seed} repeats it") };
        [placed, waited, overtook].iter().zip(&mut sum).for_each(|(of, sum)| *sum += of);
    }
    assert!(!many || sum.iter().all(|count| *count > 100), "{sum:?}");
}

#[test]
fn a_line_is_told_again_to_a_new_manager() {
    let want = |job: u64| Gang { job, shape: Shape::Fixed(vec![("a".into(), 2)]), urgent: false, level: 0, turn_us: 0 };
    let first = |effects: Vec<Effect>| match effects.into_iter().next() {
        Some(Effect::Refused { why, ever: false, .. }) => why,
        other => format!("{other:?}"),
    };
    let mut one = desk(0);
    (1..=2).for_each(|job| _ = one.ask(want(job), 0, job));
    let places: Vec<Vec<Place>> = (1..=2).map(|job| one.matrix().job(job).unwrap().places.to_vec()).collect();
    assert!(first(one.ask(want(3), 0, 10)).contains("in each of the 2 rows"));
    assert_eq!(first(one.ask(want(4), 0, 20)), "one gang waits for CPUs of the same nodes before it");
    let mut other = desk(1_000);
    // Who asked later asks the new one earlier.
    assert!(first(other.ask(want(4), 5_080, 100)).contains("has just begun"));
    (1..=2).for_each(|job| _ = other.handle(Input::Adopt(want(job), places[job as usize - 1].clone())));
    assert!(first(other.ask(want(3), 5_190, 200)).contains("has just begun"));
    assert_eq!(other.line(200).collect::<Vec<_>>(), [(3, 5_190), (4, 5_180)], "longer than this clock goes");
    other.handle(Input::Ended(1));
    assert_eq!(first(other.ask(want(4), 1_080, 1_100)), "one gang waits for CPUs of the same nodes before it");
    assert!(first(other.ask(want(3), 1_190, 1_200)).starts_with("Some(Placed"));
    assert!(first(other.ask(want(4), 1_280, 1_300)).contains("in each of the 2 rows"), "it is the first now");
    other.handle(Input::Ended(4));
    assert_eq!(other.line(0).count(), 0);
}

#[test]
fn slots_are_counted() {
    let table = Table {
        version: 1,
        rows: 3,
        jobs: [(1, vec![0]), (2, vec![1, 2]), (3, vec![])].into(),
        first: 2,
        lengths: vec![(30, vec![1])],
    };
    for slots in 0..20u64 {
        let mut tally = Tally::default();
        // The second one's turns take three times as long; one that has begun counts.
        tally.passed(&table, slots * 10, 10);
        for job in 1..=3 {
            let slots = if job == 2 { slots.div_ceil(3) } else { slots };
            let had = (0..slots).filter(|&slot| table.runs(job, slot)).count() as u64;
            assert_eq!(tally.of(job), (had, slots), "job {job}, {slots} slots");
        }
        tally.passed(
            &Table { rows: 1, first: 0, jobs: [(1, vec![0])].into(), lengths: vec![], ..table.clone() },
            1_000,
            10,
        );
        assert_eq!((tally.of(2), tally.of(1).1), ((0, 0), slots), "who has ended, and a time without turns");
    }
}
