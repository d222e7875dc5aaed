//! From "move this pid" to a guest that runs: inspect, connect, prepare, freeze, send, commit.

use super::offer::{areas_of, holds, target_request};
use super::target::Prepared;
use super::{Deputy, Flight, HomeError, Result, Thread, at, describe, target};
use crate::control::{DeputyOrder, MoveRecord};
use crate::inspect;
use crate::layout::{HOLE_BYTES, SCRATCH, TABLE, choose_hole};
use crate::link::Link;
use crate::message::{Area, Context};
use pando_kernel::inject::{self, Call, call};
use pando_kernel::memory::ProcessMemory;
use pando_kernel::pagemap::Pagemap;
use pando_kernel::procfs::{self, Mapping};
use pando_kernel::ptrace::{self, Registers, Stop, Tracee};
use pando_kernel::signal::SigInfo;
use pando_kernel::{PAGE, poll, signal, vdso};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Signals from this number on queue.
const FIRST_REAL_TIME: i32 = 32;
/// Most signals that are taken at the stop.
const STORM: usize = 1000;

/// What the freeze found.
pub(super) struct Frozen {
    pub context: Context,
    pub xstate: Vec<u8>,
    pub registers: Registers,
    /// With which it would go on if nobody did anything more.
    pub original: Registers,
    pub areas: Vec<Area>,
    pub altstack: Vec<u8>,
}

type Failed = Box<(DeputyOrder, Link, HomeError)>;

/// Makes the first move of a process. On failure the process runs on at home, untouched.
pub(super) fn first_move(order: DeputyOrder, mut link: Link, begun: Instant) -> std::result::Result<Deputy, Failed> {
    let request = order.request;
    let prepared = match prepare_first(&order) {
        Ok(p) => p,
        Err(e) => return Err(Box::new((order, link, e))),
    };
    let (prepared, hole, pid) = prepared;
    let mut deputy = match Deputy::open(&order, pid, hole) {
        Ok(d) => d,
        Err(e) => return Err(Box::new((order, link, e))),
    };
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
        Err(e) if deputy.returning.is_some() => {
            // At home, but its thread is busy with the rest of a transfer: the helper lets go of it as after any way home.
            deputy.hello();
            deputy.set_phase("home");
            deputy.move_done(request, Err(e.to_string()));
            Ok(deputy)
        }
        Err(e) => Err(Box::new((order, deputy.link, e))),
    }
}

fn refuse(order: &DeputyOrder, obstacles: &[inspect::Obstacle]) -> Result<()> {
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
    if caller != 0 && (status.uids[..3].iter().any(|&u| u != caller) || dumpable_owner != caller) {
        return Err(HomeError::Refused(format!(
            "process {pid} does not belong to uid {caller}: ask its owner or root"
        )));
    }
    Ok(())
}

fn prepare_first(order: &DeputyOrder) -> Result<(Prepared, u64, i32)> {
    let pid = order.pid as i32;
    check_owner(order)?;
    holds(order).at("inspect");
    let found = inspect::inspect(order.pid, None).map_err(HomeError::Refused)?;
    refuse(order, &found.obstacles)?;
    let maps = at("its map", procfs::maps(pid))?;
    if maps.is_empty() {
        return Err(HomeError::Refused(format!(
            "process {pid} has no memory of its own (a kernel thread, or it has ended)"
        )));
    }
    let hole =
        choose_hole(&maps).ok_or_else(|| HomeError::Refused(format!("process {pid} leaves no room for the engine")))?;
    let prepared = target::prepare(target_request(order, order.dest.clone(), &maps, hole, 1, 0)?)?;
    Ok((prepared, hole, pid))
}

