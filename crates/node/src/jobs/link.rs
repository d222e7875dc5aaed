//! One link of a job's tree: frames both ways over a stream, and a beat, so that silence means something.

use pando_launch::{Frames, encode};
use serde::{Serialize, de::DeserializeOwned};
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc::{Sender, UnboundedReceiver};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

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
    /// The queue; when it ends, after all that is in it, comes `end`.
    pub queue: UnboundedReceiver<O>,
    /// What is said when there is nothing to say.
    pub beat: O,
    /// The other end is lost when nothing has been heard of it for so long; none: only when it closes.
    pub silence: Option<Duration>,
    /// See there.
    pub end: End<O>,
}

/// What follows when there is nothing more to say.
pub enum End<O> {
    /// This end closes.
    Closes,
    /// If the other end has had its last word, this is ours, and the link can serve again. Otherwise this end closes.
    Says(O),
    /// The other end's last word is waited for; then the link can serve again.
    Waits,
}

/// What has become of a link.
pub enum Close<S> {
    /// Nothing is heard on it any more; why, for people.
    Lost(String),
    /// Both ends have had their last word: it can serve again. What has been read of what comes next.
    Kept(S, Frames),
}

/// Speaks until one end closes, or both have had their last word. What is heard goes to `heard`, which may make it wait.
pub async fn talk<S, I, O, E>(
    stream: S,
    frames: Frames,
    said: Said<O>,
    heard: Sender<E>,
    (event, is_last): (impl Fn(I) -> E, impl Fn(&I) -> bool),
) -> Close<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
    I: DeserializeOwned,
    O: Serialize + Clone,
{
    let (from, to) = split(stream);
    let over = AtomicBool::new(false);
    let ear = Ear { from, frames, silence: said.silence, over: &over };
    let (mut reading, mut writing) = (pin!(ear.listen(heard, event, is_last)), pin!(writes(to, said, &over)));
    let (read, written) = tokio::select! {
        read = &mut reading => match read {
            Ok(read) => (Ok(read), writing.await),
            Err(why) => return Close::Lost(why),
        },
        written = &mut writing => match written {
            Ok(written) => (reading.await, Ok(written)),
            Err(why) => return Close::Lost(why),
        },
    };
    match (read, written) {
        (Ok((from, frames)), Ok(Some(to))) => Close::Kept(from.unsplit(to), frames),
        (Ok(_), Ok(None)) => Close::Lost("it is needed no more".into()),
        (Err(why), _) | (_, Err(why)) => Close::Lost(why),
    }
}

/// The half of a link that hears.
struct Ear<'a, S> {
    from: ReadHalf<S>,
    frames: Frames,
    silence: Option<Duration>,
    /// The other end has had its last word.
    over: &'a AtomicBool,
}

impl<S: AsyncRead + AsyncWrite> Ear<'_, S> {
    /// To the other end's last word. The listener is told nothing after it, and finds its channel closed.
    async fn listen<I: DeserializeOwned, E>(
        mut self,
        heard: Sender<E>,
        event: impl Fn(I) -> E,
        is_last: impl Fn(&I) -> bool,
    ) -> Result<(ReadHalf<S>, Frames), String> {
        loop {
            let value = self.next::<I>().await?;
            let last = is_last(&value);
            self.over.store(last, Relaxed);
            // Who needs nothing more is still spoken to: closed with something unread we would take our own last words back.
            let unheard = heard.send(event(value)).await.is_err();
            if last {
                break;
            }
            if unheard {
                let rest = async {
                    while !is_last(&self.next::<I>().await?) {}
                    Ok::<_, String>(())
                };
                timeout(LAST_WORDS, rest).await.map_err(|_| "it is needed no more".to_owned())??;
                self.over.store(true, Relaxed);
                break;
            }
        }
        Ok((self.from, self.frames))
    }

    async fn next<I: DeserializeOwned>(&mut self) -> Result<I, String> {
        let read = next::<_, I>(&mut self.from, &mut self.frames);
        let got = match self.silence {
            Some(limit) => timeout(limit, read).await.map_err(|_| format!("nothing was heard of it for {limit:?}"))?,
            None => read.await,
        };
        got.map_err(|e| in_words(&e))?.ok_or_else(|| "it hung up".to_owned())
    }
}

/// Gives the stream back if the link can serve again.
async fn writes<S, O>(mut to: WriteHalf<S>, said: Said<O>, over: &AtomicBool) -> Result<Option<WriteHalf<S>>, String>
where
    S: AsyncRead + AsyncWrite,
    O: Serialize + Clone,
{
    let Said { mut queue, beat, silence, end } = said;
    // What is said first says more than a beat.
    let mut beats = interval_at(Instant::now() + BEAT, BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let value = tokio::select! {
            next = queue.recv() => next,
            _ = beats.tick(), if silence.is_some() => Some(beat.clone()),
        };
        let Some(value) = value else { break };
        let mut bytes = encode(&value).map_err(|e| e.to_string())?;
        while bytes.len() < BATCH
            && let Ok(value) = queue.try_recv()
            && let Ok(more) = encode(&value)
        {
            bytes.extend(more);
        }
        if let Err(e) = put(&mut to, &bytes).await {
            // Who hears no more may have said why before it stopped: that is read first.
            tokio::time::sleep(LAST_WORDS).await;
            return Err(in_words(&e));
        }
    }
    match end {
        End::Waits => Ok(Some(to)),
        End::Says(last) if over.load(Relaxed) => {
            let bytes = encode(&last).map_err(|e| e.to_string())?;
            put(&mut to, &bytes).await.map_err(|e| in_words(&e))?;
            Ok(Some(to))
        }
        _ => {
            let _ = to.shutdown().await;
            Ok(None)
        }
    }
}

async fn put<W: AsyncWrite + Unpin>(to: &mut W, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// Has nothing come on it, not even its end, as far as is known without waiting?
pub async fn is_quiet<S: AsyncRead + Unpin>(stream: &mut S) -> bool {
    let mut byte = [0];
    let mut room = ReadBuf::new(&mut byte);
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *stream).poll_read(cx, &mut room).is_pending())).await
}

/// Waits until a frame is there, and leaves it there.
pub async fn answers<S: AsyncRead + Unpin>(stream: &mut S, frames: &mut Frames) -> io::Result<()> {
    while !frames.has_one() {
        if stream.read_buf(frames.room()).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}
