//! Sealing of frames after the TLS handshake.
//!
//! TLS proves who is at the other end and agrees on a secret; memory then travels in frames that are each sealed at once with
//! AES-128-GCM under keys exported from that handshake (RFC 8446, 7.5). Compared with TLS records of 16 KiB this saves two copies of
//! every byte (docs/decisions/0010). A frame's number is its nonce, so frames can't be dropped, repeated or put in another order.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::Connection;

/// Bytes that sealing adds to a frame.
pub const TAG: usize = 16;
/// Frames under one key. With frames of at most 3 MiB that is far below what GCM bears.
const FRAMES_PER_KEY: u64 = 1 << 16;

/// Whose frames a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The node that opened the connection.
    Client,
    /// The node that took it.
    Server,
}

impl Side {
    /// Our side of a connection.
    pub fn of(tls: &Connection) -> Side {
        match tls {
            Connection::Client(_) => Side::Client,
            Connection::Server(_) => Side::Server,
        }
    }

    /// The side at the other end.
    pub fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }

    fn label(self) -> &'static [u8] {
        match self {
            Side::Client => b"EXPORTER-pando-frames-client",
            Side::Server => b"EXPORTER-pando-frames-server",
        }
    }
}

/// A frame that was not sealed by the other end of this connection, as it is and in this place.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a frame that its sender did not seal")]
pub struct Forged;

/// The frames of one direction.
pub struct Seal {
    side: Side,
    key: LessSafeKey,
    /// Frames so far.
    count: u64,
}

fn key(tls: &Connection, side: Side, generation: u64) -> Result<LessSafeKey, rustls::Error> {
    let bytes = tls.export_keying_material([0u8; 16], side.label(), Some(&generation.to_le_bytes()))?;
    let key = UnboundKey::new(&AES_128_GCM, &bytes);
    key.map(LessSafeKey::new).map_err(|_| rustls::Error::General("no AES-128-GCM".into()))
}

impl Seal {
    /// For the frames that `side` sends. The handshake must be done.
    pub fn new(tls: &Connection, side: Side) -> Result<Seal, rustls::Error> {
        Ok(Seal { side, key: key(tls, side, 0)?, count: 0 })
    }

    /// The nonce of the next frame; a new key when it is time.
    fn next(&mut self, tls: &Connection) -> Result<Nonce, rustls::Error> {
        let (generation, number) = (self.count / FRAMES_PER_KEY, self.count % FRAMES_PER_KEY);
        if number == 0 && generation > 0 {
            self.key = key(tls, self.side, generation)?;
        }
        self.count += 1;
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// Encrypts `data` in place; `header` is protected from change but stays readable. Returns the tag, to be sent behind it.
    pub fn close(&mut self, tls: &Connection, header: &[u8], data: &mut [u8]) -> Result<[u8; TAG], rustls::Error> {
        let nonce = self.next(tls)?;
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), data);
        let mut out = [0; TAG];
        out.copy_from_slice(tag.map_err(|_| rustls::Error::EncryptError)?.as_ref());
        Ok(out)
    }

    /// Decrypts `data` with its tag at the end in place. On failure its content is undefined.
    pub fn open(&mut self, tls: &Connection, header: &[u8], data: &mut [u8]) -> Result<(), Forged> {
        let nonce = self.next(tls).map_err(|_| Forged)?;
        self.key.open_in_place(nonce, Aad::from(header), data).map(drop).map_err(|_| Forged)
    }
}
