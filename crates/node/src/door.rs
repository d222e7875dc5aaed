//! The one port that other machines connect to. The ClientHello is looked at without being consumed: a moving
//! process's connection goes to a helper as it came; the daemon never decrypts a byte of it.

use crate::admission;
use crate::daemon::Node;
use crate::jobs::member as jobs;
use crate::queue::errand;
use crate::views::Event;
use crate::{fabric, guests, peers};
use pando_wire::rustls::ServerConfig;
use pando_wire::sniff::{MAX_CLIENT_HELLO, Sniffed, sniff};
use pando_wire::{SNI_FABRIC, SNI_JOB, SNI_JOIN, SNI_MOVE, SNI_NODE, SNI_QUEUE, peer_name};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Between two looks at a ClientHello that comes in pieces.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Refusals for one reason that are logged in one second; the others are counted.
const LOGGED_PER_SECOND: u32 = 5;
/// Reasons that are told apart. A stranger may cause as many as he likes.
const MAX_REASONS: usize = 32;

/// How many connections have not said yet who they are.
#[derive(Default)]
pub struct Waiting {
    by_address: Mutex<BTreeMap<IpAddr, u32>>,
    refusals: Mutex<BTreeMap<String, (Instant, u32)>>,
}

/// One of them.
struct Ticket {
    node: Arc<Node>,
    address: IpAddr,
}

impl Ticket {
    fn take(node: &Arc<Node>, address: IpAddr) -> Option<Self> {
        let limits = &node.config.connections;
        let mut all = node.waiting.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let total: u32 = all.values().sum();
        let mine = all.entry(address).or_default();
        if total >= limits.max_waiting || *mine >= limits.max_waiting_per_address {
            return None;
        }
        *mine += 1;
        Some(Ticket { node: node.clone(), address })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut all = self.node.waiting.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mine) = all.get_mut(&self.address) {
            *mine -= 1;
            if *mine == 0 {
                all.remove(&self.address);
            }
        }
    }
}

impl Waiting {
    /// Logs that a connection was refused, unless someone fills the log with such.
    fn refuse(&self, node: &Node, from: SocketAddr, why: &str) {
        let mut reasons = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let key = if reasons.len() < MAX_REASONS || reasons.contains_key(why) { why } else { "" };
        let (since, count) = reasons.entry(key.to_owned()).or_insert((Instant::now(), 0));
        if since.elapsed() >= Duration::from_secs(1) {
            if *count > LOGGED_PER_SECOND {
                let more = *count - LOGGED_PER_SECOND;
                node.events.say(Event::new("refused", format!("{more} more connections: {key}")));
            }
            (*since, *count) = (Instant::now(), 0);
        }
        *count += 1;
        if *count <= LOGGED_PER_SECOND {
            let text = format!("a connection from {from}: {why}");
            let (from, reason) = (Some(from.to_string()), Some(why.to_owned()));
            node.events.say(Event { from, reason, ..Event::new("refused", text) });
        }
    }
}

/// Accepts until the daemon ends.
pub async fn serve(node: Arc<Node>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => match Ticket::take(&node, from.ip()) {
                Some(ticket) => {
                    tokio::spawn(receive(node.clone(), stream, from, ticket));
                }
                None => node.waiting.refuse(&node, from, "too many that have not said what they want"),
            },
            Err(e) => {
                tracing::error!("accepting connections: {e}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Each kind of connection is a box of its own, here and in `member`: there is one for each of the other nodes, for hours, and a future is as large as
/// the largest that it may have to wait for, handshakes too.
async fn receive(node: Arc<Node>, stream: TcpStream, from: SocketAddr, ticket: Ticket) {
    let limit = Duration::from_millis(node.config.connections.hello_within_ms);
    let purpose = match timeout(limit, look(&stream)).await {
        Ok(Ok(Sniffed::For(purpose))) => purpose,
        Ok(Ok(Sniffed::Refused(why))) => return node.waiting.refuse(&node, from, &why),
        Ok(Ok(Sniffed::NeedMore)) => return,
        Ok(Err(e)) => return node.waiting.refuse(&node, from, &e.to_string()),
        Err(_) => {
            return node.waiting.refuse(&node, from, &format!("no ClientHello within {limit:?}"));
        }
    };
    let _ = stream.set_nodelay(true);
    let ended = match purpose.as_str() {
        SNI_MOVE => {
            // It has a limit of its own: guests that have not proved who they are.
            drop(ticket);
            Box::pin(guests::receive(node.clone(), stream, from)).await;
            return;
        }
        SNI_NODE | SNI_FABRIC | SNI_JOB | SNI_QUEUE => Box::pin(member(&node, stream, from, ticket, &purpose)).await,
        SNI_JOIN => Box::pin(stranger(&node, stream, from)).await,
        other => Err(io::Error::other(format!("it asks for `{}`", crate::owner::clean(other)))),
    };
    if let Err(e) = ended {
        node.waiting.refuse(&node, from, &e.to_string());
    }
}

/// Bytes of one that a node sends, at most.
const USUAL_CLIENT_HELLO: usize = 2048;

async fn look(stream: &TcpStream) -> io::Result<Sniffed> {
    let mut bytes = vec![0; USUAL_CLIENT_HELLO];
    let mut seen = 0;
    loop {
        let n = stream.peek(&mut bytes).await?;
        if n == 0 {
            return Err(io::Error::other("it closed without a word"));
        }
        if n == bytes.len() && n < MAX_CLIENT_HELLO {
            bytes.resize(MAX_CLIENT_HELLO, 0);
            continue;
        }
        if n > seen {
            match sniff(&bytes[..n]) {
                Sniffed::NeedMore => seen = n,
                answer => return Ok(answer),
            }
        }
        // What was peeked stays readable, so there is nothing to wait for but time.
        sleep(LOOK_AGAIN).await;
    }
}

async fn accept(node: &Node, config: &Arc<ServerConfig>, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let limit = Duration::from_millis(node.config.connections.handshake_within_ms);
    let done = timeout(limit, TlsAcceptor::from(config.clone()).accept(stream)).await;
    done.map_err(|_| io::Error::other("no TLS handshake in time"))?
}

async fn member(
    node: &Arc<Node>,
    stream: TcpStream,
    from: SocketAddr,
    ticket: Ticket,
    purpose: &str,
) -> io::Result<()> {
    let stream = Box::new(Box::pin(accept(node, &node.server_tls, stream)).await?);
    let peer = stream.get_ref().1.peer_certificates().and_then(peer_name);
    let peer = peer.ok_or_else(|| io::Error::other("its certificate names no node"))?;
    drop(ticket);
    let ended = match purpose {
        SNI_FABRIC => Box::pin(fabric::accept(node, stream, &peer)).await,
        SNI_JOB => Box::pin(jobs::accept(node, stream, &peer)).await,
        SNI_QUEUE => Box::pin(errand::accept(node, stream, &peer)).await,
        _ => {
            peers::classify(stream.get_ref().0, false);
            Box::pin(peers::attend(node, stream, &peer)).await
        }
    };
    if let Err(e) = ended {
        tracing::info!("node: the connection from {peer} at {from}: {e}");
    }
    Ok(())
}

async fn stranger(node: &Arc<Node>, stream: TcpStream, from: SocketAddr) -> io::Result<()> {
    let stream = Box::pin(accept(node, &node.join_tls, stream)).await?;
    let limit = Duration::from_millis(node.config.connections.handshake_within_ms);
    let done = timeout(limit, admission::serve(node, stream, from)).await;
    done.map_err(|_| io::Error::other("no join request in time"))?
}
