//! What people see of the queue.

use super::ask::{Cluster, Line, NodeUse, PartitionUse, Shown};
use super::journal::{Journal, Search};
use super::office::status;
use pando_queue::{Away, How, Id, Job, Phase, Priority, Queue, Run, State};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What is in the queue and what has just ended, by number.
///
/// `now`: milliseconds since 1970; the queue's own time stands still while nothing happens in it.
pub fn lines(queue: &Queue, now: u64) -> Vec<Line> {
    let now = now.max(queue.now());
    let partition = queue.settings().usual().to_owned();
    let (priorities, reasons) = (queue.priorities(), queue.reasons());
    let mut all = Vec::new();
    for job in queue.jobs() {
        let basic = || basic(job, &partition);
        let priority = priorities.get(&job.id).map_or(0.0, |priority| *priority as f64);
        for (task, run) in &job.running {
            all.push(running(Line { priority, ..basic() }, job, *task, run, now));
        }
        for (tasks, held) in [(job.waiting.without(&job.held), false), (job.held.clone(), true)] {
            if !tasks.is_empty() {
                let id = if job.is_array() { format!("{}_[{}]", job.id, set(&tasks)) } else { job.id.to_string() };
                let besides = || reasons.get(&job.id).cloned().unwrap_or_default();
                let reason = if held { pando_queue::held(job).to_owned() } else { besides() };
                all.push(Line { id, state: State::Pending, reason, priority, ..basic() });
            }
        }
        for (state, tasks) in &job.over {
            let id = if job.is_array() { format!("{}_[{}]", job.id, set(tasks)) } else { job.id.to_string() };
            all.push(Line { id, state: *state, ..basic() });
        }
    }
    all
}

fn basic(job: &Job, partition: &str) -> Line {
    let request = &job.spec.request;
    Line {
        id: job.id.to_string(),
        job: job.id,
        number: job.id,
        name: job.spec.name.clone(),
        user: job.spec.user.clone(),
        partition: request.partition.clone().unwrap_or_else(|| partition.to_owned()),
        state: State::Pending,
        ran_ms: 0,
        limit_ms: job.spec.limit_ms,
        node_count: request.least_nodes(),
        cpus: request.least_cpus(),
        nodes: Vec::new(),
        account: job.spec.account.clone(),
        quality: job.spec.quality.clone(),
        ranks: request.least_ranks(),
        memory: request.memory,
        memory_per_cpu: request.memory_per_cpu,
        comment: job.spec.comment.clone(),
        directory: job.spec.directory.clone(),
        nice: job.spec.nice,
        reason: String::new(),
        priority: 0.0,
        submitted: job.submitted,
        started: None,
        dependency: job.spec.dependency.to_string(),
        features: request.features.clone(),
        gres: gres(&request.gres),
        wanted: (request.wanted.clone(), request.excluded.clone()),
        cpus_per_rank: request.cpus_per_rank,
        reservation: request.reservation.clone().unwrap_or_default(),
        wckey: job.spec.wckey.clone(),
        eligible: job.since,
        steps: pando_queue::Steps::default(),
        restarts: job.again.get(&0).copied().filter(|_| !job.is_array()).unwrap_or(0),
        exclusive: request.exclusive,
    }
}

fn gres(all: &[pando_queue::gres::Gres]) -> String {
    all.iter().map(|g| format!("{}:{}", g.kind, g.count)).collect::<Vec<_>>().join(",")
}

fn running(line: Line, job: &Job, task: u32, run: &Run, now: u64) -> Line {
    let nodes: Vec<String> = run.shares.iter().map(|s| s.node.clone()).collect();
    Line {
        id: job.name_of(task).to_string(),
        number: job.number_of(task),
        steps: run.steps.clone(),
        restarts: run.run,
        state: run.state(),
        ran_ms: run.ran(now),
        node_count: nodes.len() as u32,
        cpus: run.cpus(),
        ranks: run.shares.iter().map(|s| s.ranks).sum(),
        nodes,
        reason: run.away.as_ref().map_or(String::new(), whereabouts),
        started: Some(run.started),
        ..line
    }
}

/// Where one computes that is not at home.
fn whereabouts(away: &Away) -> String {
    match away.phase {
        Phase::Going => format!("moves to {}", away.node),
        Phase::There => format!("computes at {}", away.node),
        Phase::Coming => format!("comes home from {}", away.node),
    }
}

/// `1-3,7`
fn set(tasks: &pando_queue::array::Tasks) -> String {
    let mut all: Vec<(u32, u32)> = Vec::new();
    for task in tasks.iter() {
        match all.last_mut() {
            Some((_, last)) if *last + 1 == task => *last = task,
            _ => all.push((task, task)),
        }
    }
    let shown = all.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(",")
}

