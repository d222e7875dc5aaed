//! A job in the queue, and what has become of its tasks.

use crate::array::{Array, Tasks};
use crate::away::{Away, Rooted};
use crate::gres::Gres;
use crate::spec::Spec;
use crate::step::Steps;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// A job, or a task of an array: `17`, `17_4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id {
    /// The job.
    pub job: u64,
    /// The task; for an array `None` means all of them.
    pub task: Option<u32>,
}

impl Id {
    /// All of a job.
    pub fn of(job: u64) -> Id {
        Id { job, task: None }
    }

    /// Reads `17` and `17_4`.
    pub fn read(text: &str) -> Result<Id, String> {
        let wrong = || format!("`{text}` is not a job: say 17, or 17_4 for a task of an array");
        let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
        let (job, task) = text.split_once('_').map_or((text, None), |(job, task)| (job, Some(task)));
        if !digits(job) || !task.is_none_or(digits) {
            return Err(wrong());
        }
        let task = task.map(|t| t.parse().map_err(|_| wrong())).transpose()?;
        Ok(Id { job: job.parse().map_err(|_| wrong())?, task })
    }

    /// Reads what [`Id::read`] does, and `17_[4-6,9]`: some tasks of an array, as queues are shown. The error is for people.
    pub fn read_all(text: &str) -> Result<Vec<Id>, String> {
        let Some((job, set)) = text.strip_suffix(']').and_then(|text| text.split_once("_[")) else {
            return Id::read(text).map(|id| vec![id]);
        };
        let job = Id::read(job).ok().filter(|id| id.task.is_none());
        let job = job.ok_or_else(|| format!("`{text}` is not a job: say 17_[4-6,9] for tasks of an array"))?.job;
        let set = Array::read(set).map_err(|why| format!("`{text}`: {why}"))?;
        Ok(set.tasks.iter().map(|task| Id { job, task: Some(task) }).collect())
    }
}

impl Display for Id {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job)?;
        self.task.map_or(Ok(()), |task| write!(f, "_{task}"))
    }
}

/// Slurm's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// It waits.
    Pending,
    /// It has nodes.
    Running,
    /// It stands still for another one.
    Suspended,
    /// It was told to end.
    Completing,
    /// It ended well.
    Completed,
    /// It ended badly.
    Failed,
    /// Somebody ended it, or what it waited for can't come any more.
    Cancelled,
    /// Its time was over.
    Timeout,
    /// A node was lost.
    NodeFail,
    /// It ended for another one (never yet: those stand still).
    Preempted,
    /// Its memory was not enough.
    OutOfMemory,
    /// It could not end by its deadline.
    Deadline,
    /// It goes back to the queue (only told of: it is pending then).
    Requeued,
}

impl State {
    /// Nothing more happens to it.
    pub fn is_final(self) -> bool {
        !matches!(self, State::Pending | State::Running | State::Suspended | State::Completing | State::Requeued)
    }

    /// Slurm's long and short names.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            State::Pending => ("PENDING", "PD"),
            State::Running => ("RUNNING", "R"),
            State::Suspended => ("SUSPENDED", "S"),
            State::Completing => ("COMPLETING", "CG"),
            State::Completed => ("COMPLETED", "CD"),
            State::Failed => ("FAILED", "F"),
            State::Cancelled => ("CANCELLED", "CA"),
            State::Timeout => ("TIMEOUT", "TO"),
            State::NodeFail => ("NODE_FAIL", "NF"),
            State::Preempted => ("PREEMPTED", "PR"),
            State::OutOfMemory => ("OUT_OF_MEMORY", "OOM"),
            State::Deadline => ("DEADLINE", "DL"),
            State::Requeued => ("REQUEUED", "RQ"),
        }
    }
}

impl Display for State {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(self.names().0)
    }
}

/// What a task has of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The node.
    pub node: String,
    /// Ranks that run there.
    pub ranks: u32,
    /// CPUs that are its own.
    pub cpus: u32,
    /// Megabytes that are its own.
    pub memory: u64,
    /// Generic resources that are its own.
    pub gres: Vec<Gres>,
}

