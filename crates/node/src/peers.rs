//! Keeps one control connection to every member: dials those that have none, and drops the older of two.

use crate::daemon::Node;
use crate::link;
use crate::membership::Membership;
use pando_wire::rustls::pki_types::ServerName;
use pando_wire::{SNI_NODE, peer_name};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

/// One connection: its number, and how to end it.
type Standing = (u64, oneshot::Sender<()>);

/// The connections that stand, by peer, oldest first.
#[derive(Default)]
pub struct Links {
    standing: Mutex<BTreeMap<String, Vec<Standing>>>,
}

/// No peer needs more connections than this, not even while old ones die.
const MAX_PER_PEER: usize = 4;

impl Links {
    /// A new one to `peer`. Of the two ends only the one whose name comes first drops what is older, so that they
    /// never drop one each.
    fn add(&self, me: &str, peer: &str, id: u64) -> oneshot::Receiver<()> {
        let (cancel, cancelled) = oneshot::channel();
        let mut all = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = all.entry(peer.to_owned()).or_default();
        let keep = if me < peer { 0 } else { MAX_PER_PEER - 1 };
        while mine.len() > keep {
            let _ = mine.remove(0).1.send(());
        }
        mine.push((id, cancel));
        cancelled
    }

    fn remove(&self, peer: &str, id: u64) {
        let mut all = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mine) = all.get_mut(peer) {
            mine.retain(|(other, _)| *other != id);
        }
    }
}

/// Runs a connection whose TLS handshake is done.
pub async fn attend<S: AsyncRead + AsyncWrite + Unpin>(node: &Arc<Node>, stream: S, peer: &str) -> io::Result<()> {
    if peer == node.name() {
        return Err(io::Error::other("it has this node's own name"));
    }
    let id = node.number();
    let cancelled = node.links.add(&node.name(), peer, id);
    let ended = link::run(node, stream, peer, cancelled).await;
    node.links.remove(peer, id);
    node.plain.announce(&node.events);
    ended
}

/// Starts a dialler for each member, now and as they come.
pub async fn keep(node: Arc<Node>) {
    let mut changes = node.plain.changes();
    let mut dialled = BTreeSet::new();
    loop {
        for member in node.plain.members() {
            if member.name != node.name() && dialled.insert(member.name.clone()) {
                tokio::spawn(dial(node.clone(), member.name));
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn dial(node: Arc<Node>, peer: String) {
    let pause = Duration::from_millis(node.config.membership.redial_ms);
    if node.name() > peer {
        // Let the other end have the first try.
        sleep(pause / 2).await;
    }
    let mut said = String::new();
    loop {
        if !node.plain.roster().is_linked(&peer) {
            let ended = connect(&node, &peer).await;
            if let Err(e) = ended {
                if e.kind() == io::ErrorKind::ConnectionRefused {
                    node.plain.roster().refused(&peer);
                }
                let text = e.to_string();
                // Once, not twice a second for as long as it is away.
                if text != said {
                    tracing::info!("node: the connection to {peer}: {text}");
                    said = text;
                }
            } else {
                said.clear();
            }
        }
        sleep(pause).await;
    }
}

async fn connect(node: &Arc<Node>, peer: &str) -> io::Result<()> {
    let patience = Duration::from_millis(node.config.connections.handshake_within_ms);
    let known = node.membership().find(peer).ok_or_else(|| io::Error::other("not a member"))?;
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let stream = timeout(patience, TcpStream::connect(known.addr.as_str())).await.map_err(late)??;
    stream.set_nodelay(true)?;
    let connector = TlsConnector::from(node.client_tls.clone());
    let name = ServerName::try_from(SNI_NODE).map_err(io::Error::other)?;
    let stream = timeout(patience, connector.connect(name, stream)).await.map_err(late)??;
    let answered = stream.get_ref().1.peer_certificates().and_then(peer_name).unwrap_or_default();
    if answered != peer {
        return Err(io::Error::other(format!("{} is {answered}, not {peer}", known.addr)));
    }
    attend(node, stream, peer).await
}
