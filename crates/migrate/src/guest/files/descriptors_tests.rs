//! A program, its descriptors at home, and ours: whatever happens, a call at home finds every position where the program left it.

use super::*;
use crate::message::Owners;
use bolero::{TypeGenerator, check};

#[derive(Debug, TypeGenerator)]
enum Step {
    Open(u8),
    /// A descriptor that we have not seen made: from before, or from a message. Does another process have it, too?
    Comes(u8, bool),
    Read(u8, u8),
    ReadAt(u8, u8),
    Seek(u8, u8),
    Call(Kind),
    /// A call at home begins; it is made there at `Act`, or at the latest when it returns.
    Begin(Kind),
    Act(u8),
    Return(u8),
    /// Another process that has it reads; all others that have it end.
    Elsewhere(u8),
    Alone(u8),
    Answer(bool),
    Forget,
    Time,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Kind {
    Move(u8),
    Dup(u8),
    Dup2(u8, u8),
    Close(u8),
    Fork,
}

const NUMBERS: i32 = 4;

fn number(fd: u8) -> i32 {
    i32::from(fd) % NUMBERS
}

struct Running {
    seq: u64,
    kind: Kind,
    effect: Effect,
    acted: bool,
    new: Option<i32>,
}

/// Home: where each description stands, and what the program should see.
#[derive(Default)]
struct World {
    ours: Descriptors,
    /// Descriptor to description; positions that home knows; those that the program would find unmoved; does another process have it?
    table: BTreeMap<i32, usize>,
    home: Vec<u64>,
    truth: Vec<u64>,
    elsewhere: Vec<bool>,
    seq: u64,
    running: Vec<Running>,
    question: Option<(u64, i32, Owners)>,
    granted: Option<u64>,
    now: u64,
    served: u32,
}

impl World {
    fn tell(&mut self) {
        for (fd, at) in self.ours.untold() {
            self.home[self.table[&fd]] = at;
        }
    }

    fn goes(&mut self, effect: &Effect) -> u64 {
        self.seq += 1;
        self.tell();
        self.ours.call_goes(self.seq, effect, self.now);
        assert_eq!(self.home, self.truth, "home sees what the program did");
        self.seq
    }

    /// A call that home makes at once.
    fn call(&mut self, effect: &Effect, full: bool, act: impl FnOnce(&mut Self) -> Option<i32>) {
        let seq = self.goes(effect);
        let new = act(self);
        self.tell();
        self.ours.call_returns(seq, effect, new, full, self.now);
    }

    fn description(&mut self, fd: i32, elsewhere: bool) {
        self.table.insert(fd, self.home.len());
        self.home.push(0);
        self.truth.push(0);
        self.elsewhere.push(elsewhere);
    }

    fn advance(&mut self, fd: i32, by: u64) {
        if let Some(&description) = self.table.get(&fd) {
            self.home[description] += by;
            self.truth[description] = self.home[description];
        }
    }

    fn effect(kind: Kind) -> Effect {
        match kind {
            Kind::Move(fd) => Effect::Uses(vec![number(fd)]),
            Kind::Dup(fd) => Effect::Dup(number(fd), None),
            Kind::Dup2(from, to) if number(from) == number(to) => Effect::None,
            Kind::Dup2(from, to) => Effect::Dup(number(from), Some(number(to))),
            Kind::Close(fd) => Effect::Ends(number(fd)..=number(fd)),
            Kind::Fork => Effect::SharesAll,
        }
    }

    /// Home's kernel makes the call. What descriptor it made.
    fn act(&mut self, kind: Kind) -> Option<i32> {
        match kind {
            Kind::Move(fd) => self.advance(number(fd), 7),
            Kind::Dup(fd) => {
                let description = *self.table.get(&number(fd))?;
                let new = (0..).find(|n| !self.table.contains_key(n))?;
                self.table.insert(new, description);
                return Some(new);
            }
            Kind::Dup2(from, to) => {
                let description = *self.table.get(&number(from))?;
                self.table.insert(number(to), description);
                return Some(number(to));
            }
            Kind::Close(fd) => drop(self.table.remove(&number(fd))),
            Kind::Fork => self.table.values().for_each(|d| self.elsewhere[*d] = true),
        }
        None
    }

