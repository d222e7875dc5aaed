//! Guests on the nodes of gangs: programs that compute and go where they end sooner, by the daemon's own rule (crates/balance), with the CPUs that gangs
//! hold in the load of each node.

use pando_balance::{Other, Process, Settings, Vector, rate, spread};
use pando_gang::Matrix;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

/// Slots between two looks of the nodes.
const LOOKS_EACH: u64 = 5;
/// After so many looks in which no gang came or went all guests are where they are to be.
const CALM: u64 = 20;
const GB: u64 = 1 << 30;

/// All of them.
pub struct Guests {
    /// Where each is.
    at: Vec<String>,
    chance: StdRng,
    slots: u64,
    /// Looks since a gang came or went.
    calm: u64,
}

impl Guests {
    /// So many, all at one node at first.
    pub fn new(count: u32, seed: u64) -> Guests {
        let at = (0..count).map(|_| String::new()).collect();
        Guests { at, chance: StdRng::seed_from_u64(seed ^ 0x6775_6573), slots: 0, calm: 0 }
    }

    /// Gangs have come or gone, or go on.
    pub fn disturbed(&mut self) {
        self.calm = 0;
    }

    /// How many threads want to run at each node besides gangs, in thousandths.
    pub fn busy(&self, matrix: &Matrix) -> Vec<(String, u32)> {
        if self.at.is_empty() {
            return Vec::new();
        }
        loads(&self.at, matrix).into_iter().map(|(name, load)| (name, load.runnable_milli)).collect()
    }

    /// A slot goes by. What they had of a CPU each, together, and what each would have had alone.
    pub fn slot(&mut self, matrix: &Matrix) -> Result<(f64, f64), String> {
        if self.at.is_empty() || matrix.nodes().is_empty() {
            return Ok((0.0, 0.0));
        }
        // Whose node is gone is at home again.
        let home = matrix.nodes().keys().next().cloned().unwrap_or_default();
        for at in self.at.iter_mut().filter(|at| !matrix.nodes().contains_key(*at)) {
            at.clone_from(&home);
            self.calm = 0;
        }
        self.slots += 1;
        if self.slots.is_multiple_of(LOOKS_EACH) {
            for name in matrix.nodes().keys() {
                self.look(name, matrix);
            }
            self.calm += 1;
            self.check(matrix)?;
        }
        let loads = loads(&self.at, matrix);
        Ok((self.at.iter().map(|at| rate(&loads[at])).sum(), self.at.len() as f64))
    }

    fn look(&mut self, name: &str, matrix: &Matrix) {
        let mut loads = loads(&self.at, matrix);
        let Some(here) = loads.remove(name) else { return };
        let mut others: Vec<Other> = loads.into_iter().map(|(name, load)| Other { name, age_ms: 0, load }).collect();
        let mine: Vec<Process> =
            (0u32..).zip(&self.at).filter(|(_, at)| *at == name).map(|(pid, _)| guest(pid)).collect();
        let chance = self.chance.random();
        let (moves, _) = spread((name, &here), &mine, &mut others, &Settings::default(), chance);
        for m in moves {
            self.at[m.process.1 as usize] = m.to;
        }
    }

    /// Nobody is where gangs hold all CPUs while another node has a CPU that nobody has.
    fn check(&self, matrix: &Matrix) -> Result<(), String> {
        if self.calm < CALM {
            return Ok(());
        }
        let loads = loads(&self.at, matrix);
        let free = |load: &Vector| i64::from(load.cpus_milli - load.reserved_milli) - i64::from(load.runnable_milli);
        let idle = loads.iter().find(|(_, load)| free(load) >= 1000);
        let pushed = self.at.iter().find(|at| loads[*at].cpus_milli == loads[*at].reserved_milli);
        match (idle, pushed) {
            (Some((idle, _)), Some(at)) => {
                Err(format!("a guest stays at {at}, whose CPUs gangs hold, and {idle} has one free"))
            }
            _ => Ok(()),
        }
    }
}

fn guest(pid: u32) -> Process {
    Process {
        home: "home".into(),
        pid,
        demand_milli: 1000,
        cpu_ms: 60_000,
        here_ms: 60_000,
        resident: 10 << 20,
        ..Process::default()
    }
}

/// Each node as it tells of itself.
fn loads(at: &[String], matrix: &Matrix) -> BTreeMap<String, Vector> {
    let mut held: BTreeMap<&str, BTreeSet<u16>> = BTreeMap::new();
    for place in matrix.jobs().flat_map(|job| job.places) {
        held.entry(&place.node).or_default().extend(&place.cpus);
    }
    let load = |(name, &cpus): (&String, &u16)| {
        let held = held.get(name.as_str()).map_or(0, BTreeSet::len) as u32;
        let guests = at.iter().filter(|at| *at == name).count() as u32;
        let (cpus_milli, reserved_milli, runnable_milli) = (u32::from(cpus) * 1000, held * 1000, guests * 1000);
        let (memory, free, speed) = (64 * GB, 60 * GB, 1000);
        (
            name.clone(),
            Vector { cpus_milli, reserved_milli, runnable_milli, memory, free, speed, guests, ..Vector::default() },
        )
    };
    matrix.nodes().iter().map(load).collect()
}