/// What a task has used, as the nodes have measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// CPU time, milliseconds.
    pub cpu_ms: u64,
    /// The most memory, megabytes.
    pub memory_mb: u64,
    /// The most of its scratch directory at its first node that was seen to be in use, megabytes.
    pub scratch_mb: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Energy, millijoules: its part of what its first node has used. None where that does not say it.
    pub energy_mj: Option<u64>,
}

impl Usage {
    /// And this besides: at other nodes, where memory is another one.
    pub fn add(&mut self, other: &Usage) {
        self.cpu_ms += other.cpu_ms;
        self.memory_mb = self.memory_mb.max(other.memory_mb);
        self.scratch_mb = self.scratch_mb.max(other.scratch_mb);
        self.read += other.read;
        self.written += other.written;
        if let Some(energy) = other.energy_mj {
            *self.energy_mj.get_or_insert(0) += energy;
        }
    }
}

/// What was asked for, as accounts show it when the queue has forgotten the job. All of it is empty in what earlier versions have written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// The task's own number, see [`Job::number_of`]; 0 if it has none.
    pub number: u64,
    /// When, milliseconds since 1970.
    pub submitted: u64,
    /// It could not have begun before.
    pub eligible: u64,
    /// The partition.
    pub partition: String,
    /// Quality of service.
    pub quality: Option<String>,
    /// How long it might run, milliseconds.
    pub limit_ms: Option<u64>,
    /// Nodes, ranks and CPUs, at least.
    pub nodes: u32,
    /// See there.
    pub ranks: u32,
    /// See there.
    pub cpus: u64,
    /// Megabytes of each node.
    pub memory: u64,
    /// Megabytes for each CPU.
    pub memory_per_cpu: u64,
    /// What each node was to have.
    pub features: Vec<String>,
    /// Where it was to run.
    pub reservation: Option<String>,
    /// What its user sorts his jobs by.
    pub wckey: String,
}

/// How the processes of a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// With this status; 0 is well.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// The kernel ended it for its memory.
    OutOfMemory,
    /// This node was lost.
    NodeLost(String),
    /// It never began, and why: no process of it has run.
    NotBegun(String),
    /// The same, and it is its own doing: it is not tried again.
    CantBegin(String),
}

/// Why a task that has nodes is ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// This user wanted it.
    Cancelled(String),
    /// It was an allocation, and is not needed any more.
    GivenBack,
    /// Its time is over.
    Timeout,
    /// Its deadline has come.
    Deadline,
    /// This node was lost.
    NodeFail(String),
    /// It is to run again, at once or when it is released.
    Requeue {
        /// It waits until it is released.
        hold: bool,
    },
}

/// A task that has nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// How often this task had nodes before: tells apart what is said of this time and of an earlier one.
    pub run: u32,
    /// When it got them.
    pub started: u64,
    /// When its processes began.
    pub began: Option<u64>,
    /// What it has of each.
    pub shares: Vec<Share>,
    /// It stands still since then.
    pub suspended_at: Option<u64>,
    /// It stood still for so long before.
    pub suspended_ms: u64,
    /// It was told to end.
    pub ending: Option<Cause>,
    /// An operator has it stand still: only an operator has it go on.
    #[serde(default)]
    pub parked: bool,
    /// It has had the signal that it wanted before its end.
    #[serde(default)]
    pub warned: bool,
    /// The parallel jobs that its script has started.
    #[serde(default)]
    pub steps: Steps,
    /// It has given way, and computes elsewhere.
    #[serde(default)]
    pub away: Option<Away>,
    /// It could not, when it was last to.
    #[serde(default)]
    pub rooted: Option<Rooted>,
}

impl Run {
    /// One that begins.
    pub fn new(run: u32, started: u64, shares: Vec<Share>) -> Run {
        Run {
            run,
            started,
            began: None,
            shares,
            suspended_at: None,
            suspended_ms: 0,
            ending: None,
            parked: false,
            warned: false,
            steps: Steps::default(),
            away: None,
            rooted: None,
        }
    }

    /// Its CPUs.
    pub fn cpus(&self) -> u64 {
        self.shares.iter().map(|s| u64::from(s.cpus)).sum()
    }

    /// How long it has run, without the time that it stood still.
    pub fn ran(&self, now: u64) -> u64 {
        let still = self.suspended_ms + self.suspended_at.map_or(0, |at| now.saturating_sub(at));
        now.saturating_sub(self.started).saturating_sub(still)
    }

