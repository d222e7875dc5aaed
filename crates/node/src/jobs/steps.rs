//! Steps of batch jobs at their heads: the queue is told of each for its accounts, and those that share their CPUs with no other step of the job wait
//! here for them.

use super::group::Heard;
use crate::daemon::Node;
use crate::events::now_ms;
use crate::queue::errand::Errand;
use crate::queue::keeper;
use pando_launch::{Amount, Ask, Ending, Order, Ran, Request, STEP, Tell, Up, Used, Word, own};
use pando_queue::{How, Id, RankUsage, RankUse, Step, Usage};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::WeakSender;
use tokio::time::{sleep, timeout};

/// The command of a step ends when its end is stored, or after so long.
const STORED_WITHIN: Duration = Duration::from_secs(2);
/// What the queue's node could not be told is told again after this, so often.
const AGAIN: Duration = Duration::from_millis(500);
const TRIES: u32 = 120;
/// A step that is to end is asked to, and ended after this.
const GRACE: Duration = Duration::from_secs(5);
const TERM: u8 = libc::SIGTERM as u8;
const KILL: u8 = libc::SIGKILL as u8;
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
            number: order.step().unwrap_or(0),
            name: order.name.clone(),
            head: order.nodes[0].node.clone(),
            nodes: nodes.map(|share| (share.node.clone(), share.ranks)).collect(),
            cpus: u64::from(order.size()) * u64::from(order.cpus.unwrap_or(1)),
            began: now_ms(),
            end: None,
            usage: Usage::default(),
            away: Usage::default(),
            ranks: Vec::new(),
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
            Up::Used(used) => {
                // Of some only nobody could say which used most.
                let is_whole = used.ranks.len() == order.size() as usize;
                let name =
                    |place: u32| order.nodes.get(place as usize).map_or_else(String::new, |share| share.node.clone());
                let one = |ran: &Ran| RankUse {
                    rank: ran.rank,
                    node: name(ran.place),
                    how: ended(ran.how),
                    usage: exact(ran.used),
                };
                self.step.ranks = if is_whole { used.ranks.iter().map(one).collect() } else { Vec::new() };
                self.step.ranks.sort_by_key(|of| of.rank);
                self.used(used);
            }
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
            Heard::Used(used) => self.used(used),
        }
    }

    /// Ranks have used this; all others have been told of before, or will be.
    fn used(&mut self, used: &Used) {
        (self.all.all, self.all.away) = (self.all.all.and(used.all), self.all.away.and(used.away));
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

fn exact(of: Amount) -> RankUsage {
    RankUsage { cpu_ms: of.cpu_ms, memory_kb: of.memory.div_ceil(1024), read: of.read, written: of.written }
}

fn usage(of: Amount) -> Usage {
    let memory_mb = of.memory.div_ceil(1 << 20);
    Usage { cpu_ms: of.cpu_ms, memory_mb, read: of.read, written: of.written, ..Usage::default() }
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

/// Steps whose heads are here, by batch job and number: whose they are, and the way to each.
pub type Open = BTreeMap<(String, u32), (String, WeakSender<Ask>)>;

/// One can be spoken to as long as this lives.
pub struct Opened {
    node: Arc<Node>,
    key: (String, u32),
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.node.jobs.open_steps().remove(&self.key);
    }
}

/// What its user's command asks may come from elsewhere, too.
pub fn open(node: &Arc<Node>, request: &Request, user: &str, hear: &WeakSender<Ask>) -> Option<Opened> {
    let key = (variable(&request.task, "PANDO_BATCH_JOB")?.to_owned(), variable(&request.task, STEP)?.parse().ok()?);
    node.jobs.open_steps().insert(key.clone(), (user.to_owned(), hear.clone()));
    Some(Opened { node: node.clone(), key })
}

/// Ends a step of that user's job, or has a signal go to its ranks. The error is for people.
pub async fn end(node: &Arc<Node>, id: Id, number: u32, user: &str, signal: Option<i32>) -> Result<(), String> {
    let key = (id.to_string(), number);
    let found = node.jobs.open_steps().get(&key).cloned();
    let over = || format!("there is no step {id}.{number}, or it is over");
    let hear = found.filter(|(of, _)| of == user).and_then(|(_, hear)| hear.upgrade()).ok_or_else(over)?;
    let number = match signal.map(u8::try_from) {
        None => TERM,
        Some(Ok(number @ 1..=64)) => number,
        Some(_) => return Err("there is no such signal".into()),
    };
    let told = timeout(STORED_WITHIN, hear.send(Ask::Signal(number))).await;
    told.map_err(|_| format!("step {id} does not listen"))?.map_err(|_| over())?;
    if signal.is_none() {
        // Who does not heed that, or stands still, is not asked a second time.
        let hear = hear.downgrade();
        tokio::spawn(async move {
            sleep(GRACE).await;
            if let Some(hear) = hear.upgrade() {
                let _ = hear.send(Ask::Signal(KILL)).await;
            }
        });
    }
    Ok(())
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
