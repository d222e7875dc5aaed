//! One control connection between two daemons: hellos, then heartbeats and lists of members both ways, until one
//! falls silent.

use crate::daemon::Node;
use crate::membership::Membership;
use pando_wire::frame::{self, HEADER, MAX_BODY};
use pando_wire::message::{HELLO_VERSION, Hello, Message};
use pando_wire::version::Versions;
use serde::de::DeserializeOwned;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// A stream of frames.
pub struct Frames<S> {
    stream: S,
    buffer: Vec<u8>,
}

fn broken(e: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e.to_string())
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// Over `stream`.
    pub fn new(stream: S) -> Self {
        Frames { stream, buffer: Vec::new() }
    }

    /// Sends one value.
    pub async fn send<T: serde::Serialize>(&mut self, version: u16, value: &T) -> io::Result<()> {
        let bytes = frame::encode(version, value).map_err(broken)?;
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await
    }

    /// The next value. Cancelling loses nothing: what was read stays in the buffer.
    pub async fn next<T: DeserializeOwned>(&mut self, version: u16) -> io::Result<T> {
        loop {
            if let Some((value, used)) = frame::decode(version, &self.buffer).map_err(broken)? {
                self.buffer.drain(..used);
                return Ok(value);
            }
            // A longer frame was refused by `decode`, so there is always room.
            self.buffer.reserve((HEADER + MAX_BODY).min(16 * 1024));
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(broken("it hung up")),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(broken("it hung up")),
                Err(e) => return Err(e),
            }
        }
    }

    /// Says goodbye properly.
    pub async fn close(&mut self) {
        let _ = self.stream.shutdown().await;
    }
}

/// Exchanges hellos with `peer`, whose certificate says so. Gives the agreed version.
async fn greet<S: AsyncRead + AsyncWrite + Unpin>(node: &Node, frames: &mut Frames<S>, peer: &str) -> io::Result<u16> {
    let hello = Hello {
        versions: Versions::OURS,
        me: node.membership().me(),
        boot: node.boot,
        release: env!("CARGO_PKG_VERSION").into(),
    };
    frames.send(HELLO_VERSION, &hello).await?;
    let theirs: Hello = frames.next(HELLO_VERSION).await?;
    theirs.check().map_err(broken)?;
    if theirs.me.name != peer {
        return Err(broken(format!("it calls itself {}, but its certificate says {peer}", theirs.me.name)));
    }
    let version = Versions::OURS.agree(theirs.versions).map_err(broken)?;
    node.membership().admit(vec![theirs.me]);
    Ok(version)
}

/// Speaks with `peer` until the connection ends; the error says why it did.
pub async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    node: &Arc<Node>,
    stream: S,
    peer: &str,
    mut replaced: oneshot::Receiver<()>,
) -> io::Result<()> {
    let limits = &node.config.membership;
    let patience = Duration::from_millis(node.config.connections.handshake_within_ms);
    let silence = Duration::from_millis(limits.down_after_ms);
    let mut frames = Frames::new(stream);
    let greeted = timeout(patience, greet(node, &mut frames, peer)).await;
    let version = greeted.map_err(|_| broken("no hello in time"))??;
    let mut changes = node.plain.changes();
    changes.mark_changed();
    let mut beat = interval(Duration::from_millis(limits.heartbeat_ms));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seq = 0;
    let mut heard = Instant::now();
    let _link = Linked::new(node, peer);
    loop {
        let message = tokio::select! {
            got = frames.next::<Message>(version) => {
                let message = got?;
                message.check().map_err(broken)?;
                heard = Instant::now();
                match message {
                    Message::Beat { load, .. } => node.plain.roster().heard(peer, load, heard),
                    Message::Members(list) => node.plain.admit(list),
                    Message::Bye { reason } => return Err(broken(format!("it said goodbye: {reason}"))),
                }
                continue;
            }
            _ = beat.tick() => {
                if heard.elapsed() >= silence {
                    return Err(broken(format!("nothing heard for {silence:?}")));
                }
                seq += 1;
                Message::Beat { seq, load: node.load() }
            }
            _ = changes.changed() => Message::Members(node.plain.members()),
            _ = &mut replaced => Message::Bye { reason: "a newer connection took its place".into() },
        };
        let sent = timeout(silence, frames.send(version, &message)).await;
        sent.map_err(|_| broken(format!("it reads nothing for {silence:?}")))??;
        if matches!(message, Message::Bye { .. }) {
            let _ = timeout(silence, frames.close()).await;
            return Ok(());
        }
    }
}

/// Counted in the roster while it lives.
struct Linked<'a> {
    node: &'a Node,
    peer: &'a str,
}

impl<'a> Linked<'a> {
    fn new(node: &'a Node, peer: &'a str) -> Self {
        node.plain.roster().linked(peer, Instant::now());
        node.plain.announce(&node.events);
        Linked { node, peer }
    }
}

impl Drop for Linked<'_> {
    fn drop(&mut self) {
        self.node.plain.roster().unlinked(self.peer);
    }
}
