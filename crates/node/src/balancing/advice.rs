//! Another node wants a process of ours, which is a guest there, to go elsewhere. Its home has the last word.

use super::{facts, groups, perform};
use crate::daemon::Node;
use crate::follow::Aim;
use crate::queue::batch;
use pando_balance::Wish;
use pando_kernel::procfs;
use std::sync::Arc;

/// What the other node says.
pub struct Advice<'a> {
    /// The process.
    pub pid: u32,
    /// Where to.
    pub to: &'a str,
    /// Why.
    pub reason: &'a str,
    /// It can't stay there.
    pub must: bool,
    /// Bytes of memory that it has there.
    pub bytes: u64,
}

/// Has the move made, or says why not. What was promised to one that was to come home is used then, or is not needed.
pub async fn advised(node: &Arc<Node>, by: &str, advice: &Advice<'_>) -> Result<(), String> {
    let done = heed(node, by, advice).await;
    if advice.to == node.name() {
        let key = (node.name(), advice.pid);
        match done {
            Ok(()) => node.balancing.arrived(&key),
            Err(_) => node.balancing.comes_not(&key),
        }
    }
    done
}

async fn heed(node: &Arc<Node>, by: &str, advice: &Advice<'_>) -> Result<(), String> {
    let &Advice { pid, to, reason, must, bytes } = advice;
    let settings = &node.config.balance;
    let (start_time, wish, moves, left, here_ms) = {
        let table = node.table();
        let known = table.get(&table.local(pid)).filter(|k| k.view.place == by);
        let known = known.ok_or_else(|| format!("process {pid} is not at {by}"))?;
        let left = known.view.records.last().map(|r| r.from.clone());
        (known.start_time, known.wish.clone(), known.view.moves, left, known.since.elapsed().as_millis() as u64)
    };
    let home = to == node.name();
    if !home && node.cluster.find(to).is_none() {
        return Err(format!("there is no node {}", crate::owner::clean(to)));
    }
    let allowed = wish.nodes.as_ref().is_none_or(|all| all.iter().any(|n| n == to));
    if !home && (wish.home_only || !allowed) {
        return Err(format!("its user does not want it at {to}"));
    }
    let members = facts::groups(node, &[]);
    if !home && groups::beside(&members, pid, &wish).iter().any(|place| place == to) {
        return Err(format!("another one is at {to}, from which it is to be apart"));
    }
    if !must {
        let aim = node.follow().aim(pid, start_time);
        if let Some(why) = keeps((&wish, moves), groups::companions(&members, &wish), aim, by) {
            return Err(why);
        }
        if here_ms < settings.residency_ms {
            return Err("it has just come there".into());
        }
        if left.as_deref() == Some(to) && here_ms < settings.no_return_ms {
            return Err(format!("it has just left {to}"));
        }
    }
    // Where it goes the queue would not know.
    if let Some(job) = batch::away::decides(node, pid).filter(|_| !reason.starts_with("memory")) {
        return Err(format!("the queue decides where batch job {job} computes, and brings it home when there is room"));
    }
    // Even whom the other node can't keep: there it only gets slow, here it would be ended.
    lacks_memory(node, pid, bytes)?;
    let reason: String = reason.chars().take(200).collect();
    let key = (node.name(), pid);
    let _journey = node.balancing.sets_out(&key, to).ok_or("it is on its way already")?;
    perform(node, pid, if home { "home" } else { to }, &crate::owner::clean(&reason)).await
}

/// Why a process of ours is to stay at `by`, as its user has it, wherever it would be better off. `together`: of how many its group is.
pub(super) fn keeps((wish, moves): (&Wish, u32), together: usize, aim: Option<Aim>, by: &str) -> Option<String> {
    match aim {
        _ if together > 1 => Some("it stays with the others of its group".into()),
        _ if wish.no_move => Some("its user wants it to stay (--no-move)".into()),
        _ if wish.max_moves.is_some_and(|most| moves >= most) => Some("its user wants it to stay (--max-moves)".into()),
        Some(Aim::Home | Aim::Node(_)) => Some(format!("it was sent to {by} by hand")),
        _ => None,
    }
}

/// What a process has written abroad comes home on its way elsewhere, too: there must be memory for it, whatever it gains, and whoever asks.
fn lacks_memory(node: &Node, pid: u32, bytes: u64) -> Result<(), String> {
    let has = procfs::stat(pid as i32).map_or(0, |s| s.resident);
    let more = i64::try_from(bytes.saturating_sub(has)).unwrap_or(i64::MAX);
    match pando_balance::need(&node.vector().with_memory(more), &node.config.balance) {
        0 => Ok(()),
        _ => Err(format!("its {} MB come by {}, which is short of memory", bytes >> 20, node.name())),
    }
}
