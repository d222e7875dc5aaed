//! The protocol of one moved process, between its deputy's helper at home and its guest's helper abroad.
//!
//! Every value is a frame on one ordered TLS connection: a postcard head (an enum of this module) and a body of raw bytes.
//! Memory is in pages of 4096 bytes; addresses are the program's.

use crate::cpu::Needs;
use serde::{Deserialize, Serialize};

/// Protocol version of this build. Both sides say the range they speak and take the highest common one.
pub const VERSION: u16 = 7;
/// Longest head.
pub const MAX_HEAD: usize = 2 << 20;
/// Longest body.
pub const MAX_BODY: usize = 1 << 20;
/// Bytes of memory in one frame when data is streamed.
pub const CHUNK: usize = 256 * 1024;
/// How often the target asks for home's clocks before it wants the layout.
pub const CLOCK_QUESTIONS: usize = 4;
/// Most areas of memory a process may have.
pub const MAX_AREAS: usize = 65_536;
/// Ranges in one `TakeOver`, and in its answer.
pub const MAX_TAKEN: usize = 4096;

/// How long the guest's side may answer from what it has of home's files after home has confirmed that, milliseconds.
pub const GRANT_MS: u64 = 500;
/// How much longer home keeps a file as it is, since two clocks never run alike.
pub const DRIFT_MS: u64 = 100;
/// Most files whose content the guest's side may have at a time.
pub const MAX_FILES: usize = 64;
/// Most descriptors of one process for one open file description that are followed.
pub const MAX_NUMBERS: usize = 64;
/// Longest way from a shared directory to a file.
pub const MAX_WAY: usize = 4096;
/// Most bytes of one file that may be on their way or asked for.
pub const MAX_FETCH: u64 = 16 << 20;

/// Pages of which one sum is made (see [`Down::Known`]).
pub const SUM_PAGES: u64 = 16;
/// Most processes of which a node may have pages that another one has, too.
pub const MAX_KIN: usize = 64;
/// Most ranges in one `Unknown`.
pub const MAX_UNKNOWN: usize = 64;

/// Most memory calls in one message.
pub const MAX_MAP_CALLS: usize = 1024;

/// Longest sentence of another node that is passed on to people.
const MAX_SAID: usize = 300;

/// Bytes of a siginfo.
const SIGINFO: usize = 128;
/// Signals in one frame.
const SIGNALS_PER_FRAME: usize = 4096;
/// Most signals that may go along with a process.
pub const MAX_UNDELIVERED: usize = 100_000;
/// Most threads that a process may have.
pub const MAX_THREADS: usize = 8192;

/// Most bytes of extended state of a thread: with all that there is today (AMX) it is 11 KiB.
pub const MAX_XSTATE: usize = 16 * 1024;

/// The bodies of the frames that take `signals` along: one siginfo after the other.
pub fn signal_frames(signals: &[Vec<u8>]) -> impl Iterator<Item = Vec<u8>> {
    signals.chunks(SIGNALS_PER_FRAME).map(<[Vec<u8>]>::concat)
}

/// Adds the signals of one such body to `all`. False: it makes no sense, or there are too many.
pub fn signals_in(body: &[u8], all: &mut Vec<Vec<u8>>) -> bool {
    all.extend(body.chunks_exact(SIGINFO).map(<[u8]>::to_vec));
    body.len().is_multiple_of(SIGINFO) && all.len() <= MAX_UNDELIVERED
}

/// What another node said, or what is said about it, fit for one line of a log.
pub fn said(text: &str) -> String {
    text.chars().take(MAX_SAID).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What home offers when it asks a node to take a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Offer {
    /// Lowest version spoken.
    pub version_min: u16,
    /// Highest version spoken.
    pub version_max: u16,
    /// Counts the attempts to run this process abroad; a guest of an older epoch is void.
    pub epoch: u64,
    /// Home node.
    pub home: String,
    /// Pid at home.
    pub pid: i32,
    /// Pid as the process knows it: another one where it is in a pid namespace of its own.
    pub inner_pid: i32,
    /// Owner at home.
    pub uid: u32,
    /// Command line, for people.
    pub command: String,
    /// What the program needs of the CPU.
    pub needs: Needs,
    /// Silence after which home gives the target up, milliseconds.
    pub lost_after_ms: u64,
}

/// A stretch of the address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Area {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// PROT_ bits.
    pub prot: u32,
    /// Grows downwards (the main stack).
    pub stack: bool,
    /// Private, of no file, and nothing else about it (a seal, guards): what is not there is zero.
    pub own: bool,
}

