//! The papers' experiments, as data: what the simulator plays (`sim balance`), and real nodes (`pando bench balance`).
//!
//! 1. Identical processes, two for each CPU, started evenly; as many other users as there are nodes, each of whom computes for one to six
//!    minutes on some node, which nobody can move, and then on another.
//! 2. Execution times uniform between nothing and a maximum, three processes for each CPU, started evenly.
//! 3. Memory: eight processes for each node, of exponential sizes (up to half a node's) that are together as large as the cluster's memory;
//!    each begins on a random node at a random time and takes its memory while it computes the first third of its work. (All sizes at once
//!    would leave not a byte free anywhere: the column `memory %` says how much is in use at the worst moment.)
//! 4. Speeds of ½, 1 and 2, two processes for each CPU, started evenly; a quarter of the nodes join only when work runs, an eighth of them
//!    (one at least) is drained and leaves, one more is drained and stays.
//!
//! Without migration each process runs where it was started; nobody can leave then, so in 4 nodes that leave do so when they are empty.

pub use crate::machine::Size;
use crate::queue::SECOND;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Where it begins.
    pub home: u32,
    /// When, microseconds.
    pub from_us: u64,
    /// CPU time that it takes on a machine of speed 1, milliseconds.
    pub work_ms: f64,
    /// Bytes.
    pub size: u64,
    /// It has them all when it has done so much of its work, milliseconds; before that a part. 0: from the beginning.
    pub grow_ms: f64,
}

/// Something that stays on a node for a while and wants a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Where.
    pub node: u32,
    /// From when, microseconds.
    pub from_us: u64,
    /// Until when.
    pub until_us: u64,
}

/// A machine, and when it may be used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Site {
    /// What it has.
    pub size: Size,
    /// It joins, microseconds.
    pub from_us: u64,
    /// It is drained; `u64::MAX`: never.
    pub until_us: u64,
    /// It leaves, empty by then; `u64::MAX`: never.
    pub gone_us: u64,
}

/// An experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trial {
    /// The machines.
    pub sites: Vec<Site>,
    /// What is to be done.
    pub jobs: Vec<Job>,
    /// Other users, nobody moves them.
    pub loads: Vec<Load>,
}

/// Another size of the same experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Everything takes so many times as long.
    pub time: f64,
    /// Each machine is so many times as fast.
    pub speed: f64,
    /// Processes and machines have so many times as many bytes.
    pub memory: f64,
}

impl Scale {
    /// No other size.
    pub const SAME: Scale = Scale { time: 1.0, speed: 1.0, memory: 1.0 };
}

/// Work of a process, seconds.
const WORK: f64 = 300.0;
const GB: u64 = 1 << 30;
/// Memory of a node.
pub const MEMORY: u64 = 4 * GB;
/// Processes for each node in the third experiment, and the largest one there, as a part of a node's memory.
const EACH: usize = 8;
const LARGEST: f64 = 0.5;
/// A node that is drained and leaves is given so long to become empty, and so long at least when the experiment is scaled.
const EMPTYING: u64 = 30 * SECOND;
const EMPTYING_LEAST: u64 = 5 * SECOND;

fn site(speed: f64, memory: u64) -> Site {
    Site { size: Size { cpus: 1.0, speed, memory }, from_us: 0, until_us: u64::MAX, gone_us: u64::MAX }
}

fn job(home: usize, from_us: u64, work_s: f64, size: u64) -> Job {
    Job { home: home as u32, from_us, work_ms: work_s * 1000.0, size, grow_ms: 0.0 }
}

fn seconds(rng: &mut StdRng, from: f64, to: f64) -> u64 {
    (rng.random_range(from..to) * SECOND as f64) as u64
}

impl Trial {
    /// Makes one, from a seed.
    pub fn new(experiment: u32, nodes: usize, seed: u64) -> Trial {
        let mut rng = StdRng::seed_from_u64(seed << 8 | u64::from(experiment));
        let small = 16 << 20;
        let mut t = Trial { sites: vec![site(1.0, MEMORY); nodes], ..Trial::default() };
        match experiment {
            1 => {
                t.jobs = (0..nodes * 2).map(|i| job(i % nodes, 0, WORK, small)).collect();
                (0..nodes).for_each(|_| t.user(&mut rng));
            }
            2 => t.jobs = (0..nodes * 3).map(|i| job(i % nodes, 0, rng.random_range(0.0..WORK), small)).collect(),
            3 => t.memory(&mut rng),
            _ => {
                t.jobs = (0..nodes * 2).map(|i| job(i % nodes, 0, WORK, small)).collect();
                for (i, s) in t.sites.iter_mut().enumerate() {
                    s.size.speed = [1.0, 0.5, 2.0, 1.0][i % 4];
                }
                t.change(&mut rng);
            }
        }
        t
    }

