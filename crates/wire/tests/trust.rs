//! Who may talk to whom: handshakes in memory between members, strangers and machines with a token.

use pando_wire::identity::NewKey;
use pando_wire::rustls::pki_types::ServerName;
use pando_wire::rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use pando_wire::sniff::{MAX_CLIENT_HELLO, Sniffed, sniff};
use pando_wire::{Identity, NodeName, SNI_MOVE, SNI_NODE, peer_name, tls};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("pando-wire-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Dir(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn name(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

fn cluster(dir: &Dir, node: &str) -> Identity {
    Identity::create_cluster(&dir.0.join(node), &name("lab"), &name(node)).unwrap()
}

fn member(dir: &Dir, authority: &Identity, node: &str) -> Identity {
    let key = NewKey::generate().unwrap();
    let cert = authority.issue(&name(node), &key.public()).unwrap();
    Identity::accept(&dir.0.join(node), &authority.cluster, &key, authority.ca_der(), &cert).unwrap()
}

/// Runs a handshake; gives what each side calls the other, or the first error.
fn handshake(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    sni: &'static str,
) -> Result<(Option<String>, Option<String>), String> {
    let mut c = ClientConnection::new(client, ServerName::try_from(sni).unwrap()).unwrap();
    let mut s = ServerConnection::new(server).unwrap();
    while c.is_handshaking() || s.is_handshaking() {
        let mut bytes = Vec::new();
        c.write_tls(&mut bytes).unwrap();
        feed(&bytes, |r| s.read_tls(r).map(|_| ()));
        s.process_new_packets().map_err(|e| format!("server: {e}"))?;
        bytes.clear();
        s.write_tls(&mut bytes).unwrap();
        feed(&bytes, |r| c.read_tls(r).map(|_| ()));
        c.process_new_packets().map_err(|e| format!("client: {e}"))?;
    }
    Ok((c.peer_certificates().and_then(peer_name), s.peer_certificates().and_then(peer_name)))
}

fn feed(bytes: &[u8], mut read: impl FnMut(&mut &[u8]) -> std::io::Result<()>) {
    let mut rest = bytes;
    while !rest.is_empty() {
        read(&mut rest).unwrap();
    }
}

#[test]
fn members_know_each_other_by_name_whatever_the_host() {
    let dir = Dir::new("members");
    let n1 = cluster(&dir, "n1");
    let n2 = member(&dir, &n1, "n2");
    for sni in [SNI_NODE, SNI_MOVE] {
        let names = handshake(n2.client_config().unwrap(), n1.server_config().unwrap(), sni).unwrap();
        assert_eq!(names, (Some("n1".into()), Some("n2".into())));
    }
    let again = Identity::load(&dir.0.join("n2")).unwrap();
    assert!(!again.is_authority());
    assert!(again.issue(&name("n3"), &[0; 32]).unwrap_err().to_string().contains("pando init"));
    let mode = |file: &str| std::fs::metadata(dir.0.join(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("n1/ca.key"), mode("n1/node.key"), mode("n2/node.key")), (0o600, 0o600, 0o600));
}

#[test]
fn another_cluster_of_the_same_name_is_a_stranger() {
    let (dir, other) = (Dir::new("ours"), Dir::new("theirs"));
    let ours = cluster(&dir, "n1");
    let theirs = cluster(&other, "n1");
    let failed = handshake(theirs.client_config().unwrap(), ours.server_config().unwrap(), SNI_NODE);
    assert!(failed.unwrap_err().starts_with("client: "), "the client refuses first");
}

#[test]
fn without_a_certificate_only_the_join_door_opens() {
    let dir = Dir::new("door");
    let n1 = cluster(&dir, "n1");
    let joiner = tls::join_client_config(n1.fingerprint()).unwrap();
    assert!(handshake(joiner.clone(), n1.server_config().unwrap(), SNI_NODE).is_err());
    let (server, client) = handshake(joiner, n1.join_server_config().unwrap(), "join.pando").unwrap();
    assert_eq!((server, client), (Some("n1".into()), None));
    let wrong = tls::join_client_config([1; 32]).unwrap();
    assert!(handshake(wrong, n1.join_server_config().unwrap(), "join.pando").is_err());
}

#[test]
fn an_identity_is_never_overwritten() {
    let dir = Dir::new("twice");
    cluster(&dir, "n1");
    let again = Identity::create_cluster(&dir.0.join("n1"), &name("lab"), &name("n9"));
    assert!(again.err().unwrap().to_string().contains("already has an identity (node n1"));
    let missing = Identity::load(&dir.0.join("nowhere")).err().unwrap().to_string();
    assert!(missing.contains("pando init") && missing.contains("pando join"), "{missing}");
}

#[test]
fn the_purpose_is_read_from_a_client_hello_byte_by_byte() {
    let dir = Dir::new("sniff");
    let n1 = cluster(&dir, "n1");
    let sni = ServerName::try_from(SNI_MOVE).unwrap();
    let mut client = ClientConnection::new(n1.client_config().unwrap(), sni).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    for cut in 0..hello.len() {
        assert_eq!(sniff(&hello[..cut]), Sniffed::NeedMore, "after {cut} bytes");
    }
    assert_eq!(sniff(&hello), Sniffed::For(SNI_MOVE.into()));
    assert!(matches!(sniff(b"GET / HTTP/1.1\r\n\r\n"), Sniffed::Refused(_)));
    // A record that announces much and then trickles: refused at the limit.
    let mut long = vec![0x16, 3, 1, 0x40, 0x00, 1, 0, 0xff, 0xff];
    long.resize(MAX_CLIENT_HELLO, 0);
    assert!(matches!(sniff(&long), Sniffed::Refused(_)));
}
