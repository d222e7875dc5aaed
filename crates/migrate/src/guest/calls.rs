//! System calls of the guest: held, planned, sent home, answered.

use super::birth::{Asked, Birth};
use super::{Guest, GuestError, Held, Leaving, Result, Stage, at};
use crate::area::Backing;
use crate::layout::by_page;
use crate::message::{CHUNK, Down, Span, Up};
use crate::restart;
use pando_calls::{Class, Memory, Plan, Range};
use pando_kernel::memory::ProcessMemory;
use pando_kernel::notify::Notification;
use pando_kernel::{page_ceil, page_floor, signal};

/// Most input bytes that travel with their call; more go before it.
const INLINE: usize = 64 * 1024;
/// SIGKILL and SIGSTOP are in no mask.
const UNBLOCKABLE: u64 = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
const MADV_COLD: u64 = 20;
const MADV_PAGEOUT: u64 = 21;

/// The guest's memory as the call table wants to see it.
pub(super) struct View<'a> {
    pub memory: &'a ProcessMemory,
    pub areas: &'a crate::area::AreaMap,
}

impl Memory for View<'_> {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> usize {
        self.memory.read(addr, buf)
    }

    fn can_pull(&mut self, page: u64) -> bool {
        matches!(self.areas.find(page), Some((_, Backing::Home)))
    }
}

impl Guest {
    /// A new call of a thread is held.
    pub(super) fn on_call(&mut self, tid: i32, n: Notification) -> Result<()> {
        self.read_is_over(tid)?;
        if self.uffd.has_news() {
            self.take_faults()?;
        }
        let by_vdso = (self.vdso.0..self.vdso.1).contains(&n.ip);
        let mut held = Held { id: n.id, nr: n.nr, args: n.args, stage: Stage::Pulling, by_vdso };
        let thread = &mut self.threads[tid];
        thread.broke_off = false;
        thread.resumed = thread.resumed.filter(|r| r.is(n.nr, &n.args));
        thread.changing = None;
        if let Some(attach) = thread.attach.filter(|a| (a.nr, a.args) == (n.nr, n.args)) {
            thread.attach = None;
            held.stage = Stage::Sent(attach.seq);
            thread.call = Some(held);
            for info in std::mem::take(&mut thread.waiting) {
                self.queue_signal(tid, info)?;
            }
            return match self.threads[tid].early.take() {
                Some((down, body)) => self.on_answer(down, body),
                None => Ok(()),
            };
        }
        self.dispatch(tid, held)
    }

    /// What becomes of a held call.
    pub(super) fn dispatch(&mut self, tid: i32, mut held: Held) -> Result<()> {
        if self.must_wait(&held) {
            held.stage = Stage::PutOff;
            self.threads[tid].call = Some(held);
            return Ok(());
        }
        self.dispatch_now(tid, held)
    }

    fn dispatch_now(&mut self, tid: i32, mut held: Held) -> Result<()> {
        held.stage = if self.fork.is_some() { Stage::PutOff } else { Stage::Pulling };
        self.threads[tid].call = Some(held);
        if self.fork.is_some() {
            return Ok(());
        }
        if held.nr == libc::SYS_rt_sigreturn as u64 {
            return self.handler_returns(tid, held);
        }
        if held.nr == libc::SYS_set_tid_address as u64 {
            self.threads[tid].tid_address = held.args[0];
            return self.run_natively(tid, &held);
        }
        if let Some(reason) = self.must_go_home(tid, &held) {
            return self.call_goes_home(tid, &reason);
        }
        if let Some(reason) = self.disturbs_break(&held)? {
            return self.call_goes_home(tid, reason);
        }
        if self.answer_here(tid, &held)? {
            self.threads[tid].call = None;
            return Ok(());
        }
        if self.read_here(tid, &held)? || self.make_here(tid, &held)? {
            return Ok(());
        }
        self.plan_call(tid)
    }

    /// While written pages are sent home from a program with several threads, the map must come to rest again and again.
    fn must_wait(&self, held: &Held) -> bool {
        // At home there is one thread more than here, until that has ended.
        if held.nr == libc::SYS_exit as u64 && !self.stillborn.is_empty() {
            return true;
        }
        if self.waits_for_files(held) {
            return true;
        }
        matches!(self.leaving, Leaving::Presync { .. })
            && self.threads.len() > 1
            && matches!(pando_calls::class(held.nr, &held.args), Class::Memory | Class::Birth)
    }

