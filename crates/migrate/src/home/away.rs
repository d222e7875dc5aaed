//! The loop of a deputy whose guest is abroad.

use super::calls::{STARVED, Wanted};
use super::thread::State;
use super::{Deputy, End, HomeError, Result, Wish, at, offer, target};
use crate::channel::ChannelError;
use crate::control::{Command, Destination};
use crate::message::{Down, MAX_XSTATE, Up, said, signals_in};
use pando_kernel::{poll, procfs, ptrace};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

/// How long the idle thread stays in our stop before it goes to sleep in pause(2).
pub(super) const PARK_AFTER: Duration = Duration::from_micros(500);

/// Most stops that are looked at in one round.
const STOPS: u32 = 64;

/// The same while signals keep calls from beginning.
const UNDER_FIRE: Duration = Duration::from_millis(20);

impl Deputy {
    /// Until the process is home or has ended.
    pub(super) fn live(&mut self) -> Result<End> {
        loop {
            match self.turn() {
                Ok(Some(end)) => return Ok(end),
                Ok(None) => {}
                Err(HomeError::Target { node, source }) => return Ok(End::Lost(self.lost(&node, &source))),
                Err(e) => return Err(e),
            }
        }
    }

    fn lost(&self, node: &str, source: &ChannelError) -> String {
        format!("node {node} was lost while the process was there ({source}); its memory went with it, so it was ended")
    }

    /// One round: events that are there, then work in the background, then sleep.
    fn turn(&mut self) -> Result<Option<End>> {
        for _ in 0..STOPS {
            let Some((tid, stop)) = (match ptrace::wait_any(false) {
                // All go on by themselves, and the last ones have left by exec.
                Err(e) if e.raw_os_error() == Some(libc::ECHILD) && self.released => return Ok(Some(End::Home)),
                other => at("wait", other)?,
            }) else {
                break;
            };
            // A thread that has just been let go may still have something to say.
            if self.threads.has(tid) {
                self.on_stop(tid, stop)?;
            } else if self.borrowers.contains_key(&tid) {
                self.on_borrower(tid, stop)?;
                self.follow(tid)?;
            } else if matches!(stop, ptrace::Stop::Event(_)) {
                // A child that stands still before its parent's stop has been seen.
                self.newborn.insert(tid);
            }
        }
        self.mind_leases()?;
        self.begin_waiting()?;
        if self.finished_returning()? {
            return Ok(Some(End::Home));
        }
        for _ in 0..32 {
            let Some(abroad) = self.abroad.as_mut().filter(|a| !a.chan.is_crowded()) else { break };
            let node = abroad.node.clone();
            let next = abroad.chan.next_frame::<Up>().map_err(|source| HomeError::Target { node, source })?;
            let Some((up, body)) = next else { break };
            self.on_up(up, body)?;
        }
        self.begin_waiting()?;
        if self.finished_returning()? {
            return Ok(Some(End::Home));
        }
        if self.link_ready || self.link.raw().is_none() {
            self.link_ready = false;
            for command in self.commands() {
                match command {
                    Command::Move { request, dest, reason } => self.on_wish(request, dest, reason)?,
                    Command::Release => self.want_release(),
                    Command::Evict { .. } | Command::StandStill { .. } => {}
                }
            }
        }
        self.work_on_wish()?;
        self.work_on_release()?;
        self.heartbeat()?;
        self.sleep()?;
        Ok(None)
    }

    fn sleep(&mut self) -> Result<()> {
        let mut timeout: i64 = if self.wish.as_ref().is_some_and(|w| w.preparing.is_some()) { 1_000 } else { 200_000 };
        let (mut reading, mut pushing, mut chan) = (false, false, (-1, false));
        if let Some(abroad) = &mut self.abroad {
            abroad.chan.flush().map_err(|source| HomeError::Target { node: abroad.node.clone(), source })?;
            let waiting = abroad.chan.wants_write();
            chan = (abroad.chan.raw(), waiting);
            reading = self.files.is_busy() && !waiting;
            pushing = abroad.pushes() && !waiting;
            if abroad.chan.is_crowded() {
                // Its questions wait in the socket, which would wake us at once.
                std::thread::sleep(Duration::from_millis(1));
            } else if pushing || reading || abroad.chan.has_frame() {
                timeout = 0;
            }
        }
        timeout = timeout.min(self.until_parking()).min(self.files.until_next());
        // A negative descriptor is passed over by poll(2).
        let fds = [(self.children.as_raw_fd(), false), chan, (self.link.raw().unwrap_or(-1), false)];
        let ready = at("poll", poll::wait(&fds, timeout))?;
        if ready[0] & 1 != 0 {
            if !self.files.is_empty() && pando_kernel::signal::has_ended(self.pid) {
                // Before its parent hears of it: what that does next to the files must find them free.
                self.files.end();
            }
            poll::drain(self.children.as_raw_fd());
        }
        self.link_ready |= ready[2] & 1 != 0;
        if reading {
            self.send_file_data()?;
        }
        if pushing && ready.iter().all(|r| r & 1 == 0) {
            self.push_some()?;
        }
        self.park_idle_threads()
    }

