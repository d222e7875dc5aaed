//! A job that another node is the head of comes here.

use super::link::{Said, next, talk};
use super::{enter, part};
use crate::audit::Entry as Audited;
use crate::daemon::Node;
use crate::link::broken;
use pando_launch::{Down, Frames, Order, Up, Work, encode};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{channel, unbounded_channel};
use tokio::time::timeout;

/// Messages that have been read and not been heeded.
const WAITING: usize = 256;

/// Serves a connection on which `peer` wants to give this node a part in a job.
pub async fn accept<S>(node: &Arc<Node>, mut stream: S, peer: &str) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let patience = Duration::from_millis(node.config.connections.handshake_within_ms);
    let mut frames = Frames::default();
    let work = timeout(patience, next::<_, Work>(&mut stream, &mut frames)).await;
    let Work { place, order, .. } =
        work.map_err(|_| broken("no order in time"))??.ok_or_else(|| broken("it hung up"))?;
    order.check().map_err(broken)?;
    let (order, entry) = match check(node, &order, place, peer) {
        Ok(()) => {
            let order = Arc::new(order);
            let entry = enter(node, &order, place).ok_or_else(|| broken("this node has a part in that job already"))?;
            (order, entry)
        }
        Err(why) => {
            for up in [Up::Refused { place, why }, Up::Gone] {
                stream.write_all(&encode(&up).map_err(broken)?).await?;
            }
            stream.shutdown().await?;
            return Ok(());
        }
    };
    let (hear, downs) = channel(WAITING);
    let (ups, queue) = unbounded_channel();
    let lost_after = Duration::from_millis(node.config.jobs.lost_after_ms);
    let said = Said { queue, beat: Up::Beat, silence: Some(lost_after) };
    let (mine, theirs) = (node.clone(), order.clone());
    let runs = tokio::spawn(async move {
        part::run(&mine, theirs, place, entry.cpus.clone(), (downs, ups)).await;
        drop(entry);
    });
    let why = talk(stream, frames, said, &hear, |down: Down| down).await;
    tracing::debug!("jobs: job {} of {}: the link up ended: {why}", order.job, order.nodes[0].node);
    // Its parent is lost, or all is over.
    drop(hear);
    let _ = runs.await;
    Ok(())
}

/// Others may not have heard of it.
pub const DRAINED: &str = "it is being drained";

/// May that be done here? The error is for people.
fn check(node: &Node, order: &Order, place: u32, peer: &str) -> Result<(), String> {
    let head = &order.nodes[0].node;
    let parent = order.parent(place).and_then(|p| order.nodes.get(p as usize)).map(|s| s.node.as_str());
    let answer = match () {
        () if order.nodes.get(place as usize).is_none_or(|s| s.node != node.name()) => {
            Err("that is another node's part".into())
        }
        () if parent != Some(peer) => Err(format!("node {peer} is not above it")),
        () => allowed(node, order),
    };
    let on = format!("job {} of {head}, {} ranks", order.job, order.nodes.get(place as usize).map_or(0, |s| s.ranks));
    let why = answer.as_ref().err().cloned().unwrap_or_else(|| "a member speaks for its users".into());
    node.audit.note(&Audited {
        who: format!("{} at {head}", crate::owner::clean(&order.user)),
        what: "job",
        on,
        allowed: answer.is_ok(),
        why,
    });
    answer
}

/// What this node's administrator says of jobs of other nodes.
fn allowed(node: &Node, order: &Order) -> Result<(), String> {
    let (rules, head) = (&node.config.jobs, &order.nodes[0].node);
    if !rules.accept || !rules.from.is_empty() && !rules.from.contains(head) {
        return Err(format!("it takes no jobs of {head} ([jobs] accept, from)"));
    }
    if !rules.root && order.user == "root" {
        return Err("it runs nothing for another node's root ([jobs] root allows it)".into());
    }
    if node.balancing.is_drained() {
        return Err(DRAINED.into());
    }
    Ok(())
}
