//! What the administrator decides.

use crate::gres::Gres;
use crate::times::{DAY, MINUTE, SECOND};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An hour.
const LONGEST_TURN_MS: u32 = 3_600_000;

/// How those that wait are let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// One after the other: nobody overtakes.
    Fcfs,
    /// Whoever does not delay the first one may overtake (Lifka, 1995).
    #[default]
    Easy,
    /// Whoever delays nobody before him may overtake (Mu'alem and Feitelson, 2001).
    Conservative,
}

/// `[queue]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How those that wait are let in.
    pub policy: Policy,
    /// By name. With none, all nodes are one without limits; the first by name is the one of jobs that say nothing, if none is called `batch`.
    pub partitions: BTreeMap<String, Partition>,
    /// Qualities of service, by name.
    pub qualities: BTreeMap<String, Quality>,
    /// Accounts' shares; 1 for those that are not here.
    pub shares: BTreeMap<String, u32>,
    /// What the whole cluster has so many of.
    pub licences: Vec<Gres>,
    /// What counts how much for priority.
    pub weights: Weights,
    /// Use counts half after so long, milliseconds.
    pub half_life_ms: u64,
    /// Age counts no more after so long, milliseconds.
    pub oldest_ms: u64,
    /// Jobs that a user, and that everybody together may have in the queue.
    pub jobs_each: usize,
    /// See above.
    pub jobs_most: usize,
    /// Tasks of one array.
    pub array_most: u32,
    /// What ended is remembered for so long, milliseconds, and so many of them; longer where a waiting job depends on it.
    pub keep_ms: u64,
    /// See above.
    pub keep_most: usize,
    /// Tasks that one pass starts at most.
    pub starts_at_once: usize,
    /// Different requests that one pass tries at most.
    pub tries: usize,
    /// Jobs that get a place in the future, with the conservative policy.
    pub reserved: usize,
    /// A task that could not be begun, or whose node was lost, is tried so often; then it waits until it is released.
    pub runs: u32,
    /// So long after it could not be begun, milliseconds; twice as long each time.
    pub again_ms: u64,
    /// Tasks that were told to end, or should have, are reckoned with for so long, milliseconds.
    pub end_ms: u64,
    /// Those that have given way by moving come home after so long, milliseconds, if there is room.
    pub home_after_ms: u64,
    /// So many jobs share each CPU by turns, and nodes count each so often: one job never has one of them twice. 0 and 1: nobody shares.
    #[serde(skip)]
    pub turns: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::default(),
            partitions: BTreeMap::new(),
            qualities: BTreeMap::new(),
            shares: BTreeMap::new(),
            licences: Vec::new(),
            weights: Weights::default(),
            half_life_ms: 7 * DAY,
            oldest_ms: 7 * DAY,
            jobs_each: 20_000,
            jobs_most: 100_000,
            array_most: 100_000,
            keep_ms: 5 * MINUTE,
            keep_most: 10_000,
            starts_at_once: 2_000,
            tries: 500,
            reserved: 50,
            runs: 5,
            again_ms: 10 * SECOND,
            end_ms: 30 * SECOND,
            home_after_ms: 10 * SECOND,
            turns: 1,
        }
    }
}

impl Settings {
    /// What the partition of a job that names none is called, whether it has rules or not.
    pub fn usual(&self) -> &str {
        self.default_partition().unwrap_or("batch")
    }

    /// The partition of a job that names none.
    pub fn default_partition(&self) -> Option<&str> {
        match self.partitions.contains_key("batch") {
            true => Some("batch"),
            false => self.partitions.keys().next().map(String::as_str),
        }
    }

    /// Is everything within its bounds? The error is for people.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to write.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |of: &Partition| of.quantum_ms.is_some_and(|ms| !(1..=LONGEST_TURN_MS).contains(&ms));
        match self.partitions.iter().find(|(_, of)| wrong(of)) {
            Some((name, of)) => {
                let ms = of.quantum_ms.unwrap_or(0);
                Err(format!(
                    "[queue.rules.partitions] {name} has quantum_ms = {ms}: write whole milliseconds, from 1 to {LONGEST_TURN_MS}"
                ))
            }
            None => Ok(()),
        }
    }

    /// The length of turns of a partition's gangs, microseconds; 0: as is usual.
    pub fn turn_us(&self, partition: Option<&str>) -> u64 {
        let ms = self.partition(partition).and_then(|of| of.quantum_ms);
        ms.map_or(0, |ms| u64::from(ms) * 1000)
    }

    pub(crate) fn partition(&self, named: Option<&str>) -> Option<&Partition> {
        self.partitions.get(named.or(self.default_partition())?)
    }

    /// What that user gets who asks for it; the error is for people.
    ///
    /// # Errors
    ///
    /// There is none of that name, or it is not for him.
    pub fn quality_for(&self, user: &str, name: &str) -> Result<&Quality, String> {
        let quality = self.qualities.get(name);
        let quality = quality.ok_or_else(|| format!("there is no quality of service {name} (--qos)"))?;
        match quality.users.is_empty() || quality.users.iter().any(|u| u == user) {
            true => Ok(quality),
            false => Err(format!("{user} may not use quality of service {name} (--qos)")),
        }
    }

    /// That one, or the one of those who name none.
    pub fn quality(&self, named: Option<&str>) -> Quality {
        named.and_then(|n| self.qualities.get(n)).or(self.qualities.get("normal")).cloned().unwrap_or_default()
    }
}

/// Nodes with rules of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Partition {
    /// Its nodes; all, if there are none.
    pub nodes: Vec<String>,
    /// The longest time limit, milliseconds.
    pub most_ms: Option<u64>,
    /// What a job has that says none.
    pub default_ms: Option<u64>,
    /// Who may use it; everybody, if there is nobody.
    pub users: Vec<String>,
    /// It takes no new jobs.
    pub closed: bool,
    /// How long the turns of its jobs' gangs are, milliseconds; none: as is usual in the cluster.
    pub quantum_ms: Option<u32>,
}

/// How a job gives way to one of a higher level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preempt {
    /// It stands still.
    #[default]
    Suspend,
    /// Its processes are moved to a node that has room for them; it stands still if there is none, or they can't be moved.
    Move,
}

/// A quality of service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quality {
    /// From 0 to 1000: a part of the weight.
    pub priority: u32,
    /// Jobs of a higher level take the CPUs of those of a lower one when they find no others.
    pub level: u8,
    /// What its own jobs do then.
    pub preempt: Preempt,
    /// CPUs that one user's jobs of it have at most.
    pub cpus_each: Option<u64>,
    /// Who may ask for it; everybody, if there is nobody.
    pub users: Vec<String>,
}

/// What counts how much: each is multiplied with a number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Weights {
    /// How long it has waited.
    pub age: u32,
    /// How little of its share its user has had.
    pub share: u32,
    /// How many of the CPUs it wants.
    pub size: u32,
    /// Its quality of service.
    pub quality: u32,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights { age: 1_000, share: 10_000, size: 500, quality: 100_000 }
    }
}
