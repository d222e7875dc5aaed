//! Connections to other daemons: made when there is something to say, kept as long as they are used. A message that can't be delivered is lost,
//! as the protocols above expect.

use crate::daemon::Node;
use crate::link;
use crate::membership::Outgoing;
use crate::questions;
use pando_wire::message::{Member, Message};
use pando_wire::rustls::pki_types::ServerName;
use pando_wire::{SNI_NODE, peer_name};
use socket2::SockRef;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Messages that wait for one connection; what is more is lost.
const MAX_WAITING: usize = 256;
/// No peer needs more connections than this, not even while old ones die.
const MAX_PER_PEER: usize = 4;

/// CS6 and CS1 of DSCP (RFC 4594), where IP has them.
const CONTROL: u32 = 0xc0;
pub const BULK: u32 = 0x20;

/// What the network between may know of a connection (DSCP): short messages of daemons before everything else, transfers' bytes after it.
pub fn classify(stream: &TcpStream, bulk: bool) {
    // Where it can't be had nothing is worse than without. (IPv6 has another one.)
    let _ = SockRef::from(stream).set_tos_v4(if bulk { BULK } else { CONTROL });
}

/// One connection, or an attempt to make it.
struct Line {
    number: u64,
    queue: mpsc::Sender<Message>,
    used: Instant,
}

#[derive(Default)]
struct Lines {
    /// Oldest first.
    by_peer: BTreeMap<String, Vec<Line>>,
    /// Attempts that failed: when, and what was said of it.
    failed: BTreeMap<String, (Instant, String)>,
}

/// All connections.
#[derive(Default)]
pub struct Links {
    lines: Mutex<Lines>,
}

impl Links {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line to `peer`. Where there are too many, the one that was used least recently goes: who drops its queue ends it.
    fn add(&self, node: &Node, peer: &str) -> (u64, mpsc::Receiver<Message>) {
        let (sender, queue) = mpsc::channel(MAX_WAITING);
        let number = node.number();
        let mut lines = self.lines();
        let mine = lines.by_peer.entry(peer.to_owned()).or_default();
        if mine.len() >= MAX_PER_PEER {
            mine.remove(0);
        }
        mine.push(Line { number, queue: sender, used: Instant::now() });
        let count: usize = lines.by_peer.values().map(Vec::len).sum();
        if count > node.config.connections.max_links as usize {
            let all = lines.by_peer.iter().flat_map(|(name, of)| of.iter().map(move |l| (l.used, name, l.number)));
            if let Some((name, number)) = all.min().map(|(_, name, number)| (name.clone(), number)) {
                lines.remove(&name, number);
            }
        }
        (number, queue)
    }
}

impl Lines {
    fn remove(&mut self, peer: &str, number: u64) {
        if let Some(mine) = self.by_peer.get_mut(peer) {
            mine.retain(|l| l.number != number);
            if mine.is_empty() {
                self.by_peer.remove(peer);
            }
        }
    }
}

/// Sends what came out of the membership core.
pub fn send_all(node: &Arc<Node>, all: Vec<Outgoing>) {
    for (to, message) in all {
        send(node, &to, message);
    }
}

/// Sends a message, if need be over a new connection.
pub fn send(node: &Arc<Node>, to: &Member, message: Message) {
    if to.name == node.name() {
        return;
    }
    {
        let mut lines = node.links.lines();
        if let Some(line) = lines.by_peer.get_mut(&to.name).and_then(|all| all.last_mut()) {
            line.used = Instant::now();
            // What finds no room is lost.
            let _ = line.queue.try_send(message);
            return;
        }
        let redial = Duration::from_millis(node.config.connections.redial_ms);
        if lines.failed.get(&to.name).is_some_and(|(when, _)| when.elapsed() < redial) {
            return;
        }
    }
    let (number, queue) = node.links.add(node, &to.name);
    if let Some(line) = node.links.lines().by_peer.get_mut(&to.name).and_then(|all| all.last_mut()) {
        let _ = line.queue.try_send(message);
    }
    tokio::spawn(dial(node.clone(), to.clone(), number, queue));
}

/// Runs a connection that has come in, and whose TLS handshake is done.
pub async fn attend<S: AsyncRead + AsyncWrite + Unpin>(node: &Arc<Node>, stream: S, peer: &str) -> io::Result<()> {
    if peer == node.name() {
        return Err(io::Error::other("it has this node's own name"));
    }
    let (number, mut queue) = node.links.add(node, peer);
    let ended = link::run(node, stream, peer, &mut queue).await;
    node.links.lines().remove(peer, number);
    ended
}

async fn dial(node: Arc<Node>, to: Member, number: u64, mut queue: mpsc::Receiver<Message>) {
    // What only the handshake needs is gone after it: a connection stays for hours.
    let stream = Box::pin(connect(&node, &to, SNI_NODE)).await;
    let ended = match stream {
        Ok(stream) => {
            node.links.lines().failed.remove(&to.name);
            classify(stream.get_ref().0, false);
            Box::pin(link::run(&node, Box::new(stream), &to.name, &mut queue)).await
        }
        Err(e) => Err(e),
    };
    let mut lines = node.links.lines();
    lines.remove(&to.name, number);
    if let Err(e) = ended {
        let text = e.to_string();
        // Once, not again and again for as long as it is away.
        if lines.failed.get(&to.name).is_none_or(|(_, said)| *said != text) {
            tracing::info!("node: the connection to {}: {text}", to.name);
        }
        lines.failed.insert(to.name, (Instant::now(), text));
    }
}

/// A connection to `to`, for this purpose (an SNI), and certainly to it.
pub async fn connect(
    node: &Arc<Node>,
    to: &Member,
    purpose: &'static str,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let patience = Duration::from_millis(node.config.connections.handshake_within_ms);
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let stream = timeout(patience, TcpStream::connect(to.addr.as_str())).await.map_err(late)??;
    stream.set_nodelay(true)?;
    let connector = TlsConnector::from(node.client_tls.clone());
    let name = ServerName::try_from(purpose).map_err(io::Error::other)?;
    let stream = timeout(patience, connector.connect(name, stream)).await.map_err(late)??;
    let answered = stream.get_ref().1.peer_certificates().and_then(peer_name).unwrap_or_default();
    if answered != to.name {
        return Err(io::Error::other(format!("{} is {answered}, not {}", to.addr, to.name)));
    }
    Ok(stream)
}

/// What `peer` said.
pub fn heed(node: &Arc<Node>, peer: &str, message: Message) -> Result<(), String> {
    match message {
        Message::Swim(_) | Message::Loads(_) => {
            let out = node.cluster.receive(peer, message).map_err(|e| e.to_string())?;
            send_all(node, out);
            node.cluster.announce(&node.events);
        }
        Message::Ask { number, question } => {
            questions::take(node, peer, number, question);
        }
        Message::Answer { number, answer } => node.questions.answered(peer, number, answer),
        Message::Bye { .. } => {}
    }
    Ok(())
}

/// Keeps membership going until the daemon ends.
pub async fn keep(node: Arc<Node>) {
    loop {
        let out = node.cluster.tick();
        send_all(&node, out);
        node.cluster.announce(&node.events);
        node.cluster.due().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn short_messages_go_first_and_large_ones_last() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let class = |bulk| {
            classify(&stream, bulk);
            SockRef::from(&stream).tos_v4().unwrap()
        };
        assert_eq!((class(false), class(true)), (CONTROL, BULK));
    }
}
