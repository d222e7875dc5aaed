//! `sim gang`: what gangs are for and what they cost, by the model of `coschedule`; and jobs by chance through the daemon's own matrix (crates/gang),
//! with invariants in each slot.

use crate::coschedule::{Costs, How, Program, Shared};
use crate::gang_guests::Guests;
use crate::table::Table;
use clap::Args;
use pando_gang::{Desk, Effect, Gang, Input, Matrix, Packing, Rules, Shape, Standing};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::ExitCode;

/// Slots that a lost node is away.
const AWAY: u64 = 200;

/// Two copies of a program share CPUs, as gangs and without.
#[derive(Args)]
pub struct Gangs {
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Milliseconds of a slot.
    #[arg(long, value_delimiter = ',', default_value = "0.3,0.5,1,2,5,10,20,50,100,500,2000,8000")]
    quanta: Vec<f64>,
    /// Nodes.
    #[arg(long, default_value_t = 16)]
    nodes: u32,
    /// Ranks, and CPUs, of a node.
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    ranks: Vec<u32>,
    /// Each rank computes for so many seconds.
    #[arg(long, default_value_t = 16.0)]
    seconds: f64,
    /// Milliseconds between two messages of the program that sends some.
    #[arg(long, default_value_t = 1.0)]
    grain_ms: f64,
    /// Microseconds to switch a node.
    #[arg(long, default_value_t = 15.0)]
    switch_us: f64,
    /// And for each rank there.
    #[arg(long, default_value_t = 5.0)]
    rank_us: f64,
    /// Microseconds by which strobes are late at a node, always by the same: from none up to this.
    #[arg(long, default_value_t = 20.0)]
    skew_us: f64,
    /// And by so much more on average, each time anew.
    #[arg(long, default_value_t = 10.0)]
    jitter_us: f64,
    /// Microseconds of a message.
    #[arg(long, default_value_t = 20.0)]
    latency_us: f64,
    /// Microseconds of a switch by a CPU's own scheduler, caches and all.
    #[arg(long, default_value_t = 5.0)]
    local_us: f64,
    /// Not that: jobs by chance through the matrix, for so many slots.
    #[arg(long, value_name = "SLOTS")]
    work: Option<u64>,
    /// For --work: rows of the matrix.
    #[arg(long, default_value_t = 4)]
    rows: u16,
    /// For --work: what jobs need of all CPUs.
    #[arg(long, default_value_t = 0.85)]
    load: f64,
    /// For --work: so much of all jobs is of a higher level: the others stand still where it has CPUs of theirs.
    #[arg(long, default_value_t = 0.0)]
    high: f64,
    /// For --work: programs that are no gangs and go where CPUs are free.
    #[arg(long, default_value_t = 0)]
    guests: u32,
    /// For --work: nodes are in so many parts, each with jobs of its own, whose turns take so many slots.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    turns: Vec<u64>,
    /// For --work: a node is lost each so many slots, for 200; 0 for never.
    #[arg(long, default_value_t = 0)]
    losses: u64,
}

/// Does what the command line says.
pub fn main(how: &Gangs, json: bool) -> ExitCode {
    let parts = how.turns.len() as u64 <= u64::from(how.nodes) && how.turns.iter().all(|t| (1..=10_000).contains(t));
    let sound = (0.0..=1.0).contains(&how.high) && how.guests <= 100_000 && parts;
    let numbers = [how.seconds, how.grain_ms, how.load].iter().chain(&how.quanta).all(|x| *x > 0.0 && x.is_finite());
    let costs = [how.switch_us, how.rank_us, how.skew_us, how.jitter_us, how.latency_us, how.local_us];
    let sizes = (1..=16_384).contains(&how.nodes) && how.ranks.iter().all(|ranks| (1..=1024).contains(ranks));
    if !sound {
        eprintln!(
            "sim: --high is from 0 to 1, --guests at most 100000; --turns 1 to 10000 slots, for no more parts than nodes"
        );
        return ExitCode::from(2);
    }
    if !numbers || !sizes || !costs.iter().all(|x| (0.0..1e9).contains(x)) {
        eprintln!("sim: times and the load are to be more than 0, costs not less; nodes 1 to 16384, ranks 1 to 1024");
        return ExitCode::from(2);
    }
    match how.work {
        Some(slots) => work(how, slots, json),
        None => figure(how, json),
    }
}

