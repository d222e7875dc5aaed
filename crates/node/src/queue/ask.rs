//! What a user's command asks of the queue (`POST /v1/queue`), and what it is told. At other nodes than the queue's own the daemon passes it on.

use crate::views::Drain;
use pando_queue::{Bytes, Id, Job, Outcome, Reservation, Share, Spec, State, Update};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A question or an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// A new job. The answer is its number.
    Submit(Box<Spec>),
    /// What is in the queue. The answer: [`Line`]s.
    List,
    /// They are to end, or not to begin; or their processes get a signal. The answer: [`Done`].
    Cancel {
        /// Which.
        ids: Vec<Id>,
        /// All of this user, besides.
        user: Option<String>,
        /// This signal, and no more.
        signal: Option<i32>,
        /// To whom that goes.
        #[serde(default)]
        whom: Whom,
    },
    /// Steps are to end (`17.0`), or their ranks get a signal. The answer: [`Done`].
    CancelSteps {
        /// Jobs, and numbers of their steps.
        steps: Vec<(Id, u32)>,
        /// This signal, and no more.
        signal: Option<i32>,
    },
    /// They are not to start. The answer: [`Done`].
    Hold(Vec<Id>),
    /// They may start. The answer: [`Done`].
    Release(Vec<Id>),
    /// They are to run again from the beginning. The answer: [`Done`].
    Requeue {
        /// Which.
        ids: Vec<Id>,
        /// And wait until they are released.
        hold: bool,
    },
    /// They are to stand still, or to go on (operators). The answer: [`Done`].
    Park {
        /// Which.
        ids: Vec<Id>,
        /// Stand still.
        still: bool,
    },
    /// Nodes and partitions as the queue has them. The answer: [`Cluster`].
    Cluster,
    /// What people mean by these: a task of an array has a number of its own, too. The answer: [`Id`]s, in the same order.
    Named(Vec<Id>),
    /// Something about it is to be otherwise. The answer: [`Done`].
    Update(u64, Update),
    /// All of one job. The answer: [`Shown`].
    Show(Id),
    /// Tasks that have ended. The answer: [`Past`]s, the newest last.
    History {
        /// Of this user only.
        user: Option<String>,
        /// Of this job only.
        job: Option<u64>,
        /// That ended then or later, milliseconds since 1970.
        since: u64,
        /// So many.
        most: u32,
    },
    /// Waits until a job is over, so long. The answer: [`Over`].
    Wait {
        /// Which.
        id: Id,
        /// Milliseconds; at most a minute.
        patience_ms: u64,
    },
    /// Some of what a task has written, as its file at its first node has it. The answer: [`Piece`].
    Read {
        /// Which.
        id: Id,
        /// Its errors, and not its output.
        error: bool,
        /// From where.
        from: From,
        /// If there is nothing yet it is waited for so long, milliseconds; at most ten seconds.
        patience_ms: u64,
    },
    /// How it stands with an allocation, as soon as that is not `known`; whose user is still there, or it ends. The answer: [`Tied`].
    Tie {
        /// Which.
        job: u64,
        /// What the asker knows.
        known: Option<State>,
        /// So long otherwise, milliseconds; at most ten seconds.
        patience_ms: u64,
    },
    /// An allocation is not needed any more. The answer: [`Done`].
    GiveBack(u64),
    /// Nodes for some only, or for nobody, for a time (operators). The answer: [`Done`].
    Reserve(Reservation),
    /// No longer (operators). The answer: [`Done`].
    Unreserve(String),
    /// What jobs have used. The answer: [`Row`](super::usage::Row)s, by day, user and name.
    Usage {
        /// Of this user only.
        user: Option<String>,
        /// Of those that ended then or later, milliseconds since 1970.
        since: u64,
    },
    /// How users can be told of their jobs. The answer: [`Sends`].
    Sends,
    /// The nodes that the queue knows, with what they have and what others use of it. The answer: [`Node`](pando_queue::Node)s.
    Nodes,
    /// How a gang takes turns. The answer: [`TurnTerms`](super::gangs::TurnTerms).
    Turns {
        /// Its quality of service.
        quality: Option<String>,
        /// The batch job whose step it is.
        job: Option<Id>,
    },
    /// What is reserved. The answer: [`Reservation`]s.
    Reservations,
    /// What these, or all, have used until now that run. The answer: [`Id`]s with their [`Usage`](pando_queue::Usage)s.
    Used(Vec<Id>),
}