    /// Lets calls go that were put off.
    pub(super) fn take_put_off(&mut self) -> Result<()> {
        for tid in self.threads.which(|t| t.call.is_some_and(|c| c.stage == Stage::PutOff)) {
            if let Some(held) = self.threads[tid].call {
                self.dispatch_now(tid, held)?;
            }
        }
        Ok(())
    }

    fn must_go_home(&self, tid: i32, held: &Held) -> Option<String> {
        let name = pando_calls::name(held.nr);
        match pando_calls::class(held.nr, &held.args) {
            Class::Home(reason) => Some(reason.to_string()),
            Class::Native => Some(format!("it called {name}")),
            Class::Memory if !self.body.full_uffd && self.needs_home_pages(held) => {
                Some(format!("it called {name}, which in personal mode only home can do"))
            }
            Class::Forward
                if held.nr == libc::SYS_exit as u64 && tid == self.offer.inner_pid && self.threads.len() > 1 =>
            {
                Some("its first thread ends before the others".into())
            }
            Class::Forward if self.looks_at_itself(held) => Some("it looks at its own memory through /proc".into()),
            // It asks for signals that already wait here: home must have them first.
            Class::Forward if held.nr == libc::SYS_rt_sigtimedwait as u64 && self.some_undelivered() => {
                Some("it waits for a signal that has come".into())
            }
            _ => None,
        }
    }

    fn some_undelivered(&self) -> bool {
        self.threads.iter().any(|t| !t.undelivered.is_empty())
    }

    /// Pages that only home has can be fetched later only where the kernel's own faults are seen, too.
    fn needs_home_pages(&self, held: &Held) -> bool {
        let a = &held.args;
        match held.nr as i64 {
            libc::SYS_mmap => a[3] as i32 & libc::MAP_ANONYMOUS == 0,
            libc::SYS_madvise => {
                a[2] as i32 == libc::MADV_DONTNEED && !self.is_own(a[0], page_ceil(a[0].saturating_add(a[1])))
            }
            _ => false,
        }
    }

    /// Files of /proc that show memory would show home's copy.
    fn looks_at_itself(&self, held: &Held) -> bool {
        let path = match held.nr as i64 {
            libc::SYS_open => held.args[0],
            libc::SYS_openat | libc::SYS_openat2 => held.args[1],
            _ => return false,
        };
        let mut text = [0u8; 128];
        let got = self.memory.read(path, &mut text);
        let text = text[..got].split(|&b| b == 0).next().unwrap_or_default();
        let last = text.rsplit(|&b| b == b'/').next().unwrap_or_default();
        let shows: [&[u8]; 7] = [b"mem", b"cmdline", b"environ", b"pagemap", b"smaps", b"smaps_rollup", b"clear_refs"];
        text.starts_with(b"/proc/") && shows.contains(&last)
    }

    /// Calls that need neither home nor the guest's kernel.
    fn answer_here(&mut self, tid: i32, held: &Held) -> Result<bool> {
        if held.nr == libc::SYS_sigaltstack as u64 {
            // Whether it may change depends on the stack in use, which only the guest's kernel sees. It goes along at the return.
            self.run_natively(tid, held)?;
            return Ok(true);
        }
        let advice = held.args[2];
        if held.nr == libc::SYS_madvise as u64 && [libc::MADV_FREE as u64, MADV_COLD, MADV_PAGEOUT].contains(&advice) {
            // Hints that the kernel may ignore. Free pages must not vanish at home while they are counted on here.
            self.answer(held.id, 0)?;
            return Ok(true);
        }
        Ok(false)
    }

    pub(super) fn answer(&self, id: u64, ret: i64) -> Result<()> {
        if let Some(l) = &self.listener {
            match l.answer(id, ret) {
                // The guest is being killed: its stop will tell.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                other => at("answer a call", other)?,
            }
        }
        Ok(())
    }