/// STORM's figure 3.
fn figure(how: &Gangs, json: bool) -> ExitCode {
    let columns =
        ["program", "ranks/node", "quantum ms", "apart s", "gangs s", "gangs over %", "local s", "local over %"];
    let mut table = Table::new(&columns);
    let (switch, rank, local) = (how.switch_us, how.rank_us, how.local_us);
    let costs = Costs { switch, rank, local, skew: how.skew_us, jitter: how.jitter_us, latency: how.latency_us };
    let (seed, nodes, work) = (how.seed, how.nodes, how.seconds * 1e6);
    for (name, grain) in [("computes", None), ("speaks", Some(how.grain_ms * 1000.0))] {
        for &ranks in &how.ranks {
            for quantum in &how.quanta {
                let program = Program { nodes, ranks, work, grain };
                let went = |how| Shared { program, costs, how, quantum: quantum * 1000.0, seed };
                let apart = went(How::Gangs).apart();
                let [gangs, alone] = [How::Gangs, How::Local].map(|how| went(how).total());
                let seconds = |us: f64| format!("{:.2}", us / 1e6);
                let over = |us: f64| format!("{:.1}", 100.0 * (us / apart - 1.0));
                let cells = [seconds(apart), seconds(gangs), over(gangs), seconds(alone), over(alone)];
                table.row(&[&name, &ranks, quantum, &cells[0], &cells[1], &cells[2], &cells[3], &cells[4]]);
            }
        }
    }
    table.print(json);
    ExitCode::SUCCESS
}

/// A job that comes.
#[derive(Clone)]
struct Comes {
    at: u64,
    ranks: u32,
    urgent: bool,
    level: i32,
    /// Slots that it needs.
    slots: u64,
}

/// Sizes are often small and often powers of two; large ones run longer (Feitelson, 1996).
fn one(chance: &mut StdRng, cpus: u32, high: f64) -> Comes {
    let most = f64::from(cpus).log2();
    let size = 2f64.powf(chance.random_range(0.0..1.0) * most);
    let ranks = if chance.random_bool(0.7) { 2f64.powf(size.log2().round()) } else { size };
    let ranks = (ranks as u32).clamp(1, cpus);
    let long = chance.random_bool(0.1 + 0.3 * f64::from(ranks) / f64::from(cpus));
    let mean = if long { 300.0 } else { 20.0 };
    let slots = 1 + (-chance.random_range(f64::EPSILON..1.0).ln() * mean) as u64;
    Comes { at: 0, ranks, urgent: slots < 5, level: i32::from(chance.random_bool(high)), slots }
}

/// What comes in so many slots, if so much of all CPUs is to be needed.
fn all(seed: u64, cpus: u32, (load, high): (f64, f64), slots: u64) -> Vec<Comes> {
    let mut chance = StdRng::seed_from_u64(seed);
    let sample: Vec<Comes> = (0..10_000).map(|_| one(&mut chance, cpus, high)).collect();
    let mean = sample.iter().map(|job| u64::from(job.ranks) * job.slots).sum::<u64>() as f64 / sample.len() as f64;
    let (mut now, mut jobs) = (0.0f64, Vec::new());
    loop {
        now += -chance.random_range(f64::EPSILON..1.0).ln() * mean / (load * f64::from(cpus));
        if now >= slots as f64 {
            return jobs;
        }
        jobs.push(Comes { at: now as u64, ..one(&mut chance, cpus, high) });
    }
}

