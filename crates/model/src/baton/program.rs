//! The program that moves: a short script over four cells of memory on two pages.
//!
//! What each cell must hold before each instruction follows from the script alone (how often it was
//! written), so every read can be checked, whoever executes it and whether or not its effects count.

/// Cells of memory.
pub const CELLS: usize = 4;
/// Pages, of two cells each.
pub const PAGES: usize = 2;

/// A set of cells, one bit each.
pub type Mask = u8;

/// The contents of all cells.
pub type Cells = [u8; CELLS];

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads a page and checks it.
    Read(u8),
    /// Writes a cell.
    Write(u8),
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
        /// Sends the program a signal.
        raises: bool,
    },
    /// A memory call: gives the page new contents without writing it (munmap and mmap, MADV_DONTNEED).
    Renew(u8),
    /// Computes, without any call, until that many signals were handled.
    Await(u8),
    /// Checks that that many signals were handled by now.
    Handled(u8),
    /// Ends.
    Exit,
}

impl Op {
    /// A call that reads and writes these cells and does not block.
    pub const fn call(reads: Mask, writes: Mask) -> Op {
        Op::Call { reads, buffer: writes, writes, blocks: false, raises: false }
    }

    /// Is it made at home?
    pub const fn is_call(self) -> bool {
        matches!(self, Op::Call { .. } | Op::Renew(_) | Op::Exit)
    }

    /// Cells that it gives new contents.
    pub const fn changes(self) -> Mask {
        match self {
            Op::Write(cell) => 1 << cell,
            Op::Call { writes, .. } => writes,
            Op::Renew(page) => page_mask(page),
            _ => 0,
        }
    }

    pub(super) const fn reads(self) -> Mask {
        if let Op::Call { reads, .. } = self { reads } else { 0 }
    }

    pub(super) const fn buffer(self) -> Mask {
        match self {
            Op::Call { buffer, .. } => buffer,
            other => other.changes(),
        }
    }

    pub(super) const fn blocks(self) -> bool {
        matches!(self, Op::Call { blocks: true, .. })
    }

    pub(super) const fn raises(self) -> bool {
        matches!(self, Op::Call { raises: true, .. })
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
pub const fn page_mask(page: u8) -> Mask {
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

/// What a cell must hold before instruction `pc`.
pub fn expected(script: &[Op], pc: u8, cell: usize) -> u8 {
    script.iter().take(pc as usize).filter(|op| op.changes() & (1 << cell) != 0).count() as u8
}
