//! From "move this pid" to a guest that runs: inspect, connect, prepare, freeze, send, commit.

use super::offer::{areas_of, holds, of_running};
use super::target::Prepared;
use super::thread::{DeputyThread, Threads};
use super::{Deputy, HomeError, Result, at, describe, target};
use crate::control::{DeputyOrder, MoveRecord};
use crate::layout::{HOLE_BYTES, SCRATCH};
use crate::link::Link;
use crate::message::{Area, Context, CpuTimers, MAX_THREADS};
use crate::{inspect, restart};
use pando_kernel::inject::{self, Call, call};
use pando_kernel::memory::ProcessMemory;
use pando_kernel::pagemap::{Pagemap, Ranges};
use pando_kernel::procfs::{self, Mapping};
use pando_kernel::ptrace::{self, Registers, Stop};
use pando_kernel::signal::SigInfo;
use pando_kernel::{PAGE, poll, signal, xstate};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Signals from this number on queue.
const FIRST_REAL_TIME: i32 = 32;
/// A signal that was due and does not come within this time has gone to another thread.
const TAKEN_BY_ANOTHER: Duration = Duration::from_millis(20);
/// prctl(2).
const PR_GET_TID_ADDRESS: u64 = 40;
/// Where in the scratch page the kernel tells what parts of the registers may be used.
const PERMITTED: usize = 128;
/// Most signals that are taken at the stop.
const STORM: usize = 1000;

/// Signals that threads were about to get when they were stopped.
type Caught = BTreeMap<i32, Vec<SigInfo>>;

/// A thread as the stop found it.
struct Stopped {
    tid: i32,
    registers: Registers,
    mask: u64,
}

type Failed = Box<(DeputyOrder, Link, HomeError)>;

/// Makes the first move of a process. On failure the process runs on at home, untouched.
pub(super) fn first_move(order: DeputyOrder, mut link: Link, begun: Instant) -> std::result::Result<Deputy, Failed> {
    let request = order.request;
    let prepared = match prepare_first(&order) {
        Ok(p) => p,
        Err(e) => return Err(Box::new((order, link, e))),
    };
    let (prepared, hole, fixed) = prepared;
    let mut deputy = match Deputy::open(&order, order.pid as i32, hole) {
        Ok(d) => d,
        Err(e) => return Err(Box::new((order, link, e))),
    };
    deputy.fixed = fixed;
    std::mem::swap(&mut deputy.link, &mut link);
    let node = prepared.node.clone();
    match deputy.freeze_and_start(prepared) {
        Ok(freeze) => {
            deputy.hello();
            deputy.set_phase("away");
            let record = MoveRecord {
                from: order.node.clone(),
                to: node,
                reason: order.reason.clone(),
                freeze_us: freeze.as_micros() as u64,
                total_us: begun.elapsed().as_micros() as u64,
                frozen_bytes: deputy.frozen_bytes,
            };
            deputy.move_done(request, Ok(record));
            Ok(deputy)
        }
        Err(e) if deputy.returning => {
            // At home, but a thread is busy with the rest of a transfer: the helper lets go of it as after any way home.
            deputy.hello();
            deputy.set_phase("home");
            deputy.move_done(request, Err(e.to_string()));
            Ok(deputy)
        }
        Err(e) => Err(Box::new((order, deputy.link, e))),
    }
}

pub(super) fn refuse(order: &DeputyOrder, obstacles: &[inspect::Obstacle]) -> Result<()> {
    if obstacles.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = obstacles.iter().map(|o| format!("{} ({})", o.why, o.advice)).collect();
    Err(HomeError::Refused(format!("process {} can't move: {}", order.pid, list.join("; "))))
}

