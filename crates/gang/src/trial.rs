//! Random lives of a matrix: jobs of all shapes and levels come, end, stand still and go on; nodes come, shrink and go; rules change; another
//! manager takes over. Whatever happens, what is said in [`World::check`] holds after each step.

use crate::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

struct World {
    chance: StdRng,
    matrix: Matrix,
    nodes: BTreeMap<String, u16>,
    /// What was wished, and the CPUs that came of it.
    jobs: BTreeMap<u64, (Gang, Vec<Place>)>,
    suspended: BTreeSet<u64>,
    lost: BTreeSet<u64>,
    next: u64,
    /// Rows may be as many.
    allowed: usize,
    version: u64,
    usual_us: u64,
    seen: Happened,
}

/// What has happened, so that a trial in which nothing does is none.
#[derive(Debug, Default)]
struct Happened {
    placed: u64,
    refused: u64,
    urgent: u64,
    outranked: u64,
    /// Alternative slots of tables in which another one would have liked one of them, too.
    disputed: u64,
    unified: u64,
    /// Tables with turns of several lengths.
    lengths: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut chance = StdRng::seed_from_u64(seed);
        let rules = rules(&mut chance);
        let mut world = World {
            chance,
            matrix: Matrix::new(rules),
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            suspended: BTreeSet::new(),
            lost: BTreeSet::new(),
            next: 1,
            allowed: rules.rows.max(1).into(),
            version: 0,
            usual_us: Pace::default().turn_us,
            seen: Happened::default(),
        };
        for _ in 0..6 {
            world.node();
        }
        world
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.chance.random_range(0..many) == 0
    }

    fn any(&mut self, of: Vec<u64>) -> u64 {
        if of.is_empty() { 0 } else { of[self.chance.random_range(0..of.len())] }
    }

    fn name(&mut self) -> String {
        format!("n{}", self.chance.random_range(0..8))
    }

    fn node(&mut self) {
        let name = self.name();
        let cpus = if self.one_in(40) { 60 + self.chance.random_range(0..80) } else { self.chance.random_range(0..9) };
        self.nodes.insert(name.clone(), cpus);
        self.does(Input::Node { name, cpus });
    }

    fn gang(&mut self) -> Gang {
        let shape = if self.one_in(3) {
            let count = self.chance.random_range(1..4);
            Shape::Fixed((0..count).map(|_| (self.name(), self.chance.random_range(0..5))).collect())
        } else {
            let among = if self.one_in(6) { vec![self.name(), self.name()] } else { Vec::new() };
            let nodes = self.one_in(4).then(|| self.chance.random_range(0..4));
            let per_node = self.one_in(4).then(|| self.chance.random_range(0..4));
            let (ranks, cpus) = (self.chance.random_range(0..12), self.chance.random_range(1..3));
            Shape::Free { ranks, cpus, nodes, among, per_node }
        };
        let level = if self.one_in(6) { self.chance.random_range(-1..3) } else { 0 };
        self.next += 1;
        let turn_us = if self.one_in(6) { 1_000 * self.chance.random_range(1..4) } else { 0 };
        Gang { job: self.next, shape, urgent: self.one_in(5), level, turn_us }
    }

    fn happens(&mut self) {
        let all: Vec<u64> = self.jobs.keys().copied().collect();
        match self.chance.random_range(0..40) {
            0..18 => {
                let gang = self.gang();
                self.jobs.insert(gang.job, (gang.clone(), Vec::new()));
                self.does(Input::Arrive(gang));
            }
            18..26 => {
                let job = self.any(all);
                self.ends(job);
            }
            26..30 => {
                let job = self.any(all);
                self.suspended.insert(job);
                self.does(Input::Suspend(job));
            }
            30..35 => {
                let job = self.any(self.suspended.iter().copied().collect());
                self.suspended.remove(&job);
                self.does(Input::Resume(job));
            }
            35 => self.node(),
            38 if self.one_in(2) => {
                let (name, milli) = (self.name(), self.chance.random_range(0..9_000));
                let before = self.matrix.table().clone();
                assert_eq!(self.matrix.handle(Input::Busy { name, milli }), [], "it moves nobody");
                assert_eq!(&before, self.matrix.table());
            }
            36 if self.one_in(3) => {
                let name = self.name();
                self.nodes.remove(&name);
                self.does(Input::NodeGone(name));
            }
            37 if self.one_in(5) => {
                let rules = rules(&mut self.chance);
                self.allowed = self.matrix.rows().max(rules.rows.max(1).into());
                self.does(Input::Rules(rules));
            }
            37 if self.one_in(4) => {
                self.usual_us = 1_000 * self.chance.random_range(1..5);
                self.does(Input::Usual(self.usual_us));
            }
            38 if self.one_in(5) => self.another_manager(),
            _ => {
                let lost = self.any(self.lost.iter().copied().collect());
                self.ends(lost);
            }
        }
    }

    fn ends(&mut self, job: u64) {
        self.jobs.remove(&job);
        self.suspended.remove(&job);
        self.lost.remove(&job);
        self.does(Input::Ended(job));
    }

    /// All that runs is told to a new one.
    fn another_manager(&mut self) {
        let lost: Vec<u64> = self.lost.iter().copied().collect();
        lost.into_iter().for_each(|job| self.ends(job));
        let jobs = std::mem::take(&mut self.jobs);
        self.seen.unified += self.matrix.unified();
        self.matrix = Matrix::new(self.matrix.rules());
        (self.version, self.usual_us) = (0, Pace::default().turn_us);
        for (name, cpus) in self.nodes.clone() {
            self.does(Input::Node { name, cpus });
        }
        let suspended = std::mem::take(&mut self.suspended);
        for (job, (gang, places)) in jobs {
            self.jobs.insert(job, (gang.clone(), places.clone()));
            // One more than the rule says, if need be.
            self.allowed = usize::MAX;
            self.does(Input::Adopt(gang, places));
            if suspended.contains(&job) {
                self.suspended.insert(job);
                self.does(Input::Suspend(job));
            }
        }
    }

    fn does(&mut self, input: Input) {
        let (before, urgent) = (self.matrix.table().clone(), urgent(&input, &self.jobs));
        let effects = self.matrix.handle(input.clone());
        let mut tables = 0;
        for effect in effects {
            match effect {
                Effect::Placed { job, places, row } => {
                    self.seen.placed += 1;
                    let of = self.jobs.get_mut(&job).expect("it was wished");
                    fits(&of.0.shape, &places, &input);
                    of.1 = places;
                    let rows = &self.matrix.table().jobs[&job];
                    assert!(rows.is_empty() || rows[0] == row, "job {job}");
                }
                Effect::Refused { job, why, .. } => {
                    self.seen.refused += 1;
                    assert!(matches!(&input, Input::Arrive(gang) if gang.job == job), "{why}: {input:?}");
                    assert!(why.len() > 10);
                    self.jobs.remove(&job);
                }
                Effect::Lost { job, node } => {
                    assert!(self.lost.insert(job), "job {job} is lost once");
                    assert!(self.jobs[&job].1.iter().any(|place| place.node == node));
                }
                Effect::Table(table) => {
                    tables += 1;
                    assert_eq!(&table, self.matrix.table());
                    assert_eq!(table.version, self.version + 1);
                    self.version = table.version;
                    if let Some(job) = urgent.filter(|job| table.jobs.get(job).is_some_and(|rows| !rows.is_empty())) {
                        assert!(table.runs(job, 0), "job {job} has its slot at once");
                        self.seen.urgent += u64::from(table.rows > 1);
                    }
                }
            }
        }
        assert!(tables == 1 || (tables == 0 && before == *self.matrix.table()), "{input:?}");
        self.check();
    }

    fn check(&mut self) {
        let table = self.matrix.table();
        assert_eq!(table.check(), Ok(()));
        assert!(self.matrix.rows() <= self.allowed && usize::from(table.rows) <= self.matrix.rows());
        self.allowed = self.allowed.min(self.matrix.rows().max(self.matrix.rules().rows.into()));
        let bytes = postcard::to_stdvec(table).unwrap();
        assert_eq!(postcard::from_bytes::<Table>(&bytes).as_ref(), Ok(table), "it comes as it went");
        let here = |place: &Place| {
            let has = self.nodes.get(&place.node).copied().unwrap_or(0);
            let cpus = place.cpus.iter().copied().filter(|&cpu| cpu < has).collect();
            Some(Place { node: place.node.clone(), cpus }).filter(|place| !place.cpus.is_empty())
        };
        let mut used: Vec<BTreeSet<(&str, u16)>> = vec![BTreeSet::new(); table.rows.into()];
        let mut alone: Vec<usize> = vec![0; table.rows.into()];
        for (&job, (gang, places)) in self.jobs.iter().filter(|(_, (_, places))| !places.is_empty()) {
            let seen = self.matrix.job(job).expect("it is here");
            if !self.lost.contains(&job) {
                assert_eq!(seen.places, places, "job {job} has the CPUs that it had");
                assert_eq!(
                    places.iter().filter_map(here).collect::<Vec<_>>(),
                    *places,
                    "job {job}: what it has is there"
                );
            }
            // A job that has lost something keeps what it has else, and nothing of what came back.
            assert!(seen.places.iter().all(|place| here(place).as_ref() == Some(place)));
            let Some(rows) = table.jobs.get(&job) else {
                assert!(seen.places.is_empty() && self.lost.contains(&job), "job {job} is in the table");
                continue;
            };
            let outranked = self.jobs.iter().any(|(other, (of, _))| {
                of.level > gang.level && runs(table, *other) && meet(&self.matrix, *other, job)
            });
            self.seen.outranked += u64::from(outranked);
            let still = self.suspended.contains(&job) || outranked;
            assert_eq!(rows.is_empty(), still, "job {job} stands still if it must, and runs otherwise");
            // In so many slots one after the other, whichever is the first of them, it runs.
            let slots = 5..5 + u64::from(table.rows);
            assert!(still || slots.into_iter().any(|slot| table.runs(job, slot)), "job {job} starves");
            rows.first().into_iter().for_each(|&own| alone[usize::from(own)] += 1);
            assert!(self.matrix.rules().alternative || rows.len() <= 1);
            for &row in rows {
                for place in seen.places {
                    for &cpu in &place.cpus {
                        let fresh = used[usize::from(row)].insert((&place.node, cpu));
                        assert!(fresh, "CPU {cpu} of {} is there twice in row {row}", place.node);
                    }
                }
            }
        }
        assert!(alone.iter().all(|count| *count > 0), "each row is somebody's own");
        assert!(table.jobs.keys().all(|job| self.jobs.contains_key(job)));
        self.seen.disputed += self.shares(&used);
        self.lengths();
    }

    /// Who shares a node has turns of the same length, and it is the shortest that one of those wants with whom it shares some, directly or through others.
    fn lengths(&mut self) {
        let table = self.matrix.table();
        let usual = self.usual_us;
        let mut crowds: Vec<(BTreeSet<&str>, u64, Vec<u64>)> = Vec::new();
        for (&job, rows) in table.jobs.iter().filter(|_| table.rows > 1) {
            let Some(seen) = self.matrix.job(job).filter(|_| !rows.is_empty()) else { continue };
            let wants = match self.jobs[&job].0.turn_us {
                0 => usual,
                other => other,
            };
            let mut crowd = (seen.places.iter().map(|place| place.node.as_str()).collect(), wants, vec![job]);
            let (met, apart): (Vec<_>, Vec<_>) = crowds.into_iter().partition(|other| !other.0.is_disjoint(&crowd.0));
            for (nodes, wants, jobs) in met {
                crowd.0.extend(nodes);
                crowd.1 = wants.min(crowd.1);
                crowd.2.extend(jobs);
            }
            crowds = apart;
            crowds.push(crowd);
        }
        for (_, length, jobs) in &crowds {
            assert!(jobs.iter().all(|job| table.turn_us(*job, usual) == *length), "{jobs:?} have turns of {length}");
        }
        let lengths: BTreeSet<u64> = crowds.iter().map(|(_, length, _)| *length).collect();
        self.seen.lengths += u64::from(lengths.len() > 1);
    }

    /// What people see is what the table says; with alternative slots nobody is left out who would fit. How many are left out since
    /// somebody else who has an alternative slot has one of their CPUs?
    fn shares(&self, used: &[BTreeSet<(&str, u16)>]) -> u64 {
        let lines = self.matrix.lines();
        let shown = |line: &Line| line.cpus.iter().flatten().count();
        assert_eq!(lines.iter().map(shown).sum::<usize>(), used.iter().map(BTreeSet::len).sum::<usize>());
        let mut own: Vec<BTreeSet<(&str, u16)>> = vec![BTreeSet::new(); used.len()];
        for line in &lines {
            let cpus = (0u16..).zip(&line.cpus).filter(|(_, whose)| whose.is_some_and(|(_, own)| own));
            own[usize::from(line.row)].extend(cpus.map(|(cpu, _)| (line.node.as_str(), cpu)));
        }
        let mut disputed = 0;
        for seen in self.matrix.jobs().filter(|seen| self.matrix.rules().alternative && !seen.rows.is_empty()) {
            for (row, used) in (0u16..).zip(used).filter(|(row, _)| !seen.rows.contains(row)) {
                let cpus = seen.places.iter().flat_map(|p| p.cpus.iter().map(|&cpu| (p.node.as_str(), cpu)));
                let cpus: Vec<(&str, u16)> = cpus.collect();
                let blocked = cpus.iter().any(|cpu| used.contains(cpu));
                assert!(blocked, "job {} could run in row {row}, too", seen.job);
                disputed += u64::from(!cpus.iter().any(|cpu| own[usize::from(row)].contains(cpu)));
            }
        }
        disputed
    }

    fn finish(&mut self) {
        let all: Vec<u64> = self.jobs.keys().copied().collect();
        all.into_iter().for_each(|job| self.ends(job));
        assert_eq!((self.matrix.rows(), self.matrix.jobs().count(), self.matrix.table().jobs.len()), (0, 0, 0));
        let free = self.matrix.free().into_iter().map(|(node, free)| (node.to_owned(), free as u16)).collect();
        assert_eq!((&self.nodes, self.matrix.table().rows), (&free, 0), "all is free again");
        self.seen.unified += self.matrix.unified();
    }
}

