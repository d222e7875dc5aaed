//! One look at a long queue on a large cluster, neither of which is there: the pure queue (crates/queue) with 4,096 nodes and 10,000 jobs that wait.

use crate::error::{Error, Result};
use pando_queue::{Id, Input, Node, Policy, Queue, Settings, Spec, Work};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Of the cluster.
const NODES: usize = 4096;
/// Jobs that wait, all along.
const WAITING: usize = 10_000;
/// All jobs are these users'.
const USERS: u64 = 50;

/// With one policy.
#[derive(Clone, Debug, Serialize)]
pub struct Pass {
    /// Which.
    pub policy: Policy,
    /// Tasks that run meanwhile.
    pub running: usize,
    /// Jobs that wait.
    pub waiting: usize,
    /// A pass in which nothing can start, after a submission: half of them took no longer, milliseconds.
    pub pass_ms: f64,
    /// To explain one of the last jobs, milliseconds.
    pub explain_ms: f64,
}

/// Each policy, so many passes.
pub fn measure(rounds: usize) -> Result<Vec<Pass>> {
    [Policy::Fcfs, Policy::Easy, Policy::Conservative].into_iter().map(|policy| one(policy, rounds)).collect()
}

/// The same jobs each time: a linear congruential generator (Knuth, MMIX).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Powers of two of ranks mostly, whole nodes sometimes, a quarter of the cluster rarely; limits up to a day.
fn job(chance: &mut Chance) -> Spec {
    let user = format!("user{}", chance.below(USERS));
    let work = Work::Words(vec!["true".into()]);
    let mut spec = Spec { user, name: "job".into(), work, directory: "/".into(), ..Spec::default() };
    spec.limit_ms = Some(60_000 * (1 + chance.below(24 * 60)));
    let request = &mut spec.request;
    request.memory_per_cpu = chance.below(4) * 1000;
    match chance.below(2000) {
        0 => (request.nodes_min, request.ranks) = (NODES as u32 / 4, Some(NODES as u32 / 2)),
        1..200 => (request.nodes_min, request.exclusive) = (1 + chance.below(64) as u32, true),
        _ => request.ranks = Some(1 << chance.below(7)),
    }
    spec
}

fn submit(queue: &mut Queue, now: u64, chance: &mut Chance) -> Result<()> {
    let effects = queue.handle(now, Input::Submit(Box::new(job(chance))));
    let refused = effects.iter().find_map(|e| if let pando_queue::Effect::Refused(why) = e { Some(why) } else { None });
    refused.map_or(Ok(()), |why| Err(Error::Other(format!("the queue refuses a job: {why}"))))
}

fn waiting(queue: &Queue) -> impl Iterator<Item = u64> + '_ {
    queue.jobs().filter(|job| !job.waiting.is_empty()).map(|job| job.id)
}

fn one(policy: Policy, rounds: usize) -> Result<Pass> {
    let mut chance = Chance(7);
    let mut queue = Queue::new(Settings { policy, ..Settings::default() });
    let mut now = 1_000_000_000;
    for number in 0..NODES {
        let node = Node { name: format!("n{number}"), cpus: 16, memory: 64_000, ..Node::default() };
        queue.handle(now, Input::NodeSeen(node));
    }
    // As many as can start do, until there are enough that can't.
    loop {
        let missing = WAITING.saturating_sub(waiting(&queue).count());
        if missing == 0 {
            break;
        }
        for _ in 0..missing {
            submit(&mut queue, now, &mut chance)?;
            now += 10;
        }
        while queue.wake() == Some(0) {
            queue.handle(now, Input::Tick);
            now += 1;
        }
    }
    let mut times = Vec::new();
    for _ in 0..rounds {
        submit(&mut queue, now, &mut chance)?;
        let begun = Instant::now();
        queue.handle(now, Input::Tick);
        times.push(begun.elapsed());
        now += 1;
    }
    times.sort_unstable();
    let all: Vec<u64> = waiting(&queue).collect();
    let begun = Instant::now();
    queue.explain(Id::of(all[all.len() * 9 / 10]));
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Pass {
        policy,
        running: queue.runs().count(),
        waiting: all.len(),
        pass_ms: ms(times[times.len() / 2]),
        explain_ms: ms(begun.elapsed()),
    })
}
