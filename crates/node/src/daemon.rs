//! The daemon: what it holds, how it starts and how it stops.

use crate::admission::Tokens;
use crate::audit::Audit;
use crate::config::Config;
use crate::door::Waiting;
use crate::engine::Engine;
use crate::events::{Events, now_ms};
use crate::follow::{Follow, watch};
use crate::guests::Slots;
use crate::lacks::lacks;
use crate::load::Meter;
use crate::membership::{Membership, PlainList};
use crate::owner::{exists, lives};
use crate::peers::{self, Links};
use crate::place::{Mode, Place};
use crate::processes::Table;
use crate::views::Event;
use crate::{api, door, joining, notify, reports, sys};
use pando_wire::Identity;
use pando_wire::identity::IdentityError;
use pando_wire::message::{Load, Member};
use pando_wire::rustls::{ClientConfig, ServerConfig};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};

/// Bytes of a Unix socket's path, one less than the kernel's array.
const MAX_SOCKET_PATH: usize = 107;

/// Why a daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// No identity, or a bad one.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The name given is not the identity's.
    #[error("this node is {is} (its certificate says so), not {given}: leave --name out, or use another --state")]
    Name {
        /// The identity's.
        is: String,
        /// The option's.
        given: String,
    },
    /// Something of the system.
    #[error("{what}: {cause}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// Another daemon has the state.
    #[error("another node runs with the state in {}: stop it, or use another --state", .0.display())]
    Running(PathBuf),
    /// A path that the kernel can't take.
    #[error("{}: {} bytes are too many for a socket, {MAX_SOCKET_PATH} at most: choose a shorter --state or --socket", .0.display(), .0.as_os_str().len())]
    LongPath(PathBuf),
}

fn doing<T>(what: impl Into<String>, result: io::Result<T>) -> Result<T, DaemonError> {
    result.map_err(|cause| DaemonError::Io { what: what.into(), cause })
}

/// Everything a task of the daemon may need.
pub struct Node {
    pub(crate) place: Place,
    /// What this machine does not let it do.
    pub(crate) lacks: Vec<String>,
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    pub(crate) boot: u64,
    pub(crate) plain: PlainList,
    pub(crate) events: Events,
    pub(crate) audit: Audit,
    pub(crate) tokens: Tokens,
    pub(crate) engine: Engine,
    pub(crate) slots: Slots,
    pub(crate) links: Links,
    pub(crate) waiting: Waiting,
    pub(crate) client_tls: Arc<ClientConfig>,
    pub(crate) server_tls: Arc<ServerConfig>,
    pub(crate) join_tls: Arc<ServerConfig>,
    table: Mutex<Table>,
    follow: Mutex<Follow>,
    load: Mutex<Load>,
    counter: AtomicU64,
}

impl Node {
    fn open(place: Place, config: Config, addr: String) -> Result<Self, DaemonError> {
        let identity = Identity::load(&place.identity())?;
        let name = identity.node.to_string();
        if let Some(given) = config.name.clone().filter(|g| *g != name) {
            return Err(DaemonError::Name { is: name, given });
        }
        let me = Member { name: name.clone(), addr, stamp: now_ms() };
        let plain = PlainList::open(me, &config.membership, place.members());
        let mut boot = [0; 8];
        pando_wire::token::random(&mut boot);
        Ok(Node {
            boot: u64::from_be_bytes(boot),
            lacks: lacks(),
            plain: doing("the list of members", plain)?,
            events: Events::open(&place.state),
            audit: doing("audit.log", Audit::open(&place.state))?,
            tokens: Tokens::open(place.state.join("tokens.json")),
            engine: Engine::new(now_ms()),
            slots: Slots::open(place.state.join("guests.json")),
            links: Links::default(),
            waiting: Waiting::default(),
            client_tls: identity.client_config()?,
            server_tls: identity.server_config()?,
            join_tls: identity.join_server_config()?,
            table: Mutex::new(Table::new(name)),
            follow: Mutex::new(Follow::new(config.follow.after_ms)),
            load: Mutex::default(),
            counter: AtomicU64::new(1),
            place,
            config,
            identity,
        })
    }

    /// This node's name.
    pub(crate) fn name(&self) -> String {
        self.identity.node.to_string()
    }

    /// Who is in the cluster.
    pub(crate) fn membership(&self) -> &dyn Membership {
        &self.plain
    }

    /// The processes. Never held across an await.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who goes where its family is. Never held across an await.
    pub(crate) fn follow(&self) -> MutexGuard<'_, Follow> {
        self.follow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a process of this node is.
    pub(crate) fn place_of(&self, pid: u32) -> String {
        let table = self.table();
        table.get(&table.local(pid)).map_or_else(|| self.name(), |k| k.view.place.clone())
    }

