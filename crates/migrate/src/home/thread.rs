//! The threads of the body left at home.

use super::waits::Due;
use super::{Answered, Flight};
use crate::message::Context;
use pando_kernel::ptrace::{Registers, Tracee};
use pando_kernel::signal::SigInfo;
use pando_kernel::urgency::Urgency;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Index, IndexMut};
use std::time::Instant;

/// What a deputy thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In a ptrace stop of ours.
    Halted,
    /// Waits in pause(2), so that signals reach it at once and it looks asleep.
    Parked,
    /// Runs the forwarded call.
    InCall,
    /// Stopped by job control; was doing the other thing before.
    JobStopped,
}

/// One thread.
pub(crate) struct DeputyThread {
    pub tracee: Tracee,
    /// Its id in its own pid namespace: the one that the program knows, and the node to which it goes.
    pub inner: i32,
    pub state: State,
    pub before_stop: State,
    /// Registers that injected calls start from.
    pub base: Registers,
    pub flight: Option<Flight>,
    /// Times in a row that a signal came before the call could begin.
    pub starved: u32,
    /// The last answer, should it cross with the guest's leaving: number, result, outputs.
    pub last_reply: Option<Answered>,
    /// The call that `restart_syscall` continues. Other calls do not end that: a handler may make some before it goes on (the
    /// rt_sigprocmask of its end, at least), and only the next call of this kind takes its place in the kernel.
    pub restart: Option<(u64, [u64; 6])>,
    /// A transfer that a freeze cut short: number, arguments, bytes done.
    pub cut_short: Option<(u64, [u64; 6], u64)>,
    /// The wait that it makes again, and when that is due.
    pub due: Option<Due>,
    /// Signals sent abroad.
    pub signals: u64,
    pub sent: VecDeque<(u64, SigInfo)>,
    /// It is to be halted although there is no call for it.
    pub halt_wanted: bool,
    pub halted_at: Instant,
    /// As it was when the guest was told last.
    pub urgency: Urgency,
    /// As it is when all of the process is here: frozen at home, or come back.
    pub context: Option<Box<Context>>,
    pub xstate: Vec<u8>,
}

impl DeputyThread {
    pub fn new(tid: i32, inner: i32, base: Registers) -> Self {
        DeputyThread {
            tracee: Tracee { tid },
            inner,
            state: State::Halted,
            before_stop: State::Halted,
            base,
            flight: None,
            starved: 0,
            last_reply: None,
            restart: None,
            cut_short: None,
            due: None,
            signals: 0,
            sent: VecDeque::new(),
            halt_wanted: false,
            halted_at: Instant::now(),
            urgency: Urgency::default(),
            context: None,
            xstate: Vec::new(),
        }
    }

    pub fn halt(&mut self) {
        self.state = State::Halted;
        self.halted_at = Instant::now();
    }

    /// The guest thread has seen signals up to this number.
    pub fn signals_seen(&mut self, seen: u64) {
        while self.sent.front().is_some_and(|s| s.0 <= seen) {
            self.sent.pop_front();
        }
    }

    /// `restart_syscall` stands for the call it continues.
    pub fn real_call(&self, nr: u64, args: [u64; 6]) -> (u64, [u64; 6]) {
        match self.restart {
            Some(original) if nr == libc::SYS_restart_syscall as u64 => original,
            _ => (nr, args),
        }
    }
}

/// All threads of one body by their ids here. What comes from abroad is looked up with `known_inside` first; inside home's helper ids are
/// those of threads that are there.
#[derive(Default)]
pub(crate) struct Threads {
    all: BTreeMap<i32, DeputyThread>,
    /// By the ids that the program knows.
    inside: BTreeMap<i32, i32>,
}

impl Threads {
    pub fn ids(&self) -> Vec<i32> {
        self.all.keys().copied().collect()
    }

    pub fn has(&self, tid: i32) -> bool {
        self.all.contains_key(&tid)
    }

    /// The thread that the program calls `inner`.
    pub fn known_inside(&self, inner: i32) -> Option<i32> {
        self.inside.get(&inner).copied()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn insert(&mut self, thread: DeputyThread) {
        self.inside.insert(thread.inner, thread.tracee.tid);
        self.all.insert(thread.tracee.tid, thread);
    }

    pub fn remove(&mut self, tid: i32) {
        if let Some(thread) = self.all.remove(&tid) {
            self.inside.remove(&thread.inner);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &DeputyThread> {
        self.all.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut DeputyThread> {
        self.all.values_mut()
    }

    /// A thread that stands still and can be made to run calls of ours.
    pub fn halted(&self) -> Option<i32> {
        self.iter().find(|t| t.state == State::Halted).map(|t| t.tracee.tid)
    }

    pub fn all_halted(&self) -> bool {
        self.iter().all(|t| t.state == State::Halted)
    }

    pub fn any_flight(&self) -> bool {
        self.iter().any(|t| t.flight.is_some())
    }
}

impl Index<i32> for Threads {
    type Output = DeputyThread;

    fn index(&self, tid: i32) -> &DeputyThread {
        &self.all[&tid]
    }
}

impl IndexMut<i32> for Threads {
    fn index_mut(&mut self, tid: i32) -> &mut DeputyThread {
        match self.all.get_mut(&tid) {
            Some(thread) => thread,
            None => unreachable!("thread {tid} of the deputy is not known"),
        }
    }
}
