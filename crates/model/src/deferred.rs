//! A memory call that is made abroad before home has heard of it (`docs/decisions/0018`): one page that a program writes, throws away
//! (MADV_DONTNEED), reads and passes to calls, while home still sends what it had there and the process goes home; and one address that the program's own
//! mmap and one that home makes for another thread both may get. The two are explored one by one.

use crate::checker::{Model, Step};
use std::collections::VecDeque;

/// What home had in the page.
const OLD: u8 = 9;
/// What the program does, at most.
const ACTS: u8 = 5;
/// How often home sends the page.
const PUSHES: u8 = 2;
/// Rounds in which written pages go home while the program runs.
const ROUNDS: u8 = 2;

/// A rule broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A call is sent before home has heard what was thrown away.
    CallOvertakesMap,
    /// Written pages are sent before that.
    PagesOvertakeMap,
    /// Pages are looked through while the kernel may still be about to throw them away.
    PagesBeforeDone,
    /// What home sends is put in where the program has thrown away what was there.
    OldPageComesBack,
    /// An address is chosen here while home chooses one.
    ChosenAtOnce,
    /// The address that home has chosen is mapped while the kernel may still be about to unmap it.
    MappedBeforeDone,
}

/// The design, or a mutant of it.
#[derive(Clone, Copy, Debug)]
pub struct Deferred(pub Option<Mutant>);

/// A message to home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Up {
    /// The page has been thrown away; the address has been unmapped, mapped.
    Discarded,
    Unmapped,
    Mapped,
    /// The page as it is.
    Written(u8),
    /// A call that reads the page: with its bytes if they are not home's, and what the program knows to be there.
    Call(Option<u8>, u8),
    /// Another thread wants memory, wherever there is some.
    WantsMemory,
    Frozen,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// It is about the page, not the address.
    of_page: bool,
    acts: u8,
    /// What the program knows to be in the page.
    known: u8,
    /// The page abroad: what is in it; whether home has something else; whether home's counts where nothing is here.
    here: Option<u8>,
    dirty: bool,
    backed: bool,
    /// The kernel here is still to throw it away.
    throwing: bool,
    /// Told home yet or not, in order.
    untold: Vec<Up>,
    up: VecDeque<Up>,
    down: VecDeque<u8>,
    pushes: u8,
    /// At home.
    there: u8,
    leaving: bool,
    rounds: u8,
    frozen: bool,
    home: bool,
    /// The address: who has it here and at home (0 nobody, 1 the program's first thread, 2 the other one); the kernel is still to unmap it.
    place: Place,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    here: u8,
    there: u8,
    unmapping: bool,
    /// The other thread's call: not made, in flight, answered with this place or another one.
    other: u8,
}

const ASKED: u8 = 1;
const GOT_IT: u8 = 2;
const GOT_ANOTHER: u8 = 3;

fn step(w: &World, label: &'static str, change: impl FnOnce(&mut World)) -> Step<World> {
    let mut next = w.clone();
    change(&mut next);
    Step { label: (label, next.acts), outside: false, next }
}

impl Deferred {
    fn is(self, mutant: Mutant) -> bool {
        self.0 == Some(mutant)
    }

    fn tell(w: &mut World) {
        w.up.extend(std::mem::take(&mut w.untold));
    }

    /// The program, in no call.
    fn program(self, w: &World, out: &mut Vec<Step<World>>) {
        if w.acts == ACTS || w.throwing || w.frozen {
            return;
        }
        let act = |n: &mut World| n.acts += 1;
        if w.here.is_some() || !w.backed {
            out.push(step(w, "it reads", |n| {
                act(n);
                if n.here.unwrap_or(0) != n.known {
                    n.wrong = Some("the program reads what is not in its page");
                }
            }));
            out.push(step(w, "it writes", |n| {
                act(n);
                (n.known, n.here, n.dirty) = (n.acts, Some(n.acts), true);
            }));
        }
        out.push(step(w, "it throws the page away", |n| {
            act(n);
            n.untold.push(Up::Discarded);
            (n.known, n.throwing, n.backed) = (0, true, false);
        }));
        out.push(step(w, "it calls", |n| {
            act(n);
            let call = Up::Call(n.here.filter(|_| n.dirty), n.known);
            if self.is(Mutant::CallOvertakesMap) {
                n.up.push_back(call);
                Self::tell(n);
            } else {
                Self::tell(n);
                n.up.push_back(call);
            }
        }));
    }

