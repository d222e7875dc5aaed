//! What users of the local API ask of the fabric: for root and the node's own user, for it is the system's memory.

pub use super::life::most;
use super::life::{By, Life};
use super::{Inner, find, rail};
use crate::audit::Entry;
use crate::daemon::Node;
use crate::gang::BEFORE;
use crate::moves::Refused;
use crate::owner::Caller;
use crate::questions;
use crate::sys;
use crate::views::{self, Compared, FabricStatus, Signalled, Variable};
use axum::Json;
use axum::body::Bytes;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use pando_fabric::{Comparison, LONGEST_NAME, Op, Outcome, Set};
use pando_wire::message::Question;
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

type Asked = (State<Arc<Node>>, Permitted);
type Answer<T> = Result<Json<T>, Refused>;

/// Another node that waits for a beat holds one of few places here.
const BEAT: Duration = Duration::from_secs(20);
/// Longest that a request waits.
const PATIENCE: Duration = Duration::from_secs(600);

/// A caller that may use the fabric. Known before a byte of what it sends is read.
pub struct Permitted(Caller);

impl<S: Sync> FromRequestParts<S> for Permitted {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        match parts.extensions.get::<ConnectInfo<Caller>>() {
            Some(ConnectInfo(caller)) if caller.uid == 0 || caller.uid == sys::effective_uid() => {
                Ok(Permitted(*caller))
            }
            _ => Err(Refused::Forbidden("only root and the node's own user may use the fabric".into())),
        }
    }
}

fn outside(node: &Node, inner: &Inner) -> Refused {
    Refused::Conflict(format!("node {} is not in the fabric yet: {}", node.name(), inner.waits))
}

/// `GET /v1/fabric`.
pub async fn status(State(node): State<Arc<Node>>) -> Json<FabricStatus> {
    let inner = node.fabric.inner();
    let life = inner.life.as_ref().filter(|life| life.core.view().epoch > 0);
    let Some(life) = life else {
        return Json(FabricStatus { waits: Some(inner.waits.clone()), ..FabricStatus::default() });
    };
    let view = life.core.view();
    let name = |n| life.who(n).map_or_else(String::new, |who| who.name.clone());
    let stuck = format!(
        "too few of the view's {} members are heard to go on: start the others; if they are gone for good, `pando fabric found`",
        view.members.len()
    );
    let pulse = &life.strobe.pulse;
    let silent = silent_us(&node, life)
        .map(|us| format!("no strobe for {:.1} s: this node is cut off from who orders", us as f64 / 1e6));
    Json(FabricStatus {
        founding: format!("{:016x}", life.founding),
        epoch: view.epoch,
        manager: name(view.manager),
        members: view.members.iter().map(name).collect(),
        waits: life.stuck.is_some().then_some(stuck).or(silent),
        multicast: life.multicast(&node),
        libfabric: rail::status(&node),
        strobe: views::Strobe {
            period_us: pulse.period_us(),
            micro: u32::from(pulse.parts().saturating_sub(1)),
            beats: pulse.beats,
            micro_beats: pulse.micro,
            late: pulse.late,
            lost: pulse.lost,
            skipped: life.strobe.skipped(),
            longest_us: pulse.longest_us,
            off_us: pulse.off_us(500).zip(pulse.off_us(990)),
            silent_us: pulse.silent_us(node.fabric.now_us()),
        },
    })
}

/// Microseconds since the strobe should have come, if that is too long ago.
fn silent_us(node: &Node, life: &Life) -> Option<u64> {
    let most = node.config.fabric.lost_after_ms * 1000;
    life.strobe.pulse.silent_us(node.fabric.now_us()).filter(|us| *us > most)
}

