//! The engine's design: one event loop at home, one abroad, one ordered connection, one baton.
//!
//! What is modelled: a program that computes, reads and writes pages and makes calls (one may block for
//! ever); the move away with its commit; pages pulled and pushed; calls with inputs and outputs; signals; the
//! return with presync rounds, also while a call is in flight; a bounded connection each way. The outside
//! world may at any moment send a signal, call the process home, call off a move, cut the connection, kill
//! home's helper, and may or may not feed the blocking call.
//!
//! What is not: several threads ([`crate::threads`]), a third node (its first half is a return and its second a move away), more
//! than two pages. `docs/states.md` says which rule of the design each [`Mutant`] breaks.

mod guest;
mod home;
mod outside;
mod program;
mod rules;
mod state;

pub use program::{Op, mask};
pub use state::World;

use crate::checker::{Model, Step};

/// One rule of the design, broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutant {
    /// None: the design.
    None,
    /// The push reads a page early and sends it whenever it likes.
    PushSentLate,
    /// Home forgets what a call did as soon as the reply is sent, though the guest may never see it.
    ReplyForgotten,
    /// A page that comes home while a call is in flight overwrites what the call wrote.
    ReturnOverwritesCall,
    /// Such a page is merged by what the call *may* write, not by what it wrote.
    MergedByPromise,
    /// A reply carries the whole buffer, not only the bytes that the kernel wrote.
    ReplyCarriesBuffer,
    /// A call goes home without the bytes that it reads.
    InputsNotSent,
    /// Bytes of a reply that are written abroad do not make the page `written`.
    ReplyLeavesClean,
    /// Pages are sent home, or the guest is frozen, while a memory call is in flight.
    PagesDuringMemoryCall,
    /// A page that was pushed once is not served again.
    PullIgnoredIfPushed,
    /// The first message is accepted before EXITKILL is set.
    CommitBeforeExitkill,
    /// EXITKILL is taken away when the return begins.
    ExitkillDroppedEarly,
    /// A move that was called off leaves its connection open, and home still listens to it.
    LateStartAccepted,
    /// A guest does not end with its connection.
    OrphanGuest,
    /// Home forgets a signal as soon as it is sent.
    SignalForgotten,
    /// The guest's helper sends a call home although the program has a signal to handle first.
    CallOvertakesSignal,
    /// A call is executed although a signal is on its way to the program that made it.
    CallMissesSignal,
    /// The reply of a call may overtake the signal that the call caused.
    SignalAfterReply,
    /// The deputy is parked in a ptrace stop, where a signal does not show until the next call.
    DeafDeputy,
    /// A program is frozen while a signal is pending that it should have handled first.
    FrozenBeforeSignal,
    /// A signal makes home say "interrupted" about a call that was already done.
    InterruptedAfterDone,
    /// A helper whose write blocks does not read.
    BlockingWrites,
}

/// A finite case to explore.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What the program does.
    pub script: &'static [Op],
    /// The broken rule, if any.
    pub mutant: Mutant,
    /// Messages that fit into each direction of the connection (at most 3).
    pub capacity: u8,
    /// How often the process may be sent away.
    pub moves: u8,
    /// How often it may be called home.
    pub recalls: u8,
    /// How many signals may come from outside.
    pub signals: u8,
    /// How often somebody may feed the blocking call. The model never counts on it.
    pub inputs: u8,
    /// How many moves may be called off before their commit.
    pub aborts: u8,
    /// How often the connection may break.
    pub cuts: u8,
    /// How often home's helper may be killed.
    pub kills: u8,
    /// Pages sent home while the program still runs, per return.
    pub presync: u8,
}

impl Case {
    /// A program moves away once and may be called home once; nothing breaks.
    pub const fn new(script: &'static [Op]) -> Case {
        Case {
            script,
            mutant: Mutant::None,
            capacity: 2,
            moves: 1,
            recalls: 1,
            signals: 0,
            inputs: 1,
            aborts: 0,
            cuts: 0,
            kills: 0,
            presync: 1,
        }
    }

    /// The same with a broken rule.
    pub const fn broken(self, mutant: Mutant) -> Case {
        Case { mutant, ..self }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }
}

impl Model for Case {
    type State = World;

    fn initial(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn steps(&self, world: &World, out: &mut Vec<Step<World>>) {
        let mut moves = Moves { case: self, out };
        outside::steps(&mut moves, world);
        home::steps(&mut moves, world);
        guest::steps(&mut moves, world);
    }

    fn check(&self, world: &World) -> Result<(), String> {
        rules::check(self, world)
    }

    fn may_rest(&self, world: &World) -> Result<(), String> {
        rules::may_rest(self, world)
    }
}

/// Collects the transitions of one state.
struct Moves<'a> {
    case: &'a Case,
    out: &'a mut Vec<Step<World>>,
}

impl Moves<'_> {
    /// A step that the engine, the kernel or the program takes.
    fn step(&mut self, name: &'static str, n: u8, from: &World, act: impl FnOnce(&mut World)) {
        self.push(name, n, false, from, act);
    }

    /// A step that the outside world may take.
    fn event(&mut self, name: &'static str, n: u8, from: &World, act: impl FnOnce(&mut World)) {
        self.push(name, n, true, from, act);
    }

    fn push(&mut self, name: &'static str, n: u8, outside: bool, from: &World, act: impl FnOnce(&mut World)) {
        let mut next = from.clone();
        act(&mut next);
        self.out.push(Step { label: (name, n), outside, next });
    }
}