    fn helper(self, w: &World, out: &mut Vec<Step<World>>) {
        if w.throwing {
            out.push(step(w, "the kernel throws the page away", |n| {
                (n.throwing, n.here, n.dirty) = (false, None, false);
            }));
        }
        if let Some(&page) = w.down.front().filter(|_| !w.frozen) {
            out.push(step(w, "a page comes", |n| {
                n.down.pop_front();
                let wanted = n.backed || self.is(Mutant::OldPageComesBack);
                if n.here.is_none() && wanted {
                    n.here = Some(page);
                }
            }));
        }
        let done = !w.throwing || self.is(Mutant::PagesBeforeDone);
        if w.leaving && w.rounds < ROUNDS && !w.frozen && done {
            out.push(step(w, "a round of written pages", |n| {
                n.rounds += 1;
                if let Some(page) = n.here.filter(|_| n.dirty) {
                    n.dirty = false;
                    let late = self.is(Mutant::PagesOvertakeMap);
                    if !late {
                        Self::tell(n);
                    }
                    n.up.push_back(Up::Written(page));
                    if late {
                        Self::tell(n);
                    }
                }
            }));
        }
        if w.leaving && !w.frozen && !w.throwing && !w.place.unmapping && w.place.other != ASKED {
            out.push(step(w, "frozen", |n| {
                n.frozen = true;
                Self::tell(n);
                if let Some(page) = n.here.filter(|_| n.dirty) {
                    n.up.push_back(Up::Written(page));
                }
                n.up.push_back(Up::Frozen);
            }));
        }
    }

    /// The address that two threads may get: the first unmaps and maps it, the other asks home.
    fn places(self, w: &World, out: &mut Vec<Step<World>>) {
        let p = w.place;
        let home_chooses = p.other == ASKED && !self.is(Mutant::ChosenAtOnce);
        if p.here == 1 && !p.unmapping && !w.frozen && !home_chooses {
            out.push(step(w, "it unmaps the place", |n| {
                n.untold.push(Up::Unmapped);
                (n.place.unmapping, n.acts) = (true, n.acts);
            }));
        }
        if p.unmapping {
            out.push(step(w, "the kernel unmaps the place", |n| {
                if n.place.here == 2 {
                    n.wrong = Some("what another thread has just been given is unmapped");
                }
                (n.place.unmapping, n.place.here) = (false, 0);
            }));
        }
        if p.here == 0 && !w.frozen && w.acts < ACTS && !home_chooses && !p.unmapping {
            out.push(step(w, "it maps the place", |n| {
                n.acts += 1;
                n.untold.push(Up::Mapped);
                n.place.here = 1;
            }));
        }
        if p.other == 0 && !w.frozen && !w.leaving {
            out.push(step(w, "the other thread asks home for memory", |n| {
                n.place.other = ASKED;
                Self::tell(n);
                n.up.push_back(Up::WantsMemory);
            }));
        }
        let done = !p.unmapping || self.is(Mutant::MappedBeforeDone);
        if p.other == ASKED && p.there == 2 && done {
            out.push(step(w, "the other thread's memory is mapped", |n| {
                if n.place.here == 1 && !n.place.unmapping {
                    n.wrong = Some("two threads are given one place");
                }
                (n.place.here, n.place.other) = (2, GOT_IT);
            }));
        }
    }

    fn home(self, w: &World, out: &mut Vec<Step<World>>) {
        if w.pushes < PUSHES && !w.frozen && w.of_page {
            out.push(step(w, "home sends the page", |n| {
                n.pushes += 1;
                n.down.push_back(n.there);
            }));
        }
        let Some(&message) = w.up.front() else { return };
        out.push(step(w, "home takes a message", |n| {
            n.up.pop_front();
            match message {
                Up::Discarded => n.there = 0,
                Up::Unmapped if n.place.there == 2 => n.wrong = Some("home unmaps what it has given away"),
                Up::Unmapped => n.place.there = 0,
                Up::Mapped if n.place.there != 0 => n.wrong = Some("home can't map what has been mapped abroad"),
                Up::Mapped => n.place.there = 1,
                Up::Written(page) => n.there = page,
                Up::Call(bytes, known) => {
                    n.there = bytes.unwrap_or(n.there);
                    if n.there != known {
                        n.wrong = Some("a call reads what is not in the page");
                    }
                }
                Up::WantsMemory if n.place.there == 0 => n.place.there = 2,
                Up::WantsMemory => n.place.other = GOT_ANOTHER,
                Up::Frozen => {
                    n.home = true;
                    if n.there != n.known {
                        n.wrong = Some("the page has come home as it was not");
                    }
                }
            }
        }));
    }
}

impl Model for Deferred {
    type State = World;

    fn initial(&self) -> Vec<World> {
        let place = Place { here: 1, there: 1, unmapping: false, other: 0 };
        let world = |of_page| World {
            of_page,
            acts: 0,
            known: OLD,
            here: None,
            dirty: false,
            backed: true,
            throwing: false,
            untold: Vec::new(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            pushes: 0,
            there: OLD,
            leaving: false,
            rounds: 0,
            frozen: false,
            home: false,
            place,
            wrong: None,
        };
        vec![world(true), world(false)]
    }

    fn steps(&self, w: &World, out: &mut Vec<Step<World>>) {
        if w.wrong.is_some() {
            return;
        }
        if !w.leaving {
            out.push(step(w, "it is called home", |n| n.leaving = true));
        }
        if w.of_page {
            self.program(w, out)
        } else {
            self.places(w, out)
        }
        self.helper(w, out);
        self.home(w, out);
    }

    fn check(&self, w: &World) -> Result<(), String> {
        w.wrong.map_or(Ok(()), |what| Err(what.into()))
    }

    fn may_rest(&self, w: &World) -> Result<(), String> {
        if w.home { Ok(()) } else { Err("the process is not at home".into()) }
    }
}
