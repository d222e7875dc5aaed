//! The threads of a guest.

use super::resumed::Resumed;
use super::undelivered::{Counts, Undelivered};
use super::{Attach, GuestError, Held, Result};
use crate::message::{Context, Down, MAX_THREADS, MAX_UNDELIVERED, MAX_XSTATE, signals_in};
use pando_kernel::ptrace::{REGISTER_WORDS, Tracee};
use pando_kernel::signal::SigInfo;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

/// Highest id that any kernel gives a thread (PID_MAX_LIMIT).
const MAX_TID: i32 = 1 << 22;

/// Can a thread have this id? 1 is the sandbox's init.
pub(crate) fn is_thread_id(tid: i32) -> bool {
    (2..=MAX_TID).contains(&tid)
}

/// The threads of a process that comes, up to its start.
#[derive(Default)]
pub(crate) struct Arriving {
    /// With their extended states, in the order in which they came.
    pub threads: Vec<(i32, Context, Vec<u8>)>,
    ids: BTreeSet<i32>,
    /// Signals that go along with the next one.
    undelivered: Vec<Vec<u8>>,
    /// How many went along with those that came.
    signals: usize,
}

impl Arriving {
    pub fn signals(&mut self, body: &[u8]) -> Result<()> {
        if !signals_in(body, &mut self.undelivered) || self.signals + self.undelivered.len() > MAX_UNDELIVERED {
            return Err(GuestError::Protocol("Undelivered signals that make no sense, or too many".into()));
        }
        Ok(())
    }

    pub fn thread(&mut self, tid: i32, mut context: Context, xstate: Vec<u8>) -> Result<()> {
        let bad = |why: &str| Err(GuestError::Protocol(format!("a thread ({tid}) with {why}")));
        if !is_thread_id(tid) {
            return bad("an id that no thread has");
        }
        if !self.ids.insert(tid) {
            return bad("the id of another one: it comes twice");
        }
        if self.ids.len() > MAX_THREADS {
            return bad("more others than a process may have");
        }
        if context.signals > 1 << 62 {
            return bad("numbers that nobody has counted to");
        }
        if context.altstack.len() != 24 {
            return bad("a strange signal stack");
        }
        let whole = context.xstate as usize == xstate.len() && xstate.len() <= MAX_XSTATE;
        if !whole || context.registers.len() != REGISTER_WORDS {
            return bad("a strange register set");
        }
        context.undelivered = std::mem::take(&mut self.undelivered);
        self.signals += context.undelivered.len();
        self.threads.push((tid, context, xstate));
        Ok(())
    }
}

/// One thread.
pub(crate) struct GuestThread {
    /// Its id at home and in the sandbox.
    pub tid: i32,
    /// It as this machine sees it.
    pub tracee: Tracee,
    pub call: Option<Held>,
    /// Signals that its deputy blocks, as far as that has been told.
    pub home_mask: u64,
    /// A transfer that a freeze cut short, as it will be made again: number, arguments, bytes done.
    pub cut_short: Option<(u64, [u64; 6], u64)>,
    /// The next notification is this call, already running at home.
    pub attach: Option<Attach>,
    /// Signals that wait until it has come: a handler that ran first could make the same call, and take its answer.
    pub waiting: Vec<SigInfo>,
    /// Signals that are undelivered, but not in this kernel's queue, which is full.
    pub unqueued: Counts,
    /// Its reply, when that came first.
    pub early: Option<(Down, Vec<u8>)>,
    pub signals: u64,
    pub undelivered: Undelivered,
    /// The restart code in its registers is one that home sent.
    pub broke_off: bool,
    /// The call that it was blocked in at home, until that has an answer.
    pub resumed: Option<Resumed>,
    /// Memory that its last call, which this kernel runs by itself, changes: until it is seen again, nobody knows whether it has.
    pub changing: Option<(u64, u64)>,
    /// This call could not be made here: home makes it.
    pub asks_home: Option<(u64, [u64; 6])>,
    /// A ptrace stop has been asked for and not been seen.
    pub interrupting: bool,
    /// It is in a ptrace stop that we keep.
    pub stopped: bool,
    /// It stays in that stop whatever comes: home judges its signal.
    pub for_home: bool,
    /// It has ended at home and is ending here.
    pub ending: bool,
    /// After the next signal delivery, restore this mask in its frame (see stops.rs).
    pub frame_mask: Option<u64>,
    /// Where the kernel writes 0 when it ends.
    pub tid_address: u64,
    pub cpu_before_ns: u64,
}

impl GuestThread {
    pub fn new(tid: i32, tracee: Tracee) -> Self {
        GuestThread {
            tid,
            tracee,
            call: None,
            home_mask: 0,
            cut_short: None,
            attach: None,
            waiting: Vec::new(),
            unqueued: Counts::default(),
            early: None,
            signals: 0,
            undelivered: Undelivered::default(),
            broke_off: false,
            resumed: None,
            changing: None,
            asks_home: None,
            interrupting: false,
            stopped: true,
            for_home: false,
            ending: false,
            frame_mask: None,
            tid_address: 0,
            cpu_before_ns: 0,
        }
    }
}

/// All threads of a guest, by the ids that home knows. Inside the helper ids are those of threads that are there.
#[derive(Default)]
pub(crate) struct Threads {
    all: BTreeMap<i32, GuestThread>,
    /// This machine's ids.
    here: BTreeMap<i32, i32>,
}

impl Threads {
    pub fn insert(&mut self, thread: GuestThread) {
        self.here.insert(thread.tracee.tid, thread.tid);
        self.all.insert(thread.tid, thread);
    }

    pub fn remove(&mut self, tid: i32) {
        if let Some(thread) = self.all.remove(&tid) {
            self.here.remove(&thread.tracee.tid);
        }
    }

    /// The thread that this machine calls `here`.
    pub fn known_here(&self, here: i32) -> Option<i32> {
        self.here.get(&here).copied()
    }

    pub fn has(&self, tid: i32) -> bool {
        self.all.contains_key(&tid)
    }

    pub fn ids(&self) -> Vec<i32> {
        self.all.keys().copied().collect()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &GuestThread> {
        self.all.values()
    }

    /// All stand still, and none is on its way out.
    pub fn all_stopped(&self) -> bool {
        self.iter().all(|t| t.stopped && !t.ending)
    }

    /// Ids that fulfil a condition.
    pub fn which(&self, condition: impl Fn(&GuestThread) -> bool) -> Vec<i32> {
        self.iter().filter(|t| condition(t)).map(|t| t.tid).collect()
    }
}

impl Index<i32> for Threads {
    type Output = GuestThread;

    fn index(&self, tid: i32) -> &GuestThread {
        &self.all[&tid]
    }
}

impl IndexMut<i32> for Threads {
    fn index_mut(&mut self, tid: i32) -> &mut GuestThread {
        match self.all.get_mut(&tid) {
            Some(thread) => thread,
            None => unreachable!("thread {tid} of the guest is not known"),
        }
    }
}
