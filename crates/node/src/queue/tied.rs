//! Allocations: jobs that somebody waits for at another place (`pando alloc`). His command says all the time that it is still there; when it
//! has said nothing for as long as a lost node may, the job ends. It is the same wait that tells the command how it stands.

use super::ask::Tied;
use super::clerk::Desk;
use crate::daemon::Node;
use pando_queue::{Input, Job, Queue, State};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout_at};

/// Longest wait.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at who is gone.
const LOOK: Duration = Duration::from_secs(1);

/// When each was last heard of.
#[derive(Default)]
pub struct Ties(Mutex<BTreeMap<u64, Instant>>);

impl Ties {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody is there.
    pub fn touch(&self, job: u64) {
        self.all().insert(job, Instant::now());
    }
}

fn stands(queue: &Queue, number: u64) -> Result<Tied, String> {
    let none = || format!("there is no job {number} in the queue: `pando history` shows old ones");
    let job = queue.job(number).ok_or_else(none)?;
    if !job.spec.tied {
        return Err(format!("job {number} is no allocation"));
    }
    let run = job.running.get(&0);
    let state = job.state(0).ok_or_else(none)?;
    Ok(Tied {
        state,
        began: run.is_some_and(|run| run.began.is_some()),
        shares: run.map(|run| run.shares.clone()).unwrap_or_default(),
    })
}

/// How it stands with one, when that is not what is known or it has been waited for long enough.
pub async fn tie(node: &Node, desk: &Desk, job: u64, known: Option<State>, patience_ms: u64) -> Result<Tied, String> {
    let until = tokio::time::Instant::now() + PATIENCE.min(Duration::from_millis(patience_ms));
    let mut changed = desk.changed.clone();
    loop {
        changed.mark_unchanged();
        let tied = desk.look(move |queue, _| stands(queue, job)).await??;
        node.queue.ties.touch(job);
        // Running is what it is for the asker when its nodes are ready.
        let news = known != Some(tied.state) && (tied.state != State::Running || tied.began);
        if news || timeout_at(until, changed.changed()).await.is_err() {
            return Ok(tied);
        }
    }
}

/// Ends those whose users are gone, until the daemon ends or this node keeps the queue no longer.
pub async fn keep(node: Arc<Node>, desk: Desk) {
    let lost_after = Duration::from_millis(node.config.queue.lost_after_ms);
    // Nobody could say anything while there was no daemon.
    let here = desk.look(|queue, _| {
        let mine = |job: &&Job| job.spec.tied && !job.is_over();
        queue.jobs().filter(mine).map(|job| job.id).collect::<Vec<_>>()
    });
    here.await.unwrap_or_default().into_iter().for_each(|job| node.queue.ties.touch(job));
    while !desk.is_closed() {
        sleep(LOOK).await;
        let silent = |(_, heard): &(&u64, &Instant)| heard.elapsed() > lost_after;
        let gone: Vec<u64> = node.queue.ties.all().iter().filter(silent).map(|(job, _)| *job).collect();
        for job in gone {
            node.queue.ties.all().remove(&job);
            let is_there = desk.look(move |queue, _| queue.job(job).is_some_and(|job| !job.is_over()));
            if is_there.await.unwrap_or(false) {
                tracing::warn!("queue: nobody has said anything of allocation {job} for {lost_after:?}: it ends");
                desk.say(Input::GiveBack(job));
            }
        }
    }
}
