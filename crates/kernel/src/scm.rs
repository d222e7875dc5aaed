//! A byte with a descriptor and the sender's pid over a Unix socket: the kernel translates both between namespaces.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Asks the kernel to attach credentials to what arrives.
pub fn want_credentials(socket: &UnixStream) -> io::Result<()> {
    let one: i32 = 1;
    // SAFETY: SO_PASSCRED takes an int.
    check(i64::from(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, (&raw const one).cast(), 4)
    }))?;
    Ok(())
}

/// Sends one byte with a descriptor.
pub fn send(socket: RawFd, byte: u8, fd: RawFd) -> io::Result<()> {
    let mut byte = byte;
    let mut iov = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0u64; 8];
    // SAFETY: the control buffer is aligned and larger than one int's CMSG_SPACE; all pointers live through the call.
    unsafe {
        let mut msg: libc::msghdr = std::mem::zeroed();
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let c = libc::CMSG_FIRSTHDR(&msg);
        (*c).cmsg_level = libc::SOL_SOCKET;
        (*c).cmsg_type = libc::SCM_RIGHTS;
        (*c).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(c).cast::<i32>().write_unaligned(fd);
        check(libc::sendmsg(socket, &msg, libc::MSG_NOSIGNAL) as i64)?;
    }
    Ok(())
}

/// What `send` sent: the byte, the sender's pid as this process sees it, and the descriptor.
pub fn receive(socket: RawFd) -> io::Result<(u8, i32, Option<OwnedFd>)> {
    let mut byte = 0u8;
    let mut iov = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0u64; 16];
    let (mut pid, mut fd) = (0, None);
    // SAFETY: as in `send`; the walk over control messages stays inside `control` by the CMSG macros.
    unsafe {
        let mut msg: libc::msghdr = std::mem::zeroed();
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = size_of_val(&control);
        if check(libc::recvmsg(socket, &mut msg, libc::MSG_CMSG_CLOEXEC) as i64)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let mut c = libc::CMSG_FIRSTHDR(&msg);
        while !c.is_null() {
            match ((*c).cmsg_level, (*c).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    pid = libc::CMSG_DATA(c).cast::<libc::ucred>().read_unaligned().pid;
                }
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    fd = Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(c).cast::<i32>().read_unaligned()));
                }
                _ => {}
            }
            c = libc::CMSG_NXTHDR(&msg, c);
        }
    }
    Ok((byte, pid, fd))
}