fn check_owner(order: &DeputyOrder) -> Result<()> {
    let pid = order.pid as i32;
    let gone = || HomeError::Refused(format!("there is no process {pid}"));
    let status = procfs::status(pid).map_err(|_| gone())?;
    if procfs::start_time(pid).unwrap_or(0) != order.start_time {
        return Err(HomeError::Refused(format!("process {pid} has ended; its number now belongs to another one")));
    }
    let dumpable_owner =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("/proc/{pid}/maps")).map_err(|_| gone())?);
    let caller = order.caller_uid;
    let uid = status.uids[0];
    if caller == 0 {
        return Ok(());
    }
    if status.uids.iter().any(|&u| u != uid) {
        let several = inspect::of_several_users(order.pid, &status.uids);
        return Err(HomeError::Refused(format!("{several}: only root may move it")));
    }
    if uid != caller {
        let why = format!("process {pid} belongs to uid {uid}, not to uid {caller}: ask its owner or root");
        return Err(HomeError::Refused(why));
    }
    if dumpable_owner != caller {
        return refuse(order, &[inspect::closed()]);
    }
    Ok(())
}

fn prepare_first(order: &DeputyOrder) -> Result<(Prepared, u64, Ranges)> {
    check_owner(order)?;
    holds(order).at("inspect");
    let found = inspect::inspect(order.pid, None).map_err(HomeError::Refused)?;
    refuse(order, &found.obstacles)?;
    let (request, hole) = of_running(order, &found.fixed)?;
    let prepared = target::prepare(request)?;
    Ok((prepared, hole, found.fixed))
}

impl Deputy {
    fn open(order: &DeputyOrder, pid: i32, hole: u64) -> Result<Deputy> {
        let (uid, command) = describe(pid);
        let now = Instant::now();
        let not_permitted = |e: std::io::Error| HomeError::Refused(format!("process {pid} may not be traced: {e}"));
        let memory = ProcessMemory::open(pid).map_err(not_permitted)?;
        let pagemap = Pagemap::open(pid).map_err(not_permitted)?;
        Ok(Deputy {
            order: order.clone(),
            link: Link::new(""),
            pid,
            uid,
            command,
            threads: Threads::default(),
            memory,
            pagemap,
            children: at("signalfd", signal::child_signal_fd())?,
            link_ready: true,
            hole,
            syscall_ip: 0,
            handlers: BTreeMap::new(),
            ignored: 0,
            reset_wanted: Vec::new(),
            spent: BTreeMap::new(),
            noticed: BTreeMap::new(),
            arriving: Vec::new(),
            unborn: None,
            newborn: BTreeSet::new(),
            borrowers: BTreeMap::new(),
            abroad: None,
            changing_map: None,
            kept: Vec::new(),
            held: BTreeMap::new(),
            stack_wanted: None,
            stack_low: 0,
            brk: 0,
            fixed: Vec::new(),
            map_at_home: false,
            releasing: Default::default(),
            timers: CpuTimers::default(),
            tiles: false,
            wish: None,
            files: super::files::Files::default(),
            returning: false,
            released: false,
            dying: false,
            froze: now,
            thawed: Duration::ZERO,
            left: String::new(),
            frozen_bytes: 0,
            epoch: 1,
            calls: 0,
            last_seq: 0,
            pulled: 0,
            pushed: 0,
            found: 0,
            cpu_by_node: BTreeMap::new(),
            reported: now,
            phase: "prepare",
        })
    }

    /// Freezes the process, starts the guest, commits. Any error leaves the process running at home.
    fn freeze_and_start(&mut self, prepared: Prepared) -> Result<Duration> {
        self.froze = Instant::now();
        let mut caught = Caught::new();
        self.noticed = self.find_waits();
        let areas = match self.stop_all(&mut caught).and_then(|()| self.read_all(&mut caught)) {
            Ok(areas) => areas,
            Err(e) => {
                self.let_all_go(&caught);
                return Err(e);
            }
        };
        holds(&self.order).at("freeze");
        match self.start_at(prepared, &areas) {
            Ok(()) => Ok(self.thawed),
            Err(e) => {
                // A process that was killed meanwhile: that is what to say.
                if let Ok(Some(Stop::Gone(status))) = self.threads[self.pid].tracee.wait(false) {
                    return Err(HomeError::Ended(status));
                }
                self.undo()?;
                Err(e)
            }
        }
    }

