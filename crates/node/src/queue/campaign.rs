//! Which of several nodes keeps the queue: the one whose name is in etcd with a lease that lives. The others look at it and copy the history; when there is no name
//! any more, each tries to be the one who writes the next.

use super::clerk::Desk;
use super::etcd::{Etcd, Wrong, made_at, put_leased};
use super::journal::Journal;
use super::office;
use super::store::{Place, Store};
use super::tenure::{Tenure, ends};
use crate::daemon::Node;
use crate::views::{Event, Liveness};
use serde_json::Value;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};

/// Between two looks at who keeps it.
const LOOK: Duration = Duration::from_millis(300);
/// Between two copies of what is new in the history.
const COPIES: Duration = Duration::from_secs(10);
/// What can't be (a file of the configuration is not there) is tried again after this.
const LATER: Duration = Duration::from_secs(10);
/// What is older than this etcd need not remember.
const COMPACTS: Duration = Duration::from_secs(300);
/// A lease that could not be asked for is asked for again after this.
const AGAIN: Duration = Duration::from_millis(200);

/// Where a node tries.
struct Seat {
    node: Arc<Node>,
    place: Arc<Place>,
    /// A way of its own: long writes are not waited for.
    etcd: Arc<Etcd>,
    /// How long a lease lives.
    lives: Duration,
    /// When the history was copied, and since when nobody keeps the queue.
    copied: Option<Instant>,
    vacant: Option<Instant>,
}

/// Begins where the configuration says that this node may keep the queue. For as long as the daemon lives.
pub fn start(node: &Arc<Node>) {
    let rules = &node.config.queue;
    let is_named = rules.nodes.contains(&node.name());
    match rules.etcd.endpoints.is_empty() {
        false if rules.nodes.is_empty() || is_named => drop(tokio::spawn(campaign(node.clone()))),
        true if is_named => tracing::warn!(
            "queue: this node is to keep it ([queue] nodes) and can't: name etcd's members ([queue.etcd] endpoints)"
        ),
        _ => {}
    }
}

async fn campaign(node: Arc<Node>) {
    let mut seat = loop {
        match Seat::new(&node) {
            Ok(seat) => break seat,
            Err(why) => tracing::error!("queue: {why}"),
        }
        sleep(LATER).await;
    };
    let mut said = String::new();
    loop {
        match seat.look().await {
            Ok(Some((lease, tenure))) => {
                said.clear();
                seat.keep(lease, tenure).await;
            }
            Ok(None) => said.clear(),
            Err(why) if why == said => {}
            Err(why) => {
                tracing::warn!("queue: {why}");
                said = why;
            }
        }
        sleep(LOOK).await;
    }
}

impl Seat {
    fn new(node: &Arc<Node>) -> Result<Seat, String> {
        let config = &node.config.queue.etcd;
        let prefix = format!("{}/{}", config.prefix, node.identity.cluster);
        let place = Place { etcd: Arc::new(Etcd::new(config)?), prefix, state: node.place.state.clone() };
        let (place, etcd) = (Arc::new(place), Arc::new(Etcd::new(config)?));
        let lives = Duration::from_secs(config.lease_ms.div_ceil(1000));
        Ok(Seat { node: node.clone(), place, etcd, lives, copied: None, vacant: None })
    }

    /// Who keeps it? If nobody does, this node may.
    async fn look(&mut self) -> Result<Option<(i64, Tenure)>, String> {
        let (key, patience) = (self.place.leader(), self.lives / 4);
        let found = self.etcd.get(&key, patience).await.map_err(|e| e.to_string())?;
        if let Some(pair) = found.kvs.first() {
            self.vacant = None;
            let (term, name) = (u64::try_from(pair.create_revision).unwrap_or(0), String::from_utf8_lossy(&pair.value));
            // An answer of a moment ago may come late.
            let _ = self.node.queue.terms.hear(term, &name);
            if self.copied.is_none_or(|when| when.elapsed() > COPIES) {
                self.copied = Some(Instant::now());
                self.place.copy().await.map_err(|e| e.to_string())?;
            }
            return Ok(None);
        }
        let vacant = *self.vacant.get_or_insert_with(Instant::now);
        if self.node.balancing.is_drained() && vacant.elapsed() < self.lives {
            // Others first.
            return Ok(None);
        }
        let asked = std::time::Instant::now();
        let lease = self.etcd.grant(self.lives.as_secs(), patience).await.map_err(|e| e.to_string())?;
        let compare = Value::from(vec![made_at(&key, 0)]);
        let name = self.node.name();
        let writes = Value::from(vec![put_leased(&key, name.as_bytes(), lease.id)]);
        match self.etcd.txn(compare, writes, Value::Array(Vec::new()), patience).await {
            Ok(txn) if txn.succeeded => {
                let until = ends(asked, self.lives.min(Duration::from_secs(u64::try_from(lease.ttl).unwrap_or(0))));
                let term = u64::try_from(txn.header.revision).unwrap_or(0);
                Ok(Some((lease.id, Tenure::new(term, key, until))))
            }
            other => {
                let _ = self.etcd.revoke(lease.id, patience).await;
                other.map(|_| None).map_err(|e| e.to_string())
            }
        }
    }

