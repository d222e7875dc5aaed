//! Births, deaths and signals of two threads, through a move with its commit, the return, and what may break.
//!
//! The first thread is there from the beginning, the second is born and may die. There is no memory here but the word
//! that the second thread's death clears, for which the first one waits. The outside world may send the process away
//! and call it home, send signals (the kernel picks a thread), feed blocking calls, call a move off, cut the connection
//! and kill home's helper.

mod guest;
mod home;
mod outside;
mod rules;
mod state;

pub use state::World;

use super::Each;
use crate::checker::{Model, Step};

type Moves<'a> = super::Moves<'a, Case, World>;

/// One instruction of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes a call.
    Call {
        /// It does not return before somebody feeds it.
        blocks: bool,
    },
    /// Makes the other thread (clone).
    Birth,
    /// Ends this thread (exit).
    Die,
    /// Waits, without a call, until the other thread's end has cleared its word.
    Join,
    /// A call that must not find the other thread any more.
    Probe,
}

/// One rule of the design, broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutant {
    /// None: the design.
    None,
    /// The freeze for a move stops the threads that there were when it began.
    FreezeMissesNewThread,
    /// A move that is called off lets only the first thread go on.
    CallOffResumesOne,
    /// A thread is frozen for the return while another is born at home and not yet abroad.
    FreezeDuringBirth,
    /// The same while one has ended at home and not yet abroad.
    FreezeDuringDeath,
    /// A thread ends abroad first.
    DeathAbroadFirst,
    /// A signal of a new thread may go abroad before the thread does.
    SignalBeforeBirth,
    /// The guest's side counts the signals of all threads together.
    OneSignalCounter,
}

/// A finite case to explore.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What each thread does. At its end it computes for ever.
    pub scripts: Each<&'static [Op]>,
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
    /// Blocking calls that may be fed. The model never counts on it.
    pub inputs: u8,
    /// How many moves may be called off before their commit.
    pub aborts: u8,
    /// How often the connection may break.
    pub cuts: u8,
    /// How often home's helper may be killed.
    pub kills: u8,
}

impl Case {
    /// Moves away once and may be called home once; nothing breaks.
    pub const fn new(scripts: Each<&'static [Op]>) -> Case {
        Case {
            scripts,
            mutant: Mutant::None,
            capacity: 2,
            moves: 1,
            recalls: 1,
            signals: 0,
            inputs: 1,
            aborts: 0,
            cuts: 0,
            kills: 0,
        }
    }

    /// The same with a broken rule.
    pub const fn broken(self, mutant: Mutant) -> Case {
        Case { mutant, ..self }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }

    /// The instruction of a thread; none at its end.
    fn op(&self, thread: usize, pc: u8) -> Option<Op> {
        self.scripts[thread].get(usize::from(pc)).copied()
    }

    fn blocks(&self, thread: usize, pc: u8) -> bool {
        self.op(thread, pc) == Some(Op::Call { blocks: true })
    }
}

impl Model for Case {
    type State = World;

    fn initial(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn steps(&self, world: &World, out: &mut Vec<Step<World>>) {
        let mut moves = Moves { case: self, out };
        if !world.home.ended {
            outside::steps(&mut moves, world);
            home::steps(&mut moves, world);
        }
        guest::steps(&mut moves, world);
    }

    fn check(&self, world: &World) -> Result<(), String> {
        rules::check(self, world)
    }

    fn may_rest(&self, world: &World) -> Result<(), String> {
        rules::may_rest(self, world)
    }
}