    /// Nothing but stopping has happened to the threads.
    fn let_all_go(&self, caught: &Caught) {
        for (&tid, infos) in caught {
            // Taken out of its queue and not delivered. A fault happens again by itself.
            for info in infos.iter().filter(|i| !signal::is_fault(i) || signal::number(i) == libc::SIGTRAP) {
                let _ = signal::send_again(self.pid, tid, info);
            }
        }
        for thread in self.threads.iter() {
            let _ = thread.tracee.detach(0);
        }
    }

    /// Stops all threads, those too that appear meanwhile; signals that they were about to get are kept.
    fn stop_all(&mut self, caught: &mut Caught) -> Result<()> {
        let limit = Instant::now() + Duration::from_millis(self.order.limits.freeze_ms);
        loop {
            let all = at("its threads", procfs::threads(self.pid))?;
            let fresh: Vec<i32> = all.into_iter().filter(|&tid| !self.threads.has(tid)).collect();
            if fresh.is_empty() {
                return check_owner(&self.order);
            }
            for &tid in &fresh {
                self.seize(tid)?;
            }
            for tid in fresh.into_iter().filter(|&tid| self.threads.has(tid)).collect::<Vec<_>>() {
                if !self.stop(tid, caught.entry(tid).or_default(), limit)? {
                    self.threads.remove(tid);
                    caught.remove(&tid);
                }
            }
            if self.threads.len() > MAX_THREADS {
                let why = format!("process {} has more than {MAX_THREADS} threads", self.pid);
                return Err(HomeError::Refused(why));
            }
        }
    }

    /// Begins to trace a thread and asks it to stop; one that has just ended is passed over.
    fn seize(&mut self, tid: i32) -> Result<()> {
        let inner = procfs::innermost_tid(tid).unwrap_or(tid);
        let mut thread = DeputyThread::new(tid, inner, no_registers());
        thread.due = self.noticed.get(&tid).filter(|n| n.still_sleeps(tid)).map(|n| n.due);
        match thread.tracee.seize(0).and_then(|()| thread.tracee.interrupt()) {
            Ok(()) => self.threads.insert(thread),
            Err(_) if tid != self.pid && procfs::status(tid).map_or(true, |s| matches!(s.state, 'Z' | 'X')) => {}
            Err(e) => return Err(HomeError::Refused(format!("process {} may not be traced: {e}", self.pid))),
        }
        Ok(())
    }

    /// Waits for a thread to stop. False: it has ended, and others go on.
    fn stop(&self, tid: i32, caught: &mut Vec<SigInfo>, limit: Instant) -> Result<bool> {
        let tracee = self.threads[tid].tracee;
        let mut resumed: Option<Instant> = None;
        loop {
            match at("wait", tracee.wait(false))? {
                Some(Stop::Event(libc::SIGTRAP)) => {
                    if !signal_is_due(tid)? {
                        return Ok(true);
                    }
                    at("continue", tracee.cont(0))?;
                    resumed = Some(Instant::now());
                }
                Some(Stop::Event(_)) => {
                    let advice = format!("let it go on first: fg in its shell, or kill -CONT {}", self.pid);
                    return Err(HomeError::Refused(format!("process {} is stopped ({advice})", self.pid)));
                }
                // Nobody can take it along: it stops the process here, which then is no time to move.
                Some(Stop::Signal(libc::SIGSTOP)) => at("continue", tracee.cont(libc::SIGSTOP))?,
                Some(Stop::Signal(number)) => {
                    // Ordinary signals do not queue: a second one before the first was delivered is the same.
                    let known = number < FIRST_REAL_TIME && caught.iter().any(|i| signal::number(i) == number);
                    if !known {
                        caught.push(at("siginfo", tracee.siginfo())?);
                    }
                    // In a storm there is always another.
                    if caught.len() > STORM || known || !signal_is_due(tid)? {
                        return Ok(true);
                    }
                    at("continue", tracee.cont(0))?;
                    resumed = Some(Instant::now());
                }
                Some(Stop::Gone(_)) if tid != self.pid => return Ok(false),
                Some(Stop::Gone(status)) => return Err(HomeError::Ended(status)),
                Some(Stop::Other(_)) => at("continue", tracee.cont(0))?,
                None if Instant::now() > limit => {
                    let why = "it waits in the kernel and can't be stopped (a child in vfork, a device, or its container is paused)";
                    return Err(HomeError::Refused(format!("process {}: {why}; try again later", self.pid)));
                }
                None => {
                    let _ = poll::wait(&[(self.children.as_raw_fd(), false)], 5_000);
                    poll::drain(self.children.as_raw_fd());
                    if resumed.is_some_and(|r| r.elapsed() > TAKEN_BY_ANOTHER) {
                        resumed = None;
                        at("interrupt", tracee.interrupt())?;
                    }
                }
            }
        }
    }

