//! `sim failover`: the node that keeps the queue dies again and again, also between deciding and storing, and between storing and telling; another one begins with
//! the records and goes on. Nodes are lost besides. The queue is the daemon's own (crates/queue); who stores, tells and asks again is played here.

use crate::jobs::{AWAY, CPUS, settings, spec};
use crate::lublin::{self, Work};
use crate::queue::{MS, Queue as Events, SECOND};
use crate::table::Table;
use clap::Args;
use pando_queue::{Effect, How, Id, Input, Node, Policy, Queue, Record, Settings, Share, Usage};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Nobody keeps the queue for so long at most, seconds: a lease, and what it takes to see that it is over.
const VACANT: u64 = 12;
/// Who got no answer asks again after this, seconds.
const AGAIN: u64 = 1;
/// Days that a node runs on average.
const LIVES: f64 = 3.0;
/// The journal is shortened when it has so many records.
const LONG: usize = 2_000;

/// The node that keeps the queue dies again and again, and another one goes on with its records.
#[derive(Args)]
pub struct Failover {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many of them.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Nodes of 4 CPUs.
    #[arg(long, default_value_t = 16)]
    nodes: u32,
    /// For so many days.
    #[arg(long, default_value_t = 10)]
    days: u64,
    /// A keeper stores so often, on average, before it dies.
    #[arg(long, default_value_t = 25)]
    stores: u64,
}

#[derive(Clone, Copy)]
enum Happens {
    Comes(usize),
    AsksAgain(usize),
    Begins(Id, u32),
    Ends(Id, u32),
    Reports(Id, u32),
    Lost(u32),
    Back(u32),
    Keeps,
    Wake,
}

/// When a keeper dies that is to die with this store.
#[derive(Clone, Copy, PartialEq)]
enum Dies {
    Before,
    After,
    Amid,
}

/// A run as its nodes know it.
struct Real {
    shares: Vec<Share>,
    /// It is over, and the queue has not said that it has stored that.
    how: Option<How>,
}

/// How it went.
#[derive(Clone, Debug, Default, PartialEq)]
struct Went {
    jobs: usize,
    /// Keepers that died before they had stored, before they had told, and while they told.
    died: [u64; 3],
    lost: u64,
    again: u64,
    asked_again: u64,
}

struct World<'a> {
    /// None: nobody keeps it.
    queue: Option<Queue>,
    stored: Vec<Record>,
    work: &'a [Work],
    cpus: BTreeMap<String, u32>,
    away: BTreeSet<String>,
    events: Events<Happens>,
    chance: StdRng,
    stores: u64,
    dies_in: u64,
    /// What the nodes know, and what they have begun.
    real: BTreeMap<(Id, u32), Real>,
    begun: BTreeSet<(Id, u32)>,
    used: BTreeMap<String, u32>,
    /// Numbers that submitters were told.
    acknowledged: BTreeMap<usize, u64>,
    ended: BTreeSet<u64>,
    woken: Option<u64>,
    went: Went,
}

fn rules() -> Settings {
    // Whoever asks again finds his job.
    Settings { keep_ms: 300_000, ..settings(Policy::Easy) }
}

