//! Tells the queue which nodes are there: what gossip knows of them.

use super::clerk::Desk;
use super::{deliver, has};
use crate::daemon::Node;
use crate::views::{self, Liveness};
use pando_queue::{Input, Node as Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
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
    let (mut watch, mut absent) = (Watch::default(), None);
    // What each had when it was last there: members forget what one of them had that is away.
    let mut had: BTreeMap<String, Seen> = BTreeMap::new();
    while !desk.is_closed() {
        for found in node.cluster.nodes().into_iter().filter(|n| n.state == Liveness::Up && (n.here || n.cpus > 0.0)) {
            let now = about(&node, &found);
            had.insert(now.name.clone(), now.clone());
            let before = heard.insert(now.name.clone(), (Instant::now(), Some(now.clone())));
            if before.and_then(|(_, seen)| seen).as_ref() != Some(&now) {
                desk.say(Input::NodeSeen(now));
            }
        }
        // Those that are not heard any more get nothing new, long before they are given up.
        for found in node.cluster.nodes().into_iter().filter(|n| n.state == Liveness::Down) {
            if let Some((_, Some(seen))) =
                heard.get_mut(&found.name).filter(|(_, seen)| seen.as_ref().is_some_and(|s| !s.silent))
            {
                seen.silent = true;
                desk.say(Input::NodeSeen(seen.clone()));
            }
        }
        watch.look(&node, &desk);
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
        let away =
            node.cluster.nodes().into_iter().filter(|n| heard.get(&n.name).is_none_or(|(_, seen)| seen.is_none()));
        let last = |now: Seen| had.get(&now.name).filter(|_| now.cpus == 0).cloned().unwrap_or(now);
        let away: Vec<Seen> = away.map(|n| last(about(&node, &n))).collect();
        if absent.as_ref() != Some(&away) {
            desk.say(Input::Absent(away.clone()));
            absent = Some(away);
        }
        tokio::time::sleep(EACH).await;
    }
}

/// Who comes and goes.
#[derive(Default)]
struct Watch {
    /// Those that are there, and when they were asked what they have.
    up: BTreeMap<String, Instant>,
    /// When they were last heard.
    last: BTreeMap<String, Instant>,
}

impl Watch {
    fn look(&mut self, node: &Arc<Node>, desk: &Desk) {
        let there = || node.queue.there.lock().unwrap_or_else(PoisonError::into_inner);
        for found in node.cluster.nodes() {
            let name = found.name;
            if found.state != Liveness::Up {
                self.up.remove(&name);
                there().remove(&name);
                if let Some(last) = self.last.remove(&name) {
                    desk.say(Input::NodeHeard(name, last.elapsed().as_millis() as u64));
                }
                continue;
            }
            let ago = Duration::from_millis(found.heard_ms.unwrap_or(0));
            self.last.insert(name.clone(), Instant::now().checked_sub(ago).unwrap_or_else(Instant::now));
            match self.up.get_mut(&name) {
                // What ran at one that was away may be no more, or what was over may run.
                None => {
                    self.up.insert(name.clone(), Instant::now());
                    there().insert(name.clone(), tokio::time::Instant::now());
                    has::ask(node, name.clone());
                    deliver::check(node, desk, name);
                }
                Some(asked) if asked.elapsed() > ASKS_EACH => {
                    *asked = Instant::now();
                    // What is lost later was not lost when it was away before.
                    desk.say(Input::NodeHeard(name.clone(), 0));
                    has::ask(node, name);
                }
                Some(_) => {}
            }
        }
    }
}

fn about(me: &Node, node: &views::Node) -> Seen {
    let (has, turns) = (has::of(me, &node.name), me.config.queue.turns);
    Seen {
        name: node.name.clone(),
        // A part of a CPU is one for jobs: a node without any would take none. One that was never heard has nobody knows how many.
        cpus: if node.cpus > 0.0 { (node.cpus.floor() as u32).max(1).saturating_mul(turns.max(1)) } else { 0 },
        vague: !has::is_known(me, &node.name),
        memory: node.memory >> 20,
        // Who is full of guests, or whose owner works there, takes no batch jobs either.
        drained: !matches!(node.standing.as_str(), "open" | "full" | ""),
        features: has.features,
        gres: has.gres,
        silent: false,
        busy: has.busy,
    }
}
