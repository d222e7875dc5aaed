//! The first prototype's home side: four threads, one page lock, and a hang.
//!
//! A program abroad is blocked in `readv`. Its call runs in the *caller* thread, which keeps the page lock
//! across the call. The *pusher* sends pages in the background and needs the page lock for each. On "come
//! home" the network *reader* asks the pusher to stop and spins until it has. If nobody writes to the pipe,
//! the caller never lets go of the lock, the pusher never gets it, the reader spins for ever, and no byte is
//! read from the network again.

use crate::checker::{Model, Step};

/// How the prototype is built. [`Design::AS_BUILT`] hangs; each of the other two cures alone suffices.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// The page lock is held while the call blocks.
    pub lock_across_call: bool,
    /// The network reader itself waits for the pusher, instead of noting the wish and going on.
    pub reader_waits: bool,
}

impl Design {
    /// As the prototype was.
    pub const AS_BUILT: Design = Design { lock_across_call: true, reader_waits: true };
}

/// Who has the page lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lock {
    /// Nobody.
    Free,
    /// The thread that runs the call.
    Caller,
    /// The pusher.
    Pusher,
}

/// The thread that runs forwarded calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// Has a call to make.
    Start,
    /// Inside `readv`.
    Blocked,
    /// The call is done and answered.
    Done,
}

/// The thread that sends pages in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pusher {
    /// Looks whether it is to stop.
    Looks,
    /// Waits for the page lock, or is about to take it.
    Waits,
    /// Holds the lock and sends.
    Sends,
    /// Has stopped.
    Stopped,
}

/// What the network reader does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// Waits for a message.
    Reading,
    /// Spins until the pusher has stopped.
    Spinning,
    /// Has told the other side to come home and reads on.
    Returning,
    /// The process is home.
    Home,
}

/// A state of the prototype's home side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threads {
    lock: Lock,
    caller: Caller,
    pages_left: u8,
    pusher: Pusher,
    stop: bool,
    reader: Reader,
    wanted_home: bool,
    input: bool,
}

impl Model for Design {
    type State = Threads;

    fn initial(&self) -> Vec<Threads> {
        vec![Threads {
            lock: Lock::Free,
            caller: Caller::Start,
            pages_left: 2,
            pusher: Pusher::Looks,
            stop: false,
            reader: Reader::Reading,
            wanted_home: false,
            input: false,
        }]
    }

    fn steps(&self, s: &Threads, out: &mut Vec<Step<Threads>>) {
        let mut outside = |name, change: fn(&mut Threads)| out.push(step(s, name, true, change));
        if !s.wanted_home {
            outside("come home is asked", |s| s.wanted_home = true);
        }
        if !s.input {
            outside("somebody writes to the pipe", |s| s.input = true);
        }
        out.extend(self.caller(s));
        out.extend(pusher(s));
        out.extend(self.reader(s));
    }

    fn check(&self, _: &Threads) -> Result<(), String> {
        Ok(())
    }

    fn may_rest(&self, s: &Threads) -> Result<(), String> {
        match s.reader {
            Reader::Home => Ok(()),
            Reader::Reading if !s.wanted_home => Ok(()),
            _ => Err("come home was asked and never happens".into()),
        }
    }
}

fn step(s: &Threads, name: &'static str, outside: bool, change: fn(&mut Threads)) -> Step<Threads> {
    let mut next = *s;
    change(&mut next);
    Step { label: (name, s.pages_left), outside, next }
}

impl Design {
    fn caller(&self, s: &Threads) -> Option<Step<Threads>> {
        match s.caller {
            Caller::Start if s.lock == Lock::Free && self.lock_across_call => {
                Some(step(s, "caller locks the pages and calls readv", false, |s| {
                    s.caller = Caller::Blocked;
                    s.lock = Lock::Caller;
                }))
            }
            Caller::Start if s.lock == Lock::Free => {
                Some(step(s, "caller calls readv", false, |s| s.caller = Caller::Blocked))
            }
            Caller::Blocked if s.input => Some(step(s, "readv returns", false, |s| {
                s.caller = Caller::Done;
                if s.lock == Lock::Caller {
                    s.lock = Lock::Free;
                }
            })),
            _ => None,
        }
    }

    fn reader(&self, s: &Threads) -> Option<Step<Threads>> {
        match s.reader {
            Reader::Reading if s.wanted_home && self.reader_waits => {
                Some(step(s, "reader takes the wish and spins", false, |s| {
                    s.reader = Reader::Spinning;
                    s.stop = true;
                }))
            }
            Reader::Reading if s.wanted_home => Some(step(s, "reader takes the wish and reads on", false, |s| {
                s.reader = Reader::Returning;
                s.stop = true;
            })),
            Reader::Spinning if s.pusher == Pusher::Stopped => {
                Some(step(s, "reader stops spinning", false, |s| s.reader = Reader::Returning))
            }
            // The call stays in flight in the body; nothing that the return needs depends on it.
            Reader::Returning => Some(step(s, "the rest comes home", false, |s| s.reader = Reader::Home)),
            _ => None,
        }
    }
}

fn pusher(s: &Threads) -> Option<Step<Threads>> {
    match s.pusher {
        Pusher::Looks if s.stop || s.pages_left == 0 => {
            Some(step(s, "pusher stops", false, |s| s.pusher = Pusher::Stopped))
        }
        Pusher::Looks => Some(step(s, "pusher wants the lock", false, |s| s.pusher = Pusher::Waits)),
        Pusher::Waits if s.lock == Lock::Free => Some(step(s, "pusher locks the pages", false, |s| {
            s.pusher = Pusher::Sends;
            s.lock = Lock::Pusher;
        })),
        Pusher::Sends => Some(step(s, "pusher sends a page and unlocks", false, |s| {
            s.pusher = Pusher::Looks;
            s.lock = Lock::Free;
            s.pages_left -= 1;
        })),
        Pusher::Waits | Pusher::Stopped => None,
    }
}