impl World<'_> {
    fn ms(&self) -> u64 {
        self.events.now() / 1000
    }

    /// Says something to the keeper. None: there is no answer, and nobody knows whether it was stored. Otherwise the number of a job that was taken.
    fn does(&mut self, input: Input) -> Result<Option<Option<u64>>, String> {
        let now = self.ms();
        let Some(queue) = &mut self.queue else { return Ok(None) };
        let effects = queue.handle(now, input);
        let is_stored = effects.iter().any(|e| matches!(e, Effect::Record(_)));
        let mut dies = None;
        if is_stored {
            self.dies_in -= 1;
            if self.dies_in == 0 {
                dies = Some([Dies::Before, Dies::After, Dies::Amid][self.chance.random_range(0..3)]);
            }
            if dies == Some(Dies::Before) {
                return self.die(0);
            }
            self.store(&effects)?;
            if dies == Some(Dies::After) {
                return self.die(1);
            }
        }
        let amid = self.chance.random_range(0..=effects.len());
        let mut accepted = None;
        for (i, effect) in effects.into_iter().enumerate() {
            if dies == Some(Dies::Amid) && i == amid {
                return self.die(2);
            }
            match effect {
                Effect::Accepted(number) => accepted = Some(number),
                effect => self.obey(effect, false)?,
            }
        }
        if dies.is_some() { self.die(2) } else { Ok(Some(accepted)) }
    }

    fn die<T>(&mut self, when: usize) -> Result<Option<T>, String> {
        self.went.died[when] += 1;
        self.queue = None;
        let vacant = self.chance.random_range(1..=VACANT);
        self.events.after(vacant * SECOND, Happens::Keeps);
        Ok(None)
    }

    /// One transaction: records, and tasks that have ended.
    fn store(&mut self, effects: &[Effect]) -> Result<(), String> {
        for effect in effects {
            match effect {
                Effect::Record(record) => self.stored.push(record.clone()),
                Effect::Outcome(outcome) if !outcome.state.is_final() => self.went.again += 1,
                Effect::Outcome(outcome) if !self.ended.insert(outcome.id.job) => {
                    return Err(format!("job {} ends twice", outcome.id));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// `again`: a keeper that begins does not know whether it was done.
    fn obey(&mut self, effect: Effect, again: bool) -> Result<(), String> {
        match effect {
            Effect::Start(id, run, shares) => self.start(id, run, shares, again),
            Effect::End(id, run, cause) => {
                let here = self.real.get(&(id, run)).is_some_and(|real| real.how.is_none());
                if here {
                    self.over(id, run, How::Signal(9));
                } else {
                    // The node, or whoever finds that it is gone, says that it is no more.
                    let shares = Vec::new();
                    let how = if let pando_queue::Cause::NodeFail(node) = cause {
                        How::NodeLost(node)
                    } else {
                        How::NotBegun("it ends".into())
                    };
                    self.begun.insert((id, run));
                    self.real.entry((id, run)).or_insert(Real { shares, how: Some(how) });
                    self.events.after(MS, Happens::Reports(id, run));
                }
                Ok(())
            }
            Effect::Refused(why) => Err(format!("refused: {why}")),
            _ => Ok(()),
        }
    }

    fn start(&mut self, id: Id, run: u32, shares: Vec<Share>, again: bool) -> Result<(), String> {
        if self.begun.contains(&(id, run)) {
            // The node that knows it begins nothing twice.
            return if again { Ok(()) } else { Err(format!("job {id} is started twice")) };
        }
        if shares.iter().any(|share| self.away.contains(&share.node)) {
            // It is asked until it is found to be lost.
            return Ok(());
        }
        self.begun.insert((id, run));
        for share in &shares {
            let used = self.used.entry(share.node.clone()).or_default();
            *used += share.cpus;
            if *used > self.cpus[&share.node] {
                return Err(format!("{used} CPUs of {} are used", share.node));
            }
        }
        self.real.insert((id, run), Real { shares, how: None });
        self.events.after(MS, Happens::Begins(id, run));
        let run_s = self.run_s(id);
        self.events.after(run_s * SECOND, Happens::Ends(id, run));
        Ok(())
    }

    /// Nothing runs of it any more; its node says so until that is stored.
    fn over(&mut self, id: Id, run: u32, how: How) {
        let Some(real) = self.real.get_mut(&(id, run)).filter(|real| real.how.is_none()) else { return };
        real.how = Some(how);
        for share in &real.shares {
            *self.used.entry(share.node.clone()).or_default() -= share.cpus;
        }
        self.events.after(MS, Happens::Reports(id, run));
    }

    fn submit(&mut self, i: usize) -> Result<(), String> {
        let spec = pando_queue::Spec { ticket: format!("t{i}"), ..spec(&self.work[i]) };
        match self.does(Input::Submit(Box::new(spec)))?.flatten() {
            None => {
                self.went.asked_again += 1;
                self.events.after(AGAIN * SECOND, Happens::AsksAgain(i));
            }
            Some(number) => {
                if self.acknowledged.values().any(|n| *n == number) {
                    return Err(format!("two submissions are job {number}"));
                }
                self.acknowledged.insert(i, number);
            }
        }
        Ok(())
    }

    fn happens(&mut self, event: Happens) -> Result<(), String> {
        match event {
            Happens::Comes(i) => {
                if let Some(next) = self.work.get(i + 1) {
                    self.events.at(next.at * SECOND, Happens::Comes(i + 1));
                }
                self.submit(i)?;
            }
            Happens::AsksAgain(i) => self.submit(i)?,
            Happens::Begins(id, run) => {
                let lives = self.real.get(&(id, run)).is_some_and(|real| real.how.is_none());
                if lives && self.does(Input::Began(id, run))?.is_none() {
                    self.events.after(AGAIN * SECOND, Happens::Begins(id, run));
                }
            }
            Happens::Ends(id, run) => self.over(id, run, How::Exit(0)),
            Happens::Reports(id, run) => {
                let Some(how) = self.real.get(&(id, run)).and_then(|real| real.how.clone()) else { return Ok(()) };
                match self.does(Input::Ended(id, run, how, Usage::default()))? {
                    Some(_) => _ = self.real.remove(&(id, run)),
                    None => self.events.after(AGAIN * SECOND, Happens::Reports(id, run)),
                }
            }
            Happens::Lost(node) => self.lose(node)?,
            Happens::Back(node) => {
                let name = format!("n{node}");
                self.away.remove(&name);
                self.see(name)?;
                if self.ended.len() < self.work.len() {
                    self.fate(node);
                }
            }
            Happens::Keeps => self.begin()?,
            Happens::Wake => self.woken = None,
        }
        Ok(())
    }

    fn run_s(&self, id: Id) -> u64 {
        let found = self.queue.as_ref().and_then(|queue| queue.job(id.job));
        let i = found.and_then(|job| job.spec.ticket.strip_prefix('t')?.parse::<usize>().ok());
        i.map_or(1, |i| self.work[i].run)
    }

    fn see(&mut self, name: String) -> Result<(), String> {
        let cpus = self.cpus[&name];
        self.does(Input::NodeSeen(Node { name, cpus, ..Node::default() })).map(|_| ())
    }

    fn fate(&mut self, node: u32) {
        let lives = (-self.chance.random_range(f64::EPSILON..1.0).ln() * LIVES * 86_400.0) as u64;
        self.events.after((lives + 1) * SECOND, Happens::Lost(node));
    }

    /// With all that runs there.
    fn lose(&mut self, node: u32) -> Result<(), String> {
        let name = format!("n{node}");
        self.went.lost += 1;
        self.events.after(AWAY * SECOND, Happens::Back(node));
        self.away.insert(name.clone());
        let there = |(_, real): &(&(Id, u32), &Real)| real.shares.iter().any(|share| share.node == name);
        let gone: Vec<(Id, u32)> = self.real.iter().filter(there).map(|(key, _)| *key).collect();
        for (id, run) in gone {
            self.over(id, run, How::NodeLost(name.clone()));
        }
        self.does(Input::NodeLost(name)).map(|_| ())
    }

    /// Another node has the records.
    fn begin(&mut self) -> Result<(), String> {
        let queue = Queue::restore(rules(), self.stored.iter().cloned());
        if self.stored.len() > LONG {
            let short = queue.records();
            if !Queue::restore(rules(), short.iter().cloned()).knows_the_same(&queue) {
                return Err("the shortened journal says something else".into());
            }
            self.stored = short;
        }
        let unfinished = queue.unfinished();
        self.queue = Some(queue);
        self.dies_in = self.chance.random_range(1..=2 * self.stores);
        for effect in unfinished {
            self.obey(effect, true)?;
        }
        let names: Vec<String> = self.cpus.keys().cloned().collect();
        for name in names {
            match self.away.contains(&name) {
                true => _ = self.does(Input::NodeLost(name))?,
                false => self.see(name)?,
            }
        }
        Ok(())
    }

    fn pass(&mut self) -> Result<(), String> {
        self.does(Input::Tick)?;
        let now = self.ms();
        let at = self.queue.as_ref().and_then(Queue::wake).map(|at| at.max(now + 1));
        if let Some(at) = at.filter(|at| self.woken.is_none_or(|woken| *at < woken)) {
            self.events.at(at * 1000, Happens::Wake);
            self.woken = Some(at);
        }
        Ok(())
    }

    /// When nothing more happens.
    fn check(&self) -> Result<(), String> {
        let all: BTreeSet<u64> = self.acknowledged.values().copied().collect();
        if all.len() != self.work.len() || self.ended != all {
            let (n, told, over) = (self.work.len(), all.len(), self.ended.len());
            return Err(format!("{n} jobs came, {told} were acknowledged, {over} have ended"));
        }
        match (self.real.is_empty(), self.used.values().all(|used| *used == 0)) {
            (true, true) => Ok(()),
            _ => Err("something runs that nobody knows of".into()),
        }
    }
}

fn play(seed: u64, nodes: u32, days: u64, stores: u64) -> Result<Went, String> {
    let work = lublin::work(seed, nodes * CPUS, days, 0.8);
    let Some(first) = work.first().map(|work| work.at) else { return Ok(Went::default()) };
    let mut world = World {
        queue: Some(Queue::new(rules())),
        stored: Vec::new(),
        work: &work,
        cpus: (0..nodes).map(|i| (format!("n{i}"), CPUS)).collect(),
        away: BTreeSet::new(),
        events: Events::default(),
        chance: StdRng::seed_from_u64(seed),
        stores,
        dies_in: stores,
        real: BTreeMap::new(),
        begun: BTreeSet::new(),
        used: BTreeMap::new(),
        acknowledged: BTreeMap::new(),
        ended: BTreeSet::new(),
        woken: None,
        went: Went { jobs: work.len(), ..Went::default() },
    };
    for i in 0..nodes {
        world.see(format!("n{i}"))?;
        world.fate(i);
    }
    world.events.at(first * SECOND, Happens::Comes(0));
    while let Some(event) = world.events.next(u64::MAX) {
        world.happens(event)?;
        world.pass()?;
    }
    world.check()?;
    Ok(world.went)
}

/// Does what the command line says.
pub fn main(how: &Failover, json: bool) -> ExitCode {
    let columns =
        ["seed", "jobs", "died before storing", "before telling", "telling", "nodes lost", "run again", "asked again"];
    let mut table = Table::new(&columns);
    let mut failed = false;
    for seed in how.seed..how.seed + how.seeds {
        match play(seed, how.nodes.max(1), how.days, how.stores.max(1)) {
            Ok(w) => {
                table.row(&[&seed, &w.jobs, &w.died[0], &w.died[1], &w.died[2], &w.lost, &w.again, &w.asked_again])
            }
            Err(wrong) => {
                failed = true;
                let Failover { nodes, days, stores, .. } = how;
                eprintln!(
                    "seed {seed} FAILED {wrong}: sim failover --seed {seed} --seeds 1 --nodes {nodes} --days {days} --stores {stores}"
                );
            }
        }
    }
    table.print(json);
    ExitCode::from(u8::from(failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_dies_whenever_each_job_ends_once() {
        let mut died = [0; 3];
        for seed in 1..=6 {
            let went = play(seed, 8, 3, 10).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
            died.iter_mut().zip(went.died).for_each(|(all, some)| *all += some);
        }
        assert!(died.iter().all(|n| *n > 20), "{died:?}");
        assert_eq!(play(2, 8, 3, 10), play(2, 8, 3, 10), "a seed is a history");
    }
}
