//! From an unread connection to a guest that runs.

use super::another::special_area;
use super::clocks;
use super::heap::Heap;
use super::huge::Huge;
use super::resumed::Resumed;
use super::room::{self, Room};
use super::thread::{Arriving, GuestThread, Threads};
use super::{Guest, GuestError, Leaving, Result, at};
use crate::area::{AreaMap, Backing};
use crate::channel::Channel;
use crate::control::{GuestOrder, Report};
use crate::hold::{Holds, Side};
use crate::layout::{HOLE_BYTES, SCRATCH, TOP};
use crate::link::Link;
use crate::message::{Area, Context, Down, Layout, MAX_AREAS, Offer, Special, Start, Up, VERSION, said};
use pando_kernel::inject::{self, Call, call};
use pando_kernel::memory::ProcessMemory;
use pando_kernel::notify::{self, Allowed, Listener};
use pando_kernel::pagemap::Pagemap;
use pando_kernel::ptrace::{self, Registers, Stop, Tracee};
use pando_kernel::sandbox::{self, Plan};
use pando_kernel::uffd::Uffd;
use pando_kernel::{PAGE, clock, pidfd, signal, vdso, xstate};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::TcpStream;
use std::os::fd::FromRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most bytes in one of the kernel's own mappings.
const MAX_SPECIAL: u64 = 1 << 20;
/// First of the uids that guests run under in system mode; each slot has its own.
const FIRST_UID: u32 = 0x7000_0000;
/// The longest wait for this machine's clock to reach what the program has seen, nanoseconds.
const MAX_BEHIND_NS: i64 = 1_000_000_000;
/// System calls that the injected code may make once the filter is in force, beside threads and private memory: only the guest's own map and timers, and what the
/// kernel keeps for a thread.
const HELPER_CALLS: [u32; 14] = [
    libc::SYS_rseq as u32,
    libc::SYS_set_robust_list as u32,
    libc::SYS_get_robust_list as u32,
    libc::SYS_set_tid_address as u32,
    libc::SYS_sigaltstack as u32,
    libc::SYS_mprotect as u32,
    libc::SYS_munmap as u32,
    libc::SYS_mremap as u32,
    libc::SYS_madvise as u32,
    libc::SYS_brk as u32,
    libc::SYS_getitimer as u32,
    libc::SYS_setitimer as u32,
    libc::SYS_rt_sigaction as u32,
    libc::SYS_close as u32,
];

#[cfg(test)]
#[path = "fuzz.rs"]
mod fuzz;

/// Speaks with home up to the start. None: declined, politely.
pub(super) fn receive(order: GuestOrder, link: &mut Link) -> Result<Option<Guest>> {
    // SAFETY: the daemon passes the accepted connection as descriptor 3 (GuestOrder); nothing else here owns it.
    let tcp = unsafe { TcpStream::from_raw_fd(3) };
    let protocol = |e: String| GuestError::Protocol(e);
    let identity = pando_wire::Identity::load(Path::new(&order.identity_dir)).map_err(|e| protocol(e.to_string()))?;
    let config = identity.server_config().map_err(|e| protocol(e.to_string()))?;
    let tls = rustls::ServerConnection::new(config).map_err(|e| protocol(e.to_string()))?;
    let limit = Duration::from_millis(order.limits.connect_ms);
    let mut chan = Channel::establish(tcp, tls.into(), limit)?;
    chan.squeeze_below(order.limits.compress_below());
    let who = chan.peer().unwrap_or_default();
    take_in(order, chan, link).inspect_err(|e| link.log("warn", said(&format!("refused a process of node {who}: {e}"))))
}