    /// `prompt`: what is asked is answered at once.
    fn read(&mut self, fd: i32, len: u64, offset: Option<u64>, prompt: bool) {
        self.now += 100_000_000;
        match self.ours.read(fd, offset, self.now) {
            Choice::Forward if offset.is_some() => {
                self.call(&Effect::None, true, |_| None);
                self.ours.read_elsewhere(fd);
            }
            Choice::Forward => self.call(&Effect::Uses(vec![fd]), true, |w| {
                w.advance(fd, len);
                None
            }),
            Choice::Ask(ask, owners) => {
                self.question = Some((ask, fd, owners));
                if prompt {
                    self.answer(true);
                }
            }
            Choice::Wait => {}
            Choice::Serve(_, at) if offset.is_none() => {
                // While a thread closes it another one may still read it, or not.
                let Some(&description) = self.table.get(&fd) else { return };
                assert_eq!(at, self.truth[description], "the position here is the program's");
                self.served += 1;
                self.truth[description] += len;
                self.ours.get_mut(fd).expect("it is served").moved(at + len);
            }
            Choice::Serve(_, at) => assert_eq!(Some(at), offset),
        }
    }

    fn seek(&mut self, fd: i32, to: u64) {
        let Some(&description) = self.table.get(&fd) else { return };
        match self.ours.get_mut(fd) {
            Some(d) if matches!(d.place, Place::Here { .. }) => d.moved(to),
            _ => self.call(&Effect::Uses(vec![fd]), true, |w| {
                w.home[description] = to;
                None
            }),
        }
        self.truth[description] = to;
    }

