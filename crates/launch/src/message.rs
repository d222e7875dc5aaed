//! What is said in a job's tree. The process that starts a node's ranks (its *launcher*) is a leaf and speaks as a node does.

use crate::names::{Name, Named};
use crate::order::{Environment, Order, Share};
use crate::spawn::{Spawn, Spawned};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Which stream of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ending {
    /// With this status.
    Exit(u8),
    /// By this signal.
    Signal(u8),
    /// With status 0, but in the middle of MPI: others may wait for it.
    Early,
    /// It was ended, for it took longer than it may.
    Late,
    /// It was ended, for its job had more memory there than it may.
    OutOfMemory,
}

/// A user as a node knows it: number, main group, all groups.
pub type Identity = (u32, u32, Vec<u32>);

/// The first frame on a link: what is to be done, and which place of the order the reader has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The reader's place.
    pub place: u32,
    /// The order.
    pub order: Order,
    /// For a launcher; for a node nothing is in it.
    pub own: Own,
}

/// What only a node's own launcher is told of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// What its ranks have in their environment, by which its node finds them.
    pub mark: String,
    /// Whose rights its ranks get; none where that user is nobody here.
    pub user: Option<Identity>,
    /// The CPUs of each of its ranks. Empty: as they come.
    pub cpus: Vec<Vec<u16>>,
    /// The file of the program, if that has come along.
    pub program: Option<serde_bytes::ByteBuf>,
    /// The directory with what else has come along, if there is one.
    pub along: Option<serde_bytes::ByteBuf>,
    /// The control group that its ranks enter (a list of processes), if the job takes turns with others.
    pub group: Option<serde_bytes::ByteBuf>,
    /// Control groups of the batch job that its ranks are part of; none, if they are of none, or it has none here.
    pub groups: Vec<serde_bytes::ByteBuf>,
    /// Variables in the place of the user's.
    pub variables: Environment,
}

/// What is said at a barrier: a name, and bytes.
pub type Said = (String, serde_bytes::ByteBuf);

/// What a rank wants of its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// Something of the job's names.
    Name(Name),
    /// The port of this name, as soon as there is one.
    Await(String),
    /// More ranks.
    Spawn(Spawn),
    /// To meet these ranks of it; those of them that run here have come together, and say this.
    Meet {
        /// All of them.
        ranks: Vec<u32>,
        /// What those here say to the others.
        said: serde_bytes::ByteBuf,
    },
}

/// Who has a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// Where it runs.
    pub place: u32,
    /// The rank.
    pub rank: u32,
    /// The wish's number there.
    pub number: u64,
}

/// What has come of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Granted {
    /// See there.
    Named(Named),
    /// See there.
    Spawned(Spawned),
    /// All have come: the places, and what was said at each. The error is for people.
    Met(Result<Vec<Said>, String>),
}

/// One rank wants to know what another one has said, which runs elsewhere (PMIx's direct modex). It takes the shortest way through the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Modex {
    /// What has it said? Its launcher answers when it has said something.
    Wanted {
        /// Who asks.
        place: u32,
        /// The question's number there.
        number: u64,
        /// The rank that is asked about.
        rank: u32,
    },
    /// This.
    Found {
        /// Who asked.
        place: u32,
        /// The question's number there.
        number: u64,
        /// The rank that was asked about.
        rank: u32,
        /// None: nobody can tell any more.
        said: Option<serde_bytes::ByteBuf>,
    },
}

/// What processes have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// CPU time, milliseconds.
    pub cpu_ms: u64,
    /// The most memory that one process had at once, bytes.
    pub memory: u64,
    /// Bytes read from disks.
    pub read: u64,
    /// Bytes written to disks.
    pub written: u64,
}

impl Amount {
    /// Both together.
    pub fn and(self, other: Amount) -> Amount {
        Amount {
            cpu_ms: self.cpu_ms.saturating_add(other.cpu_ms),
            memory: self.memory.max(other.memory),
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
        }
    }
}

/// Ranks of a job of whom each is told what it has used; of larger ones only the sum is known.
pub const MOST_RAN: usize = 1024;

