//! The head of a gang has its place in the matrix as long as it runs; whoever orders next is told of it again.

use super::ask::{self, About, Ask};
use super::lock;
use super::office::manager;
use crate::daemon::Node;
use crate::fabric;
use crate::queue::ask::Ask as Question;
use crate::queue::errand::{Errand, send};
use crate::queue::gangs::TurnTerms;
use crate::queue::keeper::passed_on;
use crate::views::Liveness;
use pando_gang::{Gang, Place, Shape};
use pando_launch::{Request, Share};
use pando_queue::Id;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Whoever orders answers within this.
const PATIENCE: Duration = Duration::from_secs(5);
/// A node that is up is in the fabric within this, or it is not waited for.
const COMES_WITHIN: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(20);
/// So long the queue is waited for by a step that can do without what it says.
const TERMS_WITHIN: Duration = Duration::from_secs(2);

/// Those of this node's heads.
#[derive(Default)]
pub struct Leases {
    all: BTreeMap<u64, Held>,
    /// These have ended, and nobody knows it yet.
    ended: BTreeSet<u64>,
}

#[derive(Clone)]
struct Held {
    gang: Gang,
    about: About,
    places: Vec<Place>,
    by: By,
}

/// Who knows of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
struct By {
    /// The node that orders.
    manager: String,
    /// In this life of its, and in this one of ours: who was away is forgotten.
    lives: (u64, u64),
}

fn known(node: &Node) -> Option<By> {
    let (manager, life) = manager(node)?;
    Some(By { manager, lives: (life, fabric::life_of(node)?) })
}

/// A place in the matrix, or before it in the line; given back when this is dropped.
pub struct Lease {
    node: Arc<Node>,
    number: u64,
    about: About,
    terms: TurnTerms,
    urgent: bool,
    since: Instant,
    places: Vec<Place>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut leases = lock(&self.node.gangs.leases);
        leases.all.remove(&self.number);
        leases.ended.insert(self.number);
        drop(leases);
        let node = self.node.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { look(&node).await });
        }
    }
}

impl Lease {
    /// Its job's number.
    pub fn job(&self) -> u64 {
        self.about.job
    }

    /// What the user wants, with the nodes that the matrix has chosen.
    pub fn placed(&self, request: &Request) -> Request {
        let each = request.cpus.unwrap_or(1).max(1);
        let slots = self.places.iter().map(|p| (p.node.clone(), (p.cpus.len() / usize::from(each)) as u32)).collect();
        let (nodes, per_node, among, exclude) = (None, None, Vec::new(), Vec::new());
        Request { slots, nodes, per_node, among, exclude, oversubscribe: false, ..request.clone() }
    }

    /// For the order: the CPUs of each of its places.
    pub fn gang(&self, shares: &[Share], each: u16) -> pando_launch::Gang {
        let of = |share: &Share| {
            let place = self.places.iter().find(|p| p.node == share.node);
            let cpus = place.map(|p| p.cpus.clone()).unwrap_or_default();
            cpus.into_iter().take(share.ranks as usize * usize::from(each)).collect()
        };
        pando_launch::Gang { number: self.number, cpus: shares.iter().map(of).collect() }
    }
}

fn shape(node: &Node, request: &Request, without: &[String]) -> Result<Shape, String> {
    let cpus = request.cpus.unwrap_or(1).max(1);
    let banned = |name: &String| request.exclude.contains(name) || without.contains(name);
    if !request.slots.is_empty() {
        let mut left = request.ranks.unwrap_or(u32::MAX);
        let each = |(node, slots): &(String, u32)| {
            let ranks = left.min(*slots);
            left -= ranks;
            let cpus = u16::try_from(u64::from(ranks) * u64::from(cpus));
            cpus.map(|cpus| (node.clone(), cpus)).map_err(|_| format!("{ranks} ranks at node {node} are too many"))
        };
        let all: Result<Vec<_>, _> = request.slots.iter().filter(|(n, _)| !banned(n)).map(each).collect();
        return Ok(Shape::Fixed(all?.into_iter().filter(|(_, cpus)| *cpus > 0).collect()));
    }
    let by_nodes = || request.nodes.unwrap_or(1).saturating_mul(request.per_node.unwrap_or(1));
    let ranks = request.ranks.unwrap_or_else(by_nodes);
    let open = |n: &crate::views::Node| n.state == Liveness::Up && ["open", "full", ""].contains(&n.standing.as_str());
    let taken = |name: &String| !banned(name) && (request.among.is_empty() || request.among.contains(name));
    let all = node.cluster.nodes().into_iter().filter(open);
    let among: Vec<String> = all.map(|n| n.name).filter(taken).collect();
    if among.is_empty() {
        return Err("no node is left that takes ranks: see `pando nodes`, --nodelist and --exclude".into());
    }
    // A user who says how many nodes wants so many, and not fewer.
    let even = request.nodes.map(|nodes| ranks.div_ceil(nodes.max(1)));
    let per_node = request.per_node.into_iter().chain(even).min();
    Ok(Shape::Free { ranks, cpus, nodes: request.nodes, among, per_node })
}

/// Who orders, when all nodes that are up have come into the fabric: those that have just begun are there in a moment.
async fn orders(node: &Arc<Node>) -> Result<By, String> {
    let begun = Instant::now();
    loop {
        let members = fabric::members(node);
        let mut up = node.cluster.nodes().into_iter().filter(|n| n.state == Liveness::Up).map(|n| n.name);
        let late = begun.elapsed() > COMES_WITHIN;
        let all = late || up.all(|name| members.contains_key(&name));
        match known(node).filter(|_| all) {
            Some(by) => return Ok(by),
            None if late => {
                return Err("this node is not in the fabric, which gangs need: `pando fabric` says why".into());
            }
            None => sleep(AGAIN).await,
        }
    }
}

