//! Batch jobs as they come on parallel machines: the model of U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling
//! the characteristics of rigid jobs", J. Parallel and Distributed Computing 63(11), 2003, with its parameters for all jobs together
//! (batch and interactive ones not told apart).
//!
//! Sizes: a part is serial; the logarithm of the others is two-stage uniform, and many are powers of two. Run times: the logarithm is
//! hyper-gamma, with a mixture that depends on the size. Arrivals: the logarithm of the time between two jobs at rush hour is gamma, and the hours of
//! the day are worth more or less of it.
//!
//! What is not certain here: that the daily cycle's gamma is over half hours from 05:30 on, and that a half hour of mean traffic is worth as many
//! points as it has seconds. That is how the authors' program is described by others; the total load is set by [`work`] anyway.
//! Time limits are no part of the model: they are 1 to 5 times the run time (the f-model of Mu'alem and Feitelson, 2001).

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A job: seconds, and CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// When it comes.
    pub at: u64,
    /// How long it runs.
    pub run: u64,
    /// How long it may run.
    pub limit: u64,
    /// How many CPUs.
    pub cpus: u32,
    /// Whose it is.
    pub user: u32,
}

const SERIAL: f64 = 0.244;
const POWER_OF_TWO: f64 = 0.576;
const LOW: f64 = 0.8;
/// The middle is so far below the logarithm of the machine's size.
const MIDDLE_BELOW: f64 = 2.5;
const LOWER: f64 = 0.86;
const SHORT: (f64, f64) = (4.2, 0.94);
const LONG: (f64, f64) = (312.0, 0.03);
const MIXTURE: (f64, f64) = (-0.0054, 0.78);
const ARRIVAL: (f64, f64) = (10.2303, 0.4871);
const DAY_CYCLE: (f64, f64) = (8.1737, 3.9631);
/// From rush hours to all hours.
const RUSH_TO_ALL: f64 = 1.0225;
const HALF_HOURS: usize = 48;
const DAY_BEGINS: usize = 11;
/// Logarithms of the longest run time and time between two jobs.
const LONGEST: f64 = 12.0;
const LONGEST_GAP: f64 = 13.0;
const USERS: f64 = 30.0;

struct Chance(StdRng);

impl Chance {
    fn unit(&mut self) -> f64 {
        self.0.random_range(f64::EPSILON..1.0)
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Marsaglia and Tsang (2000); all shapes here are above 1.
    fn gamma(&mut self, (shape, scale): (f64, f64)) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * scale;
            }
        }
    }

    fn size(&mut self, most: u32) -> u32 {
        if self.unit() < SERIAL || most < 2 {
            return 1;
        }
        let high = f64::from(most).log2();
        let middle = (high - MIDDLE_BELOW).max(LOW);
        let (from, to) = if self.unit() < LOWER { (LOW, middle) } else { (middle, high) };
        let log = from + (to - from) * self.unit();
        let size = if self.unit() < POWER_OF_TWO { log.round().exp2() } else { log.exp2().round() };
        (size as u32).clamp(1, most)
    }

    fn run(&mut self, size: u32) -> u64 {
        let short = (MIXTURE.0 * f64::from(size) + MIXTURE.1).clamp(0.0, 1.0);
        let of = if self.unit() < short { SHORT } else { LONG };
        self.gamma(of).min(LONGEST).exp().max(1.0) as u64
    }
}

/// What each half hour of the day is worth.
fn day() -> [f64; HALF_HOURS] {
    let (shape, scale) = DAY_CYCLE;
    let mut worth = [0.0; HALF_HOURS];
    for i in DAY_BEGINS..DAY_BEGINS + HALF_HOURS {
        let x = i as f64;
        worth[i % HALF_HOURS] = x.powf(shape - 1.0) * (-x / scale).exp();
    }
    let mean = worth.iter().sum::<f64>() / HALF_HOURS as f64;
    worth.map(|w| w / mean * 1800.0)
}

/// Jobs for so many days on so many CPUs. `load`: what they use of all CPUs (the gaps between them are stretched for that).
pub fn work(seed: u64, cpus: u32, days: u64, load: f64) -> Vec<Work> {
    let mut chance = Chance(StdRng::seed_from_u64(seed));
    let worth = day();
    let (mut jobs, mut at, mut used) = (Vec::new(), 0.0f64, 0.0f64);
    // Jobs until they fill the time; then their gaps are stretched or shrunk to fit it.
    while used < load * f64::from(cpus) * days as f64 * 86_400.0 {
        let mut points = chance.gamma((ARRIVAL.0 * RUSH_TO_ALL, ARRIVAL.1)).min(LONGEST_GAP).exp();
        loop {
            let now = at as usize / 1800;
            let left = ((now + 1) * 1800) as f64 - at;
            let rate = worth[now % HALF_HOURS] / 1800.0;
            if points <= left * rate {
                at += points / rate;
                break;
            }
            points -= left * rate;
            at = ((now + 1) * 1800) as f64;
        }
        let size = chance.size(cpus);
        let run = chance.run(size);
        let limit = (run as f64 * (1.0 + 4.0 * chance.unit())) as u64 + 60;
        let user = (USERS.powf(chance.unit())) as u32;
        used += run as f64 * f64::from(size);
        jobs.push(Work { at: at as u64, run, limit, cpus: size, user });
    }
    let stretch = days as f64 * 86_400.0 / at.max(1.0);
    jobs.iter_mut().for_each(|job| job.at = (job.at as f64 * stretch) as u64);
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_paper_has_them() {
        let jobs = work(1, 128, 60, 0.7);
        assert_eq!(jobs, work(1, 128, 60, 0.7));
        let part = |what: &dyn Fn(&Work) -> bool| jobs.iter().filter(|j| what(j)).count() as f64 / jobs.len() as f64;
        assert!(jobs.len() > 500 && jobs.is_sorted_by_key(|j| j.at));
        let serial = part(&|j| j.cpus == 1);
        assert!((0.2..0.35).contains(&serial), "{serial}");
        let powers = part(&|j| j.cpus.is_power_of_two());
        assert!(powers > 0.6, "{powers}");
        // At night there is less.
        let night = part(&|j| (2 * 3600..6 * 3600).contains(&(j.at % 86_400)));
        assert!(night < 4.0 / 24.0 * 1.5, "{night}");
        let used: f64 = jobs.iter().map(|j| j.run as f64 * f64::from(j.cpus)).sum();
        let load = used / (128.0 * 60.0 * 86_400.0);
        assert!((0.7..0.75).contains(&load), "{load}");
    }
}