    fn call_of(&mut self, step: &Step) {
        match *step {
            Step::Call(kind) => self.call(&Self::effect(kind), true, |w| w.act(kind)),
            Step::Begin(kind) if self.running.len() < 4 => {
                let effect = Self::effect(kind);
                let seq = self.goes(&effect);
                self.running.push(Running { seq, kind, effect, acted: false, new: None });
            }
            Step::Act(which) | Step::Return(which) if !self.running.is_empty() => {
                let which = usize::from(which) % self.running.len();
                if !self.running[which].acted {
                    let new = self.act(self.running[which].kind);
                    (self.running[which].new, self.running[which].acted) = (new, true);
                }
                if matches!(step, Step::Return(_)) {
                    let r = self.running.remove(which);
                    self.tell();
                    self.ours.call_returns(r.seq, &r.effect, r.new, true, self.now);
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Open(fd) if !self.table.contains_key(&number(fd)) => {
                self.call(&Effect::Opens(true), false, |w| {
                    w.description(number(fd), false);
                    Some(number(fd))
                });
            }
            Step::Comes(fd, elsewhere) if !self.table.contains_key(&number(fd)) => {
                // It is in the answer of a call, say recvmsg.
                self.call(&Effect::Uses(vec![1000]), false, |w| {
                    w.description(number(fd), elsewhere);
                    None
                });
            }
            Step::Read(fd, len) => self.read(number(fd), u64::from(len), None, len % 4 != 0),
            Step::ReadAt(fd, at) => self.read(number(fd), 1, Some(u64::from(at)), at % 4 != 0),
            Step::Seek(fd, to) => self.seek(number(fd), u64::from(to)),
            Step::Elsewhere(fd) => {
                if self.table.get(&number(fd)).is_some_and(|d| self.elsewhere[*d]) {
                    self.advance(number(fd), 13);
                }
            }
            Step::Alone(fd) => {
                if let Some(&d) = self.table.get(&number(fd)) {
                    self.elsewhere[d] = false;
                }
            }
            Step::Answer(yes) => self.answer(yes),
            Step::Forget => {
                self.tell();
                self.granted.take().into_iter().for_each(|id| self.ours.forget(id, self.now));
            }
            Step::Time => self.now += 1_000_000_000_000,
            _ => self.call_of(step),
        }
    }

    fn answer(&mut self, yes: bool) {
        let Some((ask, fd, owners)) = self.question.take() else { return };
        let Some(&description) = self.table.get(&fd).filter(|_| yes) else {
            return self.ours.refused(ask, self.now);
        };
        let id = *self.granted.get_or_insert(ask);
        let numbers: Vec<i32> = self.table.iter().filter(|(_, d)| **d == description).map(|(fd, _)| *fd).collect();
        let (position, numbers) = match owners {
            Owners::Any => (None, Vec::new()),
            Owners::Known => (Some(self.home[description]), Vec::new()),
            Owners::Unknown if self.elsewhere[description] => (None, Vec::new()),
            Owners::Unknown => (Some(self.home[description]), numbers),
        };
        self.ours.granted(ask, id, position, &numbers, self.now);
    }
}

fn after(steps: impl IntoIterator<Item = Step>) -> World {
    let mut world = World::default();
    steps.into_iter().for_each(|step| world.step(&step));
    world
}

#[test]
fn every_position_is_in_one_place() {
    check!().with_type::<Vec<Step>>().for_each(|steps| {
        let mut world = World::default();
        steps.iter().for_each(|step| world.step(step));
        world.goes(&Effect::None);
    });
}

/// Is a read of this number answered here?
fn serves(w: &mut World, fd: i32) -> bool {
    matches!(w.ours.read(fd, None, w.now), Choice::Serve(..))
}

#[test]
fn after_one_full_read_it_is_asked() {
    let mut world = after([Step::Open(0), Step::Read(0, 8), Step::Read(0, 8), Step::Answer(true), Step::Read(0, 8)]);
    assert!(serves(&mut world, 0));
    world.step(&Step::Call(Kind::Fork));
    assert!(!serves(&mut world, 0));
    assert!(matches!(world.ours.read(0, Some(4), world.now), Choice::Serve(_, 4)), "what says where needs no position");
    // The child has ended: home is asked to look, some time.
    world.step(&Step::Alone(0));
    world.step(&Step::Read(0, 8));
    assert!(!serves(&mut world, 0));
    [Step::Time, Step::Read(0, 9)].iter().for_each(|step| world.step(step));
    assert!(serves(&mut world, 0));
}

#[test]
fn duplicates_have_one_position() {
    // As a shell does for `while read line; do ...; done < file`.
    let calls = [Kind::Dup2(1, 0), Kind::Close(1)].map(Step::Call);
    let mut world = after([Step::Open(1)].into_iter().chain(calls).chain([Step::Read(0, 1), Step::Read(0, 1)]));
    assert!(serves(&mut world, 0));
    world.step(&Step::Call(Kind::Dup(0)));
    world.step(&Step::Read(1, 9));
    assert!(serves(&mut world, 0) && serves(&mut world, 1));
    let before = world.served;
    [Step::Read(0, 5), Step::Read(1, 6), Step::Seek(0, 77), Step::Read(1, 9)].iter().for_each(|s| world.step(s));
    assert_eq!((world.served - before, world.truth[0]), (3, 86));
    world.step(&Step::Call(Kind::Close(0)));
    world.step(&Step::Read(1, 9));
    assert!(serves(&mut world, 1));
}

#[test]
fn what_is_from_before_is_read_here_if_nobody_else_has_it() {
    let mut world = after([Step::Comes(0, false), Step::Call(Kind::Dup(0)), Step::Read(0, 9), Step::Read(1, 9)]);
    assert!(!serves(&mut world, 1), "each by itself is forwarded once");
    world.step(&Step::Answer(true));
    world.step(&Step::Read(0, 9));
    assert!(serves(&mut world, 0) && serves(&mut world, 1), "home has said that both are one");
    let mut shared = after([Step::Comes(0, true), Step::Read(0, 9), Step::Read(0, 9)]);
    assert!(!serves(&mut shared, 0));
    assert_eq!(shared.ours.read(0, None, shared.now), Choice::Forward, "it is not asked again and again");
}

#[test]
fn what_changes_while_home_looks_is_not_taken() {
    let ask = || [Step::Comes(0, false), Step::Read(0, 9), Step::Read(0, 8)];
    let mut quiet = after(ask().into_iter().chain([Step::Answer(true)]));
    assert!(serves(&mut quiet, 0));
    for kind in [Kind::Dup(0), Kind::Dup2(0, 2), Kind::Move(0), Kind::Fork] {
        let mut world = after(ask().into_iter().chain([Step::Call(kind), Step::Answer(true)]));
        assert!(!serves(&mut world, 0), "{kind:?}");
        let mut world = after(ask().into_iter().chain([Step::Begin(kind), Step::Answer(true)]));
        assert!(!serves(&mut world, 0), "{kind:?}");
        world.step(&Step::Return(0));
        assert!(!serves(&mut world, 0), "{kind:?}");
    }
}
