//! Drives this node's part in a job: links to the nodes below it, and its own launcher.

use super::link::{Said, talk};
use super::sweep;
use crate::daemon::Node;
use crate::{helper, peers};
use pando_launch::{Child, Down, Effect, Event, Frames, Order, Part, Up, Work, encode};
use pando_wire::SNI_JOB;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel, unbounded_channel};

/// Messages that have been read and not been heeded.
const WAITING: usize = 256;
/// So long a launcher whose link has ended may take to end itself.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// What a child says; or why nothing is heard of it any more.
type Heard = (usize, Result<Up, String>);

/// Runs it to its end. `downs`: what the parent says, closed when it is lost.
pub async fn run(node: &Arc<Node>, order: Arc<Order>, place: u32, mut downs: Receiver<Down>, ups: UnboundedSender<Up>) {
    let mut part = Part::new(order.clone(), place);
    let (hear, mut heard) = channel::<Heard>(WAITING);
    let mut links: Vec<Option<UnboundedSender<Down>>> = Vec::new();
    for (at, child) in part.children().into_iter().enumerate() {
        let (sender, queue) = unbounded_channel();
        links.push(Some(sender));
        let silence = (child != Child::Launcher).then(|| Duration::from_millis(node.config.jobs.lost_after_ms));
        let said = Said { queue, beat: Down::Beat, silence };
        tokio::spawn(below(node.clone(), order.clone(), place, (at, child), said, hear.clone()));
    }
    let mut has_parent = true;
    while !part.is_over() {
        let event = tokio::select! {
            down = downs.recv(), if has_parent => match down {
                Some(down) => Event::Down(down),
                None => {
                    has_parent = false;
                    Event::ParentLost
                }
            },
            Some((at, heard)) = heard.recv() => {
                if !matches!(heard, Ok(Up::Beat | Up::Output { .. } | Up::StdinTaken(_) | Up::Ready | Up::Fence(_) | Up::Ended { .. })) {
                    tracing::debug!("jobs: job {} of {}: child {at}: {heard:?}", order.job, order.nodes[0].node);
                }
                if matches!(heard, Ok(Up::Gone) | Err(_)) {
                    // Its link is closed when nobody can say anything on it.
                    links[at] = None;
                }
                match heard {
                    Ok(up) => Event::Up(at, up),
                    Err(why) => Event::ChildLost(at, why),
                }
            }
        };
        let effects = part.step(event).or_else(|(at, why)| {
            links[at] = None;
            part.step(Event::ChildLost(at, why))
        });
        for effect in effects.unwrap_or_default() {
            match effect {
                Effect::Up(up) => _ = ups.send(up),
                Effect::Down(at, down) => _ = links[at].as_ref().map(|link| link.send(down)),
            }
        }
    }
}

async fn below(
    node: Arc<Node>,
    order: Arc<Order>,
    place: u32,
    (at, child): (usize, Child),
    said: Said<Down>,
    hear: Sender<Heard>,
) {
    let why = match child {
        Child::Launcher => launcher(&node, &order, place, at, said, &hear).await,
        Child::Place(place) => member(&node, &order, place, at, said, &hear).await,
    };
    let why = why.unwrap_or_else(|e| e.to_string());
    let _ = hear.send((at, Err(why))).await;
}

async fn member(
    node: &Arc<Node>,
    order: &Arc<Order>,
    place: u32,
    at: usize,
    said: Said<Down>,
    hear: &Sender<Heard>,
) -> io::Result<String> {
    let name = &order.nodes[place as usize].node;
    let known = node.cluster.members().into_iter().find(|m| m.name == *name);
    let member = known.ok_or_else(|| io::Error::other(format!("{} does not know it", node.name())))?;
    let stream = peers::connect(node, &member, SNI_JOB).await?;
    speak(stream, order, place, Vec::new(), at, said, hear).await
}

async fn launcher(
    node: &Arc<Node>,
    order: &Arc<Order>,
    place: u32,
    at: usize,
    said: Said<Down>,
    hear: &Sender<Heard>,
) -> io::Result<String> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let mut child = helper::spawn_launcher(node, OwnedFd::from(theirs))?;
    ours.set_nonblocking(true)?;
    let stream = UnixStream::from_std(ours)?;
    let ended = speak(stream, order, place, Vec::new(), at, said, hear).await;
    let clean = match tokio::time::timeout(ENDS_WITHIN, child.wait()).await {
        Ok(status) => status.is_ok_and(|s| s.success()),
        Err(_) => {
            let _ = child.start_kill();
            let _ = child.wait().await;
            false
        }
    };
    if !clean {
        let (head, job) = (order.nodes[0].node.clone(), order.job);
        tokio::task::spawn_blocking(move || sweep::sweep(&head, job)).await.ok();
        return Ok("the process that started its ranks was killed".into());
    }
    ended
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    order: &Arc<Order>,
    place: u32,
    cpus: Vec<Vec<u16>>,
    at: usize,
    said: Said<Down>,
    hear: &Sender<Heard>,
) -> io::Result<String> {
    let work = Work { place, order: (**order).clone(), cpus };
    stream.write_all(&encode(&work).map_err(io::Error::other)?).await?;
    stream.flush().await?;
    Ok(talk(stream, Frames::default(), said, hear, |up| (at, Ok(up))).await)
}