    /// How long an idle thread stays in our stop. Under fire the next call comes first: one more signal would only put it off again.
    fn patience(&self, tid: i32) -> Option<Duration> {
        let thread = &self.threads[tid];
        let idle = thread.state == State::Halted && thread.flight.is_none() && !self.returning;
        idle.then_some(if thread.starved >= STARVED { UNDER_FIRE } else { PARK_AFTER })
    }

    /// Microseconds until a thread is to be parked.
    fn until_parking(&self) -> i64 {
        let left = |tid: i32| Some(self.patience(tid)?.saturating_sub(self.threads[tid].halted_at.elapsed()));
        self.threads.ids().into_iter().filter_map(left).min().map_or(i64::MAX, |left| left.as_micros() as i64)
    }

    /// However busy the line is: only a thread that sleeps in the kernel hears signals.
    fn park_idle_threads(&mut self) -> Result<()> {
        for tid in self.threads.ids() {
            if self.patience(tid).is_some_and(|patience| self.threads[tid].halted_at.elapsed() >= patience) {
                self.grow_stack(tid)?;
                self.park(tid)?;
            }
        }
        Ok(())
    }

    fn on_up(&mut self, up: Up, body: Vec<u8>) -> Result<()> {
        match up {
            Up::Pull(addr, pages) => self.on_pull(addr, pages),
            Up::StackGrew(to) => self.on_stack_grew(to),
            Up::Input(addr) => {
                self.make_stack_now()?;
                self.write_input(addr, &body)
            }
            Up::Call { tid, seq, nr, args, inputs, signals, resumes } => {
                self.make_stack_now()?;
                self.on_call(Wanted { inner: tid, seq, nr, args, resumes }, &inputs, &body, signals)
            }
            Up::Child(context) => {
                let whole = body.len() == context.xstate as usize && body.len() <= MAX_XSTATE;
                if !whole || context.registers.len() != ptrace::REGISTER_WORDS || context.altstack.len() != 24 {
                    return Err(self.broken("a child that makes no sense"));
                }
                self.unborn = Some((context, body));
                Ok(())
            }
            Up::Mapped(calls) => self.on_mapped(&calls),
            Up::Took(ranges) => self.on_took(&ranges),
            Up::Unknown(ranges) => self.on_unknown(&ranges),
            Up::Written(runs) => self.on_written(&runs, &body),
            Up::WantHome(reason) => self.come_home_for(&said(&reason)),
            Up::Ask(ask, fd, owners) => self.on_ask(ask, fd, owners),
            Up::Position(fd, at) => self.on_position(fd, at),
            Up::Fetch(id, from, len) => self.on_fetch(id, from, len),
            Up::Release(id) => self.on_release(id),
            Up::NotShared(id) => self.on_not_shared(id),
            Up::Renew(number) => self.on_renew(number),
            Up::Served(bytes) => {
                self.files.io.cached = bytes.max(self.files.io.cached);
                Ok(())
            }
            Up::Undelivered if !self.froze_abroad() || !signals_in(&body, &mut self.arriving) => {
                Err(self.broken("signals that it can't have"))
            }
            Up::Undelivered => Ok(()),
            Up::Thread(inner, context) => self.on_thread(inner, *context, body),
            Up::Frozen { timers, cpu_ns, brk } => self.on_frozen(timers, cpu_ns, brk),
            Up::Usage(cpu_ns, signals) => {
                for (inner, seen) in signals {
                    // A thread that has ended meanwhile has seen them all.
                    if let Some(tid) = self.threads.known_inside(inner) {
                        self.check_signals(tid, seen)?;
                        self.threads[tid].signals_seen(seen);
                    }
                }
                let threads = self.threads.len();
                if let Some(a) = &mut self.abroad {
                    a.cpu_ns = a.believable(cpu_ns, threads);
                }
                Ok(())
            }
            Up::Failed(why) => Err(HomeError::Declined { node: self.place(), why: format!("lost it: {}", said(&why)) }),
            Up::Ping => Ok(()),
            Up::Agree { .. } | Up::Decline(_) | Up::AskClock | Up::Prepared { .. } | Up::Started => {
                Err(self.broken("a message out of place"))
            }
        }
    }

    /// Input for a grown stack must find that stack.
    fn make_stack_now(&mut self) -> Result<()> {
        if self.stack_wanted.is_some()
            && let Some(tid) = self.free_thread()?
        {
            self.grow_stack(tid)?;
        }
        Ok(())
    }

