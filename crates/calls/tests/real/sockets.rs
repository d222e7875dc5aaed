//! Sockets.

use libc as n;

use crate::arena::{Arena, Call, Case, drain, must};

fn pair(a: &mut Arena, kind: i32) -> (u64, u64) {
    let at = a.room(8);
    must(n::SYS_socketpair, &[n::AF_UNIX as u64, (kind | n::SOCK_NONBLOCK) as u64, 0, at]);
    a.pair(at)
}

/// A `sockaddr_in` of this host.
fn local(port: u16) -> Vec<u8> {
    let mut addr = vec![2, 0];
    addr.extend(port.to_be_bytes());
    addr.extend([127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    addr
}

fn bound(a: &mut Arena, kind: i32) -> u64 {
    let fd = must(n::SYS_socket, &[n::AF_INET as u64, (kind | n::SOCK_NONBLOCK) as u64, 0]);
    must(n::SYS_bind, &[fd, a.put(&local(0)), 16]);
    fd
}

/// Its name, outside the arena, which would differ from run to run.
fn address_of(fd: u64) -> Vec<u8> {
    let (mut addr, mut len) = (vec![0u8; 16], 16i32);
    must(n::SYS_getsockname, &[fd, addr.as_mut_ptr() as u64, &raw mut len as u64]);
    addr
}

fn connect(fd: u64, to: u64) {
    let addr = address_of(to);
    must(n::SYS_connect, &[fd, addr.as_ptr() as u64, 16]);
}

/// Two datagram sockets, the second connected to the first.
fn datagrams(a: &mut Arena) -> (u64, u64) {
    let (to, from) = (bound(a, n::SOCK_DGRAM), bound(a, n::SOCK_DGRAM));
    connect(from, to);
    (to, from)
}

/// A listening socket and one connected to it.
fn stream(a: &mut Arena) -> (u64, u64) {
    let listening = bound(a, n::SOCK_STREAM);
    must(n::SYS_listen, &[listening, 5]);
    let client = must(n::SYS_socket, &[n::AF_INET as u64, n::SOCK_STREAM as u64, 0]);
    connect(client, listening);
    (listening, client)
}

fn send(fd: u64, bytes: &[u8]) {
    must(n::SYS_write, &[fd, bytes.as_ptr() as u64, bytes.len() as u64]);
}

struct Message {
    name: (u64, u32),
    vectors: (u64, u64),
    control: (u64, u64),
}

impl Message {
    fn words(&self) -> [u64; 7] {
        let name_len = u64::from(self.name.1) | 0xa5a5_a5a5_0000_0000;
        [self.name.0, name_len, self.vectors.0, self.vectors.1, self.control.0, self.control.1, 0xa5a5_a5a5_a5a5_a5a5]
    }

    /// Room for what comes.
    fn empty(a: &mut Arena, name: usize, sizes: &[usize], control: usize) -> Message {
        Message {
            name: (a.room(name), name as u32),
            vectors: (a.vectors(sizes), sizes.len() as u64),
            control: (a.room(control), control as u64),
        }
    }
}

/// Control data that hands over a descriptor.
fn rights(fd: u64) -> Vec<u8> {
    let mut c = 20u64.to_le_bytes().to_vec();
    c.extend([1, 0, 0, 0, 1, 0, 0, 0]);
    c.extend((fd as u32).to_le_bytes());
    c.extend([0; 4]);
    c
}

fn send_rights(a: &mut Arena, fd: u64, given: u64) {
    let vectors = a.filled(&[b"hello", b", world"]);
    let message = Message { name: (0, 0), vectors: (vectors, 2), control: (a.put(&rights(given)), 24) };
    let header = a.words(&message.words());
    must(n::SYS_sendmsg, &[fd, header, 0]);
}

fn option(a: &mut Arena, fd: u64, level: i32, option: i32, len: i32) -> Call {
    let (value, len) = (a.room(600), a.ints(&[len]));
    Call::new(n::SYS_getsockopt, &[fd, level as u64, option as u64, value, len])
}

fn receive_rights(a: &mut Arena, control: usize, flags: i32) -> Call {
    let (to, from) = pair(a, n::SOCK_STREAM);
    send_rights(a, from, to);
    let header = Message::empty(a, 40, &[3, 50], control).words();
    Call::new(n::SYS_recvmsg, &[to, a.words(&header), flags as u64])
}

fn receive_many(a: &mut Arena, flags: i32) -> Call {
    let (to, from) = datagrams(a);
    send(from, b"first");
    send(from, b"the second");
    let words: Vec<u64> = (0..4)
        .flat_map(|i| {
            let header = Message::empty(a, 8 + 4 * i, &[4, 4], 0).words();
            header.into_iter().chain([0xa5a5_a5a5_a5a5_a5a5])
        })
        .collect();
    let (messages, timeout) = (a.words(&words), a.words(&[1, 0]));
    Call::new(n::SYS_recvmmsg, &[to, messages, 4, flags as u64, timeout]).unstable()
}

pub const CASES: &[Case] = &[
    ("socketpair", |a| Call::new(n::SYS_socketpair, &[1, 1, 0, a.room(8)])),
    ("bind", |a| {
        let fd = must(n::SYS_socket, &[2, 1, 0]);
        Call::new(n::SYS_bind, &[fd, a.put(&local(0)), 16])
    }),
    ("connect", |a| {
        let listening = bound(a, n::SOCK_STREAM);
        must(n::SYS_listen, &[listening, 5]);
        let fd = must(n::SYS_socket, &[2, 1, 0]);
        Call::new(n::SYS_connect, &[fd, a.put(&address_of(listening)), 16]).unstable()
    }),
    ("accept", |a| {
        let fd = stream(a).0;
        Call::new(n::SYS_accept, &[fd, a.room(128), a.ints(&[128])]).unstable()
    }),
    ("accept4, short address", |a| {
        let fd = stream(a).0;
        Call::new(n::SYS_accept4, &[fd, a.room(2), a.ints(&[2]), 0])
    }),
    ("accept, no address", |a| Call::new(n::SYS_accept, &[stream(a).0, 0, a.ints(&[16])])),
    ("accept, nobody", |a| {
        let fd = bound(a, n::SOCK_STREAM);
        must(n::SYS_listen, &[fd, 5]);
        Call::new(n::SYS_accept, &[fd, a.room(16), a.ints(&[16])])
    }),
    ("getsockname, unnamed", |a| {
        let fd = pair(a, n::SOCK_STREAM).0;
        Call::new(n::SYS_getsockname, &[fd, a.room(110), a.ints(&[110])])
    }),
    ("getsockname, inet", |a| {
        let fd = bound(a, n::SOCK_STREAM);
        Call::new(n::SYS_getsockname, &[fd, a.room(128), a.ints(&[128])]).unstable()
    }),
    ("getsockname, cut", |a| {
        let fd = bound(a, n::SOCK_STREAM);
        Call::new(n::SYS_getsockname, &[fd, a.room(2), a.ints(&[2])])
    }),
    ("getpeername, none", |a| {
        let fd = bound(a, n::SOCK_STREAM);
        Call::new(n::SYS_getpeername, &[fd, a.room(16), a.ints(&[16])])
    }),
    ("recvfrom, cut", |a| {
        let (to, from) = datagrams(a);
        send(from, b"a longer message");
        Call::new(n::SYS_recvfrom, &[to, a.room(4), 4, 0, a.room(4), a.ints(&[4])]).unstable()
    }),
    ("recvfrom, MSG_TRUNC", |a| {
        let (to, from) = datagrams(a);
        send(from, b"a longer message");
        Call::new(n::SYS_recvfrom, &[to, a.room(4), 4, n::MSG_TRUNC as u64, 0, 0])
    }),
    ("recvfrom, MSG_TRUNC on a stream", |a| {
        let (listening, client) = stream(a);
        let fd = must(n::SYS_accept, &[listening, 0, 0]);
        send(client, b"thrown away");
        Call::new(n::SYS_recvfrom, &[fd, a.room(50), 50, n::MSG_TRUNC as u64, 0, 0])
    }),
    ("sendto", |a| {
        let (to, from) = (bound(a, n::SOCK_DGRAM), bound(a, n::SOCK_DGRAM));
        let addr = a.put(&address_of(to));
        Call::new(n::SYS_sendto, &[from, a.put(b"hello"), 5, 0, addr, 16]).unstable().then_read(to)
    }),
    ("sendmsg to a name", |a| {
        let (to, from) = (bound(a, n::SOCK_DGRAM), bound(a, n::SOCK_DGRAM));
        let name = (a.put(&address_of(to)), 16);
        let message = Message { name, vectors: (a.filled(&[b"he", b"llo"]), 2), control: (0, 0) };
        Call::new(n::SYS_sendmsg, &[from, a.words(&message.words()), 0]).unstable().then_read(to)
    }),
    ("sendmsg with a descriptor", |a| {
        let (to, from) = pair(a, n::SOCK_STREAM);
        let vectors = (a.filled(&[b"hello"]), 1);
        let message = Message { name: (0, 0), vectors, control: (a.put(&rights(to)), 24) };
        Call::new(n::SYS_sendmsg, &[from, a.words(&message.words()), 0]).then_read(to)
    }),
    ("sendmmsg", |a| {
        let (to, from) = datagrams(a);
        let words: Vec<u64> = [b"first".as_slice(), b"second"]
            .iter()
            .flat_map(|text| {
                let message = Message { name: (0, 0), vectors: (a.filled(&[text]), 1), control: (0, 0) };
                message.words().into_iter().chain([0])
            })
            .collect();
        Call::new(n::SYS_sendmmsg, &[from, a.words(&words), 2, 0])
            .probe(move || [drain(to), drain(to), drain(to)].concat())
    }),
    ("recvmsg with a descriptor", |a| receive_rights(a, 100, 0)),
    ("recvmsg, no room for it", |a| receive_rights(a, 10, 0)),
    ("recvmsg, peek", |a| receive_rights(a, 64, n::MSG_PEEK)),
    ("recvmsg, nothing there", |a| {
        let to = pair(a, n::SOCK_STREAM).0;
        let header = Message::empty(a, 40, &[3, 50], 64).words();
        Call::new(n::SYS_recvmsg, &[to, a.words(&header), 0])
    }),
    ("recvmsg with a name", |a| {
        let (to, from) = datagrams(a);
        send(from, b"a longer message");
        let header = Message::empty(a, 7, &[3, 5], 0).words();
        Call::new(n::SYS_recvmsg, &[to, a.words(&header), n::MSG_TRUNC as u64]).unstable()
    }),
    ("recvmmsg", |a| receive_many(a, n::MSG_DONTWAIT)),
    ("recvmmsg, MSG_TRUNC", |a| receive_many(a, n::MSG_DONTWAIT | n::MSG_TRUNC)),
    ("setsockopt", |a| {
        let fd = bound(a, n::SOCK_STREAM);
        let call = Call::new(n::SYS_setsockopt, &[fd, 1, n::SO_LINGER as u64, a.ints(&[1, 7]), 8]);
        call.probe(move || {
            let (value, mut len) = ([0i32; 2], 8i32);
            let (at, len_at) = (value.as_ptr() as u64, &raw mut len as u64);
            must(n::SYS_getsockopt, &[fd, 1, n::SO_LINGER as u64, at, len_at]);
            std::hint::black_box(value).map(|v| v as u8).to_vec()
        })
    }),
    ("setsockopt SO_ATTACH_FILTER", |a| {
        let fd = bound(a, n::SOCK_DGRAM);
        let program = a.put(&[6, 0, 0, 0, 0xff, 0xff, 0, 0]);
        Call::new(n::SYS_setsockopt, &[fd, 1, 26, a.words(&[1, program]), 16])
    }),
    ("getsockopt SO_TYPE", |a| {
        let fd = bound(a, n::SOCK_DGRAM);
        option(a, fd, n::SOL_SOCKET, n::SO_TYPE, 4)
    }),
    ("getsockopt SO_TYPE, room for more", |a| {
        let fd = bound(a, n::SOCK_DGRAM);
        option(a, fd, n::SOL_SOCKET, n::SO_TYPE, 100)
    }),
    ("getsockopt SO_PEERCRED", |a| {
        let fd = pair(a, n::SOCK_STREAM).0;
        option(a, fd, n::SOL_SOCKET, n::SO_PEERCRED, 12)
    }),
    ("getsockopt SO_PEERGROUPS, no room", |a| {
        let fd = pair(a, n::SOCK_STREAM).0;
        option(a, fd, n::SOL_SOCKET, n::SO_PEERGROUPS, 0)
    }),
    ("getsockopt TCP_INFO", |a| {
        let fd = bound(a, n::SOCK_STREAM);
        option(a, fd, n::IPPROTO_TCP, n::TCP_INFO, 600).unstable()
    }),
    ("getsockopt TCP_CONGESTION", |a| {
        let fd = bound(a, n::SOCK_STREAM);
        option(a, fd, n::IPPROTO_TCP, n::TCP_CONGESTION, 16)
    }),
    ("getsockopt NETLINK_LIST_MEMBERSHIPS, says more than it writes", |a| {
        let fd = must(n::SYS_socket, &[n::AF_NETLINK as u64, n::SOCK_RAW as u64, 0]);
        option(a, fd, n::SOL_NETLINK, n::NETLINK_LIST_MEMBERSHIPS, 0)
    }),
    ("getsockopt, unknown", |a| {
        let fd = bound(a, n::SOCK_STREAM);
        option(a, fd, 1, 9999, 8)
    }),
    ("ioctl SIOCGIFINDEX", |a| {
        let fd = bound(a, n::SOCK_DGRAM);
        let mut request = b"lo".to_vec();
        request.resize(40, 0);
        Call::new(n::SYS_ioctl, &[fd, n::SIOCGIFINDEX, a.put(&request)])
    }),
    ("ioctl SIOCGIFADDR, no such", |a| {
        let fd = bound(a, n::SOCK_DGRAM);
        Call::new(n::SYS_ioctl, &[fd, n::SIOCGIFADDR, a.put(&[b'x'; 40])])
    }),
];
