//! Connections of the local API: each user has so many at a time, so that no user can keep the others out.

use crate::owner::Caller;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};

type Counts = Arc<Mutex<BTreeMap<u32, u32>>>;

/// The listener that counts.
pub struct Seats {
    listener: UnixListener,
    taken: Counts,
    per_user: u32,
}

/// A connection that counts until it ends.
pub struct Seated {
    stream: UnixStream,
    caller: Caller,
    taken: Counts,
}

impl Seats {
    /// `per_user` connections for each.
    pub fn new(listener: UnixListener, per_user: u32) -> Self {
        Seats { listener, taken: Counts::default(), per_user }
    }

    fn seat(&self, stream: UnixStream) -> Option<Seated> {
        let cred = stream.peer_cred().ok()?;
        let pid = cred.pid().map_or(0, |p| p.unsigned_abs());
        let caller = Caller { uid: cred.uid(), pid };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = taken.entry(caller.uid).or_default();
        if *mine >= self.per_user {
            return None;
        }
        *mine += 1;
        Some(Seated { stream, caller, taken: self.taken.clone() })
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mine) = taken.get_mut(&self.caller.uid) {
            *mine -= 1;
            if *mine == 0 {
                taken.remove(&self.caller.uid);
            }
        }
    }
}

impl Listener for Seats {
    type Io = Seated;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Seated, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, addr)) => {
                    if let Some(seated) = self.seat(stream) {
                        return (seated, addr);
                    }
                }
                Err(e) => {
                    tracing::error!("the local API: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, Seats>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Seats>) -> Self {
        stream.io().caller
    }
}

impl AsyncRead for Seated {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Seated {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
