//! The running half abroad: `pando __guest`, one process with one thread for each guest.

mod another;
mod birth;
mod build;
mod calls;
mod clocks;
mod cpu_time;
mod deferred;
mod end;
mod faults;
mod files;
mod fork;
mod heap;
mod huge;
mod kin;
mod leave;
mod mirror;
mod release;
mod resumed;
mod room;
mod still;
mod stops;
mod thread;
mod undelivered;
mod urgency;

use crate::area::AreaMap;
use crate::channel::{Channel, ChannelError};
use crate::control::{Command, GuestOrder, Io, Report};
use crate::hold::{Holds, Side};
use crate::layout::{HOLE_BYTES, TOP};
use crate::link::Link;
use crate::message::{Down, Offer, Up, said};
use deferred::Deferred;
use files::Files;
use fork::Fork;
use huge::Huge;
use leave::Leaving;
use pando_kernel::memory::ProcessMemory;
use pando_kernel::notify::Listener;
use pando_kernel::pagemap::Pagemap;
use pando_kernel::sandbox::Body;
use pando_kernel::uffd::Uffd;
use pando_kernel::{clock, inject, poll, ptrace, signal};
use room::Room;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use thread::Threads;

/// Most stops, calls or messages that are taken in one round.
const AT_ONCE: u32 = 32;

/// How long an honest home that is refused is listened to.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why a guest's life ended here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestError {
    /// The connection to home is gone.
    #[error("home: {0}")]
    Home(#[from] ChannelError),
    /// The guest process failed under our hands.
    #[error("the guest: {0}")]
    Inject(#[from] inject::InjectError),
    /// A kernel facility failed.
    #[error("{0}: {1}")]
    Kernel(&'static str, std::io::Error),
    /// Home said something that makes no sense.
    #[error("home broke the protocol: {0}")]
    Protocol(String),
    /// The guest process died and home did not ask for it.
    #[error("the guest process died (wait status {0:#x}); {who}", who = killer(.0))]
    Died(i32),
    /// The program made a thread by the engine's own code.
    #[error("a thread that the program made behind our back ({0})")]
    Smuggled(String),
    /// It has taken too much memory, and home leaves it here.
    #[error("it took all the memory that a guest gets here, {0}, and its home did not take it back")]
    Full(String),
    /// It needs more than there is for it.
    #[error("{0}")]
    NoRoom(String),
    /// The normal end.
    #[error("home ended it")]
    Ended,
    /// Home is silent.
    #[error("home has been silent for {0} ms (limits.lost_after_ms)")]
    Lost(u64),
}

pub(crate) type Result<T> = std::result::Result<T, GuestError>;

/// Whose doing a death is that home did not ask for.
fn killer(status: &i32) -> &'static str {
    let filter = libc::WIFSIGNALED(*status) && libc::WTERMSIG(*status) == libc::SIGSYS;
    if filter { "it made a call that no guest makes" } else { "someone at this node ended it" }
}

/// Names the step that failed.
pub(crate) fn at<T>(step: &'static str, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|e| GuestError::Kernel(step, e))
}

/// How far a held call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Waits for pages that hold its nested arguments.
    Pulling,
    /// It waits until written pages have been sent, or a process has been made.
    PutOff,
    /// A read that is answered here, when what it needs has come.
    Reading,
    /// Sent home as call number `seq`.
    Sent(u64),
    /// It can't be forwarded: the process goes home.
    GoesHome,
}

/// The system call in which the guest is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub id: u64,
    pub nr: u64,
    pub args: [u64; 6],
    pub stage: Stage,
    /// Made by our code in the vDSO: a question for a clock, answered at once.
    pub by_vdso: bool,
}

/// A thread that home has and we could not make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stillborn {
    pub tid: i32,
    /// How many signals have come for it.
    pub signals: u64,
}

/// A call that already runs at home, as the guest will make it again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attach {
    pub seq: u64,
    pub nr: u64,
    pub args: [u64; 6],
}