fn take_in(order: GuestOrder, mut chan: Channel, link: &mut Link) -> Result<Option<Guest>> {
    let protocol = |e: String| GuestError::Protocol(e);
    let limit = Duration::from_millis(order.limits.connect_ms);
    let (Down::Offer(mut offer), _) = chan.wait::<Down>(limit)? else {
        return Err(protocol("the first message is not an offer".into()));
    };
    offer.command = said(&offer.command);
    if chan.peer().as_deref() != Some(offer.home.as_str()) {
        let who = chan.peer().unwrap_or_default();
        return Err(protocol(format!("{who} offers a process in the name of {}", offer.home)));
    }
    Holds::new(order.holds.as_deref(), Side::Guest, offer.pid).at("connect");
    let stranger = || {
        let takes = order.from.is_empty() || order.from.contains(&offer.home);
        (!takes).then(|| format!("it takes no processes of {} ([guests] from)", offer.home))
    };
    let no = order.refuse.clone().or_else(stranger).or_else(|| reason_to_decline(&offer));
    if let Some(why) = no.map(|why| said(&why)) {
        return decline(&offer, &mut chan, link, why);
    }
    let limit = Duration::from_millis(order.limits.prepare_ms);
    chan.send(&Up::Agree { version: VERSION, node: order.node.clone() }, &[])?;
    let (monotonic, boottime) = match clocks::compare(&mut chan, limit)? {
        Ok(offsets) => offsets,
        Err(why) => return decline(&offer, &mut chan, link, why),
    };
    let (Down::Prepare(layout), _) = chan.wait::<Down>(limit)? else {
        return Err(protocol("a layout was expected".into()));
    };
    check_layout(&layout)?;
    let plan = Plan {
        pid: offer.inner_pid,
        name: format!("guest:{}", program_name(&offer.command)),
        uid: FIRST_UID + order.slot,
        hole: layout.hole,
        monotonic_offset: monotonic,
        boottime_offset: boottime,
        limits: layout.limits.iter().copied().chain(room::resource_limits(&order.limits)).collect(),
    };
    let mut guest = prepare(order, offer, chan, &plan, &layout)?;
    guest.link = std::mem::replace(link, Link::new(""));
    if let Some(complaint) = guest.room.complaint() {
        guest.link.log("warn", complaint);
    }
    // From here on a failure must end the sandbox.
    match guest.start_up(&layout) {
        Ok(()) => Ok(Some(guest)),
        Err(e) => {
            guest.finish(Err(e));
            Ok(None)
        }
    }
}

/// The file name of a command line's program.
fn program_name(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or_default();
    program.rsplit('/').next().unwrap_or_default()
}

fn decline(offer: &Offer, chan: &mut Channel, link: &mut Link, why: String) -> Result<Option<Guest>> {
    chan.send(&Up::Decline(why.clone()), &[])?;
    chan.drain(Duration::from_secs(1));
    link.log("info", format!("declined process {} of {}: {why}", offer.pid, offer.home));
    Ok(None)
}

fn reason_to_decline(offer: &Offer) -> Option<String> {
    if !(offer.version_min..=offer.version_max).contains(&VERSION) {
        return Some(format!(
            "it speaks protocol {}..{}, this node speaks {VERSION}: upgrade the older one",
            offer.version_min, offer.version_max
        ));
    }
    if let Some(why) = offer.needs.lacking() {
        return Some(why);
    }
    if offer.inner_pid < 2 {
        return Some("a process with pid 1 can't be moved: start the program under an init".into());
    }
    None
}

pub(super) fn check_layout(layout: &Layout) -> Result<()> {
    let bad = |why: &str| Err(GuestError::Protocol(format!("a layout with {why}")));
    if !layout.hole.is_multiple_of(PAGE) || layout.hole < 1 << 32 || layout.hole > TOP - (1 << 32) {
        return bad("a hole outside user space");
    }
    let as_area = |s: &Special| Area { start: s.start, end: s.end, prot: 1, stack: false, own: false };
    let special: Vec<Area> = layout.special.iter().map(as_area).collect();
    if special.len() > 8 || special.iter().any(|s| s.end - s.start.min(s.end) > MAX_SPECIAL) {
        return bad("strange kernel mappings");
    }
    let known = |r: u32| [libc::RLIMIT_STACK, libc::RLIMIT_CPU, libc::RLIMIT_CORE].contains(&r);
    if layout.limits.iter().any(|&(r, soft, hard)| !known(r) || soft > hard || (r == libc::RLIMIT_CORE && hard > 0)) {
        return bad("limits that are not a guest's");
    }
    check_areas(&special, layout.hole)?;
    let apart = |a: &Area| special.iter().all(|s| a.end <= s.start || a.start >= s.end);
    if !layout.areas.iter().all(apart) {
        return bad("areas where the kernel's mappings are");
    }
    check_areas(&layout.areas, layout.hole)
}