impl Ask {
    /// Does it come to the same if it is heard twice? A job that is submitted has a ticket for that.
    pub fn may_come_twice(&self) -> bool {
        match self {
            Ask::Submit(spec) => !spec.ticket.is_empty(),
            Ask::Requeue { .. } | Ask::Cancel { signal: Some(_), .. } | Ask::CancelSteps { signal: Some(_), .. } => {
                false
            }
            _ => true,
        }
    }

    /// Each task that it names.
    pub fn ids(&mut self) -> Vec<&mut Id> {
        match self {
            Ask::Cancel { ids, .. } | Ask::Hold(ids) | Ask::Release(ids) | Ask::Requeue { ids, .. } => {
                ids.iter_mut().collect()
            }
            Ask::Park { ids, .. } | Ask::Named(ids) | Ask::Used(ids) => ids.iter_mut().collect(),
            Ask::Show(id) | Ask::Wait { id, .. } | Ask::Read { id, .. } => vec![id],
            Ask::CancelSteps { steps, .. } => steps.iter_mut().map(|(id, _)| id).collect(),
            _ => Vec::new(),
        }
    }
}

/// Which processes of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whom {
    /// All of them.
    #[default]
    All,
    /// Its script alone.
    Script,
    /// Its steps, and not its script.
    Steps,
}

/// How users can be told of their jobs, as the administrator has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sends {
    /// By mail.
    pub mail: bool,
    /// By webhook.
    pub webhooks: bool,
}

/// What has been done, and what could not be, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Not done, and why.
    pub refused: Vec<String>,
}

/// A job, or a task of an array, as `pando queue` lists it. Tasks of an array that wait are one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// `17`, `17_4`, `17_[5-9]`.
    pub id: String,
    /// Its job's number.
    pub job: u64,
    /// Its own number: of a task that has nodes not its job's.
    #[serde(default)]
    pub number: u64,
    /// What it is called.
    pub name: String,
    /// Whose it is.
    pub user: String,
    /// Its partition.
    pub partition: String,
    /// How it stands.
    pub state: State,
    /// How long it has run, milliseconds.
    pub ran_ms: u64,
    /// How long it may.
    pub limit_ms: Option<u64>,
    /// Nodes that it has, or wants.
    pub node_count: u32,
    /// CPUs that it has, or wants at least.
    pub cpus: u64,
    /// Nodes that it has.
    pub nodes: Vec<String>,
    /// Whose share it is taken from.
    #[serde(default)]
    pub account: String,
    /// Its quality of service.
    #[serde(default)]
    pub quality: Option<String>,
    /// Ranks that it has, or wants.
    #[serde(default)]
    pub ranks: u32,
    /// Megabytes of each node.
    #[serde(default)]
    pub memory: u64,
    /// Megabytes for each CPU.
    #[serde(default)]
    pub memory_per_cpu: u64,
    /// What its user notes; empty for others, but for operators.
    #[serde(default)]
    pub comment: String,
    /// Where it runs.
    #[serde(default)]
    pub directory: Bytes,
    /// Others go first.
    #[serde(default)]
    pub nice: i32,
    /// Why it does not run, in few words.
    pub reason: String,
    /// Higher ones go first; of what runs that which it began with.
    pub priority: f64,
    /// When it was submitted, milliseconds since 1970.
    pub submitted: u64,
    /// When it got its nodes.
    pub started: Option<u64>,
    /// Why it does not run again, or how: its dependency as it was written, or what is left of it.
    #[serde(default)]
    pub dependency: String,
    /// What each node must be said to have.
    #[serde(default)]
    pub features: Vec<String>,
    /// Generic resources of each node.
    #[serde(default)]
    pub gres: String,
    /// Nodes that it wants, and does not.
    #[serde(default)]
    pub wanted: (Vec<String>, Vec<String>),
    /// CPUs of each rank.
    #[serde(default)]
    pub cpus_per_rank: u32,
    /// The reservation that it is to run in.
    #[serde(default)]
    pub reservation: String,
    /// What its user sorts his jobs by.
    #[serde(default)]
    pub wckey: String,
    /// It could not have begun before.
    #[serde(default)]
    pub eligible: u64,
    /// What is remembered of the steps of its run.
    #[serde(default)]
    pub steps: pando_queue::Steps,
    /// How often it had nodes before.
    #[serde(default)]
    pub restarts: u32,
    /// Nobody else is on its nodes.
    #[serde(default)]
    pub exclusive: bool,
}

