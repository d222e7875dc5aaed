//! A break that the program sets by itself while it is abroad (`docs/decisions/0048`): one page of its heap, below which it takes the break and back above,
//! without a word, while it reads it, writes to it, passes it to calls and has it filled by calls, and while it goes home. Home may have something
//! in the page of which the program has got rid since.

use crate::checker::{Model, Step};
use std::collections::VecDeque;

/// What home had in the page.
const OLD: u8 = 9;
/// What the program does, at most.
const ACTS: u8 = 6;
/// Rounds in which written pages go home while the program runs.
const ROUNDS: u8 = 2;

/// A rule broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// It is not looked where the break is before a call is sent.
    BreakNotSeen,
    /// That the break was below a page whose writes are tracked is not taken notice of.
    DipUnheard,
    /// Home is not told that nothing is in a page of the heap that came while the program was abroad.
    ZerosNotSent,
    /// A call takes along what is there of its input, and nothing for what is not.
    AbsentNotSent,
}

/// The design, or a mutant of it.
#[derive(Clone, Copy, Debug)]
pub struct Heap(pub Option<Mutant>);

/// A message to home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Up {
    /// The break is above the page, or below.
    Break(bool),
    /// The page as it is; or that nothing is in it.
    Written(u8),
    Nothing,
    /// A call that reads the page: the bytes that go along, and what the program knows to be there.
    Call(Option<u8>, u8),
    /// A call that fills the page with this.
    Fill(u8),
    Frozen,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    acts: u8,
    /// What the program knows to be in the page.
    known: u8,
    /// Abroad: the break is above the page; what is in it; it is missing here, and home's counts; its writes are tracked, and one came.
    above: bool,
    here: Option<u8>,
    missing: bool,
    tracked: bool,
    written: bool,
    /// The kernel waits to be heard: the break went below a page that was tracked.
    dips: bool,
    /// The call that fills the page is at home.
    fills: bool,
    /// What the helper knows: where the break was, and whether home may have something where there is nothing.
    seen_above: bool,
    stale: bool,
    up: VecDeque<Up>,
    down: VecDeque<u8>,
    /// At home.
    there: u8,
    there_above: bool,
    pulled: bool,
    leaving: bool,
    rounds: u8,
    frozen: bool,
    home: bool,
    wrong: Option<&'static str>,
}

fn step(w: &World, label: &'static str, change: impl FnOnce(&mut World)) -> Step<World> {
    let mut next = w.clone();
    change(&mut next);
    Step { label: (label, next.acts), outside: false, next }
}

impl Heap {
    fn is(self, mutant: Mutant) -> bool {
        self.0 == Some(mutant)
    }

    /// Looks where the break is; home hears of it before what follows.
    fn see_break(n: &mut World) {
        if n.seen_above != n.above {
            n.seen_above = n.above;
            n.stale = n.above;
            n.up.push_back(Up::Break(n.above));
        }
    }

    /// The kernel says that the break went below the page.
    fn hear_dip(self, n: &mut World) {
        n.dips = false;
        if !self.is(Mutant::DipUnheard) {
            (n.seen_above, n.stale) = (false, false);
            n.up.push_back(Up::Break(false));
        }
    }

    fn send(self, n: &mut World, message: Up) {
        let call = matches!(message, Up::Call(..) | Up::Fill(_));
        if !(call && self.is(Mutant::BreakNotSeen)) {
            Self::see_break(n);
        }
        n.up.push_back(message);
    }

    /// What home does not have goes there.
    fn send_written(self, n: &mut World) {
        Self::see_break(n);
        if !n.above || n.missing {
            return;
        }
        match n.here {
            Some(page) if n.written || !n.tracked => n.up.push_back(Up::Written(page)),
            None if n.stale && !self.is(Mutant::ZerosNotSent) => n.up.push_back(Up::Nothing),
            _ => {}
        }
        (n.tracked, n.written, n.stale) = (true, false, false);
    }