    /// Reads everything but memory; sets up the hole. Leaves the registers as they were.
    fn read_all(&mut self, caught: &mut Caught) -> Result<Vec<Area>> {
        let mut stopped = Vec::new();
        for t in self.threads.iter() {
            let registers = at("registers", t.tracee.registers())?;
            stopped.push(Stopped { tid: t.tracee.tid, registers, mask: at("mask", t.tracee.signal_mask())? });
        }
        let mut originals: BTreeMap<i32, Registers> = stopped.iter().map(|s| (s.tid, s.registers)).collect();
        let found = self.read_rest(&stopped, caught, &mut originals);
        // Should this helper be killed, the kernel lets the process go on from here: nothing must have happened to it. The registers
        // come last, since until then it can't go on at all.
        for s in &stopped {
            at("mask", self.threads[s.tid].tracee.set_signal_mask(s.mask))?;
        }
        for (&tid, registers) in &originals {
            at("registers", self.threads[tid].tracee.set_registers(registers))?;
        }
        found
    }

    fn read_rest(
        &mut self,
        stopped: &[Stopped],
        caught: &mut Caught,
        originals: &mut BTreeMap<i32, Registers>,
    ) -> Result<Vec<Area>> {
        let status = at("status", procfs::status(self.pid))?;
        let maps = at("its map", procfs::maps(self.pid))?;
        let mut traced = status.clone();
        (traced.tracer, traced.state) = (0, 'R');
        let mut obstacles = inspect::of_status(self.pid, &traced);
        if maps.iter().any(|m| m.start < self.hole + HOLE_BYTES && m.end > self.hole) {
            obstacles.push(inspect::Obstacle { why: "it took the engine's place".into(), advice: "try again".into() });
        }
        if maps.iter().any(|m| m.shared && m.prot & procfs::WRITE != 0) {
            obstacles.extend(inspect::of_memory(self.pid, &maps));
        }
        refuse(&self.order, &obstacles)?;
        self.memory = at("memory", ProcessMemory::open(self.pid))?;
        self.pagemap = at("pagemap", Pagemap::open(self.pid))?;
        self.ignored = status.ignored;
        self.stack_low = maps.iter().find(|m| m.name == "[stack]").map_or(0, |m| m.start);
        self.find_call(&maps)?;
        for s in stopped {
            self.threads[s.tid].base = s.registers;
            self.no_frame_in_an_entry(&s.registers, &maps, &status)?;
        }
        let mut xstates = Vec::new();
        for s in stopped {
            xstates.push(at("extended state", self.threads[s.tid].tracee.xstate())?);
            self.clear_of_special_code(s.tid, s.registers, &maps)?;
        }
        let registers: Vec<Registers> = stopped.iter().map(|s| self.threads[s.tid].base).collect();
        for t in self.threads.iter_mut() {
            // Not on the program's stacks: sigaltstack(2) refuses to change the one that the stack pointer is in.
            t.base.rsp = self.hole + HOLE_BYTES - 64;
        }
        self.dig_hole()?;
        self.read_kernel_state(&status)?;
        for ((s, registers), xstate) in stopped.iter().zip(registers).zip(xstates) {
            let signals = caught.remove(&s.tid).unwrap_or_default();
            let original = self.read_thread(s, registers, xstate, signals, &status)?;
            originals.insert(s.tid, original);
        }
        Ok(areas_of(&maps, self.hole, &self.fixed))
    }

