//! One link of a job's tree: frames both ways over a stream, and a beat, so that silence means something.

use pando_launch::{Frames, encode};
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::mpsc::{Sender, UnboundedReceiver};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Between two beats.
const BEAT: Duration = Duration::from_secs(1);
/// What the other end said before it closed comes within this.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// Bytes that are written at once, about.
const BATCH: usize = 128 << 10;

/// What happened to a link, for people.
pub fn in_words(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "it hung up".into()
        }
        io::ErrorKind::ConnectionRefused => "no node runs there".into(),
        io::ErrorKind::TimedOut => "it does not answer".into(),
        _ => e.to_string(),
    }
}

/// The next frame; none at the end of the stream.
pub async fn next<S: AsyncRead + Unpin, T: DeserializeOwned>(
    stream: &mut S,
    frames: &mut Frames,
) -> io::Result<Option<T>> {
    loop {
        if let Some(value) = frames.take().map_err(io::Error::other)? {
            return Ok(Some(value));
        }
        if stream.read_buf(frames.room()).await? == 0 {
            return Ok(None);
        }
    }
}

/// What is said on a link.
pub struct Said<O> {
    /// The queue; the link is closed when it is, after all that is in it.
    pub queue: UnboundedReceiver<O>,
    /// What is said when there is nothing to say.
    pub beat: O,
    /// The other end is lost when nothing has been heard of it for so long; none: only when it closes.
    pub silence: Option<Duration>,
}

/// Speaks until one end closes; gives why. What is heard goes to `heard`, which may make it wait.
pub async fn talk<S, I, O, E>(
    stream: S,
    mut frames: Frames,
    said: Said<O>,
    heard: &Sender<E>,
    event: impl Fn(I) -> E,
) -> String
where
    S: AsyncRead + AsyncWrite,
    I: DeserializeOwned,
    O: Serialize + Clone,
{
    let (from, to) = split(stream);
    tokio::select! {
        why = reads(from, &mut frames, said.silence, heard, event) => why,
        why = writes(to, said) => why,
    }
}

async fn reads<R, I, E>(
    mut from: R,
    frames: &mut Frames,
    silence: Option<Duration>,
    heard: &Sender<E>,
    event: impl Fn(I) -> E,
) -> String
where
    R: AsyncRead + Unpin,
    I: DeserializeOwned,
{
    loop {
        let read = next::<_, I>(&mut from, frames);
        let got = match silence {
            Some(limit) => match timeout(limit, read).await {
                Ok(got) => got,
                Err(_) => return format!("nothing was heard of it for {limit:?}"),
            },
            None => read.await,
        };
        match got {
            Ok(Some(value)) => {
                if heard.send(event(value)).await.is_err() {
                    // It is needed no more. Closed with something unread it would take our last words with it.
                    let mut nowhere = tokio::io::sink();
                    let _ = timeout(LAST_WORDS, tokio::io::copy(&mut from, &mut nowhere)).await;
                    return "it is needed no more".into();
                }
            }
            Ok(None) => return "it hung up".into(),
            Err(e) => return in_words(&e),
        }
    }
}

async fn writes<W: AsyncWrite + Unpin, O: Serialize + Clone>(mut to: W, said: Said<O>) -> String {
    let Said { mut queue, beat, silence } = said;
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let value = tokio::select! {
            next = queue.recv() => next,
            _ = beats.tick(), if silence.is_some() => Some(beat.clone()),
        };
        let Some(value) = value else {
            let _ = to.shutdown().await;
            // The other end has the last word.
            return std::future::pending::<String>().await;
        };
        let mut bytes = match encode(&value) {
            Ok(bytes) => bytes,
            Err(e) => return e.to_string(),
        };
        while bytes.len() < BATCH
            && let Ok(value) = queue.try_recv()
            && let Ok(more) = encode(&value)
        {
            bytes.extend(more);
        }
        let written = match to.write_all(&bytes).await {
            Ok(()) => to.flush().await,
            failed => failed,
        };
        if let Err(e) = written {
            // Who hears no more may have said why before it stopped: that is read first.
            tokio::time::sleep(LAST_WORDS).await;
            return in_words(&e);
        }
    }
}
