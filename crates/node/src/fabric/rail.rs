//! This node's endpoint of libfabric, which all lanes ([`Lane`]) share: one thread has it, sends what lanes want sent, and gives them what comes and
//! is sealed for them. Where nothing is under way and nothing expected it sleeps.

use super::lane::Lane;
use super::watch::Watch;
use crate::daemon::Node;
use pando_kernel::libfabric::{self, Endpoint, Event, Unsent};
use pando_kernel::poll;
use pando_wire::datagram::{AROUND, MAX_BODY, label};
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Messages that may come before the thread looks.
const BUFFERS: usize = 64;
/// Messages that libfabric has and is not done with, in all; those to nodes that are gone may stay so.
const MOST_UNDER_WAY: usize = 1024;
/// Who could not be reached by it is not tried again before this.
const AGAIN: Duration = Duration::from_secs(60);
/// It is opened within this, or the daemon goes on without.
const OPENS: Duration = Duration::from_secs(5);
/// While something is under way: looked again so soon, where the provider can say that there is something, and where it can't, microseconds.
const PAUSES: (i64, i64) = (2_000, 200);
/// And so often before that at once.
const LOOKS: u32 = 200;
/// Where nothing is expected and libfabric wants to go on so often without anything coming of it, it does so only after a pause of so many
/// microseconds: connections with garbage at its port, which it keeps, would have it run all the time.
const VAIN: u32 = 64;
const PAUSE_VAIN: i64 = 100_000;

/// See above.
pub struct Rail {
    pub provider: String,
    pub address: Vec<u8>,
    lanes: Mutex<BTreeMap<u64, Weak<Lane>>>,
    orders: Mutex<Sender<Order>>,
    bell: UnixStream,
    /// It was rung, and nobody has come yet.
    rung: AtomicBool,
    /// So many wait for something to come.
    wanted: AtomicUsize,
    /// Why it does not go on.
    broken: OnceLock<String>,
    watch: Watch,
    peers: Mutex<BTreeMap<String, Peer>>,
    counts: Counts,
}

/// Bytes and messages.
#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    came: AtomicU64,
    strange: AtomicU64,
    forged: AtomicU64,
    useless: AtomicU64,
}

/// A connection's two ends: the other one's name, and this one's and its lives. A life is another one after a node was left out: what was seen of the
/// other end by one that stood still itself says nothing then.
pub type Ends = (String, (u64, u64));

/// How it is with a node.
struct Peer {
    lives: (u64, u64),
    /// Why it gets nothing by libfabric.
    refused: Option<(String, Instant)>,
}

