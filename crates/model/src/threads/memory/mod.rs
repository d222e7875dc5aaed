//! Memory of two threads: pages pulled, pushed and sent home, calls with inputs and results, memory calls, and the
//! return with a call in flight or an answer that crosses it.
//!
//! It begins abroad, with all pages at home. The outside world may call the process home, and may or may not feed the
//! blocking calls. Signals, births, deaths and failures are in [`super::life`].

mod guest;
mod home;
mod program;
mod rules;
mod state;

pub use program::{Mask, Op, mask};
pub use state::World;

use super::{Each, THREADS};
use crate::checker::{Model, Step};

type Moves<'a> = super::Moves<'a, Case, World>;

/// One rule of the design, broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutant {
    /// None: the design.
    None,
    /// A reply carries the pages that the kernel wrote to, not only the bytes.
    ReplyCarriesPage,
    /// A call carries the pages that it reads, not only the bytes.
    InputsCarryPage,
    /// A call goes home without the bytes that it reads.
    InputsNotSent,
    /// Bytes of a reply that are written abroad do not make the page `written`.
    ReplyLeavesClean,
    /// A page that comes home is written at once, also where a call may be writing.
    HeldPageAppliedEarly,
    /// All of a page waits while a call may write to some of it.
    PageHeldWhole,
    /// The same, and what has come home does not run before nothing waits any more.
    ReturnWaitsForHeldPage,
    /// What waited for the end of a call goes over its results.
    ResultNotPutOverHeldPage,
    /// With the end of any call goes what waits in that page, also for the end of another one.
    HeldReleasedByAnyCall,
    /// What waits for the end of a call survives a memory call that throws the page away.
    HeldSurvivesMemoryCall,
    /// Home keeps the record of the last call of the process, not one for each thread.
    OneRecordForAll,
    /// Pages are sent home, or a thread is frozen, while a memory call is in flight.
    PagesDuringMemoryCall,
    /// Home makes the memory calls of several threads at once, and answers them as they return.
    MemoryCallsAtOnce,
    /// The guest's side lets each thread mirror its memory call whenever it comes to it.
    MirrorsSwapped,
}

/// A finite case to explore.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What each thread does.
    pub scripts: Each<&'static [Op]>,
    /// The broken rule, if any.
    pub mutant: Mutant,
    /// Messages that fit into each direction of the connection (at most 3).
    pub capacity: u8,
    /// Calls that may be fed. The model never counts on it.
    pub inputs: u8,
    /// Pages sent home while the program still runs.
    pub presync: u8,
}

impl Case {
    /// A process that may be called home.
    pub const fn new(scripts: Each<&'static [Op]>) -> Case {
        Case { scripts, mutant: Mutant::None, capacity: 2, inputs: THREADS as u8, presync: 2 }
    }

    /// The same with a broken rule.
    pub const fn broken(self, mutant: Mutant) -> Case {
        Case { mutant, ..self }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }

    /// Pages wait whole, as decision 12 had it at first. The results of each call are put over what waits, too.
    fn holds_whole_pages(&self) -> bool {
        matches!(self.mutant, Mutant::PageHeldWhole | Mutant::ReturnWaitsForHeldPage)
    }

    /// The instruction of a thread; none at its end.
    fn op(&self, thread: usize, pc: u8) -> Option<Op> {
        self.scripts[thread].get(usize::from(pc)).copied()
    }
}

impl Model for Case {
    type State = World;

    fn initial(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn steps(&self, world: &World, out: &mut Vec<Step<World>>) {
        let mut moves = Moves { case: self, out };
        outside(&mut moves, world);
        home::steps(&mut moves, world);
        guest::steps(&mut moves, world);
    }

    fn check(&self, world: &World) -> Result<(), String> {
        world.wrong.map_or(Ok(()), |wrong| Err(wrong.into()))
    }

    fn may_rest(&self, world: &World) -> Result<(), String> {
        rules::may_rest(self, world)
    }
}

/// What the outside world may do, at any moment.
fn outside(moves: &mut Moves<'_>, w: &World) {
    if w.inputs_left > 0 {
        moves.event("somebody feeds a call", 0, w, |w| {
            w.inputs_left -= 1;
            w.input += 1;
        });
    }
    if w.up && !w.home.recall {
        moves.event("come home is asked", 0, w, |w| w.home.recall = true);
    }
}
