//! Gangs: jobs whose ranks have CPUs that others have, too, and run by turns, all of one job at once on all nodes. Who has which CPUs and whose
//! turn it is decides the matrix (crates/gang) at the node that orders in the fabric ([`office`]); its table goes to everybody, and with each
//! heartbeat of the strobe, and between two of them by its own clock, every node switches by itself ([`seats`], [`metronome`]). The head of a job holds its place as long as it runs ([`lease`]).

mod ask;
mod lease;
mod metronome;
mod office;
mod precedence;
mod seats;

pub use ask::About;
pub use lease::{Came, Lease, terms};
pub use office::{BEFORE, answer, quantum, show};
pub use seats::{TABLE, cpus_of};

use self::lease::Leases;
use self::office::Office;
use self::seats::Seats;
use crate::daemon::Node;
use crate::pace;
use pando_fabric::Beat;
use pando_kernel::turns::Turns;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// Between two looks who is there, and who orders.
const EACH: Duration = Duration::from_millis(250);

/// This node's part in all of it. Locks are taken in this order: office, fabric, seats.
#[derive(Default)]
pub struct Gangs {
    /// As long as this node orders.
    office: Mutex<Option<Office>>,
    leases: Mutex<Leases>,
    /// Whoever orders is being told of leases.
    looking: tokio::sync::Mutex<()>,
    seats: Mutex<Seats>,
    /// Counts turns between beats.
    metronome: OnceLock<Thread>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gangs {
    /// A gang begins with ranks here that have these CPUs, and hold those of the matrix: the list of processes of its control group, or why it can't
    /// take turns.
    pub fn sit_down(&self, node: &Node, number: u64, held: &[u16], cpus: &[Vec<u16>]) -> Result<PathBuf, String> {
        // Beats are not to wait until the kernel has made a group.
        let all: Vec<u16> = cpus.concat();
        let made = Turns::make(number, all.len() as u32).map_err(|e| e.to_string());
        let made = made.and_then(|turns| lock(&self.seats).sit_down(number, turns, held));
        made.inspect_err(|why| tracing::warn!("gangs: none can take turns at {}: {why}", node.name()))
    }

    /// Gangs that are here, and rows that take turns.
    pub fn counts(&self) -> (usize, u16) {
        lock(&self.seats).counts()
    }

    /// CPUs that they hold here, and the lists of their processes.
    pub fn held(&self) -> (u32, Vec<PathBuf>) {
        lock(&self.seats).held()
    }

    /// For people: what gangs have here, if anything.
    pub fn told(&self) -> Option<String> {
        let ((cpus, _), (gangs, rows)) = (self.held(), self.counts());
        let counted = |n: usize, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
        let turns = if rows > 1 { format!("; {rows} rows take turns") } else { String::new() };
        let held = || format!("{} held by {}{turns}", counted(cpus as usize, "CPU"), counted(gangs, "gang"));
        (gangs > 0).then(held)
    }

    /// It is over here.
    pub fn stand_up(&self, number: u64) {
        // What is dropped may wait for the kernel.
        let seat = lock(&self.seats).stand_up(number);
        drop(seat);
    }

    /// A table has come, from the node that orders.
    pub fn table(&self, bytes: &[u8]) {
        lock(&self.seats).table(bytes);
    }

    /// A beat of the strobe.
    pub fn beat(&self, beat: &Beat) {
        if beat.part == 0 {
            lock(&self.seats).beat(beat.number, beat.period_us);
            if let Some(metronome) = self.metronome.get() {
                metronome.unpark();
            }
        }
    }
}

/// Keeps office and leases until the daemon ends.
pub async fn keep(node: Arc<Node>) {
    pando_kernel::turns::sweep_all();
    match metronome::start(node.clone()) {
        Ok(begun) => drop(node.gangs.metronome.set(begun)),
        Err(e) => tracing::warn!("gangs: turns are as long as the strobe's period, for no thread can be made: {e}"),
    }
    let mut ticks = pace::every(EACH);
    loop {
        ticks.tick().await;
        office::look(&node);
        lease::look(&node).await;
        lock(&node.gangs.seats).mind_silence();
    }
}