fn rules(chance: &mut StdRng) -> Rules {
    let packing = if chance.random() { Packing::BestFit } else { Packing::Buddy };
    Rules { rows: chance.random_range(0..6), packing, alternative: chance.random() }
}

/// Who is to have his slot at once.
fn urgent(input: &Input, jobs: &BTreeMap<u64, (Gang, Vec<Place>)>) -> Option<u64> {
    match input {
        Input::Arrive(gang) => gang.urgent.then_some(gang.job),
        Input::Resume(job) => jobs.get(job).filter(|(gang, _)| gang.urgent).map(|_| *job),
        _ => None,
    }
}

fn runs(table: &Table, job: u64) -> bool {
    table.jobs.get(&job).is_some_and(|rows| !rows.is_empty())
}

/// Have they a CPU in common?
fn meet(matrix: &Matrix, a: u64, b: u64) -> bool {
    let (Some(a), Some(b)) = (matrix.job(a), matrix.job(b)) else { return false };
    let both = |x: &Place, y: &Place| x.node == y.node && x.cpus.iter().any(|cpu| y.cpus.contains(cpu));
    a.places.iter().any(|x| b.places.iter().any(|y| both(x, y)))
}

/// Is that what was wished?
fn fits(shape: &Shape, places: &[Place], input: &Input) {
    for place in places {
        assert!(place.cpus.is_sorted_by(|a, b| a < b) && !place.cpus.is_empty(), "{input:?}");
    }
    assert_eq!(places.iter().map(|place| &place.node).collect::<BTreeSet<_>>().len(), places.len(), "{input:?}");
    match shape {
        Shape::Fixed(wants) => {
            let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
            wants.iter().for_each(|(node, cpus)| *sums.entry(node).or_default() += usize::from(*cpus));
            let has = places.iter().map(|place| (place.node.as_str(), place.cpus.len())).collect();
            assert_eq!(sums, has, "{input:?}");
        }
        Shape::Free { ranks, cpus, nodes, among, per_node } => {
            let each: Vec<usize> = places.iter().map(|place| place.cpus.len()).collect();
            assert_eq!(each.iter().sum::<usize>(), *ranks as usize * usize::from(*cpus), "{input:?}");
            assert!(each.iter().all(|count| count.is_multiple_of((*cpus).into())), "a rank is at one node: {input:?}");
            let most = per_node.map_or(usize::MAX, |most| most as usize * usize::from(*cpus));
            assert!(each.iter().all(|count| *count <= most), "{input:?}");
            assert!(nodes.is_none_or(|nodes| places.len() <= nodes as usize), "{input:?}");
            assert!(among.is_empty() || places.iter().all(|place| among.contains(&place.node)), "{input:?}");
        }
    }
}

fn trial(seed: u64) -> Happened {
    let mut world = World::new(seed);
    (0..300).for_each(|_| world.happens());
    world.finish();
    world.seen
}

/// `GANG_SEEDS=20000 cargo test -p pando-gang trial` is the long one; `GANG_SEED=N` repeats one.
#[test]
fn whatever_happens_a_cpu_has_one_job_in_a_row_and_nobody_starves() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds = match number("GANG_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GANG_SEEDS").unwrap_or(100),
    };
    let many = seeds.end - seeds.start >= 100;
    let mut sum = Happened::default();
    for seed in seeds {
        let died = std::panic::catch_unwind(|| trial(seed));
        let Ok(seen) = died else { panic!("seed {seed}: GANG_SEED={seed} repeats it") };
        sum.placed += seen.placed;
        sum.refused += seen.refused;
        sum.urgent += seen.urgent;
        sum.outranked += seen.outranked;
        sum.disputed += seen.disputed;
        sum.unified += seen.unified;
        sum.lengths += seen.lengths;
    }
    let all = [sum.placed, sum.refused, sum.urgent, sum.outranked, sum.disputed, sum.unified, sum.lengths];
    assert!(!many || all.iter().all(|count| *count > 100), "{sum:?}");
}
