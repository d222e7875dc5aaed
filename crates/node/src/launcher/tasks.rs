//! Tasks of `pando map` at one node: those that wait for a slot, what they write, and their ends, of which many are told at once.

use super::start::{Alike, Rank};
use super::{State, Told};
use pando_kernel::poll::{self, Pipe};
use pando_launch::{Ending, Stream, Up};
use serde_bytes::ByteBuf;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// What a task writes is read when it has run for so long, or when it has ended: most have ended before anybody has to wait for what they write.
const HEARS_AFTER: Duration = Duration::from_millis(10);
/// While tasks wait here nobody waits for what has ended: it is told within this, with others.
const TELLS_WITHIN: Duration = Duration::from_millis(10);
/// So many are told at once.
const MOST_UNTOLD: usize = 64;

/// See above.
#[derive(Default)]
pub struct Tasks {
    /// Those that wait for a slot.
    pub queue: VecDeque<(u32, Vec<ByteBuf>)>,
    /// There will be no others.
    pub no_more: bool,
    /// Those that have ended, and of which something still writes.
    pub late: Vec<Rank>,
    /// What they have in common, from the first one on.
    alike: Option<Alike>,
    /// When one has run for so long that somebody is to hear what it writes.
    hears_at: Option<Instant>,
    /// Ends that have not been told, and until when they are.
    untold: Vec<Up>,
    /// See there.
    tells_at: Option<Instant>,
}

impl Tasks {
    /// Returns when [`State::tend`] has something to do.
    pub async fn due(&self) {
        match self.hears_at.into_iter().chain(self.tells_at).min() {
            Some(at) => sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    }
}

impl State {
    /// Starts tasks in the slots that are free.
    pub(super) fn fill(&mut self) {
        let slots = self.order.nodes[self.place as usize].ranks as usize;
        // One that has ended and still has something to say needs no slot.
        while self.pids.len() < slots
            && let Some((task, words)) = self.tasks.queue.pop_front()
        {
            match self.task(task, &words) {
                Ok(mut begun) => {
                    begun.clock = self.order.task_ms.map(|ms| self.wakes(Duration::from_millis(ms), begun.pid, false));
                    self.tasks.hears_at.get_or_insert(begun.begun + HEARS_AFTER);
                    self.pids.insert(begun.pid, task);
                    self.ranks.insert(task, begun);
                }
                Err(why) => {
                    let name = String::from_utf8_lossy(words.first().map_or(b"", |w| w.as_slice())).into_owned();
                    self.streams().say(task, format!("pando: {name}: {why}\n").into_bytes());
                    self.ranks.insert(task, Rank::never_begun(&why));
                    let _ = self.tell.send(Told::Stillborn(task));
                }
            }
        }
    }

    fn task(&mut self, task: u32, words: &[ByteBuf]) -> io::Result<Rank> {
        let alike = match self.tasks.alike.take() {
            Some(alike) => alike,
            None => Alike::make(&self.order, self.place, &self.ready)?,
        };
        self.tasks.alike.insert(alike).start(task, words)
    }

    /// Reads what tasks write that run for longer.
    fn hear(&mut self) {
        let streams = self.streams();
        self.tasks.hears_at = None;
        for (task, rank) in self.ranks.iter_mut().filter(|(_, rank)| rank.unread.is_some()) {
            let at = rank.begun + HEARS_AFTER;
            match at <= Instant::now() {
                true => rank.attend(*task, &streams),
                false => self.tasks.hears_at = Some(self.tasks.hears_at.map_or(at, |other| other.min(at))),
            }
        }
    }

    /// What a task wrote that has ended. Where there may be more than can be said now, it is read as that of one that runs.
    pub(super) fn hear_out(&mut self, task: u32) {
        let streams = self.streams();
        let Some(rank) = self.ranks.get_mut(&task) else { return };
        let Some(unread) = &rank.unread else { return };
        let ends = poll::pipes(unread.each_ref().map(AsRawFd::as_raw_fd)).unwrap_or([Pipe::Open; 2]);
        let mut all = true;
        for ((end, from), stream) in ends.iter().zip(unread).zip([Stream::Out, Stream::Err]) {
            let (said, is_all) = match end {
                Pipe::Empty => continue,
                Pipe::Full => streams.rest(task, stream, from),
                Pipe::Open => (Vec::new(), false),
            };
            said.into_iter().for_each(|up| _ = self.says.send(up));
            all &= is_all;
        }
        match all {
            true => rank.unread = None,
            false => rank.attend(task, &streams),
        }
    }

    /// What was to be done at this time.
    pub(super) fn tend(&mut self) {
        let now = Instant::now();
        if self.tasks.hears_at.is_some_and(|at| at <= now) {
            self.hear();
        }
        self.tell_done(self.tasks.tells_at.is_some_and(|at| at <= now));
    }

    /// It has ended, and all that it wrote has been said.
    pub(super) fn task_is_over(&mut self, task: u32, how: Ending) {
        self.tasks.late.retain(|task| task.readers.iter().any(|reader| !reader.is_finished()));
        let Some(rank) = self.ranks.remove(&task) else { return };
        let ran_ms = rank.ran.as_millis() as u64;
        if !rank.readers.is_empty() {
            self.tasks.late.push(rank);
        }
        self.tasks.untold.push(Up::Done { place: self.place, task, how, ran_ms });
        self.tasks.tells_at.get_or_insert_with(|| Instant::now() + TELLS_WITHIN);
    }

    /// Tells of those that have ended: now, or when somebody may wait for that.
    pub(super) fn tell_done(&mut self, now: bool) {
        if now || self.tasks.queue.is_empty() || self.tasks.untold.len() >= MOST_UNTOLD {
            self.tasks.tells_at = None;
            self.tasks.untold.drain(..).for_each(|up| _ = self.says.send(up));
        }
    }

    /// Tasks that have not begun are needed elsewhere.
    pub(super) fn give_back(&mut self) {
        let tasks: Vec<u32> = self.tasks.queue.drain(..).map(|(task, _)| task).collect();
        // What has ended is told first: who asks counts what is here.
        self.tell_done(true);
        self.say(Up::Returned { place: self.place, tasks });
    }
}
