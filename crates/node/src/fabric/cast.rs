//! Casts on a real network: datagrams to a group, sealed as crates/wire says, and those of others, which go to the core when their seals are good.
//!
//! Two threads, for a buffer that nobody empties loses datagrams: one sends what the core wants cast, one hears the group.

use super::life::Life;
use crate::config::Config;
use crate::daemon::Node;
use bytes::Bytes;
use pando_fabric::{Cast, Effect, Key, LONGEST_PIECE, Set};
use pando_kernel::{datagram as kernel, poll};
use pando_wire::datagram::{AROUND, Label, Seal, label};
use pando_wire::token::random;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Headers of IP and UDP.
const HEADERS: u32 = 28;
/// Where nobody knows what fits.
const USUAL_MTU: u32 = 1500;
/// Room for what has come and is not heard yet, if the machine allows it.
const ROOM: u32 = 8 << 20;
/// A cast is not further ahead than this.
const WINDOW: (u64, u64) = (256 << 10, 4 << 20);
/// Bytes that are sent in one call, and datagrams.
const AT_ONCE: usize = 60_000;
const MOST_AT_ONCE: usize = 64;
/// Bytes that are heard before the core is told.
const BATCH: usize = 512 << 10;
/// Keys that are at hand.
const KEYS: usize = 64;
/// While something is cast the core is told of the time so often.
const BEAT: Duration = Duration::from_millis(5);
/// Who orders finds out who hears so often, and when there is another view.
const PROBE: Duration = Duration::from_secs(60);
/// And so often while somebody seems to be deaf: it may only have been busy.
const AGAIN: Duration = Duration::from_secs(10);
/// Pieces of a probe.
const PROBED: usize = 3;

/// What this node casts and hears with.
pub struct Air {
    group: SocketAddrV4,
    /// Bytes of a piece.
    piece: u32,
    /// Room that there is.
    room: u32,
    queue: Mutex<Sender<Due>>,
}

/// All that a node counts of datagrams.
#[derive(Default)]
pub struct Counts {
    /// Nobody here waits for them: they came late, or are another cluster's, or somebody's.
    strange: AtomicU64,
    /// They say that they are of a cast that is under way, and are not.
    forged: AtomicU64,
}

/// A piece that is to be cast.
struct Due {
    key: Key,
    label: Label,
    bytes: Bytes,
}

/// When this node has last found out who hears.
#[derive(Default)]
pub struct Probes {
    last: Option<(u64, Instant)>,
}

/// Begins to hear and to cast, if that is wanted and can be. In any case: why not.
pub fn start(node: &Arc<Node>) {
    let air = match open(&node.config, &node.cluster.me().addr) {
        Ok(None) => Err("it is off ([fabric] multicast)".to_owned()),
        Ok(Some((air, ears, mouth, queue))) => {
            let begun = spawn("cast", node, move |node| speak(node, &mouth, &queue, AROUND + air.1 as usize))
                .and_then(|()| spawn("hear", node, move |node| hear(node, &ears)));
            begun.map(|()| air.0).map_err(|e| e.to_string())
        }
        Err(e) => Err(e.to_string()),
    };
    if let Err(why) = &air {
        tracing::info!("fabric: no multicast here: {why}");
    }
    let _ = node.fabric.air.set(air);
    tokio::spawn(beat(node.clone()));
}

fn spawn(name: &str, node: &Arc<Node>, act: impl FnOnce(&Arc<Node>) + Send + 'static) -> io::Result<()> {
    let (node, runtime) = (node.clone(), tokio::runtime::Handle::current());
    let run = move || {
        let _in = runtime.enter();
        act(&node);
    };
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

type Opened = ((Air, u32), UdpSocket, UdpSocket, Receiver<Due>);

/// The group's socket, and one to send from. `addr`: where others reach this node; its network is where it casts.
fn open(config: &Config, addr: &str) -> io::Result<Option<Opened>> {
    let Some(group) = config.fabric.group() else { return Ok(None) };
    let mine = match addr.parse() {
        Ok(SocketAddr::V4(at)) if UdpSocket::bind((*at.ip(), 0)).is_ok() => *at.ip(),
        // It is translated on the way here, or a name: the system knows best.
        _ => Ipv4Addr::UNSPECIFIED,
    };
    let socket = || Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP));
    let ears = socket()?;
    // Other daemons of this machine hear it, too.
    ears.set_reuse_address(true)?;
    ears.bind(&SocketAddr::V4(group).into())?;
    ears.join_multicast_v4(group.ip(), &mine)?;
    let ears = UdpSocket::from(ears);
    kernel::only_own_groups(&ears)?;
    let room = kernel::make_room(&ears, ROOM)?;
    // Without it they come one by one.
    let _ = kernel::receive_together(&ears);
    let mouth = socket()?;
    mouth.set_multicast_if_v4(&mine)?;
    mouth.set_multicast_ttl_v4(1)?;
    mouth.set_multicast_loop_v4(true)?;
    // As of a link for bulk.
    let _ = mouth.set_tos_v4(crate::peers::BULK);
    mouth.bind(&SocketAddr::from((mine, 0)).into())?;
    mouth.connect(&SocketAddr::V4(group).into())?;
    let mouth = UdpSocket::from(mouth);
    let datagram = match config.fabric.datagram {
        0 => kernel::mtu(&mouth).unwrap_or(USUAL_MTU).saturating_sub(HEADERS),
        bytes => bytes,
    };
    let piece = datagram.saturating_sub(AROUND as u32).clamp(500, LONGEST_PIECE - HEADERS - AROUND as u32);
    let (sender, queue) = channel();
    let air = Air { group, piece, room, queue: Mutex::new(sender) };
    Ok(Some(((air, piece), ears, mouth, queue)))
}