/// All of one guest.
pub(crate) struct Guest {
    order: GuestOrder,
    offer: Offer,
    link: Link,
    chan: Channel,
    body: Body,
    threads: Threads,
    memory: ProcessMemory,
    pagemap: Pagemap,
    uffd: Uffd,
    listener: Option<Listener>,
    children: OwnedFd,
    hole: u64,
    areas: AreaMap,
    /// Parts of what home backs that are of no file.
    own: AreaMap,
    prepared: Vec<crate::message::Area>,
    /// Added to this machine's monotonic clock it gives the guest's.
    monotonic_offset: i64,
    brk: u64,
    heap: heap::Heap,
    /// The kernel's own mappings at home: nothing else may be there.
    kernels: Vec<(u64, u64)>,
    deferred: Deferred,
    /// Caught signals, as a set.
    caught: u64,
    /// Threads that could not be made here and are ending at home, by the numbers of the calls that end them.
    stillborn: BTreeMap<u64, Stillborn>,
    /// Messages that wait while only pages could be served.
    stash: VecDeque<(Down, Vec<u8>)>,
    seq: u64,
    paused: bool,
    /// It stands still because this node has no memory.
    still: still::Still,
    pulls: BTreeSet<u64>,
    stack_low: u64,
    /// Home's vDSO.
    vdso: (u64, u64),
    /// Addresses of the functions in it that are ours.
    stubs: Vec<u64>,
    cpu_before_ns: u64,
    leaving: Leaving,
    huge: Huge,
    room: Room,
    /// A process is being made.
    fork: Option<Fork>,
    files: Files,
    /// Bytes that forwarded calls moved.
    io: Io,
    wants_home: bool,
    reported: Instant,
    counted: (u64, u64, u64),
    /// Other guests here that may have pages of it, and how many were taken from them.
    kin: kin::Memories,
    found: u64,
}

/// Runs one guest to its end. Returns the exit code.
pub fn main() -> i32 {
    let order: GuestOrder = match serde_json::from_reader(std::io::stdin().lock()) {
        Ok(order) => order,
        Err(e) => {
            eprintln!("pando: __guest is started by the daemon, with an order on standard input: {e}");
            return 2;
        }
    };
    let mut link = Link::new(&order.engine_socket);
    match build::receive(order, &mut link) {
        Ok(Some(mut guest)) => {
            let end = guest.run();
            guest.finish(end)
        }
        Ok(None) => 0,
        Err(e) => {
            link.log("warn", said(&format!("a process could not be taken in: {e}")));
            1
        }
    }
}

impl Guest {
    fn lost_after(&self) -> Duration {
        Duration::from_millis(self.order.limits.lost_after_ms.min(self.offer.lost_after_ms))
    }

    /// Stands still if a test wants that.
    pub(crate) fn hold(&self, phase: &str) {
        Holds::new(self.order.holds.as_deref(), Side::Guest, self.offer.pid).at(phase);
    }

    pub(crate) fn send(&mut self, up: &Up, body: &[&[u8]]) -> Result<()> {
        if up.needs_the_map() {
            self.tell_map()?;
        }
        Ok(self.chan.send(up, body)?)
    }

    fn run(&mut self) -> Result<()> {
        let mut ready = vec![1; 6];
        loop {
            self.turn(&ready)?;
            self.work_on_leaving()?;
            self.work_on_fork()?;
            self.work_on_huge_pages()?;
            // A negative descriptor is passed over by poll(2).
            let listener = self.listener.as_ref().filter(|_| !self.leaving.closed()).map_or(-1, Listener::raw);
            let link = self.link.raw().unwrap_or(-1);
            let chan = (self.chan.raw(), self.chan.wants_write());
            let direct = (self.files.direct.raw(), false);
            let children = (self.children.as_raw_fd(), false);
            let fds = [chan, children, (self.uffd.raw(), false), (listener, false), (link, false), direct];
            let busy = self.leaving.busy() && !self.map_is_changing() || self.fork.as_ref().is_some_and(Fork::is_busy);
            let at_once = busy && !self.chan.wants_write() || self.uffd.has_news();
            let idle = self.room.look_within().min(self.huge_pages_due()).min(self.still_for()).as_micros() as i64;
            let timeout = if at_once || !self.stash.is_empty() || self.chan.has_frame() { 0 } else { idle };
            ready = at("poll", poll::wait(&fds, timeout))?;
            self.heartbeat()?;
            self.watch_memory()?;
            self.watch_still()?;
        }
    }

