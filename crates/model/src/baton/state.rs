//! Everything that decides what can happen next.

use super::Case;
use super::program::{CELLS, Cells, Mask, PAGES, cells, page_mask};

/// The part of the program that travels: registers, in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    /// The next instruction.
    pub pc: u8,
    /// Signals handled so far.
    pub handled: u8,
}

/// The program's body at home, as the kernel there sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// Runs here, natively (or waits here in a call of its own).
    Native(Context),
    /// Deputy, idle.
    Parked,
    /// Deputy, inside the forwarded call.
    InCall,
    /// Exited as the program wanted.
    Exited,
    /// Ended by the engine, with a record.
    Lost,
}

/// Home's helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Helper {
    /// There is none.
    None,
    /// The program is frozen; its context is to be sent.
    Frozen,
    /// The context is sent; the guest's first message is awaited.
    Awaiting,
    /// EXITKILL is set; the first message is about to be accepted.
    Committing,
    /// The program is abroad.
    Away,
    /// Everything is home; a call in flight may still have to end.
    Merging,
}

/// What the deputy's last call was and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallRecord {
    /// Its number.
    pub seq: u8,
    /// The instruction.
    pub pc: u8,
    /// The kernel has done what the call is to do, and is about to return.
    pub wrote: bool,
    /// It is over.
    pub done: bool,
    /// Memory when it was over, of which the reply takes what the kernel wrote.
    pub results: Cells,
}

/// What home owes the guest about its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owed {
    /// Its results.
    Reply,
    /// That a signal interrupted it.
    Interrupted,
}

/// Two cells.
pub type PageBytes = [u8; 2];

/// Home's side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    /// Home's copy of memory: the backing store.
    pub memory: Cells,
    /// The body.
    pub body: Body,
    /// The helper.
    pub helper: Helper,
    /// Where the program goes on at home.
    pub context: Context,
    /// The kernel kills the body if the helper dies.
    pub exitkill: bool,
    /// Ghost: the move is committed and the program not yet home again.
    pub committed: bool,
    /// Pages pushed already.
    pub pushed: [bool; PAGES],
    /// A pushed page that was read and not yet sent (a mutant's).
    pub late_push: Option<(u8, PageBytes)>,
    /// A pull to answer.
    pub wanted: Option<u8>,
    /// The last call.
    pub call: Option<CallRecord>,
    /// What is still to be said about it.
    pub owed: Option<Owed>,
    /// Pages that came home during the call.
    pub held: [Option<PageBytes>; PAGES],
    /// Signals pending in the kernel.
    pub pending: u8,
    /// Signals sent abroad since the move.
    pub forwarded: u8,
    /// Somebody wants the process home.
    pub recall: bool,
    /// The guest was told.
    pub recall_sent: bool,
    /// Blocked writing this (a mutant's).
    pub stuck: Option<Msg>,
}

/// A page abroad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Page {
    /// Home's copy is the truth.
    Absent,
    /// Equal to home's copy.
    Clean,
    /// Changed here: this is the truth.
    Written,
}

/// What the guest's program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    /// There is no guest.
    None,
    /// Computes.
    Computing,
    /// Waits for a page.
    Faulting {
        /// Which.
        page: u8,
        /// Home was asked.
        asked: bool,
    },
    /// Held in the notification of a call.
    Calling {
        /// The call was sent home.
        sent: bool,
    },
    /// Stopped for the return.
    Frozen {
        /// The call it waits for.
        awaiting: Option<u8>,
    },
    /// All is sent home; waits to be ended.
    HandedOver,
}

/// The side abroad.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guest {
    /// The program.
    pub run: Run,
    /// Its registers.
    pub context: Context,
    /// Its memory.
    pub memory: Cells,
    /// Whose copy is the truth.
    pub pages: [Page; PAGES],
    /// Signals queued for it.
    pub queued: u8,
    /// Signals received since the move.
    pub got: u8,
    /// Number of the last call.
    pub seq: u8,
    /// It is called home.
    pub recall: bool,
    /// Pages it may still send while the program runs.
    pub presync: u8,
    /// Has yet to say that it started.
    pub starting: bool,
    /// Blocked writing this (a mutant's).
    pub stuck: Option<Msg>,
}

impl Guest {
    /// None there.
    pub const ABSENT: Guest = Guest {
        run: Run::None,
        context: Context { pc: 0, handled: 0 },
        memory: [0; CELLS],
        pages: [Page::Absent; PAGES],
        queued: 0,
        got: 0,
        seq: 0,
        recall: false,
        presync: 0,
        starting: false,
        stuck: None,
    };
}

