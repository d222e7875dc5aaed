//! How a program is started at its home and moved, and when.

use crate::random::Random;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What came of one attempt to move.
#[derive(Clone, Debug, PartialEq)]
pub enum Moved {
    /// It is there now; the freeze in microseconds.
    To(String, u64),
    /// It was said no, and why.
    Refused(String),
    /// The process has ended.
    Ended,
    /// No answer, or one that makes no sense.
    Silent(String),
}

/// Starts programs at home and moves them.
pub trait Mover: Sync {
    /// A command that becomes (by exec, with the same pid) the program, at its home node.
    fn command(&self, exe: &Path) -> Command;

    /// Where to; `home` is one of them.
    fn destinations(&self) -> Vec<String>;

    /// Moves a process.
    fn move_to(&self, pid: u32, dest: &str, patience: Duration) -> Moved;

    /// All that helps to see why a process hangs.
    fn evidence(&self, pid: u32) -> String;
}

/// No mover: the program runs here.
pub struct Still;

impl Mover for Still {
    fn command(&self, exe: &Path) -> Command {
        Command::new(exe)
    }

    fn destinations(&self) -> Vec<String> {
        Vec::new()
    }

    fn move_to(&self, _pid: u32, _dest: &str, _patience: Duration) -> Moved {
        Moved::Refused("nothing moves here".into())
    }

    fn evidence(&self, pid: u32) -> String {
        crate::evidence::of_process(pid)
    }
}

/// When to move.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Never.
    Never,
    /// Once, so long after the start.
    Once(Duration),
    /// Again and again, with pauses between these milliseconds.
    Often(u64, u64),
}

/// What the moves of one run came to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Freezes of the moves that were made, microseconds.
    pub freezes: Vec<u64>,
    /// Attempts that were refused.
    pub refused: usize,
    /// Attempts without a sensible answer.
    pub silent: usize,
    /// The latest reason of a refusal or a silence.
    pub reason: Option<String>,
    /// Where it went, for the report of a failure: `12 ms n2`, `80 ms home (refused)`, ...
    pub trail: Vec<String>,
}

impl Tally {
    /// Moves made.
    pub fn moves(&self) -> usize {
        self.freezes.len()
    }

    fn note(&mut self, at: Duration, dest: &str, moved: &Moved) {
        let at = at.as_millis();
        match moved {
            Moved::To(place, freeze) => {
                self.freezes.push(*freeze);
                self.trail.push(format!("{at} ms {place}"));
            }
            Moved::Refused(why) => {
                self.refused += 1;
                self.reason = Some(why.clone());
                self.trail.push(format!("{at} ms {dest} refused: {why}"));
            }
            Moved::Silent(why) => {
                self.silent += 1;
                self.reason = Some(why.clone());
                self.trail.push(format!("{at} ms {dest} no answer: {why}"));
            }
            Moved::Ended => self.trail.push(format!("{at} ms {dest}: it has ended")),
        }
    }
}

/// Carries a plan out on one process.
pub struct Driver<'a> {
    mover: &'a dyn Mover,
    plan: Plan,
    random: Random,
    place: String,
    next: Option<Duration>,
    /// What came of it so far.
    pub tally: Tally,
}

impl<'a> Driver<'a> {
    /// For a process that has just started.
    pub fn new(mover: &'a dyn Mover, plan: Plan, random: Random) -> Driver<'a> {
        let mut driver = Driver { mover, plan, random, place: "home".into(), next: None, tally: Tally::default() };
        driver.next = match driver.plan {
            Plan::Never => None,
            Plan::Once(after) => Some(after),
            Plan::Often(..) => driver.pause(Duration::ZERO),
        };
        driver
    }

    fn pause(&mut self, now: Duration) -> Option<Duration> {
        match self.plan {
            Plan::Often(low, high) => Some(now + Duration::from_millis(self.random.within(low, high))),
            _ => None,
        }
    }

    /// Time (since the start) of the next move.
    pub fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Makes the next move. `now` counts from the start.
    pub fn step(&mut self, pid: u32, now: Duration, patience: Duration) {
        let all = self.mover.destinations();
        let others: Vec<String> = all.into_iter().filter(|d| *d != self.place).collect();
        let dest = self.random.pick(&others).clone();
        let started = std::time::Instant::now();
        let moved = self.mover.move_to(pid, &dest, patience);
        match &moved {
            Moved::To(..) => self.place = dest.clone(),
            Moved::Refused(why) if why.contains("at home already") => self.place = "home".into(),
            _ => {}
        }
        self.tally.note(now, &dest, &moved);
        self.next = if moved == Moved::Ended { None } else { self.pause(now + started.elapsed()) };
    }
}
