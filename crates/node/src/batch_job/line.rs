//! A helper's connection to a daemon.

use super::{Said, Told};
use crate::jobs::link;
use pando_launch::{Frames, encode};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

/// See above.
pub struct Line {
    stream: UnixStream,
    frames: Frames,
    /// To the daemon that has started this helper: jobs come on it, too.
    pub is_first: bool,
}

impl Line {
    /// The one that a helper is started with.
    pub fn first(connection: OwnedFd) -> io::Result<Line> {
        let connection = std::os::unix::net::UnixStream::from(connection);
        connection.set_nonblocking(true)?;
        Ok(Line { stream: UnixStream::from_std(connection)?, frames: Frames::default(), is_first: true })
    }

    /// To a later daemon.
    pub fn again(stream: UnixStream) -> Line {
        Line { stream, frames: Frames::default(), is_first: false }
    }

    /// What the daemon says next; none: there is no daemon any more. Nothing is lost if it is not waited for to the end.
    pub async fn next(&mut self) -> Option<Told> {
        link::next(&mut self.stream, &mut self.frames).await.ok()?
    }

    /// Says all of this. False: there is no daemon any more.
    pub async fn say(&mut self, all: &[Said]) -> bool {
        let frames: Result<Vec<_>, _> = all.iter().map(encode).collect();
        match frames {
            Ok(frames) if frames.is_empty() => true,
            Ok(frames) => self.stream.write_all(&frames.concat()).await.is_ok(),
            Err(_) => false,
        }
    }
}