    /// The load as last measured.
    pub(crate) fn load(&self) -> Load {
        *self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no other has.
    pub(crate) fn number(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Where helpers connect.
    pub(crate) fn engine_socket(&self) -> PathBuf {
        self.place.state.join("engine.sock")
    }

    /// Where tests say in which phase a helper is to stand still; none unless configured.
    pub(crate) fn holds(&self) -> Option<String> {
        self.config.test.holds.then(|| self.place.state.join("holds").display().to_string())
    }

    /// Forgets processes that ended, and says which lost their helper.
    pub(crate) fn prune(&self) {
        let orphaned = self.table().prune(lives, exists);
        for p in orphaned {
            let text = format!(
                "process {} of {} ({}): its {} helper here died; what was away is lost",
                p.pid, p.home, p.command, p.role
            );
            let reason = Some(format!("its {} helper died", p.role));
            let (uid, pid, from) = (Some(p.uid), Some(p.pid), Some(p.place));
            self.events.say(Event { uid, pid, home: Some(p.home), from, reason, ..Event::new("lost", text) });
        }
    }
}

/// Runs a node until it is told to stop (SIGTERM, SIGINT). `config.listen` and `config.name` are final.
pub fn run(place: Place, config: Config) -> Result<(), DaemonError> {
    // The command line wants it otherwise; here it would let a peer that hangs up end the whole node.
    sys::ignore_signals(&[libc::SIGPIPE]);
    let _reserved = doing("/dev/null", sys::reserve_low_descriptors())?;
    let dir = fs::DirBuilder::new().recursive(true).mode(0o700).create(&place.state);
    doing(format!("the state directory {}", place.state.display()), dir)?;
    let _lock = lock_state(&place.state)?;
    start_log(&place.state)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    doing("the runtime", runtime)?.block_on(live(place, config))
}

fn lock_state(state: &Path) -> Result<File, DaemonError> {
    let file = File::options().create(true).append(true).mode(0o600).open(state.join("node.lock"));
    let file = doing("node.lock", file)?;
    if sys::lock(&file) { Ok(file) } else { Err(DaemonError::Running(state.to_owned())) }
}

/// Writes each line to standard error and to `node.log`.
struct Tee(Arc<File>);

impl Write for Tee {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // The log must not end because a terminal did.
        let _ = io::stderr().write_all(line);
        let _ = (&*self.0).write_all(line);
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn start_log(state: &Path) -> Result<(), DaemonError> {
    let file = File::options().create(true).append(true).mode(0o600).open(state.join("node.log"));
    let file = Arc::new(doing("node.log", file)?);
    let made = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_target(false)
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || Tee(file.clone()))
        .try_init();
    if let Err(e) = made {
        eprintln!("pando: the log was begun before: {e}");
    }
    Ok(())
}

async fn live(place: Place, mut config: Config) -> Result<(), DaemonError> {
    // First of all: a signal must never end us without cleaning up.
    let mut stops = doing("signals", stop_signals())?;
    let what = format!("listening on {}", config.listen);
    let listener = doing(what, TcpListener::bind(config.listen.as_str()).await)?;
    if let Ok(addr) = listener.local_addr() {
        config.listen = addr.to_string();
    }
    let addr = joining::announced(&config, None);
    let node = Arc::new(Node::open(place, config, addr)?);
    let engine_socket = bind(&node.engine_socket(), 0o600)?;
    let mode = if node.place.mode == Mode::System { 0o666 } else { 0o600 };
    if let Some(dir) = node.place.socket.parent() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
        doing(format!("the directory {}", dir.display()), made)?;
    }
    let api_socket = bind(&node.place.socket, mode)?;
    tokio::spawn(reports::serve(node.clone(), engine_socket));
    tokio::spawn(door::serve(node.clone(), listener));
    tokio::spawn(peers::keep(node.clone()));
    tokio::spawn(tend(node.clone()));
    tokio::spawn(watch::keep(node.clone()));
    tokio::spawn(api::serve(node.clone(), api_socket));
    let (name, addr) = (node.name(), node.membership().me().addr);
    let (mode, cluster) = (node.place.mode.as_str(), &node.identity.cluster);
    let text = format!("node {name} of cluster {cluster} is ready at {addr} ({mode} mode)");
    node.events.say(Event::new("node", text));
    node.lacks.iter().for_each(|lack| node.events.say(Event::new("node", lack)));
    notify::notify("READY=1");
    stops.recv().await;
    notify::notify("STOPPING=1");
    node.events.say(Event::new("node", format!("node {name} stops; moved processes go on without it")));
    let _ = fs::remove_file(&node.place.socket);
    let _ = fs::remove_file(node.engine_socket());
    Ok(())
}

/// One channel for both signals.
fn stop_signals() -> io::Result<tokio::sync::mpsc::Receiver<()>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut signals, sender) = (signal(kind)?, sender.clone());
        tokio::spawn(async move {
            signals.recv().await;
            let _ = sender.send(()).await;
        });
    }
    Ok(receiver)
}

/// Binds a Unix socket in place of what a daemon that crashed left. The lock on the state says that none runs.
fn bind(path: &Path, mode: u32) -> Result<UnixListener, DaemonError> {
    if path.as_os_str().len() > MAX_SOCKET_PATH {
        return Err(DaemonError::LongPath(path.to_owned()));
    }
    let what = format!("the socket {}", path.display());
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let cause = io::Error::new(io::ErrorKind::AddrInUse, "another node listens there");
        return Err(DaemonError::Io { what, cause });
    }
    let _ = fs::remove_file(path);
    let listener = doing(what.clone(), UnixListener::bind(path))?;
    doing(what, fs::set_permissions(path, fs::Permissions::from_mode(mode)))?;
    Ok(listener)
}

/// The regular chores: measure, say who went, forget what ended.
async fn tend(node: Arc<Node>) {
    let period = Duration::from_millis(node.config.membership.heartbeat_ms);
    let mut meter = Meter::new(node.config.load.clone());
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let load = meter.measure(node.table().guests());
        *node.load.lock().unwrap_or_else(PoisonError::into_inner) = load;
        node.membership().set_load(load);
        node.plain.announce(&node.events);
        node.prune();
        node.slots.prune();
    }
}