/// How it went.
#[derive(Default)]
struct Went {
    jobs: u64,
    /// CPU slots in which a job ran, of those that there were, until the last job came.
    used: u64,
    there: u64,
    /// The table's cells that were full, summed over slots.
    filled: f64,
    rows: u64,
    slots: u64,
    responses: f64,
    slowdowns: f64,
    /// The most slots in which a job that should run did not.
    pause: u64,
    again: u64,
    moved: u64,
    /// What guests had of a CPU each, summed over them and over slots, and what they would have had alone.
    guests: (f64, f64),
}

/// A job that has its CPUs.
struct Runs {
    number: usize,
    left: u64,
    /// Slots since it ran.
    pause: u64,
}

struct World<'a> {
    desk: Desk,
    work: &'a [Comes],
    /// Parts of the cluster: turns in slots, and nodes.
    parts: Vec<(u64, Vec<String>)>,
    cpus: u32,
    waiting: BTreeSet<usize>,
    /// They do not fit into the nodes that are there.
    parked: BTreeSet<usize>,
    running: BTreeMap<u64, Runs>,
    guests: Guests,
    chance: StdRng,
    now: u64,
    /// Slots since the table came.
    slot: u64,
    went: Went,
}

/// Usual turns take one slot, which is so long for the matrix.
const SLOT_US: u64 = 1;
/// Milliseconds of a slot, for the line.
const SLOT_MS: u64 = 10;