    /// Its state.
    pub fn state(&self) -> State {
        match (&self.ending, self.suspended_at) {
            (Some(_), _) => State::Completing,
            (None, Some(_)) => State::Suspended,
            (None, None) => State::Running,
        }
    }
}

/// A job: one for each submission, however many tasks it has. Tasks that wait and tasks that ended are sets of numbers. A job that is no array
/// has one task, number 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// What was asked for.
    pub spec: Spec,
    /// When.
    pub submitted: u64,
    /// It grows older since then: it was submitted, or released.
    pub since: u64,
    /// It does not start before: it asked for that, or has just failed to.
    pub not_before: u64,
    /// Tasks that wait.
    pub waiting: Tasks,
    /// Those of them that are held.
    pub held: Tasks,
    /// An operator holds it: its user can't release it.
    pub held_by_operator: bool,
    /// Tasks that have nodes.
    pub running: BTreeMap<u32, Run>,
    /// Tasks that ended, by how.
    pub over: BTreeMap<State, Tasks>,
    /// Tasks that had nodes before, and how often.
    pub again: BTreeMap<u32, u32>,
    /// When one of its tasks last got nodes.
    pub last_start: Option<u64>,
    /// When the last one ended, if all have.
    pub ended: Option<u64>,
}

impl Job {
    pub(crate) fn new(id: u64, spec: Spec, at: u64) -> Job {
        let waiting = spec.array.as_ref().map_or_else(|| Tasks::one(0), |a| a.tasks.clone());
        let held = if spec.hold { waiting.clone() } else { Tasks::default() };
        Job {
            id,
            submitted: at,
            since: spec.begin_at.unwrap_or(0).max(at),
            not_before: spec.begin_at.unwrap_or(0),
            waiting,
            held,
            held_by_operator: false,
            running: BTreeMap::new(),
            over: BTreeMap::new(),
            again: BTreeMap::new(),
            last_start: None,
            ended: None,
            spec,
        }
    }

    /// It is an array.
    pub fn is_array(&self) -> bool {
        self.spec.array.is_some()
    }

    /// What people call a task of it.
    pub fn name_of(&self, task: u32) -> Id {
        Id { job: self.id, task: self.is_array().then_some(task) }
    }

    /// How many numbers it has: each task of an array has one, the first one the array's.
    pub fn numbers(&self) -> u64 {
        self.spec.array.as_ref().filter(|array| array.numbered).map_or(1, |array| array.tasks.len().max(1))
    }

    /// A task's own number, which no other task of any job has (but in arrays of earlier versions, whose tasks all have the array's).
    pub fn number_of(&self, task: u32) -> u64 {
        let array = self.spec.array.as_ref().filter(|array| array.numbered);
        self.id + array.and_then(|array| array.tasks.position(task)).unwrap_or(0)
    }

    /// Tasks that an id means: all, if it names none.
    pub(crate) fn meant(&self, id: Id, among: &Tasks) -> Tasks {
        match id.task {
            None => among.clone(),
            Some(task) if self.is_array() && among.contains(task) => Tasks::one(task),
            Some(_) => Tasks::default(),
        }
    }

    /// How it stands with a task.
    pub fn state(&self, task: u32) -> Option<State> {
        if self.waiting.contains(task) {
            return Some(State::Pending);
        }
        let over = || self.over.iter().find(|(_, tasks)| tasks.contains(task)).map(|(state, _)| *state);
        self.running.get(&task).map(Run::state).or_else(over)
    }

    /// Nothing of it waits or has nodes.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        for text in ["17", "17_4"] {
            assert_eq!(Id::read(text).unwrap().to_string(), text);
        }
        for wrong in ["", "a", "1_", "_1", "1_2_3", "-1", "99999999999999999999999"] {
            assert!(Id::read(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        let all =
            |text: &str| Id::read_all(text).map(|all| all.iter().map(Id::to_string).collect::<Vec<_>>().join(" "));
        assert_eq!((all("17"), all("17_4")), (Ok("17".into()), Ok("17_4".into())));
        assert_eq!(all("33_[4-5,9%2]"), Ok("33_4 33_5 33_9".into()));
        for wrong in ["33_[]", "33_[4", "33_4]", "_[4]", "33_4_[5]", "33_[a]", "33_[5-4]"] {
            assert!(all(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
