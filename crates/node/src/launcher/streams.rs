//! What ranks read and write. Nothing is lost: who can't be heard waits.

use super::{Teller, Told};
use pando_kernel::pty;
use pando_launch::{Order, Stdin, Stream, Up};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::task::JoinHandle;

/// Most bytes that are said at once.
const PIECE: usize = 32 << 10;

/// Where what ranks write goes.
pub struct Streams {
    /// This node's place.
    pub place: u32,
    /// Bytes that may be on their way: at most, and just now.
    pub most: usize,
    /// See there.
    pub window: Arc<Semaphore>,
    /// Who says it.
    pub tell: Teller,
}

impl Streams {
    /// Reads one stream of a rank to its end; tells when what the rank itself wrote has been said.
    pub fn read(
        &self,
        rank: u32,
        stream: Stream,
        from: OwnedFd,
        mut phase: watch::Receiver<Phase>,
    ) -> io::Result<JoinHandle<()>> {
        // What is in the pipe is there at once, whatever the event loop knows.
        let mut now = File::from(from.try_clone()?);
        let mut from = source(from)?;
        let mut buffer = vec![0; self.most.clamp(1, PIECE)];
        let mouth = Mouth { place: self.place, rank, stream, window: self.window.clone(), tell: self.tell.clone() };
        Ok(tokio::spawn(async move {
            let mut told = false;
            loop {
                let is = *phase.borrow_and_update();
                if is == Phase::Gone || is == Phase::Ended && !told {
                    let ended = loop {
                        match now.read(&mut buffer) {
                            Ok(0) => break true,
                            Ok(read) => mouth.say(&buffer[..read]).await,
                            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                            Err(e) => break e.kind() != io::ErrorKind::WouldBlock,
                        }
                    };
                    mouth.drained(&mut told);
                    // Somebody else may have its other end open for ever.
                    if ended || is == Phase::Gone {
                        return;
                    }
                }
                tokio::select! {
                    read = from.read(&mut buffer) => match read {
                        Ok(0) | Err(_) => return mouth.drained(&mut told),
                        Ok(read) => mouth.say(&buffer[..read]).await,
                    },
                    changed = phase.changed() => if changed.is_err() {
                        return mouth.drained(&mut told);
                    },
                }
            }
        }))
    }

    /// Reads a pipe to which nobody writes any more, as far as the window allows: what is to be said, and whether that is all.
    pub fn rest(&self, rank: u32, stream: Stream, mut from: &File) -> (Vec<Up>, bool) {
        let mut said = Vec::new();
        loop {
            let mut bytes = vec![0; self.window.available_permits().min(PIECE)];
            let read = match from.read(&mut bytes) {
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return (said, true),
            };
            if read == 0 {
                return (said, !bytes.is_empty());
            }
            bytes.truncate(read);
            // Nobody else takes of it meanwhile: there is one thread.
            self.window.try_acquire_many(read as u32).into_iter().for_each(SemaphorePermit::forget);
            said.push(Up::Output { place: self.place, rank, stream, bytes });
        }
    }

    /// Says a line of ours in a rank's name.
    pub fn say(&self, rank: u32, bytes: Vec<u8>) {
        let (place, stream) = (self.place, Stream::Err);
        let _ = self.tell.send(Told::Say(Up::Output { place, rank, stream, bytes }));
    }
}

/// What a rank writes to: a pipe, or a terminal, which is read as one.
fn source(from: OwnedFd) -> io::Result<pipe::Receiver> {
    match from.is_terminal() {
        true => pipe::Receiver::from_owned_fd_unchecked(pty::without_waiting(from)?.into()),
        false => pipe::Receiver::from_owned_fd(from),
    }
}

/// What a rank reads.
fn sink(to: OwnedFd) -> io::Result<pipe::Sender> {
    match to.is_terminal() {
        true => pipe::Sender::from_owned_fd_unchecked(pty::without_waiting(to)?.into()),
        false => pipe::Sender::from_owned_fd(to),
    }
}

/// What has become of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It runs.
    Runs,
    /// It has ended; what it started may go on.
    Ended,
    /// Nothing is left of it.
    Gone,
}

