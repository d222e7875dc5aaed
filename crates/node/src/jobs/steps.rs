//! Steps of batch jobs at their heads: the queue is told of each for its accounts, and those that share their CPUs with no other step of the job wait
//! here for them.

use super::group::Heard;
use crate::daemon::Node;
use crate::events::now_ms;
use crate::launcher::STEP;
use crate::queue::errand::Errand;
use crate::queue::keeper;
use pando_launch::{Amount, Ending, Order, Request, Tell, Up, Used, Word, own};
use pando_queue::{How, Id, Step, Usage};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The command of a step ends when its end is stored, or after so long.
const STORED_WITHIN: Duration = Duration::from_secs(2);
/// What the queue's node could not be told is told again after this, so often.
const AGAIN: Duration = Duration::from_millis(500);
const TRIES: u32 = 120;
/// Nodes of a step that are told of.
const MOST_NODES: usize = 1024;

/// A variable of its environment.
fn variable<'a>(task: &'a pando_launch::Task, name: &str) -> Option<&'a str> {
    let found = task.environment.iter().find(|(n, _)| n.as_slice() == name.as_bytes())?;
    std::str::from_utf8(&found.1).ok()
}

/// What is told of a step.
pub struct Tally {
    node: Arc<Node>,
    user: String,
    id: Id,
    run: Option<u32>,
    step: Step,
    all: Used,
    /// How it ends; the worst that was heard so far.
    how: How,
}

impl Tally {
    /// Of a step of a batch job; of others nobody keeps accounts.
    pub fn of(node: &Arc<Node>, order: &Order) -> Option<Tally> {
        let id = Id::read(variable(&order.task, "PANDO_BATCH_JOB")?).ok()?;
        let nodes = order.nodes.iter().filter(|share| share.ranks > 0).take(MOST_NODES);
        let step = Step {
            number: variable(&order.task, STEP).and_then(|number| number.parse().ok()).unwrap_or(0),
            name: order.name.clone(),
            head: order.nodes[0].node.clone(),
            nodes: nodes.map(|share| (share.node.clone(), share.ranks)).collect(),
            cpus: u64::from(order.size()) * u64::from(order.cpus.unwrap_or(1)),
            began: now_ms(),
            end: None,
            usage: Usage::default(),
            away: Usage::default(),
        };
        let run = variable(&order.task, "SLURM_RESTART_COUNT").and_then(|run| run.parse().ok());
        Some(Tally {
            node: node.clone(),
            user: order.user.clone(),
            id,
            run,
            step,
            all: Used::default(),
            how: How::Exit(0),
        })
    }

    /// The tree says something.
    pub fn up(&mut self, order: &Order, up: &Up) {
        match up {
            Up::Ready => {
                self.step.began = now_ms();
                drop(tokio::spawn(tell(self.node.clone(), self.errand())));
            }
            Up::Ended { how, .. } => self.ended(ended(*how)),
            Up::Abort { status, .. } => self.ended(How::Exit((*status).max(1).into())),
            Up::Lost { place, .. } => {
                let node = order.nodes.get(*place as usize).map_or_else(String::new, |share| share.node.clone());
                self.ended(How::NodeLost(node));
            }
            Up::Used(used) => self.used(*used),
            _ => {}
        }
    }

    /// So do ranks that its ranks have started.
    pub fn group(&mut self, heard: &Heard) {
        match heard {
            Heard::Word(Word::Tell(Tell::Ended { how, .. })) => self.ended(ended(*how)),
            Heard::Word(Word::Tell(Tell::Abort { status, .. })) => self.ended(How::Exit((*status).max(1).into())),
            Heard::Word(Word::Tell(Tell::Lost { node, .. })) => self.ended(How::NodeLost(node.clone())),
            Heard::Word(_) => {}
            Heard::Used(used) => self.used(*used),
        }
    }

    /// Ranks have used this; all others have been told of before, or will be.
    fn used(&mut self, used: Used) {
        self.all = Used { all: self.all.all.and(used.all), away: self.all.away.and(used.away) };
        (self.step.usage, self.step.away) = (usage(self.all.all), usage(self.all.away));
    }

    /// The first that is not a good end says how the step did.
    fn ended(&mut self, how: How) {
        if self.how == How::Exit(0) {
            self.how = how;
        }
    }

    fn errand(&self) -> Errand {
        let (user, id, run) = (self.user.clone(), self.id, self.run);
        Errand::Step { user, id, run, step: Box::new(self.step.clone()) }
    }

    /// It is over. When this returns the queue knows of it, if its node answers.
    pub async fn over(mut self) {
        self.step.end = Some((now_ms(), self.how.clone()));
        // Whoever does not wait any longer leaves it to go on.
        let told = tokio::spawn(tell(self.node.clone(), self.errand()));
        let _ = timeout(STORED_WITHIN, told).await;
    }
}

fn ended(how: Ending) -> How {
    match how {
        Ending::OutOfMemory => How::OutOfMemory,
        Ending::Signal(number) => How::Signal(number.into()),
        how => How::Exit(how.status()),
    }
}

fn usage(of: Amount) -> Usage {
    let memory_mb = of.memory.div_ceil(1 << 20);
    Usage { cpu_ms: of.cpu_ms, memory_mb, read: of.read, written: of.written, energy_mj: None }
}

async fn tell(node: Arc<Node>, errand: Errand) {
    for _ in 0..TRIES {
        match keeper::say(&node, &errand).await {
            Ok(_) => return,
            // What is refused is refused for good.
            Err(failure) if failure.refused && !failure.is_elsewhere() => return,
            Err(_) => {}
        }
        sleep(AGAIN).await;
    }
}

/// CPUs that steps of batch jobs have for themselves: of which job, at which node, and how many.
pub type Own = BTreeMap<(String, String), u32>;

/// Those of one step, as long as it lives.
pub struct Lease {
    node: Arc<Node>,
    job: String,
    each: u32,
    /// Its ranks at each node.
    pub seats: Vec<(String, u32)>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut all = self.node.jobs.own();
        for (name, ranks) in &self.seats {
            let key = (self.job.clone(), name.clone());
            if let Some(used) = all.get_mut(&key) {
                *used = used.saturating_sub(ranks * self.each);
            }
            all.retain(|_, used| *used > 0);
        }
    }
}

/// CPUs for a step that shares them with no other one. None: there are not enough just now. The error is for people.
pub fn lease(node: &Arc<Node>, request: &Request) -> Result<Option<Lease>, String> {
    let job = variable(&request.task, "PANDO_BATCH_JOB").unwrap_or_default().to_owned();
    if own(request, |_| 0).is_none() {
        let has: u32 = request.exclusive.iter().map(|(_, cpus)| cpus).sum();
        return Err(format!(
            "this step can never have CPUs of its own (--exclusive): its job has {has} on the nodes that it may use"
        ));
    }
    let each = u32::from(request.cpus.unwrap_or(1)).max(1);
    let mut all = node.jobs.own();
    let Some(seats) = own(request, |name| all.get(&(job.clone(), name.to_owned())).copied().unwrap_or(0)) else {
        return Ok(None);
    };
    for (name, ranks) in &seats {
        *all.entry((job.clone(), name.clone())).or_default() += ranks * each;
    }
    drop(all);
    Ok(Some(Lease { node: node.clone(), job, each, seats }))
}