    /// A thread that is halted, if need be taken out of its sleep; signals that come meanwhile are handled. None: all are in calls.
    pub(super) fn free_thread(&mut self) -> Result<Option<i32>> {
        if let Some(tid) = self.threads.halted() {
            return Ok(Some(tid));
        }
        // One that has a call waiting makes that when it is woken.
        let asleep = |t: &&super::thread::DeputyThread| t.state == State::Parked && t.flight.is_none();
        loop {
            let Some(tid) = self.threads.iter().find(asleep).map(|t| t.tracee.tid) else { return Ok(None) };
            self.threads[tid].halt_wanted = true;
            at("interrupt", self.threads[tid].tracee.interrupt())?;
            // It may be gone when the process is killed.
            while self.threads.has(tid) && self.threads[tid].state == State::Parked {
                if let Some(stop) = at("wait", self.threads[tid].tracee.wait(true))? {
                    self.on_stop(tid, stop)?;
                }
            }
            if self.threads.has(tid) {
                self.threads[tid].halt_wanted = false;
                if self.threads[tid].state == State::Halted {
                    return Ok(Some(tid));
                }
            }
        }
    }

    fn on_wish(&mut self, request: u64, dest: Destination, reason: String) -> Result<()> {
        if self.released {
            let why = "a transfer that its last move cut in two is still being finished; try again when it is through";
            self.move_done(request, Err(format!("process {}: {why}", self.pid)));
            return Ok(());
        }
        let target_name = match &dest {
            Destination::Home => self.order.node.clone(),
            Destination::Node { name, .. } => name.clone(),
        };
        if let Some(busy) = &self.wish {
            let why =
                format!("process {} is already on its way ({}); try again when it has arrived", self.pid, busy.reason);
            self.move_done(request, Err(why));
            return Ok(());
        }
        if target_name == self.place() {
            let why = format!("process {} is at {target_name} already", self.pid);
            self.move_done(request, Err(why));
            return Ok(());
        }
        let dest = if target_name == self.order.node { Destination::Home } else { dest };
        let asked = Instant::now();
        let mut wish = Wish { request, dest, reason, asked, preparing: None, prepared: None, called: false };
        if let Destination::Node { .. } = wish.dest {
            self.epoch += 1;
            let maps = at("its map", procfs::maps(self.pid))?;
            let abroad_ns = self.cpu_by_node.values().sum::<u64>() + self.abroad.as_ref().map_or(0, |a| a.cpu_ns);
            let request = offer::target_request(
                &self.order,
                wish.dest.clone(),
                &maps,
                (self.hole, &self.fixed),
                self.epoch,
                abroad_ns,
            )?;
            let (tx, rx) = channel();
            std::thread::spawn(move || {
                // Nobody listens any more when the process has ended meanwhile.
                let _ = tx.send(target::prepare(request));
            });
            wish.preparing = Some(rx);
        }
        self.wish = Some(wish);
        self.work_on_wish()
    }

    /// The process has to come home, whatever else is going on.
    pub(super) fn come_home_for(&mut self, reason: &str) -> Result<()> {
        if let Some(wish) = self.wish.take() {
            if wish.request != 0 {
                self.move_done(wish.request, Err(format!("process {} comes home instead: {reason}", self.pid)));
            }
            let called = wish.called;
            self.wish = Some(Wish {
                request: 0,
                dest: Destination::Home,
                reason: reason.into(),
                asked: Instant::now(),
                preparing: None,
                prepared: None,
                called,
            });
        } else {
            self.on_wish(0, Destination::Home, reason.into())?;
        }
        self.work_on_wish()
    }

    fn work_on_wish(&mut self) -> Result<()> {
        let Some(wish) = &mut self.wish else { return Ok(()) };
        if let Some(rx) = &wish.preparing {
            match rx.try_recv() {
                Ok(Ok(prepared)) => (wish.prepared, wish.preparing) = (Some(prepared), None),
                Ok(Err(e)) => return self.wish_failed(&e.to_string()),
                Err(TryRecvError::Disconnected) => return self.wish_failed("the preparation broke off"),
                Err(TryRecvError::Empty) => return Ok(()),
            }
        }
        if self.abroad.is_none() {
            return Ok(());
        }
        if !wish.called {
            wish.called = true;
            self.tell(&Down::ComeHome, &[])?;
            self.set_phase("presync");
        }
        Ok(())
    }

    fn wish_failed(&mut self, why: &str) -> Result<()> {
        if let Some(wish) = self.wish.take() {
            let place = self.place();
            self.move_done(wish.request, Err(format!("process {} stays at {place}: {why}", self.pid)));
        }
        Ok(())
    }

    fn heartbeat(&mut self) -> Result<()> {
        let limit = self.lost_after();
        let ms = limit.as_millis() as u64;
        if let Some(abroad) = &self.abroad {
            if abroad.chan.silent_for() > limit {
                return Err(HomeError::Target { node: abroad.node.clone(), source: ChannelError::Timeout(ms) });
            }
            if abroad.chan.spoke.elapsed() > limit / 4 {
                self.tell(&Down::Ping, &[])?;
            }
        }
        if self.reported.elapsed() > Duration::from_secs(1) {
            self.reported = Instant::now();
            self.report_state();
            if self.abroad.is_some() {
                self.tell_urgency()?;
            }
            self.mind_limits()?;
        }
        Ok(())
    }
}