    /// Gets a stopped thread out of code that only this machine's kernel understands; its registers are its `base` then.
    fn clear_of_special_code(&mut self, tid: i32, registers: Registers, maps: &[Mapping]) -> Result<()> {
        at("mask", self.threads[tid].tracee.set_signal_mask(inject::QUIET))?;
        let mut registers = self.step_out(tid, registers, maps)?;
        // Before anything is run in it: the kernel forgets the sequence when it goes on elsewhere.
        if (registers.orig_rax as i64) < 0 {
            restart::leave_rseq(&self.memory, self.threads[tid].tracee.rseq().pointer, &mut registers);
        }
        self.threads[tid].base = registers;
        Ok(())
    }

    /// The context of one thread. Returns the registers with which it would go on if nobody did anything more.
    fn read_thread(
        &mut self,
        stopped: &Stopped,
        registers: Registers,
        xstate: Vec<u8>,
        caught: Vec<SigInfo>,
        process: &procfs::Status,
    ) -> Result<Registers> {
        let tid = stopped.tid;
        let rseq = self.threads[tid].tracee.rseq();
        let mut context = Context {
            xstate: xstate.len() as u32,
            mask: stopped.mask,
            rseq: (rseq.pointer, rseq.size, rseq.signature),
            ..Context::default()
        };
        self.read_thread_state(tid, &mut context)?;
        let signalled = caught.iter().any(|i| process.caught & signal::bit(signal::number(i)) != 0);
        context.undelivered = caught.iter().map(|i| i.to_vec()).collect();
        // One that has come since the stop finds the call made again: it must not end it before it is abroad itself.
        let regs = self.as_if_undisturbed(tid, registers, !signalled);
        context.registers = ptrace::to_words(&regs);
        let thread = &mut self.threads[tid];
        (thread.context, thread.xstate) = (Some(Box::new(context)), xstate);
        // A transfer that was cut short is a short one for a process that goes on without us.
        Ok(if thread.cut_short.is_some() { registers } else { regs })
    }