/// What one rank has used, with those of its children that it has waited for, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// The rank.
    pub rank: u32,
    /// Where it ran.
    pub place: u32,
    /// How it ended.
    pub how: Ending,
    /// What it used.
    pub used: Amount,
}

/// What ranks have used, and what they have left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// All of them.
    pub all: Amount,
    /// Those that are in no control group of the batch job that this one is a step of: nobody else counts them for it.
    pub away: Amount,
    /// Each; of a job of more than [`MOST_RAN`] some.
    pub ranks: Vec<Ran>,
}

impl Used {
    /// Both together.
    pub fn and(mut self, other: Used) -> Used {
        (self.all, self.away) = (self.all.and(other.all), self.away.and(other.away));
        self.ranks.extend(other.ranks);
        self.ranks.truncate(MOST_RAN);
        self
    }
}

/// Bytes of which there is one copy.
mod shared {
    use serde::{Deserializer, Serializer};
    use std::sync::Arc;

    pub fn serialize<S: Serializer>(bytes: &Arc<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        serde_bytes::serialize(&**bytes, to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Vec<u8>>, D::Error> {
        serde_bytes::deserialize::<Vec<u8>, D>(from).map(Arc::new)
    }
}

/// Down the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Down {
    /// All are ready: begin.
    Start,
    /// Bytes for the ranks that get standard input.
    Stdin(#[serde(with = "serde_bytes")] Vec<u8>),
    /// There are no more.
    StdinEnds,
    /// To every process of every rank.
    Signal(u8),
    /// So many bytes of this place's output have been taken: it may send as many more.
    Taken {
        /// The place.
        place: u32,
        /// Bytes.
        bytes: u32,
    },
    /// All ranks have come to the barrier; what they said there.
    Fenced(Vec<Said>),
    /// One of many tasks (in a job that has no ranks but slots).
    Task {
        /// Where it runs.
        place: u32,
        /// Its number.
        task: u32,
        /// The program and its arguments.
        words: Vec<serde_bytes::ByteBuf>,
    },
    /// There are no more tasks.
    NoMore,
    /// A piece of a file.
    Piece {
        /// Which of the order's files.
        file: u16,
        /// Which piece.
        index: u32,
        /// Its bytes: the same for all that get it.
        #[serde(with = "shared")]
        bytes: Arc<Vec<u8>>,
    },
    /// For one place.
    Modex(Modex),
    /// What has come of a rank's wish.
    Granted {
        /// Whose.
        asker: Asker,
        /// The answer.
        granted: Granted,
    },
    /// Everything ends at once.
    Kill,
    /// The job is over here and below, and its parent has heard so: what comes next on the link is another job's order.
    End,
    /// Nothing; the link lives.
    Beat,
    /// The user's terminal has this size now: rows, columns.
    Size(u16, u16),
    /// This place is to give back the tasks that wait there: others have nothing to do.
    Recall(u32),
}

/// Up the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Up {
    /// A launcher is this process.
    Launcher(i32),
    /// Everybody here and below can begin.
    Ready,
    /// A place can't; it is over there.
    Refused {
        /// The place.
        place: u32,
        /// Why, for people.
        why: String,
    },
    /// What a rank wrote.
    Output {
        /// Where it runs.
        place: u32,
        /// The rank.
        rank: u32,
        /// Where to.
        stream: Stream,
        /// The bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// So many bytes of standard input have been taken here and below, by everyone who still wants any.
    StdinTaken(u64),
    /// A rank has not ended well. Those that have are not told of one by one.
    Ended {
        /// Where it ran.
        place: u32,
        /// The rank.
        rank: u32,
        /// How.
        how: Ending,
    },
    /// All ranks here and below have come to the barrier, and this is what they say.
    Fence(Vec<Said>),
    /// A file is wanted here or below: its pieces up to this one may come.
    Want {
        /// Which of the order's files.
        file: u16,
        /// Up to which piece.
        upto: u32,
    },
    /// For a place that is not below.
    Modex(Modex),
    /// A rank wants something of the job.
    Wish {
        /// Who.
        asker: Asker,
        /// What.
        wish: Wish,
    },
    /// A rank wants the job to end (MPI_Abort).
    Abort {
        /// The rank.
        rank: u32,
        /// The status that it wants.
        status: u8,
    },
    /// A task has ended; all that it wrote has been said.
    Done {
        /// Where it ran.
        place: u32,
        /// Its number.
        task: u32,
        /// How.
        how: Ending,
        /// Milliseconds that it ran.
        ran_ms: u64,
    },
    /// A place is not heard any more.
    Lost {
        /// The place.
        place: u32,
        /// Why, for people.
        why: String,
    },
    /// All ranks here and below have ended, all that they said has been said, and nothing is left of them.
    Gone,
    /// Nothing; the link lives.
    Beat,
    /// What all ranks here and below have used; the last word before `Gone`.
    Used(Used),
    /// These tasks have been called back before they began.
    Returned {
        /// Where they were.
        place: u32,
        /// Their numbers.
        tasks: Vec<u32>,
    },
}

/// From the one who runs the job (`pando run`) to the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Bytes of standard input.
    Stdin(#[serde(with = "serde_bytes")] Vec<u8>),
    /// There are no more.
    StdinEnds,
    /// To every process of every rank.
    Signal(u8),
    /// So many bytes of a place's output are where they belong.
    Taken {
        /// The place.
        place: u32,
        /// Bytes.
        bytes: u32,
    },
    /// One of many tasks.
    Task {
        /// Where it runs.
        place: u32,
        /// Its number.
        task: u32,
        /// The program and its arguments.
        words: Vec<serde_bytes::ByteBuf>,
    },
    /// There are no more tasks.
    NoMore,
    /// A piece of a file.
    Piece {
        /// Which of the order's files.
        file: u16,
        /// Which piece.
        index: u32,
        /// Its bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Everything ends at once.
    Kill,
    /// The user's terminal has this size now: rows, columns.
    Size(u16, u16),
    /// This place is to give back the tasks that wait there.
    Recall(u32),
}

/// From the head to the one who runs the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    /// It can't be done.
    No(String),
    /// It waits for something, and begins when that is there.
    Waits(String),
    /// All ranks begin.
    Begun {
        /// The job's number.
        job: u64,
        /// Of a step of a batch job its number there.
        step: Option<u32>,
        /// Who runs which ranks.
        nodes: Vec<Share>,
    },
    /// These ranks, too: others have started them.
    More(Vec<Share>),
    /// What a rank wrote.
    Output {
        /// Where it runs.
        place: u32,
        /// The rank.
        rank: u32,
        /// Where to.
        stream: Stream,
        /// The bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// So many bytes of standard input have been taken.
    StdinTaken(u64),
    /// A file is wanted: its pieces up to this one may come.
    Want {
        /// Which of the order's files.
        file: u16,
        /// Up to which piece.
        upto: u32,
    },
    /// A rank has not ended well.
    Ended {
        /// The node.
        node: String,
        /// The rank.
        rank: u32,
        /// How.
        how: Ending,
        /// The others are ended because of it.
        fatal: bool,
    },
    /// A rank has ended the job (MPI_Abort).
    Abort {
        /// The rank.
        rank: u32,
        /// The status that it wants.
        status: u8,
    },
    /// A task has ended.
    Done {
        /// Where it ran.
        place: u32,
        /// Its number.
        task: u32,
        /// How.
        how: Ending,
        /// Milliseconds that it ran.
        ran_ms: u64,
    },
    /// A place was lost; the tasks that were there may run elsewhere.
    Without {
        /// The place.
        place: u32,
        /// Why, for people.
        why: String,
    },
    /// A node was lost, and the job is ended.
    Lost {
        /// The node.
        node: String,
        /// Why, for people.
        why: String,
    },
    /// Nothing is left of it.
    Over,
    /// It has run for as long as it may, and is ended.
    TimeOver,
    /// These tasks have been called back before they began.
    Returned {
        /// Where they were.
        place: u32,
        /// Their numbers.
        tasks: Vec<u32>,
    },
}
