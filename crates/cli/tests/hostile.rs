//! Bad and hostile machines: each is refused, logged, and harms nobody.

mod lab;

use lab::{Lab, this_program, until};
use pando_node::views::Liveness;
use pando_wire::frame;
use pando_wire::identity::NewKey;
use pando_wire::message::{HELLO_VERSION, Hello, Load, Member, Message, Told};
use pando_wire::rustls::pki_types::ServerName;
use pando_wire::rustls::{ClientConfig, ClientConnection, StreamOwned};
use pando_wire::version::{MAX, Versions};
use pando_wire::{Identity, NodeName, SNI_JOIN, SNI_MOVE, SNI_NODE, tls};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Run by a daemon as its engine; nothing in an ordinary run of the tests.
#[test]
fn __guest() {
    lab::fake::guest();
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn dial(addr: &str, config: Arc<ClientConfig>, sni: &'static str) -> Tls {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    StreamOwned::new(ClientConnection::new(config, ServerName::try_from(sni).unwrap()).unwrap(), stream)
}

/// Waits until the other side hangs up, with whatever last words.
fn hung_up(mut stream: impl Read) {
    let mut rest = [0; 4096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("it did not hang up in time"),
            Err(_) => return,
        }
    }
}

fn still_well(lab: &Lab) {
    lab.settled();
    let machine = lab.prepare("visitor", "");
    let name = format!("visitor-{}", lab::lines_of(&lab.nodes[0].state.join("audit.log")).len());
    lab::ok(&mut machine.join(&lab.token(), &name));
    std::fs::remove_dir_all(&machine.state).unwrap();
}

#[test]
fn strangers_are_refused() {
    let lab = Lab::new(2, "");
    let addr = lab.nodes[0].addr();
    let name = |text| NodeName::parse(text).unwrap();
    let forger = Identity::create_cluster(&lab.dir.join("forger"), &name("pando"), &name("n2")).unwrap();
    let ours = Identity::load(&lab.nodes[0].state.join("identity")).unwrap();
    let mut stranger = dial(&addr, forger.client_config().unwrap(), SNI_NODE);
    assert!(stranger.write_all(b"x").is_err(), "the node's certificate is not of the forger's cluster");
    // The same, by one who does not care who answers: now it is the node that says no.
    let forged = lab.dir.join("forger");
    for identity in [Some(forged.as_path()), None] {
        let mut stranger = dial(&addr, lab::naive::config(identity), SNI_NODE);
        let _ = stranger.write_all(&frame::encode(HELLO_VERSION, &hello("n2", Versions::OURS)).unwrap());
        hung_up(stranger);
    }
    lab.nodes[0].logs("invalid peer certificate");
    lab.nodes[0].logs("peer sent no certificates");
    // The join door opens without one, but leads nowhere without a token.
    let mut nobody = dial(&addr, tls::join_client_config(ours.fingerprint()).unwrap(), SNI_JOIN);
    nobody.write_all(&frame::encode(HELLO_VERSION, &hello("n2", Versions::OURS)).unwrap()).unwrap();
    hung_up(nobody);
    still_well(&lab);
}

fn hello(name: &str, versions: Versions) -> Hello {
    let me = Member { name: name.into(), addr: "127.0.0.1:1".into(), stamp: 1 };
    Hello { versions, me, boot: 1, release: "test".into() }
}