/// What came of a wish.
pub enum Came {
    /// It has its place.
    Placed,
    /// There is none now, or nobody can say, and why.
    NotNow(String),
    /// There won't be one, and why.
    Never(String),
}

/// Above whom are gangs of this quality of service (`[queue.rules.qualities]`), and how long are turns of this batch job's steps (its partition's
/// `quantum_ms`)? The node that keeps the queue knows, and who may use what.
///
/// # Errors
///
/// There is no such quality, it is not for this user, or nobody can say.
pub async fn terms(node: &Arc<Node>, user: &str, quality: Option<&str>, job: Option<Id>) -> Result<TurnTerms, String> {
    let usual = || TurnTerms { level: node.config.queue.rules.quality(None).level, turn_us: 0 };
    if quality.is_none() && job.is_none() {
        return Ok(usual());
    }
    let question = Question::Turns { quality: quality.map(str::to_owned), job };
    let question = serde_json::to_vec(&question).map_err(|e| e.to_string())?;
    let patience = if quality.is_some() { Duration::MAX } else { TERMS_WITHIN };
    let answer = timeout(patience, passed_on(node, user, question)).await;
    match answer.unwrap_or_else(|_| Err("the node that keeps the queue does not answer".into())) {
        Ok(answer) => serde_json::from_slice(&answer).map_err(|e| format!("the queue says what makes no sense: {e}")),
        // A step runs, whether the queue is there or not.
        Err(_) if quality.is_none() => Ok(usual()),
        Err(why) => Err(why),
    }
}

impl Lease {
    /// For a gang that has no place yet. `urgent`: somebody sits before it and waits.
    pub fn wanted(node: &Arc<Node>, about: About, terms: TurnTerms, urgent: bool) -> Lease {
        let mut bytes = [0; 8];
        pando_wire::token::random(&mut bytes);
        let (node, number, places) = (node.clone(), u64::from_le_bytes(bytes), Vec::new());
        Lease { node, number, about, terms, urgent, since: Instant::now(), places }
    }

    /// Asks for a place for what the user wants, at none of `without`. Who gets none now is in the line, if he goes on asking.
    pub async fn ask(&mut self, request: &Request, without: &[String]) -> Came {
        let node = self.node.clone();
        if request.pool {
            return Came::Never("tasks of a pool do not take turns: leave --gang out".into());
        }
        let shape = match shape(&node, request, without) {
            Ok(shape) => shape,
            Err(why) => return Came::Never(why),
        };
        let by = match orders(&node).await {
            Ok(by) => by,
            Err(why) => return Came::NotNow(why),
        };
        let TurnTerms { level, turn_us } = self.terms;
        let gang = Gang { job: self.number, shape, urgent: self.urgent, level: level.into(), turn_us };
        let waited_ms = self.since.elapsed().as_millis() as u64;
        // Even an answer that is not heard may give a place: it is given back with this.
        let ask = Ask::Arrive(gang.clone(), self.about.clone(), waited_ms);
        match say(&node, &by.manager, &ask).await.map(|said| serde_json::from_slice(&said)) {
            Ok(Ok(ask::Came::Placed(placed))) => {
                self.places.clone_from(&placed.places);
                let held = Held { gang, about: self.about.clone(), places: placed.places, by };
                lock(&node.gangs.leases).all.insert(self.number, held);
                Came::Placed
            }
            Ok(Ok(ask::Came::Full(why))) => Came::NotNow(why),
            Ok(Ok(ask::Came::Never(why))) => Came::Never(why),
            Ok(Err(e)) => Came::NotNow(format!("node {} says what makes no sense: {e}", by.manager)),
            Err(why) => Came::NotNow(why),
        }
    }
}

async fn say(node: &Arc<Node>, whom: &str, what: &Ask) -> Result<Vec<u8>, String> {
    let text = serde_json::to_vec(what).map_err(|e| e.to_string())?;
    match timeout(PATIENCE, send(node, whom, &Errand::Gang(text))).await {
        Ok(answer) => answer.map_err(|failure| failure.why),
        Err(_) => Err(format!("node {whom}, which orders, does not answer")),
    }
}

/// Tells whoever orders what it does not know.
pub async fn look(node: &Arc<Node>) {
    // One at a time: what has ended is said after whatever was said of it before.
    let Ok(_alone) = node.gangs.looking.try_lock() else { return };
    let Some(by) = known(node) else { return };
    let (ended, strange) = {
        let leases = lock(&node.gangs.leases);
        let strange = leases.all.iter().filter(|(_, held)| held.by != by).map(|(n, held)| (*n, held.clone()));
        (leases.ended.iter().copied().collect::<Vec<_>>(), strange.collect::<Vec<_>>())
    };
    for number in ended {
        if say(node, &by.manager, &Ask::Ended(number)).await.is_ok() {
            lock(&node.gangs.leases).ended.remove(&number);
        }
    }
    for (number, held) in strange {
        if !lock(&node.gangs.leases).all.contains_key(&number) {
            continue;
        }
        // It has its CPUs, whoever orders.
        match say(node, &by.manager, &Ask::Adopt(held.gang, held.about, held.places)).await {
            Ok(_) => {
                if let Some(held) = lock(&node.gangs.leases).all.get_mut(&number) {
                    held.by = by.clone();
                }
            }
            Err(why) => tracing::info!("gangs: node {} does not know gang {number:x} yet: {why}", by.manager),
        }
    }
}
