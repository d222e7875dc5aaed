//! What is this connection for? The answer is the SNI of its ClientHello, read without consuming it, so that
//! the raw socket can still be handed to another process.

use rustls::server::Acceptor;

/// No ClientHello of ours is near this long.
pub const MAX_CLIENT_HELLO: usize = 16 * 1024;

/// What the first bytes of a connection say.
#[derive(Debug, PartialEq, Eq)]
pub enum Sniffed {
    /// A ClientHello with this server name.
    For(String),
    /// So far a beginning of a ClientHello.
    NeedMore,
    /// Something else, and what.
    Refused(String),
}

/// Looks at the first bytes of a connection.
pub fn sniff(bytes: &[u8]) -> Sniffed {
    let limited = &bytes[..bytes.len().min(MAX_CLIENT_HELLO)];
    let mut acceptor = Acceptor::default();
    let mut rest = limited;
    while !rest.is_empty() {
        match acceptor.read_tls(&mut rest) {
            Ok(0) => break,
            Ok(_) => {}
            Err(e) => return Sniffed::Refused(format!("not TLS: {e}")),
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                return match accepted.client_hello().server_name() {
                    Some(name) => Sniffed::For(name.to_owned()),
                    None => Sniffed::Refused("a ClientHello without a server name".into()),
                };
            }
            Ok(None) => {}
            Err((e, _)) => return Sniffed::Refused(format!("not a ClientHello of TLS 1.3: {e}")),
        }
    }
    if bytes.len() >= MAX_CLIENT_HELLO {
        return Sniffed::Refused(format!("a ClientHello longer than {MAX_CLIENT_HELLO} bytes"));
    }
    Sniffed::NeedMore
}
