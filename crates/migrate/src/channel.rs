//! One ordered, encrypted, framed connection that never blocks its owner.

use crate::message::{MAX_BODY, MAX_HEAD};
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
    /// A frame breaks a limit or does not decode.
    #[error("the other node sent something invalid: {0}")]
    Invalid(String),
    /// Nothing came in time.
    #[error("no answer within {0} ms")]
    Timeout(u64),
}

/// The connection.
pub struct Channel {
    tcp: TcpStream,
    tls: Connection,
    raw: Vec<u8>,
    input: Vec<u8>,
    consumed: usize,
    closed: bool,
    /// When bytes last arrived.
    pub heard: Instant,
    /// When a frame was last sent.
    pub spoke: Instant,
}

const HEADER: usize = 8;
/// Bytes that may wait unsent in the socket: answers must not queue behind much of the background push.
const UNSENT_BYTES: u32 = 512 * 1024;
/// Bytes taken from the socket at once.
const RAW_BYTES: usize = 256 * 1024;

impl Channel {
    /// Takes over a connected socket and does the TLS handshake, at most `limit` long.
    pub fn establish(tcp: TcpStream, tls: Connection, limit: Duration) -> Result<Self, ChannelError> {
        tcp.set_nodelay(true)?;
        tcp.set_nonblocking(true)?;
        pando_kernel::poll::limit_unsent(tcp.as_raw_fd(), UNSENT_BYTES)?;
        let now = Instant::now();
        let mut ch = Channel {
            tcp,
            tls,
            raw: vec![0; RAW_BYTES],
            input: Vec::new(),
            consumed: 0,
            closed: false,
            heard: now,
            spoke: now,
        };
        ch.tls.set_buffer_limit(None);
        while ch.tls.is_handshaking() {
            ch.flush()?;
            ch.fill()?;
            if !ch.tls.is_handshaking() {
                break;
            }
            if ch.closed {
                return Err(ChannelError::Closed);
            }
            let left = limit.checked_sub(now.elapsed()).ok_or(ChannelError::Timeout(limit.as_millis() as u64))?;
            pando_kernel::poll::wait(&[(ch.raw(), ch.tls.wants_write())], left.as_micros() as i64)?;
        }
        ch.flush()?;
        Ok(ch)
    }

    /// For poll.
    pub fn raw(&self) -> RawFd {
        self.tcp.as_raw_fd()
    }

    /// Name of the node at the other end, out of its verified certificate.
    pub fn peer(&self) -> Option<String> {
        self.tls.peer_certificates().and_then(pando_wire::peer_name)
    }

    /// Has bytes that the socket did not take yet.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Queues a frame and sends as much as the socket takes.
    pub fn send<T: Serialize>(&mut self, head: &T, body: &[&[u8]]) -> Result<(), ChannelError> {
        let head = postcard::to_stdvec(head).map_err(|e| ChannelError::Invalid(e.to_string()))?;
        let length: usize = body.iter().map(|b| b.len()).sum();
        let mut start = Vec::with_capacity(HEADER + head.len());
        start.extend_from_slice(&(head.len() as u32).to_le_bytes());
        start.extend_from_slice(&(length as u32).to_le_bytes());
        start.extend_from_slice(&head);
        if length > 0 && length < 8192 {
            for part in body {
                start.extend_from_slice(part);
            }
            self.tls.writer().write_all(&start)?;
        } else {
            let mut writer = self.tls.writer();
            writer.write_all(&start)?;
            for part in body {
                writer.write_all(part)?;
            }
        }
        self.spoke = Instant::now();
        self.flush()
    }

    /// Sends what is queued, as far as the socket takes it.
    pub fn flush(&mut self) -> Result<(), ChannelError> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.tcp) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Reads what the socket has.
    fn fill(&mut self) -> Result<(), ChannelError> {
        if self.consumed > 0 && (self.consumed == self.input.len() || self.consumed > 1 << 20) {
            self.input.drain(..self.consumed);
            self.consumed = 0;
        }
        // A bound on what one call takes in, so that the owner's other work is never starved.
        for _ in 0..4 {
            let got = match self.tcp.read(&mut self.raw) {
                Ok(0) => {
                    self.closed = true;
                    break;
                }
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e.into()),
            };
            self.heard = Instant::now();
            self.decrypt(got)?;
            if got < self.raw.len() {
                break; // the socket is empty; more will be announced
            }
        }
        Ok(())
    }

    /// Turns the first `got` bytes of `raw` into input. (rustls by itself reads 4 KiB a call.)
    fn decrypt(&mut self, got: usize) -> Result<(), ChannelError> {
        let mut rest = &self.raw[..got];
        while !rest.is_empty() {
            self.tls.read_tls(&mut rest)?;
            let ready = self.tls.process_new_packets()?.plaintext_bytes_to_read();
            if ready > 0 {
                self.tls.reader().take(ready as u64).read_to_end(&mut self.input)?;
            }
        }
        Ok(())
    }

    /// Has a whole frame arrived that was not taken yet?
    pub fn has_frame(&self) -> bool {
        let have = &self.input[self.consumed..];
        let word = |i: usize| u32::from_le_bytes([have[i], have[i + 1], have[i + 2], have[i + 3]]) as usize;
        have.len() >= HEADER && have.len() >= HEADER + word(0).min(MAX_HEAD + 1) + word(4).min(MAX_BODY + 1)
    }

    /// Takes a whole frame out of what has arrived.
    fn parse<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<u8>)>, ChannelError> {
        let have = &self.input[self.consumed..];
        if have.len() < HEADER {
            return Ok(None);
        }
        let word = |i: usize| u32::from_le_bytes([have[i], have[i + 1], have[i + 2], have[i + 3]]) as usize;
        let (head, body) = (word(0), word(4));
        if head > MAX_HEAD || body > MAX_BODY {
            return Err(ChannelError::Invalid(format!(
                "a frame of {head}+{body} bytes; {MAX_HEAD}+{MAX_BODY} allowed"
            )));
        }
        if have.len() < HEADER + head + body {
            return Ok(None);
        }
        let value =
            postcard::from_bytes(&have[HEADER..HEADER + head]).map_err(|e| ChannelError::Invalid(e.to_string()))?;
        let bytes = have[HEADER + head..HEADER + head + body].to_vec();
        self.consumed += HEADER + head + body;
        Ok(Some((value, bytes)))
    }

    /// The next frame, if a whole one has arrived.
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<u8>)>, ChannelError> {
        if let Some(frame) = self.parse()? {
            return Ok(Some(frame));
        }
        self.fill()?;
        match self.parse()? {
            Some(frame) => Ok(Some(frame)),
            None if self.closed => Err(ChannelError::Closed),
            None => Ok(None),
        }
    }

    /// Waits for the next frame.
    pub fn wait<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<(T, Vec<u8>), ChannelError> {
        let begin = Instant::now();
        loop {
            if let Some(frame) = self.next()? {
                return Ok(frame);
            }
            let timeout = ChannelError::Timeout(limit.as_millis() as u64);
            let left = limit.checked_sub(begin.elapsed()).ok_or(timeout)?;
            pando_kernel::poll::wait(&[(self.raw(), self.wants_write())], left.as_micros() as i64)?;
            self.flush()?;
        }
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
