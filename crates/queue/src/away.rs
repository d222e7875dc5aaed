//! A task that has given way by moving: its processes compute at another node than its own, and its CPUs are there
//! (docs/decisions/0042-a-job-that-gives-way-is-moved.md). Its node stays its home: its script, files and memory are there, and what it begins.

use crate::gres::Gres;
use crate::job::Run;
use serde::{Deserialize, Serialize};

/// One that could not be moved is left where it is for so long, milliseconds.
pub(crate) const ROOTED_MS: u64 = 60_000;

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// On its way there.
    Going,
    /// It computes there.
    There,
    /// On its way home.
    Coming,
}

/// Where a task computes that is not at home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// The node.
    pub node: String,
    /// See there.
    pub phase: Phase,
    /// Since when.
    pub since: u64,
}

/// A move that was not made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rooted {
    /// When that was said.
    pub at: u64,
    /// Where it was to go.
    pub node: String,
    /// Why it did not.
    pub why: String,
}

/// What a task has of a node now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holds<'a> {
    /// The node.
    pub node: &'a str,
    /// CPUs.
    pub cpus: u32,
    /// Megabytes.
    pub memory: u64,
    /// Generic resources.
    pub gres: &'a [Gres],
    /// Its CPUs there are free in a moment: it is about to compute elsewhere.
    pub leaves: bool,
}

impl Run {
    /// Its first node: what it is ordered to do is ordered there.
    pub fn home(&self) -> Option<&str> {
        self.shares.first().map(|share| share.node.as_str())
    }

    /// It is on its way: there, or home.
    pub fn is_moving(&self) -> bool {
        self.away.as_ref().is_some_and(|away| away.phase != Phase::There)
    }

    /// What it has of each node: while it is on its way CPUs of both, for nobody knows where it is; memory of its home always, since its pages are there,
    /// too, and what begins.
    pub fn holds(&self) -> impl Iterator<Item = Holds<'_>> {
        let away = self.away.as_ref();
        let phase = away.map(|away| away.phase);
        let own = self.shares.iter().map(move |share| Holds {
            node: &share.node,
            cpus: if phase == Some(Phase::There) { 0 } else { share.cpus },
            memory: share.memory,
            gres: &share.gres,
            leaves: phase == Some(Phase::Going),
        });
        let there = away.zip(self.shares.first()).map(|(away, share)| Holds {
            node: &away.node,
            cpus: share.cpus,
            memory: share.memory,
            gres: &[],
            leaves: away.phase == Phase::Coming,
        });
        own.chain(there)
    }

    /// Where its processes are to be, while they are on their way.
    pub fn goes_to(&self) -> Option<&str> {
        let away = self.away.as_ref()?;
        match away.phase {
            Phase::Going => Some(&away.node),
            Phase::There => None,
            Phase::Coming => self.home(),
        }
    }

    /// It has just been found that it can't be moved.
    pub(crate) fn is_rooted(&self, now: u64) -> bool {
        self.rooted.as_ref().is_some_and(|rooted| rooted.at.saturating_add(ROOTED_MS) > now)
    }

    /// For people: where it computes if that is not at home, and why it stands still.
    pub fn whereabouts(&self) -> Option<String> {
        let home = self.home().unwrap_or_default();
        let still = self.suspended_at.is_some();
        let what = match (&self.away, still) {
            (Some(Away { node, phase: Phase::Going, .. }), _) => {
                format!("its processes are being moved to {node}: another job needs its CPUs at {home}")
            }
            (Some(Away { node, phase: Phase::There, .. }), false) => {
                format!(
                    "its processes compute at {node}, where they have given way to; they come home when there is room"
                )
            }
            (Some(Away { node, phase: Phase::There, .. }), true) => {
                format!("its processes are at {node}, and stand still there")
            }
            (Some(Away { node, phase: Phase::Coming, .. }), _) => {
                format!("its processes are being moved home from {node}")
            }
            (None, true) if self.parked => "an operator has it stand still".into(),
            (None, true) => "it stands still for another job, and goes on when its CPUs are free".into(),
            (None, false) => return None,
        };
        let rooted = self.rooted.as_ref().filter(|_| still || self.away.is_some());
        Some(match rooted {
            Some(Rooted { node, why, .. }) => format!("{what} (it could not be moved to {node}: {why})"),
            None => what,
        })
    }
}
