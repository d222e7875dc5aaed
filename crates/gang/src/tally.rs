//! How many slots each job has had, of how many.

use crate::table::Table;
use std::collections::BTreeMap;

/// Slots that a job has had, and those that there were while it was in a table with others' turns. Where nobody takes turns none are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<u64, (u64, u64)>);

impl Tally {
    /// A table came so many microseconds ago, whose turns usually take `usual_us`. Jobs that are not in it have ended. A turn that has begun counts.
    pub fn passed(&mut self, table: &Table, ago_us: u64, usual_us: u64) {
        self.0.retain(|job, _| table.jobs.contains_key(job));
        if table.rows < 2 {
            return;
        }
        let mut turns: Vec<u64> = vec![usual_us; table.jobs.len()];
        for (length, of) in &table.lengths {
            of.iter().for_each(|place| turns.get_mut(usize::from(*place)).into_iter().for_each(|turn| *turn = *length));
        }
        for ((&job, of), turn_us) in table.jobs.iter().zip(turns) {
            let slots = ago_us.div_ceil(turn_us.max(1));
            let sum = self.0.entry(job).or_default();
            sum.0 = sum.0.saturating_add(had(table, of, slots));
            sum.1 = sum.1.saturating_add(slots);
        }
    }

    /// Of a job.
    pub fn of(&self, job: u64) -> (u64, u64) {
        self.0.get(&job).copied().unwrap_or_default()
    }
}

/// Of the first so many slots those of these rows.
fn had(table: &Table, of: &[u16], slots: u64) -> u64 {
    let rows = u64::from(table.rows.max(1));
    let (rounds, rest) = (slots / rows, slots % rows);
    let early = |row: &&u16| (u64::from(**row) + rows - u64::from(table.first) % rows) % rows < rest;
    rounds.saturating_mul(of.len() as u64) + of.iter().filter(early).count() as u64
}
