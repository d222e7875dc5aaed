//! Two channels over a real socket, with somebody in between who changes things.

use super::*;
use pando_wire::{Identity, NodeName};
use rustls::pki_types::ServerName;
use std::net::TcpListener;
use std::thread;

const LIMIT: Duration = Duration::from_secs(20);

/// Two ends that know each other; the bytes pass through a pair of sockets that the test holds.
struct Lab {
    client: Channel,
    server: Channel,
    /// What the client sent arrives here; what is written there goes to the server.
    from_client: TcpStream,
    to_server: TcpStream,
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let one = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    (one, listener.accept().expect("accept").0)
}

fn name(text: &str) -> NodeName {
    NodeName::parse(text).expect("a name")
}

/// A handshake through the middle, of which every byte is passed on alone: no side may read beyond what is the handshake's.
fn lab() -> Lab {
    let dir = std::env::temp_dir().join(format!("pando-channel-{}-{:?}", std::process::id(), thread::current().id()));
    let _ = std::fs::remove_dir_all(&dir);
    let identity = Identity::create_cluster(&dir, &name("lab"), &name("n1")).expect("a cluster");
    let _ = std::fs::remove_dir_all(&dir);
    let sni = ServerName::try_from(pando_wire::SNI_MOVE).expect("a name");
    let client = rustls::ClientConnection::new(identity.client_config().expect("config"), sni).expect("client");
    let server = rustls::ServerConnection::new(identity.server_config().expect("config")).expect("server");
    let ((client_end, from_client), (to_server, server_end)) = (pair(), pair());
    let opened = thread::spawn(move || {
        let mut chan = Channel::establish(client_end, client.into(), LIMIT).expect("client's handshake");
        // At once behind the handshake: the server must not take this for a part of it.
        chan.send(&1u32, &[b"first"]).expect("send");
        chan
    });
    let (up, down) = (from_client.try_clone().expect("clone"), to_server.try_clone().expect("clone"));
    let (up_to, down_to) = (to_server.try_clone().expect("clone"), from_client.try_clone().expect("clone"));
    let taken = thread::spawn(move || {
        let mut chan = Channel::establish(server_end, server.into(), LIMIT).expect("server's handshake");
        let (value, body) = chan.wait::<u32>(LIMIT).expect("the first frame");
        assert_eq!((value, body.as_slice()), (1, b"first".as_slice()));
        chan.send(&2u32, &[]).expect("send");
        chan
    });
    let passing = [(up, up_to), (down, down_to)].map(|(mut from, mut to)| {
        from.set_read_timeout(Some(Duration::from_millis(50))).expect("timeout");
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut byte = [0; 1];
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                if let Ok(1) = from.read(&mut byte) {
                    to.write_all(&byte).expect("pass on");
                }
            }
        });
        (stop, thread)
    });
    let mut client = opened.join().expect("client");
    assert_eq!(client.wait::<u32>(LIMIT).expect("the server's frame").0, 2);
    let server = taken.join().expect("server");
    for (stop, thread) in passing {
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        thread.join().expect("middle");
    }
    from_client.set_read_timeout(None).expect("timeout");
    Lab { client, server, from_client, to_server }
}

impl Lab {
    /// Sends a frame and catches it, sealed, in the middle.
    fn catch(&mut self, value: u32, body: &[u8]) -> Vec<u8> {
        self.client.send(&value, &[body]).expect("send");
        let head = postcard::to_stdvec(&value).expect("encode").len();
        let mut bytes = vec![0; HEADER + body.len() + head + TAG];
        // What the socket has no room for waits with the sender: it must go on while the other end reads.
        let (from, to) = (&mut self.from_client, &mut self.client);
        thread::scope(|scope| {
            let reader = scope.spawn(|| from.read_exact(&mut bytes).expect("caught"));
            to.deliver(LIMIT).expect("deliver");
            reader.join().expect("reader");
        });
        bytes
    }

    fn pass(&mut self, bytes: &[u8]) -> Result<(u32, Vec<u8>), ChannelError> {
        self.to_server.write_all(bytes).expect("pass on");
        self.server.wait::<u32>(Duration::from_secs(2))
    }
}