    /// A user, who goes from one node to another.
    fn user(&mut self, rng: &mut StdRng) {
        let mut from_us = 0;
        while from_us < 3000 * SECOND {
            let node = rng.random_range(0..self.sites.len() as u32);
            let until_us = from_us + seconds(rng, 60.0, 360.0);
            self.loads.push(Load { node, from_us, until_us });
            from_us = until_us + seconds(rng, 10.0, 60.0);
        }
    }

    /// Processes of all sizes.
    fn memory(&mut self, rng: &mut StdRng) {
        let nodes = self.sites.len();
        let mut size = || loop {
            let size = -(1.0 - rng.random::<f64>()).ln();
            if size < LARGEST * EACH as f64 {
                break size;
            }
        };
        let sizes: Vec<f64> = (0..nodes * EACH).map(|_| size()).collect();
        let scale = (nodes as u64 * MEMORY) as f64 / sizes.iter().sum::<f64>();
        for size in sizes {
            let work = rng.random_range(10.0..50.0);
            let from = seconds(rng, 0.0, 120.0);
            let one = job(rng.random_range(0..nodes), from, work, (size * scale) as u64);
            self.jobs.push(Job { grow_ms: one.work_ms / 3.0, ..one });
        }
    }

    /// Some join late, some leave early.
    fn change(&mut self, rng: &mut StdRng) {
        let nodes = self.sites.len();
        let late = nodes / 4;
        for s in &mut self.sites[nodes - late..] {
            s.from_us = seconds(rng, 30.0, 90.0);
        }
        let stay = nodes - late;
        for job in &mut self.jobs {
            job.home %= stay as u32;
        }
        // The first is the home of none that matters to itself: it is drained; some that only have guests leave for good.
        self.sites[0].until_us = seconds(rng, 60.0, 120.0);
        for s in self.sites[nodes - late..].iter_mut().take((nodes / 8).max(1)) {
            s.until_us = s.from_us + seconds(rng, 90.0, 150.0);
            s.gone_us = s.until_us + EMPTYING;
        }
    }

    /// The same in another size.
    #[must_use]
    pub fn scaled(&self, by: Scale) -> Trial {
        let time = |us: u64| if us == u64::MAX { us } else { (us as f64 * by.time) as u64 };
        let bytes = |n: u64| (n as f64 * by.memory) as u64;
        let work = by.time * by.speed;
        let mut t = self.clone();
        for s in &mut t.sites {
            let emptying = s.gone_us.saturating_sub(s.until_us);
            (s.from_us, s.until_us) = (time(s.from_us), time(s.until_us));
            s.gone_us = match s.gone_us {
                u64::MAX => u64::MAX,
                _ => s.until_us + time(emptying).max(EMPTYING_LEAST.min(emptying)),
            };
            (s.size.speed, s.size.memory) = (s.size.speed * by.speed, bytes(s.size.memory));
        }
        for j in &mut t.jobs {
            (j.from_us, j.size) = (time(j.from_us), bytes(j.size));
            (j.work_ms, j.grow_ms) = (j.work_ms * work, j.grow_ms * work);
        }
        for l in &mut t.loads {
            (l.from_us, l.until_us) = (time(l.from_us), time(l.until_us));
        }
        t
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ideal::{one_computer, whole_places};

    #[test]
    fn one_in_another_size_is_the_same_experiment() {
        for experiment in [1, 2, 3, 4] {
            let t = Trial::new(experiment, 4, 7);
            assert_eq!(t.scaled(Scale::SAME), t);
            let small = t.scaled(Scale { time: 0.1, speed: 0.4, memory: 0.25 });
            let ratio = one_computer(&small).last / one_computer(&t).last;
            assert!((ratio - 0.1).abs() < 1e-4, "{experiment}: {ratio}");
            let ratio = whole_places(&small).mean / whole_places(&t).mean;
            assert!((ratio - 0.1).abs() < 1e-4, "{experiment}: {ratio}");
        }
    }

    #[test]
    fn four_nodes_have_one_that_comes_and_goes_and_one_that_is_drained() {
        let t = Trial::new(4, 4, 1);
        let last = t.sites[3];
        assert!(0 < last.from_us && last.from_us < last.until_us && last.until_us < last.gone_us);
        assert!(t.sites[0].until_us < u64::MAX && t.sites[0].gone_us == u64::MAX);
        assert!(t.jobs.iter().all(|j| j.home < 3));
    }
}