enum Order {
    Send {
        tag: u64,
        lane: Weak<Lane>,
        address: Vec<u8>,
        sealed: Vec<u8>,
    },
    /// With the sender dropped when it is closed.
    Close(#[allow(dead_code, reason = "that it is dropped is the answer")] Sender<()>),
}

/// Somebody waits for something to come, as long as this is there.
pub struct Wanted(Arc<Rail>);

impl Wanted {
    pub fn new(rail: &Arc<Rail>) -> Wanted {
        rail.wanted.fetch_add(1, Ordering::SeqCst);
        rail.ring();
        Wanted(rail.clone())
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.wanted.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Set once: what this node sends by libfabric with, or why it does not.
pub type Opening = OnceLock<Result<Arc<Rail>, String>>;

/// How it is at this node.
pub fn status(node: &Node) -> crate::views::Libfabric {
    match node.fabric.rail.get() {
        Some(Ok(rail)) => rail.status(),
        Some(Err(why)) => crate::views::Libfabric { off: Some(why.clone()), ..Default::default() },
        None => crate::views::Libfabric { off: Some("it is being opened".into()), ..Default::default() },
    }
}

/// Opens the endpoint, if that is wanted and can be. In any case: why not.
pub async fn start(node: &Arc<Node>) {
    let config = &node.config.fabric;
    let rail = match config.libfabric.as_str() {
        "off" => Err("it is off ([fabric] libfabric)".to_owned()),
        _ => open(node).await,
    };
    match &rail {
        Ok(rail) => tracing::info!("fabric: libfabric's provider {} carries what is large", rail.provider),
        Err(why) if config.libfabric != "off" => {
            tracing::warn!("fabric: no libfabric here, all goes over TCP: {why}");
        }
        Err(_) => {}
    }
    let _ = node.fabric.rail.set(rail);
}

async fn open(node: &Arc<Node>) -> Result<Arc<Rail>, String> {
    let (tell, told) = oneshot::channel();
    let (node, addr) = (node.clone(), node.cluster.me().addr);
    let run = move || {
        let config = &node.config.fabric;
        let here = addr.parse().ok().map(|at: SocketAddr| at.ip()).filter(|ip| !ip.is_unspecified());
        let wanted = libfabric::Wanted {
            library: Path::new(&config.libfabric_file),
            provider: &config.libfabric,
            here,
            longest: MAX_BODY + AROUND,
            buffers: BUFFERS,
        };
        let made = Endpoint::open(&wanted).and_then(|endpoint| Ok((Thread::new(&endpoint)?, endpoint)));
        match made {
            Ok((thread, endpoint)) => {
                // Who does not wait any more has said that there is none.
                if tell.send(Ok(thread.rail.clone())).is_ok() {
                    thread.run(endpoint);
                }
            }
            Err(why) => _ = tell.send(Err(why)),
        }
    };
    std::thread::Builder::new().name("libfabric".into()).spawn(run).map_err(|e| e.to_string())?;
    match timeout(OPENS, told).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(_)) => Err("its thread has ended".into()),
        Err(_) => Err(format!("it is not opened within {OPENS:?}")),
    }
}

impl Rail {
    /// This end of a lane to a node, if that may be tried.
    pub fn offer(self: &Arc<Rail>, name: &str, lives: (u64, u64)) -> Option<Arc<Lane>> {
        let peers = self.peers();
        let fresh = |p: &&Peer| p.lives == lives && p.refused.as_ref().is_some_and(|(_, when)| when.elapsed() < AGAIN);
        let refused = peers.get(name).filter(fresh).is_some();
        drop(peers);
        (!refused && self.goes_on()).then(|| Lane::new(self, (name.to_owned(), lives)))
    }

    /// It can be used.
    pub fn goes_on(&self) -> bool {
        self.broken.get().is_none() && !self.watch.is_stuck()
    }

    /// Looks whether its thread comes back from libfabric.
    pub fn look(&self) {
        if let Some(why) = self.watch.look() {
            tracing::warn!("fabric: libfabric does not go on, all goes over TCP: {why}");
            self.fail(&why);
        }
    }

    /// No lane can be used any more.
    fn fail(&self, why: &str) {
        let lanes: Vec<Arc<Lane>> = self.lanes().values().filter_map(Weak::upgrade).collect();
        lanes.iter().for_each(|lane| lane.fail(why));
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<String, Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lanes(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node does not get anything by libfabric for now.
    pub fn refuse(&self, (name, lives): &Ends, why: &str) {
        let mut peers = self.peers();
        let known =
            peers.get(name).is_some_and(|p| p.lives == *lives && p.refused.as_ref().is_some_and(|(w, _)| w == why));
        peers.insert(name.clone(), Peer { lives: *lives, refused: Some((why.to_owned(), Instant::now())) });
        drop(peers);
        if !known {
            tracing::info!("fabric: nothing goes to {name} by libfabric, but over TCP: {why}");
        }
    }

    /// It does.
    pub fn accept(&self, (name, lives): &Ends) {
        self.peers().insert(name.clone(), Peer { lives: *lives, refused: None });
    }

    /// There is another lane.
    pub fn learn(&self, tag: u64, lane: &Arc<Lane>) {
        self.lanes().insert(tag, Arc::downgrade(lane));
    }

    /// It is gone.
    pub fn forget(&self, tag: u64) {
        self.lanes().remove(&tag);
    }

    /// Sends this for a lane, if it lives until then.
    pub fn send(&self, tag: u64, lane: &Arc<Lane>, address: &[u8], sealed: Vec<u8>) {
        let order = Order::Send { tag, lane: Arc::downgrade(lane), address: address.to_vec(), sealed };
        self.order(order);
    }

    fn order(&self, order: Order) {
        let sent = self.orders.lock().unwrap_or_else(PoisonError::into_inner).send(order);
        match sent {
            Ok(()) => self.ring(),
            // Whoever waits for it is told.
            Err(gone) => {
                if let Order::Send { lane, .. } = gone.0 {
                    let why = self.broken.get().map_or("it is closed", String::as_str);
                    lane.upgrade().iter().for_each(|lane| lane.fail(why));
                }
            }
        }
    }

    fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            // It is full when it was rung often.
            let _ = (&self.bell).write(&[1]);
        }
    }