/// What jobs may have, and have.
pub fn cluster(queue: &Queue, keeper: String) -> Cluster {
    let mut used: BTreeMap<&str, (u64, u64, u32)> = BTreeMap::new();
    for (_, _, run) in queue.runs() {
        for held in run.holds() {
            let of = used.entry(held.node).or_default();
            // Who stands still has no CPUs.
            let cpus = if run.suspended_at.is_some() { 0 } else { held.cpus };
            (of.0, of.1, of.2) = (of.0 + u64::from(cpus), of.1 + held.memory, of.2 + 1);
        }
    }
    let state = |drained: bool, cpus: u64, all: u64, jobs: u32| match (drained, jobs) {
        (true, 0) => "drained",
        (true, _) => "draining",
        (false, _) if cpus == 0 => "idle",
        (false, _) if cpus < all => "mixed",
        (false, _) => "allocated",
    };
    let one = |node: &pando_queue::Node| {
        let (cpus, memory, jobs) = used.get(node.name.as_str()).copied().unwrap_or_default();
        let state = state(node.drained, cpus, node.cpus.into(), jobs).to_owned();
        NodeUse { node: node.clone(), used: (cpus, memory), jobs, state, drain: None }
    };
    let rules = queue.settings().clone();
    let usual = rules.usual().to_owned();
    let mut all = rules.partitions.clone();
    if all.is_empty() {
        all.insert(usual.clone(), pando_queue::Partition::default());
    }
    let partition = |(name, rules): (String, pando_queue::Partition)| {
        let is_of = |n: &&pando_queue::Node| rules.nodes.is_empty() || rules.nodes.contains(&n.name);
        let nodes = queue.nodes().filter(is_of).map(|n| n.name.clone()).collect();
        PartitionUse { usual: name == usual, name, rules, nodes }
    };
    let partitions = all.into_iter().map(partition).collect();
    let absent = queue.absentees().cloned().collect();
    Cluster { nodes: queue.nodes().map(one).collect(), absent, partitions, rules, keeper, drains: BTreeMap::new() }
}

/// All of a job.
pub fn all(queue: &Queue, id: Id, keeper: String) -> Option<Shown> {
    let job = queue.job(id.job)?.clone();
    let said = queue.explain(id)?;
    Some(Shown {
        reason: queue.reason(id),
        job,
        state: said.state,
        why: said.why.map(|why| why.to_string()),
        priority: said.priority.map(|(priority, ahead): (Priority, usize)| (priority.sum() as f64, ahead)),
        expected: said.expected,
        ends: said.ends,
        keeper,
        last_failure: None,
    })
}

/// Why it could not be begun, or was lost, when it last had nodes.
pub fn last_failure(journal: &Journal, id: Id) -> Option<String> {
    let old = journal.history(&Search { job: Some(id.job), most: 1, ..Search::default() }).ok()?;
    match &old.last()?.outcome.how {
        How::NotBegun(why) | How::CantBegin(why) => Some(why.clone()),
        How::NodeLost(node) => Some(format!("node {node} was lost")),
        _ => None,
    }
}

/// The worst end of a job's tasks, and its status; none as long as something of it waits or runs.
pub fn end(queue: &Queue, journal: &Journal, id: Id) -> Result<Option<(State, i32)>, String> {
    let waits = |job: &Job| match id.task {
        None => !job.is_over(),
        Some(task) => job.state(task).is_some_and(|state| !state.is_final()),
    };
    let job = queue.job(id.job);
    if job.is_some_and(waits) {
        return Ok(None);
    }
    let search = Search { job: Some(id.job), task: id.task, most: u32::MAX, ..Search::default() };
    let old = journal.history(&search).map_err(|e| e.to_string())?;
    let mine = old.iter().map(|old| &old.outcome).filter(|o| id.task.is_none() || o.id.task == id.task);
    let ends = mine.filter(|o| o.state != State::Requeued).map(|o| (status(o.state, Some(&o.how)), o.state));
    // Tasks that never began have no outcome.
    let states = job.into_iter().flat_map(|job| job.over.iter());
    let meant = states.filter(|(_, tasks)| id.task.is_none_or(|task| tasks.contains(task)));
    let others = meant.map(|(state, _)| (status(*state, None).min(1), *state));
    match ends.chain(others).max_by_key(|(status, state)| (*status, Reverse(*state))) {
        Some((status, state)) => Ok(Some((state, status))),
        None => Err(format!("there is no job {id}, and never was")),
    }
}
