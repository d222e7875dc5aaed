//! The program: a short script for each thread, over four cells of memory on two pages.
//!
//! Each cell is changed by one thread at a time, so what it must hold for that thread follows from the thread's own
//! script. The other thread knows only what it has seen: a cell never goes back.

use super::super::Tid;
use super::Case;

/// Cells of memory.
pub const CELLS: usize = 4;
/// Pages, of two cells each.
pub const PAGES: usize = 2;

/// A set of cells, one bit each.
pub type Mask = u8;

/// The contents of all cells.
pub type Cells = [u8; CELLS];

/// One instruction of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads a cell and checks it.
    Read(u8),
    /// Writes a cell.
    Write(u8),
    /// Computes until a cell that the other thread changes has been changed that often.
    See(u8, u8),
    /// Makes a system call with an effect outside that must happen exactly once.
    Call {
        /// Cells whose bytes the call reads.
        reads: Mask,
        /// Cells that the call may write (its buffer).
        buffer: Mask,
        /// Cells that it does write.
        writes: Mask,
        /// Does not return before somebody feeds it.
        blocks: bool,
    },
    /// A memory call: gives the page new contents without writing it (MADV_DONTNEED).
    Renew(u8),
    /// A memory call: takes the page away.
    Unmap(u8),
    /// A memory call that gets this page if it is free; if not, the thread ends.
    Map(u8),
}

impl Op {
    /// A call that reads and writes these cells and does not block.
    pub const fn call(reads: Mask, writes: Mask) -> Op {
        Op::Call { reads, buffer: writes, writes, blocks: false }
    }

    /// The page that it changes the meaning of.
    pub(super) const fn remaps(self) -> Option<usize> {
        match self {
            Op::Renew(page) | Op::Unmap(page) | Op::Map(page) => Some(page as usize),
            _ => None,
        }
    }

    /// Is it made at home?
    pub(super) const fn is_call(self) -> bool {
        matches!(self, Op::Call { .. }) || self.remaps().is_some()
    }

    /// Cells that it gives new contents.
    pub(super) const fn changes(self) -> Mask {
        match self {
            Op::Write(cell) => 1 << cell,
            Op::Call { writes, .. } => writes,
            Op::Renew(page) | Op::Map(page) => page_mask(page as usize),
            _ => 0,
        }
    }

    /// Cells that it reads.
    pub(super) const fn reads(self) -> Mask {
        match self {
            Op::Call { reads, .. } => reads,
            Op::Read(cell) => 1 << cell,
            _ => 0,
        }
    }

    /// Cells that the kernel may write while it is in flight.
    pub(super) const fn buffer(self) -> Mask {
        if let Op::Call { buffer, .. } = self { buffer } else { 0 }
    }

    /// Cells that the kernel does write.
    pub(super) const fn results(self) -> Mask {
        if let Op::Call { writes, .. } = self { writes } else { 0 }
    }

    pub(super) const fn blocks(self) -> bool {
        matches!(self, Op::Call { blocks: true, .. })
    }

    /// The page that the program itself touches.
    pub(super) const fn touches(self) -> Option<usize> {
        match self {
            Op::Read(cell) | Op::Write(cell) | Op::See(cell, _) => Some(page_of(cell as usize)),
            _ => None,
        }
    }
}

/// The set of these cells.
pub const fn mask(cells: &[u8]) -> Mask {
    let mut set = 0;
    let mut i = 0;
    while i < cells.len() {
        set |= 1 << cells[i];
        i += 1;
    }
    set
}

/// The cells of a page.
pub const fn page_mask(page: usize) -> Mask {
    0b11 << (2 * page)
}

/// The page of a cell.
pub const fn page_of(cell: usize) -> usize {
    cell / 2
}

/// Cells in a set.
pub fn cells(set: Mask) -> impl Iterator<Item = usize> {
    (0..CELLS).filter(move |c| set & (1 << c) != 0)
}

/// What a cell holds once its thread is before instruction `pc`: who changed it last, and how often.
pub fn contents(case: &Case, thread: Tid, pc: u8, cell: usize) -> u8 {
    let before = &case.scripts[thread][..pc.into()];
    match before.iter().filter(|op| op.changes() & (1 << cell) != 0).count() as u8 {
        0 => 0,
        n => 16 * thread as u8 + n,
    }
}

/// How often it was changed.
pub const fn count(value: u8) -> u8 {
    value % 16
}

/// May the thread, before instruction `pc`, find this in the cell?
pub fn may_hold(case: &Case, thread: Tid, pc: u8, cell: usize, value: u8) -> bool {
    let script = case.scripts[thread];
    if script.iter().any(|op| op.changes() & (1 << cell) != 0) {
        return value == contents(case, thread, pc, cell);
    }
    let seen = script[..pc.into()].iter().map(|op| match op {
        Op::See(c, n) if usize::from(*c) == cell => *n,
        _ => 0,
    });
    count(value) >= seen.max().unwrap_or(0)
}