impl World<'_> {
    fn does(&mut self, input: Input) -> Result<(), String> {
        let effects = self.desk.handle(input);
        self.heed(effects)
    }

    fn heed(&mut self, effects: Vec<Effect>) -> Result<(), String> {
        let mut lost = Vec::new();
        for effect in effects {
            match effect {
                Effect::Placed { job, .. } => {
                    let number = job as usize;
                    self.waiting.remove(&number);
                    self.no_better_right(number)?;
                    self.guests.disturbed();
                    self.running.insert(job, Runs { number, left: self.work[number].slots, pause: 0 });
                }
                Effect::Refused { ever: false, .. } => {}
                // A node is away: it waits for that, and nobody waits for it.
                Effect::Refused { job, .. } => {
                    self.waiting.remove(&(job as usize));
                    self.parked.insert(job as usize);
                }
                Effect::Table(table) => {
                    table.check()?;
                    self.slot = 0;
                    self.guests.disturbed();
                }
                Effect::Lost { job, .. } => lost.push(job),
            }
        }
        // From the beginning, and in the line it is where it was when it came.
        let mut again = BTreeSet::new();
        for job in lost {
            self.went.again += 1;
            again.insert(self.running.remove(&job).ok_or("a job is lost twice")?.number);
            self.does(Input::Ended(job))?;
        }
        // Numbers are in the order of coming.
        self.waiting.extend(&again);
        again.into_iter().try_for_each(|number| self.asks(number))
    }

    /// Nobody who came in an earlier slot, and is of the same level, is left waiting by this one.
    fn no_better_right(&self, number: usize) -> Result<(), String> {
        let (at, level) = (self.work[number].at, self.work[number].level);
        let (part, among) = (self.part(number), |other| self.part(other));
        let meets = |other| part.is_none() || among(other).is_none() || among(other) == part;
        let before = |other: &&usize| self.work[**other].at < at && self.work[**other].level == level && meets(**other);
        match self.waiting.iter().find(before) {
            Some(other) => Err(format!("job {number} of slot {at} overtakes job {other}")),
            None => Ok(()),
        }
    }

    /// The part of the cluster that a job wants: some want no part, or are too large for it.
    fn part(&self, number: usize) -> Option<usize> {
        let part = number % self.parts.len();
        let (nodes, cpus) = (self.parts[part].1.len() as u64, u64::from(self.cpus));
        (self.parts.len() > 1 && !number.is_multiple_of(40) && u64::from(self.work[number].ranks) <= nodes * cpus)
            .then_some(part)
    }

    fn asks(&mut self, number: usize) -> Result<(), String> {
        let Comes { at, ranks, urgent, level, .. } = self.work[number];
        let (turn_us, among) = self.part(number).map(|part| self.parts[part].clone()).unwrap_or_default();
        let shape = Shape::Free { ranks, cpus: 1, nodes: None, among, per_node: None };
        let gang = Gang { job: number as u64, shape, urgent, level, turn_us };
        let effects = self.desk.ask(gang, (self.now - at) * SLOT_MS, self.now * SLOT_MS);
        self.heed(effects)
    }

    /// Whoever waits asks again, in any order.
    fn enter(&mut self) -> Result<(), String> {
        // A node may be back.
        let parked = std::mem::take(&mut self.parked);
        self.waiting.extend(&parked);
        parked.into_iter().try_for_each(|number| self.asks(number))?;
        let mut all: Vec<usize> = self.waiting.iter().copied().collect();
        while !all.is_empty() {
            let at = self.chance.random_range(0..all.len());
            let number = all.swap_remove(at);
            if self.waiting.contains(&number) {
                self.asks(number)?;
            }
        }
        Ok(())
    }

    /// Does it stand still for one of a higher level? That has to be so.
    fn outranked(&self, job: u64) -> Result<bool, String> {
        let matrix = self.desk.matrix();
        let seen = matrix.job(job).ok_or_else(|| format!("job {job} is not in the matrix"))?;
        if seen.standing != Standing::Outranked {
            return Ok(false);
        }
        let mine: BTreeSet<(&str, u16)> = cells(seen.places).collect();
        let above = |other: &pando_gang::Seen<'_>| {
            let higher = other.level > seen.level && other.standing == Standing::Runs;
            higher && cells(other.places).any(|cell| mine.contains(&cell))
        };
        match matrix.jobs().any(|other| above(&other)) {
            true => Ok(true),
            false => Err(format!("job {job} stands still for nobody")),
        }
    }

    /// One slot: who runs, is that right, and who has ended?
    fn slot(&mut self) -> Result<(), String> {
        let still: BTreeSet<u64> = self
            .running
            .keys()
            .filter_map(|&job| self.outranked(job).map(|yes| yes.then_some(job)).transpose())
            .collect::<Result<_, _>>()?;
        let matrix = self.desk.matrix();
        let table = matrix.table();
        let (rows, mut used, mut ended) = (u64::from(table.rows), BTreeSet::new(), Vec::new());
        if table.rows > matrix.rules().rows {
            return Err(format!("{rows} rows are more than the rule"));
        }
        for (&job, runs) in self.running.iter_mut().filter(|(job, _)| !still.contains(*job)) {
            let turn = table.turn_us(job, SLOT_US);
            if !table.runs(job, self.slot / turn) {
                runs.pause += 1;
                if runs.pause.min(self.slot + 1) >= rows * turn {
                    return Err(format!("job {job} did not run in {rows} turns of {turn} slots"));
                }
                self.went.pause = self.went.pause.max(runs.pause);
                continue;
            }
            let seen = matrix.job(job).ok_or_else(|| format!("job {job} is not in the matrix"))?;
            if let Some((node, cpu)) = cells(seen.places).find(|cell| !used.insert(*cell)) {
                return Err(format!("CPU {cpu} of {node} has two jobs, job {job} is one"));
            }
            (runs.pause, runs.left) = (0, runs.left - 1);
            if runs.left == 0 {
                ended.push(job);
            }
        }
        if self.now < self.work.last().map_or(0, |last| last.at) {
            self.went.used += used.len() as u64;
            self.went.there += matrix.nodes().values().map(|cpus| u64::from(*cpus)).sum::<u64>();
        }
        if rows > 0 {
            self.went.slots += 1;
            self.went.rows += rows;
            self.went.filled += matrix.utilisation();
        }
        let (got, wanted) = self.guests.slot(matrix)?;
        self.went.guests = (self.went.guests.0 + got, self.went.guests.1 + wanted);
        let busy = self.guests.busy(matrix);
        (self.now, self.slot) = (self.now + 1, self.slot + 1);
        for job in ended {
            self.running.remove(&job);
            let work = &self.work[job as usize];
            let response = (self.now - work.at) as f64;
            self.went.jobs += 1;
            self.went.responses += response;
            self.went.slowdowns += (response / work.slots.max(10) as f64).max(1.0);
            self.does(Input::Ended(job))?;
        }
        busy.into_iter().try_for_each(|(name, milli)| self.does(Input::Busy { name, milli }))
    }
}