    fn call_goes_home(&mut self, tid: i32, reason: &str) -> Result<()> {
        if let Some(call) = &mut self.threads[tid].call {
            call.stage = Stage::GoesHome;
        }
        self.want_home(reason.to_string())
    }

    /// Tries to plan held calls again after pages have come.
    pub(super) fn retry_planning(&mut self) -> Result<()> {
        if !self.pulls.is_empty() || self.fork.is_some() || self.leaving.freezing() {
            return Ok(());
        }
        for tid in self.threads.which(|t| matches!(t.call, Some(Held { stage: Stage::Pulling, .. }))) {
            self.plan_call(tid)?;
        }
        Ok(())
    }

    pub(super) fn plan_call(&mut self, tid: i32) -> Result<()> {
        let Some(held) = self.threads[tid].call else { return Ok(()) };
        let mut view = View { memory: &self.memory, areas: &self.areas };
        if let Class::Words(words) = pando_calls::class(held.nr, &held.args) {
            // Where nothing is mapped the kernel says so.
            let mut absent: Vec<u64> = words.into_iter().filter(|&w| self.memory.word(w & !7).is_none()).collect();
            absent.retain(|&w| view.can_pull(page_floor(w)));
            return if absent.is_empty() { self.run_natively(tid, &held) } else { self.pull_for_call(tid, absent) };
        }
        if held.nr == libc::SYS_exit as u64 {
            let mut absent = self.missing_at_end(tid);
            absent.retain(|&w| view.can_pull(page_floor(w)));
            if !absent.is_empty() {
                return self.pull_for_call(tid, absent);
            }
        }
        let plan = match pando_calls::class(held.nr, &held.args) {
            // Described by the engine: no memory is read.
            Class::Memory => Plan::Forward { inputs: Vec::new(), outputs_max: Vec::new() },
            Class::Birth => match self.asked_birth(&held, &mut view) {
                Asked::Thread(birth) => {
                    if let Some(why) = self.too_many_threads(self.threads.len() + 1) {
                        return self.call_goes_home(tid, &why);
                    }
                    return self.send_call(tid, libc::SYS_clone as u64, birth.args(), Vec::new(), &[]);
                }
                Asked::Process(birth) => {
                    return if self.signals_first(tid, held)? { Ok(()) } else { self.begin_fork(tid, birth) };
                }
                Asked::NotHere(page) => Plan::NeedPages(vec![page]),
                Asked::Else => Plan::Home("it makes a process in a way that only home can do"),
            },
            _ => pando_calls::plan(held.nr, &held.args, &mut view),
        };
        match plan {
            Plan::Home(reason) => self.call_goes_home(tid, reason),
            Plan::NeedPages(pages) => self.pull_for_call(tid, pages),
            Plan::Forward { inputs, .. } => self.forward(tid, held, &inputs),
        }
    }

    /// The call is planned anew when these pages are there.
    fn pull_for_call(&mut self, tid: i32, pages: Vec<u64>) -> Result<()> {
        for page in pages {
            match self.areas.find(page_floor(page)) {
                Some((end, Backing::Home)) => self.pull(page_floor(page), end)?,
                _ => return self.call_goes_home(tid, "its arguments are where nothing is mapped"),
            }
        }
        Ok(())
    }

