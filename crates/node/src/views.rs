//! What the local API answers, as data. The command line reads the same types.

pub use pando_balance::{Children, Wish};
use pando_migrate::control::Io;
pub use pando_migrate::control::MoveRecord;
use pando_migrate::inspect::Inspection;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `GET /v1/info`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Info {
    /// This node.
    pub name: String,
    /// Its cluster.
    pub cluster: String,
    /// `system` or `personal`.
    pub mode: String,
    /// The daemon's pid.
    pub pid: u32,
    /// The program's version.
    pub release: String,
    /// Where other nodes reach it.
    pub addr: String,
    /// What the machine does not let it do, in sentences.
    #[serde(default)]
    pub lacks: Vec<String>,
}

/// `GET /v1/fabric`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FabricStatus {
    /// Which fabric: a number that its founder took, in hexadecimal. Empty when this node is in none.
    pub founding: String,
    /// The view's number.
    pub epoch: u64,
    /// Who gives the operations their order.
    pub manager: String,
    /// All.
    pub members: Vec<String>,
    /// What it waits for, if it can't go on.
    pub waits: Option<String>,
    /// The manager's heartbeat, as it comes here.
    pub strobe: Strobe,
    /// How large transfers come.
    #[serde(default)]
    pub multicast: Multicast,
    /// Another way for what is large.
    #[serde(default)]
    pub libfabric: Libfabric,
}

/// libfabric as it is used at a node. Counted since the daemon began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Libfabric {
    /// The provider, as libfabric calls it; none: nothing goes that way.
    pub provider: Option<String>,
    /// Why not.
    pub off: Option<String>,
    /// Nodes that what is large goes to so, while there are connections to them.
    pub to: Vec<String>,
    /// Nodes for which it was tried lately, and why all goes over TCP.
    pub not_to: Vec<(String, String)>,
    /// Bytes that were sent so, and that came so and were what they should be.
    pub sent: u64,
    /// See above.
    pub came: u64,
    /// Messages that were here already.
    pub useless: u64,
    /// Messages that nobody here waits for.
    pub strange: u64,
    /// Messages that say that they are of a link here, and are not sealed as its are.
    pub forged: u64,
}

/// Multicast of large transfers, as it is at a node. Counted since it is in the fabric.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Multicast {
    /// Where; none: nothing is cast or heard here.
    pub group: Option<String>,
    /// Why not.
    pub off: Option<String>,
    /// Bytes that a datagram carries.
    pub piece: u32,
    /// Members besides this one, and how many of them hear it; known where the others' order comes from.
    pub heard: Option<(usize, usize)>,
    /// Who did not hear what this node has cast lately.
    pub deaf: Vec<String>,
    /// Bytes that this node has cast.
    pub cast: u64,
    /// Bytes that have come by datagrams, down the tree in their place, and down the tree with transfers that are not cast.
    pub caught: u64,
    /// See above.
    pub mended: u64,
    /// See above.
    pub tree: u64,
    /// Datagrams with what was here already.
    pub useless: u64,
    /// Datagrams that nobody here waits for: late, another cluster's, anybody's.
    pub strange: u64,
    /// Datagrams that say that they are of a cast that is under way, and are not sealed as its are.
    pub forged: u64,
}

/// The strobe, as it comes to a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Strobe {
    /// Microseconds between two beats; 0 for none.
    pub period_us: u64,
    /// Micro-heartbeats between two of them.
    #[serde(default)]
    pub micro: u32,
    /// Beats that have come.
    pub beats: u64,
    /// Micro-heartbeats that have come.
    #[serde(default)]
    pub micro_beats: u64,
    /// Those that came after more than one and a half times what is to be between two.
    pub late: u64,
    /// Those that never came.
    pub lost: u64,
    /// Those that this node should have sent, and did not.
    pub skipped: u64,
    /// The longest time between two, microseconds.
    pub longest_us: u64,
    /// Half of them, and 99 of 100, are off by less than this (within a factor of two), microseconds.
    pub off_us: Option<(u64, u64)>,
    /// Microseconds since the next one was due.
    pub silent_us: Option<u64>,
}

/// `POST /v1/fabric/strobe`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StrobeRequest {
    /// A new period for all.
    pub period_us: Option<u64>,
    /// So many micro-heartbeats between two beats of it.
    #[serde(default)]
    pub micro: Option<u32>,
    /// This event is to happen everywhere with one of the next beats.
    pub event: Option<String>,
}

/// `POST /v1/fabric/compare`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compare {
    /// Names of members; all if none are named.
    pub on: Option<Vec<String>>,
    /// What is compared at each.
    pub variable: String,
    /// `>=`, `<`, `==` or `!=`.
    pub comparison: String,
    /// With what.
    pub value: i64,
    /// What is written at each, if it holds at all.
    pub write: Option<(String, i64)>,
}

/// Its answer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// It held everywhere (and what was to be written is).
    pub held: bool,
}

/// `/v1/fabric/variable/NAME`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Variable {
    /// At this node.
    pub value: i64,
}