#[test]
fn frames_of_all_sizes_arrive_in_order() {
    let mut lab = lab();
    for size in [0, 1, HEADER, 4095, AHEAD - 1, AHEAD, AHEAD + 1, 200_000, MAX_BODY] {
        let body: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        let bytes = lab.catch(size as u32, &body);
        assert!(size < 32 || !bytes.windows(32).any(|w| w == &body[size - 32..]), "it travels in the clear");
        // In odd pieces.
        let (mut to, pieces) = (lab.to_server.try_clone().expect("clone"), bytes.clone());
        let writer = thread::spawn(move || pieces.chunks(70_001).for_each(|c| to.write_all(c).expect("write")));
        let (value, got) = lab.server.wait::<u32>(LIMIT).expect("a frame");
        writer.join().expect("writer");
        assert!(value as usize == size && got == body, "a frame of {size} bytes was changed");
    }
}

#[test]
fn a_key_lasts_for_so_many_frames_and_is_followed_by_another() {
    let mut lab = lab();
    let mut one = Seal::new(&lab.client.tls, Side::Client).expect("keys");
    let mut other = Seal::new(&lab.server.tls, Side::Client).expect("keys");
    let mut seen = std::collections::HashSet::new();
    for number in 0..(1u64 << 16) + 3 {
        let mut data = [7u8; 8 + TAG];
        let tag = one.close(&lab.client.tls, b"h", &mut data[..8]).expect("seal");
        data[8..].copy_from_slice(&tag);
        assert!(seen.insert(data), "frame {number} was sealed like another");
        other.open(&lab.server.tls, b"h", &mut data).expect("open");
        assert_eq!(data[..8], [7; 8]);
    }
    let bytes = lab.catch(9, b"still");
    assert_eq!(lab.pass(&bytes).expect("passes").0, 9);
}

#[test]
fn a_changed_frame_is_refused() {
    for place in [0, HEADER - 1, HEADER, HEADER + 50, HEADER + 101, HEADER + 101 + TAG - 1] {
        let mut lab = lab();
        let mut bytes = lab.catch(1, &[3; 100]);
        bytes[place] ^= 1;
        let answer = lab.pass(&bytes);
        // A longer length waits for bytes that never come; everything else is seen through at once.
        let refused =
            matches!(answer, Err(ChannelError::Forged(_) | ChannelError::Timeout(_) | ChannelError::Invalid(_)));
        assert!(refused, "byte {place}: {answer:?}");
    }
}

#[test]
fn a_repeated_a_lost_and_a_reflected_frame_are_refused() {
    let mut lab1 = lab();
    let bytes = lab1.catch(1, b"pay");
    assert!(lab1.pass(&bytes).is_ok());
    assert!(matches!(lab1.pass(&bytes), Err(ChannelError::Forged(_))), "the same frame twice");
    let mut lab2 = lab();
    let (_lost, second) = (lab2.catch(1, b"one"), lab2.catch(2, b"two"));
    assert!(matches!(lab2.pass(&second), Err(ChannelError::Forged(_))), "the second before the first");
    let mut lab3 = lab();
    let own = lab3.catch(1, b"pay");
    lab3.from_client.write_all(&own).expect("send it back");
    assert!(matches!(lab3.client.wait::<u32>(LIMIT), Err(ChannelError::Forged(_))), "its own frame");
}

#[test]
fn a_frame_beyond_the_limit_is_refused_before_it_is_read() {
    let mut lab = lab();
    let answer = lab.pass(&header(1, MAX_BODY + 1, false));
    assert!(matches!(answer, Err(ChannelError::Invalid(_))), "{answer:?}");
}

#[test]
fn an_end_in_the_middle_of_a_frame_is_an_end() {
    let mut lab = lab();
    let bytes = lab.catch(1, &[0; 1000]);
    lab.to_server.write_all(&bytes[..500]).expect("half");
    lab.to_server.shutdown(std::net::Shutdown::Write).expect("end");
    assert!(matches!(lab.server.wait::<u32>(LIMIT), Err(ChannelError::Closed)));
}
