//! After each change: who stands still, whether there are fewer rows to be had, and which rows are empty.

use crate::cells::Grid;
use crate::matrix::Matrix;
use std::cmp::Reverse;

impl Matrix {
    pub(crate) fn settle(&mut self) {
        self.judge();
        while let Some(moves) = self.unification().or_else(|| self.repacking()) {
            self.change_rows(&moves);
        }
        self.squeeze();
    }

    /// From the highest level down: whoever finds all his CPUs unused by those above runs. One that stands still itself outranks nobody.
    fn judge(&mut self) {
        let mut jobs: Vec<_> = self.jobs.values_mut().collect();
        jobs.sort_by_key(|job| Reverse(job.level));
        let mut above = Grid::new(self.layout.all.0.len());
        for level in jobs.chunk_by_mut(|a, b| a.level == b.level) {
            for job in level.iter_mut() {
                job.runs = !job.suspended && !job.cells.is_empty() && !above.meets(&job.cells);
            }
            level.iter().filter(|job| job.runs).for_each(|job| above.take(&job.cells));
        }
    }

    /// Does anybody run in this row?
    pub(crate) fn runs_in(&self, row: usize) -> bool {
        self.jobs.values().any(|job| job.row == row && job.runs)
    }

    /// The fewest moves that leave one row with nobody who runs, where each goes directly to where his CPUs are free. Those of one row are never
    /// in each other's way.
    fn unification(&self) -> Option<Vec<(u64, usize)>> {
        let mut by_row: Vec<Vec<u64>> = vec![Vec::new(); self.rows.len()];
        let running = self.jobs.iter().filter(|(_, job)| job.runs);
        running.for_each(|(&number, job)| by_row[job.row].push(number));
        let mut rows: Vec<usize> = (0..self.rows.len()).filter(|&row| !by_row[row].is_empty()).collect();
        if rows.len() < 2 {
            return None;
        }
        let others = rows.clone();
        rows.sort_by_key(|&row| (by_row[row].len(), Reverse(row)));
        rows.iter().find_map(|&row| {
            let target = |&number: &u64| {
                let job = &self.jobs[&number];
                let free =
                    |&to: &usize| to != row && self.rows[to].get(&job.level).is_none_or(|g| !g.meets(&job.cells));
                others.iter().copied().find(free).map(|to| (number, to))
            };
            by_row[row].iter().map(target).collect::<Option<Vec<_>>>()
        })
    }

    /// The same by moving some around each other; in vain it is not tried twice.
    fn repacking(&mut self) -> Option<Vec<(u64, usize)>> {
        let found = if self.stuck.rows { None } else { self.one_row_less() };
        self.stuck.rows = found.is_none();
        found
    }

    /// Rows without jobs go.
    fn squeeze(&mut self) {
        let mut used = vec![false; self.rows.len()];
        self.jobs.values().for_each(|job| used[job.row] = true);
        let numbers: Vec<usize> = (0..used.len()).map(|row| used[..row].iter().filter(|used| **used).count()).collect();
        self.jobs.values_mut().for_each(|job| job.row = numbers[job.row]);
        let mut used = used.into_iter();
        self.rows.retain(|_| used.next().unwrap_or(false));
        self.rows.iter_mut().for_each(|levels| levels.retain(|_, grid| !grid.is_empty()));
    }
}
