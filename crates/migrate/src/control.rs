//! What the node daemon and the engine's helper processes say to each other: one JSON value a line over
//! the daemon's engine socket (a Unix stream socket in its runtime directory).
//!
//! A helper outlives its daemon: it connects again (once a second) and says `Hello` and `State` anew.

use crate::message::MAX_THREADS;
use serde::{Deserialize, Serialize};

/// Where a process is to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Destination {
    /// Back to its home node.
    Home,
    /// Another member of the cluster.
    Node {
        /// The member's name.
        name: String,
        /// Where its daemon listens, `ADDR:PORT`.
        addr: String,
    },
}

/// Limits of the engine: times in milliseconds, and how much of this machine a guest gets. The daemon prints and configures them
/// (`[limits]`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Silence after which the other side is declared lost.
    pub lost_after_ms: u64,
    /// TCP and TLS connection to the target.
    pub connect_ms: u64,
    /// Making the sandbox at the target.
    pub prepare_ms: u64,
    /// From the stop at home to the first message of the guest.
    pub freeze_ms: u64,
    /// Threads of one guest. What needs more goes home, or is not taken.
    pub guest_threads: u32,
    /// Memory of one guest, MiB; 0: three quarters of what this node may use. What needs more goes home.
    pub guest_memory_mb: u64,
    /// Memory is compressed on lines slower than this, megabytes a second; 0: never. (How well it compresses shows on the line.)
    pub compress_below_mb_s: u64,
}

impl Limits {
    /// Bytes a second below which a line is slow.
    pub fn compress_below(&self) -> u64 {
        self.compress_below_mb_s.saturating_mul(1_000_000)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            lost_after_ms: 10_000,
            connect_ms: 5_000,
            prepare_ms: 10_000,
            freeze_ms: 5_000,
            guest_threads: MAX_THREADS as u32,
            guest_memory_mb: 0,
            compress_below_mb_s: 150,
        }
    }
}

/// The order a daemon gives on standard input to `pando __deputy`: move `pid` for the first time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeputyOrder {
    /// The process to move, in the daemon's pid namespace.
    pub pid: u32,
    /// Start time of the process (field 22 of `/proc/PID/stat`), so that a reused pid is not moved.
    pub start_time: u64,
    /// Identifies the request in `MoveDone`.
    pub request: u64,
    /// Where to.
    pub dest: Destination,
    /// Name of this node.
    pub node: String,
    /// Directory with this node's identity (what `pando_wire::Identity::load` takes).
    pub identity_dir: String,
    /// The daemon's engine socket.
    pub engine_socket: String,
    /// Who asks: only root and the owner of the process may move it.
    pub caller_uid: u32,
    /// Why: `user`, `balance`, `drain`, ...
    pub reason: String,
    /// Time limits.
    pub limits: Limits,
    /// File systems that other nodes have, too: name and directory (`[files] shared`).
    #[serde(default)]
    pub shared: Vec<(String, String)>,
    /// What `Report::Waits` said of the process when it was last here.
    #[serde(default)]
    pub waits: Vec<KeptWait>,
    /// For tests: where files say in which phase to stand still (hold.rs).
    #[serde(default)]
    pub holds: Option<String>,
    /// For tests: home's copies of pages are always given back.
    #[serde(default)]
    pub release: bool,
    /// For tests: the processes of this pid namespace are all there are (owners.rs).
    #[serde(default)]
    pub whole_machine: bool,
}

/// The order a daemon gives on standard input to `pando __guest`; descriptor 3 is the accepted, still
/// unread TCP connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestOrder {
    /// Name of this node.
    pub node: String,
    /// Directory with this node's identity.
    pub identity_dir: String,
    /// The daemon's engine socket.
    pub engine_socket: String,
    /// A number that no other guest on this machine has now; picks the guest's own unprivileged uid.
    pub slot: u32,
    /// Time limits.
    pub limits: Limits,
    /// Says no to the offer with this reason (the node is draining, full, ...).
    pub refuse: Option<String>,
    /// Takes processes of these homes only; empty: of all.
    #[serde(default)]
    pub from: Vec<String>,
    /// File systems that other nodes have, too: name and directory (`[files] shared`).
    #[serde(default)]
    pub shared: Vec<(String, String)>,
    /// Guests that are here, of any owner and home.
    #[serde(default)]
    pub kin: Vec<Kin>,
    /// For tests: where files say in which phase to stand still (hold.rs).
    #[serde(default)]
    pub holds: Option<String>,
}

/// A guest that is here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kin {
    /// Its home node.
    pub home: String,
    /// Its pid there.
    pub pid: u32,
    /// Its owner there.
    pub uid: u32,
    /// The process that is it, here, and its helper.
    pub body: u32,
    /// See there.
    pub helper: u32,
}

