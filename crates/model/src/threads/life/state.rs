//! Everything that decides what can happen next.

use super::super::{Each, Line, THREADS, Tid};
use super::Case;

/// The part of a thread that travels: registers, in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    /// The next instruction.
    pub pc: u8,
    /// Signals handled so far.
    pub handled: u8,
}

/// A thread's half at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// Not yet there.
    Unborn,
    /// Runs here, natively (or waits here in a call of its own).
    Native,
    /// Stopped for a move.
    Stopped,
    /// Deputy, made by a forwarded call whose answer is not yet sent.
    Newborn,
    /// Deputy, idle.
    Parked,
    /// Deputy, inside a forwarded call.
    InCall,
    /// Gone.
    Exited,
}

/// Home's helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Helper {
    /// There is none.
    None,
    /// Stops one thread after the other.
    Freezing {
        /// Those that there were when it began.
        listed: Each<bool>,
    },
    /// The contexts are sent; the guest's first message is awaited.
    Awaiting,
    /// EXITKILL is set; the first message is about to be accepted.
    Committing,
    /// The program is abroad.
    Away,
    /// Everything is home; calls in flight may still have to end.
    Merging,
}

/// What a deputy's last call was and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallRecord {
    /// The instruction.
    pub pc: u8,
    /// The kernel has done what the call is to do, and is about to return.
    pub wrote: bool,
    /// It is over.
    pub done: bool,
}

/// What home owes a guest thread about its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owed {
    /// Its result.
    Reply,
    /// That a signal interrupted it.
    Interrupted,
}

/// Home's side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    /// The helper.
    pub helper: Helper,
    /// Each thread.
    pub half: Each<Half>,
    /// Where it goes on at home.
    pub context: Each<Context>,
    /// Its last call.
    pub call: Each<Option<CallRecord>>,
    /// What is still to be said about it.
    pub owed: Each<Option<Owed>>,
    /// Signals for which the kernel picked it.
    pub pending: Each<u8>,
    /// Signals sent to it since the move.
    pub forwarded: Each<u8>,
    /// The word that the second thread's end clears, in home's copy.
    pub cleared: bool,
    /// The kernel kills the process if the helper dies.
    pub exitkill: bool,
    /// Somebody wants the process home.
    pub recall: bool,
    /// The guest was told.
    pub recall_sent: bool,
    /// Ended by the engine, with a record.
    pub ended: bool,
}

/// What a guest thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    /// It is not there.
    None,
    /// Computes.
    Computing,
    /// Held in the notification of a call.
    Calling {
        /// The call was sent home.
        sent: bool,
    },
    /// Stopped for the return.
    Frozen {
        /// Home has its call, and the answer has not come.
        awaiting: bool,
    },
}

/// The side abroad.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guest {
    /// There is one, and all is not yet sent home.
    pub there: bool,
    /// Each thread.
    pub run: Each<Run>,
    /// Its registers.
    pub context: Each<Context>,
    /// Signals queued for it.
    pub queued: Each<u8>,
    /// Signals received for it since the move.
    pub got: Each<u8>,
    /// The word that the second thread's end clears.
    pub cleared: bool,
    /// It is called home.
    pub recall: bool,
    /// Has yet to say that it started.
    pub starting: bool,
}

impl Guest {
    /// None there.
    pub const ABSENT: Guest = Guest {
        there: false,
        run: [Run::None; THREADS],
        context: [Context { pc: 0, handled: 0 }; THREADS],
        queued: [0; THREADS],
        got: [0; THREADS],
        cleared: false,
        recall: false,
        starting: false,
    };
}

