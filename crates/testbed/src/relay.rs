//! Delay without netem: one thread per node carries its frames between the end of the node's wire and the end of
//! another one that leads to the bridge, and holds those that leave the node for the delay.
//!
//! Both ends are packet sockets. Frames travel with the virtio header, so segmentation and checksum offload stay on
//! and big frames stay whole. The thread adds some tens of microseconds; good for tests of latency, not a measure of speed.

use crate::sys;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::{Duration, Instant};

/// A frame of 64 KB, its Ethernet header and its virtio header.
const LARGEST: usize = 65_536 + 64;
/// Bytes on one wire; what comes on top is dropped, as a switch would.
const MOST_BYTES: usize = 32 << 20;
/// Length of the virtio header that packet sockets use by default.
const VNET_HEADER: usize = 10;

/// Frames under way, oldest first; all wait equally long, so the order of arrival is the order of leaving.
struct Wire {
    delay: Duration,
    frames: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl Wire {
    fn new(delay: Duration) -> Wire {
        Wire { delay, frames: VecDeque::new(), bytes: 0 }
    }

    /// Takes a frame, or drops it when the wire is full.
    fn put(&mut self, now: Instant, frame: &[u8]) -> bool {
        let fits = self.bytes + frame.len() <= MOST_BYTES;
        if fits {
            self.bytes += frame.len();
            self.frames.push_back((now + self.delay, frame.to_vec()));
        }
        fits
    }

    /// The next frame whose time has come.
    fn take(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.frames.front()?.0 > now {
            return None;
        }
        let (_, frame) = self.frames.pop_front()?;
        self.bytes -= frame.len();
        Some(frame)
    }

    /// How long until the next one is due.
    fn due_in(&self, now: Instant) -> Option<Duration> {
        self.frames.front().map(|f| f.0.saturating_duration_since(now))
    }
}

/// Starts the thread between two interfaces of the caller's network namespace.
pub fn start(node_side: &str, bridge_side: &str, delay: Duration) -> io::Result<()> {
    let (node, bridge) = (open_port(node_side)?, open_port(bridge_side)?);
    std::thread::Builder::new().name("relay".into()).spawn(move || {
        if let Err(e) = carry(node, bridge, Wire::new(delay)) {
            eprintln!("pando testbed: the relay stopped: {e}");
        }
    })?;
    Ok(())
}

fn carry(mut node: File, mut bridge: File, mut wire: Wire) -> io::Result<()> {
    let mut buffer = vec![0u8; LARGEST];
    loop {
        let ready = sys::poll(&[node.as_raw_fd(), bridge.as_raw_fd()], wire.due_in(Instant::now()))?;
        if ready[0] {
            while let Some(length) = receive(&mut node, &mut buffer)? {
                wire.put(Instant::now(), &buffer[..length]);
            }
        }
        while let Some(frame) = wire.take(Instant::now()) {
            send(&mut bridge, &frame);
        }
        if ready[1] {
            while let Some(length) = receive(&mut bridge, &mut buffer)? {
                send(&mut node, &buffer[..length]);
            }
        }
    }
}

/// The next frame, none when there is none now. An interface that is down for the moment has none either.
fn receive(from: &mut File, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match from.read(buffer) {
        Ok(length) if length > VNET_HEADER => Ok(Some(length)),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(e) if e.raw_os_error() == Some(libc::ENETDOWN) => Ok(None),
        Err(e) => Err(e),
    }
}

/// A frame that cannot be sent now is lost, as on any wire; those above repeat it.
fn send(to: &mut File, frame: &[u8]) {
    drop(to.write(frame));
}

/// A packet socket that gets every frame that comes in at the interface, and none that we send.
fn open_port(name: &str) -> io::Result<File> {
    let index = sys::interface_index(name)?;
    let every = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: socket makes a new descriptor, which is ours.
    let port = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Protocol 0: nothing arrives before the options are set.
        File::from_raw_fd(sys::check(libc::socket(libc::AF_PACKET, kind, 0))?)
    };
    let fd = port.as_raw_fd();
    set_option(fd, libc::PACKET_VNET_HDR, &1i32)?;
    set_option(fd, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
    // SAFETY: sockaddr_ll is plain data and outlives the call.
    unsafe {
        let mut address = std::mem::zeroed::<libc::sockaddr_ll>();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = every;
        address.sll_ifindex = index as i32;
        let size = std::mem::size_of_val(&address) as libc::socklen_t;
        sys::check(libc::bind(fd, (&raw const address).cast(), size))?;
    }
    Ok(port)
}

fn set_option<T>(fd: RawFd, name: libc::c_int, value: &T) -> io::Result<()> {
    let size = std::mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` outlives the call and `size` is its size.
    sys::check(unsafe { libc::setsockopt(fd, libc::SOL_PACKET, name, (value as *const T).cast(), size) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_leaves_when_its_time_has_come_and_in_order() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut wire = Wire::new(ms(10));
        wire.put(start, b"a");
        wire.put(start + ms(1), b"b");
        assert_eq!(wire.take(start + ms(9)), None);
        assert_eq!(wire.due_in(start + ms(9)), Some(ms(1)));
        assert_eq!(wire.take(start + ms(12)), Some(b"a".to_vec()));
        assert_eq!(wire.take(start + ms(12)), Some(b"b".to_vec()));
        assert_eq!(wire.due_in(start), None);
    }

    #[test]
    fn a_full_wire_drops() {
        let now = Instant::now();
        let mut wire = Wire::new(Duration::ZERO);
        let frame = vec![0; MOST_BYTES / 4];
        assert!((0..4).all(|_| wire.put(now, &frame)));
        assert!(!wire.put(now, &[1]));
        wire.take(now).unwrap();
        assert!(wire.put(now, &[1]));
    }
}
