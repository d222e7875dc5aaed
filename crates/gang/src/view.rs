//! What people see of the matrix.

use crate::cells::Grid;
use crate::matrix::Matrix;
use crate::table::Table;
use crate::wish::{Place, Rules};
use std::collections::BTreeMap;

/// How a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has its slots.
    Runs,
    /// It was told to stand still.
    Suspended,
    /// It stands still for one of a higher level.
    Outranked,
    /// Something that it used is gone: it is being ended.
    Lost,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// Its number.
    pub job: u64,
    /// Its rows in the table: its own, then others; none if it stands still.
    pub rows: &'a [u16],
    /// Its CPUs.
    pub places: &'a [Place],
    /// As it was wished.
    pub urgent: bool,
    /// As it was wished.
    pub level: i32,
    /// How it is.
    pub standing: Standing,
}

/// CPUs of a node in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Of the table.
    pub row: u16,
    /// Its name.
    pub node: String,
    /// Who has each CPU, and whether this is his own row (otherwise an alternative slot).
    pub cpus: Vec<Option<(u64, bool)>>,
}

impl Matrix {
    /// The rules.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// The newest table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Nodes that are here, and their CPUs.
    pub fn nodes(&self) -> &BTreeMap<String, u16> {
        &self.nodes
    }

    /// Rows that jobs have, those in which all stand still among them. None of them: the matrix is empty.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// So often a job went to another row, so that there were fewer, or room for one more.
    pub fn unified(&self) -> u64 {
        self.unified
    }

    /// How long turns usually are, microseconds.
    pub fn usual_us(&self) -> u64 {
        self.usual_us
    }

    /// A job.
    pub fn job(&self, job: u64) -> Option<Seen<'_>> {
        let of = self.jobs.get(&job)?;
        let standing = match (of.lost, of.suspended, of.runs) {
            (true, ..) => Standing::Lost,
            (_, true, _) => Standing::Suspended,
            (_, _, true) => Standing::Runs,
            _ => Standing::Outranked,
        };
        let rows = self.table.jobs.get(&job).map_or(&[][..], Vec::as_slice);
        Some(Seen { job, rows, places: &of.places, urgent: of.urgent, level: of.level, standing })
    }

    /// All jobs, by number.
    pub fn jobs(&self) -> impl Iterator<Item = Seen<'_>> {
        self.jobs.keys().filter_map(|&job| self.job(job))
    }

    /// The matrix as it runs: each row of the table, and each node of it.
    pub fn lines(&self) -> Vec<Line> {
        let mut whose: Vec<BTreeMap<usize, (u64, bool)>> = vec![BTreeMap::new(); self.table.rows.into()];
        for (&job, rows) in &self.table.jobs {
            for (nth, &row) in rows.iter().enumerate() {
                let bits = self.jobs[&job].cells.bits();
                whose[usize::from(row)].extend(bits.map(|bit| (bit, (job, nth == 0))));
            }
        }
        let mut lines = Vec::new();
        for (row, whose) in (0..).zip(&whose) {
            for node in &self.layout.nodes {
                let cpus = (0..node.cpus).map(|cpu| whose.get(&node.bit(cpu)).copied()).collect();
                lines.push(Line { row, node: node.name.clone(), cpus });
            }
        }
        lines
    }

    /// Of each node: CPUs that no job of any row has.
    pub fn free(&self) -> BTreeMap<&str, u32> {
        let free = self.layout.all.without(&self.level_cells(|_| true));
        self.layout.nodes.iter().map(|node| (node.name.as_str(), node.count(&free))).collect()
    }

    /// The part of all CPUs of all rows of the table on which a job runs, from 0 to 1; 0 without rows.
    pub fn utilisation(&self) -> f64 {
        let cells = |(job, rows): (&u64, &Vec<u16>)| u64::from(self.jobs[job].cells.count()) * rows.len() as u64;
        let used: u64 = self.table.jobs.iter().map(cells).sum();
        let all = u64::from(Grid::count(&self.layout.all)) * u64::from(self.table.rows);
        if all == 0 { 0.0 } else { used as f64 / all as f64 }
    }
}
