//! How a node comes into the fabric. It asks who knows a view, and that view's manager to be taken in. Where nobody knows one, the first of the
//! nodes that are up founds it, if it hears from most of all that are known: half of a cluster that is cut in two founds nothing.

use super::life::Life;
use super::{Inner, another};
use crate::daemon::Node;
use crate::questions::ask;
use crate::views::{Event, Liveness};
use pando_fabric::{NodeId, Who};
use pando_wire::message::Question;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Between two looks, in no view.
const SOON: Duration = Duration::from_millis(250);
/// Between two looks, in a view: is there another fabric?
const NOW_AND_THEN: Duration = Duration::from_secs(3);
/// A view that could not go on for so long may be left for another one.
const STUCK: Duration = Duration::from_secs(5);
/// After so long nothing is hoped of it any more.
const HOPELESS: Duration = Duration::from_secs(60);
/// Who is asked answers within this.
const ANSWER: Duration = Duration::from_secs(1);
/// Who was taken in is in a view within this.
const TAKEN: Duration = Duration::from_secs(5);

/// What a node knows of the fabric.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Known {
    /// Members. The larger fabric stays where two meet, and of two as large the one that has had more views.
    members: usize,
    /// Its view's number.
    epoch: u64,
    /// Which; 0 for none.
    founding: u64,
    /// Who orders there.
    manager: String,
}

/// How one is taken in.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Taken {
    founding: u64,
    me: NodeId,
    manager: NodeId,
    who: Who,
}

/// The answer to [`Question::Fabric`].
pub fn about(node: &Node) -> Result<String, String> {
    serde_json::to_string(&known(&node.fabric.inner())).map_err(|e| e.to_string())
}

fn known(inner: &Inner) -> Known {
    let nothing = Known { members: 0, epoch: 0, founding: 0, manager: String::new() };
    inner.life.as_ref().filter(|life| life.is_live()).map_or(nothing, |life| {
        let view = life.core.view();
        let manager = life.who(view.manager).map_or_else(String::new, |who| who.name.clone());
        Known { members: view.members.len(), epoch: view.epoch, founding: life.founding, manager }
    })
}

/// The answer to [`Question::TakeIn`].
pub fn take_in(node: &Node, peer: &str, life: u64) -> Result<String, String> {
    let mut inner = node.fabric.inner();
    let no = || format!("node {} does not order in the fabric", node.name());
    let mine = inner.life.as_mut().ok_or_else(no)?;
    let me = mine.take_in(Who { name: peer.to_owned(), life }).ok_or_else(no)?;
    let who = Who { name: node.name(), life: mine.number };
    serde_json::to_string(&Taken { founding: mine.founding, me, manager: mine.me, who }).map_err(|e| e.to_string())
}

/// Looks for a view whenever there is none.
pub async fn keep(node: Arc<Node>) {
    loop {
        let (outside, roster, mine) = {
            let inner = node.fabric.inner();
            let life = inner.life.as_ref();
            let stuck = life.is_some_and(|l| l.stuck.is_some_and(|since| since.elapsed() > STUCK));
            let roster: Vec<String> =
                life.map_or_else(Vec::new, |l| l.core.roster().values().map(|who| who.name.clone()).collect());
            (life.is_none() || stuck, roster, known(&inner))
        };
        match outside {
            true => look(&node).await,
            false => meet(&node, &roster, &mine).await,
        }
        // Not all at the same time.
        let pause = if outside { SOON } else { NOW_AND_THEN };
        sleep(pause + pause.mul_f64(another() as f64 / u64::MAX as f64 / 2.0)).await;
    }
}

/// Is there another fabric, larger than this one?
async fn meet(node: &Arc<Node>, roster: &[String], mine: &Known) {
    let all = node.cluster.liveness();
    let strangers: Vec<&String> =
        all.iter().filter(|(name, l)| *l == Liveness::Up && !roster.contains(name)).map(|(name, _)| name).collect();
    if strangers.is_empty() {
        return;
    }
    let one = strangers[another() as usize % strangers.len()];
    if let Some(theirs) = hear(node, one).await.filter(|theirs| theirs > mine && theirs.founding != mine.founding) {
        let mut inner = node.fabric.inner();
        if let Some(life) = inner.life.as_mut() {
            tracing::info!("fabric: that of {} is larger than this one: this node goes there", theirs.manager);
            let effects = life.core.left_out();
            life.heed(node, effects);
        }
    }
}

