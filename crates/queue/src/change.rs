//! What comes into the queue and what goes out of it.

use crate::array::Tasks;
use crate::bytes::Bytes;
use crate::gres::Gres;
use crate::job::{Asked, Cause, How, Id, Job, Run, Share, State, Usage};
use crate::spec::{Files, Spec};
use crate::step::Step;
use serde::{Deserialize, Serialize};

/// A node, as its daemon says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// CPUs for jobs.
    pub cpus: u32,
    /// Megabytes for jobs.
    pub memory: u64,
    /// Generic resources.
    pub gres: Vec<Gres>,
    /// What it has besides, for `--constraint`.
    pub features: Vec<String>,
    /// It takes no new jobs.
    pub drained: bool,
    /// It is not heard: nothing new begins there, and what runs there goes on until it is lost.
    pub silent: bool,
    /// It may have more than is said here: it was not asked yet.
    pub vague: bool,
    /// CPUs that others than this queue's jobs use now.
    pub busy: u32,
}

/// Nodes that are for some only, or for nobody, for a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reservation {
    /// Its name.
    pub name: String,
    /// Its nodes; all, if there are none.
    pub nodes: Vec<String>,
    /// From then.
    pub begin: u64,
    /// Until then.
    pub end: u64,
    /// Whose jobs may name it (`--reservation`). Nobody's: maintenance.
    pub users: Vec<String>,
}

/// What a user may change of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Update {
    /// `--nice`.
    Nice(i32),
    /// The time limit; who may make it longer is the caller's business.
    Limit(u64),
    /// What people call it.
    Name(String),
    /// Not before.
    Begin(u64),
    /// Tasks of an array that run at a time.
    AtOnce(Option<u32>),
    /// Its partition, while it waits; as what follows.
    Partition(String),
    /// Nodes: at least, at most.
    Nodes(u32, Option<u32>),
    /// Nodes that it must have.
    Wanted(Vec<String>),
    /// Megabytes of each node.
    Memory(u64),
    /// Megabytes for each CPU.
    MemoryPerCpu(u64),
    /// Ranks.
    Ranks(u32),
    /// What each node must have.
    Features(Vec<String>),
    /// Quality of service.
    Quality(String),
}

impl Update {
    /// It is so from now on.
    pub(crate) fn apply(&self, spec: &mut Spec) {
        let request = &mut spec.request;
        match self.clone() {
            Update::Nice(nice) => spec.nice = nice,
            Update::Limit(ms) => spec.limit_ms = Some(ms),
            Update::Name(name) => spec.name = name,
            Update::Begin(begin) => spec.begin_at = Some(begin),
            Update::AtOnce(most) => spec.array.iter_mut().for_each(|array| array.at_once = most),
            Update::Partition(name) => request.partition = Some(name),
            Update::Nodes(least, most) => (request.nodes_min, request.nodes_max) = (least, most),
            Update::Wanted(nodes) => request.wanted = nodes,
            Update::Memory(mb) => (request.memory, request.memory_per_cpu) = (mb, 0),
            Update::MemoryPerCpu(mb) => (request.memory, request.memory_per_cpu) = (0, mb),
            Update::Ranks(ranks) => request.ranks = Some(ranks),
            Update::Features(features) => request.features = features,
            Update::Quality(name) => spec.quality = Some(name),
        }
    }

    /// It says which nodes the job gets: one that has them keeps what it has.
    fn is_of_the_request(&self) -> bool {
        !matches!(self, Update::Nice(_) | Update::Limit(_) | Update::Name(_) | Update::Begin(_) | Update::AtOnce(_))
    }

    /// Why it can't be changed so now. The error is for people.
    pub(crate) fn fits(&self, job: &Job) -> Result<(), String> {
        match self {
            Update::AtOnce(_) if !job.is_array() => Err(format!("job {} is not an array", job.id)),
            _ if self.is_of_the_request() && !job.running.is_empty() => Err(format!(
                "Job is no longer pending execution: what job {} has of its nodes can't be changed",
                job.id
            )),
            _ => Ok(()),
        }
    }
}