/// All of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// It; its script, words, environment, comment and who is told of it only for its user and for operators.
    pub job: Job,
    /// How it stands.
    pub state: State,
    /// The same in a word of Slurm's.
    #[serde(default)]
    pub reason: String,
    /// What is in its way, a sentence.
    pub why: Option<String>,
    /// Its priority, and how many jobs have more.
    pub priority: Option<(f64, usize)>,
    /// When it starts at the latest, as far as can be known, milliseconds since 1970.
    pub expected: Option<u64>,
    /// When what runs of it must end at the latest.
    pub ends: Option<u64>,
    /// The node that keeps the queue.
    pub keeper: String,
    /// Why it could not be begun, or was lost, when it last had nodes.
    pub last_failure: Option<String>,
}

/// A task that has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Past {
    /// What it was called.
    pub name: String,
    /// Whose it was.
    pub user: String,
    /// Whose share it was taken from.
    pub account: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// The end of a job; none as long as something of it waits or runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Over {
    /// The worst of its tasks', and its status as a shell has it.
    pub end: Option<(State, i32)>,
}

/// Where to read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum From {
    /// This byte.
    Byte(u64),
    /// So many lines before the end.
    Lines(u64),
}

/// Some of what a task has written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// The number of its run; none: it has not begun.
    pub run: Option<u32>,
    /// The bytes; none where there are no more yet.
    pub bytes: Bytes,
    /// Where they begin in the file: not where was asked, if that has become shorter.
    pub at: u64,
    /// Nothing more will be written: this is its end as [`Over`] has it, and `bytes` is all that was left, if there are none.
    pub end: Option<(State, i32)>,
    /// What it waits for, in few words, if it does.
    pub reason: String,
}

/// How it stands with an allocation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tied {
    /// The state.
    pub state: State,
    /// Its nodes are ready.
    pub began: bool,
    /// What it has of them.
    pub shares: Vec<Share>,
}

/// A node as the queue has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeUse {
    /// What it has.
    pub node: pando_queue::Node,
    /// CPUs and megabytes that batch jobs have of it.
    pub used: (u64, u64),
    /// Batch jobs that have some of it.
    pub jobs: u32,
    /// `idle`, `mixed`, `allocated`; `drained`, or `draining` while jobs run there.
    pub state: String,
    /// Why it is drained, once somebody has looked for that in [`Cluster::drains`].
    #[serde(default)]
    pub drain: Option<Drain>,
}

/// A partition as the queue has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartitionUse {
    /// Its name.
    pub name: String,
    /// That of jobs that name none.
    pub usual: bool,
    /// Its rules.
    pub rules: pando_queue::Partition,
    /// Nodes of it that are there.
    pub nodes: Vec<String>,
}

/// What jobs may have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cluster {
    /// Nodes that are there.
    pub nodes: Vec<NodeUse>,
    /// Members of the cluster that are away, with what they had; no CPUs: nobody knows.
    #[serde(default)]
    pub absent: Vec<pando_queue::Node>,
    /// Partitions.
    pub partitions: Vec<PartitionUse>,
    /// The rules of the queue.
    pub rules: pando_queue::Settings,
    /// The node that keeps it.
    pub keeper: String,
    /// Nodes that are drained, and why.
    #[serde(default)]
    pub drains: BTreeMap<String, Drain>,
}
