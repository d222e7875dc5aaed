//! Frames of a control connection: `u32` length of what follows (big endian), `u16` version, then one postcard
//! value. The length is checked before a byte of the body is waited for.

use serde::{Serialize, de::DeserializeOwned};

/// Longest body. A list of a thousand members fits.
pub const MAX_BODY: usize = 256 * 1024;
/// Length and version.
pub const HEADER: usize = 6;

/// What can be wrong with a frame.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// The sender announced more than the limit.
    #[error("a frame of {0} bytes announced; the limit is {MAX_BODY}")]
    TooLong(u64),
    /// A length that can't hold the version.
    #[error("a frame of {0} bytes announced: too short for its version")]
    TooShort(u32),
    /// A version other than the agreed one.
    #[error("a frame of version {got} on a connection that agreed on {agreed}")]
    Version {
        /// What came.
        got: u16,
        /// What was agreed.
        agreed: u16,
    },
    /// The body is not what it should be.
    #[error("a frame that does not decode: {0}")]
    Body(String),
}

/// One frame, ready to send.
pub fn encode<T: Serialize>(version: u16, value: &T) -> Result<Vec<u8>, FrameError> {
    let mut out = postcard::to_extend(value, vec![0; HEADER]).map_err(|e| FrameError::Body(e.to_string()))?;
    let body = out.len() - HEADER;
    if body > MAX_BODY {
        return Err(FrameError::TooLong(body as u64));
    }
    out[..4].copy_from_slice(&(body as u32 + 2).to_be_bytes());
    out[4..HEADER].copy_from_slice(&version.to_be_bytes());
    Ok(out)
}

/// The header of a frame: its version and the length of the body that follows.
pub fn decode_header(header: [u8; HEADER]) -> Result<(u16, usize), FrameError> {
    let length = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    let version = u16::from_be_bytes([header[4], header[5]]);
    let body = length.checked_sub(2).ok_or(FrameError::TooShort(length))? as usize;
    if body > MAX_BODY {
        return Err(FrameError::TooLong(u64::from(length)));
    }
    Ok((version, body))
}

/// The body of a frame. Bytes left over are an error: the sender meant something we did not understand.
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    if body.len() > MAX_BODY {
        return Err(FrameError::TooLong(body.len() as u64));
    }
    let (value, rest) = postcard::take_from_bytes(body).map_err(|e| FrameError::Body(e.to_string()))?;
    if !rest.is_empty() {
        return Err(FrameError::Body(format!("{} bytes left over", rest.len())));
    }
    Ok(value)
}

/// A whole frame in `bytes`, if it is complete: the value and how many bytes it took.
pub fn decode<T: DeserializeOwned>(agreed: u16, bytes: &[u8]) -> Result<Option<(T, usize)>, FrameError> {
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let (got, length) = decode_header(*header)?;
    if got != agreed {
        return Err(FrameError::Version { got, agreed });
    }
    match bytes.get(HEADER..HEADER + length) {
        Some(body) => Ok(Some((decode_body(body)?, HEADER + length))),
        None => Ok(None),
    }
}