/// What a start says beside the layout of memory and the threads.
fn check_start(start: &Start) -> Result<()> {
    let bad = |why: &str| Err(GuestError::Protocol(format!("a start with {why}")));
    if start.calls > 1 << 62 || start.brk > TOP {
        return bad("numbers that nobody has counted to");
    }
    if start.handlers.iter().any(|(number, action)| !(1..=64).contains(number) || action.len() != 32) {
        return bad("strange signal handlers");
    }
    Ok(())
}

fn valid(start: u64, end: u64) -> bool {
    start < end && end <= TOP && start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE)
}

fn check_areas(areas: &[Area], hole: u64) -> Result<()> {
    let clear = |a: &Area| a.end <= hole || a.start >= hole + HOLE_BYTES;
    let ordered = areas.windows(2).all(|w| w[0].end <= w[1].start);
    if areas.len() > MAX_AREAS || !ordered || !areas.iter().all(|a| valid(a.start, a.end) && clear(a) && a.prot <= 7) {
        return Err(GuestError::Protocol("a layout with strange areas".into()));
    }
    Ok(())
}

pub(super) fn map_call(a: &Area) -> Call {
    let grows = if a.stack { libc::MAP_GROWSDOWN | libc::MAP_STACK } else { 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE | grows;
    call(libc::SYS_mmap, &[a.start, a.end - a.start, u64::from(a.prot), flags as u64, u64::MAX, 0])
}

/// Traces the new guest and has it stand still.
fn seize(tracee: Tracee) -> Result<()> {
    at("trace the guest", tracee.seize(libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE))?;
    at("interrupt the guest", tracee.interrupt())?;
    match at("wait for the guest", tracee.wait(true))? {
        Some(Stop::Event(_)) => Ok(()),
        other => Err(GuestError::Protocol(format!("the new guest stopped as {other:?}"))),
    }
}

fn prepare(order: GuestOrder, offer: Offer, chan: Channel, plan: &Plan, layout: &Layout) -> Result<Guest> {
    let children = at("signalfd", signal::child_signal_fd())?;
    let body = at("the sandbox", sandbox::spawn(plan))?;
    let tracee = Tracee { tid: body.pid };
    let built = (|| {
        seize(tracee)?;
        let memory = at("the guest's memory", ProcessMemory::open(body.pid))?;
        let pagemap = at("the guest's pagemap", Pagemap::open(body.pid))?;
        Ok((memory, pagemap, Room::new(&order.limits, &body)))
    })();
    let uffd = at("duplicate the userfaultfd", body.uffd.try_clone()).and_then(|fd| at("userfaultfd", Uffd::new(fd)));
    let ((memory, pagemap, room), uffd) = match built.and_then(|b| uffd.map(|u| (b, u))) {
        Ok(parts) => parts,
        Err(e) => {
            let _ = signal::kill(body.init, libc::SIGKILL);
            sandbox::reap(body.init);
            return Err(e);
        }
    };
    let (now, mut threads) = (Instant::now(), Threads::default());
    threads.insert(GuestThread::new(offer.inner_pid, tracee));
    let files = super::files::Files::new(&order.shared, offer.uid);
    let kin = super::kin::memories(&order, &offer);
    Ok(Guest {
        order,
        offer,
        link: Link::new(""),
        chan,
        body,
        threads,
        memory,
        pagemap,
        uffd,
        listener: None,
        children,
        hole: layout.hole,
        areas: AreaMap::default(),
        own: AreaMap::default(),
        prepared: layout.areas.clone(),
        monotonic_offset: plan.monotonic_offset,
        brk: 0,
        heap: Heap::new(),
        kernels: Vec::new(),
        deferred: super::deferred::Deferred::default(),
        caught: 0,
        stillborn: BTreeMap::new(),
        stash: VecDeque::new(),
        seq: 0,
        paused: false,
        still: Default::default(),
        pulls: BTreeSet::new(),
        stack_low: 0,
        vdso: (0, 0),
        stubs: Vec::new(),
        cpu_before_ns: 0,
        leaving: Leaving::No,
        huge: Huge::new(now),
        room,
        fork: None,
        files,
        io: crate::control::Io::default(),
        wants_home: false,
        reported: now,
        counted: (0, 0, 0),
        kin,
        found: 0,
    })
}

impl Guest {
    /// The guest's first thread, which does what is done once for all.
    fn first(&self) -> Tracee {
        self.threads[self.offer.inner_pid].tracee
    }

    /// Runs calls in the stopped first thread. `base`: its registers, which the caller restores.
    pub(crate) fn inject(&self, base: &Registers, calls: &[Call]) -> Result<Vec<i64>> {
        self.inject_in(self.first(), base, calls)
    }

    fn start_up(&mut self, layout: &Layout) -> Result<()> {
        let regs = at("registers", self.first().registers())?;
        at("mask", self.first().set_signal_mask(inject::QUIET))?;
        if self.memory.write(self.hole, &inject::CODE) != inject::CODE.len() {
            return Err(GuestError::Protocol("the hole can't be written".into()));
        }
        self.empty_and_map(&regs, layout)?;
        self.hold("prepare");
        let kin = self.kin.keys().copied().collect();
        self.send(&Up::Prepared { post_copy: self.body.full_uffd, kin }, &[])?;
        let limit = Duration::from_millis(self.order.limits.prepare_ms.max(self.order.limits.freeze_ms)) * 4;
        let (mut arriving, mut another, mut adjusted) = (Arriving::default(), false, false);
        let start = loop {
            match self.chan.wait::<Down>(limit)? {
                (Down::Start(start), _) => break start,
                (Down::Special(special), _) if !adjusted && !std::mem::replace(&mut another, true) => {
                    self.another_program(&regs, layout, special)?
                }
                (Down::Areas(areas), _) if !std::mem::replace(&mut adjusted, true) => self.adjust(&regs, &areas)?,
                (Down::Undelivered, body) => arriving.signals(&body)?,
                (Down::Thread(tid, context), xstate) => {
                    arriving.thread(tid, *context, xstate)?;
                    if let Some(why) = self.too_many_threads(arriving.threads.len()) {
                        return Err(GuestError::NoRoom(why));
                    }
                }
                (Down::Pages(runs), body) => self.install(&runs, &body)?,
                (Down::Ping, _) => {}
                (Down::End, _) => return Err(GuestError::Ended),
                (other, _) => return Err(GuestError::Protocol(said(&format!("a start was expected, not {other:?}")))),
            }
        };
        self.hold("send");
        self.link.report(Report::Hello {
            role: "guest".into(),
            helper: std::process::id(),
            pid: self.offer.pid as u32,
            home: self.offer.home.clone(),
            uid: self.offer.uid,
            command: self.offer.command.clone(),
            body: self.body.pid as u32,
        });
        self.start(&regs, &start, &arriving.threads)
    }

    /// Throws away the helper's own memory that the fork brought along and puts the program's map there.
    fn empty_and_map(&mut self, regs: &Registers, layout: &Layout) -> Result<()> {
        let mut calls = Vec::new();
        // The fork of the helper brought its libc's registration along; the kernel writes there on every switch.
        let rseq = self.first().rseq();
        if rseq.pointer != 0 {
            calls.push(call(libc::SYS_rseq, &[rseq.pointer, u64::from(rseq.size), 1, u64::from(rseq.signature)]));
        }
        let hole_end = self.hole + HOLE_BYTES;
        let unmap = |s: u64, e: u64| call(libc::SYS_munmap, &[s, e - s]);
        calls.extend([unmap(0, self.hole), unmap(hole_end, TOP)]);
        calls.extend(layout.special.iter().map(|s| map_call(&special_area(s))));
        calls.push(call(libc::SYS_close_range, &[0, u64::from(u32::MAX), 0]));
        calls.extend(layout.areas.iter().map(map_call));
        self.inject_all(regs, &calls)?;
        self.put_vdso(layout)?;
        for a in &layout.areas {
            self.watch(a)?;
        }
        Ok(())
    }

    /// Home's own vDSO code where the program knows it, asking the kernel for every clock; its data pages stay zero.
    pub(super) fn put_vdso(&mut self, layout: &Layout) -> Result<()> {
        self.kernels = layout.special.iter().map(|s| (s.start, s.end)).collect();
        let Some(place) = layout.special.iter().find(|s| s.name == "[vdso]") else { return Ok(()) };
        let mut code = layout.vdso.clone();
        code.truncate((place.end - place.start) as usize);
        self.stubs = vdso::without_data(&mut code).iter().map(|at| place.start + at).collect();
        if self.memory.write(place.start, &code) != code.len() {
            return Err(GuestError::Protocol("the vDSO can't be written".into()));
        }
        self.vdso = (place.start, place.end);
        Ok(())
    }

    pub(super) fn inject_all(&self, regs: &Registers, calls: &[Call]) -> Result<()> {
        for (c, result) in calls.iter().zip(self.inject(regs, calls)?) {
            if (-4095..0).contains(&result) {
                let e = std::io::Error::from_raw_os_error(-result as i32);
                let name = pando_calls::name(c.nr);
                return Err(GuestError::Protocol(format!("{name} {:#x?} in the new guest: {e}", c.args)));
            }
        }
        Ok(())
    }

    /// Home backs this area from now on.
    pub(crate) fn watch(&mut self, a: &Area) -> Result<()> {
        let post_copy = self.body.full_uffd;
        let result = if post_copy { self.uffd.register(a.start, a.end) } else { self.uffd.track(a.start, a.end) };
        at("watch an area", result)?;
        self.areas.insert(a.start, a.end, Backing::Home);
        self.own.remove(a.start, a.end);
        if a.own {
            self.own.insert(a.start, a.end, Backing::Home);
        }
        if a.stack {
            self.stack_low = a.start;
        }
        Ok(())
    }

    /// Applies what changed in the map between the layout and the freeze.
    fn adjust(&mut self, regs: &Registers, areas: &[Area]) -> Result<()> {
        check_areas(areas, self.hole)?;
        let old = std::mem::take(&mut self.prepared);
        let mut calls = Vec::new();
        for a in
            old.iter().filter(|a| areas.binary_search_by_key(&a.start, |b| b.start).map_or(true, |i| areas[i] != **a))
        {
            calls.push(call(libc::SYS_munmap, &[a.start, a.end - a.start]));
            self.areas.remove(a.start, a.end);
        }
        let fresh: Vec<&Area> = areas
            .iter()
            .filter(|a| old.binary_search_by_key(&a.start, |b| b.start).map_or(true, |i| old[i] != **a))
            .collect();
        calls.extend(fresh.iter().map(|a| map_call(a)));
        self.inject_all(regs, &calls)?;
        for a in fresh {
            self.watch(a)?;
        }
        Ok(())
    }

    fn start(&mut self, base: &Registers, start: &Start, contexts: &[(i32, Context, Vec<u8>)]) -> Result<()> {
        check_start(start)?;
        if contexts.first().is_none_or(|c| c.0 != self.offer.inner_pid) {
            return Err(GuestError::Protocol("a start without its first thread".into()));
        }
        self.brk = start.brk;
        self.deferred.begin_at(start.brk);
        self.seq = start.calls;
        self.cpu_before_ns = start.cpu_abroad_ns;
        self.paused = start.paused;
        self.restore_kernel_state(base, start)?;
        for (tid, context, _) in contexts {
            // The kernel reads it when rseq is registered, and nobody brings pages while that runs.
            if context.rseq.0 != 0 && self.body.full_uffd && self.memory.word(context.rseq.0).is_none() {
                return Err(GuestError::Protocol("a start without the page of rseq".into()));
            }
            match *tid == self.offer.inner_pid {
                true => self.restore_thread_state(base, *tid, context)?,
                false => self.bring_thread(base, *tid, context)?,
            }
        }
        for (tid, context, xstate) in contexts {
            self.restore_registers(base, *tid, context, xstate)?;
        }
        let here = (clock::monotonic_ns() as i64).wrapping_add(self.monotonic_offset);
        let behind = (start.clock as i64).saturating_sub(here);
        if behind > 0 {
            std::thread::sleep(Duration::from_nanos(behind.min(MAX_BEHIND_NS) as u64));
        }
        for tid in self.threads.ids() {
            self.go_on(tid)?;
        }
        self.hold("commit");
        self.send(&Up::Started, &[])?;
        self.report_state();
        Ok(())
    }

    /// What the kernel keeps for a thread.
    pub(super) fn restore_thread_state(&mut self, base: &Registers, tid: i32, context: &Context) -> Result<()> {
        let scratch = self.hole + SCRATCH;
        self.memory.write(scratch, &context.altstack);
        let calls = crate::thread_state::calls(context, scratch);
        let results = self.inject_in(self.threads[tid].tracee, base, &calls)?;
        self.none_failed(&calls, &results)
    }

    fn restore_registers(&mut self, base: &Registers, tid: i32, context: &Context, extended: &[u8]) -> Result<()> {
        let strange = || GuestError::Protocol("a strange register set".into());
        let regs = ptrace::from_words(&context.registers).ok_or_else(strange)?;
        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
        let thread = &mut self.threads[tid];
        thread.home_mask = context.mask;
        thread.signals = context.signals;
        thread.tid_address = context.tid_address;
        thread.cpu_before_ns = context.cpu_abroad_ns;
        thread.cut_short = context.cut_short.map(|done| (regs.orig_rax, args, done));
        thread.resumed = Resumed::of(&regs).filter(|_| context.in_call.is_none());
        thread.attach = context.in_call.map(|seq| super::Attach { seq, nr: regs.orig_rax, args });
        if xstate::has_tiles(extended) {
            let places = (self.hole, self.hole + SCRATCH);
            inject::use_tiles(thread.tracee, &self.memory, base, places)?;
        }
        at("registers", thread.tracee.set_registers(&sane(&regs, base)))?;
        at("extended state", thread.tracee.set_xstate(extended))?;
        at("mask", thread.tracee.set_signal_mask(context.mask))?;
        if let Some(seq) = context.in_call {
            self.files_find(seq, regs.orig_rax, &args);
        }
        for info in &context.undelivered {
            self.take_signal(tid, info)?;
        }
        Ok(())
    }

    /// Handlers, timers, and last the filter, which later threads inherit.
    fn restore_kernel_state(&mut self, base: &Registers, start: &Start) -> Result<()> {
        self.begin_heap(base, start)?;
        let scratch = self.hole + SCRATCH;
        let mut bytes = Vec::new();
        let mut calls = Vec::new();
        let ignore = [1u64, 0, 0, 0].map(u64::to_le_bytes).concat();
        for signal in 1..=64 {
            let caught = start.handlers.iter().find(|h| h.0 == signal && h.1.len() == 32).map(|h| &h.1);
            let ignored = (start.ignored & signal::bit(signal) != 0).then_some(&ignore);
            let Some(action) = caught.or(ignored) else { continue };
            if signal == libc::SIGKILL || signal == libc::SIGSTOP {
                continue;
            }
            let at = scratch + bytes.len() as u64;
            bytes.extend_from_slice(action);
            calls.push(call(libc::SYS_rt_sigaction, &[signal as u64, at, 0, 8]));
            self.caught |= if caught.is_some() { signal::bit(signal) } else { 0 };
        }
        let mut place = |data: &[u8]| {
            let at = scratch + bytes.len() as u64;
            bytes.extend_from_slice(data);
            at
        };
        for (which, timer) in (1..).zip(start.timers) {
            if timer.iter().any(|&v| v != 0) {
                let value: Vec<u8> = timer.iter().flat_map(|v| v.to_le_bytes()).collect();
                calls.push(call(libc::SYS_setitimer, &[which, place(&value), 0]));
            }
        }
        if start.tiles {
            calls.push(call(libc::SYS_arch_prctl, &[xstate::ARCH_REQ_XCOMP_PERM, u64::from(xstate::TILES)]));
        }
        // All kinds, so that a native membarrier works as it did at home.
        calls.extend([4, 16, 64, 256].map(|command| call(libc::SYS_membarrier, &[command, 0, 0])));
        let filter = self.filter();
        let program = place(&notify::filter_bytes(&filter));
        let header = place(&[filter.len() as u64, program].map(u64::to_le_bytes).concat());
        calls.push(call(libc::SYS_seccomp, &[notify::SET_MODE_FILTER, notify::FILTER_FLAGS, header]));
        if bytes.len() as u64 > PAGE || self.memory.write(scratch, &bytes) != bytes.len() {
            return Err(GuestError::Protocol("too many signal handlers for the scratch page".into()));
        }
        self.inject_and_listen(base, &calls)
    }

    fn filter(&self) -> Vec<notify::Instruction> {
        let rules = pando_calls::natives().iter().filter(|r| !asks_home(r.nr));
        let native: Vec<Allowed> =
            rules.map(|r| Allowed { nr: r.nr, only: r.arg.map(|(i, v)| (i, v.to_vec())) }).collect();
        notify::filter(&native, self.free_break().as_ref(), &HELPER_CALLS, self.hole + inject::TABLE_RETURN)
    }

    fn none_failed(&self, calls: &[Call], results: &[i64]) -> Result<()> {
        for (c, result) in calls.iter().zip(results) {
            let optional = [libc::SYS_sigaltstack, libc::SYS_membarrier, libc::SYS_prctl].contains(&(c.nr as i64));
            if (-4095..0).contains(result) && !optional {
                let e = std::io::Error::from_raw_os_error(-*result as i32);
                return Err(GuestError::Protocol(format!("{} in the new guest: {e}", pando_calls::name(c.nr))));
            }
        }
        Ok(())
    }

    /// The last one of the calls installs the filter.
    fn inject_and_listen(&mut self, base: &Registers, calls: &[Call]) -> Result<()> {
        let results = self.inject(base, calls)?;
        self.none_failed(calls, &results)?;
        let fd = results.last().copied().unwrap_or(-1) as i32;
        let handle = at("pidfd", pidfd::open(self.body.pid))?;
        self.listener = Some(Listener::new(at("take the listener", pidfd::getfd(&handle, fd))?));
        self.inject(base, &[call(libc::SYS_close, &[fd as u64])]).map(drop)
    }
}

/// Calls that the guest's kernel runs but that we must see: the tid address can't be read back, and the end of a signal handler changes
/// the mask.
fn asks_home(nr: u32) -> bool {
    [libc::SYS_set_tid_address, libc::SYS_rt_sigreturn].contains(&i64::from(nr))
}

/// Home's registers with the selectors of this kernel: a peer can set nothing but user state.
fn sane(regs: &Registers, base: &Registers) -> Registers {
    let mut r = *regs;
    r.cs = base.cs;
    r.ss = base.ss;
    r
}
