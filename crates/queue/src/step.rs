//! Steps of a task: the parallel jobs that its script starts. They are no business of the queue, which keeps them for accounts, and adds to what the
//! task has used what they used where the task's own node does not see it.

use crate::job::{How, State, Usage};
use serde::{Deserialize, Serialize};

/// Steps of one run of which each is remembered; of more only what they used.
pub const MOST_STEPS: usize = 1000;
/// Nodes of a step that are remembered.
const MOST_NODES: usize = 1024;
/// Names of anything.
const MOST_NAME: usize = 256;
/// Ranks of one run of whom each is remembered.
const MOST_RANKS: usize = 4096;

/// One of them, as its head tells of it: when it begins, and when it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its number there.
    pub number: u32,
    /// What it is called.
    pub name: String,
    /// The node that its user's command speaks to.
    pub head: String,
    /// Its nodes, and how many ranks each runs.
    pub nodes: Vec<(String, u32)>,
    /// CPUs of all ranks.
    pub cpus: u64,
    /// When it began, milliseconds since 1970, by its head's clock.
    pub began: u64,
    /// When it was over, and how; none: it runs.
    pub end: Option<(u64, How)>,
    /// What all of its ranks have used; of memory the most that one process had.
    pub usage: Usage,
    /// The part of it that the task's control group has not counted: that of ranks at other nodes.
    pub away: Usage,
    /// What each of its ranks has used; nothing of a step that runs, or has too many.
    #[serde(default)]
    pub ranks: Vec<RankUse>,
}

/// What one rank has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankUsage {
    /// CPU time, milliseconds.
    pub cpu_ms: u64,
    /// The most memory that it, or a child that it has waited for, had at once, kilobytes.
    pub memory_kb: u64,
    /// Bytes read from disks.
    pub read: u64,
    /// Bytes written to disks.
    pub written: u64,
}

/// One rank of a step that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankUse {
    /// Its number.
    pub rank: u32,
    /// Where it ran.
    pub node: String,
    /// How it ended.
    pub how: How,
    /// What it used.
    pub usage: RankUsage,
}

impl Step {
    /// Its ranks.
    pub fn ranks(&self) -> u32 {
        self.nodes.iter().map(|(_, ranks)| ranks).sum()
    }

    /// How it stands.
    pub fn state(&self) -> State {
        match &self.end {
            None => State::Running,
            Some((_, How::Exit(0))) => State::Completed,
            Some((_, How::NodeLost(_))) => State::NodeFail,
            Some((_, How::OutOfMemory)) => State::OutOfMemory,
            Some((_, How::Signal(_) | How::NotBegun(_))) => State::Cancelled,
            Some((_, How::Exit(_) | How::CantBegin(_))) => State::Failed,
        }
    }

    fn is(&self, other: &Step) -> bool {
        (self.number, &self.head, self.began) == (other.number, &other.head, other.began)
    }

    /// A node says it: nothing in it is larger than it may be.
    pub(crate) fn is_sound(&self) -> bool {
        let names = self.nodes.iter().map(|(name, _)| name).chain([&self.name, &self.head]);
        let ranks = self.ranks.iter().all(|of| of.node.len() <= MOST_NAME);
        ranks
            && self.ranks.len() <= MOST_RANKS
            && self.nodes.len() <= MOST_NODES
            && names.into_iter().all(|name| name.len() <= MOST_NAME)
    }
}

/// Those of one run, and what they add to what it has used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Steps {
    /// Each, as far as it is remembered.
    pub all: Vec<Step>,
    /// How many more there were.
    pub more: u64,
    /// What those that are over have used where the task's own node did not see it.
    pub away: Usage,
}

impl Steps {
    /// One has begun, or is over. What is said twice counts once.
    pub(crate) fn note(&mut self, step: &Step) {
        let known = self.all.iter().position(|s| s.is(step));
        let counts = step.end.is_some() && known.is_none_or(|at| self.all[at].end.is_none());
        match known {
            Some(at) if counts => self.all[at] = step.clone(),
            Some(_) => return,
            None if self.all.len() < MOST_STEPS => self.all.push(step.clone()),
            // It is counted when it is over, for then it comes once.
            None => self.more += u64::from(counts),
        }
        if counts {
            self.away.add(&step.away);
            let ranks: usize = self.all.iter().map(|step| step.ranks.len()).sum();
            if let Some(step) = self.all.iter_mut().find(|s| s.is(step)).filter(|_| ranks > MOST_RANKS) {
                step.ranks.clear();
            }
        }
    }

    /// The run is over, and with it whatever step has not said so.
    pub(crate) fn close(&mut self, at: u64) {
        for step in self.all.iter_mut().filter(|step| step.end.is_none()) {
            step.end = Some((at.max(step.began), How::Signal(9)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: u32, end: Option<How>) -> Step {
        let away = Usage { cpu_ms: 10, memory_mb: 5, ..Usage::default() };
        Step {
            number,
            name: "true".into(),
            head: "n1".into(),
            nodes: vec![("n1".into(), 2), ("n2".into(), 2)],
            cpus: 4,
            began: 100,
            end: end.map(|how| (200, how)),
            usage: Usage { cpu_ms: 30, ..away },
            away,
            ranks: Vec::new(),
        }
    }

    #[test]
    fn each_counts_once_however_often_it_is_told() {
        let mut steps = Steps::default();
        for _ in 0..2 {
            steps.note(&step(0, None));
            steps.note(&step(1, Some(How::Exit(3))));
            steps.note(&step(1, None));
        }
        assert_eq!((steps.all.len(), steps.away.cpu_ms, steps.away.memory_mb), (2, 10, 5));
        assert_eq!((steps.all[0].state(), steps.all[1].state()), (State::Running, State::Failed));
        steps.close(300);
        assert_eq!((steps.all[0].state(), steps.all[0].ranks()), (State::Cancelled, 4));
        for number in 2..MOST_STEPS as u32 + 5 {
            steps.note(&step(number, None));
            steps.note(&step(number, Some(How::Exit(0))));
        }
        assert_eq!((steps.all.len(), steps.more), (MOST_STEPS, 5));
        assert_eq!(steps.away.cpu_ms, 10 * (MOST_STEPS as u64 + 4));
        let ranks = |count: u32| {
            let one = |rank| RankUse { rank, node: "n1".into(), how: How::Exit(0), usage: RankUsage::default() };
            (0..count).map(one).collect()
        };
        let mut some = Steps::default();
        some.note(&Step { ranks: ranks(MOST_RANKS as u32), ..step(0, Some(How::Exit(0))) });
        some.note(&Step { ranks: ranks(1), ..step(1, Some(How::Exit(0))) });
        assert_eq!(some.all.iter().map(|step| step.ranks.len()).collect::<Vec<_>>(), [MOST_RANKS, 0]);
        assert!(steps.all[0].is_sound() && !Step { name: "x".repeat(300), ..step(0, None) }.is_sound());
    }
}