    /// Does a signal come before the call? Then its handler runs first.
    fn signals_first(&mut self, tid: i32, held: Held) -> Result<bool> {
        self.forget_flushed(tid)?;
        let mask_call =
            pando_calls::temporary_mask(held.nr, &held.args, &mut View { memory: &self.memory, areas: &self.areas });
        let lets_in = |thread: &super::thread::GuestThread, mask: u64| thread.undelivered.numbers() & !mask != 0;
        if mask_call.is_some_and(|mask| lets_in(&self.threads[tid], mask)) {
            // A signal that waits here and that the call would let in: it breaks the call off at once.
            self.threads[tid].call = None;
            self.break_off(tid, held, restart::NOHAND)?;
            return Ok(true);
        }
        if !self.threads[tid].undelivered.is_empty() {
            // A signal came before the kernel saw it: its handler runs first, or it would wait for the end of this call.
            let blocked = at("status", pando_kernel::procfs::status(self.threads[tid].tracee.tid))?.blocked;
            if lets_in(&self.threads[tid], blocked) {
                self.threads[tid].call = None;
                let cut = self.threads[tid].cut_short.take();
                if let Some((_, _, done)) = cut.filter(|c| (c.0, c.1) == (held.nr, held.args)) {
                    // Part of it has been transferred: it ends with that.
                    self.threads[tid].resumed = None;
                    self.answer(held.id, done as i64)?;
                    return Ok(true);
                }
                self.break_off(tid, held, self.instead(tid, restart::NOINTR))?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn forward(&mut self, tid: i32, held: Held, inputs: &[Range]) -> Result<()> {
        if self.signals_first(tid, held)? {
            return Ok(());
        }
        self.note_stack_growth()?;
        let total: u64 = inputs.iter().map(|r| r.len).sum();
        let (mut spans, mut bytes): (Vec<Span>, Vec<u8>) = (Vec::new(), Vec::new());
        for range in inputs {
            self.huge.goes_home(range.addr, range.end());
            self.collect(range, total as usize > INLINE, &mut spans, &mut bytes)?;
        }
        self.send_call(tid, held.nr, held.args, spans, &bytes)
    }

    pub(super) fn send_call(
        &mut self,
        tid: i32,
        nr: u64,
        args: [u64; 6],
        inputs: Vec<Span>,
        bytes: &[u8],
    ) -> Result<()> {
        self.seq += 1;
        self.counted.0 += 1;
        self.files_before(self.seq, nr, &args)?;
        self.note_limits(nr, &args);
        let thread = &mut self.threads[tid];
        if let Some(call) = &mut thread.call {
            call.stage = Stage::Sent(self.seq);
        }
        let cut = thread.cut_short.take().is_some_and(|(cut_nr, cut_args, _)| (cut_nr, cut_args) == (nr, args));
        let resumes = cut || thread.resumed.is_some_and(|r| r.is(nr, &args));
        let up = Up::Call { tid, seq: self.seq, nr, args, inputs, signals: thread.signals, resumes };
        self.send(&up, &[bytes])
    }

    /// Reads what is present of an input. Absent pages are up to date at home.
    fn collect(&mut self, range: &Range, large: bool, spans: &mut Vec<Span>, bytes: &mut Vec<u8>) -> Result<()> {
        if !large || (range.len < 4096 && bytes.len() + range.len as usize <= INLINE) {
            for (addr, len) in by_page(range.addr, range.len) {
                let mut buf = vec![0; len as usize];
                if self.memory.read_all(addr, &mut buf) {
                    spans.push((addr, len as u32));
                    bytes.extend_from_slice(&buf);
                }
            }
            return Ok(());
        }
        let mut part: Vec<u8> = Vec::with_capacity(CHUNK);
        let mut begin = range.addr;
        for (addr, len) in by_page(range.addr, range.len) {
            let mut buf = vec![0; len as usize];
            let present = self.memory.read_all(addr, &mut buf);
            if (!present || part.len() + buf.len() > CHUNK) && !part.is_empty() {
                self.send(&Up::Input(begin), &[&part])?;
                part.clear();
            }
            if part.is_empty() {
                begin = addr;
            }
            if present {
                part.extend_from_slice(&buf);
            }
            // Do not let a huge write pile up in memory.
            while self.chan.wants_write() && part.is_empty() {
                at("poll", pando_kernel::poll::wait(&[(self.chan.raw(), true)], 100_000))?;
                self.chan.flush()?;
                self.heartbeat()?;
            }
        }
        if !part.is_empty() {
            self.send(&Up::Input(begin), &[&part])?;
        }
        Ok(())
    }

    /// What the call that runs at home has written, before its answer comes: so much may be written that it is not kept until then.
    pub(super) fn on_output(&mut self, addr: u64, bytes: &[u8]) -> Result<()> {
        let waits = |t: &super::thread::GuestThread| {
            matches!(t.call, Some(Held { stage: Stage::Sent(_), .. })) || t.attach.is_some()
        };
        if !self.threads.iter().any(waits) || !self.is_programs(addr, bytes.len() as u64) {
            return Err(GuestError::Protocol(format!("output at {addr:#x}, which no call writes")));
        }
        self.write_out(addr, bytes);
        Ok(())
    }

    /// Home's answer to a held call.
    pub(super) fn on_answer(&mut self, down: Down, body: Vec<u8>) -> Result<()> {
        let (Down::Reply { seq, .. } | Down::Interrupted { seq, .. }) = &down else { return Ok(()) };
        let seq = *seq;
        if let Some(stillborn) = self.stillborn.remove(&seq) {
            // A signal kept it from ending: once more.
            return if matches!(down, Down::Interrupted { .. }) { self.bury(stillborn) } else { self.take_put_off() };
        }
        let sent = |t: &super::thread::GuestThread| t.call.is_some_and(|c| c.stage == Stage::Sent(seq));
        let Some(&tid) = self.threads.which(sent).first() else {
            let waits = self.threads.which(|t| t.attach.is_some_and(|a| a.seq == seq));
            let Some(&tid) = waits.first() else {
                return Err(GuestError::Protocol(format!("an answer to call {seq}, which nobody made")));
            };
            self.threads[tid].early = Some((down, body));
            return Ok(());
        };
        let Some(held) = self.threads[tid].call.take() else { return Ok(()) };
        let ret = if let Down::Reply { ret, .. } = &down { Some(*ret) } else { None };
        self.io.count(held.nr, ret.unwrap_or(0));
        self.files_after(seq, &held, ret)?;
        let forks = self.fork.as_ref().map(|f| f.tid);
        if forks.is_some_and(|f| f != tid) {
            // Nobody runs on while a process is made.
            self.interrupt(tid)?;
        }
        match down {
            Down::Interrupted { .. } if forks == Some(tid) => self.fork_answered(&down, &[]),
            Down::Interrupted { code, .. } => {
                if !restart::CODES.contains(&code) {
                    return Err(GuestError::Protocol(format!("restart code {code}")));
                }
                let code = self.instead(tid, code);
                self.break_off(tid, held, code)
            }
            Down::Reply { ret, ref outputs, .. } => {
                self.threads[tid].resumed = None;
                let mut parts = Vec::new();
                let mut rest = body.as_slice();
                for &(addr, len) in outputs {
                    let short = || GuestError::Protocol("a short reply".into());
                    let (bytes, tail) = rest.split_at_checked(len as usize).ok_or_else(short)?;
                    if !self.is_programs(addr, u64::from(len)) {
                        return Err(GuestError::Protocol(format!("a reply that writes at {addr:#x}")));
                    }
                    parts.push((addr, bytes.to_vec()));
                    rest = tail;
                }
                match forks == Some(tid) {
                    true => self.fork_answered(&down, &parts),
                    false => self.complete(tid, held, ret, parts),
                }
            }
            _ => Ok(()),
        }
    }

    fn complete(&mut self, tid: i32, held: Held, ret: i64, mut parts: Vec<(u64, Vec<u8>)>) -> Result<()> {
        let class = pando_calls::class(held.nr, &held.args);
        if class == Class::CpuTime && ret >= 0 {
            self.add_cpu_time(tid, &held, &mut parts);
        }
        if held.nr == libc::SYS_rt_sigpending as u64 && ret == 0 {
            let waiting = self.threads[tid].undelivered.numbers();
            for (_, bytes) in parts.iter_mut().filter(|p| p.1.len() >= 8) {
                for (b, w) in bytes.iter_mut().zip(waiting.to_le_bytes()) {
                    *b |= w;
                }
            }
        }
        // The guest's own kernel writes the results of calls that it runs too.
        if class != Class::Both {
            for (addr, bytes) in &parts {
                self.write_out(*addr, bytes);
            }
        }
        match class {
            Class::Both if ret >= 0 => {
                self.note_handler(&held);
                self.note_mask(tid, &held);
                self.run_natively(tid, &held)
            }
            Class::Native => {
                // The end of a handler (handler_returns): what is in its frame is now home's mask, too.
                let mask = pando_kernel::procfs::stack_pointer(self.threads[tid].tracee.tid).ok();
                let mask = mask.and_then(|sp| self.memory.word(sp.wrapping_add(super::stops::FRAME_MASK - 8)));
                let thread = &mut self.threads[tid];
                thread.home_mask = mask.map_or(thread.home_mask, |m| m & !UNBLOCKABLE);
                self.run_natively(tid, &held)
            }
            Class::Birth if !(-4095..0).contains(&ret) => self.birth_answered(tid, &held, ret),
            Class::Memory if !(-4095..0).contains(&ret) => self.mirror(tid, &held, ret),
            _ if held.nr == libc::SYS_exit as u64 => self.let_end(tid, &held),
            _ => self.answer(held.id, ret),
        }
    }

    fn birth_answered(&mut self, tid: i32, held: &Held, ret: i64) -> Result<()> {
        // Its memory is as it was: the caller is held, and what other threads change there is theirs to answer for.
        let mut view = View { memory: &self.memory, areas: &self.areas };
        let birth: Birth = match self.asked_birth(held, &mut view) {
            Asked::Thread(birth) => birth,
            _ => {
                return Err(GuestError::Protocol(
                    "the arguments of clone3 have changed under its thread's hands".into(),
                ));
            }
        };
        self.give_birth(tid, held, birth, ret)
    }

    /// Writes output bytes where the page is present; where it is absent home's copy already has them.
    pub(super) fn write_out(&self, addr: u64, bytes: &[u8]) {
        if self.memory.write(addr, bytes) == bytes.len() {
            return;
        }
        for (start, len) in by_page(addr, bytes.len() as u64) {
            let from = (start - addr) as usize;
            self.memory.write(start, &bytes[from..from + len as usize]);
        }
    }

    /// A handler ends: its frame says which signals are blocked from now on. Home must know before the program goes on, and what
    /// then is let in must come first: so home runs the rt_sigprocmask that this amounts to.
    fn handler_returns(&mut self, tid: i32, held: Held) -> Result<()> {
        let thread = &self.threads[tid];
        let stack = at("the guest's stack pointer", pando_kernel::procfs::stack_pointer(thread.tracee.tid))?;
        // The return address has been popped; see FRAME_MASK in stops.rs.
        let place = stack.wrapping_add(super::stops::FRAME_MASK - 8);
        match self.memory.word(place).map(|m| m & !UNBLOCKABLE) {
            // While another call of it runs at home, nothing can be said to that; the next change of the mask will.
            Some(mask) if mask != thread.home_mask && thread.attach.is_none() => {
                let args = [libc::SIG_SETMASK as u64, place, 0, 8, 0, 0];
                self.send_call(tid, libc::SYS_rt_sigprocmask as u64, args, vec![(place, 8)], &mask.to_le_bytes())
            }
            _ => self.run_natively(tid, &held),
        }
    }

    /// Lets the guest's kernel run the call in which a thread is held.
    pub(super) fn run_natively(&mut self, tid: i32, held: &Held) -> Result<()> {
        self.threads[tid].call = None;
        match &self.listener {
            Some(l) => at("continue a call", l.run_natively(held.id).or_else(gone)),
            None => Ok(()),
        }
    }

    /// Follows what the call did to the deputy's mask.
    fn note_mask(&mut self, tid: i32, held: &Held) {
        if held.nr != libc::SYS_rt_sigprocmask as u64 || held.args[1] == 0 {
            return;
        }
        let Some(set) = self.memory.word(held.args[1]).map(|s| s & !UNBLOCKABLE) else { return };
        let thread = &mut self.threads[tid];
        thread.home_mask = match held.args[0] as i32 {
            libc::SIG_BLOCK => thread.home_mask | set,
            libc::SIG_UNBLOCK => thread.home_mask & !set,
            _ => set,
        };
    }

    fn note_handler(&mut self, held: &Held) {
        if held.nr != libc::SYS_rt_sigaction as u64 || held.args[1] == 0 {
            return;
        }
        let bit = signal::bit(held.args[0] as i32);
        match self.memory.word(held.args[1]) {
            Some(0 | 1) => self.caught &= !bit,
            _ => self.caught |= bit,
        }
    }
}

/// A call whose thread is being killed is no failure: the stop will tell.
fn gone(e: std::io::Error) -> std::io::Result<()> {
    if e.raw_os_error() == Some(libc::ENOENT) { Ok(()) } else { Err(e) }
}