    /// The program, in no call.
    fn program(self, w: &World, out: &mut Vec<Step<World>>) {
        if w.acts == ACTS || w.dips || w.fills || w.frozen {
            return;
        }
        let act = |n: &mut World| n.acts += 1;
        if !w.above {
            out.push(step(w, "it sets the break above", |n| {
                act(n);
                (n.above, n.known) = (true, 0);
            }));
            return;
        }
        out.push(step(w, "it sets the break below", |n| {
            act(n);
            (n.dips, n.above, n.here) = (n.tracked, false, None);
            (n.missing, n.tracked, n.written) = (false, false, false);
        }));
        out.push(step(w, "it passes the page to a call", |n| {
            act(n);
            let nothing = if n.missing || self.is(Mutant::AbsentNotSent) { None } else { Some(0) };
            self.send(n, Up::Call(n.here.or(nothing), n.known));
        }));
        out.push(step(w, "it has a call fill the page", |n| {
            act(n);
            n.fills = true;
            self.send(n, Up::Fill(n.acts));
        }));
        if w.missing {
            return;
        }
        out.push(step(w, "it reads", |n| {
            act(n);
            if n.here.unwrap_or(0) != n.known {
                n.wrong = Some("the program reads what is not in its page");
            }
        }));
        out.push(step(w, "it writes", |n| {
            act(n);
            (n.known, n.here, n.written) = (n.acts, Some(n.acts), n.tracked);
        }));
    }

    fn helper(self, w: &World, out: &mut Vec<Step<World>>) {
        if w.dips {
            out.push(step(w, "the helper hears where the break has been", |n| self.hear_dip(n)));
        }
        if let Some(&page) = w.down.front() {
            out.push(step(w, "a page or an answer comes", |n| {
                n.down.pop_front();
                if n.fills {
                    (n.known, n.here, n.written, n.fills) = (page, Some(page), n.tracked, false);
                    n.missing = false;
                } else if n.missing {
                    // The kernel puts in nothing where it does not wait for anything.
                    (n.here, n.missing) = (Some(page), false);
                }
            }));
        }
        if w.leaving && w.rounds < ROUNDS && !w.frozen && !w.dips {
            out.push(step(w, "a round of written pages", |n| {
                n.rounds += 1;
                self.send_written(n);
            }));
        }
        if w.leaving && !w.frozen && !w.dips && !w.fills {
            out.push(step(w, "frozen", |n| {
                n.frozen = true;
                self.send_written(n);
                n.up.push_back(Up::Frozen);
            }));
        }
    }

    fn home(w: &World, out: &mut Vec<Step<World>>) {
        if !w.pulled && w.up.is_empty() && w.there_above && !w.fills && !w.frozen {
            out.push(step(w, "home sends the page", |n| {
                n.pulled = true;
                n.down.push_back(n.there);
            }));
        }
        let Some(&message) = w.up.front() else { return };
        out.push(step(w, "home takes a message", |n| {
            n.up.pop_front();
            match message {
                Up::Break(above) => {
                    (n.there_above, n.there) = (above, if n.there_above == above { n.there } else { 0 })
                }
                Up::Written(_) | Up::Nothing | Up::Call(..) | Up::Fill(_) if !n.there_above => {
                    n.wrong = Some("home has no such page");
                }
                Up::Written(page) => n.there = page,
                Up::Nothing => n.there = 0,
                Up::Call(bytes, known) => {
                    n.there = bytes.unwrap_or(n.there);
                    if n.there != known {
                        n.wrong = Some("a call reads what is not in the page");
                    }
                }
                Up::Fill(page) => {
                    n.there = page;
                    n.down.push_back(page);
                }
                Up::Frozen => {
                    n.home = true;
                    if n.there_above != n.above || n.above && n.there != n.known {
                        n.wrong = Some("the page has come home as it was not");
                    }
                }
            }
        }));
    }
}

impl Model for Heap {
    type State = World;

    fn initial(&self) -> Vec<World> {
        vec![World {
            acts: 0,
            known: OLD,
            above: true,
            here: None,
            missing: true,
            tracked: true,
            written: false,
            dips: false,
            fills: false,
            seen_above: true,
            stale: false,
            up: VecDeque::new(),
            down: VecDeque::new(),
            there: OLD,
            there_above: true,
            pulled: false,
            leaving: false,
            rounds: 0,
            frozen: false,
            home: false,
            wrong: None,
        }]
    }

    fn steps(&self, w: &World, out: &mut Vec<Step<World>>) {
        if w.wrong.is_some() {
            return;
        }
        if !w.leaving {
            out.push(step(w, "it is called home", |n| n.leaving = true));
        }
        self.program(w, out);
        self.helper(w, out);
        Self::home(w, out);
    }

    fn check(&self, w: &World) -> Result<(), String> {
        w.wrong.map_or(Ok(()), |what| Err(what.into()))
    }

    fn may_rest(&self, w: &World) -> Result<(), String> {
        if w.home { Ok(()) } else { Err("the process is not at home".into()) }
    }
}
