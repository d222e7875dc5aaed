//! Jobs and rows, and what changes them.

use crate::cells::{Cells, Grid};
use crate::clock::Pace;
use crate::layout::{Layout, Node};
use crate::repack::Stuck;
use crate::table::{MOST_JOBS, MOST_ROWS, Table};
use crate::wish::{Effect, Gang, Input, Place, Rules, Shape};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes whose other load differs by less than this for each CPU, thousandths of a thread, are as busy as each other: nobody is quite idle.
const BUSY_STEP: u64 = 250;

/// A job that has its CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) level: i32,
    pub(crate) urgent: bool,
    /// 0: as is usual.
    pub(crate) turn_us: u64,
    pub(crate) places: Vec<Place>,
    /// The same as bits.
    pub(crate) cells: Cells,
    pub(crate) row: usize,
    pub(crate) suspended: bool,
    /// Something of it is gone.
    pub(crate) lost: bool,
    /// It does not stand still.
    pub(crate) runs: bool,
    /// The last table that began with it, or the one before it came.
    pub(crate) began: u64,
}

/// By level: who of it has which CPUs. Levels lie on top of each other; of those that run no two have a CPU of a row.
pub(crate) type Row = BTreeMap<i32, Grid>;

/// Ousterhout's matrix.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    pub(crate) rules: Rules,
    pub(crate) nodes: BTreeMap<String, u16>,
    /// What runs there besides, in thousandths of a thread; none: nothing.
    pub(crate) busy: BTreeMap<String, u32>,
    pub(crate) layout: Layout,
    pub(crate) jobs: BTreeMap<u64, Job>,
    pub(crate) rows: Vec<Row>,
    pub(crate) table: Table,
    /// Turns of those who want no other length, microseconds.
    pub(crate) usual_us: u64,
    pub(crate) stuck: Stuck,
    /// Moves from row to row until now.
    pub(crate) unified: u64,
}

impl Matrix {
    /// Without nodes and jobs.
    pub fn new(rules: Rules) -> Self {
        Matrix { rules: within(rules), usual_us: Pace::default().turn_us, ..Matrix::default() }
    }

    /// How busy each node of the layout is without gangs, in steps.
    pub(crate) fn business(&self) -> Vec<u32> {
        let of = |node: &Node| {
            let milli = u64::from(self.busy.get(&node.name).copied().unwrap_or(0));
            (milli / u64::from(node.cpus.max(1)) / BUSY_STEP).min(u64::from(u32::MAX)) as u32
        };
        self.layout.nodes.iter().map(of).collect()
    }

    /// What follows of it. A table is among the effects if it is another one than before.
    pub fn handle(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Input::Busy { name, milli } = input {
            if self.nodes.contains_key(&name) {
                self.busy.insert(name, milli);
            }
            return effects;
        }
        // Who is new, and who gets his slot at once.
        let (mut placed, mut urgent) = (None, None);
        match input {
            Input::Rules(rules) => (self.rules, self.stuck) = (within(rules), Stuck::default()),
            Input::Usual(turn_us) => self.usual_us = turn_us.max(1),
            Input::Node { name, cpus } => self.node(name, Some(cpus), &mut effects),
            Input::NodeGone(name) => self.node(name, None, &mut effects),
            // See above.
            Input::Busy { .. } => {}
            Input::Arrive(gang) if self.jobs.contains_key(&gang.job) => placed = Some(gang.job),
            Input::Arrive(gang) => match self.arrive(&gang) {
                Ok(()) => (placed, urgent) = (Some(gang.job), gang.urgent.then_some(gang.job)),
                Err(refused) => effects.push(refused),
            },
            Input::Adopt(gang, _) if self.jobs.contains_key(&gang.job) => placed = Some(gang.job),
            Input::Adopt(gang, places) => match self.adopt(&gang, places) {
                Ok(()) => placed = Some(gang.job),
                Err(refused) => effects.push(refused),
            },
            Input::Ended(job) => self.ended(job),
            Input::Suspend(job) => _ = self.stand_still(job, true),
            Input::Resume(job) => urgent = self.stand_still(job, false).then_some(job),
        }
        self.settle();
        let table = self.draw(urgent);
        effects.extend(placed.and_then(|job| self.placed(job)));
        effects.extend(table.then(|| Effect::Table(self.table.clone())));
        effects
    }

    fn placed(&self, job: u64) -> Option<Effect> {
        let of = self.jobs.get(&job)?;
        let row = self.table.jobs.get(&job).and_then(|rows| rows.first()).copied();
        Some(Effect::Placed { job, row: row.unwrap_or(of.row as u16), places: of.places.clone() })
    }

    fn arrive(&mut self, gang: &Gang) -> Result<(), Effect> {
        let refused = |(ever, why): (bool, String)| Effect::Refused { job: gang.job, ever, why };
        let gang = &Gang { shape: once_each(&gang.shape).map_err(refused)?, ..gang.clone() };
        let (row, fit) = match self.choose(gang) {
            Err((false, why)) => self.make_room(gang).ok_or((false, why)),
            found => found,
        }
        .map_err(refused)?;
        self.enter(gang, row, fit.places);
        Ok(())
    }