/// One of the kernel's own mappings (vDSO and its data).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Special {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// `[vdso]`, `[vvar]`, ...
    pub name: String,
}

/// The layout a target prepares before the freeze.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Layout {
    /// Where the injected code goes.
    pub hole: u64,
    /// The program's memory.
    pub areas: Vec<Area>,
    /// The kernel's mappings.
    pub special: Vec<Special>,
    /// The bytes of home's vDSO.
    pub vdso: Vec<u8>,
    /// (resource, soft, hard) limits that the guest's kernel must apply.
    pub limits: Vec<(u32, u64, u64)>,
}

/// Everything of a thread that is not memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Context {
    /// General registers, `user_regs_struct` as 27 words.
    pub registers: Vec<u64>,
    /// Bytes of extended state, which are the body.
    pub xstate: u32,
    /// Blocked signals.
    pub mask: u64,
    /// Restartable sequences: address, size, signature.
    pub rseq: (u64, u32, u32),
    /// Robust futexes: address and size of the list's head (set_robust_list(2)).
    pub robust: (u64, u64),
    /// Where the kernel writes 0 when the thread ends (set_tid_address(2)).
    pub tid_address: u64,
    /// Alternative signal stack (`stack_t`, 24 bytes).
    pub altstack: Vec<u8>,
    /// The system call at home that the thread waits for.
    pub in_call: Option<u64>,
    /// Bytes that a transfer had moved when the freeze cut it short; the registers make the call again. Of a signal that comes before that it
    /// has to return this count.
    pub cut_short: Option<u64>,
    /// Number of signals that home has sent to it so far.
    pub signals: u64,
    /// CPU time it spent before, on all nodes but home, nanoseconds.
    pub cpu_abroad_ns: u64,
    /// Signals that were sent to it and not yet delivered (siginfo of 128 bytes).
    #[serde(skip)]
    #[cfg_attr(test, generator(bolero::generator::constant(Vec::new())))]
    pub undelivered: Vec<Vec<u8>>,
}

/// Virtual and profiling timers: interval s, µs, value s, µs.
pub type CpuTimers = [[u64; 4]; 2];

/// What a guest starts with, beside its threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Start {
    /// Program break.
    pub brk: u64,
    /// The guest's kernel may set the break by itself, not below the first and by no more than the second up from where it is, and home
    /// hears of that before it needs to. None: home or the guest's side is asked each time.
    pub free_break: Option<(u64, u64)>,
    /// Caught signals and their `struct sigaction` (32 bytes).
    pub handlers: Vec<(i32, Vec<u8>)>,
    /// Ignored signals.
    pub ignored: u64,
    /// See there.
    pub timers: CpuTimers,
    /// It has asked for AMX's tiles (`pando_kernel::xstate`).
    pub tiles: bool,
    /// Held by job control: do not run before `Resume`.
    pub paused: bool,
    /// Home's monotonic clock when the program was stopped, nanoseconds: the guest's may not be behind that when it runs.
    pub clock: u64,
    /// Number of the last call that home has seen.
    pub calls: u64,
    /// CPU time of the process spent before, on all nodes but home, nanoseconds.
    pub cpu_abroad_ns: u64,
}

/// A memory call that has been made abroad: its first arguments, with the address that it got (mmap(2)) or set (brk(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct MapCall {
    /// mmap, munmap, mprotect, madvise or brk.
    pub nr: u32,
    /// Address, bytes, protection or advice, flags.
    pub args: [u64; 4],
}

/// What mmap(2) may be asked for, at most and at least, if it is made abroad first: memory of the program's own.
pub const OWN_MEMORY: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
/// See there.
pub const OWN_MEMORY_AT_MOST: u64 = OWN_MEMORY | (libc::MAP_NORESERVE | libc::MAP_STACK) as u64;

impl MapCall {
    /// Begin and end of what it changes; nothing for the break.
    pub fn range(&self) -> (u64, u64) {
        (self.args[0], self.args[0].saturating_add(self.args[1]))
    }
}

/// Pages that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Run {
    /// Address of the first.
    pub addr: u64,
    /// How many.
    pub pages: u32,
    /// All bytes are zero; nothing in the body.
    pub zero: bool,
}

