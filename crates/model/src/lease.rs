//! A file at home that is read abroad: the kernel's lease, home's word, and a writer (`docs/states.md`, *A file*).
//!
//! Messages may take any time or never arrive, home may stand still for any time, and the clock abroad may lag behind. Nobody may read abroad what is not
//! in the file any more, and the writer gets in.

use crate::checker::{Model, Step};
use std::collections::VecDeque;

/// How long a word counts, in ticks; how much longer home waits; when the kernel's patience ends.
const GRANT: u8 = 2;
const DRIFT: u8 = 1;
const KERNEL: u8 = 5;
/// The end of time. The writer comes before this.
const END: u8 = 10;
const LATEST_WRITER: u8 = 4;
/// Room in the connection, each way.
const ROOM: usize = 2;

/// A rule broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A word counts from its arrival, not from the question.
    WordFromArrival,
    /// Home ends the lease without waiting for anything.
    LeaseEndsAtOnce,
    /// Home waits exactly as long as a word counts.
    NoDrift,
    /// Home answers without a look at the lease.
    RenewedUnseen,
    /// Abroad the file is read on after `Forget`, until the word is old, though the lease has been given up.
    AnswersAfterForget,
    /// Home waits for `Release`, however long it takes, and so does the writer.
    WaitsForRelease,
}

/// The design, or a mutant of it.
#[derive(Clone, Copy, Debug)]
pub struct Leases(pub Option<Mutant>);

/// A message to home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Up {
    /// Is it still so? With the asker's time.
    Renew(u8),
    /// Nothing more is answered.
    Release,
}

/// A message abroad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Down {
    /// It was, when this came: the time of the question.
    Renewed(u8),
    /// Answer nothing more.
    Forget,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    now: u8,
    /// The clock abroad is so far behind.
    lag: u8,
    /// The kernel: home has the lease; since when it is wanted back; the writer has written.
    lease: bool,
    wanted: Option<u8>,
    written: bool,
    /// Home: since when it has said `Forget`.
    forgotten: Option<u8>,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
    /// Abroad: the file may be read until then; a question is on its way.
    has: bool,
    until: u8,
    asked: bool,
    /// When it was asked last: at most once at a time.
    last: u8,
    /// No message arrives any more.
    cut: bool,
}

impl World {
    fn there(&self) -> u8 {
        self.now.saturating_sub(self.lag)
    }
}

impl Leases {
    fn is(self, mutant: Mutant) -> bool {
        self.0 == Some(mutant)
    }

    fn kept(self) -> u8 {
        if self.is(Mutant::NoDrift) { GRANT } else { GRANT + DRIFT }
    }

    /// Home looks at the lease.
    fn mind(self, w: &mut World) {
        let whole = w.lease && w.wanted.is_none();
        if !whole && w.forgotten.is_none() {
            w.forgotten = Some(w.now);
            w.down.push_back(Down::Forget);
            w.lease &= !self.is(Mutant::LeaseEndsAtOnce);
        }
    }

    fn home(self, w: &World, out: &mut Vec<Step<World>>) {
        let room = w.down.len() < ROOM;
        if w.wanted.is_some() && w.forgotten.is_none() && room {
            out.push(step(w, "home sees that the lease is wanted", |n| self.mind(n)));
        }
        match w.up.front().filter(|_| !w.cut) {
            Some(Up::Renew(asked)) if w.down.len() < ROOM - 1 => {
                out.push(step(w, "home answers a question", |n| {
                    n.up.pop_front();
                    if !self.is(Mutant::RenewedUnseen) {
                        self.mind(n);
                    }
                    n.down.push_back(Down::Renewed(*asked));
                }));
            }
            Some(Up::Release) => out.push(step(w, "home ends the lease", |n| {
                n.up.pop_front();
                n.lease = false;
            })),
            _ => {}
        }
        let late = w.forgotten.is_some_and(|since| w.now >= since + self.kept() || w.now == END);
        if late && w.lease && !self.is(Mutant::WaitsForRelease) {
            out.push(step(w, "home's patience ends", |n| n.lease = false));
        }
    }

    fn abroad(self, w: &World, out: &mut Vec<Step<World>>) {
        if w.has && !w.asked && w.up.is_empty() && w.last < w.now && w.now < END {
            out.push(step(w, "a question", |n| {
                (n.asked, n.last) = (true, n.now);
                n.up.push_back(Up::Renew(n.there()));
            }));
        }
        match w.down.front().filter(|_| !w.cut) {
            Some(Down::Renewed(asked)) => out.push(step(w, "an answer", |n| {
                n.down.pop_front();
                n.asked = false;
                let from = if self.is(Mutant::WordFromArrival) { n.there() } else { *asked };
                n.until = n.until.max(from + GRANT);
            })),
            Some(Down::Forget) if w.up.len() < ROOM => out.push(step(w, "forget", |n| {
                n.down.pop_front();
                n.has = self.is(Mutant::AnswersAfterForget);
                n.up.push_back(Up::Release);
            })),
            _ => {}
        }
    }
}

fn step(w: &World, label: &'static str, change: impl FnOnce(&mut World)) -> Step<World> {
    let mut next = w.clone();
    change(&mut next);
    Step { label: (label, w.now), outside: false, next }
}

impl Model for Leases {
    type State = World;

    fn initial(&self) -> Vec<World> {
        vec![World {
            now: 0,
            lag: 0,
            lease: true,
            wanted: None,
            written: false,
            forgotten: None,
            up: VecDeque::new(),
            down: VecDeque::new(),
            has: true,
            until: GRANT,
            asked: false,
            last: 0,
            cut: false,
        }]
    }

    fn steps(&self, w: &World, out: &mut Vec<Step<World>>) {
        if w.now < END {
            out.push(step(w, "time passes", |n| n.now += 1));
        }
        if w.lag < DRIFT && w.now > 0 {
            out.push(Step { outside: true, ..step(w, "the clock abroad lags", |n| n.lag += 1) });
        }
        if w.wanted.is_none() && w.now <= LATEST_WRITER {
            out.push(Step { outside: true, ..step(w, "a writer comes", |n| n.wanted = Some(n.now)) });
        }
        if !w.cut {
            out.push(Step { outside: true, ..step(w, "the line is cut", |n| n.cut = true) });
        }
        if w.wanted.is_some() && !w.lease && !w.written {
            out.push(step(w, "the writer writes", |n| n.written = true));
        }
        // Home may have stood still for long.
        if w.lease && w.wanted.is_some_and(|since| w.now >= since + KERNEL) && w.forgotten.is_none() {
            out.push(Step { outside: true, ..step(w, "the kernel takes the lease", |n| n.lease = false) });
        }
        self.home(w, out);
        self.abroad(w, out);
    }

    fn check(&self, w: &World) -> Result<(), String> {
        let reads = w.has && w.there() < w.until && w.now < END;
        if reads && w.written { Err("what is not in the file any more is read abroad".into()) } else { Ok(()) }
    }

    fn may_rest(&self, w: &World) -> Result<(), String> {
        if w.wanted.is_some() && !w.written { Err("the writer waits".into()) } else { Ok(()) }
    }
}
