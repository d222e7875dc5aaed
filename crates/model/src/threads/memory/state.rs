//! Everything that decides what can happen next.

use super::super::{Each, Line, THREADS, Tid};
use super::Case;
use super::program::{CELLS, Cells, Mask, PAGES};

/// A thread's half at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// Deputy, idle.
    Parked,
    /// Deputy, with a memory call that waits for another one to end.
    Waiting,
    /// Deputy, inside the forwarded call.
    InCall,
    /// Runs here, natively, before this instruction.
    Native(u8),
}

/// What a deputy's last call was and did. Each call of a script is made once, so its instruction is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallRecord {
    /// The instruction.
    pub pc: u8,
    /// The kernel has done what the call is to do, and is about to return.
    pub wrote: bool,
    /// It is over.
    pub done: bool,
    /// Its return value: the instruction that comes after it.
    pub next: u8,
    /// Memory when it was over, of which the reply takes what the kernel wrote.
    pub results: Cells,
}

/// Home's side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    /// Home's copy of memory: the backing store.
    pub memory: Cells,
    /// Pages that the program has.
    pub mapped: [bool; PAGES],
    /// Bytes that came home while a call might write there: they wait for its end.
    pub held: [Option<u8>; CELLS],
    /// Each thread.
    pub half: Each<Half>,
    /// Its last call.
    pub call: Each<Option<CallRecord>>,
    /// Calls that are over and not yet answered, the oldest first.
    pub owed: Each<Option<Tid>>,
    /// Pages pushed already.
    pub pushed: [bool; PAGES],
    /// Pulls to answer.
    pub wanted: [bool; PAGES],
    /// Somebody wants the process home.
    pub recall: bool,
    /// The guest was told.
    pub recall_sent: bool,
}

/// A page abroad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Page {
    /// The program has no such page.
    Unmapped,
    /// Home's copy is the truth.
    Absent,
    /// Equal to home's copy.
    Clean,
    /// Changed here: this is the truth.
    Written,
}

/// What a guest thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    /// Computes.
    Computing,
    /// Waits for a page.
    Faulting {
        /// Which.
        page: usize,
        /// Home was asked.
        asked: bool,
    },
    /// Held in the notification of a call.
    Calling {
        /// The call was sent home.
        sent: bool,
    },
    /// Its memory call is answered and about to be mirrored (a mutant's).
    Mirroring {
        /// The instruction after it.
        next: u8,
    },
    /// Stopped for the return.
    Frozen {
        /// Home has its call, and the answer has not come.
        awaiting: bool,
    },
    /// All is sent home, or there is no guest.
    Gone,
}

/// The side abroad.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guest {
    /// Each thread.
    pub run: Each<Run>,
    /// Its registers: the next instruction.
    pub pc: Each<u8>,
    /// Memory.
    pub memory: Cells,
    /// Whose copy is the truth.
    pub pages: [Page; PAGES],
    /// It is called home.
    pub recall: bool,
    /// Pages it may still send while the program runs.
    pub presync: u8,
}

/// What goes over the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Msg {
    /// To the guest: a page, pulled or pushed. Home: a page that was written abroad.
    Page {
        /// Which.
        page: usize,
        /// Its bytes.
        bytes: [u8; 2],
    },
    /// To the guest: the results of a call.
    Reply {
        /// Whose.
        thread: Tid,
        /// Which.
        pc: u8,
        /// The return value.
        next: u8,
        /// The cells that it carries.
        set: Mask,
        /// Their bytes.
        bytes: Cells,
    },
    /// To the guest: come home.
    Recall,
    /// Home: a page, please.
    Pull(usize),
    /// Home: a call.
    Call {
        /// Whose.
        thread: Tid,
        /// The instruction.
        pc: u8,
        /// The cells whose bytes come with it.
        set: Mask,
        /// Their bytes.
        bytes: Cells,
    },
    /// Home: that is all; go on from here.
    Residual {
        /// Registers.
        pc: Each<u8>,
        /// Waits for the answer to its call.
        awaiting: Each<bool>,
    },
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
    /// Calls that may be fed at once.
    pub(super) input: u8,
    /// And later.
    pub(super) inputs_left: u8,
    /// Ghost: the calls of each thread that had their effect.
    pub(super) once: Each<u8>,
    /// Ghost: what was found wrong while it happened.
    pub(super) wrong: Option<&'static str>,
}

impl World {
    pub(super) fn new(case: &Case) -> World {
        World {
            home: Home {
                memory: [0; CELLS],
                mapped: [true; PAGES],
                held: [None; CELLS],
                half: [Half::Parked; THREADS],
                call: [None; THREADS],
                owed: [None; THREADS],
                pushed: [false; PAGES],
                wanted: [false; PAGES],
                recall: false,
                recall_sent: false,
            },
            guest: Guest {
                run: [Run::Computing; THREADS],
                pc: [0; THREADS],
                memory: [0; CELLS],
                pages: [Page::Absent; PAGES],
                recall: false,
                presync: case.presync,
            },
            to_guest: Line::EMPTY,
            to_home: Line::EMPTY,
            up: true,
            input: 0,
            inputs_left: case.inputs,
            once: [0; THREADS],
            wrong: None,
        }
    }

    /// Notes the first thing found wrong.
    pub(super) fn blame(&mut self, what: &'static str) {
        self.wrong = self.wrong.or(Some(what));
    }
}

/// The bytes of a page.
pub fn page_bytes(memory: &Cells, page: usize) -> [u8; 2] {
    [memory[2 * page], memory[2 * page + 1]]
}
