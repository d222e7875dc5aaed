//! `sim jobs`: months of batch jobs through the daemon's own queue (crates/queue), with invariants at each step.
//!
//! The order is that of submission (priority is age alone), so that the policies can be compared, and so that the first of those that wait may
//! never be delayed: what is promised to it holds, or the run fails.

use crate::lublin::{self, Work};
use crate::places::Places;
use crate::queue::{Queue as Events, SECOND};
use crate::swf;
use crate::table::Table;
use clap::Args;
use pando_queue::{
    Cause, Effect, How, Id, Input, Node, Policy, Preempt, Quality, Queue, Request, Settings, Spec, Usage, Weights,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// One job in so many is of a higher level.
const HIGH: usize = 10;
/// So long a move takes.
const MOVE_MS: u64 = 300;
/// So many moves are made.
const GO_WELL: f64 = 0.9;
/// CPUs of a node.
pub const CPUS: u32 = 4;
/// Seconds that a node runs on average.
const LIVES: f64 = 60.0 * 86_400.0;
/// Seconds that it is away.
pub const AWAY: u64 = 3600;

/// Months of batch jobs.
#[derive(Args)]
pub struct Jobs {
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Jobs of a log in the standard workload format, and as many CPUs as its machine had.
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    swf: Option<String>,
    /// Jobs of a model: only lublin.
    #[arg(long, default_value = "lublin", value_parser = ["lublin"])]
    model: String,
    /// Nodes of 4 CPUs.
    #[arg(long, default_value_t = 64)]
    nodes: u32,
    /// For so many months of 30 days.
    #[arg(long, default_value_t = 3)]
    months: u64,
    /// What the model's jobs use of all CPUs.
    #[arg(long, default_value_t = 0.8)]
    load: f64,
    /// Nodes are lost, each every 60 days or so, for an hour.
    #[arg(long)]
    failures: bool,
    /// One job in ten is of a higher level; the others give way, by moving where they can.
    #[arg(long)]
    preempt: bool,
    /// Only the time of one scheduling pass with 10,000 queued jobs on 4,096 nodes, several times.
    #[arg(long)]
    pass: bool,
}

enum Happens {
    Comes(usize),
    Begins(Id, u32),
    /// In a stretch of its run.
    Ends(Id, u32, u32),
    Arrives(Id, u32, String),
    Lost(u32),
    Back(u32),
    Wake,
}

/// How it went.
#[derive(Default)]
struct Went {
    jobs: u64,
    /// Seconds.
    waits: f64,
    slowdowns: f64,
    /// CPU seconds, and seconds until the last end.
    used: f64,
    span: f64,
    again: u64,
    most: usize,
    moves: (u64, u64),
    stills: u64,
}

struct World<'a> {
    queue: Queue,
    work: &'a [Work],
    places: Places,
    events: Events<Happens>,
    started: BTreeSet<(Id, u32)>,
    /// Jobs that ended: once each.
    ended: BTreeSet<u64>,
    /// The first of those that wait, and when it starts at the latest.
    promised: Option<(u64, u64)>,
    woken: Option<u64>,
    went: Went,
    failures: bool,
    preempt: bool,
}

/// A job of the model as the queue has it.
pub fn spec(work: &Work) -> Spec {
    Spec {
        user: format!("u{}", work.user),
        work: pando_queue::Work::Words(vec!["true".into()]),
        request: Request { ranks: Some(work.cpus), ..Request::default() },
        limit_ms: Some(work.limit * 1000),
        ..Spec::default()
    }
}

