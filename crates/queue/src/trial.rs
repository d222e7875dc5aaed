//! Random lives of a queue: submissions of all kinds, wishes of users, nodes that come, are drained and are lost, daemons that die between any
//! two steps. Whatever happens, what is said in [`World::check`] holds after each step.

use crate::spec::tests::spec;
use crate::*;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xA5A5)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

struct World {
    queue: Queue,
    now: u64,
    journal: Vec<Record>,
    nodes: BTreeMap<String, Node>,
    /// What runs really, as the nodes know it: since when, and whether it stands still.
    real: BTreeMap<(Id, u32), bool>,
    /// Where each computes really.
    at: BTreeMap<(Id, u32), String>,
    /// Those that are on their way, and where to.
    moving: BTreeMap<(Id, u32), String>,
    /// Starts that were seen: never twice.
    started: BTreeSet<(Id, u32)>,
    accepted: BTreeSet<u64>,
    /// Tasks that ended for good, and how often.
    ended: BTreeMap<Id, u32>,
    told_to_end: BTreeSet<(Id, u32)>,
}

fn settings(chance: &mut Chance) -> Settings {
    let policy = [Policy::Fcfs, Policy::Easy, Policy::Conservative][chance.below(3) as usize];
    let quality = |level: u8| Quality { priority: u32::from(level) * 500, level, ..Quality::default() };
    let preempt = [Preempt::Suspend, Preempt::Move, Preempt::Move][chance.below(3) as usize];
    let normal = Quality { preempt, ..Quality::default() };
    let high = Quality { preempt, ..quality(1) };
    let all = [("normal", normal), ("high", high), ("highest", quality(2))];
    let qualities = all.into_iter().map(|(name, quality)| (name.to_owned(), quality)).collect();
    let licences = gres::read("lic:3").unwrap();
    let starts_at_once = 1 + chance.below(20) as usize;
    Settings { policy, qualities, licences, runs: 3, starts_at_once, keep_ms: 200_000, ..Settings::default() }
}

impl World {
    fn new(chance: &mut Chance) -> World {
        let mut world = World {
            queue: Queue::new(settings(chance)),
            now: 1_000_000,
            journal: Vec::new(),
            nodes: BTreeMap::new(),
            real: BTreeMap::new(),
            at: BTreeMap::new(),
            moving: BTreeMap::new(),
            started: BTreeSet::new(),
            accepted: BTreeSet::new(),
            ended: BTreeMap::new(),
            told_to_end: BTreeSet::new(),
        };
        for i in 0..1 + chance.below(6) {
            let gres = if chance.one_in(3) { gres::read("gpu:2").unwrap() } else { Vec::new() };
            let cpus = 1 + chance.below(8) as u32;
            let node = Node { name: format!("n{i}"), cpus, memory: 1000, gres, ..Node::default() };
            world.nodes.insert(node.name.clone(), node.clone());
            world.does(Input::NodeSeen(node));
        }
        world
    }

    fn does(&mut self, input: Input) {
        let effects = self.queue.handle(self.now, input);
        self.obey(effects);
    }