impl Deputy {
    fn open(order: &DeputyOrder, pid: i32, hole: u64) -> Result<Deputy> {
        let (uid, command) = describe(pid);
        let tracee = Tracee { pid };
        let now = Instant::now();
        let not_permitted = |e: std::io::Error| HomeError::Refused(format!("process {pid} may not be traced: {e}"));
        let memory = ProcessMemory::open(pid).map_err(not_permitted)?;
        let pagemap = Pagemap::open(pid).map_err(not_permitted)?;
        // SAFETY: all-zero registers are valid; they are replaced at the freeze.
        let base: Registers = ptrace::from_words(&[0; ptrace::REGISTER_WORDS]).unwrap_or_else(|| unreachable!());
        Ok(Deputy {
            order: order.clone(),
            link: Link::new(""),
            pid,
            uid,
            command,
            tracee,
            memory,
            pagemap,
            children: at("signalfd", signal::child_signal_fd())?,
            link_ready: true,
            hole,
            syscall_ip: 0,
            thread: Thread::Halted,
            before_stop: Thread::Halted,
            base,
            handlers: BTreeMap::new(),
            ignored: 0,
            reset_wanted: Vec::new(),
            spent: BTreeMap::new(),
            arriving: Vec::new(),
            rseq: (0, 0, 0),
            abroad: None,
            flight: None,
            starved: 0,
            last_reply: None,
            restart: None,
            cut_short: None,
            held: BTreeMap::new(),
            signals: 0,
            sent: VecDeque::new(),
            stack_wanted: None,
            stack_low: 0,
            halt_wanted: false,
            brk: 0,
            armed: [false; 2],
            wish: None,
            returning: None,
            returning_xstate: Vec::new(),
            froze: now,
            thawed: Duration::ZERO,
            left: String::new(),
            altstack: Vec::new(),
            frozen_bytes: 0,
            epoch: 1,
            halted_at: now,
            calls: 0,
            last_seq: 0,
            pulled: 0,
            pushed: 0,
            cpu_by_node: BTreeMap::new(),
            reported: now,
            phase: "prepare",
        })
    }

    /// Freezes the process, starts the guest, commits. Any error leaves the process running at home.
    fn freeze_and_start(&mut self, prepared: Prepared) -> Result<Duration> {
        let early = if prepared.post_copy { None } else { Some(()) };
        self.froze = Instant::now();
        self.tracee.seize(0).map_err(|e| HomeError::Refused(format!("process {} may not be traced: {e}", self.pid)))?;
        let mut held = Vec::new();
        let stopped = self.stop(&mut held);
        let frozen = match stopped.and_then(|()| self.read_all(&mut held)) {
            Ok(frozen) => frozen,
            Err(e) => {
                // Taken out of its queue and not delivered. A fault happens again by itself.
                for info in held.iter().filter(|i| !signal::is_fault(i) || signal::number(i) == libc::SIGTRAP) {
                    let _ = signal::send_again(self.pid, info);
                }
                let _ = self.tracee.detach(0);
                return Err(e);
            }
        };
        holds(&self.order).at("freeze");
        let copy_all = early.is_some();
        match self.start_at(prepared, &frozen, copy_all) {
            Ok(()) => Ok(self.thawed),
            Err(e) => {
                // A process that was killed meanwhile: that is what to say.
                if let Ok(Some(Stop::Gone(status))) = self.tracee.wait(false) {
                    return Err(HomeError::Ended(status));
                }
                self.undo(&frozen)?;
                Err(e)
            }
        }
    }

    /// Stops the process; signals that it was about to get are kept.
    fn stop(&mut self, held: &mut Vec<SigInfo>) -> Result<()> {
        at("interrupt", self.tracee.interrupt())?;
        let limit = Duration::from_millis(self.order.limits.freeze_ms);
        let begun = Instant::now();
        loop {
            match at("wait", self.tracee.wait(false))? {
                Some(Stop::Event(libc::SIGTRAP)) => {
                    if !self.signal_is_due()? {
                        break;
                    }
                    at("continue", self.tracee.cont(0))?;
                }
                Some(Stop::Event(_)) => {
                    let advice = format!("let it go on first: fg in its shell, or kill -CONT {}", self.pid);
                    return Err(HomeError::Refused(format!("process {} is stopped ({advice})", self.pid)));
                }
                Some(Stop::Signal(number)) => {
                    // Ordinary signals do not queue: a second one before the first was delivered is the same.
                    let known = number < FIRST_REAL_TIME && held.iter().any(|i| signal::number(i) == number);
                    if !known {
                        held.push(at("siginfo", self.tracee.siginfo())?);
                    }
                    // In a storm there is always another.
                    if held.len() > STORM || known || !self.signal_is_due()? {
                        break;
                    }
                    at("continue", self.tracee.cont(0))?;
                }
                Some(Stop::Gone(status)) => return Err(HomeError::Ended(status)),
                Some(Stop::Other(_)) => at("continue", self.tracee.cont(0))?,
                None if begun.elapsed() > limit => {
                    let why = "it waits in the kernel and can't be stopped (a child in vfork, or a device)";
                    return Err(HomeError::Refused(format!("process {}: {why}; try again later", self.pid)));
                }
                None => {
                    let _ = poll::wait(&[(self.children.as_raw_fd(), false)], 5_000);
                    poll::drain(self.children.as_raw_fd());
                }
            }
        }
        check_owner(&self.order)
    }