    /// Keeps the queue for as long as that can be.
    async fn keep(&mut self, lease: i64, tenure: Tenure) {
        let mut pause = LOOK;
        let stays = tokio::spawn(stay(
            self.etcd.clone(),
            lease,
            tenure.clone(),
            self.lives,
            self.node.config.queue.etcd.compact,
        ));
        match self.begin(&tenure).await {
            Ok(desk) => {
                let text = format!("this node keeps the queue of batch jobs (term {})", tenure.term);
                self.node.events.say(Event::new("queue", text));
                self.until_over(&desk, &tenure).await;
                tenure.end();
                desk.stop();
                desk.closed().await;
                *self.node.queue.desk.lock().unwrap_or_else(PoisonError::into_inner) = None;
                self.node.queue.left.notify_waiters();
                self.node.events.say(Event::new("queue", "this node keeps the queue of batch jobs no longer"));
            }
            Err(why) => {
                tracing::error!("queue: {why}");
                tenure.end();
                pause = LATER;
            }
        }
        stays.abort();
        // Nothing is decided here any more, so the next one need not wait for its end.
        let _ = self.etcd.revoke(lease, self.lives / 4).await;
        // Perhaps another one can, or is to.
        sleep(pause).await;
    }

    async fn begin(&self, tenure: &Tenure) -> Result<Desk, String> {
        let (place, tenure_, runtime) = (self.place.clone(), tenure.clone(), Handle::current());
        let opened = tokio::task::spawn_blocking(move || Store::open(place, tenure_, runtime)).await;
        let store = opened.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        // Its records are read there, too.
        let node = self.node.clone();
        let begins = move || office::begin(&node, Journal::Shared(Box::new(store)));
        let desk = tokio::task::spawn_blocking(begins).await.map_err(|e| e.to_string())??;
        // A term of one's own is heard of first.
        self.node.queue.terms.hear(tenure.term, &self.node.name())?;
        *self.node.queue.desk.lock().unwrap_or_else(PoisonError::into_inner) = Some(desk.clone());
        Ok(desk)
    }

    async fn until_over(&self, desk: &Desk, tenure: &Tenure) {
        while tenure.holds() && !desk.is_closed() {
            let until = Instant::from_std(tenure.until()).min(Instant::now() + LOOK);
            tokio::select! {
                () = desk.closed() => return,
                () = self.node.queue.leaves.notified() => return,
                () = sleep_until(until) => {}
            }
            // Whoever deletes the leader's key has another one begin while this lease lives.
            let latest = self.node.queue.terms.latest();
            let is_overtaken = latest.is_some_and(|(term, _)| term > tenure.term);
            if is_overtaken || self.node.balancing.is_drained() && self.another_may() {
                return;
            }
        }
    }

    /// One that is up, and not drained.
    fn another_may(&self) -> bool {
        let rules = &self.node.config.queue;
        let may = |name: &String| rules.nodes.contains(name);
        let mut others = self.node.cluster.nodes().into_iter().filter(|n| !n.here && may(&n.name));
        others.any(|n| n.state == Liveness::Up && matches!(n.standing.as_str(), "open" | "full" | ""))
    }
}

/// Has the lease live on, until it does not.
async fn stay(etcd: Arc<Etcd>, lease: i64, tenure: Tenure, lives: Duration, compacts: bool) {
    let mut old: Option<(Instant, i64)> = None;
    let mut pause = lives / 3;
    while tenure.holds() {
        sleep(pause).await;
        let asked = std::time::Instant::now();
        let kept = match is_there(&etcd, &tenure, lives / 4).await {
            Ok(true) => etcd.keep_alive(lease, lives / 4).await,
            Ok(false) => {
                tracing::warn!("queue: somebody else has changed or removed the name of the queue's keeper in etcd");
                tenure.end();
                return;
            }
            Err(wrong) => Err(wrong),
        };
        pause = match kept {
            Ok(kept) if kept.ttl > 0 => {
                tenure.prolong(ends(asked, lives.min(Duration::from_secs(u64::try_from(kept.ttl).unwrap_or(0)))));
                let (when, revision) = *old.get_or_insert_with(|| (Instant::now(), kept.header.revision));
                if compacts && when.elapsed() > COMPACTS {
                    old = None;
                    // Somebody else may have done it.
                    let _ = etcd.compact(revision, lives / 4).await;
                }
                lives / 3
            }
            Err(Wrong::Away(why)) => {
                tracing::warn!("queue: {why}");
                AGAIN
            }
            Ok(_) | Err(Wrong::Refused(_)) => {
                tenure.end();
                return;
            }
        };
    }
}

/// Is the leader's key the one that this tenure made? A lease that lives says nothing of it.
async fn is_there(etcd: &Etcd, tenure: &Tenure, patience: Duration) -> Result<bool, Wrong> {
    let found = etcd.get(&tenure.key, patience).await?;
    Ok(found.kvs.first().is_some_and(|pair| {
        let (made, changed) = (u64::try_from(pair.create_revision), u64::try_from(pair.mod_revision));
        (made, changed) == (Ok(tenure.term), Ok(tenure.term))
    }))
}