/// What goes over the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Msg {
    /// To the guest: be these threads.
    Start {
        /// Registers of those that there are.
        threads: Each<Option<Context>>,
        /// Memory.
        cleared: bool,
    },
    /// To the guest: the result of a thread's call.
    Reply(Tid),
    /// To the guest: a thread's call was interrupted and had no effect.
    Interrupted(Tid),
    /// To the guest: a signal for a thread.
    Signal(Tid),
    /// To the guest: come home.
    Recall,
    /// Home: the guest runs.
    Started,
    /// Home: a call.
    Call {
        /// Whose.
        thread: Tid,
        /// Registers.
        context: Context,
        /// Signals that the thread had received.
        got: u8,
    },
    /// Home: that is all; go on from here.
    Residual(Residual),
}

/// What a frozen guest says last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Residual {
    /// Registers of those that there are.
    pub threads: Each<Option<Context>>,
    /// Waits for the answer to its call.
    pub awaiting: Each<bool>,
    /// Signals received since the move.
    pub got: Each<u8>,
    /// Those of them not yet delivered.
    pub queued: Each<u8>,
    /// Memory.
    pub cleared: bool,
}

/// What the outside world may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub moves: u8,
    pub recalls: u8,
    pub signals: u8,
    pub inputs: u8,
    pub aborts: u8,
    pub cuts: u8,
    pub kills: u8,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(super) home: Home,
    pub(super) guest: Guest,
    pub(super) to_guest: Line<Msg>,
    pub(super) to_home: Line<Msg>,
    /// The connection stands.
    pub(super) up: bool,
    /// Blocking calls that may return.
    pub(super) input: u8,
    /// Ghost: signals that were sent to the process.
    pub(super) raised: u8,
    /// Ghost: signals handled by a thread that has ended.
    pub(super) handled_by_dead: u8,
    /// Ghost: the calls of each thread that had their effect.
    pub(super) once: Each<u8>,
    /// Ghost: what was found wrong while it happened.
    pub(super) wrong: Option<&'static str>,
    pub(super) left: Budget,
}

impl World {
    pub(super) fn new(case: &Case) -> World {
        World {
            home: Home {
                helper: Helper::None,
                half: [Half::Native, Half::Unborn],
                context: [Context::default(); THREADS],
                call: [None; THREADS],
                owed: [None; THREADS],
                pending: [0; THREADS],
                forwarded: [0; THREADS],
                cleared: false,
                exitkill: false,
                recall: false,
                recall_sent: false,
                ended: false,
            },
            guest: Guest::ABSENT,
            to_guest: Line::EMPTY,
            to_home: Line::EMPTY,
            up: false,
            input: 0,
            raised: 0,
            handled_by_dead: 0,
            once: [0; THREADS],
            wrong: None,
            left: Budget {
                moves: case.moves,
                recalls: case.recalls,
                signals: case.signals,
                inputs: case.inputs,
                aborts: case.aborts,
                cuts: case.cuts,
                kills: case.kills,
            },
        }
    }

    /// Notes the first thing found wrong.
    pub(super) fn blame(&mut self, what: &'static str) {
        self.wrong = self.wrong.or(Some(what));
    }

    /// Is the thread there, at home?
    pub(super) fn lives(&self, thread: Tid) -> bool {
        !matches!(self.home.half[thread], Half::Unborn | Half::Exited)
    }

    /// The connection is gone; what was in it is lost.
    pub(super) fn hang_up(&mut self) {
        self.up = false;
        self.to_guest = Line::EMPTY;
        self.to_home = Line::EMPTY;
    }

    /// The helper at home is done with this move.
    pub(super) fn dismiss_helper(&mut self) {
        let home = &mut self.home;
        home.helper = Helper::None;
        home.exitkill = false;
        home.call = [None; THREADS];
        home.owed = [None; THREADS];
        home.forwarded = [0; THREADS];
        home.recall = false;
        home.recall_sent = false;
    }

    /// The engine ends the process.
    pub(super) fn end(&mut self) {
        self.dismiss_helper();
        self.home.ended = true;
        self.home.pending = [0; THREADS];
        self.home.half = [Half::Exited; THREADS];
    }
}