/// `POST /v1/fabric/event/NAME`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Signalled {
    /// Yes, and the signal is taken.
    pub signalled: bool,
}

/// Whether a member lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Liveness {
    /// Heard a moment ago.
    Up,
    /// Not heard for a while.
    Suspect,
    /// Not heard for long, or refuses connections.
    Down,
}

impl Liveness {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Liveness::Up => "up",
            Liveness::Suspect => "suspect",
            Liveness::Down => "down",
        }
    }
}

/// One of `GET /v1/nodes`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where its daemon listens.
    pub addr: String,
    /// Whether it lives.
    pub state: Liveness,
    /// Whether it is the one that answers.
    pub here: bool,
    /// Milliseconds since it was heard.
    pub heard_ms: Option<u64>,
    /// CPUs that may be used.
    pub cpus: f64,
    /// How fast one of them is; 1.0 is usual.
    #[serde(default)]
    pub speed: f64,
    /// Runnable threads, smoothed; those of gangs are not among them.
    pub runnable: f64,
    /// Of the CPUs, those that gangs hold.
    #[serde(default)]
    pub held: f64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes free.
    pub free: u64,
    /// Major page faults a second.
    #[serde(default)]
    pub paging: u32,
    /// Guests there.
    pub guests: u32,
    /// `open`, `full`, `owner` (its own user works there) or `drained`.
    #[serde(default)]
    pub standing: String,
}

/// One of `GET /v1/jobs`: a parallel job that the node has a part in.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Job {
    /// Its number, which its head has given it.
    pub job: u64,
    /// What its user calls it; empty for other users.
    #[serde(default)]
    pub name: String,
    /// The node at which it was started.
    pub head: String,
    /// Whose it is.
    pub user: String,
    /// Ranks in all.
    pub ranks: u32,
    /// The nodes that run them.
    pub nodes: Vec<String>,
    /// What runs; empty for other users.
    pub command: String,
    /// When it came here, milliseconds since 1970.
    pub since_ms: u64,
}

/// One of `GET /v1/processes`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Pid at home.
    pub pid: u32,
    /// Owner.
    pub uid: u32,
    /// Owner's name at the node that answers.
    pub user: String,
    /// Home node.
    pub home: String,
    /// Where it is.
    pub place: String,
    /// A phase of docs/engine.md, or `home`.
    pub phase: String,
    /// Job control holds it (Ctrl-Z, SIGSTOP).
    #[serde(default)]
    pub stopped: bool,
    /// Moves so far.
    pub moves: u32,
    /// Calls forwarded.
    pub calls: u64,
    /// Pages pulled on demand.
    pub pulled: u64,
    /// Pages pushed in the background.
    pub pushed: u64,
    /// Pages that were not sent: a process that shares them since a fork had them there.
    #[serde(default)]
    pub found: u64,
    /// CPU time abroad, milliseconds.
    pub cpu_abroad_ms: u64,
    /// CPU time by node, milliseconds.
    pub cpu_by_node: Vec<(String, u64)>,
    /// Bytes that its calls moved while it was away.
    #[serde(default)]
    pub io: Io,
    /// Command line; empty when it belongs to another user.
    pub command: String,
    /// `home` when this node is its home, `guest` when it visits.
    pub role: String,
    /// The nearest process above it that is known, too, and whose home is here; 0 if there is none, or it is a guest.
    #[serde(default)]
    pub under: u32,
    /// `pando run` started it.
    #[serde(default)]
    pub run: bool,
    /// Pid of the engine's helper here.
    pub helper: Option<u32>,
    /// The latest moves, oldest first.
    pub records: Vec<MoveRecord>,
}

/// `GET /v1/explain/PID`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The process, as far as known.
    pub process: Process,
    /// Whether the caller may move it; the reason why not.
    pub permitted: Result<(), String>,
    /// Whether it can move.
    pub inspection: Result<Inspection, String>,
    /// What its user wants.
    #[serde(default)]
    pub wish: Wish,
    /// Where `best` would send it, and why; or why nowhere.
    pub best: Result<(String, String), String>,
    /// Whether it will go where its family is, a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
    /// What the balancer thinks of it, a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// The nodes that were compared.
    pub nodes: Vec<Node>,
}

/// One of `GET /v1/events`. Fields that say nothing about an event are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// The same moment as RFC 3339 writes it, in UTC.
    #[serde(default)]
    pub time: String,
    /// `node`, `join`, `move` (it moved), `failed` (it did not), `still` (it waits for memory), `memory` (the kernel ended some for want of it), `process` (it ended while it was away), `lost`, `refused`.
    pub kind: String,
    /// The sentence.
    pub text: String,
    /// Of which user; none for what concerns all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Its name at the node that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The process, as its home counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// Where it was, or who came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Where it is now, or should have gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Why it moved, did not move, ended or was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Process {
    /// Is it away, on its way, a guest, or a job of `pando run`? Others are at home again and need nobody's attention.
    pub fn is_at_work(&self) -> bool {
        self.run || self.role == "guest" || self.phase != "home" || self.place != self.home
    }
}