#[test]
fn a_member_that_lies_or_breaks_a_limit_is_dropped() {
    let lab = Lab::new(2, "");
    let addr = lab.nodes[0].addr();
    // A member without a daemon: nobody else takes its place on the wire.
    let authority = Identity::load(&lab.nodes[0].state.join("identity")).unwrap();
    let (name, key) = (NodeName::parse("liar").unwrap(), NewKey::generate().unwrap());
    let cert = authority.issue(&name, &key.public()).unwrap();
    let dir = lab.dir.join("liar");
    let liar = Identity::accept(&dir, &authority.cluster, &key, authority.ca_der(), &cert).unwrap();
    let config = liar.client_config().unwrap();
    let say = |bytes: &[&[u8]], log: &str| {
        let mut stream = dial(&addr, config.clone(), SNI_NODE);
        for part in bytes {
            let _ = stream.write_all(part);
        }
        hung_up(stream);
        lab.nodes[0].logs(log);
    };
    let good = frame::encode(HELLO_VERSION, &hello("liar", Versions::OURS)).unwrap();
    let other = frame::encode(HELLO_VERSION, &hello("n7", Versions::OURS)).unwrap();
    let future = frame::encode(HELLO_VERSION, &hello("liar", Versions { min: 900, max: 901 })).unwrap();
    say(&[&other], "it calls itself n7, but its certificate says liar");
    say(&[&future], "no common protocol version");
    say(&[&[0xff; 64]], "the limit is");
    say(&[&[0, 0, 0, 9, 0, 0, 1, 2, 3, 4, 5, 6, 7]], "does not decode");
    say(&[&good, &[0x7f, 0xff, 0xff, 0xff, 0, 1]], "a frame of 2147483647 bytes announced");
    let beat = frame::encode(MAX + 7, &Message::Swim(Vec::new())).unwrap();
    say(&[&good, &beat], &format!("a frame of version {} on a connection that agreed on {MAX}", MAX + 7));
    let one = Told { who: "x".into(), life: 1, number: 1, age_ms: 0, load: Load::default() };
    let many = frame::encode(MAX, &Message::Loads(vec![one; 3000])).unwrap();
    say(&[&good, &many], "the limit is 256");
    let junk = frame::encode(MAX, &Message::Swim(vec![0xff; 40])).unwrap();
    say(&[&good, &junk], "a membership packet that makes no sense");
    still_well(&lab);
}

#[test]
fn garbage_is_refused_before_tls() {
    let lab = Lab::new(1, "");
    let addr = lab.nodes[0].addr();
    let mut long = vec![0x16, 3, 1, 0x40, 0x00, 1, 0, 0xff, 0xff];
    long.resize(20_000, 0);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 100], &[0x16; 3000], &long] {
        let mut stream = TcpStream::connect(&addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let _ = stream.write_all(bytes);
        hung_up(stream);
    }
    lab.nodes[0].logs("refused: a connection from 127.0.0.1");
    let ours = Identity::load(&lab.nodes[0].state.join("identity")).unwrap();
    let mut odd = dial(&addr, ours.client_config().unwrap(), "odd.pando");
    let _ = odd.write_all(b"x");
    hung_up(odd);
    lab.nodes[0].logs("it asks for `odd.pando`");
    // Eight thousand connections cost a few lines of log, not eight thousand.
    for _ in 0..500 {
        let _ = TcpStream::connect(&addr).unwrap().write_all(b"garbage garbage");
    }
    still_well(&lab);
    assert!(lab.nodes[0].log().lines().filter(|l| l.contains("refused: a connection")).count() < 200);
}

#[test]
fn slow_ones_wait_in_vain_and_hold_up_nobody() {
    let lab = Lab::new(2, "");
    let addr = lab.nodes[0].addr();
    let mut slow: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&addr).unwrap()).collect();
    // As fast as they may: one byte each, then silence.
    slow.iter_mut().for_each(|s| drop(s.write_all(&[0x16])));
    assert_eq!(lab.nodes[1].node("n1").state, Liveness::Up);
    for stream in slow {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        hung_up(stream);
    }
    lab.nodes[0].logs("no ClientHello within");
    lab.nodes[0].logs("too many that have not said what they want");
    // The next step of a handshake has a limit, too.
    let ours = Identity::load(&lab.nodes[0].state.join("identity")).unwrap();
    let mut half = dial(&addr, ours.client_config().unwrap(), SNI_NODE);
    let mut first = Vec::new();
    half.conn.write_tls(&mut first).unwrap();
    half.sock.write_all(&first).unwrap();
    hung_up(&half.sock);
    lab.nodes[0].logs("no TLS handshake in time");
    still_well(&lab);
}

fn arrive(addr: &str, lab: &Lab) -> TcpStream {
    let n2 = Identity::load(&lab.nodes[0].state.join("identity")).unwrap();
    let mut stream = dial(addr, n2.client_config().unwrap(), SNI_MOVE);
    let mut first = Vec::new();
    stream.conn.write_tls(&mut first).unwrap();
    // In pieces: the daemon must wait for the whole ClientHello.
    for part in first.chunks(50) {
        stream.sock.write_all(part).unwrap();
        stream.sock.flush().unwrap();
    }
    stream.sock
}

