//! What the queue has decided, taken to the nodes: until they have answered, or are gone.

use super::batch::away::Placing;
use super::clerk::Desk;
use super::errand::{BEGAN, Errand, Failure, KNOWN, Key, Order, send};
use super::{terms, variables};
use crate::daemon::Node;
use pando_queue::{Bytes, Cause, Effect, How, Id, Input, Queue, Usage};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// A node that did not answer is asked again after this.
const AGAIN: Duration = Duration::from_millis(500);

/// What jobs of a desk's queue have as their keeper.
pub fn keeper(node: &Node, desk: &Desk) -> String {
    if desk.term.is_some() { terms::SHARED.to_owned() } else { node.name() }
}

/// Has a node do something as the one who keeps the queue.
pub async fn order(node: &Arc<Node>, desk: &Desk, to: &str, errand: &Errand) -> Result<Vec<u8>, Failure> {
    let Some(term) = desk.term else { return send(node, to, errand).await };
    if desk.is_closed() {
        return Err(Failure { why: "this node keeps the queue no longer".into(), refused: false });
    }
    send(node, to, &Errand::Under(term, Box::new(errand.clone()))).await
}

/// Has it done, beside all else.
pub fn act(node: &Arc<Node>, desk: &Desk, queue: &Queue, effect: Effect, again: bool) {
    let (node, desk, me) = (node.clone(), desk.clone(), keeper(node, desk));
    let first = |id: Id, run: u32| {
        let found = queue.job(id.job)?.running.get(&id.task.unwrap_or(0)).filter(|r| r.run == run)?;
        found.shares.first().map(|share| share.node.clone())
    };
    match effect {
        Effect::Start(id, run, shares) => {
            let Some(job) = queue.job(id.job) else { return };
            let number = job.number_of(id.task.unwrap_or(0));
            let mut order = Order::of(&job.spec, Key { keeper: me, id, run }, number, shares);
            order.environment.extend(environment(&node));
            let cluster = node.identity.cluster.to_string();
            let more = variables::of_cluster(&job.spec, cluster, queue.settings().usual()).into_iter();
            order.environment.extend(more.map(|(name, value)| (Bytes::from(name), Bytes::from(value.as_str()))));
            if job.spec.tied {
                // It only waits there: the directory is where its user's command runs.
                order.directory = Bytes::from("/");
            }
            tokio::spawn(begin(node, desk, order));
        }
        Effect::End(id, run, cause) => {
            let Some(to) = first(id, run) else { return };
            tokio::spawn(end(node, desk, to, Key { keeper: me, id, run }, in_words(&cause)));
        }
        Effect::Warn(id, run) => {
            let warning = queue.job(id.job).and_then(|job| job.spec.signal);
            let (Some(to), Some(warning)) = (first(id, run), warning) else { return };
            let key = Key { keeper: me, id, run };
            let errand = Errand::Warn(key.clone(), warning.signal, warning.script);
            tokio::spawn(known(node, desk, to, errand, key));
        }
        Effect::Suspend(id, run) | Effect::Resume(id, run) => {
            let Some(to) = first(id, run) else { return };
            let key = Key { keeper: me, id, run };
            let errand = match effect {
                _ if again => Errand::Check(key.clone()),
                Effect::Suspend(..) => Errand::Signal(key.clone(), libc::SIGSTOP),
                _ => Errand::Signal(key.clone(), libc::SIGCONT),
            };
            tokio::spawn(known(node, desk, to, errand, key));
        }
        Effect::Place(id, run, at) => {
            let Some(to) = first(id, run) else { return };
            tokio::spawn(place(node, desk, to, Key { keeper: me, id, run }, at));
        }
        // It is stored: see tell.rs.
        Effect::Notify(..) => node.queue.told.notify_one(),
        _ => {}
    }
}

/// What runs at a node, though the queue holds it for over: it was cut off when that came to be.
async fn end_others(node: &Arc<Node>, desk: &Desk, name: &str) {
    let Ok(text) = order(node, desk, name, &Errand::Runs).await else { return };
    let there: Vec<Key> = serde_json::from_slice(&text).unwrap_or_default();
    // Whatever begins is in the queue before its node hears of it, and so before this look.
    let over = move |queue: &Queue| -> Vec<Key> {
        let held = |key: &Key| {
            let job = queue.job(key.id.job);
            job.and_then(|job| job.running.get(&key.id.task.unwrap_or(0))).is_some_and(|run| run.run == key.run)
        };
        there.into_iter().filter(|key| !held(key)).collect()
    };
    for key in desk.look(move |queue, _| over(queue)).await.unwrap_or_default() {
        let _ = order(node, desk, name, &Errand::End(key, "the queue has given it up".into())).await;
    }
}