/// One stream of one rank, on its way out.
struct Mouth {
    place: u32,
    rank: u32,
    stream: Stream,
    window: Arc<Semaphore>,
    tell: Teller,
}

impl Mouth {
    async fn say(&self, bytes: &[u8]) {
        let Ok(permit) = self.window.acquire_many(bytes.len() as u32).await else { return };
        permit.forget();
        let (place, rank, stream, bytes) = (self.place, self.rank, self.stream, bytes.to_vec());
        let _ = self.tell.send(Told::Say(Up::Output { place, rank, stream, bytes }));
    }

    fn drained(&self, told: &mut bool) {
        if !std::mem::replace(told, true) {
            let _ = self.tell.send(Told::Drained(self.rank));
        }
    }
}

/// What ranks read: as much as the user's command has sent, and it sends no more than was said to be taken, and a window.
pub struct Input {
    readers: BTreeMap<u32, UnboundedSender<Vec<u8>>>,
    /// Ranks that will read, and have not begun: what comes early is theirs, too.
    early: Vec<Vec<u8>>,
    ended: bool,
    begun: bool,
    wanted: bool,
    total: Total,
}

/// How much each has taken, and what has been said of it.
type Total = Arc<std::sync::Mutex<(BTreeMap<u32, u64>, u64)>>;

fn said(total: &Total, rank: u32, taken: u64) -> Option<Up> {
    let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (each, before) = &mut *total;
    each.insert(rank, taken);
    let least = each.values().copied().min().unwrap_or(u64::MAX);
    (least > *before).then(|| {
        *before = least;
        Up::StdinTaken(least)
    })
}

impl Input {
    /// Of a place.
    pub fn new(order: &Order, place: u32) -> Input {
        let share = &order.nodes[place as usize];
        let mine = |rank: &u32| match order.stdin {
            Stdin::None => false,
            Stdin::All => true,
            Stdin::Rank(only) => only == *rank,
        };
        let ranks: BTreeMap<u32, u64> =
            (share.first..share.first + share.ranks).filter(mine).map(|rank| (rank, 0)).collect();
        Input {
            readers: BTreeMap::new(),
            early: Vec::new(),
            ended: false,
            begun: false,
            wanted: !ranks.is_empty(),
            total: Arc::new(std::sync::Mutex::new((ranks, 0))),
        }
    }

    /// A rank reads from this pipe.
    pub fn attach(&mut self, rank: u32, to: OwnedFd, streams: &Streams) -> io::Result<()> {
        let to = sink(to)?;
        let (sender, queue) = unbounded_channel();
        self.begun = true;
        tokio::spawn(write(rank, to, queue, self.total.clone(), streams.tell.clone()));
        self.early.iter().for_each(|bytes| _ = sender.send(bytes.clone()));
        if !self.ended {
            self.readers.insert(rank, sender);
        }
        Ok(())
    }

    /// More of it.
    pub fn push(&mut self, bytes: Vec<u8>) {
        if !self.wanted || self.ended {
            return;
        }
        // One that has ended takes no more; its writer has said so.
        self.readers.values().for_each(|queue| _ = queue.send(bytes.clone()));
        if !self.begun {
            self.early.push(bytes);
        }
    }

    /// There is no more.
    pub fn end(&mut self) {
        self.ended = true;
        self.readers.clear();
    }

    /// A rank has ended.
    pub fn gone(&mut self, rank: u32) {
        self.readers.remove(&rank);
    }
}

async fn write(rank: u32, mut to: pipe::Sender, mut queue: UnboundedReceiver<Vec<u8>>, total: Total, tell: Teller) {
    let mut taken = 0;
    while let Some(bytes) = queue.recv().await {
        if to.write_all(&bytes).await.is_err() {
            break;
        }
        taken += bytes.len() as u64;
        said(&total, rank, taken).map(|up| tell.send(Told::Say(up)));
    }
    // It reads no more, and nobody waits for it.
    drop(to);
    said(&total, rank, u64::MAX).map(|up| tell.send(Told::Say(up)));
}