/// What goes over the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Msg {
    /// To the guest: be this program.
    Start(Context),
    /// To the guest: a page, pulled or pushed. Home: a page that was written abroad.
    Page {
        /// Which.
        page: u8,
        /// Its bytes.
        bytes: PageBytes,
    },
    /// To the guest: the results of a call.
    Reply {
        /// Which.
        seq: u8,
        /// The cells that it carries.
        set: Mask,
        /// Their bytes.
        bytes: Cells,
    },
    /// To the guest: the call was interrupted and had no effect.
    Interrupted {
        /// Which.
        seq: u8,
    },
    /// To the guest: a signal.
    Signal,
    /// To the guest: come home.
    Recall,
    /// Home: the guest runs.
    Started,
    /// Home: a page, please.
    Pull(u8),
    /// Home: a call.
    Call {
        /// Its number.
        seq: u8,
        /// The instruction.
        pc: u8,
        /// Signals that the guest had received when it sent the call.
        got: u8,
        /// The cells whose bytes come with it.
        set: Mask,
        /// Their bytes.
        bytes: Cells,
    },
    /// Home: that is all; go on from here.
    Residual {
        /// Registers.
        context: Context,
        /// The call whose result it has not seen.
        awaiting: Option<u8>,
        /// Signals received since the move.
        got: u8,
        /// Those of them not yet delivered.
        queued: u8,
    },
}

/// One direction of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line([Option<Msg>; 3]);

impl Line {
    /// Messages in it.
    pub fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Appends. The caller has looked whether there is room.
    pub fn send(&mut self, msg: Msg) {
        let at = self.len();
        self.0[at] = Some(msg);
    }

    /// The oldest message.
    pub fn first(&self) -> Option<Msg> {
        self.0[0]
    }

    /// Takes the oldest message away.
    pub fn pop(&mut self) {
        self.0.rotate_left(1);
        self.0[2] = None;
    }

    /// All messages.
    pub fn iter(&self) -> impl Iterator<Item = &Msg> {
        self.0.iter().flatten()
    }
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
    pub(super) to_guest: Line,
    pub(super) to_home: Line,
    /// The connection stands.
    pub(super) up: bool,
    /// Bytes for the blocking call.
    pub(super) input: u8,
    /// Ghost: signals that were sent to the program.
    pub(super) raised: u8,
    /// Ghost: how often each call had its effect (bit sets: once, twice).
    pub(super) once: u16,
    /// Ghost: what was found wrong while it happened.
    pub(super) wrong: Option<&'static str>,
    pub(super) left: Budget,
}

impl World {
    pub(super) fn new(case: &Case) -> World {
        World {
            home: Home {
                memory: [0; CELLS],
                body: Body::Native(Context::default()),
                helper: Helper::None,
                context: Context::default(),
                exitkill: false,
                committed: false,
                pushed: [false; PAGES],
                late_push: None,
                wanted: None,
                call: None,
                owed: None,
                held: [None; PAGES],
                pending: 0,
                forwarded: 0,
                recall: false,
                recall_sent: false,
                stuck: None,
            },
            guest: Guest::ABSENT,
            to_guest: Line::default(),
            to_home: Line::default(),
            up: false,
            input: 0,
            raised: 0,
            once: 0,
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

    /// The connection is gone; what was in it is lost.
    pub(super) fn hang_up(&mut self) {
        self.up = false;
        self.to_guest = Line::default();
        self.to_home = Line::default();
    }

    /// The helper at home is done with this move.
    pub(super) fn dismiss_helper(&mut self) {
        let home = &mut self.home;
        home.helper = Helper::None;
        home.context = Context::default();
        home.exitkill = false;
        home.pushed = [false; PAGES];
        home.late_push = None;
        home.wanted = None;
        home.call = None;
        home.owed = None;
        home.held = [None; PAGES];
        home.forwarded = 0;
        home.recall = false;
        home.recall_sent = false;
        home.stuck = None;
    }
}

/// The bytes of a page.
pub fn page_bytes(memory: &Cells, page: u8) -> PageBytes {
    let at = 2 * usize::from(page);
    [memory[at], memory[at + 1]]
}

/// Writes a page, except for the cells in `except`.
pub fn put_page(memory: &mut Cells, page: u8, bytes: PageBytes, except: Mask) {
    for cell in cells(page_mask(page) & !except) {
        memory[cell] = bytes[cell % 2];
    }
}