impl World<'_> {
    fn ms(&self) -> u64 {
        self.events.now() / 1000
    }

    fn does(&mut self, input: Input) -> Result<(), String> {
        let effects = self.queue.handle(self.ms(), input);
        effects.into_iter().try_for_each(|effect| self.obey(effect))
    }

    fn obey(&mut self, effect: Effect) -> Result<(), String> {
        match effect {
            Effect::Start(id, run, shares) => {
                if !self.started.insert((id, run)) {
                    return Err(format!("job {id} is started twice"));
                }
                let run_ms = self.work[id.job as usize - 1].run * 1000;
                self.places.starts((id, run), &shares, self.ms(), run_ms)?;
                if let Some((first, by)) = self.promised.filter(|(first, by)| *first == id.job && self.ms() > *by) {
                    return Err(format!("job {first} was to start by {by} ms, and starts at {} ms", self.ms()));
                }
                self.events.at((self.ms() + run_ms) * 1000, Happens::Ends(id, run, 0));
                self.events.at((self.ms() + 1) * 1000, Happens::Begins(id, run));
            }
            Effect::Suspend(id, run) => self.places.stands_still((id, run), self.ms())?,
            Effect::Resume(id, run) => {
                let (left, times) = self.places.goes_on((id, run), self.ms())?;
                self.events.at((self.ms() + left) * 1000, Happens::Ends(id, run, times));
            }
            Effect::Place(id, run, node) => {
                self.places.moves((id, run), &node)?;
                self.events.at((self.ms() + MOVE_MS) * 1000, Happens::Arrives(id, run, node));
            }
            Effect::End(id, run, Cause::NodeFail(node)) => self.end(id, run, How::NodeLost(node))?,
            Effect::End(id, run, _) => self.end(id, run, How::Signal(9))?,
            Effect::Outcome(outcome) => {
                self.places.ends((outcome.id, outcome.run.run));
                let work = &self.work[outcome.id.job as usize - 1];
                if !outcome.state.is_final() {
                    self.went.again += 1;
                    return Ok(());
                }
                if !self.ended.insert(outcome.id.job) {
                    return Err(format!("job {} ends twice", outcome.id));
                }
                let (wait, run) = ((outcome.run.started / 1000).saturating_sub(work.at) as f64, work.run as f64);
                self.went.waits += wait;
                self.went.slowdowns += ((wait + run) / run.max(10.0)).max(1.0);
                self.went.used += run * f64::from(work.cpus);
                self.went.span = self.went.span.max(outcome.ended as f64 / 1000.0);
            }
            Effect::Refused(why) => return Err(format!("refused: {why}")),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, id: Id, run: u32, how: How) -> Result<(), String> {
        self.does(Input::Ended(id, run, how, Usage::default()))
    }

    /// The first one's place is never later than it was.
    fn promise(&mut self) -> Result<(), String> {
        let first = self.queue.jobs().find(|job| !job.waiting.is_empty()).map(|job| job.id);
        let Some(first) = first.filter(|_| !self.failures && !self.preempt) else {
            self.promised = None;
            return Ok(());
        };
        let Some(at) = self.queue.explain(Id::of(first)).and_then(|e| e.expected) else {
            return Err(format!("job {first} never starts"));
        };
        match self.promised.filter(|(job, _)| *job == first) {
            Some((_, before)) if at > before => {
                return Err(format!("job {first} was to start by {before} ms, and now by {at} ms"));
            }
            _ => self.promised = Some((first, at)),
        }
        Ok(())
    }

    fn happens(&mut self, event: Happens, chance: &mut StdRng) -> Result<(), String> {
        match event {
            Happens::Comes(i) => {
                self.went.jobs += 1;
                let high = self.preempt && i.is_multiple_of(HIGH);
                let quality = high.then(|| "high".to_owned());
                self.does(Input::Submit(Box::new(Spec { quality, ..spec(&self.work[i]) })))?;
                if let Some(next) = self.work.get(i + 1) {
                    self.events.at(next.at * SECOND, Happens::Comes(i + 1));
                }
            }
            Happens::Begins(id, run) => self.does(Input::Began(id, run))?,
            Happens::Ends(id, run, times) if !self.places.ends_now((id, run), times) => {}
            Happens::Ends(id, run, _) => self.end(id, run, How::Exit(0))?,
            Happens::Arrives(id, run, node) => {
                let went = chance.random_range(0.0..1.0) < GO_WELL;
                self.places.arrives((id, run), went);
                let how = if went { Ok(()) } else { Err("it can't".to_owned()) };
                self.does(Input::Placed { id, run, node, how })?;
            }
            Happens::Lost(node) => {
                self.events.at(self.events.now() + AWAY * SECOND, Happens::Back(node));
                self.does(Input::NodeLost(format!("n{node}")))?;
            }
            Happens::Back(node) => {
                let name = format!("n{node}");
                let cpus = self.places.cpus[&name];
                self.does(Input::NodeSeen(Node { name, cpus, ..Node::default() }))?;
                // No more of them when there is nothing left to lose.
                if self.ended.len() < self.work.len() {
                    let lives = (-chance.random_range(f64::EPSILON..1.0).ln() * LIVES) as u64;
                    self.events.at(self.events.now() + (lives + 1) * SECOND, Happens::Lost(node));
                }
            }
            Happens::Wake => self.woken = None,
        }
        Ok(())
    }

    fn pass(&mut self) -> Result<(), String> {
        self.does(Input::Tick)?;
        self.promise()?;
        let at = self.queue.wake().map(|at| at.max(self.ms() + 1));
        if let Some(at) = at.filter(|at| self.woken.is_none_or(|woken| *at < woken)) {
            self.events.at(at * 1000, Happens::Wake);
            self.woken = Some(at);
        }
        let waiting = self.queue.jobs().filter(|job| !job.waiting.is_empty()).count();
        self.went.most = self.went.most.max(waiting);
        Ok(())
    }
}

