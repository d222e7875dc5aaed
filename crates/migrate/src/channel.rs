//! One ordered, encrypted, framed connection that never blocks its owner.
//!
//! A frame: length of the head, length of the body (u32 each, little-endian), then sealed (seal.rs) body and head, then the tag. The highest bit of the body's
//! length says that the body is compressed (squeeze.rs).

use crate::message::{MAX_BODY, MAX_HEAD};
use crate::seal::{Forged, Seal, Side, TAG};
use crate::squeeze::{self, Squeeze};
use pando_kernel::poll::receive;
use rustls::Connection;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// What can go wrong on a connection.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side closed.
    #[error("the other node closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// TLS refused.
    #[error("the encrypted connection failed: {0}")]
    Tls(#[from] rustls::Error),
    /// Somebody changed what was sent.
    #[error("the connection was tampered with: {0}")]
    Forged(#[from] Forged),
    /// A frame breaks a limit or does not decode.
    #[error("the other node sent something invalid: {0}")]
    Invalid(String),
    /// Nothing came in time.
    #[error("no answer within {0} ms")]
    Timeout(u64),
    /// The other side does not take what it is sent.
    #[error("it has not taken what it was sent for {0} ms")]
    NotTaken(u64),
}

/// The connection.
pub struct Channel {
    tcp: TcpStream,
    /// Knows the peer and gives the keys; no byte of a frame goes through it.
    tls: Connection,
    sealing: Seal,
    opening: Seal,
    /// Sealed frames, of which the first `sent` bytes have left.
    out: Vec<u8>,
    sent: usize,
    /// Bytes read ahead, of which those before `taken` are used up.
    ahead: Vec<u8>,
    taken: usize,
    /// The frame that is arriving.
    frame: Option<Arriving>,
    closed: bool,
    /// When bytes last arrived.
    pub heard: Instant,
    /// When a frame was last sent.
    pub spoke: Instant,
    /// When the socket last took bytes.
    took: Instant,
    squeeze: Squeeze,
}

/// A frame of which the header is here.
struct Arriving {
    header: [u8; HEADER],
    head: usize,
    body: usize,
    squeezed: bool,
    /// Body, head and tag, as far as they are here.
    data: Vec<u8>,
}

const HEADER: usize = 8;
/// In the length of the body: it is compressed.
const SQUEEZED: u32 = 1 << 31;
/// Bytes that may wait unsent in the socket: answers must not queue behind much of the background push.
const UNSENT_BYTES: u32 = 512 * 1024;
/// Bytes read ahead at once. What is missing of a larger frame is read straight into it.
const AHEAD: usize = 64 * 1024;
/// Bytes that may be queued before nothing more is taken from one who does not take them.
const CROWDED: usize = 8 * 1024 * 1024;
/// Bytes taken from the socket before the owner's other work has its turn.
const TURN: usize = 1024 * 1024;

impl Channel {
    /// Takes over a connected socket and does the TLS handshake, at most `limit` long.
    pub fn establish(mut tcp: TcpStream, mut tls: Connection, limit: Duration) -> Result<Self, ChannelError> {
        tcp.set_nodelay(true)?;
        tcp.set_nonblocking(true)?;
        pando_kernel::poll::limit_unsent(tcp.as_raw_fd(), UNSENT_BYTES)?;
        handshake(&mut tcp, &mut tls, limit)?;
        let now = Instant::now();
        let side = Side::of(&tls);
        Ok(Channel {
            tcp,
            sealing: Seal::new(&tls, side)?,
            opening: Seal::new(&tls, side.other())?,
            tls,
            out: Vec::new(),
            sent: 0,
            ahead: Vec::new(),
            taken: 0,
            frame: None,
            closed: false,
            heard: now,
            spoke: now,
            took: now,
            squeeze: Squeeze::default(),
        })
    }

    /// Compresses where the line is slower than this, bytes a second.
    pub fn squeeze_below(&mut self, rate: u64) {
        self.squeeze = Squeeze::below(rate);
    }

    /// For poll.
    pub fn raw(&self) -> RawFd {
        self.tcp.as_raw_fd()
    }

    /// The socket itself, for those who would write into it what is no frame.
    pub fn socket(&self) -> io::Result<TcpStream> {
        self.tcp.try_clone()
    }

    /// Name of the node at the other end, out of its verified certificate.
    pub fn peer(&self) -> Option<String> {
        self.tls.peer_certificates().and_then(pando_wire::peer_name)
    }

    /// The other side is gone, whatever it said before.
    pub fn hung_up(&self) -> bool {
        pando_kernel::poll::hung_up(self.raw())
    }

    /// Has bytes that the socket did not take yet.
    pub fn wants_write(&self) -> bool {
        self.sent < self.out.len()
    }

    /// The other end asks for more than it takes. Nothing more is to be taken from it until it does: else it decides how much memory
    /// this side needs.
    pub fn is_crowded(&self) -> bool {
        self.out.len() - self.sent > CROWDED
    }

    /// How long the other end has given no sign of life.
    pub fn silent_for(&self) -> Duration {
        // While nothing is taken from it, that it takes something is all that can be seen of it.
        let last = if self.is_crowded() { self.heard.max(self.took) } else { self.heard };
        last.elapsed()
    }

    /// Queues a frame and sends as much as the socket takes.
    pub fn send<T: Serialize>(&mut self, head: &T, body: &[&[u8]]) -> Result<(), ChannelError> {
        let head = postcard::to_stdvec(head).map_err(|e| ChannelError::Invalid(e.to_string()))?;
        let length: usize = body.iter().map(|b| b.len()).sum();
        let begin = self.begin(length + head.len());
        for part in body {
            self.out.extend_from_slice(part);
        }
        self.finish(begin, &head)
    }

    /// The same with a body that `body` writes behind what is there, at most `most` bytes: it is not copied. The inner error is `body`'s.
    pub fn send_made<T: Serialize>(
        &mut self,
        head: &T,
        most: usize,
        body: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> Result<io::Result<()>, ChannelError> {
        let head = postcard::to_stdvec(head).map_err(|e| ChannelError::Invalid(e.to_string()))?;
        let begin = self.begin(most + head.len());
        match body(&mut self.out) {
            Ok(()) => self.finish(begin, &head).map(Ok),
            Err(e) => {
                self.out.truncate(begin);
                Ok(Err(e))
            }
        }
    }

    /// Room for a frame, and for its header.
    fn begin(&mut self, length: usize) -> usize {
        self.out.reserve(HEADER + length + TAG);
        self.out.extend_from_slice(&[0; HEADER]);
        self.out.len() - HEADER
    }

    /// Sends the frame whose body is behind the room for its header, at `begin`.
    fn finish(&mut self, begin: usize, head: &[u8]) -> Result<(), ChannelError> {
        let body = begin + HEADER;
        let line = || pando_kernel::poll::delivery_rate(self.tcp.as_raw_fd());
        let squeezed = self.squeeze.body(&self.out[body..], line);
        if let Some(squeezed) = &squeezed {
            self.out.truncate(body);
            self.out.extend_from_slice(squeezed);
        }
        let header = header(head.len(), self.out.len() - body, squeezed.is_some());
        self.out[begin..body].copy_from_slice(&header);
        self.out.extend_from_slice(head);
        let tag = self.sealing.close(&self.tls, &header, &mut self.out[body..])?;
        self.out.extend_from_slice(&tag);
        self.spoke = Instant::now();
        self.flush()
    }

    /// Sends what is queued, as far as the socket takes it.
    pub fn flush(&mut self) -> Result<(), ChannelError> {
        while self.wants_write() {
            match self.tcp.write(&self.out[self.sent..]) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(n) => {
                    self.sent += n;
                    self.took = Instant::now();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads what the socket has, until a frame is whole or a bound is met. True if there may be more.
    fn fill(&mut self) -> Result<bool, ChannelError> {
        let missing = self.frame.as_ref().map_or(0, Arriving::missing);
        let socket = self.tcp.as_raw_fd();
        let result = match &mut self.frame {
            Some(frame) if missing > AHEAD => receive(socket, &mut frame.data, missing),
            _ => {
                self.ahead.clear();
                self.taken = 0;
                receive(socket, &mut self.ahead, AHEAD)
            }
        };
        match result {
            Ok(0) => {
                self.closed = true;
                Ok(false)
            }
            Ok(_) => {
                self.heard = Instant::now();
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    /// Uses what was read ahead. True when the frame is whole.
    fn advance(&mut self) -> Result<bool, ChannelError> {
        let have = &self.ahead[self.taken..];
        if self.frame.is_none() {
            let Some(header) = have.first_chunk::<HEADER>() else { return Ok(false) };
            self.frame = Some(Arriving::new(*header)?);
            self.taken += HEADER;
        }
        let Some(frame) = &mut self.frame else { return Ok(false) };
        let have = &self.ahead[self.taken..];
        let take = have.len().min(frame.missing());
        frame.data.extend_from_slice(&have[..take]);
        self.taken += take;
        Ok(frame.missing() == 0)
    }

    /// Has a whole frame arrived that was not taken yet?
    pub fn has_frame(&self) -> bool {
        let have = &self.ahead[self.taken..];
        match (&self.frame, have.first_chunk::<HEADER>()) {
            (Some(frame), _) => have.len() >= frame.missing(),
            // One that breaks a limit counts: it is an error to be taken.
            (None, Some(header)) => lengths(header).is_none_or(|(h, b)| have.len() >= HEADER + h + b + TAG),
            (None, None) => false,
        }
    }

    /// Keeps a header that has arrived in part in front of what comes next.
    fn read_on(&mut self) -> Result<bool, ChannelError> {
        let rest = self.ahead.split_off(self.taken);
        if rest.is_empty() {
            return self.fill();
        }
        let more = self.fill()?;
        self.ahead.splice(..0, rest);
        Ok(more)
    }

    /// The next frame, if a whole one has arrived.
    pub fn next_frame<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<u8>)>, ChannelError> {
        let mut budget = TURN.div_ceil(AHEAD);
        while !self.advance()? {
            let more = self.read_on()?;
            if self.advance()? {
                break;
            }
            if self.closed {
                return Err(ChannelError::Closed);
            }
            budget -= 1;
            if !more || budget == 0 {
                return Ok(None);
            }
        }
        let Some(mut frame) = self.frame.take() else { return Ok(None) };
        self.opening.open(&self.tls, &frame.header, &mut frame.data)?;
        let head = &frame.data[frame.body..frame.body + frame.head];
        let value = postcard::from_bytes(head).map_err(|e| ChannelError::Invalid(e.to_string()))?;
        frame.data.truncate(frame.body);
        let body = if frame.squeezed { squeeze::undo(&frame.data).map_err(ChannelError::Invalid)? } else { frame.data };
        Ok(Some((value, body)))
    }

    /// Waits for the next frame.
    pub fn wait<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<(T, Vec<u8>), ChannelError> {
        let begin = Instant::now();
        loop {
            if let Some(frame) = self.next_frame()? {
                return Ok(frame);
            }
            let timeout = ChannelError::Timeout(limit.as_millis() as u64);
            let left = limit.checked_sub(begin.elapsed()).ok_or(timeout)?;
            pando_kernel::poll::wait(&[(self.raw(), self.wants_write())], left.as_micros() as i64)?;
            self.flush()?;
        }
    }

    /// Waits until everything queued has left. An error if that takes longer than `limit`.
    pub fn deliver(&mut self, limit: Duration) -> Result<(), ChannelError> {
        self.drain(limit);
        self.flush()?;
        if self.wants_write() { Err(ChannelError::NotTaken(limit.as_millis() as u64)) } else { Ok(()) }
    }

    /// Waits until everything queued has left, at most `limit`.
    pub fn drain(&mut self, limit: Duration) {
        let begin = Instant::now();
        while self.wants_write() && begin.elapsed() < limit {
            if self.flush().is_err() {
                return;
            }
            let _ = pando_kernel::poll::wait(&[(self.raw(), true)], 10_000);
        }
    }
}

fn header(head: usize, body: usize, squeezed: bool) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[..4].copy_from_slice(&(head as u32).to_le_bytes());
    let mark = if squeezed { SQUEEZED } else { 0 };
    out[4..].copy_from_slice(&(body as u32 | mark).to_le_bytes());
    out
}

/// Bytes of head and body; none if that is more than allowed.
pub(crate) fn lengths(header: &[u8; HEADER]) -> Option<(usize, usize)> {
    let [a, b, c, d, e, f, g, h] = *header;
    let (head, body) = (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]));
    let body = (body & !SQUEEZED) as usize;
    (head <= MAX_HEAD && body <= MAX_BODY).then_some((head, body))
}

impl Arriving {
    fn new(header: [u8; HEADER]) -> Result<Arriving, ChannelError> {
        let limit = || ChannelError::Invalid(format!("a frame of more than {MAX_HEAD}+{MAX_BODY} bytes"));
        let (head, body) = lengths(&header).ok_or_else(limit)?;
        let squeezed = header[7] & 0x80 != 0;
        Ok(Arriving { header, head, body, squeezed, data: Vec::with_capacity(head + body + TAG) })
    }

    fn missing(&self) -> usize {
        self.head + self.body + TAG - self.data.len()
    }
}

/// The TLS handshake. Not a byte behind it is read: what follows are frames of ours.
fn handshake(tcp: &mut TcpStream, tls: &mut Connection, limit: Duration) -> Result<(), ChannelError> {
    const RECORD_HEADER: usize = 5;
    const LONGEST: usize = 16_384 + 256;
    let begin = Instant::now();
    let mut record: Vec<u8> = Vec::new();
    while tls.is_handshaking() || tls.wants_write() {
        while tls.wants_write() {
            match tls.write_tls(tcp) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e.into()),
            }
        }
        if !tls.is_handshaking() && !tls.wants_write() {
            break;
        }
        let whole = match record.first_chunk::<RECORD_HEADER>() {
            Some(header) => RECORD_HEADER + usize::from(u16::from_be_bytes([header[3], header[4]])),
            None => RECORD_HEADER,
        };
        if whole > LONGEST {
            return Err(ChannelError::Invalid("a record longer than TLS allows".into()));
        }
        let have = record.len();
        if tls.is_handshaking() && have < whole {
            record.resize(whole, 0);
            let result = tcp.read(&mut record[have..]);
            record.truncate(have + *result.as_ref().unwrap_or(&0));
            match result {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(_) => continue,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
        } else if tls.is_handshaking() && have > RECORD_HEADER {
            tls.read_tls(&mut record.as_slice())?;
            record.clear();
            if let Err(e) = tls.process_new_packets() {
                // The other side should hear why.
                let _ = tls.write_tls(tcp);
                return Err(e.into());
            }
            continue;
        }
        let left = limit.checked_sub(begin.elapsed()).ok_or(ChannelError::Timeout(limit.as_millis() as u64))?;
        pando_kernel::poll::wait(&[(tcp.as_raw_fd(), tls.wants_write())], left.as_micros() as i64)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