fn cells(places: &[pando_gang::Place]) -> impl Iterator<Item = (&str, u16)> {
    places.iter().flat_map(|place| place.cpus.iter().map(move |cpu| (place.node.as_str(), *cpu)))
}

/// All of it with some rules.
fn play(
    work: &[Comes],
    (nodes, cpus): (u32, u32),
    (losses, guests): (u64, u32),
    rules: Rules,
    turns: &[u64],
    seed: u64,
) -> Result<Went, String> {
    let mut chance = StdRng::seed_from_u64(seed);
    let (desk, waiting, running) = (Desk::new(Matrix::new(rules), 0), BTreeSet::new(), BTreeMap::new());
    let (guests, order, parked) = (Guests::new(guests, seed), StdRng::seed_from_u64(!seed), BTreeSet::new());
    let (now, slot, went) = (0, 0, Went::default());
    let name = |i: u32| format!("n{i:05}");
    let nodes_of = |part: usize| (0..nodes).filter(|i| *i as usize % turns.len() == part).map(name).collect();
    let parts = turns.iter().enumerate().map(|(part, turn)| (*turn * SLOT_US, nodes_of(part))).collect();
    let mut world = World { desk, work, parts, cpus, waiting, parked, running, guests, chance: order, now, slot, went };
    world.does(Input::Usual(SLOT_US))?;
    let cpus = cpus as u16;
    for i in 0..nodes {
        world.does(Input::Node { name: name(i), cpus })?;
    }
    let mut next = 0;
    let mut away: VecDeque<(u64, u32)> = VecDeque::new();
    while world.went.jobs < work.len() as u64 {
        while work.get(next).is_some_and(|job| job.at <= world.now) {
            world.waiting.insert(next);
            next += 1;
        }
        if let Some((_, node)) = away.pop_front_if(|(back, _)| *back <= world.now) {
            world.does(Input::Node { name: name(node), cpus })?;
        }
        if losses > 0 && next < work.len() && chance.random_range(0..losses) == 0 {
            let node = chance.random_range(0..nodes);
            if away.iter().all(|(_, gone)| *gone != node) {
                away.push_back((world.now + AWAY, node));
                world.does(Input::NodeGone(name(node)))?;
            }
        }
        world.enter()?;
        world.slot()?;
    }
    world.went.moved = world.desk.matrix().unified();
    match world.desk.matrix().rows() {
        0 => Ok(world.went),
        rows => Err(format!("{rows} rows are left when all have ended")),
    }
}