    /// Closes the endpoint, so that nothing of it is left in the system.
    pub fn close(&self) {
        let (done, closed) = channel();
        self.order(Order::Close(done));
        let _ = closed.recv_timeout(Duration::from_secs(2));
    }

    /// How it is.
    pub fn status(&self) -> crate::views::Libfabric {
        let lanes: Vec<Arc<Lane>> = self.lanes().values().filter_map(Weak::upgrade).collect();
        let mut to: Vec<String> = lanes.iter().filter(|l| l.is_proven()).map(|l| l.peer().0.clone()).collect();
        to.sort();
        to.dedup();
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let peers = self.peers();
        let refused = peers.iter().filter_map(|(n, p)| Some((n.clone(), p.refused.clone()?.0)));
        let c = &self.counts;
        crate::views::Libfabric {
            provider: self.goes_on().then(|| self.provider.clone()),
            off: self.broken.get().cloned().or_else(|| self.watch.is_stuck().then(|| super::watch::WHY.to_owned())),
            not_to: refused.filter(|(n, _)| !to.contains(n)).collect(),
            to,
            sent: count(&c.sent),
            came: count(&c.came),
            useless: count(&c.useless),
            strange: count(&c.strange),
            forged: count(&c.forged),
        }
    }

    /// Something has come from somebody.
    fn take(&self, message: &mut [u8]) {
        let add = |to: &AtomicU64, n: usize| _ = to.fetch_add(n as u64, Ordering::Relaxed);
        let Ok(label) = label(message) else { return add(&self.counts.strange, 1) };
        let lane = self.lanes().get(&label.tag).and_then(Weak::upgrade);
        let Some(lane) = lane else { return add(&self.counts.strange, 1) };
        match lane.seal.open(label, message) {
            Ok(body) if lane.comes(label.number, body) => add(&self.counts.came, body.len()),
            Ok(_) => add(&self.counts.useless, 1),
            Err(_) => add(&self.counts.forged, 1),
        }
    }
}

/// What is to be sent for a lane.
struct Due {
    lane: Weak<Lane>,
    address: Vec<u8>,
    sealed: VecDeque<Vec<u8>>,
    /// Of these libfabric is not done with.
    under_way: usize,
}

/// The thread that has the endpoint.
struct Thread {
    rail: Arc<Rail>,
    orders: Receiver<Order>,
    bell: UnixStream,
    due: BTreeMap<u64, Due>,
    closes: Option<Sender<()>>,
}

impl Thread {
    fn new(endpoint: &Endpoint) -> Result<Thread, String> {
        Thread::of(endpoint.provider(), endpoint.address()).map_err(|e| e.to_string())
    }

    fn of(provider: &str, address: &[u8]) -> std::io::Result<Thread> {
        let (theirs, bell) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let (sender, orders) = channel();
        let rail = Arc::new(Rail {
            provider: provider.to_owned(),
            address: address.to_vec(),
            lanes: Mutex::default(),
            orders: Mutex::new(sender),
            bell: theirs,
            rung: AtomicBool::new(false),
            wanted: AtomicUsize::new(0),
            broken: OnceLock::new(),
            watch: Watch::new(),
            peers: Mutex::default(),
            counts: Counts::default(),
        });
        Ok(Thread { rail, orders, bell, due: BTreeMap::new(), closes: None })
    }