/// `POST /v1/fabric/strobe`.
pub async fn strobe((State(node), _): Asked, Json(what): Json<views::StrobeRequest>) -> Answer<()> {
    if let Some(period_us) = what.period_us {
        let period_us = i64::try_from(period_us).map_err(|e| Refused::Unknown(e.to_string()))?;
        let ended = {
            let mut inner = node.fabric.inner();
            let life = inner.life.as_mut().filter(|life| life.core.view().epoch > 0);
            if life.as_ref().is_some_and(|life| life.core.memory().variable(BEFORE) != 0) {
                let why = "gangs take turns with it (`pando gang`): `pando gang --quantum` sets how long turns are";
                return Err(Refused::Conflict(format!("the strobe's period can't be set now: {why}")));
            }
            let parts = u16::try_from(what.micro.unwrap_or(0)).unwrap_or(u16::MAX).saturating_add(1);
            let ended = life.map(|life| life.set_period(&node, period_us, parts));
            ended.ok_or_else(|| outside(&node, &inner))?
        };
        end(&node, ended).await?;
    }
    if let Some(event) = what.event {
        let manager = {
            let inner = node.fabric.inner();
            let life = inner.life.as_ref().ok_or_else(|| outside(&node, &inner))?;
            life.who(life.core.view().manager).map_or_else(String::new, |who| who.name.clone())
        };
        let done = match manager == node.name() {
            true => post_here(&node, event).await,
            false => questions::ask(&node, &manager, Question::Post(event)).await.map(drop),
        };
        done.map_err(Refused::Conflict)?;
    }
    Ok(Json(()))
}

/// Has an event happen everywhere with one of the next beats, if this node orders.
pub async fn post_here(node: &Arc<Node>, event: String) -> Result<(), String> {
    free(&event).map_err(|refused| refused.text().to_owned())?;
    let no = || format!("node {} sends no beats: `pando fabric` shows who orders, and the period", node.name());
    let posted = node.fabric.inner().life.as_mut().and_then(|life| life.post(event)).ok_or_else(no)?;
    match timeout(BEAT, posted).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(format!("node {} does not order any more: whether it happened is not known", node.name())),
        Err(_) => Err(format!("no beat has been everywhere within {BEAT:?}: it may happen later")),
    }
}

/// The system's own names are not for users.
fn free(name: &str) -> Result<(), Refused> {
    match name.is_empty() || name.starts_with("pando/") || name.len() > LONGEST_NAME {
        true => Err(Refused::Forbidden(format!(
            "names have from 1 to {LONGEST_NAME} bytes, and `pando/...` are the system's own"
        ))),
        false => Ok(()),
    }
}

/// `POST /v1/fabric/found`.
pub async fn found((State(node), Permitted(caller)): Asked, Json(()): Json<()>) -> Answer<()> {
    let is_well = {
        let inner = node.fabric.inner();
        inner.life.as_ref().is_some_and(|life| life.is_live() && silent_us(&node, life).is_none())
    };
    let (on, why) = (format!("node {}", node.name()), "found a fabric with this node alone".to_owned());
    node.audit.note(&Entry { who: caller.to_string(), what: "fabric found", on, allowed: !is_well, why });
    if is_well {
        return Err(Refused::Conflict("this node is in a fabric that goes on: `pando fabric` shows it".into()));
    }
    find::found(&node);
    Ok(Json(()))
}

async fn perform(
    node: &Arc<Node>,
    names: Option<&[String]>,
    op: impl FnOnce(Set) -> Op,
    bytes: Bytes,
    by: By,
) -> Result<bool, Refused> {
    let ended = {
        let mut inner = node.fabric.inner();
        match inner.life.as_mut().filter(|life| life.core.view().epoch > 0) {
            Some(life) => {
                let set = life.set(names).map_err(Refused::Unknown)?;
                Ok(life.submit_by(node, op(set), bytes, by))
            }
            None => Err(()),
        }
        .map_err(|()| outside(node, &inner))?
    };
    end(node, ended).await
}

/// Waits for the end of an operation, and puts it into words.
pub(super) async fn end(node: &Arc<Node>, ended: oneshot::Receiver<Outcome>) -> Result<bool, Refused> {
    match timeout(PATIENCE, ended).await {
        Ok(Ok(Outcome::Compared(held))) => Ok(held),
        Ok(Ok(Outcome::Transferred)) => Ok(true),
        Ok(Ok(Outcome::Lost(set))) => {
            let names = node.fabric.inner().life.as_ref().map_or_else(Vec::new, |life| life.names(&set));
            Err(Refused::Conflict(format!("nothing was done anywhere: no member any more: {}", names.join(", "))))
        }
        Ok(Ok(Outcome::Refused)) => {
            let text = "nothing was done anywhere: a node has no room for it ([fabric] regions_mb; `xfer` of nothing to a region empties it)";
            Err(Refused::Conflict(text.into()))
        }
        Ok(Ok(Outcome::CutOff) | Err(_)) => {
            let text = "this node was left out of the fabric meanwhile: whether it was done is not known";
            Err(Refused::Failed(text.into()))
        }
        Err(_) => Err(Refused::Failed(format!("no end within {PATIENCE:?}: too few members are heard to go on?"))),
    }
}

