//! The daemon: what it holds, how it starts and how it stops.

use crate::admission::Tokens;
use crate::audit::Audit;
use crate::balancing::{self, Balancing};
use crate::config::{self, Config};
use crate::door::Waiting;
use crate::engine::Engine;
use crate::events::{Events, now_ms};
use crate::follow::{Follow, watch};
use crate::guests::Slots;
use crate::kept::Keeper;
use crate::lacks::lacks;
use crate::load::Meter;
use crate::membership::{Cluster, vector};
use crate::metrics::{self, Counts};
use crate::owner::{exists, lives};
use crate::peers::{self, Links};
use crate::place::{Mode, Place};
use crate::processes::Table;
use crate::questions::Questions;
use crate::shortage::Shortage;
use crate::views::Event;
use crate::writer::Writer;
use crate::{api, door, fabric, gang, jobs, joining, notify, pace, presence, queue, reports, speed, sys};
use pando_balance::Vector;
use pando_wire::Identity;
use pando_wire::identity::IdentityError;
use pando_wire::message::{Load, Standing};
use pando_wire::rustls::{ClientConfig, ServerConfig};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// Bytes of a Unix socket's path, one less than the kernel's array.
const MAX_SOCKET_PATH: usize = 107;

/// What is said to other nodes at the end is on its way within this.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Who starts the next daemon as soon as one is gone gets the lock within this.
const LOCKED_WITHIN: Duration = Duration::from_secs(1);
/// So long after its start it knows the others, and rests if there is nothing to do.
const STARTED: Duration = Duration::from_secs(30);
/// Whatever work there was, so often its code is given back: what goes on comes back by some hundred minor faults, a millisecond of CPU.
const RESTS: Duration = Duration::from_secs(600);

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
    pub(crate) cluster: Cluster,
    pub(crate) questions: Questions,
    pub(crate) balancing: Arc<Balancing>,
    pub(crate) counts: Counts,
    pub(crate) events: Events,
    pub(crate) audit: Audit,
    pub(crate) tokens: Tokens,
    pub(crate) engine: Engine,
    pub(crate) slots: Slots,
    pub(crate) writer: Arc<Writer>,
    pub(crate) links: Links,
    pub(crate) fabric: fabric::Part,
    pub(crate) jobs: jobs::Jobs,
    pub(crate) queue: queue::office::Office,
    pub(crate) gangs: gang::Gangs,
    pub(crate) waiting: Waiting,
    pub(crate) client_tls: Arc<ClientConfig>,
    pub(crate) server_tls: Arc<ServerConfig>,
    pub(crate) join_tls: Arc<ServerConfig>,
    table: Mutex<Table>,
    follow: Mutex<Follow>,
    /// Somebody is followed who was not.
    pub(crate) followed: Notify,
    load: Mutex<Load>,
    /// Bytes a second by which free memory goes down.
    falling: AtomicU64,
    counter: AtomicU64,
}

