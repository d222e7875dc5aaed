//! How much of this machine a guest gets: threads and memory (`[limits]`). What needs more goes home.
//!
//! Three means hold a guest to it. Threads are counted before home is asked for one, and memory is looked at the more often the less
//! is left: both bring an honest process home before anything fails. The kernel knows the limits, too (RLIMIT_NPROC, and a control
//! group where one can be made): they are for a guest that is faster, or that has no honest home. Last, where the machine itself runs
//! out of memory guests are ended first (sandbox.rs).

use super::{Guest, GuestError, Leaving, Result, at};
use crate::control::Limits;
use crate::message::MAX_THREADS;
use pando_kernel::cgroup::{self, Bounds, Group};
use pando_kernel::procfs;
use pando_kernel::sandbox::Body;
use std::time::{Duration, Instant};

/// How many threads the kernel allows beyond the limit: births that are under way at once, and the sandbox's init.
const SPARE_THREADS: u64 = 64;
/// The fastest that a guest can fill memory, bytes in a second: many threads, huge pages.
const FASTEST: u64 = 16 << 30;
/// Least and longest time between two looks.
const SOONEST: Duration = Duration::from_millis(5);
const LATEST: Duration = Duration::from_millis(250);
/// What the control group allows beyond the limit, so that looking comes first.
const SPARE_MEMORY: u64 = 256 << 20;

/// The limits of one guest, and how near it is to them.
pub(super) struct Room {
    threads: usize,
    memory: u64,
    group: Group,
    /// Why it could not be put into its group.
    unheld: Option<std::io::Error>,
    /// This machine has no room for another thread, whatever the limit says.
    no_more_threads: bool,
    looked: Instant,
    look_after: Duration,
    /// Since when it has stood still because it has taken too much memory.
    full: Option<Instant>,
}

impl Room {
    /// The limits of this node, for a guest that has just been made.
    pub fn new(limits: &Limits, body: &Body) -> Room {
        let (threads, memory) = (threads(limits), memory(limits));
        let bounds = Bounds { pids: threads as u64 + SPARE_THREADS, memory: memory + memory / 4 + SPARE_MEMORY };
        let group = Group::make(bounds);
        // Where no group can be made there is none, and one that can't be entered is no better: the other means hold a guest all the same.
        let unheld = group.admit(body.init).and_then(|()| group.admit(body.pid)).err();
        let (looked, look_after) = (Instant::now(), SOONEST);
        Room { threads, memory, group, unheld, no_more_threads: false, looked, look_after, full: None }
    }

    /// That the kernel does not hold it to its limits although a group was made for that.
    pub fn complaint(&self) -> Option<String> {
        let e = self.unheld.as_ref()?;
        let why = format!(
            "the control group of this guest can't be entered ({e}): its memory is watched, but the kernel knows no limit"
        );
        Some(format!("{why}; give the daemon a group of its own (Delegate=yes, as dist/pando.service has it)"))
    }

    /// Must it stand still?
    pub fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// The latest that memory must be looked at again.
    pub fn look_within(&self) -> Duration {
        self.look_after.saturating_sub(self.looked.elapsed())
    }

    /// Why the kernel killed it, if that was for want of memory.
    pub fn out_of_memory(&self) -> Option<String> {
        let most = || self.memory_in_words();
        let why = || {
            format!(
                "the kernel ended it there, for there was no more memory for it: a guest gets {} at most, and no more than the node has",
                most()
            )
        };
        self.group.out_of_memory().then(why)
    }

    fn memory_in_words(&self) -> String {
        format!("{} MiB ([limits] guest_memory_mb)", self.memory >> 20)
    }
}

/// The limits that the kernel holds a guest to: the threads that it may make, nothing locked into memory, the numbers of the files that it is given to read.
pub(super) fn resource_limits(limits: &Limits) -> [(u32, u64, u64); 3] {
    let (threads, numbers) = (threads(limits) as u64 + SPARE_THREADS, super::files::MOST_NUMBERS as u64);
    let most = |most: u64| (most, most);
    [(libc::RLIMIT_NPROC, most(threads)), (libc::RLIMIT_MEMLOCK, (0, 0)), (libc::RLIMIT_NOFILE, most(numbers))]
        .map(|(r, (s, h))| (r, s, h))
}

fn threads(limits: &Limits) -> usize {
    (limits.guest_threads as usize).clamp(1, MAX_THREADS)
}

fn memory(limits: &Limits) -> u64 {
    match limits.guest_memory_mb {
        0 => {
            let machine = procfs::machine_memory();
            cgroup::memory_limit().map_or(machine, |limit| limit.min(machine)) / 4 * 3
        }
        mb => mb.saturating_mul(1 << 20).min(1 << 50),
    }
}

impl Guest {
    /// Why it may not have so many threads, if it may not.
    pub(super) fn too_many_threads(&self, threads: usize) -> Option<String> {
        if threads > self.room.threads {
            let most = self.room.threads;
            return Some(format!("it has more threads than a guest gets here, {most} ([limits] guest_threads)"));
        }
        self.room.no_more_threads.then(|| "this machine has no room for another of its threads".to_string())
    }

    /// The kernel did not make a thread.
    pub(super) fn note_no_more_threads(&mut self) {
        self.room.no_more_threads = true;
    }

    /// Looks at its memory, if it is time to.
    pub(super) fn watch_memory(&mut self) -> Result<()> {
        if self.room.look_within() > Duration::ZERO {
            return Ok(());
        }
        let used = procfs::footprint(self.body.pid);
        let left = self.room.memory.saturating_sub(used);
        self.room.looked = Instant::now();
        self.room.look_after = Duration::from_secs_f64(left as f64 / FASTEST as f64).clamp(SOONEST, LATEST);
        if left == 0 {
            let why = format!("it takes more memory than a guest gets here, {}", self.room.memory_in_words());
            self.no_more_memory(why)?;
        }
        self.give_up_if_nobody_wants_it()
    }

    /// It stands still from now on, and is to go home.
    pub(super) fn no_more_memory(&mut self, why: String) -> Result<()> {
        if self.room.is_full() {
            return Ok(());
        }
        self.room.full = Some(Instant::now());
        for tid in self.threads.which(|t| !t.stopped && !t.ending) {
            self.interrupt(tid)?;
        }
        self.want_home(why)
    }

    /// A home that does not take it back loses it.
    fn give_up_if_nobody_wants_it(&self) -> Result<()> {
        let waits = self.room.full.is_some_and(|since| since.elapsed() > self.lost_after());
        if waits && matches!(self.leaving, Leaving::No) {
            return Err(GuestError::Full(self.room.memory_in_words()));
        }
        Ok(())
    }

    /// Home sent pages that this machine has no memory for. Before the start that ends the move; later it goes home.
    pub(super) fn no_memory_for_pages(&mut self) -> Result<()> {
        if self.listener.is_none() {
            return at("memory for its pages", Err(std::io::Error::from_raw_os_error(libc::ENOMEM)));
        }
        self.no_more_memory("this machine has no memory left for it".into())
    }
}