/// The windows that the core keeps to. No more than half of what fits here: others have no more room.
pub fn window(air: Option<&Air>) -> (u64, u64) {
    let most = air.map_or(WINDOW.0, |air| u64::from(air.room) / 2);
    (WINDOW.0, most.clamp(WINDOW.0, WINDOW.1))
}

/// Sends what is due, until the daemon ends.
fn speak(node: &Arc<Node>, mouth: &UdpSocket, queue: &Receiver<Due>, datagram: usize) {
    let mut together = kernel::send_in_pieces(mouth, datagram as u16).is_ok();
    let most = if together { (AT_ONCE / datagram).clamp(1, MOST_AT_ONCE) } else { 1 };
    let (mut seal, mut one, mut all) = (None::<(Key, Seal)>, Vec::new(), Vec::new());
    while let Ok(first) = queue.recv() {
        let batch: Vec<Due> = std::iter::once(first).chain(queue.try_iter().take(4 * most - 1)).collect();
        for some in batch.chunks(most) {
            all.clear();
            for due in some {
                if seal.as_ref().is_none_or(|(key, _)| *key != due.key) {
                    seal = Some((due.key.clone(), Seal::new(&due.key.0)));
                }
                if let Some((_, seal)) = &seal
                    && seal.seal(due.label, &due.bytes, &mut one).is_ok()
                {
                    all.extend_from_slice(&one);
                }
                // Only the last one in a call may be shorter.
                if one.len() != datagram {
                    send(mouth, &mut together, &all, datagram);
                    all.clear();
                }
            }
            send(mouth, &mut together, &all, datagram);
        }
        let gone: BTreeMap<u64, u32> = batch.iter().map(|due| (due.label.tag, due.label.number + 1)).collect();
        let mut inner = node.fabric.inner();
        let Some(life) = inner.life.as_mut() else { continue };
        for (tag, count) in gone {
            let effects = life.core.went(node.fabric.now(), tag, count);
            life.heed(node, effects);
        }
    }
}

/// What can't be sent is lost, and asked for.
fn send(mouth: &UdpSocket, together: &mut bool, all: &[u8], datagram: usize) {
    if all.is_empty() {
        return;
    }
    if *together && mouth.send(all).is_ok() {
        return;
    }
    if *together {
        // An interface may not do it: from now on one by one.
        *together = kernel::send_in_pieces(mouth, 0).is_err();
    }
    all.chunks(datagram).for_each(|one| _ = mouth.send(one));
}

/// Hears the group, until the daemon ends.
fn hear(node: &Arc<Node>, ears: &UdpSocket) {
    let mut heard = Ears { node, keys: BTreeMap::new(), dice: 0x9e37_79b9_7f4a_7c15 };
    let mut buffer = vec![0; BATCH + (64 << 10)];
    loop {
        if poll::wait(&[(ears.as_raw_fd(), false)], -1).is_err() {
            return tracing::error!("fabric: the group can't be heard any more");
        }
        let (mut used, mut parts) = (0, Vec::new());
        while used < BATCH {
            // An error is somebody's answer to what this machine has sent, or there is no more.
            let Ok((got, each)) = kernel::receive(ears, &mut buffer[used..]) else { break };
            parts.push((used, got, each.max(1)));
            used += got;
        }
        heard.take(&mut buffer[..used], &parts);
    }
}

struct Ears<'a> {
    node: &'a Arc<Node>,
    /// Of casts that are under way, or were; none: this node's own, which come back to it.
    keys: BTreeMap<u64, Option<Seal>>,
    dice: u64,
}