#[test]
fn a_moving_process_is_handed_to_a_helper_with_nothing_else() {
    let lab = Lab::new(1, &format!("engine_program = {:?}", this_program()));
    let n1 = &lab.nodes[0];
    let (addr, orders) = (n1.addr(), n1.state.join("guest-orders"));
    let seen = |count: usize| {
        until("guest helpers", || {
            let lines = lab::lines_of(&orders);
            (lines.len() >= count)
                .then(|| lines.iter().map(|l| serde_json::from_str(l).unwrap()).collect::<Vec<serde_json::Value>>())
        })
    };
    let first = arrive(&addr, &lab);
    let report = seen(1).remove(0);
    assert_eq!((report["order"]["slot"].as_u64(), report["order"]["node"].as_str()), (Some(0), Some("n1")));
    assert_eq!(report["leads"], true, "a session of its own");
    let fds: Vec<&str> = report["fds"].as_array().unwrap().iter().filter_map(|v| v.as_str()).collect();
    let given = |n: &str| fds.iter().any(|f| f.starts_with(n));
    assert!(given("3=socket:") && given("0=pipe:") && given("2="), "{fds:?}");
    // The directory that lists them is one itself.
    let more: Vec<_> = fds.iter().filter(|f| !["0=", "1=", "2=", "3="].iter().any(|n| f.starts_with(n))).collect();
    assert!(more.iter().all(|f| f.contains("/proc/") || f.contains("guest-orders")), "{fds:?}");
    let guest = until("it is listed", || n1.process(4242));
    assert_eq!((guest.role.as_str(), guest.home.as_str()), ("guest", "elsewhere"));
    let second = arrive(&addr, &lab);
    assert_eq!(seen(2)[1]["order"]["slot"].as_u64(), Some(1));
    drop((first, second));
}

#[test]
fn those_that_do_not_prove_who_they_are_are_few_and_short() {
    let lab = Lab::new(1, &format!("engine_program = {:?}", this_program()));
    let n1 = &lab.nodes[0];
    std::fs::write(n1.state.join("silent"), "").unwrap();
    let addr = n1.addr();
    let crowd: Vec<TcpStream> = (0..6).map(|_| arrive(&addr, &lab)).collect();
    n1.logs("too many others that have not proved who they are");
    n1.logs("no proof of who it is within");
    for stream in &crowd {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        hung_up(stream);
    }
    until("no zombies", || (n1.zombies() == 0).then_some(()));
    assert_eq!(lab::lines_of(&n1.state.join("guest-orders")).len(), 3, "no more than the limit were started");
    std::fs::remove_file(n1.state.join("silent")).unwrap();
    let _late = arrive(&addr, &lab);
    until("room again", || n1.process(4242));
}

#[test]
fn the_local_api_survives_what_is_no_request() {
    use std::os::unix::net::UnixStream;
    let lab = Lab::new(1, "");
    let n1 = &lab.nodes[0];
    let head = "POST /v1/move HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n";
    let ask = |text: String| {
        let mut stream = UnixStream::connect(&n1.socket).unwrap();
        let _ = stream.write_all(text.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert!(ask("garbage\r\n\r\n".into()).starts_with("HTTP/1.1 400"));
    let big = "x".repeat(100_000);
    for body in ["{", "[]", "{\"pid\":-1,\"dest\":\"n2\"}", "{\"pid\":1}", &big] {
        let answer = ask(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
        assert!(answer.starts_with("HTTP/1.1 4"), "{body:.20}: {answer}");
    }
    let crowd: Vec<UnixStream> = (0..60).map(|_| UnixStream::connect(&n1.socket).unwrap()).collect();
    let closed = |stream: &UnixStream| {
        stream.set_nonblocking(true).unwrap();
        matches!((&*stream).read(&mut [0; 16]), Ok(0))
    };
    until("the rest sent away", || (crowd.iter().filter(|s| closed(s)).count() >= 20).then_some(()));
    let sent_away = crowd.iter().filter(|s| closed(s)).count();
    assert!(sent_away < 25, "forty may stay: {sent_away}");
    drop(crowd);
    until("room again", || n1.client().get::<Vec<pando_node::views::Node>>("/v1/nodes").ok());
}

#[test]
fn peers_that_hang_up_while_we_write_do_no_harm() {
    let lab = Lab::new(1, "");
    let n1 = &lab.nodes[0];
    let status = std::fs::read_to_string(format!("/proc/{}/status", n1.pid())).unwrap();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap().trim();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_ne!(ignored & (1 << 12), 0, "SIGPIPE, signal 13, must not end a daemon");
}