/// What comes in. Who may ask for it is the caller's business: the queue knows whose a job is ([`Spec::user`]).
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A new job.
    Submit(Box<Spec>),
    /// It is to end, or not to begin.
    Cancel {
        /// Which.
        id: Id,
        /// Who wants it.
        by: String,
    },
    /// An allocation is not needed any more.
    GiveBack(u64),
    /// It is not to start.
    Hold {
        /// Which.
        id: Id,
        /// An operator wants it, and not its user.
        operator: bool,
    },
    /// It may start.
    Release {
        /// Which.
        id: Id,
        /// As above: what an operator holds only an operator releases.
        operator: bool,
    },
    /// It is to run again from the beginning, even if it has ended.
    Requeue {
        /// Which.
        id: Id,
        /// And waits until it is released.
        hold: bool,
    },
    /// It is to stand still, or to go on when its CPUs are free.
    Park {
        /// Which.
        id: Id,
        /// Stand still.
        still: bool,
    },
    /// Something about it is to be otherwise.
    Update(u64, Update),
    /// A node is there, or has something new to say.
    NodeSeen(Node),
    /// A node is lost, and everything that ran there.
    NodeLost(String),
    /// A node was last heard so long ago, milliseconds: if what ran there is lost, then since that time.
    NodeHeard(String, u64),
    /// All members of the cluster that are not there, with what they have, as far as it is known (no CPUs: it is not).
    Absent(Vec<Node>),
    /// The processes of a task have begun.
    Began(Id, u32),
    /// Nothing is left of a task's processes, or they never began. The number is that of [`Effect::Start`].
    Ended(Id, u32, How, Usage),
    /// The processes of a task are where [`Effect::Place`] wanted them, or all of them are where they were before, and why.
    Placed {
        /// The task.
        id: Id,
        /// Its run.
        run: u32,
        /// The node that was wanted.
        node: String,
        /// Whether it is so.
        how: Result<(), String>,
    },
    /// A step of a user's task has begun, or is over. Nothing comes of it where there is no such run.
    Step {
        /// The task.
        id: Id,
        /// Its run; none: the one that there is.
        run: Option<u32>,
        /// Whose step it is.
        user: String,
        /// The step.
        step: Box<Step>,
    },
    /// A new reservation, or one that changes.
    Reserve(Reservation),
    /// One less.
    Unreserve(String),
    /// Time has passed, or somebody wants to see what can start. Only now is there a pass: after a burst of others, and at [`Queue::wake`].
    ///
    /// [`Queue::wake`]: crate::Queue::wake
    Tick,
}

/// Something that is true from now on. They are all that a queue needs to be the same again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// A job was taken.
    Submitted(u64, Box<Spec>),
    /// Tasks are held.
    Held(u64, Tasks, bool),
    /// Tasks are not held any more.
    Released(u64, Tasks),
    /// Something about it is otherwise.
    Updated(u64, Update),
    /// A task has nodes.
    Started(u64, u32, Vec<Share>),
    /// Its processes have begun.
    Began(u64, u32),
    /// It stands still.
    Suspended(u64, u32),
    /// It goes on.
    Resumed(u64, u32),
    /// An operator has it stand still, or no longer.
    Parked(u64, u32, bool),
    /// It was sent the signal that it wanted before its end.
    Warned(u64, u32),
    /// It was told to end.
    Ending(u64, u32, Cause),
    /// It has ended, and this is what it was.
    Ended(u64, u32, State, How, Usage),
    /// It has ended and waits again: not before then, held or not.
    Requeued(u64, u32, u64, bool),
    /// A step of it has begun, or is over.
    Stepped(u64, u32, Box<Step>),
    /// Tasks that waited won't start any more.
    Over(u64, Tasks, State),
    /// Tasks that had ended wait again.
    Revived(u64, Tasks, bool),
    /// An old job that ended is not remembered any more.
    Forgotten(u64),
    /// Nodes are reserved.
    Reserved(Reservation),
    /// And are not any more.
    Unreserved(String),
    /// The next job has this number: the first record of a shortened journal.
    Next(u64),
    /// The processes of a task are to be moved to this node; its own: home.
    Sent(u64, u32, String),
    /// They are there.
    Placed(u64, u32, String),
    /// They can't go to this node, and why.
    Stayed(u64, u32, String, String),
    /// A job as it stands: in a shortened journal.
    Stands(Box<Job>),
    /// What a user has had: in a shortened journal (account, user, CPU milliseconds as they count).
    Had(String, String, f64),
}

/// A change and when it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Milliseconds since 1970.
    pub at: u64,
    /// What.
    pub change: Change,
}

/// What users want to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It has begun.
    Begun,
    /// It has ended like this.
    Ended(State),
    /// It goes back to the queue.
    Requeued,
}

/// A task that has ended, for accounts and history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Which.
    pub id: Id,
    /// How it ended: [`State::Requeued`] if it will run again.
    pub state: State,
    /// How its processes did.
    pub how: How,
    /// What it has used.
    pub usage: Usage,
    /// When, where and how long it ran.
    pub run: Run,
    /// When it ended.
    pub ended: u64,
    /// Where it ran and wrote: its specification is forgotten sooner. Of earlier versions' jobs it is not known (empty).
    #[serde(default)]
    pub directory: Bytes,
    /// See above.
    #[serde(default)]
    pub files: Files,
    /// See above.
    #[serde(default)]
    pub asked: Asked,
}

/// What the caller has to do, in this order. Nothing may be done before the records that came before it are stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// To be stored.
    Record(Record),
    /// The answer to [`Input::Submit`]: its number.
    Accepted(u64),
    /// The answer to what can't be, in words.
    Refused(String),
    /// Begin a task on these nodes: say [`Input::Began`] or [`Input::Ended`] with its number of the run.
    Start(Id, u32, Vec<Share>),
    /// End a task. [`Input::Ended`] has to follow, whatever becomes of its nodes.
    End(Id, u32, Cause),
    /// Stop all processes of a task.
    Suspend(Id, u32),
    /// Let them go on.
    Resume(Id, u32),
    /// Have all processes of a task at this node (its own: home), and say [`Input::Placed`].
    Place(Id, u32, String),
    /// Its time is nearly over: it gets the signal that it wanted ([`Spec::signal`](crate::Spec)).
    Warn(Id, u32),
    /// Tell its user ([`Spec::tell`] wants it). Without a task it is about all of the job.
    Notify(Id, Event),
    /// For accounts and history.
    Outcome(Box<Outcome>),
}
