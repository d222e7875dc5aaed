//! Tells the queue which nodes are there: what gossip knows of them.

use super::clerk::Desk;
use super::{deliver, has};
use crate::daemon::Node;
use crate::views::{self, Liveness};
use pando_queue::{Input, Node as Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks.
const EACH: Duration = Duration::from_millis(300);
/// A node whose daemon was begun anew, unseen by gossip, may have something else: it is asked so often.
const ASKS_EACH: Duration = Duration::from_secs(300);

/// Until the daemon ends, or this node keeps the queue no longer.
pub async fn keep(node: Arc<Node>, desk: Desk) {
    let lost_after = Duration::from_millis(node.config.queue.lost_after_ms);
    // Nodes on which something runs have been there, even if this daemon has not seen them yet.
    let there = desk
        .look(|queue, _| queue.runs().flat_map(|(_, _, run)| run.holds()).map(|held| held.node.to_owned()).collect());
    let there: BTreeSet<String> = there.await.unwrap_or_default();
    let mut heard: BTreeMap<String, (Instant, Option<Seen>)> =
        there.into_iter().map(|name| (name, (Instant::now(), None))).collect();
    let mut up = BTreeMap::new();
    while !desk.is_closed() {
        for found in node.cluster.nodes().into_iter().filter(|n| n.state == Liveness::Up && (n.here || n.cpus > 0.0)) {
            let now = about(&found, has::of(&node, &found.name), node.config.queue.turns);
            let before = heard.insert(now.name.clone(), (Instant::now(), Some(now.clone())));
            if before.and_then(|(_, seen)| seen).as_ref() != Some(&now) {
                desk.say(Input::NodeSeen(now));
            }
        }
        // What ran at one that was away may be no more, or what was over may run.
        for found in node.cluster.nodes() {
            match found.state == Liveness::Up {
                true if !up.contains_key(&found.name) => {
                    up.insert(found.name.clone(), Instant::now());
                    has::ask(&node, found.name.clone());
                    deliver::check(&node, &desk, found.name);
                }
                true => {
                    let asked = up.get_mut(&found.name).filter(|when| when.elapsed() > ASKS_EACH);
                    if let Some(asked) = asked {
                        *asked = Instant::now();
                        has::ask(&node, found.name);
                    }
                }
                false => _ = up.remove(&found.name),
            }
        }
        // Who hears nobody of many is cut off himself, most likely: what runs there goes on.
        let others = node.cluster.nodes().into_iter().filter(|n| !n.here).map(|n| n.state != Liveness::Down);
        let others: Vec<bool> = others.collect();
        if others.len() > 1 && others.iter().all(|up| !up) {
            heard.values_mut().for_each(|(when, _)| *when = Instant::now());
        }
        // A daemon that is started again in between has lost nothing.
        let lost: Vec<String> =
            heard.iter().filter(|(_, (when, _))| when.elapsed() > lost_after).map(|(name, _)| name.clone()).collect();
        for name in lost {
            heard.remove(&name);
            desk.say(Input::NodeLost(name));
        }
        tokio::time::sleep(EACH).await;
    }
}

fn about(node: &views::Node, has: has::Has, turns: u32) -> Seen {
    Seen {
        name: node.name.clone(),
        // A part of a CPU is one for jobs: a node without any would take none.
        cpus: (node.cpus.floor() as u32).max(1).saturating_mul(turns.max(1)),
        memory: node.memory >> 20,
        // Who is full of guests, or whose owner works there, takes no batch jobs either.
        drained: !matches!(node.standing.as_str(), "open" | "full" | ""),
        features: has.features,
        gres: has.gres,
        busy: has.busy,
    }
}