    fn obey(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Record(record) => self.journal.push(record),
                Effect::Accepted(job) => assert!(self.accepted.insert(job)),
                Effect::Start(id, run, shares) => {
                    self.at.insert((id, run), shares[0].node.clone());
                    assert!(self.started.insert((id, run)), "{id} run {run} is started twice");
                    self.real.insert((id, run), false);
                }
                Effect::End(id, run, _) => {
                    assert!(self.real.contains_key(&(id, run)), "{id} does not run");
                    self.told_to_end.insert((id, run));
                }
                Effect::Suspend(id, run) => assert_eq!(self.real.insert((id, run), true), Some(false), "{id}"),
                Effect::Resume(id, run) => assert_eq!(self.real.insert((id, run), false), Some(true), "{id}"),
                Effect::Place(id, run, node) => {
                    assert_eq!(self.real.get(&(id, run)), Some(&false), "{id} stands still, and is not moved");
                    assert_eq!(self.moving.insert((id, run), node), None, "{id} is moved twice");
                }
                Effect::Outcome(outcome) if outcome.state.is_final() => {
                    *self.ended.entry(outcome.id).or_default() += 1;
                }
                _ => {}
            }
        }
    }

    fn job(&self, chance: &mut Chance) -> Spec {
        let mut spec = spec(["ann", "ben", "cy"][chance.below(3) as usize]);
        let request = &mut spec.request;
        match chance.below(3) {
            0 => request.nodes_min = 1 + chance.below(3) as u32,
            1 => request.ranks = Some(1 + chance.below(10) as u32),
            _ => {
                (request.nodes_min, request.ranks_per_node) =
                    (1 + chance.below(2) as u32, Some(1 + chance.below(3) as u32))
            }
        }
        request.cpus_per_rank = 1 + chance.below(2) as u32;
        request.exclusive = chance.one_in(5);
        request.memory = if chance.one_in(3) { chance.below(800) } else { 0 };
        request.memory_per_cpu = if chance.one_in(4) { chance.below(400) } else { 0 };
        if chance.one_in(5) {
            request.gres = gres::read(["gpu:1", "gpu:2"][chance.below(2) as usize]).unwrap();
        }
        if chance.one_in(6) {
            request.licences = gres::read("lic:2").unwrap();
        }
        if chance.one_in(8) {
            request.wanted = vec![format!("n{}", chance.below(3))];
        }
        spec.limit_ms = (!chance.one_in(10)).then(|| 1000 * (1 + chance.below(100)));
        spec.quality = (chance.one_in(4)).then(|| ["high", "highest"][chance.below(2) as usize].to_owned());
        spec.requeue = chance.one_in(2);
        spec.hold = chance.one_in(15);
        spec.nice = chance.below(2000) as i32;
        spec.name = ["a", "b"][chance.below(2) as usize].into();
        spec.begin_at = chance.one_in(10).then(|| self.now + 1000 * chance.below(50));
        if chance.one_in(4) {
            let first = chance.below(3) as u32;
            let tasks = array::Tasks::from(vec![(first, first + chance.below(8) as u32)]);
            spec.array = Some(array::Array {
                tasks,
                at_once: chance.one_in(2).then(|| 1 + chance.below(3) as u32),
                numbered: false,
            });
        }
        if chance.one_in(4) && !self.accepted.is_empty() {
            let job = 1 + chance.below(self.accepted.len() as u64);
            let kind = ["after", "afterok", "afternotok", "afterany", "aftercorr"][chance.below(5) as usize];
            let text = if chance.one_in(5) { "singleton".into() } else { format!("{kind}:{job}") };
            spec.dependency = depend::Dependency::read(&text).unwrap();
        }
        spec
    }

    fn id(&self, chance: &mut Chance) -> Id {
        let job = 1 + chance.below(self.accepted.len() as u64 + 1);
        Id { job, task: chance.one_in(3).then(|| chance.below(5) as u32) }
    }

    /// Something of what users, nodes and administrators do.
    fn happens(&mut self, chance: &mut Chance) {
        match chance.below(20) {
            0..4 => {
                let spec = self.job(chance);
                self.does(Input::Submit(Box::new(spec)));
            }
            4 => self.does(Input::Cancel { id: self.id(chance), by: "ann".into() }),
            5 => self.does(Input::Hold { id: self.id(chance), operator: chance.one_in(3) }),
            6 => self.does(Input::Release { id: self.id(chance), operator: chance.one_in(2) }),
            7 if chance.one_in(3) => self.does(Input::Requeue { id: self.id(chance), hold: chance.one_in(3) }),
            8 => {
                let update =
                    [Update::Nice(5), Update::Limit(50_000), Update::AtOnce(Some(2))][chance.below(3) as usize].clone();
                self.does(Input::Update(self.id(chance).job, update));
            }
            9 if chance.one_in(4) => self.node(chance),
            10 if chance.one_in(10) => {
                let nodes = if chance.one_in(3) { Vec::new() } else { vec!["n0".into(), "n1".into()] };
                let begin = self.now + chance.below(50_000);
                let reservation =
                    Reservation { name: "r".into(), nodes, begin, end: begin + 30_000, users: Vec::new() };
                self.does(Input::Reserve(reservation));
            }
            11 | 12 => self.now += chance.below(5_000),
            13..17 if chance.one_in(3) => self.arrives(chance),
            13..17 => self.ends(chance),
            17 if chance.one_in(5) => self.dies(chance),
            _ => self.does(Input::Tick),
        }
    }

    fn node(&mut self, chance: &mut Chance) {
        let name = format!("n{}", chance.below(6));
        let Some(mut node) = self.nodes.get(&name).cloned() else { return };
        match chance.below(3) {
            0 => self.does(Input::NodeLost(name)),
            1 => {
                node.drained = true;
                self.does(Input::NodeSeen(node));
            }
            _ => self.does(Input::NodeSeen(node)),
        }
    }

    fn gone(&mut self, key: (Id, u32)) {
        self.real.remove(&key);
        self.at.remove(&key);
        self.moving.remove(&key);
    }

    fn ends(&mut self, chance: &mut Chance) {
        let all: Vec<(Id, u32)> = self.real.keys().copied().collect();
        let Some(&(id, run)) = all.get(chance.below(all.len() as u64) as usize) else { return };
        let told = self.told_to_end.contains(&(id, run));
        if !told && (self.real[&(id, run)] || chance.one_in(2)) {
            return self.does(Input::Began(id, run));
        }
        if chance.one_in(3) {
            let step = Step {
                number: chance.below(3) as u32,
                name: "step".into(),
                head: "n0".into(),
                nodes: vec![("n1".into(), 2)],
                cpus: 2,
                began: 5,
                end: chance.one_in(2).then_some((6, How::Exit(0))),
                usage: Usage::default(),
                away: Usage { cpu_ms: 7, ..Usage::default() },
            };
            let user = ["ann", "ben", "cy"][chance.below(3) as usize].to_owned();
            return self.does(Input::Step { id, run: chance.one_in(2).then_some(run), user, step: Box::new(step) });
        }
        let how = match chance.below(12) {
            0 => How::OutOfMemory,
            1 => How::NotBegun("no".into()),
            2 => How::NodeLost("n0".into()),
            3 => How::Signal(9),
            4 => How::Exit(1),
            _ => How::Exit(0),
        };
        self.gone((id, run));
        self.does(Input::Ended(id, run, how, Usage::default()));
        // It may be said twice.
        self.does(Input::Ended(id, run, How::Exit(0), Usage::default()));
    }

    /// One that was on its way is there, or stays where it was.
    fn arrives(&mut self, chance: &mut Chance) {
        let all: Vec<(Id, u32)> = self.moving.keys().copied().collect();
        let Some(key) = all.get(chance.below(all.len() as u64) as usize) else { return };
        let Some(node) = self.moving.remove(key) else { return };
        let how = match chance.one_in(4) {
            true => Err("it can't".to_owned()),
            false => Ok(_ = self.at.insert(*key, node.clone())),
        };
        self.does(Input::Placed { id: key.0, run: key.1, node: node.clone(), how });
        // It may be said twice, and of what nobody asked for.
        self.does(Input::Placed { id: key.0, run: key.1, node: format!("{node}x"), how: Ok(()) });
        if self.moving.get(key).is_none_or(|next| *next != node) {
            self.does(Input::Placed { id: key.0, run: key.1, node, how: Ok(()) });
        }
    }

    /// The daemon dies, and the next one has the journal, or a shortened one.
    fn dies(&mut self, chance: &mut Chance) {
        let settings = self.queue.settings().clone();
        if chance.one_in(2) {
            self.journal = self.queue.records();
        }
        self.queue = Queue::restore(settings, self.journal.clone());
        let unfinished: BTreeSet<(Id, u32)> = self.queue.unfinished().iter().filter_map(which).collect();
        assert_eq!(unfinished, self.real.keys().copied().collect(), "what runs is known");
        for node in self.nodes.values() {
            let effects = self.queue.handle(self.now, Input::NodeSeen(node.clone()));
            assert_eq!(effects, []);
        }
    }

    fn check(&self, journal: bool) {
        if journal {
            let restored = Queue::restore(self.queue.settings().clone(), self.journal.clone());
            assert!(restored.knows_the_same(&self.queue), "the journal makes another queue");
        }
        let mut used: BTreeMap<&str, (u32, u64, u32, u32, bool)> = BTreeMap::new();
        let mut licences = 0;
        for (job, task, run) in self.queue.runs() {
            let key = (job.name_of(task), run.run);
            let still = run.suspended_at.is_some();
            assert_eq!(self.real.get(&key), Some(&still), "{key:?} is known to run");
            licences += job.spec.request.licences.iter().map(|l| l.count).sum::<u32>();
            assert_eq!(run.goes_to(), self.moving.get(&key).map(String::as_str), "{key:?} is on its way");
            let there = run.holds().filter(|held| held.cpus > 0).any(|held| held.node == self.at[&key]);
            assert!(there, "{key:?} computes at {}, and its CPUs are elsewhere", self.at[&key]);
            for held in run.holds() {
                let node = used.entry(held.node).or_default();
                node.1 += held.memory;
                node.2 += held.gres.iter().map(|g| g.count).sum::<u32>();
                if !still && held.cpus > 0 {
                    node.0 += held.cpus;
                    node.3 += 1;
                    node.4 |= job.spec.request.exclusive;
                }
            }
            let most = job.spec.array.as_ref().and_then(|a| a.at_once);
            let updated = most == Some(2);
            assert!(updated || most.is_none_or(|most| job.running.len() as u32 <= most), "job {}", job.id);
        }
        assert_eq!(self.queue.runs().count(), self.real.len());
        assert!(licences <= 3, "{licences} licences");
        for (name, (cpus, memory, gres, runs, exclusive)) in used {
            let node = &self.nodes[name];
            assert!(cpus <= node.cpus && memory <= node.memory, "{name}: {cpus} CPUs, {memory} MB");
            assert!(gres <= node.gres.iter().map(|g| g.count).sum(), "{name}: {gres} gres");
            assert!(!exclusive || runs == 1, "{name}: somebody is not alone");
        }
        let mut last = 0;
        for job in self.queue.jobs() {
            let mut all = job.waiting.len() + job.running.len() as u64;
            all += job.over.values().map(array::Tasks::len).sum::<u64>();
            assert_eq!(all, job.spec.array.as_ref().map_or(1, |a| a.tasks.len()), "job {}: each task once", job.id);
            let numbers = job.id..job.id + job.numbers();
            assert!(numbers.end <= self.queue.book.next && numbers.start >= last, "job {}: numbers of its own", job.id);
            last = numbers.end;
            for number in numbers.skip(1) {
                let id = self.queue.named(Id::of(number));
                assert_eq!((id.job, job.number_of(id.task.unwrap())), (job.id, number));
            }
            assert!(job.held.without(&job.waiting).is_empty() && self.accepted.contains(&job.id));
        }
    }

    /// All is let go: everything must come to an end.
    fn finish(&mut self) {
        let nodes: Vec<Node> = self.nodes.values().cloned().collect();
        nodes.into_iter().for_each(|node| self.does(Input::NodeSeen(node)));
        let jobs: Vec<u64> = self.queue.jobs().filter(|job| !job.waiting.is_empty()).map(|job| job.id).collect();
        for job in jobs {
            self.does(Input::Release { id: Id::of(job), operator: true });
        }
        for _ in 0..5_000 {
            self.does(Input::Tick);
            for (key, node) in std::mem::take(&mut self.moving) {
                self.at.insert(key, node.clone());
                self.does(Input::Placed { id: key.0, run: key.1, node, how: Ok(()) });
            }
            let next: Vec<(Id, u32)> = {
                let ends = |(key, still): &(&(Id, u32), &bool)| !**still || self.told_to_end.contains(key);
                self.real.iter().filter(ends).map(|(key, _)| *key).collect()
            };
            for (id, run) in &next {
                self.gone((*id, *run));
                self.does(Input::Ended(*id, *run, How::Exit(0), Usage::default()));
            }
            self.check(false);
            match self.queue.wake() {
                Some(0) => {}
                Some(at) if next.is_empty() => self.now = at.max(self.now),
                None if next.is_empty() => break,
                _ => {}
            }
        }
        for job in self.queue.jobs().filter(|job| !job.is_over()) {
            let why = self.queue.explain(Id::of(job.id)).unwrap().why.unwrap();
            // What can't be had says so, and so does one that waits for such a one, or is held by an order that came late.
            let may = matches!(
                why,
                Why::Held { .. } | Why::Never { .. } | Why::NodeNotThere(_) | Why::NoSuchGres(_) | Why::Depends(_)
            );
            assert!(may, "job {} is left: {why}", job.id);
        }
        assert!(self.real.is_empty(), "{:?}", self.real);
    }
}

