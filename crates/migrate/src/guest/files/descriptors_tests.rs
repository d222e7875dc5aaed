//! A program, its descriptors at home, and ours: whatever happens, a call at home finds every position where the program left it.

use super::*;
use bolero::{TypeGenerator, check};

#[derive(Debug, TypeGenerator)]
enum Step {
    Open(u8),
    Read(u8, u8),
    ReadAt(u8, u8),
    Seek(u8, u8),
    Dup(u8, u8),
    Close(u8),
    Fork,
    /// A call at home that moves this one begins; it ends at `Return`.
    Begin(u8),
    Return,
    Answer(bool),
    Forget,
}

/// Home: where each description stands, and what the program should see.
#[derive(Default)]
struct World {
    ours: Descriptors,
    /// Descriptor to description; positions that home knows; those that the program would find unmoved.
    table: BTreeMap<i32, usize>,
    home: Vec<u64>,
    truth: Vec<u64>,
    seq: u64,
    running: Vec<(u64, Effect, usize)>,
    question: Option<(u64, i32)>,
    granted: Option<u64>,
    now: u64,
}

impl World {
    fn goes(&mut self, effect: &Effect) -> u64 {
        self.seq += 1;
        for (fd, at) in self.ours.untold() {
            self.home[self.table[&fd]] = at;
        }
        self.ours.call_goes(self.seq, effect);
        // Positions that calls in flight are moving are theirs.
        let moving: Vec<usize> = self.running.iter().map(|r| r.2).collect();
        for &description in self.table.values().filter(|d| !moving.contains(d)) {
            assert_eq!(self.home[description], self.truth[description], "home sees what the program did");
        }
        self.seq
    }

    /// A call that home makes at once.
    fn call(&mut self, effect: &Effect, act: impl FnOnce(&mut Self)) {
        let seq = self.goes(effect);
        act(self);
        self.ours.call_returns(seq, effect, true);
    }

    fn is_moving(&self, fd: i32) -> bool {
        self.table.get(&fd).is_none_or(|d| self.running.iter().any(|r| r.2 == *d))
    }

    fn advance(&mut self, fd: i32, by: u64) {
        let description = self.table[&fd];
        self.home[description] += by;
        self.truth[description] += by;
    }

    /// `prompt`: what is asked is answered at once.
    fn read(&mut self, fd: i32, len: u64, offset: Option<u64>, prompt: bool) {
        if !self.table.contains_key(&fd) {
            return;
        }
        self.now += 100_000_000;
        let choice = self.ours.read(fd, offset, self.now);
        if self.is_moving(fd) && offset.is_none() {
            // Home's kernel lets it wait, or we do.
            return assert!(matches!(choice, Choice::Forward | Choice::Wait), "{choice:?} of what a call is moving");
        }
        match choice {
            Choice::Forward if offset.is_some() => {
                self.call(&Effect::None, |_| {});
                self.ours.read_elsewhere(fd);
            }
            Choice::Forward => self.call(&Effect::Uses(vec![fd]), |w| w.advance(fd, len)),
            Choice::Ask(ask) => {
                self.question = Some((ask, fd));
                if prompt {
                    self.answer(true);
                }
            }
            Choice::Wait => {}
            Choice::Serve(_, at) if offset.is_none() => {
                let description = self.table[&fd];
                assert_eq!(at, self.truth[description], "the position here is the program's");
                self.truth[description] += len;
                self.ours.get_mut(fd).expect("it is served").moved(at + len);
            }
            Choice::Serve(_, at) => assert_eq!(Some(at), offset),
        }
    }

    fn step(&mut self, step: &Step) {
        let number = |fd: u8| i32::from(fd % 3);
        match *step {
            Step::Open(fd) if !self.table.contains_key(&number(fd)) => {
                self.call(&Effect::None, |w| {
                    w.table.insert(number(fd), w.home.len());
                    w.home.push(0);
                    w.truth.push(0);
                });
                self.ours.opened(number(fd));
            }
            Step::Read(fd, len) => self.read(number(fd), u64::from(len), None, len % 4 != 0),
            Step::ReadAt(fd, at) => self.read(number(fd), 1, Some(u64::from(at)), at % 4 != 0),
            Step::Seek(fd, to) if !self.is_moving(number(fd)) => {
                let (fd, to) = (number(fd), u64::from(to));
                let description = self.table[&fd];
                match self.ours.get_mut(fd) {
                    Some(d) if matches!(d.place, Place::Here { .. }) => d.moved(to),
                    _ => self.call(&Effect::Uses(vec![fd]), |w| w.home[description] = to),
                }
                self.truth[description] = to;
            }
            Step::Dup(from, to) if !self.is_moving(number(from)) && !self.is_moving(number(to)) => {
                let (from, to) = (number(from), number(to));
                self.call(&Effect::Shares(from, Some(to)), |w| {
                    w.table.insert(to, w.table[&from]);
                });
            }
            Step::Close(fd) if !self.is_moving(number(fd)) => {
                let fd = number(fd);
                self.call(&Effect::Ends(fd..=fd), |w| _ = w.table.remove(&fd));
            }
            Step::Fork => self.call(&Effect::SharesAll, |_| {}),
            Step::Begin(fd) if !self.is_moving(number(fd)) => {
                let effect = Effect::Uses(vec![number(fd)]);
                let seq = self.goes(&effect);
                self.running.push((seq, effect, self.table[&number(fd)]));
            }
            Step::Return => {
                if let Some((seq, effect, description)) = self.running.pop() {
                    self.home[description] += 7;
                    self.truth[description] = self.home[description];
                    self.ours.call_returns(seq, &effect, true);
                }
            }
            Step::Answer(yes) => self.answer(yes),
            Step::Forget => {
                for (fd, at) in self.ours.untold() {
                    self.home[self.table[&fd]] = at;
                }
                self.granted.take().into_iter().for_each(|id| self.ours.forget(id, self.now));
            }
            _ => {}
        }
    }

    fn answer(&mut self, yes: bool) {
        let Some((ask, fd)) = self.question.take() else { return };
        let Some(&description) = self.table.get(&fd).filter(|_| yes) else {
            return self.ours.refused(ask, self.now);
        };
        let id = *self.granted.get_or_insert(ask);
        self.ours.granted(ask, id, self.home[description]);
    }
}

#[test]
fn every_position_is_in_one_place() {
    check!().with_type::<Vec<Step>>().for_each(|steps| {
        let mut world = World::default();
        steps.iter().for_each(|step| world.step(step));
        world.goes(&Effect::None);
    });
}

#[test]
fn after_one_full_read_it_is_asked() {
    let mut world = World::default();
    let serves = |w: &mut World| matches!(w.ours.read(0, None, w.now), Choice::Serve(..));
    for step in [Step::Open(0), Step::Read(0, 8), Step::Read(0, 8), Step::Answer(true), Step::Read(0, 8)] {
        world.step(&step);
    }
    assert!(serves(&mut world));
    world.step(&Step::Fork);
    assert!(!serves(&mut world));
    assert!(matches!(world.ours.read(0, Some(4), world.now), Choice::Serve(_, 4)), "what says where needs no position");
}
