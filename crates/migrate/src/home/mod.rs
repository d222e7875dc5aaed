//! The body left at home: `pando __deputy`, one process with one thread for each moved process.

mod away;
mod birth;
mod calls;
mod clocks;
mod cut;
mod deferred;
mod escort;
mod files;
mod fork;
mod freeze;
mod hole;
mod kin;
mod masked;
mod memory;
mod offer;
mod owners;
mod release;
mod resume;
mod shared;
mod shorter;
mod signals;
mod start;
mod target;
mod thread;
mod urgency;
mod waits;

use crate::channel::{Channel, ChannelError};
use crate::control::{Command, DeputyOrder, Destination, MoveRecord, Report};
use crate::link::Link;
use crate::message::{Context, CpuTimers, Down};
use kin::Kin;
use pando_kernel::memory::ProcessMemory;
use pando_kernel::pagemap::Pagemap;
use pando_kernel::{inject, procfs, ptrace};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use target::Prepared;
use thread::Threads;

/// How long a process that has been killed may take to end.
const DYING: Duration = Duration::from_secs(2);

/// Why a deputy's work ended or a move failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HomeError {
    /// It can't or may not be moved; the process is untouched.
    #[error("{0}")]
    Refused(String),
    /// The target can't be reached, is silent or breaks the protocol.
    #[error("node {node}: {source}")]
    Target {
        /// Which node.
        node: String,
        /// What happened.
        source: ChannelError,
    },
    /// The target said no, or its guest failed.
    #[error("node {node} {why}")]
    Declined {
        /// Which node.
        node: String,
        /// A sentence.
        why: String,
    },
    /// The process failed under our hands.
    #[error(transparent)]
    Inject(#[from] inject::InjectError),
    /// A kernel facility failed.
    #[error("{0}: {1}")]
    Kernel(&'static str, std::io::Error),
    /// The process ended; the raw wait status.
    #[error("the process ended (wait status {0:#x})")]
    Ended(i32),
}

impl HomeError {
    /// Did the kernel say that there is no such thread? So it does between its death by SIGKILL and the end that can be seen.
    fn is_of_the_dead(&self) -> bool {
        let (HomeError::Kernel(_, e) | HomeError::Inject(inject::InjectError::Trace(e))) = self else { return false };
        e.raw_os_error() == Some(libc::ESRCH)
    }
}

pub(crate) use birth::{is_process, is_thread};

pub(crate) type Result<T> = std::result::Result<T, HomeError>;

/// Names the step that failed.
pub(crate) fn at<T>(step: &'static str, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|e| HomeError::Kernel(step, e))
}

/// A forwarded call that has not been answered.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub seq: u64,
    pub nr: u64,
    pub args: [u64; 6],
    /// What the kernel may write, as the arguments were when it was made.
    pub outputs_max: Vec<pando_calls::Range>,
    /// Has the thread begun it?
    pub begun: bool,
    /// When the limit of this wait ends (waits.rs), and whether part of that has been waited for before.
    pub due: Option<u64>,
    pub again: bool,
    /// It waits until the process is home (shorter.rs).
    pub at_home: bool,
    /// The place of the limit that it has been given instead of its own.
    pub place: Option<u64>,
    /// A signal that the program ignores came meanwhile: EINTR would be our doing.
    pub disturbed: bool,
    /// Bytes that an interrupted first part had already transferred.
    pub done_before: u64,
    /// Where a child is made: what it begins with, its extended state, and what it wrote to memory that was its parent's.
    pub birth: Option<Box<fork::Birth>>,
}

impl Flight {
    /// One that has just come.
    fn new(seq: u64, nr: u64, args: [u64; 6], outputs_max: Vec<pando_calls::Range>, done_before: u64) -> Self {
        let (begun, again, at_home, disturbed) = (false, false, false, false);
        let (due, place, birth) = (None, None, None);
        Flight { seq, nr, args, outputs_max, begun, due, again, at_home, place, disturbed, done_before, birth }
    }
}

/// An answer that home has given, in case it crosses with the guest's leaving.
pub(crate) struct Answered {
    pub seq: u64,
    /// The result, or the restart code when a signal broke it off.
    pub ret: i64,
    pub broken_off: bool,
    pub outputs: Vec<(u64, Vec<u8>)>,
}