/// A wait with a limit that a thread is in, at home: it has waited for a part of it before, elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptWait {
    /// The thread.
    pub tid: i32,
    /// How often it had gone to sleep, this wait included: as long as that is so it is in this wait.
    pub slept: u64,
    /// The call.
    pub nr: u64,
    /// When the limit ends, nanoseconds of this machine's CLOCK_MONOTONIC.
    pub due: u64,
}

/// One finished move, for `ps`, `explain`, the demo and the benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// From which node.
    pub from: String,
    /// To which node.
    pub to: String,
    /// Why.
    pub reason: String,
    /// From the stop to the first instruction at the new place, microseconds.
    pub freeze_us: u64,
    /// From the request to the first instruction at the new place, microseconds.
    pub total_us: u64,
    /// Bytes of memory sent while frozen.
    pub frozen_bytes: u64,
}

/// Bytes that the calls of a moved process moved while it was away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    /// Read by forwarded calls: these crossed the network.
    pub read: u64,
    /// Written by forwarded calls: these, too.
    pub written: u64,
    /// Read from what is kept abroad of home's files.
    pub cached: u64,
}

impl Io {
    /// Counts a forwarded call that returned `ret`.
    pub(crate) fn count(&mut self, nr: u64, ret: i64) {
        let to = match i64::try_from(nr).unwrap_or(-1) {
            libc::SYS_read | libc::SYS_readv | libc::SYS_pread64 | libc::SYS_preadv | libc::SYS_preadv2 => {
                &mut self.read
            }
            libc::SYS_recvfrom | libc::SYS_recvmsg => &mut self.read,
            libc::SYS_write | libc::SYS_writev | libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2 => {
                &mut self.written
            }
            libc::SYS_sendto | libc::SYS_sendmsg => &mut self.written,
            _ => return,
        };
        *to = to.saturating_add(u64::try_from(ret).unwrap_or(0));
    }
}

/// What a helper tells its daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum Report {
    /// First line of every connection.
    Hello {
        /// `deputy` or `guest`.
        role: String,
        /// The helper's own pid.
        helper: u32,
        /// The process at home (deputy), or its pid at its home node (guest).
        pid: u32,
        /// Its home node.
        home: String,
        /// Owner.
        uid: u32,
        /// Command line.
        command: String,
        /// The process that computes here (guest only).
        #[serde(default)]
        body: u32,
    },
    /// Where the process is now. Sent by both roles when it changes; counters also every second.
    State {
        /// As in `Hello`.
        pid: u32,
        /// Node name; equal to home's name when it is at home.
        place: String,
        /// A phase of docs/engine.md in kebab-case: `inspect connect prepare freeze send commit away
        /// presync freeze-abroad residual resume`.
        phase: String,
        /// Job control holds it.
        #[serde(default)]
        stopped: bool,
        /// Calls forwarded so far.
        calls: u64,
        /// Pages pulled on demand.
        pulled: u64,
        /// Pages pushed in the background.
        pushed: u64,
        /// Pages that were not sent, since kin had them at the node.
        #[serde(default)]
        found: u64,
        /// CPU time spent abroad, milliseconds, all nodes together.
        cpu_abroad_ms: u64,
        /// CPU time by node name, milliseconds (deputy only).
        cpu_by_node: Vec<(String, u64)>,
        /// Bytes that its calls moved.
        #[serde(default)]
        io: Io,
    },
    /// A move ended (deputy only).
    MoveDone {
        /// `DeputyOrder::request` or `Command::Move::request`; 0 for one the engine decided (came home by itself).
        request: u64,
        /// As in `Hello`.
        pid: u32,
        /// The record, or the sentence that says why not and what to do.
        result: Result<MoveRecord, String>,
    },
    /// The process is home, and threads of it go on with these waits (deputy only). For the next order.
    Waits {
        /// As in `Hello`.
        pid: u32,
        /// See there.
        waits: Vec<KeptWait>,
    },
    /// The helper is about to exit: nothing more comes. `outcome` is `home`, `refused`, `ended`, `lost` or `failed`.
    Done {
        /// As in `Hello`.
        pid: u32,
        /// See above.
        outcome: String,
        /// A sentence for the log.
        detail: String,
    },
    /// Something to log (who, what, why).
    Log {
        /// `info`, `warn` or `error`.
        level: String,
        /// The sentence.
        text: String,
    },
}

/// What a daemon tells a helper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// Go there (deputy only).
    Move {
        /// Comes back in `MoveDone`.
        request: u64,
        /// Where to.
        dest: Destination,
        /// Why.
        reason: String,
    },
    /// This node is short of memory: give back the copies of pages that are abroad (deputy only).
    Release,
    /// Send this guest home as soon as possible (guest only; the node is draining).
    Evict {
        /// Why.
        reason: String,
    },
    /// This node is nearly out of memory: nobody runs (guest only).
    StandStill {
        /// For so long, unless this is said again; 0: all go on.
        ms: u64,
    },
}
