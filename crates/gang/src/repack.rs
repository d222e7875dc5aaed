//! Rows anew. Where no row can be emptied by moving its jobs directly to where their CPUs are free, jobs may still be around each other: a row less may do
//! for all of them, or there is room for one more. That is colouring a graph, so the search has a bound: the job with the fewest rows left is next
//! (Brélaz, New Methods to Color the Vertices of a Graph, 1979), and it stays in its row where it can.

use crate::cells::{Cells, Grid};
use crate::fit::{Fit, Room};
use crate::matrix::{Job, Matrix, Row};
use crate::table::MOST_JOBS;
use crate::wish::Gang;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// So many jobs are put into rows anew at most.
const MOST: usize = 500;
/// So often it is looked whether a row has CPUs free, for one row less and for one job more.
const LOOKS: usize = 500_000;
const LOOKS_FOR_ONE: usize = 100_000;
/// So many rows are tried to be without.
const ROWS_TRIED: usize = 4;

/// Jobs, and the rows that they go to.
pub(crate) type Moves = Vec<(u64, usize)>;

/// What was tried in vain since jobs or nodes have changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stuck {
    /// One row less.
    pub(crate) rows: bool,
    /// Room for these.
    jobs: BTreeSet<u64>,
}

/// A job that is to have a row, and the one that it has.
struct Piece {
    job: u64,
    level: i32,
    cells: Cells,
    row: Option<usize>,
}

/// Rows as they become. What does not move is there from the beginning.
struct Search<'a> {
    rows: Vec<Row>,
    /// Those that may be used.
    allowed: &'a [usize],
    words: usize,
    left: usize,
}

impl Search<'_> {
    /// Of each piece its row.
    fn solve(&mut self, pieces: Vec<Piece>) -> Option<Moves> {
        let (mut open, mut found) = (pieces, Vec::new());
        self.place(&mut open, &mut found).then_some(found)
    }

    fn place(&mut self, open: &mut Vec<Piece>, found: &mut Moves) -> bool {
        let mut hardest: Option<(usize, Vec<usize>)> = None;
        for (at, piece) in open.iter().enumerate() {
            let free = self.free(piece);
            let few = |rows: &[usize], at: usize| (rows.len(), Reverse(open[at].cells.count()), open[at].job);
            if hardest.as_ref().is_none_or(|(best, rows)| few(&free, at) < few(rows, *best)) {
                hardest = Some((at, free));
            }
        }
        let Some((at, mut rows)) = hardest else { return true };
        if self.left == 0 {
            return false;
        }
        let piece = open.swap_remove(at);
        rows.sort_by_key(|row| Some(*row) != piece.row);
        for row in rows {
            if self.left == 0 {
                break;
            }
            self.grid(row, piece.level).take(&piece.cells);
            found.push((piece.job, row));
            if self.place(open, found) {
                return true;
            }
            found.pop();
            self.grid(row, piece.level).give(&piece.cells);
        }
        open.push(piece);
        false
    }

    /// The rows in which its CPUs are free.
    fn free(&mut self, piece: &Piece) -> Vec<usize> {
        self.left = self.left.saturating_sub(self.allowed.len());
        let taken = |row: usize| self.rows[row].get(&piece.level).is_some_and(|grid| grid.meets(&piece.cells));
        self.allowed.iter().copied().filter(|&row| !taken(row)).collect()
    }

    fn grid(&mut self, row: usize, level: i32) -> &mut Grid {
        self.rows[row].entry(level).or_insert_with(|| Grid::new(self.words))
    }
}

impl Matrix {
    /// Which jobs have to go to which rows so that one row less does for those who run, as far as that is found.
    pub(crate) fn one_row_less(&self) -> Option<Moves> {
        let mut each = vec![0; self.rows.len()];
        self.jobs.values().filter(|job| job.runs).for_each(|job| each[job.row] += 1);
        let mut rows: Vec<usize> = (0..each.len()).filter(|&row| each[row] > 0).collect();
        // Of those who share a CPU each needs a row.
        if rows.len() < 3 || self.crowd(|job| job.runs) >= rows.len() {
            return None;
        }
        rows.sort_by_key(|&row| (each[row], Reverse(row)));
        let mut left = LOOKS;
        rows.iter().take(ROWS_TRIED).find_map(|&without| {
            let allowed: Vec<usize> = rows.iter().copied().filter(|&row| row != without).collect();
            let found = self.search(&allowed, |job| job.runs, None, &mut left)?;
            Some(found.into_iter().filter(|(job, row)| self.jobs[job].row != *row).collect())
        })
    }

