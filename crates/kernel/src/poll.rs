//! poll(2).

use std::io;
use std::os::fd::RawFd;

/// Waits until one of `fds` is ready or `timeout_us` passes (negative: for ever). Returns a bit per descriptor:
/// bit 0 readable or hung up, bit 1 writable. Uses ppoll for its resolution.
pub fn wait(fds: &[(RawFd, bool)], timeout_us: i64) -> io::Result<Vec<u8>> {
    let mut p: Vec<libc::pollfd> = fds
        .iter()
        .map(|&(fd, write)| libc::pollfd {
            fd,
            events: libc::POLLIN | if write { libc::POLLOUT } else { 0 },
            revents: 0,
        })
        .collect();
    let ts = libc::timespec { tv_sec: timeout_us / 1_000_000, tv_nsec: timeout_us % 1_000_000 * 1000 };
    let ts = if timeout_us < 0 { std::ptr::null() } else { &raw const ts };
    // SAFETY: `p` is a valid array of its length; `ts` is null or points to a timespec that lives here.
    let n = unsafe { libc::ppoll(p.as_mut_ptr(), p.len() as libc::nfds_t, ts, std::ptr::null()) };
    if n < 0 {
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
        return Ok(vec![0; fds.len()]);
    }
    let bits = |r: i16| {
        u8::from(r & (libc::POLLIN | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0)
            | u8::from(r & libc::POLLOUT != 0) << 1
    };
    Ok(p.iter().map(|p| bits(p.revents)).collect())
}

/// Whether the other end of a socket has closed it, whatever of its bytes have not been read yet.
pub fn hung_up(socket: RawFd) -> bool {
    let mut p = libc::pollfd { fd: socket, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: `p` is one valid pollfd.
    let n = unsafe { libc::poll(&raw mut p, 1, 0) };
    n > 0 && p.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

/// What is known of a pipe that is read from, without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipe {
    /// Somebody may still write to it.
    Open,
    /// Nobody does, and there is something in it.
    Full,
    /// Nobody does, and it is empty.
    Empty,
}

/// Looks at some pipes at once.
pub fn pipes<const N: usize>(pipes: [RawFd; N]) -> io::Result<[Pipe; N]> {
    let mut p = pipes.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: `p` is a valid array of its length.
    crate::check(i64::from(unsafe { libc::poll(p.as_mut_ptr(), N as libc::nfds_t, 0) }))?;
    Ok(p.map(|p| match p.revents & (libc::POLLHUP | libc::POLLIN) {
        libc::POLLHUP => Pipe::Empty,
        both if both == libc::POLLHUP | libc::POLLIN => Pipe::Full,
        _ => Pipe::Open,
    }))
}

/// Receives at most `most` bytes behind what `into` has, into memory that nobody has to fill with zeros first. 0: the other end has closed.
pub fn receive(socket: RawFd, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    into.reserve(most);
    let free = into.spare_capacity_mut();
    let most = most.min(free.len());
    // SAFETY: `free` is memory of ours of at least `most` bytes, to which the kernel writes; so many as it says have been written.
    unsafe {
        let got = crate::check(libc::recv(socket, free.as_mut_ptr().cast(), most, 0) as i64)? as usize;
        into.set_len(into.len() + got);
        Ok(got)
    }
}

/// Reads and forgets whatever a signalfd or eventfd holds.
pub fn drain(fd: RawFd) {
    let mut buf = [0u8; 1024];
    // SAFETY: `buf` is valid for its length.
    while unsafe { libc::read(fd, buf.as_mut_ptr().cast(), buf.len()) } > 0 {}
}

/// Lets poll call a TCP socket writable only while less than `bytes` wait unsent in it (TCP_NOTSENT_LOWAT): what is written
/// next then does not queue behind megabytes.
pub fn limit_unsent(socket: RawFd, bytes: u32) -> io::Result<()> {
    // SAFETY: the option takes an unsigned int, which lives through the call.
    let result =
        unsafe { libc::setsockopt(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, (&raw const bytes).cast(), 4) };
    crate::check(i64::from(result)).map(drop)
}

/// How many bytes a second the other end of a TCP connection was given lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// The line was kept busy: it takes no more.
    Exactly(u64),
    /// There was too little to send to say how much it takes; so many it does.
    AtLeast(u64),
}

/// What the kernel says of that (tcp_info of linux/tcp.h: `tcpi_delivery_rate`, and its application-limited flag). None: nothing yet.
pub fn delivery_rate(fd: RawFd) -> Option<Rate> {
    const RATE: std::ops::Range<usize> = 160..168;
    let mut info = [0u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: `info` has `length` bytes, of which the kernel writes at most so many.
    let code =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &mut length) };
    if code != 0 || (length as usize) < RATE.end {
        return None;
    }
    let rate = Some(u64::from_ne_bytes(info[RATE].try_into().ok()?)).filter(|r| *r > 0)?;
    Some(if info[7] & 1 == 0 { Rate::Exactly(rate) } else { Rate::AtLeast(rate) })
}