/// What that node knows; none if it does not answer.
async fn hear(node: &Arc<Node>, name: &str) -> Option<Known> {
    let answer = timeout(ANSWER, ask(node, name, Question::Fabric)).await.ok()?.ok()?;
    serde_json::from_str(&answer).ok()
}

async fn look(node: &Arc<Node>) {
    let all = node.cluster.liveness();
    let me = node.name();
    let up: Vec<&String> = all.iter().filter(|(_, l)| *l == Liveness::Up).map(|(name, _)| name).collect();
    let others: Vec<&String> = up.iter().copied().filter(|name| **name != me).collect();
    // The first asks all, for it may have to found one; the others ask that one and some other.
    let founder = up.first().is_some_and(|name| **name == me);
    let asked: Vec<String> = match founder {
        true => others.iter().map(|name| (*name).clone()).collect(),
        false => {
            let some = others.get(another() as usize % others.len().max(1));
            others.first().into_iter().chain(some).map(|name| (*name).clone()).collect()
        }
    };
    let asking: Vec<_> = asked
        .into_iter()
        .map(|name| {
            let node = node.clone();
            tokio::spawn(async move { hear(&node, &name).await })
        })
        .collect();
    let mut answers = Vec::new();
    for answer in asking {
        answers.extend(answer.await.ok().flatten());
    }
    // Where its own fabric goes on without it, a member hears that from the others; where it does not, its memory is not to be given up.
    let (mine, hopes) = {
        let inner = node.fabric.inner();
        let life = inner.life.as_ref();
        let life = life.filter(|l| l.stuck.is_none_or(|since| since.elapsed() < HOPELESS));
        (life.map_or(0, |l| l.founding), life.is_some_and(|l| l.core.can_go_on()))
    };
    if let Some(best) = answers.iter().filter(|known| known.founding != 0).max() {
        if best.founding != mine {
            join(node, best).await;
        }
        return;
    }
    if hopes {
        return;
    }
    let (heard, known) = (answers.len() + 1, all.len());
    let enough = heard * 2 > known || heard * 2 == known && all[0].0 == me;
    if founder && enough {
        found(node);
        return;
    }
    let waits = match founder {
        false => format!("no node that is up knows a fabric; {} is the first of them, and founds it", up[0]),
        true => format!(
            "{heard} of {known} known nodes are heard, and more than half are needed to found it: start the others, or `pando fabric found`"
        ),
    };
    node.fabric.inner().waits = waits;
}

/// Founds a fabric with this node alone; the others come to it.
pub fn found(node: &Arc<Node>) {
    {
        let mut inner = node.fabric.inner();
        inner.number = another();
        let life = Life::found(node, inner.number, another().max(1));
        inner.life = Some(life);
    }
    node.fabric.changed.notify_waiters();
    node.events.say(Event::new("fabric", format!("node {} founds the fabric", node.name())));
}

async fn join(node: &Arc<Node>, known: &Known) {
    let number = {
        let mut inner = node.fabric.inner();
        inner.life = None;
        inner.number = another();
        inner.waits = format!("it asks {} to be taken in", crate::owner::clean(&known.manager));
        inner.number
    };
    let answer = timeout(ANSWER, ask(node, &known.manager, Question::TakeIn(number))).await;
    let taken = match answer {
        Ok(Ok(text)) => serde_json::from_str::<Taken>(&text).map_err(|e| e.to_string()),
        Ok(Err(why)) => Err(why),
        Err(_) => Err(format!("{} did not answer", known.manager)),
    };
    match taken {
        Ok(taken) => {
            let mut inner = node.fabric.inner();
            let mut life = Life::guest(node, number, taken.founding, taken.me);
            life.hints.insert(taken.manager, taken.who);
            inner.life = Some(life);
        }
        Err(why) => {
            node.fabric.inner().waits = why;
            return;
        }
    }
    let in_view = timeout(TAKEN, async {
        loop {
            let changed = node.fabric.changed.notified();
            if node.fabric.inner().life.as_ref().is_none_or(|l| l.number != number || l.core.view().epoch > 0) {
                return;
            }
            let _ = timeout(SOON, changed).await;
        }
    });
    if in_view.await.is_err() {
        let mut inner = node.fabric.inner();
        if inner.life.as_ref().is_some_and(|l| l.number == number) {
            (inner.life, inner.number) = (None, another());
            inner.waits = format!("{} took it in, and no view came", crate::owner::clean(&known.manager));
        }
    }
}
