//! What each node has for batch jobs besides CPUs and memory, and what others use of it: a node knows that of itself. The queue's node asks when one comes up,
//! and now and then; from the first question on a node tells when something changes.

use super::batch;
use super::errand::{Errand, send};
use crate::config::LONGEST_WORD;
use crate::daemon::Node;
use crate::views::Drain;
use pando_queue::gres::{Gres, MOST_KINDS, SCRATCH, SCRATCH_HELD};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Jobs that end within this are not told of.
const SETTLES: Duration = Duration::from_millis(300);
/// Of one that another daemon did not take it tells again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// Most of anything that another node may say.
const MOST: usize = 65;
/// Bytes of why a node is drained, and who wants it.
const LONGEST_REASON: usize = 1024;

/// What one has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Has {
    /// For `--constraint`.
    pub features: Vec<String>,
    /// For `--gres`.
    pub gres: Vec<Gres>,
    /// CPUs that ranks of parallel jobs use which are no steps of batch jobs.
    pub busy: u32,
    /// It takes no jobs, and why, if somebody has said that.
    pub drain: Option<Drain>,
}

impl Has {
    fn is_sound(&self) -> bool {
        let words = self.features.iter().chain(self.gres.iter().map(|g| &g.kind));
        let reason = self.drain.as_ref().map_or(0, |drain| drain.reason.len() + drain.by.len());
        reason <= LONGEST_REASON
            && self.features.len() <= MOST
            && self.gres.len() <= MOST_KINDS
            && words.clone().all(|w| w.len() <= LONGEST_WORD)
    }
}

/// What is known of all, at the queue's node; at others, who has asked, and what he was told.
#[derive(Default)]
pub struct Known {
    all: Mutex<BTreeMap<String, Has>>,
    told: Mutex<Option<(String, Has)>>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of a node.
pub fn of(node: &Node, name: &str) -> Has {
    match name == node.name() {
        true => here(node),
        false => locked(&node.queue.known.all).get(name).cloned().unwrap_or_default(),
    }
}

/// Has it said what it has?
pub fn is_known(node: &Node, name: &str) -> bool {
    name == node.name() || locked(&node.queue.known.all).contains_key(name)
}

/// What this one has.
fn here(node: &Node) -> Has {
    let about = &node.config.node;
    let (mut features, mut gres) = (about.features.clone(), about.gres());
    if let Some(place) = batch::scratch::place(node) {
        gres.push(Gres { kind: SCRATCH.into(), count: place.total_mb });
        features.extend(place.held.then(|| SCRATCH_HELD.to_owned()));
    }
    Has { features, gres, busy: node.jobs.outside(), drain: node.balancing.drained() }
}

/// Nodes that are drained, as far as they have said so.
pub fn drains(node: &Node) -> BTreeMap<String, Drain> {
    let mut all: BTreeMap<String, Drain> = locked(&node.queue.known.all)
        .iter()
        .filter_map(|(name, has)| Some((name.clone(), has.drain.clone()?)))
        .collect();
    all.extend(node.balancing.drained().map(|drain| (node.name(), drain)));
    all
}

/// The node that keeps the queue asks.
pub fn asked(node: &Node, peer: &str) -> Has {
    let has = here(node);
    *locked(&node.queue.known.told) = Some((peer.to_owned(), has.clone()));
    has
}

/// A node says what it has.
pub fn heard(node: &Node, peer: &str, has: Has) -> Result<(), String> {
    match has.is_sound() {
        true => _ = locked(&node.queue.known.all).insert(peer.to_owned(), has),
        false => return Err("that is more than a node has".into()),
    }
    Ok(())
}

/// Asks one.
pub fn ask(node: &Arc<Node>, name: String) {
    let node = node.clone();
    tokio::spawn(async move {
        if name == node.name() {
            return;
        }
        let answer = send(&node, &name, &Errand::Has).await;
        let has = answer.ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(Err(why)) = has.map(|has| heard(&node, &name, has)) {
            tracing::debug!("queue: node {name}: {why}");
        }
    });
}

/// Until the daemon ends: tells what has changed to whom has asked.
pub async fn keep(node: Arc<Node>) {
    loop {
        tokio::select! {
            () = node.jobs.outside_changed() => {}
            () = node.balancing.drain_changed() => {}
        }
        tokio::time::sleep(SETTLES).await;
        let now = here(&node);
        // Another one may ask meanwhile, and be who keeps the queue by then.
        let asker =
            || locked(&node.queue.known.told).clone().filter(|(_, told)| *told != now).map(|(keeper, _)| keeper);
        while let Some(keeper) = asker() {
            match send(&node, &keeper, &Errand::Tells(here(&node))).await {
                Ok(_) => *locked(&node.queue.known.told) = Some((keeper, now.clone())),
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}
