//! Rows are as few as they can be, and there is room for one more if others only have to change their rows: held against all ways there are.

use crate::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;

const CPUS: u16 = 6;

/// The fewest rows for jobs with these CPUs, as bits.
fn fewest(jobs: &[u16], rows: &mut Vec<u16>) -> usize {
    let Some((first, rest)) = jobs.split_first() else { return rows.len() };
    let mut best = usize::MAX;
    for row in 0..=rows.len() {
        if row == rows.len() {
            rows.push(0);
        }
        if rows[row] & first == 0 {
            rows[row] |= first;
            best = best.min(fewest(rest, rows));
            rows[row] &= !first;
        }
        if rows.last() == Some(&0) {
            rows.pop();
        }
    }
    best
}

fn place(cpus: u16) -> Vec<Place> {
    vec![Place { node: "a".into(), cpus: (0..CPUS).filter(|cpu| cpus >> cpu & 1 == 1).collect() }]
}

fn gang(job: u64, count: u16) -> Gang {
    Gang { job, shape: Shape::Fixed(vec![("a".into(), count)]), urgent: false, level: 0, turn_us: 0 }
}

fn matrix(rows: u16) -> Matrix {
    let mut m = Matrix::new(Rules { rows, ..Rules::default() });
    m.handle(Input::Node { name: "a".into(), cpus: CPUS });
    m
}

#[test]
fn rows_are_as_few_as_they_can_be() {
    let mut fewer = 0;
    for seed in 0..300 {
        let mut chance = StdRng::seed_from_u64(seed);
        let (mut m, mut jobs, mut next) = (matrix(8), BTreeMap::new(), 0);
        for _ in 0..40 {
            if jobs.len() < 7 && chance.random_range(0..3) > 0 {
                let cpus: u16 = chance.random_range(1..1 << CPUS) & chance.random_range(1..1 << CPUS);
                if cpus > 0 {
                    next += 1;
                    jobs.insert(next, cpus);
                    m.handle(Input::Adopt(gang(next, cpus.count_ones() as u16), place(cpus)));
                }
            } else if !jobs.is_empty() {
                let at = chance.random_range(0..jobs.len());
                let job = *jobs.keys().nth(at).unwrap();
                jobs.remove(&job);
                m.handle(Input::Ended(job));
            }
            let all: Vec<u16> = jobs.values().copied().collect();
            let best = if all.is_empty() { 0 } else { fewest(&all, &mut Vec::new()) };
            assert_eq!(usize::from(m.table().rows), best, "seed {seed}: {jobs:?}");
            for (job, cpus) in &jobs {
                assert_eq!(m.job(*job).unwrap().places, place(*cpus), "it keeps its CPUs");
            }
        }
        fewer += m.unified();
    }
    assert!(fewer > 1000, "{fewer}");
}

#[test]
fn one_more_comes_in_when_others_only_have_to_change_their_rows() {
    let mut came = 0;
    for seed in 0..300 {
        let mut chance = StdRng::seed_from_u64(seed);
        let (mut m, mut jobs) = (matrix(3), BTreeMap::new());
        for job in 1..40 {
            let count = chance.random_range(1..4);
            let moved = m.unified();
            match m.handle(Input::Arrive(gang(job, count))).first() {
                Some(Effect::Placed { places, .. }) => {
                    let cpus = places[0].cpus.iter().fold(0u16, |all, cpu| all | 1 << cpu);
                    jobs.insert(job, cpus);
                    came += u64::from(m.unified() > moved);
                }
                Some(Effect::Refused { ever: false, .. }) => {
                    // The CPUs that the fewest have would have to be somebody else's in each way there is.
                    let crowd = |cpu: &u16| jobs.values().filter(|cpus| **cpus >> *cpu & 1 == 1).count();
                    let free: Vec<u16> = (0..CPUS).filter(|cpu| crowd(cpu) < 3).collect();
                    if free.len() == usize::from(count) {
                        let its = free.iter().fold(0u16, |all, cpu| all | 1 << cpu);
                        let all: Vec<u16> = jobs.values().copied().chain([its]).collect();
                        assert!(fewest(&all, &mut Vec::new()) > 3, "seed {seed}: {jobs:?} and {its:b}");
                    }
                    let at = chance.random_range(0..jobs.len());
                    let gone = *jobs.keys().nth(at).unwrap();
                    jobs.remove(&gone);
                    m.handle(Input::Ended(gone));
                }
                other => panic!("{other:?}"),
            }
            assert!(m.rows() <= 3);
        }
    }
    assert!(came > 20, "{came}");
}