/// Bytes that lie together.
pub type Span = (u64, u32);

/// A file at home of which reads may be answered abroad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct File {
    /// Its name from now on; one that has been given before if that file was meant.
    pub id: u64,
    /// Bytes in it.
    pub size: u64,
    /// Where the descriptor stands. None: others can move it, or nobody wanted to know.
    pub position: Option<u64>,
    /// Home has looked: nobody else has the open file description, and these are all of the process's own descriptors of it.
    pub numbers: Vec<i32>,
    /// It is as it was when this one was let go.
    pub same_as: Option<u64>,
}

/// A file on a file system that both nodes have, as home sees it (docs/decisions/0019).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Shared {
    /// Its name from now on.
    pub id: u64,
    /// The declared directory, by its name in the configuration of both.
    pub below: String,
    /// The way from there.
    pub path: String,
    /// Inode number.
    pub inode: u64,
    /// Bytes in it.
    pub size: u64,
    /// When it was last changed: seconds, nanoseconds.
    pub changed: (i64, i64),
    /// As in [`File`].
    pub position: Option<u64>,
    /// As in [`File`].
    pub numbers: Vec<i32>,
}

/// What the guest's side knows of who can move a descriptor's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub enum Owners {
    /// It does not matter: reads say where.
    Any,
    /// The process alone, by descriptors that are known: it opened it while abroad.
    Known,
    /// Nothing: home is to look.
    Unknown,
}

/// Home to guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub enum Down {
    /// Will you take it?
    Offer(Offer),
    /// Home's clocks, nanoseconds: monotonic, boot time.
    Clock {
        /// CLOCK_MONOTONIC.
        monotonic: u64,
        /// CLOCK_BOOTTIME.
        boottime: u64,
        /// CLOCK_REALTIME.
        realtime: u64,
    },
    /// Make the sandbox.
    Prepare(Layout),
    /// Pages, asked for or not.
    Pages(Vec<Run>),
    /// Pages that a guest of the same owner and home which you have may have, too, at the same place: take them from there, or say `Unknown`.
    Known {
        /// Which one: its pid, as `Prepared` said.
        kin: i32,
        /// Address of the first page.
        addr: u64,
        /// How many.
        pages: u32,
        /// BLAKE3 of each [`SUM_PAGES`] of them (the last may be fewer).
        sums: Vec<[u8; 32]>,
    },
    /// This page does not exist at home: the access must fault at home.
    NoPage(u64),
    /// It has begun another program since the layout (exec): nothing of that holds any more, and the kernel's own mappings are here.
    Special(Vec<Special>),
    /// The final layout of memory, before the threads.
    Areas(Vec<Area>),
    /// Signals that go along with the thread that comes next (see [`signals_in`]).
    Undelivered,
    /// A thread and its context (extended state in the body). The first one is the process's first thread.
    Thread(i32, Box<Context>),
    /// Run.
    Start(Box<Start>),
    /// More output bytes of the call that is in progress, before its `Reply`.
    Output(u64),
    /// Result of call `seq`, with what the kernel wrote.
    Reply {
        /// Which call.
        seq: u64,
        /// Return value as the kernel gives it.
        ret: i64,
        /// What was written where; bytes in the body, one after the other.
        outputs: Vec<Span>,
    },
    /// A signal broke call `seq` off with this restart code (-512, -513, -514, -516).
    Interrupted {
        /// Which call.
        seq: u64,
        /// Kernel-internal code.
        code: i64,
    },
    /// A signal for this thread (siginfo of 128 bytes).
    Signal(i32, Vec<u8>),
    /// This thread competes for the CPU with this policy and nice value.
    Urgency(i32, i32, i32),
    /// Hold the program (job control).
    Pause,
    /// Let it go on.
    Resume,
    /// The answer to `Ask` number `ask`: as long as home has not said `Forget`, and confirms it again and again, nobody changes this file.
    Granted(u64, File),
    /// The other answer to `Ask`: the file may be there where you are; read it there, if it is the same.
    Shared(u64, Shared),
    /// A file that is shared is not to be read there any more: the process itself is going to write to it.
    Unshared(u64),
    /// The file of question `ask` can't be had.
    Refused(u64),
    /// Bytes of a file (in the body) at this offset, as asked for.
    FileData(u64, u64),
    /// Answer nothing more from this file; or: it has been let go, as asked.
    Forget(u64),
    /// All files that are granted are so when `Renew` with this number is answered.
    Renewed(u64),
    /// Send everything home, then freeze.
    ComeHome,
    /// End the guest: home has taken over, or the process has ended.
    End,
    /// Still here.
    Ping,
    /// What huge pages map at home, in ascending order: it may be so abroad, too.
    Huge(Vec<(u64, u64)>),
    /// Home makes all memory calls from now on: somebody has set limits for the process.
    MapAtHome,
    /// Up to `MapAtHome` one memory call may add so many bytes abroad before home has heard of it. Home makes those that touch these
    /// ranges, where there are guards. Before this home makes all of them.
    MapAbroad(u64, Vec<(u64, u64)>),
    /// Home would give back its copies of these ranges: which of their pages are there?
    TakeOver(Vec<(u64, u64)>),
}

