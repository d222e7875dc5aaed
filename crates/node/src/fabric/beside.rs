//! What other parts of this daemon need of the fabric: who orders, a few bytes to all, variables, the strobe's pace.

use super::life::Life;
use super::strobe::PERIOD;
use crate::daemon::Node;
use crate::moves::Refused;
use bytes::Bytes;
use pando_fabric::Op;
use std::collections::BTreeMap;
use std::sync::Arc;

fn member<T>(node: &Node, of: impl FnOnce(&Life) -> T) -> Option<T> {
    let inner = node.fabric.inner();
    inner.life.as_ref().filter(|life| life.is_live()).map(of)
}

/// Who orders: its name, and a number that no other life of it has.
pub fn manager(node: &Node) -> Option<(String, u64)> {
    member(node, |life| life.who(life.core.view().manager).map(|who| (who.name.clone(), who.life))).flatten()
}

/// Which life of this node it is.
pub fn life_of(node: &Node) -> Option<u64> {
    member(node, |life| life.number)
}

/// This node orders: in which of its lives, and in which fabric.
pub fn ordering(node: &Node) -> Option<(u64, u64)> {
    member(node, |life| (life.core.view().manager == life.me).then_some((life.number, life.founding))).flatten()
}

/// All members by name, with a number that no other life of theirs has.
pub fn members(node: &Node) -> BTreeMap<String, u64> {
    let all = |life: &Life| {
        let known = life.core.view().members.iter().filter_map(|n| life.who(n).map(|who| (who.name.clone(), who.life)));
        known.collect()
    };
    member(node, all).unwrap_or_default()
}

/// The number of the last beat that this node has sent.
pub fn last_beat(node: &Node) -> u64 {
    member(node, |life| life.strobe.last()).unwrap_or(0)
}

/// The strobe's period, microseconds.
pub fn period(node: &Node) -> i64 {
    variable(node, PERIOD)
}

/// A variable, as this node has it.
pub fn variable(node: &Node, name: &str) -> i64 {
    member(node, |life| life.core.memory().variable(name)).unwrap_or(0)
}

/// Another period, from the next beat on.
pub fn set_period(node: &Arc<Node>, period_us: i64) {
    if let Some(life) = node.fabric.inner().life.as_mut() {
        let parts = life.parts();
        // Nobody waits for it: who orders looks again.
        drop(life.set_period(node, period_us, parts));
    }
}

/// Sets a variable at all members; nobody waits for it.
pub fn store(node: &Arc<Node>, name: &str, value: i64) {
    if let Some(life) = node.fabric.inner().life.as_mut().filter(|life| life.is_live()) {
        drop(life.set_everywhere(node, name, value));
    }
}

/// A few bytes to all members, who are signalled by the region's name. In the order of calls.
pub fn put_everywhere(node: &Arc<Node>, region: &str, bytes: Vec<u8>) -> Result<(), String> {
    if bytes.len() > pando_fabric::MOST_AT_ONCE {
        return Err(format!("{} bytes are too many for one message", bytes.len()));
    }
    let mut inner = node.fabric.inner();
    let life = inner.life.as_mut().filter(|life| life.is_live()).ok_or("this node is not in the fabric")?;
    let set = life.core.view().members.clone();
    let op = Op::Put { set, region: region.into(), offset: 0, bytes, signal: Some(region.into()) };
    drop(life.submit(node, op, Bytes::new()));
    Ok(())
}

/// Sets a variable at all members.
pub async fn set_variable(node: &Arc<Node>, name: &str, value: i64) -> Result<(), Refused> {
    let ended = {
        let mut inner = node.fabric.inner();
        let life = inner.life.as_mut().filter(|life| life.is_live());
        life.map(|life| life.set_everywhere(node, name, value))
    };
    let ended = ended.ok_or_else(|| Refused::Conflict("this node is not in the fabric yet".into()))?;
    super::ask::end(node, ended).await.map(drop)
}
