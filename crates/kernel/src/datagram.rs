//! What udp(7) and ip(7) offer for many datagrams at a time: several in one call, and how long one may be.

use crate::check;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

const UDP_SEGMENT: i32 = 103;
const UDP_GRO: i32 = 104;

fn set(socket: &UdpSocket, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: these options take an int, which lives through the call.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), 4) };
    check(done.into()).map(drop)
}

fn get(socket: &UdpSocket, level: i32, option: i32) -> io::Result<i32> {
    let (mut value, mut length) = (0i32, 4);
    // SAFETY: the kernel writes at most `length` bytes, which `value` has.
    check(i64::from(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut length)
    }))?;
    Ok(value)
}

/// Longest packet on the way to where the socket is connected, IP's header included.
pub fn mtu(socket: &UdpSocket) -> io::Result<u32> {
    get(socket, libc::IPPROTO_IP, libc::IP_MTU).map(|n| u32::try_from(n).unwrap_or(0))
}

/// What is sent at once goes as datagrams of so many bytes, the last one of what is left; 0: as one.
///
/// # Errors
/// Before Linux 4.18 there is no such thing.
pub fn send_in_pieces(socket: &UdpSocket, bytes: u16) -> io::Result<()> {
    set(socket, libc::SOL_UDP, UDP_SEGMENT, bytes.into())
}

/// Datagrams that came together may be received together ([`receive`]).
///
/// # Errors
/// Before Linux 5.0 there is no such thing.
pub fn receive_together(socket: &UdpSocket) -> io::Result<()> {
    set(socket, libc::SOL_UDP, UDP_GRO, 1)
}

/// Only what is for the groups that this socket has joined, not for those of others at this machine.
pub fn only_own_groups(socket: &UdpSocket) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)
}

/// Room for so many bytes that nobody has read yet; as much as the machine allows who may not have more. How much it is.
pub fn make_room(socket: &UdpSocket, bytes: u32) -> io::Result<u32> {
    let wanted = i32::try_from(bytes).unwrap_or(i32::MAX);
    if set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted).is_err() {
        set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, wanted)?;
    }
    // The kernel doubles it for its own records of each.
    get(socket, libc::SOL_SOCKET, libc::SO_RCVBUF).map(|n| u32::try_from(n / 2).unwrap_or(0))
}

/// Bytes that have come, and of how many each datagram in them is (the last one may be shorter). Does not wait.
pub fn receive(socket: &UdpSocket, into: &mut [u8]) -> io::Result<(usize, usize)> {
    let mut iov = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control = [0u64; 8];
    let mut each = 0i32;
    // SAFETY: all pointers live through the call; the walk over control messages stays inside `control` by the CMSG macros.
    let got = unsafe {
        let mut msg: libc::msghdr = std::mem::zeroed();
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = size_of_val(&control);
        let got = check(libc::recvmsg(socket.as_raw_fd(), &mut msg, libc::MSG_DONTWAIT) as i64)? as usize;
        let mut c = libc::CMSG_FIRSTHDR(&msg);
        while !c.is_null() {
            if ((*c).cmsg_level, (*c).cmsg_type) == (libc::SOL_UDP, UDP_GRO) {
                each = libc::CMSG_DATA(c).cast::<i32>().read_unaligned();
            }
            c = libc::CMSG_NXTHDR(&msg, c);
        }
        got
    };
    Ok((got, usize::try_from(each).ok().filter(|n| *n > 0).unwrap_or(got)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_go_and_come_in_one_call() {
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        assert!(mtu(&from).unwrap() >= 1500);
        assert!(make_room(&to, 1 << 20).unwrap() >= 4096);
        if send_in_pieces(&from, 1000).and_then(|()| receive_together(&to)).is_err() {
            return eprintln!("SKIPPED: this kernel sends one datagram at a time");
        }
        let bytes: Vec<u8> = (0..2500u32).map(|i| (i / 7) as u8).collect();
        from.send(&bytes).unwrap();
        let (mut all, mut buffer) = (Vec::new(), vec![0; 65_536]);
        while all.len() < 2500 {
            crate::poll::wait(&[(to.as_raw_fd(), false)], -1).unwrap();
            let (got, each) = receive(&to, &mut buffer).unwrap();
            assert!(each == 1000 || got == each, "{got} bytes in pieces of {each}");
            all.extend_from_slice(&buffer[..got]);
        }
        assert_eq!(all, bytes);
        assert_eq!(receive(&to, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