fn split(names: Option<String>) -> Option<Vec<String>> {
    names.map(|names| names.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect())
}

/// What a transfer is about.
#[derive(Deserialize)]
pub struct Transfer {
    region: String,
    #[serde(default)]
    offset: u64,
    signal: Option<String>,
    on: Option<String>,
    /// Not by multicast, to compare the two.
    #[serde(default)]
    tree: bool,
}

/// `POST /v1/fabric/transfer`, the bytes as body.
pub async fn transfer((State(node), _): Asked, Query(what): Query<Transfer>, body: Bytes) -> Answer<()> {
    let length = body.len() as u64;
    let Transfer { region, offset, signal, on, tree } = what;
    free(&region)?;
    signal.as_deref().map_or(Ok(()), free)?;
    let on = split(on);
    let op = |set| Op::Transfer { set, region, offset, length, signal };
    let way = if tree { By::Tree } else { By::Any };
    perform(&node, on.as_deref(), op, body, way).await?;
    Ok(Json(()))
}

/// `POST /v1/fabric/compare`.
pub async fn compare((State(node), _): Asked, Json(what): Json<views::Compare>) -> Answer<Compared> {
    let comparison = match what.comparison.as_str() {
        ">=" => Comparison::AtLeast,
        "<" => Comparison::Less,
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        other => {
            let text = format!("`{}` compares nothing: write >=, <, == or !=", crate::owner::clean(other));
            return Err(Refused::Unknown(text));
        }
    };
    let views::Compare { on, variable, value, write, .. } = what;
    free(&variable)?;
    write.as_ref().map_or(Ok(()), |(name, _)| free(name))?;
    let op = |set| Op::Compare { set, variable, comparison, value, write };
    Ok(Json(Compared { held: perform(&node, on.as_deref(), op, Bytes::new(), By::Any).await? }))
}

/// `GET /v1/fabric/region/{name}`: this node's bytes.
pub async fn region((State(node), _): Asked, Path(name): Path<String>) -> Result<Vec<u8>, Refused> {
    let inner = node.fabric.inner();
    let life = inner.life.as_ref().ok_or_else(|| outside(&node, &inner))?;
    free(&name)?;
    Ok(life.core.memory().region(&name).to_vec())
}

/// `GET /v1/fabric/variable/{name}`: this node's value.
pub async fn load((State(node), _): Asked, Path(name): Path<String>) -> Answer<Variable> {
    let inner = node.fabric.inner();
    let life = inner.life.as_ref().ok_or_else(|| outside(&node, &inner))?;
    free(&name)?;
    Ok(Json(Variable { value: life.core.memory().variable(&name) }))
}

/// `POST /v1/fabric/variable/{name}`: sets this node's value.
pub async fn store((State(node), _): Asked, Path(name): Path<String>, Json(new): Json<Variable>) -> Answer<()> {
    free(&name)?;
    let mut inner = node.fabric.inner();
    match inner.life.as_mut().filter(|life| life.core.view().epoch > 0) {
        Some(life) => life.core.memory_mut().store(name, new.value),
        None => return Err(outside(&node, &inner)),
    }
    Ok(Json(()))
}

/// How long somebody wants to wait.
#[derive(Deserialize)]
pub struct Wait {
    #[serde(default)]
    wait_ms: u64,
}

/// `POST /v1/fabric/event/{name}`: was it signalled at this node? Each signal is there for one answer.
pub async fn test(
    (State(node), _): Asked,
    Path(name): Path<String>,
    Query(wait): Query<Wait>,
    Json(()): Json<()>,
) -> Answer<Signalled> {
    free(&name)?;
    let until = Instant::now() + Duration::from_millis(wait.wait_ms).min(PATIENCE);
    loop {
        let changed = node.fabric.changed.notified();
        tokio::pin!(changed);
        // What is signalled from here on wakes it.
        changed.as_mut().enable();
        {
            let mut inner = node.fabric.inner();
            let life = inner.life.as_mut().filter(|life| life.core.view().epoch > 0);
            match life.map(|life| life.core.memory_mut().take_signal(&name)) {
                Some(true) => return Ok(Json(Signalled { signalled: true })),
                Some(false) => {}
                None => return Err(outside(&node, &inner)),
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || timeout(left, changed).await.is_err() {
            return Ok(Json(Signalled { signalled: false }));
        }
    }
}