    /// Everything that is ready now, once round.
    fn turn(&mut self, ready: &[u8]) -> Result<()> {
        self.chan.flush()?;
        if ready[1] & 1 != 0 {
            poll::drain(self.children.as_raw_fd());
        }
        for _ in 0..AT_ONCE {
            let Some((here, stop)) = at("wait", ptrace::wait_any(false))? else { break };
            match self.threads.known_here(here) {
                Some(tid) => self.on_stop(tid, stop)?,
                None if here == self.body.init => return Err(GuestError::Died(0)),
                None => return Err(GuestError::Smuggled(format!("{here}: {stop:?}"))),
            }
        }
        if ready[2] & 1 != 0 || self.uffd.has_news() {
            self.take_faults()?;
        }
        if ready[3] & 1 != 0 {
            self.take_calls()?;
        }
        let mut budget = AT_ONCE;
        while budget > 0 {
            let next = match self.stash.pop_front() {
                Some(stashed) => Some(stashed),
                None if ready[0] & 1 != 0 || self.chan.has_frame() => self.chan.next_frame::<Down>()?,
                None => None,
            };
            let Some((down, body)) = next else { break };
            self.on_down(down, body)?;
            budget -= 1;
        }
        if ready[5] & 1 != 0 {
            self.direct_done()?;
        }
        if self.files.news {
            self.retry_reads()?;
        }
        if ready[4] & 1 != 0 || self.link.raw().is_none() {
            for command in self.link.commands() {
                match command {
                    Command::Evict { reason } => self.want_home(reason)?,
                    Command::StandStill { ms } => self.stand_still(ms)?,
                    Command::Move { .. } | Command::Release => {}
                }
            }
        }
        Ok(())
    }

    /// Takes calls that wait.
    fn take_calls(&mut self) -> Result<()> {
        for _ in 0..AT_ONCE {
            let Some(listener) = self.listener.as_ref().filter(|_| !self.leaving.closed()) else { break };
            if !poll::wait(&[(listener.raw(), false)], 0).is_ok_and(|r| r[0] & 1 != 0) {
                break;
            }
            let Some(n) = listener.receive() else { break };
            match self.threads.known_here(n.tid) {
                Some(tid) => self.on_call(tid, n)?,
                None => return Err(GuestError::Protocol(format!("a call of a thread ({}) that nobody made", n.tid))),
            }
        }
        Ok(())
    }

    fn on_down(&mut self, down: Down, body: Vec<u8>) -> Result<()> {
        // What crosses with our leaving is home's to sort out: it kept the reply, and counts the signals we saw.
        let frozen = matches!(self.leaving, Leaving::Frozen);
        match down {
            Down::Reply { .. } | Down::Interrupted { .. } if self.leaving.freezing() => Ok(()),
            Down::Signal(..) | Down::Pages(_) | Down::Known { .. } | Down::NoPage(_) if frozen => Ok(()),
            Down::Pages(runs) => self.install(&runs, &body),
            Down::Known { kin, addr, pages, sums } => self.on_known(kin, addr, pages, &sums),
            Down::NoPage(addr) => {
                self.pulls.remove(&addr);
                self.want_home(format!("it touched memory at {addr:#x} that only home can judge"))
            }
            Down::Output(_) if frozen => Ok(()),
            Down::Output(addr) => self.on_output(addr, &body),
            Down::Reply { .. } | Down::Interrupted { .. } => self.on_answer(down, body),
            Down::Signal(tid, info) => self.on_signal(tid, &info),
            Down::Pause => {
                self.paused = true;
                for tid in self.threads.which(|t| !t.stopped && !t.ending) {
                    self.interrupt(tid)?;
                }
                self.report_state();
                Ok(())
            }
            Down::Resume => {
                self.paused = false;
                for tid in self.threads.which(|t| t.stopped) {
                    self.go_on(tid)?;
                }
                self.report_state();
                Ok(())
            }
            Down::Urgency(tid, policy, nice) => self.on_urgency(tid, policy, nice),
            Down::ComeHome => self.begin_leaving(),
            Down::Granted(ask, file) => self.on_granted(ask, &file),
            Down::Shared(ask, shared) => self.on_shared(ask, shared),
            Down::Unshared(id) => self.on_unshared(id),
            Down::Refused(ask) => self.on_refused(ask),
            Down::FileData(id, offset) => self.keep_file_data(id, offset, body),
            Down::Forget(id) => self.on_forget(id),
            Down::Renewed(number) => self.on_renewed(number),
            Down::Huge(ranges) => self.huge.want(&ranges),
            Down::MapAtHome => {
                self.deferred.most = 0;
                if self.heap.free.is_none() { Ok(()) } else { self.want_home("its memory has been limited".into()) }
            }
            Down::MapAbroad(most, guards) => self.may_map(most, &guards),
            Down::TakeOver(ranges) => self.take_over(&ranges),
            Down::End => Err(GuestError::Ended),
            Down::Ping => Ok(()),
            Down::Offer(_)
            | Down::Clock { .. }
            | Down::Prepare(_)
            | Down::Special(_)
            | Down::Areas(_)
            | Down::Undelivered
            | Down::Thread(..)
            | Down::Start(_) => Err(GuestError::Protocol(said(&format!("a message out of place: {down:?}")))),
        }
    }

