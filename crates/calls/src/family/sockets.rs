//! Sockets.

use libc::{self as n, c_long};

use super::{NOTHING, socket_options};
use crate::item::Item::{Address, AddressBack, In, Out};
use crate::item::Len::{A, I, N};
use crate::walk::{Spec, Walk, u32_at, u64_at};

/// `struct sockaddr_storage`.
const MAX_ADDRESS: u64 = 128;
const MSGHDR: u64 = 56;
const MMSGHDR: u64 = 64;
/// `UIO_MAXIOV`: more messages are not looked at.
const MAX_MESSAGES: u64 = 1024;
/// Control buffers up to this size go both ways, so that padding in them comes back as it was.
const MAX_PADDED_CONTROL: u64 = 4096;

pub(super) fn spec(nr: c_long) -> Option<Spec> {
    Some(match nr {
        n::SYS_socket | n::SYS_listen | n::SYS_shutdown => NOTHING,
        n::SYS_connect | n::SYS_bind => Spec::Items(&[Address(1, I(2))]),
        n::SYS_accept | n::SYS_accept4 | n::SYS_getsockname | n::SYS_getpeername => Spec::Items(&[AddressBack(1, 2)]),
        n::SYS_socketpair => Spec::Items(&[Out(3, N(8))]),
        n::SYS_sendto => Spec::Items(&[In(1, A(2)), Address(4, I(5))]),
        n::SYS_recvfrom => Spec::Walk(recvfrom),
        n::SYS_sendmsg => Spec::Walk(|w| send(w, w.arg(1))),
        n::SYS_sendmmsg => Spec::Walk(sendmmsg),
        n::SYS_recvmsg => Spec::Walk(|w| receive(w, w.arg(1), w.count(u64::MAX), is_uncertain(w, 2))),
        n::SYS_recvmmsg => Spec::Walk(recvmmsg),
        n::SYS_setsockopt => Spec::Walk(socket_options::set),
        n::SYS_getsockopt => Spec::Walk(socket_options::get),
        _ => return None,
    })
}

/// With `MSG_TRUNC` the kernel may return more than it writes, or write nothing (TCP).
fn is_uncertain(w: &Walk<'_>, flags: u8) -> bool {
    w.uint(flags) & libc::MSG_TRUNC as u64 != 0
}

fn recvfrom(w: &mut Walk<'_>) {
    let (addr, len) = (w.arg(1), w.count(w.arg(2)));
    if is_uncertain(w, 3) {
        w.input(addr, len);
    }
    w.output(addr, len);
    w.address_back(w.arg(4), w.arg(5));
}

fn send(w: &mut Walk<'_>, header: u64) {
    let Some(h) = w.fetch(header, MSGHDR) else {
        return;
    };
    w.input(u64_at(&h, 0), length(&h, 8).min(MAX_ADDRESS));
    w.input(u64_at(&h, 32), u64_at(&h, 40));
    w.gather(u64_at(&h, 16), u64_at(&h, 24));
}

/// A length that the kernel takes as `int`.
fn length(header: &[u8], at: usize) -> u64 {
    u64::try_from(u32_at(header, at) as i32).unwrap_or(0)
}

fn sendmmsg(w: &mut Walk<'_>) {
    let base = w.arg(1);
    for i in 0..w.count(w.uint(2).min(MAX_MESSAGES)) {
        let Some(header) = base.checked_add(i * MMSGHDR) else {
            return;
        };
        if w.is_full() {
            return;
        }
        if w.planning() {
            send(w, header);
        }
        w.output(header.saturating_add(MSGHDR), 4);
    }
}

/// A `recvmsg` that moved `moved` bytes. The kernel updates the lengths and flags in the header.
fn receive(w: &mut Walk<'_>, header: u64, moved: u64, uncertain: bool) {
    if !w.succeeds() {
        return;
    }
    let Some(h) = w.fetch(header, MSGHDR) else {
        return;
    };
    w.output(header, MSGHDR);
    let name = u64_at(&h, 0);
    w.input(name, MAX_ADDRESS);
    w.output(name, length(&h, 8).min(MAX_ADDRESS));
    let (control, len) = (u64_at(&h, 32), u64_at(&h, 40));
    w.input(control, len.min(MAX_PADDED_CONTROL));
    w.output(control, len);
    w.scatter(u64_at(&h, 16), u64_at(&h, 24), moved, uncertain);
}

fn recvmmsg(w: &mut Walk<'_>) {
    let (base, uncertain) = (w.arg(1), is_uncertain(w, 3));
    w.inout(w.arg(4), 16);
    for i in 0..w.count(w.uint(2).min(MAX_MESSAGES)) {
        let Some(header) = base.checked_add(i * MMSGHDR) else {
            return;
        };
        if w.is_full() {
            return;
        }
        let moved =
            if w.planning() { Some(u64::MAX) } else { w.peek_u32(header.saturating_add(MSGHDR)).map(u64::from) };
        let Some(moved) = moved else { return };
        receive(w, header, moved, uncertain);
        w.output(header.saturating_add(MSGHDR), 4);
    }
}

impl Walk<'_> {
    /// A socket address that comes back, and its length, which says before how much may be written and after how much
    /// there was. The kernel leaves what is beyond the first alone; after the call it is not known, so all of it is an input.
    pub fn address_back(&mut self, addr: u64, len_at: u64) {
        if addr == 0 || !self.succeeds() {
            return;
        }
        let Some(len) = self.fetch(len_at, 4) else {
            return;
        };
        self.input(addr, MAX_ADDRESS);
        self.output(addr, length(&len, 0).min(MAX_ADDRESS));
        self.output(len_at, 4);
    }
}
