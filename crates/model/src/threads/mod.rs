//! Two threads: one map, one connection, a call for each (decision 12).
//!
//! Two models, each small enough to be explored completely. [`memory`] has pages, calls and memory calls of two
//! threads, and the return. [`life`] has births, deaths and signals, the move away with its commit, the return, and
//! what may break.

pub mod life;
pub mod memory;

use crate::checker::Step;

/// Threads of the process.
pub const THREADS: usize = 2;

/// One of them.
pub type Tid = usize;

/// Something for each thread.
type Each<T> = [T; THREADS];

/// Collects the transitions of one state.
struct Moves<'a, C, W> {
    case: &'a C,
    out: &'a mut Vec<Step<W>>,
}

impl<C, W: Clone> Moves<'_, C, W> {
    /// A step that the engine, the kernel or the program takes.
    fn step(&mut self, name: &'static str, n: usize, from: &W, act: impl FnOnce(&mut W)) {
        self.push(name, n, false, from, act);
    }

    /// A step that the outside world may take.
    fn event(&mut self, name: &'static str, n: usize, from: &W, act: impl FnOnce(&mut W)) {
        self.push(name, n, true, from, act);
    }

    fn push(&mut self, name: &'static str, n: usize, outside: bool, from: &W, act: impl FnOnce(&mut W)) {
        let mut next = from.clone();
        act(&mut next);
        self.out.push(Step { label: (name, n as u8), outside, next });
    }
}

/// One direction of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Line<M>([Option<M>; 3]);

impl<M: Copy> Line<M> {
    const EMPTY: Line<M> = Line([None; 3]);

    /// Has it room for one more?
    fn has_room(&self, capacity: u8) -> bool {
        self.0.iter().flatten().count() < capacity.into()
    }

    /// Appends. The caller has looked whether there is room.
    fn send(&mut self, msg: M) {
        let at = self.0.iter().flatten().count();
        self.0[at] = Some(msg);
    }

    /// The oldest message.
    fn first(&self) -> Option<M> {
        self.0[0]
    }

    /// Takes the oldest message away.
    fn pop(&mut self) {
        self.0.rotate_left(1);
        self.0[2] = None;
    }
}
