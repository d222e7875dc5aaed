//! The two ways into a cluster, as the command line does them, without a daemon: making one and joining one.

use crate::config::Config;
use crate::events::now_ms;
use crate::place::{Place, replace_file};
use pando_wire::frame::{self, FrameError, HEADER};
use pando_wire::identity::{IdentityError, NewKey};
use pando_wire::join::{BINDING, BINDING_LABEL, JoinAnswer, JoinRequest};
use pando_wire::message::{HELLO_VERSION, Member};
use pando_wire::name::NameError;
use pando_wire::rustls::pki_types::ServerName;
use pando_wire::rustls::{self, ClientConnection, StreamOwned};
use pando_wire::token::{Token, TokenError, proof};
use pando_wire::version::Versions;
use pando_wire::{Identity, NodeName, SNI_JOIN, tls};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

/// Why joining did not work.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A bad word.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A bad name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// About our own identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The admitting node said no.
    #[error("the cluster refused: {0}")]
    Refused(String),
    /// It could not be reached.
    #[error("{addr} can't be reached ({cause}): is `pando node` running there, and is the port open?")]
    Unreachable {
        /// Where.
        addr: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// It is not who the token says, or speaks something else.
    #[error("{addr} is not the node that made this token, or broke off: {cause}")]
    Stranger {
        /// Where.
        addr: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A local file.
    #[error("{0}")]
    Local(String),
}

/// This machine's name as a node's.
pub fn default_name() -> NodeName {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    NodeName::from_hostname(host.trim())
}

/// Makes a cluster whose first node is `name`.
pub fn init(place: &Place, cluster: &NodeName, name: &NodeName) -> Result<Identity, JoinError> {
    Ok(Identity::create_cluster(&place.identity(), cluster, name)?)
}

/// Joins the cluster that `word` belongs to, as `name`.
pub fn join(place: &Place, config: &Config, word: &str, name: &NodeName) -> Result<Identity, JoinError> {
    let token = Token::from_word(word)?;
    let dir = place.identity();
    match Identity::load(&dir) {
        Err(IdentityError::Missing(_)) => {}
        Err(other) => return Err(other.into()),
        Ok(id) => {
            let (node, cluster) = (id.node.to_string(), id.cluster.to_string());
            return Err(IdentityError::Exists { dir, node, cluster }.into());
        }
    }
    let key = NewKey::generate()?;
    let stranger = |cause| JoinError::Stranger { addr: token.addr.clone(), cause };
    let mut stream = connect(&token)?;
    stream.conn.complete_io(&mut stream.sock).map_err(stranger)?;
    let exported = stream.conn.export_keying_material([0u8; BINDING], BINDING_LABEL, None);
    let binding = exported.map_err(|e| stranger(io::Error::other(e)))?;
    let local = stream.sock.local_addr().map_err(stranger)?.ip();
    let me = Member { name: name.to_string(), addr: announced(config, Some(local)), stamp: now_ms() };
    let public = key.public();
    let proof = proof(&token.secret, &binding, name.as_str(), &public);
    let request = JoinRequest { versions: Versions::OURS, token: token.id, me, public, proof };
    let answer = ask(&mut stream, &request).map_err(stranger)?;
    match answer {
        JoinAnswer::Refused { reason } => Err(JoinError::Refused(reason)),
        JoinAnswer::Admitted { cluster, ca, cert, members } => {
            if tls::fingerprint(&ca) != token.fingerprint {
                return Err(stranger(io::Error::other("it sent another authority's certificate")));
            }
            let identity = Identity::accept(&dir, &NodeName::parse(&cluster)?, &key, &ca, &cert)?;
            let list = serde_json::to_vec_pretty(&members).map_err(|e| JoinError::Local(e.to_string()))?;
            let file = place.members();
            replace_file(&file, &list).map_err(|e| JoinError::Local(format!("{}: {e}", file.display())))?;
            Ok(identity)
        }
    }
}

fn connect(token: &Token) -> Result<StreamOwned<ClientConnection, TcpStream>, JoinError> {
    let unreachable = |cause| JoinError::Unreachable { addr: token.addr.clone(), cause };
    let mut last = io::Error::other("the address has no meaning here");
    for addr in token.addr.to_socket_addrs().map_err(unreachable)? {
        match TcpStream::connect_timeout(&addr, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).map_err(unreachable)?;
                stream.set_write_timeout(Some(PATIENCE)).map_err(unreachable)?;
                let tls = |e: rustls::Error| unreachable(io::Error::other(e));
                let config = tls::join_client_config(token.fingerprint).map_err(tls)?;
                let name = ServerName::try_from(SNI_JOIN).map_err(|e| unreachable(io::Error::other(e)))?;
                return Ok(StreamOwned::new(ClientConnection::new(config, name).map_err(tls)?, stream));
            }
            Err(e) => last = e,
        }
    }
    Err(unreachable(last))
}

fn ask(stream: &mut (impl Read + Write), request: &JoinRequest) -> io::Result<JoinAnswer> {
    let bad = |e: FrameError| io::Error::other(e);
    stream.write_all(&frame::encode(HELLO_VERSION, request).map_err(bad)?)?;
    stream.flush()?;
    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    let (_, length) = frame::decode_header(header).map_err(bad)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let answer: JoinAnswer = frame::decode_body(&body).map_err(bad)?;
    if !answer.is_sane() {
        return Err(io::Error::other("an answer beyond the limits"));
    }
    Ok(answer)
}

/// The address that others are told: the configured one, or the one of the interface that leads to them.
pub fn announced(config: &Config, towards_cluster: Option<IpAddr>) -> String {
    if let Some(addr) = &config.advertise {
        return addr.clone();
    }
    let Ok(addr) = config.listen.parse::<SocketAddr>() else {
        return config.listen.clone();
    };
    if !addr.ip().is_unspecified() {
        return addr.to_string();
    }
    let ip = towards_cluster.or_else(outward).unwrap_or_else(|| IpAddr::from([127, 0, 0, 1]));
    SocketAddr::new(ip, addr.port()).to_string()
}

/// The address this machine would use towards the outside. Nothing is sent: connecting a datagram socket only asks
/// the routing table.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}