fn work(how: &Gangs, slots: u64, json: bool) -> ExitCode {
    let columns = [
        "ranks/node",
        "packing",
        "alternative",
        "jobs",
        "utilisation %",
        "rows",
        "filled %",
        "mean response",
        "bounded slowdown",
        "longest pause",
        "moved",
        "run again",
        "guests get %",
    ];
    let mut table = Table::new(&columns);
    let mut failed = false;
    for &cpus in &how.ranks {
        let work = all(how.seed, how.nodes * cpus, (how.load, how.high), slots);
        if work.is_empty() {
            eprintln!("sim: no jobs: say more slots or a higher load");
            return ExitCode::from(2);
        }
        for (packing, alternative) in
            [Packing::BestFit, Packing::Buddy].into_iter().flat_map(|p| [(p, false), (p, true)])
        {
            let rules = Rules { rows: how.rows, packing, alternative };
            match play(&work, (how.nodes, cpus), (how.losses, how.guests), rules, &how.turns, how.seed) {
                Ok(went) => {
                    let of = |sum: f64, all: u64| format!("{:.1}", sum / all.max(1) as f64);
                    let used = of(100.0 * went.used as f64, went.there);
                    let (rows, filled) = (of(went.rows as f64, went.slots), of(100.0 * went.filled, went.slots));
                    let (response, slow) = (of(went.responses, went.jobs), of(went.slowdowns, went.jobs));
                    let packing = format!("{packing:?}");
                    let guests = match went.guests.1 > 0.0 {
                        true => format!("{:.1}", 100.0 * went.guests.0 / went.guests.1),
                        false => "-".to_owned(),
                    };
                    let cells: [&dyn std::fmt::Display; 13] = [
                        &cpus,
                        &packing,
                        &alternative,
                        &went.jobs,
                        &used,
                        &rows,
                        &filled,
                        &response,
                        &slow,
                        &went.pause,
                        &went.moved,
                        &went.again,
                        &guests,
                    ];
                    table.row(&cells);
                }
                Err(wrong) => {
                    failed = true;
                    eprintln!("{packing:?}, alternative {alternative}, seed {} FAILED {wrong}", how.seed);
                }
            }
        }
    }
    table.print(json);
    ExitCode::from(u8::from(failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: (u32, u32) = (8, 4);

    #[test]
    fn jobs_go_through_the_matrix_and_alternative_slots_help() {
        let work = all(5, 32, (0.85, 0.0), 3_000);
        for packing in [Packing::BestFit, Packing::Buddy] {
            let went = [false, true].map(|alternative| {
                let rules = Rules { rows: 4, packing, alternative };
                play(&work, NODES, (0, 0), rules, &[1], 5).unwrap()
            });
            assert!(went[1].filled > went[0].filled && went[1].responses < went[0].responses, "{packing:?}");
        }
        let went = play(&work, NODES, (400, 0), Rules::default(), &[1], 5).unwrap();
        assert!(went.again > 0);
        assert_eq!(went.jobs, work.len() as u64);
    }

    /// Who has come first is served first, of each level; the higher one has its CPUs; guests are where CPUs are free, and nobody is lost.
    #[test]
    fn levels_guests_and_the_line_hold_in_many_lives() {
        for seed in 0..40 {
            let work = all(seed, 32, (0.7, 0.15), 600);
            let rules = Rules { rows: 1 + (seed % 3) as u16, ..Rules::default() };
            let went = play(&work, NODES, (150 * (seed % 2), 6), rules, &[1], seed);
            let went = went.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            assert_eq!(went.jobs, work.len() as u64);
            assert!(went.guests.0 > 0.3 * went.guests.1, "seed {seed}: {:?}", went.guests);
        }
    }

    /// Parts of the cluster have turns of their own length, and some jobs have nodes of several parts: whoever shares a node has the same, no CPU has two at a
    /// time, and nobody waits for longer than all rows have their turns.
    #[test]
    fn turns_of_several_lengths_hold_in_many_lives() {
        let mut longest = 0;
        for seed in 0..20 {
            let work = all(seed, 32, (0.7, 0.1), 1_000);
            let went = play(&work, NODES, (150 * (seed % 2), 6), Rules::default(), &[1, 3, 7], seed);
            let went = went.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            assert_eq!(went.jobs, work.len() as u64);
            longest = went.pause.max(longest);
        }
        assert!(longest > 7, "somebody waited for a turn of 7 slots to be over: {longest}");
    }
}