    /// Signals that wait are taken before the freeze, all of them: abroad the program would run on before their handlers.
    fn signal_is_due(&self) -> Result<bool> {
        let status = at("status", procfs::status(self.pid))?;
        Ok(status.pending & !status.blocked != 0)
    }

    /// Reads everything but memory; sets up the hole. Leaves the registers as they were.
    fn read_all(&mut self, held: &mut Vec<SigInfo>) -> Result<Frozen> {
        let registers = at("registers", self.tracee.registers())?;
        let mask = at("mask", self.tracee.signal_mask())?;
        let found = self.read_rest(registers, mask, held);
        // Should this helper be killed, the kernel lets the process go on from here: nothing must have happened to it. The registers
        // come last, since until then it can't go on at all.
        let registers = found.as_ref().map_or(registers, |f| f.original);
        at("mask", self.tracee.set_signal_mask(mask))?;
        at("registers", self.tracee.set_registers(&registers))?;
        found
    }

    fn read_rest(&mut self, registers: Registers, mask: u64, held: &mut Vec<SigInfo>) -> Result<Frozen> {
        let xstate = at("extended state", self.tracee.xstate())?;
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
        self.base = registers;
        self.memory = at("memory", ProcessMemory::open(self.pid))?;
        self.pagemap = at("pagemap", Pagemap::open(self.pid))?;
        let rseq = self.tracee.rseq();
        self.rseq = (rseq.pointer, rseq.size, rseq.signature);
        self.ignored = status.ignored;
        self.stack_low = maps.iter().find(|m| m.name == "[stack]").map_or(0, |m| m.start);
        self.no_frame_in_an_entry(&registers, &maps, &status)?;
        self.find_call(&maps)?;
        at("mask", self.tracee.set_signal_mask(inject::QUIET))?;
        let mut registers = self.step_out(registers, &maps)?;
        // Before anything is run in it: the kernel forgets the sequence when it goes on elsewhere.
        if (registers.orig_rax as i64) < 0 {
            self.leave_rseq(&mut registers);
        }
        self.base = registers;
        // Not on the program's stacks: sigaltstack(2) refuses to change the one that the stack pointer is in.
        self.base.rsp = self.hole + HOLE_BYTES - 64;
        self.dig_hole()?;
        let (altstack, timers) = self.read_kernel_state(&status)?;
        self.altstack.clone_from(&altstack);
        let signalled = held.iter().any(|i| status.caught & signal::bit(signal::number(i)) != 0);
        let mut context = Context {
            registers: Vec::new(),
            xstate: xstate.len() as u32,
            mask,
            rseq: self.rseq,
            altstack: altstack.clone(),
            timers,
            in_call: None,
            undelivered: held.drain(..).map(|i| i.to_vec()).collect(),
        };
        let regs = self.as_if_undisturbed(registers, &status, mask, signalled);
        // A transfer that was cut short is a short one for a process that goes on without us.
        let original = if self.cut_short.is_some() { registers } else { regs };
        context.registers = ptrace::to_words(&regs);
        Ok(Frozen { context, xstate, registers: regs, original, areas: areas_of(&maps, self.hole), altstack })
    }