fn which(effect: &Effect) -> Option<(Id, u32)> {
    match effect {
        Effect::Start(id, run, _)
        | Effect::End(id, run, _)
        | Effect::Place(id, run, _)
        | Effect::Suspend(id, run)
        | Effect::Resume(id, run) => Some((*id, *run)),
        _ => None,
    }
}

/// A queue in the middle of its life.
pub(crate) fn busy(seed: u64) -> Queue {
    let mut chance = Chance::new(seed);
    let mut world = World::new(&mut chance);
    (0..150).for_each(|_| world.happens(&mut chance));
    world.queue
}

fn trial(seed: u64) {
    let mut chance = Chance::new(seed);
    let mut world = World::new(&mut chance);
    for step in 0..300 {
        world.happens(&mut chance);
        world.check(step % 16 == 0);
    }
    world.finish();
    // To cancel ends everything.
    let jobs: Vec<u64> = world.queue.jobs().map(|job| job.id).collect();
    jobs.iter().for_each(|job| world.does(Input::Cancel { id: Id::of(*job), by: "ann".into() }));
    assert!(world.queue.jobs().all(Job::is_over), "seed {seed}");
}

/// `QUEUE_SEEDS=20000 cargo test -p pando-queue trial` is the long one; `QUEUE_SEED=N` repeats one.
#[test]
fn whatever_happens_no_job_is_lost_or_runs_twice_and_nothing_is_promised_twice() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds = match number("QUEUE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("QUEUE_SEEDS").unwrap_or(300),
    };
    for seed in seeds {
        let died = std::panic::catch_unwind(|| trial(seed));
        assert!(died.is_ok(), "seed {seed}: QUEUE_SEED={seed} repeats it");
    }
}
