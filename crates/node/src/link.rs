//! One connection between two daemons: hellos, then messages both ways, until nobody has had anything to say for long, or the other end is silent
//! when it should not be.

use crate::daemon::Node;
use crate::peers;
use pando_wire::frame;
use pando_wire::message::{HELLO_VERSION, Hello, Message};
use pando_wire::version::Versions;
use serde::de::DeserializeOwned;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// A stream of frames.
pub struct Frames<S> {
    stream: S,
    buffer: Vec<u8>,
}

/// Something that ends a connection.
pub fn broken(e: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e.to_string())
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// Over `stream`.
    pub fn new(stream: S) -> Self {
        Frames { stream, buffer: Vec::new() }
    }

    /// Sends one value. So many bytes it was.
    pub async fn send<T: serde::Serialize>(&mut self, version: u16, value: &T) -> io::Result<usize> {
        let bytes = frame::encode(version, value).map_err(broken)?;
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await?;
        Ok(bytes.len())
    }

    /// The next value. Cancelling loses nothing: what was read stays in the buffer.
    pub async fn next<T: DeserializeOwned>(&mut self, version: u16) -> io::Result<T> {
        loop {
            if let Some((value, used)) = frame::decode(version, &self.buffer).map_err(broken)? {
                self.buffer.drain(..used);
                return Ok(value);
            }
            // A longer frame was refused by `decode`, so the buffer does not grow for ever.
            match more(&mut self.stream, &mut self.buffer).await {
                Ok(0) => return Err(broken("it hung up")),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(broken("it hung up")),
                Err(e) => return Err(e),
            }
        }
    }

    /// The stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The stream, and what was read from it and not used.
    pub fn into_parts(self) -> (S, Vec<u8>) {
        (self.stream, self.buffer)
    }

    /// Says goodbye properly.
    pub async fn close(&mut self) {
        let _ = self.stream.shutdown().await;
    }
}

/// Reads some of what is there to the end of `buffer`; so many bytes it was, none at the end. Cancelling loses nothing. While nothing comes an empty
/// buffer is no memory: a node has connections to all others.
pub async fn more<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut Vec<u8>) -> io::Result<usize> {
    // What a TLS record carries.
    const SOME: usize = 16 << 10;
    if !buffer.is_empty() {
        buffer.reserve(SOME);
        return stream.read_buf(buffer).await;
    }
    *buffer = Vec::new();
    poll_fn(|cx| {
        let mut space = [MaybeUninit::uninit(); SOME];
        let mut read = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut *stream).poll_read(cx, &mut read))?;
        buffer.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    })
    .await
}

/// Exchanges hellos with `peer`, whose certificate says so. Gives the agreed version.
async fn greet<S: AsyncRead + AsyncWrite + Unpin>(node: &Node, frames: &mut Frames<S>, peer: &str) -> io::Result<u16> {
    let hello = Hello {
        versions: Versions::OURS,
        me: node.cluster.me(),
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
    node.cluster.admit(theirs.me);
    Ok(version)
}

/// Speaks with `peer` until the connection ends; the error says why it did. `queue`: what is to be sent.
pub async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    node: &Arc<Node>,
    stream: S,
    peer: &str,
    queue: &mut mpsc::Receiver<Message>,
) -> io::Result<()> {
    let limits = &node.config.connections;
    let patience = Duration::from_millis(limits.handshake_within_ms);
    let (silence, idle) = (Duration::from_millis(limits.silence_ms), Duration::from_millis(limits.idle_ms));
    let mut frames = Frames::new(stream);
    let greeted = timeout(patience, greet(node, &mut frames, peer)).await;
    let version = greeted.map_err(|_| broken("no hello in time"))??;
    let mut look = interval(silence.min(idle) / 2);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut heard, mut spoke, mut unanswered) = (Instant::now(), Instant::now(), None);
    loop {
        let message = tokio::select! {
            got = frames.next::<Message>(version) => {
                let message = got?;
                message.check().map_err(broken)?;
                (heard, unanswered) = (Instant::now(), None);
                if let Message::Bye { reason } = message {
                    return Err(broken(format!("it said goodbye: {reason}")));
                }
                peers::heed(node, peer, message).map_err(broken)?;
                continue;
            }
            _ = look.tick() => {
                // Whoever is asked answers, sooner or later: probes are.
                if unanswered.is_some_and(|since: Instant| since.elapsed() >= silence) {
                    return Err(broken(format!("nothing heard for {silence:?}")));
                }
                if heard.elapsed().min(spoke.elapsed()) < idle {
                    continue;
                }
                Message::Bye { reason: "nobody has anything to say".into() }
            }
            next = queue.recv() => next.unwrap_or(Message::Bye { reason: "it is needed no more".into() }),
        };
        let sent = timeout(silence, frames.send(version, &message)).await;
        let bytes = sent.map_err(|_| broken(format!("it reads nothing for {silence:?}")))??;
        if matches!(message, Message::Swim(_) | Message::Loads(_)) {
            node.counts.gossiped(bytes);
        }
        spoke = Instant::now();
        if matches!(message, Message::Swim(_) | Message::Ask { .. }) {
            unanswered.get_or_insert(spoke);
        }
        if matches!(message, Message::Bye { .. }) {
            let _ = timeout(silence, frames.close()).await;
            return Ok(());
        }
    }
}