    fn adopt(&mut self, gang: &Gang, places: Vec<Place>) -> Result<(), Effect> {
        let refused = |ever, why| Effect::Refused { job: gang.job, ever, why };
        let (mut seen, mut all) = (BTreeSet::new(), 0);
        for place in &places {
            let has = self.nodes.get(&place.node).copied().unwrap_or(0);
            let there = place.cpus.iter().all(|&cpu| cpu < has && seen.insert((&place.node, cpu)));
            if place.cpus.is_empty() || !there {
                return Err(refused(true, format!("its CPUs of {}, which has {has}, are not there", place.node)));
            }
            all += place.cpus.len();
        }
        if all == 0 {
            return Err(refused(true, "it has no CPU".into()));
        }
        if self.jobs.len() >= MOST_JOBS {
            return Err(refused(false, format!("{MOST_JOBS} gangs are here already")));
        }
        let cells = self.layout.cells(&places);
        let free = |row: &Row| row.get(&gang.level).is_none_or(|grid| !grid.meets(&cells));
        let row = self.rows.iter().position(free).unwrap_or(self.rows.len());
        if row >= usize::from(MOST_ROWS) {
            return Err(refused(false, format!("{MOST_ROWS} rows have others at its CPUs")));
        }
        self.enter(gang, row, places);
        Ok(())
    }

    fn enter(&mut self, gang: &Gang, row: usize, places: Vec<Place>) {
        let cells = self.layout.cells(&places);
        self.take(row, gang.level, &cells);
        let (level, urgent, turn_us, began) = (gang.level, gang.urgent, gang.turn_us, self.table.version);
        let job = Job { level, urgent, turn_us, places, cells, row, suspended: false, lost: false, runs: false, began };
        self.jobs.insert(gang.job, job);
        self.stuck = Stuck::default();
    }

    /// Nobody else of its level has them in that row, which may be the one after the last.
    pub(crate) fn take(&mut self, row: usize, level: i32, cells: &Cells) {
        if row == self.rows.len() {
            self.rows.push(Row::new());
        }
        let words = self.layout.all.0.len();
        self.rows[row].entry(level).or_insert_with(|| Grid::new(words)).take(cells);
    }

    pub(crate) fn give(&mut self, row: usize, level: i32, cells: &Cells) {
        if let Some(grid) = self.rows[row].get_mut(&level) {
            grid.give(cells);
        }
    }

    fn ended(&mut self, job: u64) {
        if let Some(job) = self.jobs.remove(&job) {
            self.give(job.row, job.level, &job.cells);
            self.stuck = Stuck::default();
        }
    }

    /// Is it one that is urgent, and did the other thing before?
    fn stand_still(&mut self, job: u64, still: bool) -> bool {
        let Some(job) = self.jobs.get_mut(&job) else { return false };
        self.stuck = Stuck::default();
        std::mem::replace(&mut job.suspended, still) != still && job.urgent
    }

    /// It has so many CPUs from now on, or is gone.
    fn node(&mut self, name: String, cpus: Option<u16>, effects: &mut Vec<Effect>) {
        if self.nodes.get(&name).copied() == cpus {
            return;
        }
        let has = cpus.unwrap_or(0);
        for (&job, of) in &mut self.jobs {
            let Some(place) = of.places.iter_mut().find(|place| place.node == name) else { continue };
            let before = place.cpus.len();
            place.cpus.retain(|&cpu| cpu < has);
            if place.cpus.len() < before && !std::mem::replace(&mut of.lost, true) {
                effects.push(Effect::Lost { job, node: name.clone() });
            }
            of.places.retain(|place| !place.cpus.is_empty());
        }
        match cpus {
            Some(cpus) => _ = self.nodes.insert(name, cpus),
            None => {
                self.busy.remove(&name);
                self.nodes.remove(&name);
            }
        }
        self.lay_out();
    }

    /// Bits anew, after nodes have changed.
    fn lay_out(&mut self) {
        self.stuck = Stuck::default();
        self.layout = Layout::new(&self.nodes);
        let words = self.layout.all.0.len();
        self.rows.iter_mut().for_each(Row::clear);
        for job in self.jobs.values_mut() {
            job.cells = self.layout.cells(&job.places);
            self.rows[job.row].entry(job.level).or_insert_with(|| Grid::new(words)).take(&job.cells);
        }
    }

    /// By bit: how many jobs have it.
    pub(crate) fn load(&self) -> Vec<u32> {
        let mut load = vec![0; self.layout.all.0.len() * 64];
        self.jobs.values().flat_map(|job| job.cells.bits()).for_each(|bit| load[bit] += 1);
        load
    }

    /// CPUs of all jobs of these levels.
    pub(crate) fn level_cells(&self, which: impl Fn(i32) -> bool) -> Grid {
        let mut all = Grid::new(self.layout.all.0.len());
        let grids = self.rows.iter().flatten().filter(|(level, _)| which(**level));
        grids.for_each(|(_, grid)| all.join(grid));
        all
    }
}

fn within(rules: Rules) -> Rules {
    Rules { rows: rules.rows.clamp(1, MOST_ROWS), ..rules }
}

/// Each node once.
fn once_each(shape: &Shape) -> Result<Shape, (bool, String)> {
    let Shape::Fixed(wants) = shape else { return Ok(shape.clone()) };
    let mut merged: Vec<(String, u16)> = Vec::new();
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, cpus) in wants {
        let at = *index.entry(name).or_insert(merged.len());
        match merged.get_mut(at) {
            None => merged.push((name.clone(), *cpus)),
            Some((_, sum)) => {
                let more = format!("it asks for more CPUs of {name} than any node has");
                *sum = sum.checked_add(*cpus).ok_or((true, more))?;
            }
        }
    }
    Ok(Shape::Fixed(merged))
}
