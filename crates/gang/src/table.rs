//! What all nodes know: who runs in which row.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Rows of a table at most.
pub const MOST_ROWS: u16 = 64;
/// Jobs of a table at most.
pub const MOST_JOBS: usize = 10_000;

/// Lengths of turns of a table at most, besides the usual one.
pub const MOST_LENGTHS: usize = 32;

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
    /// Lengths of turns that are not the usual one, microseconds, and who has them, as his place in [`Table::jobs`]. Those who share a node have the same.
    #[serde(default)]
    pub lengths: Vec<(u64, Vec<u16>)>,
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

    /// How long the turns of a job are, microseconds, where they usually take `usual_us`.
    pub fn turn_us(&self, job: u64, usual_us: u64) -> u64 {
        if self.lengths.is_empty() {
            return usual_us;
        }
        let place = self.jobs.keys().position(|number| *number == job);
        let has =
            |of: &&(u64, Vec<u16>)| place.is_some_and(|place| of.1.iter().any(|other| usize::from(*other) == place));
        self.lengths.iter().find(has).map_or(usual_us, |(length, _)| *length)
    }

    /// The shortest turn of all, microseconds.
    pub fn shortest_us(&self, usual_us: u64) -> u64 {
        self.lengths.iter().map(|(length, _)| *length).fold(usual_us, u64::min)
    }

    /// For a table that another machine made: is it within its limits?
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong: too many rows or jobs, a row that is not there, or one that a job has twice, or the same
    /// about lengths of turns.
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
        if self.lengths.len() > MOST_LENGTHS {
            return Err(format!(
                "a table of gangs has {} lengths of turns, {MOST_LENGTHS} at most are allowed",
                self.lengths.len()
            ));
        }
        let mut known = vec![false; self.jobs.len()];
        for (length, of) in &self.lengths {
            if *length == 0 {
                return Err("turns of a table of gangs take no time".into());
            }
            for &place in of {
                match known.get_mut(usize::from(place)).map(|known| std::mem::replace(known, true)) {
                    Some(false) => {}
                    Some(true) => {
                        return Err(format!("job at place {place} of a table of gangs has two lengths of turns"));
                    }
                    None => return Err(format!("a table of gangs has no job at place {place}, which has a length")),
                }
            }
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
