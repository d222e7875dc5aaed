//! System V and POSIX queues, semaphores and shared memory.

use libc as n;

use crate::arena::{Arena, Call, Case, drain, must};

const PRIVATE: u64 = 0;
const NEW: u64 = 0o1600;

fn queue(a: &mut Arena) -> u64 {
    let queue = must(n::SYS_msgget, &[PRIVATE, NEW]);
    let mut message = 5u64.to_le_bytes().to_vec();
    message.extend(b"hello");
    must(n::SYS_msgsnd, &[queue, a.put(&message), 5, 0]);
    queue
}

/// It is removed when the call is over.
fn removing(call: Call, remove: i64, id: u64) -> Call {
    call.probe(move || {
        must(remove, &[id, 0, 0]);
        Vec::new()
    })
}

fn posix(a: &mut Arena) -> u64 {
    let (name, attributes) = (a.text("pando-calls-test"), a.words(&[0, 4, 64, 0, 0, 0, 0, 0]));
    let fd = must(n::SYS_mq_open, &[name, (n::O_CREAT | n::O_RDWR | n::O_NONBLOCK) as u64, 0o600, attributes]);
    must(n::SYS_mq_unlink, &[name]);
    fd
}

pub const CASES: &[Case] = &[
    ("msgrcv", |a| {
        let id = queue(a);
        removing(Call::new(n::SYS_msgrcv, &[id, a.room(108), 100, 0, 0]), n::SYS_msgctl, id)
    }),
    ("msgrcv, too small", |a| {
        let id = queue(a);
        removing(Call::new(n::SYS_msgrcv, &[id, a.room(10), 2, 0, 0]), n::SYS_msgctl, id)
    }),
    ("msgsnd", |a| {
        let id = queue(a);
        let call = Call::new(n::SYS_msgsnd, &[id, a.put(b"\x07\0\0\0\0\0\0\0hey"), 3, 0]);
        call.probe(move || {
            let buf = [0u8; 16];
            must(n::SYS_msgrcv, &[id, buf.as_ptr() as u64, 8, 7, 0]);
            must(n::SYS_msgctl, &[id, 0, 0]);
            std::hint::black_box(buf).to_vec()
        })
    }),
    ("msgctl IPC_STAT", |a| {
        let id = queue(a);
        removing(Call::new(n::SYS_msgctl, &[id, 2, a.room(120)]).unstable(), n::SYS_msgctl, id)
    }),
    ("msgctl IPC_INFO", |a| Call::new(n::SYS_msgctl, &[0, 3, a.room(32)]).unstable()),
    ("semop", |a| {
        let id = must(n::SYS_semget, &[PRIVATE, 3, NEW]);
        let call = Call::new(n::SYS_semop, &[id, a.put(&[0, 0, 1, 0, 0, 0, 2, 0, 5, 0, 0, 0]), 2]);
        call.probe(move || {
            let value = must(n::SYS_semctl, &[id, 2, 12]);
            must(n::SYS_semctl, &[id, 0, 0]);
            vec![value as u8]
        })
    }),
    ("semctl SETALL", |a| {
        let id = must(n::SYS_semget, &[PRIVATE, 3, NEW]);
        Call::new(n::SYS_semctl, &[id, 0, 17, a.put(&[1, 0, 2, 0, 3, 0])]).probe(move || {
            let value = must(n::SYS_semctl, &[id, 2, 12]);
            must(n::SYS_semctl, &[id, 0, 0]);
            vec![value as u8]
        })
    }),
    ("semctl IPC_STAT", |a| {
        let id = must(n::SYS_semget, &[PRIVATE, 3, NEW]);
        removing(Call::new(n::SYS_semctl, &[id, 0, 2, a.room(104)]).unstable(), n::SYS_semctl, id)
    }),
    ("semctl IPC_INFO", |a| Call::new(n::SYS_semctl, &[0, 0, 3, a.room(40)]).unstable()),
    ("shmctl IPC_STAT", |a| {
        let id = must(n::SYS_shmget, &[PRIVATE, 4096, NEW]);
        removing(Call::new(n::SYS_shmctl, &[id, 2, a.room(112)]).unstable(), n::SYS_shmctl, id)
    }),
    ("shmctl IPC_INFO", |a| Call::new(n::SYS_shmctl, &[0, 3, a.room(72)]).unstable()),
    ("shmctl SHM_INFO", |a| Call::new(n::SYS_shmctl, &[0, 14, a.room(48)]).unstable()),
    ("mq_getsetattr", |a| {
        let fd = posix(a);
        Call::new(n::SYS_mq_getsetattr, &[fd, a.words(&[0; 8]), a.room(64)])
    }),
    ("mq_timedreceive", |a| {
        let fd = posix(a);
        must(n::SYS_mq_timedsend, &[fd, a.put(b"hello"), 5, 3, 0]);
        Call::new(n::SYS_mq_timedreceive, &[fd, a.room(64), 64, a.room(4), a.words(&[1, 0])])
    }),
    ("mq_timedsend", |a| {
        let fd = posix(a);
        Call::new(n::SYS_mq_timedsend, &[fd, a.put(b"hello"), 5, 3, a.words(&[1, 0])]).probe(move || {
            let buf = [0u8; 64];
            must(n::SYS_mq_timedreceive, &[fd, buf.as_ptr() as u64, 64, 0, 0]);
            std::hint::black_box(buf).to_vec()
        })
    }),
    ("mq_notify with a cookie", |a| {
        let fd = posix(a);
        let netlink = must(n::SYS_socket, &[n::AF_NETLINK as u64, n::SOCK_RAW as u64, 0]);
        let cookie = a.put(b"a cookie of thirty-two bytes....");
        let event = a.words(&[cookie, netlink | 2 << 32, 0, 0, 0, 0, 0, 0]);
        Call::new(n::SYS_mq_notify, &[fd, event]).probe(move || {
            must(n::SYS_mq_timedsend, &[fd, b"x".as_ptr() as u64, 1, 0, 0]);
            drain(netlink)
        })
    }),
];
