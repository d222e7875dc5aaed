//! The table of the matrix.

use crate::cells::Grid;
use crate::matrix::Matrix;
use crate::table::Table;
use std::collections::BTreeMap;

impl Matrix {
    /// Makes the table anew. Is it another one? `urgent`: whose row is to be next.
    ///
    /// A table that is for nobody in particular begins with the row of him for whom this was so longest ago: tables that come faster than slots
    /// leave nobody out.
    pub(crate) fn draw(&mut self, urgent: Option<u64>) -> bool {
        let mut numbers: Vec<Option<u16>> = vec![None; self.rows.len()];
        self.jobs.values().filter(|job| job.runs).for_each(|job| numbers[job.row] = Some(0));
        let mut rows = 0;
        for number in numbers.iter_mut().flatten() {
            *number = rows;
            rows += 1;
        }
        let mut jobs: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
        // What is lost wholly has nothing that could run.
        for (&number, job) in self.jobs.iter().filter(|(_, job)| !job.cells.is_empty()) {
            jobs.insert(number, numbers[job.row].filter(|_| job.runs).into_iter().collect());
        }
        if self.rules.alternative && rows > 1 {
            self.alternatives(rows, &mut jobs);
        }
        let lengths = if rows > 1 { self.lengths() } else { Vec::new() };
        let places: BTreeMap<u64, u16> = match lengths.is_empty() {
            true => BTreeMap::new(),
            false => jobs.keys().copied().zip(0..).collect(),
        };
        let placed = |of: Vec<u64>| of.iter().filter_map(|job| places.get(job).copied()).collect();
        let lengths: Vec<(u64, Vec<u16>)> = lengths.into_iter().map(|(us, of)| (us, placed(of))).collect();
        let urgent = urgent.and_then(|job| jobs.get(&job)?.first().copied());
        let same = (rows, &jobs, &lengths) == (self.table.rows, &self.table.jobs, &self.table.lengths);
        if same && urgent.is_none_or(|row| self.table.row(0) == row) {
            return false;
        }
        let longest = || {
            let running = self.jobs.iter().filter(|(_, job)| job.runs);
            running
                .min_by_key(|(number, job)| (job.began, **number))
                .and_then(|(number, _)| jobs[number].first().copied())
        };
        let first = urgent.or_else(longest).unwrap_or(0);
        let version = self.table.version + 1;
        for number in jobs.iter().filter(|(_, of)| of.contains(&first)).map(|(number, _)| number) {
            self.jobs.entry(*number).and_modify(|job| job.began = version);
        }
        self.table = Table { version, rows, jobs, first, lengths };
        true
    }

    /// Alternative slots: row by row, those who have fewest of them come first.
    fn alternatives(&self, rows: u16, jobs: &mut BTreeMap<u64, Vec<u16>>) {
        let mut taken = vec![Grid::new(self.layout.all.0.len()); usize::from(rows)];
        for (number, of) in jobs.iter() {
            of.iter().for_each(|&row| taken[usize::from(row)].take(&self.jobs[number].cells));
        }
        for (row, taken) in (0..rows).zip(&mut taken) {
            let others = jobs.iter().filter(|(_, of)| of.first().is_some_and(|own| *own != row));
            let mut others: Vec<(usize, u64)> = others.map(|(&number, of)| (of.len(), number)).collect();
            others.retain(|(_, number)| !taken.meets(&self.jobs[number].cells));
            others.sort_unstable();
            for (_, number) in others {
                let cells = &self.jobs[&number].cells;
                if !taken.meets(cells) {
                    taken.take(cells);
                    jobs.entry(number).or_default().push(row);
                }
            }
        }
    }
}