impl Up {
    /// Must home have made the memory calls that were made abroad before it takes this?
    pub fn needs_the_map(&self) -> bool {
        use Up::*;
        matches!(self, Call { .. } | Input(_) | Child(_) | Took(_) | Written(_) | Thread(..) | Frozen { .. })
    }
}

/// Guest to home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub enum Up {
    /// Yes, with this version. `post_copy`: pages may follow after the start.
    Agree {
        /// Agreed version.
        version: u16,
        /// Name of this node.
        node: String,
    },
    /// No, and why.
    Decline(String),
    /// What time is it at home?
    AskClock,
    /// The sandbox is ready. `post_copy` false: its userfaultfd does not see the kernel's faults, all pages must come before the start.
    Prepared {
        /// See above.
        post_copy: bool,
        /// Guests of the same owner and home that are here: pids at home.
        kin: Vec<i32>,
    },
    /// It runs. (Accepting this, or a request, is the commit.)
    Started,
    /// The guest could not be built or has died.
    Failed(String),
    /// Pages are missing: address and how many neighbours are wanted.
    Pull(u64, u32),
    /// The stack grew down to this page.
    StackGrew(u64),
    /// What the child begins with that the call which follows makes: a copy of its caller (extended state in the body). All written pages
    /// have been sent.
    Child(Box<Context>),
    /// Input bytes of the call that follows.
    Input(u64),
    /// Run this call.
    Call {
        /// Thread that makes it.
        tid: i32,
        /// Counts up from 1, for all threads together.
        seq: u64,
        /// Number.
        nr: u64,
        /// Arguments.
        args: [u64; 6],
        /// Bytes the call will read, in the body.
        inputs: Vec<Span>,
        /// How many signals for this thread had arrived before.
        signals: u64,
        /// It goes on with a transfer that was cut short (see [`Context`]).
        resumes: bool,
    },
    /// Memory calls that have been made here: home makes them now.
    Mapped(Vec<MapCall>),
    /// These pages count as written from now on: home's copies of them are of no use any more.
    Took(Vec<(u64, u64)>),
    /// Pages that were said to be known and are not: begin and end.
    Unknown(Vec<(u64, u64)>),
    /// Written pages; those that are zero need not be there at home.
    Written(Vec<Run>),
    /// It must go home now.
    WantHome(String),
    /// Signals that go along with the thread that comes next (see [`signals_in`]).
    Undelivered,
    /// A frozen thread (extended state in the body); `signals` in its context are those that had arrived.
    Thread(i32, Box<Context>),
    /// Frozen; all pages and all threads have been sent.
    Frozen {
        /// See there.
        timers: CpuTimers,
        /// CPU time used here, nanoseconds.
        cpu_ns: u64,
        /// Where exactly the break is, if the program sets it without a word: before this home knows the page.
        brk: Option<u64>,
    },
    /// May reads of this descriptor be answered here? (The number of the question, counted up from 1.)
    Ask(u64, i32, Owners),
    /// This descriptor stands there: reads were answered here.
    Position(i32, u64),
    /// Bytes of a file, please: which, from where, how many.
    Fetch(u64, u64, u32),
    /// Nothing more is answered from this file.
    Release(u64),
    /// The file that was said to be shared is not to be had here, or not the same.
    NotShared(u64),
    /// Is all that is granted still so?
    Renew(u64),
    /// Bytes that reads got here, in all.
    Served(u64),
    /// CPU time used here, nanoseconds, and how many signals have arrived at each thread.
    Usage(u64, Vec<(i32, u64)>),
    /// Still here.
    Ping,
}