    /// Room for one more, for whom there is none in any row: which CPUs and row he gets when others have gone to other rows.
    pub(crate) fn make_room(&mut self, gang: &Gang) -> Option<(usize, Fit)> {
        let rows = usize::from(self.rules.rows);
        if self.rows.len() != rows || self.jobs.len() >= MOST_JOBS || self.stuck.jobs.contains(&gang.job) {
            return None;
        }
        let found = self.room_for(gang, rows);
        match found {
            None => _ = self.stuck.jobs.insert(gang.job),
            Some((ref moves, ..)) => self.change_rows(moves),
        }
        found.map(|(_, row, fit)| (row, fit))
    }

    fn room_for(&self, gang: &Gang, rows: usize) -> Option<(Moves, usize, Fit)> {
        // Where fewer have a CPU than there are rows, and nobody of a higher level.
        let of_level = |job: &Job| job.level == gang.level;
        let mut crowds = vec![0; self.layout.all.0.len() * 64];
        let its = self.jobs.values().filter(|job| of_level(job));
        its.flat_map(|job| job.cells.bits()).for_each(|bit| crowds[bit] += 1);
        let mut taken = self.level_cells(|level| level > gang.level);
        (0..crowds.len()).filter(|&bit| crowds[bit] >= rows).for_each(|bit| taken.0[bit / 64] |= 1 << (bit % 64));
        let (free, load, busy) = (&self.layout.all.without(&taken), &self.load()[..], &self.business()[..]);
        let fit = Room { layout: &self.layout, free, load, busy, packing: self.rules.packing }.fit(&gang.shape)?;
        let cells = self.layout.cells(&fit.places);
        let new = Piece { job: gang.job, level: gang.level, cells, row: None };
        let allowed: Vec<usize> = (0..rows).collect();
        let mut left = LOOKS_FOR_ONE;
        let mut found = self.search(&allowed, |job| job.runs && of_level(job), Some(new), &mut left)?;
        let its = found.iter().position(|(job, _)| *job == gang.job)?;
        let (_, row) = found.swap_remove(its);
        found.retain(|(job, row)| self.jobs[job].row != *row);
        Some((found, row, fit))
    }

    /// Rows for those who may change theirs, and one more; all others stay.
    fn search(
        &self,
        allowed: &[usize],
        moves: impl Fn(&Job) -> bool,
        new: Option<Piece>,
        left: &mut usize,
    ) -> Option<Moves> {
        let words = self.layout.all.0.len();
        let mut search = Search { rows: vec![Row::new(); self.rows.len()], allowed, words, left: *left };
        let mut pieces: Vec<Piece> = new.into_iter().collect();
        for (&job, of) in &self.jobs {
            match moves(of) {
                true => pieces.push(Piece { job, level: of.level, cells: of.cells.clone(), row: Some(of.row) }),
                false => search.grid(of.row, of.level).take(&of.cells),
            }
        }
        let found = if pieces.len() > MOST { None } else { search.solve(pieces) };
        *left = search.left;
        found
    }

    /// The most of these that have the same CPU.
    fn crowd(&self, of: impl Fn(&Job) -> bool) -> usize {
        let mut each = vec![0; self.layout.all.0.len() * 64];
        self.jobs.values().filter(|job| of(job)).flat_map(|job| job.cells.bits()).for_each(|bit| each[bit] += 1);
        each.into_iter().max().unwrap_or(0)
    }

    /// They go to these rows, all at once: one may come to where another one was.
    pub(crate) fn change_rows(&mut self, moves: &[(u64, usize)]) {
        self.unified += moves.len() as u64;
        let mut comes = Vec::new();
        for &(job, row) in moves {
            let Some(of) = self.jobs.get_mut(&job) else { continue };
            let (before, level, cells) = (std::mem::replace(&mut of.row, row), of.level, of.cells.clone());
            self.give(before, level, &cells);
            comes.push((row, level, cells));
        }
        comes.iter().for_each(|(row, level, cells)| self.take(*row, *level, cells));
    }
}