/// Asks a node of all that should run there, and ends what should not.
pub fn check(node: &Arc<Node>, desk: &Desk, name: String) {
    let (node, desk) = (node.clone(), desk.clone());
    tokio::spawn(async move {
        end_others(&node, &desk, &name).await;
        let me = keeper(&node, &desk);
        let there = move |queue: &Queue| -> Vec<(String, Key)> {
            let first = |run: &pando_queue::Run| run.shares.first().is_some_and(|share| share.node == name);
            let mine = queue.runs().filter(|(_, _, run)| run.ending.is_none() && run.began.is_some() && first(run));
            let key = |id, run: &pando_queue::Run| Key { keeper: me.clone(), id, run: run.run };
            mine.map(|(job, task, run)| (name.clone(), key(job.name_of(task), run))).collect()
        };
        for (to, key) in desk.look(move |queue, _| there(queue)).await.unwrap_or_default() {
            known(node.clone(), desk.clone(), to, Errand::Check(key.clone()), key).await;
        }
    });
}

fn in_words(cause: &Cause) -> String {
    match cause {
        Cause::Cancelled(by) => format!("it was cancelled by {by}"),
        Cause::GivenBack => "it is given back".into(),
        Cause::Timeout => "its time is over (--time)".into(),
        Cause::Deadline => "its deadline has come (--deadline)".into(),
        Cause::NodeFail(node) => format!("node {node} was lost"),
        Cause::Requeue { .. } => "it goes back to the queue".into(),
    }
}

/// Is it still what this run is about to do, or does?
async fn stands(desk: &Desk, key: &Key) -> bool {
    let (id, run) = (key.id, key.run);
    let look = desk.look(move |queue, _| {
        let found = queue.job(id.job).and_then(|job| job.running.get(&id.task.unwrap_or(0)));
        found.is_some_and(|r| r.run == run && r.ending.is_none())
    });
    look.await.unwrap_or(false)
}

async fn begin(node: Arc<Node>, desk: Desk, what: Order) {
    let Some(to) = what.shares.first().map(|share| share.node.clone()) else { return };
    let key = what.key.clone();
    let errand = Errand::Begin(Box::new(what));
    loop {
        match order(&node, &desk, &to, &errand).await {
            Ok(answer) if answer == KNOWN => return,
            Ok(answer) if answer == BEGAN => return desk.say_of(&to, Input::Began(key.id, key.run)),
            // Its daemon has just begun, and does not know yet.
            Ok(_) => {}
            Err(failure) if failure.refused => {
                desk.say(Input::Ended(key.id, key.run, How::NotBegun(failure.why), Usage::default()));
                return;
            }
            // It may have heard it all the same, so it is asked until it answers, or is lost, or the job is to end.
            Err(_) => {}
        }
        sleep(AGAIN).await;
        if !stands(&desk, &key).await {
            return;
        }
    }
}

async fn end(node: Arc<Node>, desk: Desk, to: String, key: Key, why: String) {
    let ended = |how| Input::Ended(key.id, key.run, how, Usage::default());
    loop {
        match order(&node, &desk, &to, &Errand::End(key.clone(), why.clone())).await {
            // It tells when nothing is left.
            Ok(answer) if answer == KNOWN => return,
            // It never begins there now.
            Ok(_) => return desk.say(ended(How::NotBegun(why))),
            Err(failure) if !failure.refused && node.cluster.is_down(&to) => {
                return desk.say(ended(How::NodeLost(to)));
            }
            // It is the next keeper's business.
            Err(_) if desk.is_closed() => return,
            Err(_) => {}
        }
        sleep(AGAIN).await;
    }
}

/// One that should run there, and gets a signal.
async fn known(node: Arc<Node>, desk: Desk, to: String, errand: Errand, key: Key) {
    loop {
        match order(&node, &desk, &to, &errand).await {
            Ok(answer) if answer == KNOWN => return,
            Ok(_) => {
                return desk.say(Input::Ended(key.id, key.run, How::NodeLost(to), Usage::default()));
            }
            Err(_) => {}
        }
        sleep(AGAIN).await;
        if !stands(&desk, &key).await {
            return;
        }
    }
}

/// One that is to compute at a node, until its first node has it there, or says why not.
async fn place(node: Arc<Node>, desk: Desk, to: String, key: Key, at: String) {
    let errand = Errand::Place(key.clone(), at.clone());
    let said = |how| Input::Placed { id: key.id, run: key.run, node: at.clone(), how };
    loop {
        let answer = order(&node, &desk, &to, &errand).await.ok();
        match answer.and_then(|text| serde_json::from_slice(&text).ok()) {
            Some(Placing::Done) => return desk.say(said(Ok(()))),
            Some(Placing::Not(why)) => return desk.say(said(Err(why))),
            // What has become of it is told without being asked.
            Some(Placing::Unknown | Placing::Later) | None => {}
        }
        sleep(AGAIN).await;
        let (id, run, at) = (key.id, key.run, at.clone());
        let goes = desk.look(move |queue, _| {
            let found = queue.job(id.job).and_then(|job| job.running.get(&id.task.unwrap_or(0)));
            found.is_some_and(|r| r.run == run && r.ending.is_none() && r.goes_to() == Some(&at))
        });
        if !goes.await.unwrap_or(false) {
            return;
        }
    }
}

/// Where jobs share CPUs, the steps of each take turns.
fn environment(node: &Node) -> Option<(Bytes, Bytes)> {
    let turns = node.config.queue.turns > 1;
    turns.then(|| (Bytes(b"PANDO_GANG".to_vec()), Bytes(b"1".to_vec())))
}