/// Rules under which the order is that of submission.
pub fn settings(policy: Policy) -> Settings {
    let weights = Weights { age: 1_000_000, share: 0, size: 0, quality: 0 };
    let (jobs_each, jobs_most) = (1_000_000, 1_000_000);
    // Age is the order for as long as anybody waits.
    Settings {
        policy,
        weights,
        jobs_each,
        jobs_most,
        runs: 1000,
        oldest_ms: 400 * 86_400_000,
        keep_ms: 0,
        ..Settings::default()
    }
}

/// Jobs of a higher level, and how the others give way to them.
fn qualities(preempt: bool) -> BTreeMap<String, Quality> {
    let high = Quality { level: 1, ..Quality::default() };
    let normal = Quality { preempt: Preempt::Move, ..Quality::default() };
    let all = [("high", high), ("normal", normal)].into_iter().filter(|_| preempt);
    all.map(|(name, quality)| (name.to_owned(), quality)).collect()
}

/// All of it with one policy.
fn play(
    work: &[Work],
    cpus: u32,
    policy: Policy,
    (failures, preempt): (bool, bool),
    seed: u64,
) -> Result<Went, String> {
    let mut chance = StdRng::seed_from_u64(seed);
    let nodes = cpus.div_ceil(CPUS);
    let size = |i: u32| if i + 1 == nodes && !cpus.is_multiple_of(CPUS) { cpus % CPUS } else { CPUS };
    let mut world = World {
        queue: Queue::new(Settings { qualities: qualities(preempt), ..settings(policy) }),
        work,
        places: Places::new((0..nodes).map(|i| (format!("n{i}"), size(i))).collect()),
        events: Events::default(),
        started: BTreeSet::new(),
        ended: BTreeSet::new(),
        promised: None,
        woken: None,
        went: Went::default(),
        failures,
        preempt,
    };
    for i in 0..nodes {
        world.does(Input::NodeSeen(Node { name: format!("n{i}"), cpus: size(i), ..Node::default() }))?;
        if failures {
            let lives = (-chance.random_range(f64::EPSILON..1.0).ln() * LIVES) as u64;
            world.events.at(lives * SECOND, Happens::Lost(i));
        }
    }
    world.events.at(work[0].at * SECOND, Happens::Comes(0));
    while let Some(event) = world.events.next(u64::MAX) {
        world.happens(event, &mut chance)?;
        world.pass()?;
    }
    match world.ended.len() == work.len() {
        true => Ok(Went { moves: world.places.moves, stills: world.places.stills, ..world.went }),
        false => Err(format!("{} jobs of {} have ended", world.ended.len(), work.len())),
    }
}

/// Does what the command line says.
pub fn main(how: &Jobs, json: bool) -> ExitCode {
    if how.pass {
        return pass(how.seed, json);
    }
    let of_model =
        || (how.nodes.max(1) * CPUS, lublin::work(how.seed, how.nodes.max(1) * CPUS, how.months * 30, how.load));
    let (cpus, work) = match how.swf.as_deref().map(swf::file) {
        Some(Err(why)) => {
            eprintln!("sim: {why}");
            return ExitCode::from(2);
        }
        Some(Ok(log)) => log,
        None => of_model(),
    };
    if work.is_empty() {
        eprintln!("sim: no jobs: say more months or a higher load");
        return ExitCode::from(2);
    }
    let columns = [
        "policy",
        "jobs",
        "utilisation %",
        "mean wait s",
        "bounded slowdown",
        "most waiting",
        "run again",
        "moved",
        "stood still",
    ];
    let mut table = Table::new(&columns);
    let mut failed = false;
    for policy in [Policy::Fcfs, Policy::Easy, Policy::Conservative] {
        match play(&work, cpus, policy, (how.failures, how.preempt), how.seed) {
            Ok(went) => {
                let n = went.jobs as f64;
                let used = format!("{:.1}", 100.0 * went.used / (f64::from(cpus) * went.span.max(1.0)));
                let (wait, slow) = (format!("{:.0}", went.waits / n), format!("{:.1}", went.slowdowns / n));
                let Went { jobs, most, again, moves: (moved, _), stills, .. } = went;
                table.row(&[&format!("{policy:?}"), &jobs, &used, &wait, &slow, &most, &again, &moved, &stills]);
            }
            Err(wrong) => {
                failed = true;
                eprintln!("{policy:?}, seed {} FAILED {wrong}", how.seed);
            }
        }
    }
    table.print(json);
    ExitCode::from(u8::from(failed))
}

