//! Tells systemd that we are ready (`Type=notify`), when it asked.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state` to `NOTIFY_SOCKET`. Where there is none, nothing happens.
pub fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let bytes = path.as_bytes();
    let addr = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(state.as_bytes(), &addr?));
    if let Err(e) = sent {
        tracing::warn!("systemd could not be told `{state}`: {e}");
    }
}
