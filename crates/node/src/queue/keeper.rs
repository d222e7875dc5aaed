//! Which node keeps the queue, and the way there: a node for good, or one of several, which may be another one a moment later.

use super::ask::Ask;
use super::errand::{self, Errand, Failure, Key};
use super::office::keeps;
use super::terms::SHARED;
use crate::daemon::Node;
use crate::questions;
use crate::views::Liveness;
use pando_wire::message::Question;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Somebody else keeps the queue within this, or whoever asked is told that nobody does.
const CHANGES: Duration = Duration::from_secs(60);
/// Between two attempts, and two looks at whether the one who was asked is still there.
const AGAIN: Duration = Duration::from_millis(200);

fn forget(node: &Node) {
    *node.queue.keeper.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// The node that keeps the queue: as configured, or asked of all that may.
async fn keeper(node: &Arc<Node>) -> Result<String, String> {
    if keeps(node) {
        return Ok(node.name());
    }
    let rules = &node.config.queue;
    if let Some(name) = &rules.node {
        return Ok(name.clone());
    }
    let known = || node.queue.keeper.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known().clone();
    if let Some(name) = found {
        return Ok(name);
    }
    let may = |name: &String| rules.nodes.is_empty() || rules.nodes.contains(name);
    let mut asked = JoinSet::new();
    for other in node.cluster.nodes().into_iter().filter(|n| n.state == Liveness::Up && !n.here && may(&n.name)) {
        let node = node.clone();
        asked.spawn(
            async move { questions::ask(&node, &other.name, Question::Queue).await.map(|term| (other.name, term)) },
        );
    }
    while let Some(answer) = asked.join_next().await {
        let Ok(Ok((name, term))) = answer else { continue };
        // One that was overtaken may not know it yet.
        if term.parse().map_or(true, |term| node.queue.terms.hear(term, &name).is_ok()) {
            *known() = Some(name.clone());
            return Ok(name);
        }
    }
    Err(match rules.is_shared() {
        true => {
            "no node that is up keeps the queue: those that may ([queue] nodes) say in their logs why, and need etcd"
                .into()
        }
        false => {
            "no node that is up keeps the queue: start the one that made the cluster, or name one ([queue] node)".into()
        }
    })
}

/// Until nothing more is to be expected of that node.
async fn gone(node: &Node, to: &str) -> String {
    let before = node.queue.terms.latest().map(|(term, _)| term);
    loop {
        sleep(AGAIN).await;
        if node.cluster.is_down(to) {
            return format!("node {to} is down");
        }
        if let Some((_, now)) = node.queue.terms.latest().filter(|(term, name)| Some(*term) > before && name != to) {
            return format!("node {now} keeps the queue now");
        }
    }
}

async fn send_to(node: &Arc<Node>, to: &str, errand: &Errand) -> Result<Vec<u8>, Failure> {
    let sent = match node.config.queue.is_shared() && to != node.name() {
        false => errand::send(node, to, errand).await,
        true => tokio::select! {
            answer = errand::send(node, to, errand) => answer,
            why = gone(node, to) => Err(Failure { why, refused: false }),
        },
    };
    if sent.is_err() {
        // Perhaps another one does by now.
        forget(node);
    }
    sent
}

/// Tells the one who keeps a job's queue something of the job.
pub async fn tell(node: &Arc<Node>, key: &Key, errand: &Errand) -> Result<Vec<u8>, Failure> {
    match key.keeper == SHARED {
        true => say(node, errand).await,
        false => errand::send(node, &key.keeper, errand).await,
    }
}

/// Tells whoever keeps the queue now.
pub async fn say(node: &Arc<Node>, errand: &Errand) -> Result<Vec<u8>, Failure> {
    let to = keeper(node).await.map_err(|why| Failure { why, refused: false })?;
    send_to(node, &to, errand).await
}

/// What a user here asks of the queue, passed on. While one node keeps the queue no longer and the next not yet, it waits; what may not come twice is
/// asked again only where it was not heard.
pub async fn passed_on(node: &Arc<Node>, user: &str, text: Vec<u8>) -> Result<Vec<u8>, String> {
    let errand = Errand::Ask { user: user.to_owned(), text };
    let until = Instant::now() + CHANGES;
    loop {
        let (why, is_undone) = match keeper(node).await {
            Err(why) => (why, true),
            Ok(to) => match send_to(node, &to, &errand).await {
                Ok(answer) => return Ok(answer),
                Err(failure) if failure.is_elsewhere() => {
                    (format!("the queue can't be asked: node {to} keeps it no longer"), true)
                }
                Err(failure) if failure.refused => return Err(failure.why),
                Err(failure) => (format!("the queue can't be asked: {}", failure.why), false),
            },
        };
        let may_again = || is_undone || matches!(&errand, Errand::Ask { text, .. } if may_come_twice(text));
        if !node.config.queue.is_shared() || Instant::now() > until || !may_again() {
            return Err(why);
        }
        sleep(AGAIN).await;
    }
}

fn may_come_twice(text: &[u8]) -> bool {
    serde_json::from_slice::<Ask>(text).is_ok_and(|ask| ask.may_come_twice())
}