/// Where the guest is.
pub(crate) struct Abroad {
    pub node: String,
    pub chan: Channel,
    /// Pages to send in the background.
    pub push: VecDeque<(u64, u64)>,
    /// Of these it was said that they are known there, and they were not.
    pub plain: VecDeque<(u64, u64)>,
    pub kin: Vec<Kin>,
    pub cpu_ns: u64,
    pub since: Instant,
}

impl Abroad {
    pub fn new(node: String, chan: Channel, kin: Vec<Kin>) -> Abroad {
        let (push, plain, since) = (VecDeque::new(), VecDeque::new(), Instant::now());
        Abroad { node, chan, push, plain, kin, cpu_ns: 0, since }
    }

    /// Is there memory to send in the background?
    pub fn pushes(&self) -> bool {
        !self.push.is_empty() || !self.plain.is_empty()
    }

    /// A thread has no more CPU time than time has passed (and a little, for the making of the guest).
    pub fn believable(&self, cpu_ns: u64, threads: usize) -> u64 {
        cpu_ns.min((self.since.elapsed().as_nanos() as u64 + 10_000_000_000).saturating_mul(threads.max(1) as u64))
    }
}

/// A move that was asked for while the process is away.
pub(crate) struct Wish {
    pub request: u64,
    pub dest: Destination,
    pub reason: String,
    pub asked: Instant,
    /// The next target is being prepared.
    pub preparing: Option<Receiver<Result<Prepared>>>,
    pub prepared: Option<Prepared>,
    /// The guest has been told to come.
    pub called: bool,
}

/// All of one moved process.
pub(crate) struct Deputy {
    pub order: DeputyOrder,
    pub link: Link,
    pub pid: i32,
    pub uid: u32,
    pub command: String,
    pub threads: Threads,
    pub memory: ProcessMemory,
    pub pagemap: Pagemap,
    pub children: OwnedFd,
    /// The daemon has said something.
    pub link_ready: bool,
    pub hole: u64,
    pub syscall_ip: u64,
    pub handlers: BTreeMap<i32, Vec<u8>>,
    pub ignored: u64,
    /// Handlers to reset at home as soon as a thread is free.
    pub reset_wanted: Vec<i32>,
    /// Handlers that act once and were taken away here, while their signal may not have been delivered abroad.
    pub spent: BTreeMap<i32, Vec<u8>>,
    /// Waits of its threads, as they were before it was stopped.
    pub noticed: BTreeMap<i32, waits::Noticed>,
    /// Signals that come back with the thread that comes next.
    pub arriving: Vec<Vec<u8>>,
    /// What the child of the next call begins with, its extended state, too.
    pub unborn: Option<(Box<Context>, Vec<u8>)>,
    /// Children that stand still before their first instruction.
    pub newborn: BTreeSet<i32>,
    /// Children that their parents, these threads, wait for (vfork).
    pub borrowers: BTreeMap<i32, fork::Borrower>,
    pub abroad: Option<Abroad>,
    /// The thread that makes a memory call now.
    pub changing_map: Option<i32>,
    /// Bytes of written pages that wait because a call in flight may be writing them too.
    pub kept: Vec<memory::Kept>,
    /// Written pages that wait for the stack to grow.
    pub held: BTreeMap<u64, Vec<u8>>,
    /// Stack address that home must have.
    pub stack_wanted: Option<u64>,
    pub stack_low: u64,
    pub brk: u64,
    /// Memory of which only this kernel knows what may be done with it (see [`crate::inspect::Inspection`]).
    pub fixed: Vec<(u64, u64)>,
    /// Home's copies of pages that the guest has are given back.
    pub releasing: release::Releasing,
    /// The guest makes no memory calls by itself.
    pub map_at_home: bool,
    /// CPU timers, when all of the process is here.
    pub timers: CpuTimers,
    /// It has asked for AMX's tiles.
    pub tiles: bool,
    pub wish: Option<Wish>,
    /// Files whose reads are answered abroad.
    pub files: files::Files,
    /// The guest has gone, everything is here, but threads are not yet free to run by themselves.
    pub returning: bool,
    /// Threads go on by themselves already; what is left finishes a transfer.
    pub released: bool,
    /// A thread is gone that did not end by itself: all of them are going.
    pub dying: bool,
    pub froze: Instant,
    /// How long the last freeze was.
    pub thawed: Duration,
    /// The node it just left.
    pub left: String,
    pub frozen_bytes: u64,
    pub epoch: u64,
    pub calls: u64,
    /// Number of the last call that came.
    pub last_seq: u64,
    pub pulled: u64,
    pub pushed: u64,
    /// Pages that the target has taken from others that it has.
    pub found: u64,
    pub cpu_by_node: BTreeMap<String, u64>,
    pub reported: Instant,
    pub phase: &'static str,
}

