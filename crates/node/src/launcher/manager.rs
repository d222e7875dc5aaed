//! The process manager of this node's ranks: a connection of each, on a descriptor that PMI_FD names.

use super::{Teller, Told};
use pando_launch::pmi::{MOST_LINE, Reply, Server};
use pando_launch::{Asker, Granted, Order, Said, Stream, Up};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc::{Sender, channel};

/// Answers that a rank has not read.
const UNREAD: usize = 256;

/// See above.
pub struct Manager {
    server: Server,
    place: u32,
    lines: BTreeMap<u32, Sender<String>>,
}

impl Manager {
    /// For the ranks of this place.
    pub fn new(order: &Arc<Order>, place: u32) -> Manager {
        Manager { server: Server::new(order.clone(), place), place, lines: BTreeMap::new() }
    }

    /// A rank has begun, with this connection.
    pub fn attach(&mut self, rank: u32, connection: UnixStream, tell: &Teller) {
        let (from, mut to) = connection.into_split();
        let (sender, mut lines) = channel::<String>(UNREAD);
        self.lines.insert(rank, sender);
        tokio::spawn(read(self.place, rank, from, tell.clone()));
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if to.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Has it begun to speak to others, and not said that it has finished?
    pub fn is_inside(&self, rank: u32) -> bool {
        self.server.is_inside(rank)
    }

    /// A rank says something. What the job is to hear of it.
    pub fn line(&mut self, rank: u32, line: &str) -> Vec<Up> {
        if !self.lines.contains_key(&rank) {
            return Vec::new();
        }
        let replies = self.server.line(rank, line);
        self.do_all(replies)
    }

    /// All ranks of the job have come to the barrier.
    pub fn fenced(&mut self, said: &[Said]) {
        let replies = self.server.fenced(said);
        self.do_all(replies);
    }

    /// What has come of a rank's wish. What the job is to hear of it.
    pub fn granted(&mut self, rank: u32, granted: Granted) -> Vec<Up> {
        let replies = self.server.granted(rank, granted);
        self.do_all(replies)
    }

    fn do_all(&mut self, replies: Vec<Reply>) -> Vec<Up> {
        let mut ups = Vec::new();
        for reply in replies {
            match reply {
                // One that asks and does not read what it is told is not heard any more.
                Reply::Line(rank, text) => {
                    if self.lines.get(&rank).is_some_and(|to| to.try_send(text).is_err()) {
                        self.lines.remove(&rank);
                    }
                }
                Reply::Wish(rank, wish) => {
                    // It waits for the answer: one has one wish at a time.
                    let asker = Asker { place: self.place, rank, number: 0 };
                    ups.push(Up::Wish { asker, wish });
                }
                Reply::Say(rank, why) => {
                    let (stream, bytes) = (Stream::Err, format!("pando: {why}\n").into_bytes());
                    ups.push(Up::Output { place: self.place, rank, stream, bytes });
                }
                Reply::Fence(said) => ups.push(Up::Fence(said)),
                Reply::Abort(rank, status) => ups.push(Up::Abort { rank, status }),
            }
        }
        ups
    }
}

async fn read(place: u32, rank: u32, from: OwnedReadHalf, tell: Teller) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        let read = (&mut from).take(MOST_LINE as u64).read_until(b'\n', &mut line).await;
        if line.len() >= MOST_LINE && !line.ends_with(b"\n") {
            // Nothing that a library says. It waits for an answer, and would for ever.
            let why = format!("pando: it says a line of more than {MOST_LINE} bytes to its process manager (PMI-1)\n");
            let _ = tell.send(Told::Say(Up::Output { place, rank, stream: Stream::Err, bytes: why.into_bytes() }));
            let _ = tell.send(Told::Say(Up::Abort { rank, status: 1 }));
            return;
        }
        if !matches!(read, Ok(n) if n > 0) || !line.ends_with(b"\n") {
            return;
        }
        let _ = tell.send(Told::Line(rank, String::from_utf8_lossy(&line).into_owned()));
    }
}