/// 10,000 jobs of the model wait on 4,096 full nodes; a few end, and there is a pass.
fn pass(seed: u64, json: bool) -> ExitCode {
    let mut table = Table::new(&["policy", "first pass ms", "waiting", "pass ms", "started", "explain ms"]);
    let nodes = 4096;
    let work = lublin::work(seed, nodes * CPUS, 400, 0.9);
    for policy in [Policy::Fcfs, Policy::Easy, Policy::Conservative] {
        let mut queue =
            Queue::new(Settings { policy, jobs_each: 100_000, starts_at_once: 100_000, ..Settings::default() });
        for i in 0..nodes {
            queue.handle(1, Input::NodeSeen(Node { name: format!("n{i}"), cpus: CPUS, ..Node::default() }));
        }
        // Until 10,000 wait for good.
        let (mut first, mut next) = (0.0f64, 0);
        while queue.jobs().filter(|job| !job.waiting.is_empty()).count() < 10_000 && next < work.len() {
            let some = work[next..].iter().take(1_000);
            next += some.len();
            some.for_each(|w| _ = queue.handle(1, Input::Submit(Box::new(spec(w)))));
            let began = std::time::Instant::now();
            queue.handle(1, Input::Tick);
            first = first.max(began.elapsed().as_secs_f64() * 1000.0);
        }
        let ends: Vec<(Id, u32)> =
            queue.runs().step_by(50).map(|(job, task, run)| (job.name_of(task), run.run)).collect();
        for (id, run) in ends {
            queue.handle(1000, Input::Ended(id, run, How::Exit(0), Usage::default()));
        }
        let waiting = queue.jobs().filter(|job| !job.waiting.is_empty()).count();
        let began = std::time::Instant::now();
        let effects = queue.handle(1000, Input::Tick);
        let ms = began.elapsed().as_secs_f64() * 1000.0;
        let started = effects.iter().filter(|e| matches!(e, Effect::Start(..))).count();
        let last = queue.jobs().filter(|job| !job.waiting.is_empty()).last().map_or(0, |job| job.id);
        let began = std::time::Instant::now();
        queue.explain(Id::of(last));
        let explain = began.elapsed().as_secs_f64() * 1000.0;
        let one = |ms: f64| format!("{ms:.1}");
        table.row(&[&format!("{policy:?}"), &one(first), &waiting, &one(ms), &started, &one(explain)]);
    }
    table.print(json);
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backfill_helps_and_delays_nobody_who_is_first() {
        let work = lublin::work(3, 64, 10, 0.8);
        let went =
            [Policy::Fcfs, Policy::Easy, Policy::Conservative].map(|p| play(&work, 64, p, (false, false), 3).unwrap());
        assert!(went[1].waits < went[0].waits && went[2].waits < went[0].waits);
        let went = play(&work, 64, Policy::Easy, (true, false), 3).unwrap();
        assert_eq!(went.jobs as usize, work.len());
    }

    #[test]
    fn who_gives_way_is_moved_or_stands_still_and_is_lost_or_doubled_never() {
        let work = lublin::work(5, 64, 10, 0.6);
        for (policy, failures) in [(Policy::Fcfs, false), (Policy::Easy, true), (Policy::Conservative, true)] {
            let went = play(&work, 64, policy, (failures, true), 5).unwrap();
            assert!(went.moves.0 > 0 && went.moves.1 > 0 && went.stills > 0, "{:?} {}", went.moves, went.stills);
        }
    }
}