impl Node {
    fn open(place: Place, config: Config, addr: String) -> Result<Self, DaemonError> {
        let identity = Identity::load(&place.identity())?;
        let name = identity.node.to_string();
        if let Some(given) = config.name.clone().filter(|g| *g != name) {
            return Err(DaemonError::Name { is: name, given });
        }
        let writer = doing("the thread that writes files", Writer::start())?;
        let (next, programs) = (place.state.join("jobs.next"), place.state.join("programs"));
        let numbers = jobs::Jobs::open(next, programs, config.jobs.cache_mb, writer.clone());
        let cluster = Cluster::open(&name, addr, &config.membership, place.members(), writer.clone());
        let mut boot = [0; 8];
        pando_wire::token::random(&mut boot);
        Ok(Node {
            boot: u64::from_be_bytes(boot),
            lacks: lacks(),
            cluster: doing("the list of members", cluster)?,
            questions: Questions::default(),
            balancing: Arc::default(),
            counts: Counts::default(),
            events: Events::open(&place.state),
            audit: doing("audit.log", Audit::open(&place.state))?,
            tokens: Tokens::open(place.state.join("tokens.json")),
            engine: Engine::new(now_ms()),
            slots: Slots::open(place.state.join("guests.json"), writer.clone()),
            jobs: doing("the numbers of jobs", numbers)?,
            writer,
            links: Links::default(),
            fabric: fabric::Part::default(),
            queue: queue::office::Office::default(),
            gangs: gang::Gangs::default(),
            waiting: Waiting::default(),
            client_tls: identity.client_config()?,
            server_tls: identity.server_config()?,
            join_tls: identity.join_server_config()?,
            table: Mutex::new(Table::new(name)),
            follow: Mutex::new(Follow::new(config.follow.after_ms)),
            followed: Notify::new(),
            load: Mutex::default(),
            falling: AtomicU64::new(0),
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

    /// This node as balancing sees it: with what others are not told.
    pub(crate) fn vector(&self) -> Vector {
        Vector { falling: self.falling.load(Ordering::Relaxed), ..vector(&self.load()) }
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
    pando_kernel::heap::share_arenas();
    pando_kernel::heap::join_small_pieces();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    doing("the runtime", runtime)?.block_on(live(place, config))
}

fn lock_state(state: &Path) -> Result<File, DaemonError> {
    let file = File::options().create(true).append(true).mode(0o600).open(state.join("node.lock"));
    let file = doing("node.lock", file)?;
    // What a daemon that has just been killed was about to start has its lock until it is another program.
    let until = Instant::now() + LOCKED_WITHIN;
    while !sys::lock(&file) {
        if Instant::now() >= until {
            return Err(DaemonError::Running(state.to_owned()));
        }
        std::thread::sleep(LAST_WORDS / 4);
    }
    Ok(file)
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
    let keeper = Arc::new(Mutex::new(Keeper::restore(&node)));
    let engine_socket = bind(&node.engine_socket(), 0o600)?;
    let mode = if node.place.mode == Mode::System { 0o666 } else { 0o600 };
    if let Some(dir) = node.place.socket.parent() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
        doing(format!("the directory {}", dir.display()), made)?;
    }
    let batch_socket = bind(&queue::batch::socket(&node), 0o600)?;
    let api_socket = bind(&node.place.socket, mode)?;
    if let Some(addr) = &node.config.metrics.listen {
        let listener = TcpListener::bind(addr.as_str()).await;
        let listener = doing(format!("listening on {addr} ([metrics] listen)"), listener)?;
        tokio::spawn(metrics::serve(node.clone(), listener));
    }
    tokio::spawn(reports::serve(node.clone(), engine_socket));
    queue::batch::adopt(&node);
    tokio::spawn(queue::has::keep(node.clone()));
    tokio::spawn(queue::pool::serve(node.clone(), batch_socket));
    tokio::spawn(door::serve(node.clone(), listener));
    tokio::spawn(peers::keep(node.clone()));
    tokio::spawn(fabric::keep(node.clone()));
    tokio::spawn(gang::keep(node.clone()));
    tokio::spawn(tend(node.clone(), keeper.clone()));
    tokio::spawn(watch::keep(node.clone()));
    doubt(node.config.clone());
    tokio::spawn(balancing::keep(node.clone()));
    if node.config.test.still {
        tokio::spawn(balancing::brakes::exercise(node.clone()));
    }
    queue::office::open(&node);
    tokio::spawn(api::serve(node.clone(), api_socket));
    let (name, addr) = (node.name(), node.cluster.me().addr);
    let (mode, cluster) = (node.place.mode.as_str(), &node.identity.cluster);
    let text = format!("node {name} of cluster {cluster} is ready at {addr} ({mode} mode)");
    node.events.say(Event::new("node", text));
    node.lacks.iter().for_each(|lack| node.events.say(Event::new("node", lack)));
    notify::notify("READY=1");
    tokio::spawn(rest());
    stops.recv().await;
    notify::notify("STOPPING=1");
    queue::office::close(&node).await;
    keep(&keeper, &node);
    node.events.say(Event::new("node", format!("node {name} stops; moved processes go on without it")));
    peers::send_all(&node, node.cluster.leave());
    tokio::time::sleep(LAST_WORDS).await;
    tokio::task::block_in_place(|| {
        node.fabric.close();
        node.writer.finish();
    });
    let _ = fs::remove_file(&node.place.socket);
    let _ = fs::remove_file(node.engine_socket());
    let _ = fs::remove_file(queue::batch::socket(&node));
    Ok(())
}

/// Code that only its start needed, or some work since, goes out of its memory; so does what is free of its heap.
async fn rest() {
    tokio::time::sleep(STARTED).await;
    loop {
        pando_kernel::heap::trim();
        if let Err(e) = tokio::task::block_in_place(pando_kernel::resident::give_back_code) {
            return tracing::debug!("code that is not needed stays in memory: {e}");
        }
        tokio::time::sleep(RESTS).await;
    }
}

/// Says what of the configuration is not there. Beside all else: who looks at a file system may have to wait for its server.
fn doubt(config: Config) {
    std::thread::spawn(move || {
        config::doubts(&config).iter().for_each(|doubt| tracing::warn!("the configuration: {doubt}"))
    });
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
        let cause = io::Error::new(
            io::ErrorKind::AddrInUse,
            "another node listens there: name another with --socket or PANDO_SOCKET",
        );
        return Err(DaemonError::Io { what, cause });
    }
    let _ = fs::remove_file(path);
    let listener = doing(what.clone(), UnixListener::bind(path))?;
    doing(what, fs::set_permissions(path, fs::Permissions::from_mode(mode)))?;
    Ok(listener)
}

fn keep(keeper: &Mutex<Keeper>, node: &Node) {
    keeper.lock().unwrap_or_else(PoisonError::into_inner).save(node);
}

/// The regular chores: measure, say who went, forget what ended, and write down what is to outlive this daemon.
async fn tend(node: Arc<Node>, keeper: Arc<Mutex<Keeper>>) {
    let period = Duration::from_millis(node.config.load.every_ms);
    let speed = tokio::task::block_in_place(|| speed::of_this_machine(&node.config.load, &node.place.state));
    let mut meter = Meter::new(node.config.load.clone(), speed);
    let mut shortage = Shortage::new(&node.config.load);
    let mut ticks = pace::every(period);
    loop {
        ticks.tick().await;
        let load = tokio::task::block_in_place(|| {
            keep(&keeper, &node);
            node.prune();
            balancing::miss(&node);
            let guests = node.table().guests();
            let load = meter.measure(guests, node.balancing.come_and_gone(), &node.gangs.held());
            node.falling.store(meter.falling(), Ordering::Relaxed);
            shortage.look(&node);
            Load { standing: standing(&node, &load), ..load }
        });
        *node.load.lock().unwrap_or_else(PoisonError::into_inner) = load;
        node.cluster.set_load(load);
        node.slots.prune();
    }
}

/// Whom this node takes in just now.
fn standing(node: &Node, load: &Load) -> Standing {
    let guests = &node.config.guests;
    let busy = f64::from(load.runnable_milli) / f64::from(load.cpus_milli.max(1));
    match () {
        () if node.balancing.is_drained() => Standing::Drained,
        () if presence::is_at_work(&node.config.owner) => Standing::Owner,
        () if load.guests >= guests.max || guests.max_load.is_some_and(|most| busy >= most) => Standing::Full,
        () => Standing::Open,
    }
}
