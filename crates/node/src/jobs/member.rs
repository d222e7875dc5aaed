//! A job that another node is the head of comes here.

use super::link::{Close, End, Said, next, talk};
use super::spare::WAITS;
use super::{enter, part};
use crate::audit::Entry as Audited;
use crate::daemon::Node;
use crate::link::broken;
use pando_launch::{Down, Frames, Order, Up, Work};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{channel, unbounded_channel};
use tokio::time::timeout;

/// Messages that have been read and not been heeded.
const WAITING: usize = 256;

/// Serves a connection on which `peer` wants to give this node a part in a job, and then in another one.
pub async fn accept<S>(node: &Arc<Node>, mut stream: S, peer: &str) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut frames = Frames::default();
    let mut patience = Duration::from_millis(node.config.connections.handshake_within_ms);
    loop {
        let Ok(work) = timeout(patience, next::<_, Work>(&mut stream, &mut frames)).await else {
            return if patience == WAITS { Ok(()) } else { Err(broken("no order in time")) };
        };
        let work = match work {
            Ok(Some(work)) => work,
            _ if patience == WAITS => return Ok(()),
            Ok(None) => return Err(broken("it hung up")),
            Err(e) => return Err(e),
        };
        match serve(node, (stream, frames), work, peer).await? {
            Close::Lost(why) => {
                tracing::debug!("jobs: a link of {peer} ended: {why}");
                return Ok(());
            }
            Close::Kept(same, rest) => (stream, frames, patience) = (same, rest, WAITS),
        }
    }
}

/// One job.
async fn serve<S>(node: &Arc<Node>, (stream, frames): (S, Frames), work: Work, peer: &str) -> io::Result<Close<S>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Work { place, order, .. } = work;
    order.check().map_err(broken)?;
    let (hear, downs) = channel(WAITING);
    let (ups, queue) = unbounded_channel();
    let runs = match check(node, &order, place, peer) {
        Ok(()) => {
            let order = Arc::new(order);
            let entry = enter(node, &order, place).ok_or_else(|| broken("this node has a part in that job already"))?;
            let node = node.clone();
            tokio::spawn(async move { part::run(&node, order, place, entry, (downs, ups)).await })
        }
        Err(why) => {
            [Up::Refused { place, why }, Up::Gone].into_iter().for_each(|up| _ = ups.send(up));
            // Nothing more is said: without an end of that the link would beat on, and its other end take it for one that serves.
            tokio::spawn(async move { drop((downs, ups)) })
        }
    };
    let lost_after = Duration::from_millis(node.config.jobs.lost_after_ms);
    let said = Said { queue, beat: Up::Beat, silence: Some(lost_after), end: End::Waits };
    let close = talk(stream, frames, said, hear, (|down: Down| down, |down: &Down| *down == Down::End)).await;
    // If its parent was lost it may not be over.
    let _ = runs.await;
    Ok(close)
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
    takes_jobs(node, &order.nodes[0].node, &order.user)
}

/// The same, of this user's from that node.
pub fn takes_jobs(node: &Node, head: &str, user: &str) -> Result<(), String> {
    serves(node, head, user)?;
    if node.balancing.is_drained() {
        return Err(DRAINED.into());
    }
    Ok(())
}

/// May that node's user do anything here, new or not?
pub fn serves(node: &Node, head: &str, user: &str) -> Result<(), String> {
    let rules = &node.config.jobs;
    if !rules.accept || !rules.from.is_empty() && !rules.from.iter().any(|from| from == head) {
        return Err(format!("it takes no jobs of {head} ([jobs] accept, from)"));
    }
    if !rules.root && user == "root" {
        return Err("it runs nothing for another node's root ([jobs] root allows it)".into());
    }
    Ok(())
}