    /// Is all of this the program's, or could it be? Nothing that home says may touch the engine's own pages.
    pub(crate) fn is_programs(&self, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        end <= TOP && (end <= self.hole || addr >= self.hole + HOLE_BYTES)
    }

    /// Asks a thread to stop.
    pub(crate) fn interrupt(&mut self, tid: i32) -> Result<()> {
        let thread = &mut self.threads[tid];
        if !thread.interrupting && !thread.stopped {
            at("interrupt", thread.tracee.interrupt())?;
            thread.interrupting = true;
        }
        Ok(())
    }

    /// Asks home to take the process back.
    pub(crate) fn want_home(&mut self, reason: String) -> Result<()> {
        if !self.wants_home {
            self.wants_home = true;
            self.send(&Up::WantHome(reason), &[])?;
        }
        Ok(())
    }

    pub(crate) fn cpu_ns(&self) -> u64 {
        clock::process_cpu_ns(self.body.pid)
    }

    pub(crate) fn heartbeat(&mut self) -> Result<()> {
        let limit = self.lost_after();
        if self.chan.heard.elapsed() > limit {
            return Err(GuestError::Lost(limit.as_millis() as u64));
        }
        if self.chan.spoke.elapsed() > limit / 4 {
            self.send(&Up::Ping, &[])?;
        }
        if self.reported.elapsed() > Duration::from_secs(1) {
            self.reported = Instant::now();
            let cpu = self.cpu_ns();
            let signals = self.threads.iter().filter(|t| t.signals > 0).map(|t| (t.tid, t.signals)).collect();
            self.send(&Up::Usage(cpu, signals), &[])?;
            self.tell_map()?;
            self.count_files()?;
            self.report_state();
        }
        Ok(())
    }

    pub(crate) fn report_state(&mut self) {
        let (calls, pulled, pushed) = self.counted;
        let ms = self.cpu_ns() / 1_000_000;
        self.link.report(Report::State {
            pid: self.offer.pid as u32,
            place: self.order.node.clone(),
            phase: self.leaving.phase().into(),
            stopped: self.paused,
            calls,
            pulled,
            pushed,
            found: self.found,
            cpu_abroad_ms: ms,
            cpu_by_node: vec![(self.order.node.clone(), ms)],
            io: Io { cached: self.files.served, ..self.io },
        });
    }

    /// Home is still sending: what it has sent and nobody has read would take our last words away from it when the connection closes.
    fn hear_home_out(&mut self) {
        let end = Instant::now() + LAST_WORDS;
        while self.chan.wait::<Down>(end.saturating_duration_since(Instant::now())).is_ok() {}
    }

    /// Ends the guest and says why.
    fn finish(mut self, end: Result<()>) -> i32 {
        let _ = signal::kill(self.body.init, libc::SIGKILL);
        let _ = signal::kill(self.body.pid, libc::SIGKILL);
        let (outcome, level, detail) = match &end {
            Ok(()) | Err(GuestError::Ended) => ("home", "info", "it has left".to_string()),
            Err(e @ (GuestError::Home(_) | GuestError::Lost(_))) => {
                ("lost", "warn", format!("its home {} is out of reach: {e}; its guest here was ended", self.offer.home))
            }
            Err(_) if let Some(why) = self.room.out_of_memory() => ("failed", "error", why),
            Err(GuestError::Kernel(step, e)) if e.raw_os_error() == Some(libc::ESRCH) => (
                "failed",
                "error",
                format!(
                    "its process is gone ({step}): somebody at this node ended it, or the kernel for want of memory"
                ),
            ),
            Err(e) => ("failed", "error", said(&e.to_string())),
        };
        if outcome == "failed" {
            let _ = self.chan.send(&Up::Failed(detail.clone()), &[]);
            self.chan.drain(Duration::from_millis(500));
        }
        if let Err(GuestError::NoRoom(_)) = end {
            self.hear_home_out();
        }
        while !matches!(ptrace::wait_any(true), Ok(None) | Err(_)) {}
        let detail = format!("guest {} of {} ({}): {detail}", self.offer.pid, self.offer.home, self.offer.command);
        self.link.log(level, detail.clone());
        self.link.report(Report::Done { pid: self.offer.pid as u32, outcome: outcome.into(), detail });
        i32::from(outcome == "failed")
    }
}
