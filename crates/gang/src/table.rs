//! What all nodes know: who runs in which row.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Rows of a table at most.
pub const MOST_ROWS: u16 = 64;
/// Jobs of a table at most.
pub const MOST_JOBS: usize = 10_000;

/// Who runs in which row. Only rows in which somebody runs are in it, so with one row nothing is ever switched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Table {
    /// Counted from 1; 0 is the table of nobody, before the first one.
    pub version: u64,
    /// So many rows, 0 if nobody runs.
    pub rows: u16,
    /// Rows in which a job runs: first its own, then others in which all its CPUs are free (alternative slots), ascending. None: it stands still.
    pub jobs: BTreeMap<u64, Vec<u16>>,
    /// The row that is to be next when this table comes: an urgent job's, or the one whose turn it is.
    pub first: u16,
}

impl Table {
    /// The row that has the slot number `slot` since this table came (0 is the first).
    pub fn row(&self, slot: u64) -> u16 {
        // Not the sum: it may be more than fits.
        let rows = u64::from(self.rows.max(1));
        ((u64::from(self.first) + slot % rows) % rows) as u16
    }

    /// Does it run in that slot? Jobs that are not in the table always run.
    pub fn runs(&self, job: u64, slot: u64) -> bool {
        let row = self.row(slot);
        self.jobs.get(&job).is_none_or(|rows| rows.contains(&row))
    }

    /// For a table that another machine made: is it within its limits?
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong: too many rows or jobs, a row that is not there, or one that a job has twice.
    pub fn check(&self) -> Result<(), String> {
        let (rows, first) = (self.rows, self.first);
        if rows > MOST_ROWS {
            return Err(format!("a table of gangs has {rows} rows, {MOST_ROWS} at most are allowed"));
        }
        if self.jobs.len() > MOST_JOBS {
            return Err(format!("a table of gangs has {} jobs, {MOST_JOBS} at most are allowed", self.jobs.len()));
        }
        if first >= rows.max(1) {
            return Err(format!("a table of gangs begins with row {first} of {rows}"));
        }
        for (job, of) in &self.jobs {
            let mut seen = 0u64;
            for &row in of {
                if row >= rows {
                    return Err(format!("job {job} of a table of gangs has row {row} of {rows}"));
                }
                if seen & 1 << row != 0 {
                    return Err(format!("job {job} of a table of gangs has row {row} twice"));
                }
                seen |= 1 << row;
            }
        }
        Ok(())
    }
}