/// How it ended.
pub(crate) enum End {
    /// At home, running by itself again.
    Home,
    /// The target was lost with memory of the process.
    Lost(String),
}

/// Runs one deputy to its end. Returns the exit code.
pub fn main() -> i32 {
    let order: DeputyOrder = match serde_json::from_reader(std::io::stdin().lock()) {
        Ok(order) => order,
        Err(e) => {
            eprintln!("pando: __deputy is started by the daemon, with an order on standard input: {e}");
            return 2;
        }
    };
    // The program runs calls that come over the network, with its user's rights; that is the user of this helper, too, in personal mode.
    if let Err(e) = pando_kernel::privacy::keep_others_out() {
        eprintln!("pando: __deputy: others can't be kept out: {e}");
        return 1;
    }
    let link = Link::new(&order.engine_socket);
    let begun = Instant::now();
    match freeze::first_move(order, link, begun) {
        Ok(mut deputy) => {
            let end = deputy.take_from_home().and_then(|()| deputy.live());
            deputy.finish(end)
        }
        Err(failed) => {
            let (order, mut link, e) = *failed;
            let e = unless_ended(order.pid as i32, order.start_time, e);
            let detail = e.to_string();
            link.report(Report::MoveDone { request: order.request, pid: order.pid, result: Err(detail.clone()) });
            let outcome = if matches!(e, HomeError::Refused(_)) { "refused" } else { "failed" };
            link.report(Report::Done { pid: order.pid, outcome: outcome.into(), detail });
            1
        }
    }
}

/// A process that ended on the way has no other obstacle than that, whatever it was that failed first.
fn unless_ended(pid: i32, started: u64, e: HomeError) -> HomeError {
    let lives = |s: procfs::Status| s.state != 'X' && (s.state != 'Z' || s.threads > 1);
    let same = procfs::start_time(pid).is_ok_and(|start| start == started);
    match e {
        HomeError::Ended(_) => e,
        _ if same && procfs::status(pid).is_ok_and(lives) => e,
        _ => HomeError::Refused(format!("process {pid} ended before it could be moved")),
    }
}

impl Deputy {
    pub(crate) fn lost_after(&self) -> Duration {
        Duration::from_millis(self.order.limits.lost_after_ms)
    }

    /// Sends to the guest.
    pub(crate) fn tell(&mut self, down: &Down, body: &[&[u8]]) -> Result<()> {
        let Some(abroad) = &mut self.abroad else { return Ok(()) };
        abroad.chan.send(down, body).map_err(|source| HomeError::Target { node: abroad.node.clone(), source })
    }

    pub(crate) fn place(&self) -> String {
        self.abroad.as_ref().map_or_else(|| self.order.node.clone(), |a| a.node.clone())
    }

    pub(crate) fn set_phase(&mut self, phase: &'static str) {
        self.phase = phase;
        self.report_state();
    }

    pub(crate) fn report_state(&mut self) {
        let mut by_node = self.cpu_by_node.clone();
        if let Some(a) = &self.abroad {
            *by_node.entry(a.node.clone()).or_default() += a.cpu_ns;
        }
        let total: u64 = by_node.values().sum();
        let report = Report::State {
            pid: self.order.pid,
            place: self.place(),
            phase: self.phase.into(),
            stopped: self.job_stopped(),
            calls: self.calls,
            pulled: self.pulled,
            pushed: self.pushed,
            found: self.found,
            cpu_abroad_ms: total / 1_000_000,
            cpu_by_node: by_node.into_iter().map(|(n, ns)| (n, ns / 1_000_000)).collect(),
            io: self.files.io,
        };
        self.link.report(report);
    }

    pub(crate) fn hello(&mut self) {
        self.link.report(Report::Hello {
            role: "deputy".into(),
            helper: std::process::id(),
            pid: self.order.pid,
            home: self.order.node.clone(),
            uid: self.uid,
            command: self.command.clone(),
            body: 0,
        });
    }