    /// Until the endpoint is closed, or can't go on.
    fn run(mut self, mut endpoint: Endpoint) {
        let why = self.serve(&mut endpoint);
        drop(endpoint);
        if let Err(why) = why {
            tracing::warn!("fabric: libfabric does not go on, all goes over TCP: {why}");
            let _ = self.rail.broken.set(why.clone());
            self.rail.fail(&why);
        }
    }

    fn serve(&mut self, endpoint: &mut Endpoint) -> Result<(), String> {
        self.rail.watch.is_me();
        let (mut looks, mut vain) = (0, 0);
        loop {
            self.rail.rung.store(false, Ordering::SeqCst);
            self.collect();
            if self.closes.is_some() {
                return Ok(());
            }
            self.rail.watch.goes_in();
            let sent = self.send(endpoint);
            let count = self.go_on(endpoint);
            self.rail.watch.comes_out();
            let count = count?;
            if sent + count > 0 {
                (looks, vain) = (0, 0);
                continue;
            }
            let live = |due: &Due| (due.under_way > 0 || !due.sealed.is_empty()) && due.lane.strong_count() > 0;
            let busy = self.rail.wanted.load(Ordering::SeqCst) > 0 || self.due.values().any(live);
            let pause = match (busy, endpoint.waits()) {
                (false, _) => -1,
                (true, true) => PAUSES.0,
                (true, false) if looks < LOOKS => {
                    looks += 1;
                    std::thread::yield_now();
                    continue;
                }
                (true, false) => PAUSES.1,
            };
            let bell = self.bell.as_raw_fd();
            let wants = endpoint.rest(bell, pause).map_err(|e| e.to_string())?;
            vain = if wants && !busy { vain + 1 } else { 0 };
            if vain > VAIN {
                poll::wait(&[(bell, false)], PAUSE_VAIN).map_err(|e| e.to_string())?;
            }
            poll::drain(bell);
            looks = if busy { looks } else { 0 };
        }
    }

    fn collect(&mut self) {
        for order in self.orders.try_iter() {
            match order {
                Order::Close(done) => self.closes = Some(done),
                Order::Send { tag, lane, address, sealed } => {
                    let new = || Due { lane, address, sealed: VecDeque::new(), under_way: 0 };
                    self.due.entry(tag).or_insert_with(new).sealed.push_back(sealed);
                }
            }
        }
        self.due.retain(|_, due| due.lane.strong_count() > 0 || due.under_way > 0);
    }

    /// Sends what there is room for; how many.
    fn send(&mut self, endpoint: &mut Endpoint) -> usize {
        let mut count = 0;
        for (tag, due) in &mut self.due {
            let Some(lane) = due.lane.upgrade() else {
                due.sealed.clear();
                continue;
            };
            while endpoint.under_way() < MOST_UNDER_WAY
                && let Some(sealed) = due.sealed.pop_front()
            {
                let bytes = sealed.len().saturating_sub(AROUND) as u64;
                let sent = endpoint.peer(&due.address).map_err(Unsent::Never);
                match sent.and_then(|peer| endpoint.send(peer, sealed, *tag)) {
                    Ok(()) => {
                        (count, due.under_way) = (count + 1, due.under_way + 1);
                        self.rail.counts.sent.fetch_add(bytes, Ordering::Relaxed);
                    }
                    Err(Unsent::Again(sealed)) => {
                        due.sealed.push_front(sealed);
                        break;
                    }
                    Err(Unsent::Never(why)) => {
                        due.sealed.clear();
                        lane.fail(&why);
                    }
                }
            }
        }
        count
    }

    fn go_on(&mut self, endpoint: &mut Endpoint) -> Result<usize, String> {
        let (rail, due) = (&self.rail, &mut self.due);
        endpoint.go_on(|event| match event {
            Event::Came(message) => rail.take(message),
            Event::Spoiled(why) => {
                rail.counts.strange.fetch_add(1, Ordering::Relaxed);
                tracing::debug!("fabric: {why}");
            }
            Event::Sent(tag, result) => {
                let Some(due) = due.get_mut(&tag) else { return };
                due.under_way = due.under_way.saturating_sub(1);
                if let (Err(why), Some(lane)) = (result, due.lane.upgrade()) {
                    lane.fail(&why);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