impl Event {
    /// One that has nothing but its sentence yet.
    pub fn new(kind: &str, text: impl Into<String>) -> Self {
        Event { kind: kind.into(), text: text.into(), ..Event::default() }
    }
}

/// `POST /v1/move`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MoveRequest {
    /// The process.
    pub pid: u32,
    /// A node's name, `home` or `best`.
    pub dest: String,
    /// Why, `user` if nothing is said.
    #[serde(default)]
    pub reason: Option<String>,
    /// With all that it has started: those that are away go now, the others when they have computed for a while.
    #[serde(default)]
    pub family: bool,
}

/// The answer to `POST /v1/move`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MoveAnswer {
    /// Where the process is now.
    pub place: String,
    /// How it went; none when it was there already.
    pub record: Option<MoveRecord>,
}

/// `POST /v1/register`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegisterRequest {
    /// The process.
    pub pid: u32,
    /// What its user wants of it.
    #[serde(default)]
    pub wish: Wish,
}

/// One of `GET /v1/decisions`: a move that this node tried to make by itself, and how that ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// The process's home.
    pub home: String,
    /// And its pid there.
    pub pid: u32,
    /// What became of it, a sentence.
    pub text: String,
    /// Milliseconds ago.
    pub age_ms: u64,
}

/// `GET /v1/decisions`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decisions {
    /// The node.
    pub node: String,
    /// What gangs have there.
    #[serde(default)]
    pub gangs: Option<String>,
    /// Moves, oldest first.
    pub moves: Vec<Decision>,
    /// Of those that run here and stay: why.
    pub stays: Vec<Decision>,
}

/// Bytes of a reason for a drain.
pub const LONGEST_REASON: usize = 256;

/// `POST /v1/drain`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DrainRequest {
    /// Which node; this one, if nothing is said.
    #[serde(default)]
    pub node: Option<String>,
    /// Empty it, or use it again.
    pub on: bool,
    /// Why, for others to see.
    #[serde(default)]
    pub reason: String,
}

impl DrainRequest {
    /// An error, for people, if its reason is too long.
    pub fn check(&self) -> Result<(), String> {
        match self.reason.len() {
            0..=LONGEST_REASON => Ok(()),
            bytes => Err(format!("a reason has {LONGEST_REASON} bytes at most, and this one has {bytes}")),
        }
    }
}

/// That a node is drained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Drain {
    /// Why, as whoever wants it has said; empty: he has not.
    pub reason: String,
    /// Who he is.
    pub by: String,
    /// Since when, milliseconds since 1970.
    pub at: u64,
}

/// `POST /v1/token`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenAnswer {
    /// The word.
    pub token: String,
    /// Seconds that it lives.
    pub valid_s: u64,
}

/// Every refusal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// A sentence: the thing, the cause, the next step.
    pub error: String,
}

/// The matrix of gangs, as the node has it that orders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GangStatus {
    /// Who orders.
    pub manager: String,
    /// Length of a turn, microseconds.
    pub quantum_us: u64,
    /// Rows of the matrix in which somebody runs: with one nobody is switched.
    pub rows: u16,
    /// All that have a place.
    pub gangs: Vec<GangJob>,
    /// Those that wait for one, the first first.
    #[serde(default)]
    pub waiting: Vec<GangJob>,
    /// CPUs of each node for gangs.
    pub cpus: BTreeMap<String, u16>,
}

/// A gang.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GangJob {
    /// Its number in the matrix.
    pub number: u64,
    /// Its job's number, which its head has given it.
    #[serde(default)]
    pub job: u64,
    /// What its user calls it; empty for other users.
    #[serde(default)]
    pub name: String,
    /// Whose it is.
    #[serde(default)]
    pub user: String,
    /// The node of its head.
    pub head: String,
    /// Gangs of lower levels stand still where it has CPUs of theirs.
    #[serde(default)]
    pub level: i32,
    /// `runs` (in its turns), `outranked` (it stands still for one of a higher level), `suspended`, `lost` (it is being ended) or `waits`.
    #[serde(default)]
    pub standing: String,
    /// The slots that it has had, of those that there were since others took turns with it and this node orders.
    #[serde(default)]
    pub slots: (u64, u64),
    /// How long its turns are, microseconds; 0: nobody takes turns.
    #[serde(default)]
    pub turn_us: u64,
    /// So long it has waited, milliseconds, if it waits.
    #[serde(default)]
    pub waited_ms: u64,
    /// The rows in which it runs: its own first. None: it stands still.
    pub rows: Vec<u16>,
    /// Its nodes, and its CPUs there: 0 is a node's first one for gangs.
    pub nodes: Vec<(String, Vec<u16>)>,
}

/// What an administrator wants turns to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangQuantum {
    /// Microseconds; 0: as the configuration has it.
    pub quantum_us: u64,
}