    /// Reports a finished or failed move.
    pub(crate) fn move_done(&mut self, request: u64, result: std::result::Result<MoveRecord, String>) {
        let pid = self.order.pid;
        self.link.report(Report::MoveDone { request, pid, result });
    }

    pub(crate) fn commands(&mut self) -> Vec<Command> {
        self.link.commands()
    }

    /// What failed may have failed because the process is gone, or going: its first thread is the last one that tells. (Others may have
    /// ended by themselves.)
    fn was_killed(&self, failure: &HomeError) -> bool {
        let dying = || procfs::status(self.pid).map_or(true, |s| matches!(s.state, 'Z' | 'X'));
        let begun = Instant::now();
        let patience = if self.dying || failure.is_of_the_dead() { DYING } else { Duration::ZERO };
        loop {
            let mut gone = false;
            while let Ok(Some((tid, stop))) = ptrace::wait_any(false) {
                gone |= tid == self.pid && matches!(stop, ptrace::Stop::Gone(_));
            }
            if gone || dying() {
                return true;
            }
            if begun.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the process and collects all of its threads.
    fn end_process(&self) {
        self.end_newborn();
        self.let_borrowers_go();
        let _ = pando_kernel::signal::kill(self.pid, libc::SIGKILL);
        while !matches!(ptrace::wait_any(true), Err(_) | Ok(None)) {}
    }

    fn finish(mut self, end: Result<End>) -> i32 {
        let (outcome, detail) = match end {
            Ok(End::Home) => ("home", "it runs at home again".to_string()),
            Ok(End::Lost(why)) => ("lost", why),
            Err(HomeError::Ended(status)) => ("ended", in_words(status)),
            Err(HomeError::Inject(inject::InjectError::Gone(status))) => ("ended", in_words(status)),
            Err(e) if self.was_killed(&e) => ("ended", "it was killed".to_string()),
            Err(e) => ("failed", format!("{e}; it was ended, because part of its memory is out of reach")),
        };
        if outcome == "failed" || outcome == "lost" {
            self.end_process();
        }
        if let Some(wish) = self.wish.take().filter(|w| w.request != 0) {
            self.move_done(wish.request, Err(format!("process {}: {detail}", self.order.pid)));
        }
        let _ = self.tell(&Down::End, &[]);
        if let Some(abroad) = &mut self.abroad {
            abroad.chan.drain(Duration::from_millis(300));
        }
        let level = if outcome == "home" || outcome == "ended" { "info" } else { "error" };
        let text = format!("process {} ({}): {detail}", self.order.pid, self.command);
        self.link.log(level, text.clone());
        self.link.report(Report::Done { pid: self.order.pid, outcome: outcome.into(), detail: text });
        0
    }
}

/// A wait status, for people.
fn in_words(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        let core = if libc::WCOREDUMP(status) { ", with a core file" } else { "" };
        return format!("it was ended by signal {}{core}", libc::WTERMSIG(status));
    }
    format!("it ended with exit status {}", libc::WEXITSTATUS(status))
}

/// Characters of a command line that people are shown.
const LONGEST_COMMAND: usize = 100;

/// The owner, and the command for people.
pub(crate) fn describe(pid: i32) -> (u32, String) {
    let mut command = procfs::command(pid);
    if let Some((end, _)) = command.char_indices().nth(LONGEST_COMMAND) {
        command.truncate(end);
        command.push('…');
    }
    (procfs::status(pid).map_or(u32::MAX, |s| s.uids[1]), command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_is_the_reason_that_counts() {
        let why = |pid: i32, started: u64| unless_ended(pid, started, HomeError::Refused("no".into())).to_string();
        let me = std::process::id() as i32;
        let started = procfs::start_time(me).expect("own start");
        assert_eq!(why(me, started), "no");
        assert!(why(me, started + 1).contains("ended before"), "another process has its number now");
        let mut child = std::process::Command::new("true").spawn().expect("true");
        let pid = child.id() as i32;
        let begun = procfs::start_time(pid).expect("its start");
        while procfs::status(pid).is_ok_and(|s| s.state != 'Z') {
            std::thread::yield_now();
        }
        assert!(why(pid, begun).contains("ended before"), "a zombie");
        child.wait().expect("wait");
        assert!(why(pid, begun).contains("ended before"), "gone");
    }
}