    /// A system call instruction that the process has already.
    fn find_call(&mut self, maps: &[Mapping]) -> Result<()> {
        let vdso =
            maps.iter().find(|m| m.name == "[vdso]").ok_or_else(|| HomeError::Refused("it has no vDSO".into()))?;
        let mut code = vec![0; (vdso.end - vdso.start) as usize];
        self.memory.read(vdso.start, &mut code);
        let offset =
            vdso::syscall_offset(&code).ok_or_else(|| HomeError::Refused("its vDSO has no system call".into()))?;
        self.syscall_ip = vdso.start + offset;
        Ok(())
    }

    fn dig_hole(&mut self) -> Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let rw = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let rx = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let step = |c: Call| -> Result<i64> { Ok(inject::step_call(self.tracee, &self.base, self.syscall_ip, &c)?) };
        let got = step(call(libc::SYS_mmap, &[self.hole, HOLE_BYTES, rw, flags as u64, u64::MAX, 0]))?;
        if got != self.hole as i64 {
            let why = std::io::Error::from_raw_os_error(-got as i32);
            return Err(HomeError::Refused(format!("process {} leaves no room for the engine: {why}", self.pid)));
        }
        step(call(libc::SYS_mprotect, &[self.hole, PAGE, rx]))?;
        if self.memory.write(self.hole, &inject::CODE) != inject::CODE.len() {
            return Err(HomeError::Kernel("write the injected code", std::io::Error::last_os_error()));
        }
        Ok(())
    }

    /// Runs calls in the halted deputy with its signals blocked. Registers are left changed.
    pub(super) fn inject(&self, calls: &[Call]) -> Result<Vec<i64>> {
        Ok(inject::table_calls(self.tracee, &self.memory, &self.base, self.hole, self.hole + TABLE, calls)?)
    }

    /// Handlers, alternative stack, break, CPU timers.
    fn read_kernel_state(&mut self, status: &procfs::Status) -> Result<(Vec<u8>, [[u64; 4]; 2])> {
        let scratch = self.hole + SCRATCH;
        let mut calls = vec![
            call(libc::SYS_brk, &[0]),
            call(libc::SYS_sigaltstack, &[0, scratch]),
            call(libc::SYS_getitimer, &[1, scratch + 64]),
            call(libc::SYS_getitimer, &[2, scratch + 96]),
        ];
        let caught: Vec<i32> = (1..=64).filter(|&s| status.caught & signal::bit(s) != 0).collect();
        for (i, &s) in (0u64..).zip(&caught) {
            calls.push(call(libc::SYS_rt_sigaction, &[s as u64, 0, scratch + 256 + 32 * i, 8]));
        }
        let results = self.inject(&calls)?;
        self.brk = results[0] as u64;
        let mut page = vec![0; PAGE as usize];
        if !self.memory.read_all(scratch, &mut page) {
            return Err(HomeError::Kernel("read the scratch page", std::io::Error::last_os_error()));
        }
        for (i, &s) in caught.iter().enumerate() {
            self.handlers.insert(s, page[256 + 32 * i..288 + 32 * i].to_vec());
        }
        let mut timers = [[0; 4]; 2];
        for (i, timer) in timers.iter_mut().enumerate() {
            for (j, word) in timer.iter_mut().enumerate() {
                let at = 64 + i * 32 + j * 8;
                *word = u64::from_le_bytes(page[at..at + 8].try_into().unwrap_or_default());
            }
        }
        self.armed = timers.map(|timer| timer.iter().any(|&v| v != 0));
        Ok((page[..24].to_vec(), timers))
    }

    /// After the commit: rseq and the CPU timers are the guest's business. Not before, so that the process is whole if this helper dies.
    pub(super) fn take_from_home(&mut self) -> Result<()> {
        if self.abroad.is_none() {
            return Ok(());
        }
        let zeros = self.hole + SCRATCH;
        let mut calls: Vec<Call> = (1..)
            .zip(self.armed)
            .filter(|t| t.1)
            .map(|(which, _)| call(libc::SYS_setitimer, &[which, zeros, 0]))
            .collect();
        if self.rseq.0 != 0 {
            calls.push(call(libc::SYS_rseq, &[self.rseq.0, u64::from(self.rseq.1), 1, u64::from(self.rseq.2)]));
        }
        if calls.is_empty() {
            return Ok(());
        }
        let mask = at("mask", self.tracee.signal_mask())?;
        at("mask", self.tracee.set_signal_mask(inject::QUIET))?;
        self.memory.write(zeros, &[0; 32]);
        self.inject(&calls)?;
        at("mask", self.tracee.set_signal_mask(mask))
    }

    /// Makes good what stopping did to a system call in progress.
    fn as_if_undisturbed(
        &mut self,
        registers: Registers,
        status: &procfs::Status,
        mask: u64,
        signalled: bool,
    ) -> Registers {
        let mut r = registers;
        let nr = r.orig_rax;
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        if (nr as i64) < 0 {
            return r;
        }
        let result = r.rax as i64;
        let quiet = status.pending & !mask == 0 && !signalled;
        if result == -i64::from(libc::EINTR) && pando_calls::gives_eintr_by_itself(nr) {
            // EINTR it is if a handler runs, under the call's own mask too (ERESTARTNOHAND); else the stop was the cause.
            r.rax = -514i64 as u64;
        }
        if result == -516 {
            self.restart = Some((nr, args));
        }
        let transfers = [libc::SYS_write, libc::SYS_sendto, libc::SYS_recvfrom].contains(&(nr as i64));
        let waits_for_all = nr as i64 != libc::SYS_recvfrom || args[3] as i32 & libc::MSG_WAITALL != 0;
        if transfers && waits_for_all && quiet && result > 0 && (result as u64) < args[2] && self.blocks(args[0] as i32)
        {
            self.cut_short = Some((nr, args, result as u64));
            r.rax = -513i64 as u64;
        }
        r
    }

    fn blocks(&self, fd: i32) -> bool {
        procfs::descriptor_flags(self.pid, fd).is_some_and(|f| f & libc::O_NONBLOCK == 0)
    }

    /// A restartable sequence that is interrupted goes to its abort handler, as the kernel would have it (rseq(2)).
    fn leave_rseq(&self, r: &mut Registers) {
        let Some(section) =
            (self.rseq.0 != 0).then(|| self.memory.word(self.rseq.0.wrapping_add(8))).flatten().filter(|&p| p != 0)
        else {
            return;
        };
        let field = |at: u64| self.memory.word(section.wrapping_add(at));
        if let (Some(start), Some(length), Some(abort)) = (field(8), field(16), field(24))
            && r.rip.wrapping_sub(start) < length
        {
            r.rip = abort;
        }
    }

    /// Before the commit: the process goes on as if nothing had been tried.
    fn undo(&mut self, frozen: &Frozen) -> Result<()> {
        if let Some((nr, args, done)) = self.cut_short.take() {
            return self.finish_transfer(frozen, nr, args, done);
        }
        self.restart = None;
        let spoiled = self.go_on_here(&frozen.context, &frozen.registers, &frozen.xstate)?;
        if spoiled.is_empty() { Ok(()) } else { self.escort(spoiled) }
    }

    /// The freeze cut a blocking transfer short: the rest is transferred before the process goes on by itself, however long that
    /// takes.
    fn finish_transfer(&mut self, frozen: &Frozen, nr: u64, args: [u64; 6], done: u64) -> Result<()> {
        self.returning = Some(Box::new(frozen.context.clone()));
        self.returning_xstate.clone_from(&frozen.xstate);
        self.transfer_rest(nr, args, done)
    }

    /// Runs what is left of a transfer, for a process that is otherwise all here.
    pub(super) fn transfer_rest(&mut self, nr: u64, mut args: [u64; 6], done: u64) -> Result<()> {
        args[1] += done;
        args[2] -= done;
        let outputs_max = self.outputs_max(nr, args);
        self.flight = Some(Flight { seq: 0, nr, args, outputs_max, begun: false, disturbed: false, done_before: done });
        self.halt();
        self.begin()
    }
}