impl Ears<'_> {
    /// What has come, and where each call's bytes are in it: from where, how many, and how many of them a datagram has.
    fn take(&mut self, buffer: &mut [u8], parts: &[(usize, usize, usize)]) {
        let counts = &self.node.fabric.casts;
        let mut good: Vec<(Label, std::ops::Range<usize>)> = Vec::new();
        for &(from, got, each) in parts {
            for at in (from..from + got).step_by(each) {
                let end = (at + each).min(from + got);
                match label(&buffer[at..end]) {
                    _ if self.loses() => {}
                    Ok(label) => good.push((label, at..end)),
                    Err(_) => _ = counts.strange.fetch_add(1, Ordering::Relaxed),
                }
            }
        }
        self.learn(good.iter().map(|(label, _)| label.tag));
        let (mut strange, mut forged) = (0, 0);
        good.retain_mut(|(label, at)| {
            let seal = match self.keys.get(&label.tag) {
                Some(Some(seal)) => seal,
                own => {
                    strange += u64::from(own.is_none());
                    return false;
                }
            };
            let opened = seal.open(*label, &mut buffer[at.clone()]).map(<[u8]>::len);
            let start = at.start + pando_wire::datagram::HEADER;
            *at = start..start + opened.as_ref().copied().unwrap_or(0);
            forged += u64::from(opened.is_err());
            opened.is_ok()
        });
        counts.strange.fetch_add(strange, Ordering::Relaxed);
        counts.forged.fetch_add(forged, Ordering::Relaxed);
        let mut inner = self.node.fabric.inner();
        let Some(life) = inner.life.as_mut() else { return };
        for (label, at) in good {
            let effects = life.core.caught(self.node.fabric.now(), label.tag, label.number, &buffer[at]);
            life.heed(self.node, effects);
        }
    }

    /// Looks for the keys that are not at hand.
    fn learn(&mut self, tags: impl Iterator<Item = u64>) {
        let unknown: std::collections::BTreeSet<u64> = tags.filter(|tag| !self.keys.contains_key(tag)).collect();
        if unknown.is_empty() {
            return;
        }
        let inner = self.node.fabric.inner();
        let Some(life) = inner.life.as_ref() else { return };
        if self.keys.len() > KEYS {
            self.keys.retain(|tag, _| life.core.cast(*tag).is_some());
        }
        let known = unknown.into_iter().filter_map(|tag| {
            let cast = life.core.cast(tag)?;
            Some((tag, (!life.core.is_own_cast(tag)).then(|| Seal::new(&cast.key.0))))
        });
        self.keys.extend(known);
    }

    /// For tests.
    fn loses(&mut self) -> bool {
        let of = self.node.config.test.lose_permille;
        // xorshift64: nobody's secret.
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        of > 0 && self.dice % 1000 < u64::from(of)
    }
}

/// Tells the core of the time while something is cast.
async fn beat(node: Arc<Node>) {
    loop {
        node.fabric.casting.notified().await;
        loop {
            {
                let mut inner = node.fabric.inner();
                let Some(life) = inner.life.as_mut() else { break };
                let effects = life.core.beat(node.fabric.now());
                life.heed(&node, effects);
                if !life.core.is_casting() {
                    break;
                }
            }
            tokio::time::sleep(BEAT).await;
        }
    }
}

impl Life {
    /// How a transfer may be cast; none: no multicast here.
    pub fn may_cast(node: &Node) -> Option<Cast> {
        let air = node.fabric.air()?;
        let (mut tag, mut key) = ([0; 8], Key([0; 32]));
        random(&mut tag);
        random(&mut key.0);
        Some(Cast { tag: u64::from_be_bytes(tag), key, piece: air.piece, deaf: Set::default() })
    }

    /// The core wants a piece cast.
    pub fn cast(&self, node: &Node, tag: u64, number: u32, bytes: Bytes) {
        let (Some(air), Some(cast)) = (node.fabric.air(), self.core.cast(tag)) else { return };
        let due = Due { key: cast.key.clone(), label: Label { tag, number }, bytes };
        // The thread that takes it lives as long as the daemon.
        let _ = air.queue.lock().unwrap_or_else(PoisonError::into_inner).send(due);
    }

    /// Finds out who hears, if this node orders and it is time.
    pub fn probe(&mut self, node: &Arc<Node>) {
        let view = self.core.view();
        let (epoch, orders) = (view.epoch, view.manager == self.me && view.members.len() > 2);
        let pause = if self.core.probed().is_some_and(|(all, some)| some < all) { AGAIN } else { PROBE };
        let fresh = |(of, when): &(u64, Instant)| *of == epoch && when.elapsed() < pause;
        if !orders || !self.is_live() || self.probes.last.as_ref().is_some_and(fresh) {
            return;
        }
        let Some(cast) = Life::may_cast(node) else { return };
        self.probes.last = Some((epoch, Instant::now()));
        let bytes = vec![0; PROBED * cast.piece as usize];
        let effects: Vec<Effect> = self.core.probe(node.fabric.now(), bytes.into(), cast);
        self.heed(node, effects);
    }

    /// By which way how much has come.
    pub fn multicast(&self, node: &Node) -> crate::views::Multicast {
        let (ways, counts) = (self.core.ways(), &node.fabric.casts);
        let air = node.fabric.air.get();
        let on = air.and_then(|air| air.as_ref().ok());
        crate::views::Multicast {
            group: on.map(|air| air.group.to_string()),
            off: air.and_then(|air| air.as_ref().err().cloned()),
            piece: on.map_or(0, |air| air.piece),
            heard: self.core.probed(),
            deaf: self.names(&self.core.deaf()),
            cast: ways.cast,
            caught: ways.caught,
            mended: ways.mended,
            tree: ways.tree,
            useless: ways.useless,
            strange: counts.strange.load(Ordering::Relaxed),
            forged: counts.forged.load(Ordering::Relaxed),
        }
    }
}

/// Set once.
pub type Opening = OnceLock<Result<Air, String>>;