    /// What all threads have in common: handlers, break, CPU timers.
    fn read_kernel_state(&mut self, status: &procfs::Status) -> Result<()> {
        let scratch = self.hole + SCRATCH;
        let mut calls = vec![
            call(libc::SYS_brk, &[0]),
            call(libc::SYS_getitimer, &[1, scratch + 64]),
            call(libc::SYS_getitimer, &[2, scratch + 96]),
            call(libc::SYS_arch_prctl, &[xstate::ARCH_GET_XCOMP_PERM, scratch + PERMITTED as u64]),
        ];
        let caught: Vec<i32> = (1..=64).filter(|&s| status.caught & signal::bit(s) != 0).collect();
        for (i, &s) in (0u64..).zip(&caught) {
            calls.push(call(libc::SYS_rt_sigaction, &[s as u64, 0, scratch + 256 + 32 * i, 8]));
        }
        let results = self.inject(self.pid, &calls)?;
        self.brk = results[0] as u64;
        let mut page = vec![0; PAGE as usize];
        if !self.memory.read_all(scratch, &mut page) {
            return Err(HomeError::Kernel("read the scratch page", std::io::Error::last_os_error()));
        }
        for (i, &s) in caught.iter().enumerate() {
            self.handlers.insert(s, page[256 + 32 * i..288 + 32 * i].to_vec());
        }
        let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap_or_default());
        for (i, timer) in self.timers.iter_mut().enumerate() {
            for (j, part) in timer.iter_mut().enumerate() {
                *part = word(64 + i * 32 + j * 8);
            }
        }
        // An older kernel knows no such thing.
        self.tiles = results[3] == 0 && word(PERMITTED) >> xstate::TILES & 1 != 0;
        Ok(())
    }

    /// What the kernel keeps for each thread: alternative stack, robust list, tid address.
    fn read_thread_state(&self, tid: i32, context: &mut Context) -> Result<()> {
        let scratch = self.hole + SCRATCH;
        self.memory.write(scratch, &[0; 64]);
        let results = self.inject(
            tid,
            &[
                call(libc::SYS_sigaltstack, &[0, scratch]),
                call(libc::SYS_get_robust_list, &[0, scratch + 32, scratch + 40]),
                call(libc::SYS_prctl, &[PR_GET_TID_ADDRESS, scratch + 48]),
            ],
        )?;
        if results[2] != 0 && self.threads.len() > 1 {
            let why = "this kernel does not tell where threads that end are expected (PR_GET_TID_ADDRESS)";
            return Err(HomeError::Refused(format!("process {} has threads, and {why}", self.pid)));
        }
        let mut bytes = [0; 64];
        self.memory.read(scratch, &mut bytes);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        context.altstack = bytes[..24].to_vec();
        context.robust = (word(32), word(40));
        context.tid_address = word(48);
        Ok(())
    }

    /// After the commit: rseq, robust lists, tid addresses and the CPU timers are the guest's business. Not before, so that the process is
    /// whole if this helper dies.
    pub(super) fn take_from_home(&mut self) -> Result<()> {
        if self.abroad.is_none() {
            return Ok(());
        }
        let zeros = self.hole + SCRATCH;
        let armed = (1..).zip(self.timers).filter(|(_, timer)| timer.iter().any(|&v| v != 0));
        let mut timers: Vec<Call> = armed.map(|(which, _)| call(libc::SYS_setitimer, &[which, zeros, 0])).collect();
        self.memory.write(zeros, &[0; 32]);
        for tid in self.threads.ids() {
            let Some(context) = self.threads[tid].context.take() else { continue };
            let mut calls = std::mem::take(&mut timers);
            let (rseq, size, signature) = context.rseq;
            if rseq != 0 {
                calls.push(call(libc::SYS_rseq, &[rseq, u64::from(size), 1, u64::from(signature)]));
            }
            if context.robust.0 != 0 {
                calls.push(call(libc::SYS_set_robust_list, &[0, context.robust.1]));
            }
            if context.tid_address != 0 {
                calls.push(call(libc::SYS_set_tid_address, &[0]));
            }
            if !calls.is_empty() {
                self.inject_quietly(tid, &calls)?;
            }
        }
        Ok(())
    }

    /// Makes good what stopping did to a system call in progress. `quiet`: no signal came before the stop.
    fn as_if_undisturbed(&mut self, tid: i32, registers: Registers, quiet: bool) -> Registers {
        let mut r = registers;
        let nr = r.orig_rax;
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        if (nr as i64) < 0 {
            return r;
        }
        let result = r.rax as i64;
        restart::make_good(&self.memory, &mut r);
        if result == -516 && r.rax as i64 == -516 {
            self.threads[tid].restart = Some((nr, args));
        }
        self.threads[tid].due = self.due_of_broken_off(tid, &r);
        if quiet && result > 0 && restart::is_cut_short(self.pid, nr, &args, result) {
            self.threads[tid].cut_short = Some((nr, args, result as u64));
            r.rax = restart::NOINTR as u64;
        } else if quiet && result > 0 && restart::gives_the_same_again(self.pid, nr, &args, result) {
            r.rax = restart::NOINTR as u64;
        }
        r
    }

    /// Before the commit: the process goes on as if nothing had been tried.
    fn undo(&mut self) -> Result<()> {
        for thread in self.threads.iter_mut() {
            thread.restart = None;
        }
        self.returning = true;
        self.returning = !self.finished_returning()?;
        Ok(())
    }
}

/// Signals that wait are taken before the freeze, all of them: abroad the program would run on before their handlers.
fn signal_is_due(tid: i32) -> Result<bool> {
    let status = at("status", procfs::status(tid))?;
    Ok(status.pending & !status.blocked != 0)
}

/// Registers of a thread that have not been read yet.
fn no_registers() -> Registers {
    ptrace::from_words(&[0; ptrace::REGISTER_WORDS]).unwrap_or_else(|| unreachable!())
}
