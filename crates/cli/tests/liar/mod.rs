//! A stage for liars: real helpers (`pando __deputy`, `pando __guest`) with real certificates, and the test at the other end of
//! their connections. No daemon: the test listens where the daemon would.
#![allow(dead_code, reason = "each test program uses its part of it")]

pub mod home;
pub mod target;

use pando_migrate::channel::Channel;
use pando_migrate::control::{Limits, Report};
use pando_wire::identity::NewKey;
use pando_wire::rustls::pki_types::ServerName;
use pando_wire::rustls::{ClientConnection, ServerConnection};
use pando_wire::{Identity, NodeName, SNI_MOVE};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest that an answer or an end may take.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The most memory that a helper may take, whatever it is told.
pub const MOST_MEMORY_KB: u64 = 400 * 1024;

static STAGES: AtomicU32 = AtomicU32::new(0);

/// A cluster of two, without daemons: `honest`, whose helper is put to the test, and `liar`.
pub struct Stage {
    dir: PathBuf,
    pub reports: Receiver<Report>,
    pub limits: Limits,
}

impl Stage {
    /// A directory that the honest node has in common with the liar, as far as it knows.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub fn new() -> Self {
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("pando-liar-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let name = |text| NodeName::parse(text).unwrap();
        let honest = Identity::create_cluster(&dir.join("honest"), &name("stage"), &name("honest")).unwrap();
        let key = NewKey::generate().unwrap();
        let cert = honest.issue(&name("liar"), &key.public()).unwrap();
        Identity::accept(&dir.join("liar"), &honest.cluster, &key, honest.ca_der(), &cert).unwrap();
        fs::create_dir(dir.join("data")).unwrap();
        let listener = UnixListener::bind(dir.join("engine.sock")).unwrap();
        let (sender, reports) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let sender = sender.clone();
                std::thread::spawn(move || {
                    for line in BufReader::new(stream).lines() {
                        let Ok(line) = line else { return };
                        assert!(line.len() < 64 * 1024, "a line that no daemon takes: {line:.200}");
                        if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let times = Limits { lost_after_ms: 3_000, connect_ms: 3_000, prepare_ms: 3_000, ..Limits::default() };
        let limits = Limits { freeze_ms: 3_000, ..times };
        Stage { dir, reports, limits }
    }

    pub fn identity_dir(&self, node: &str) -> String {
        self.dir.join(node).display().to_string()
    }

    pub fn engine_socket(&self) -> String {
        self.dir.join("engine.sock").display().to_string()
    }

    fn identity(&self, node: &str) -> Identity {
        Identity::load(&self.dir.join(node)).unwrap()
    }

    /// The liar answers a connection of the honest node.
    pub fn answer(&self, listener: &TcpListener) -> Channel {
        listener.set_nonblocking(true).unwrap();
        let begun = Instant::now();
        let tcp = loop {
            match listener.accept() {
                Ok((tcp, _)) => break tcp,
                Err(e) => assert!(begun.elapsed() < PATIENCE, "{e}; the helper said {:?}", self.reports.try_recv()),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let config = self.identity("liar").server_config().unwrap();
        Channel::establish(tcp, ServerConnection::new(config).unwrap().into(), PATIENCE).unwrap()
    }

    /// The liar opens a connection.
    pub fn call(&self, tcp: TcpStream) -> Channel {
        let config = self.identity("liar").client_config().unwrap();
        let tls = ClientConnection::new(config, ServerName::try_from(SNI_MOVE).unwrap()).unwrap();
        Channel::establish(tcp, tls.into(), PATIENCE).unwrap()
    }

    /// Starts a helper of the honest node with `order` on its standard input; what it complains goes to a file.
    pub fn helper(&self, command: &mut Command, order: &str) -> Helper {
        let errors = self.dir.join("errors");
        command.stdin(Stdio::piped()).stderr(fs::File::options().create(true).append(true).open(&errors).unwrap());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), order.as_bytes()).unwrap();
        Helper { child, errors }
    }

    /// All that the helper has said up to its `Done`: outcome, detail, and whether it logged that.
    pub fn done(&self) -> (String, String) {
        let end = Instant::now() + PATIENCE;
        let mut logs = Vec::new();
        loop {
            match self.reports.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Report::Done { outcome, detail, .. }) => return (outcome, detail),
                Ok(Report::Log { text, .. }) => logs.push(text),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("the helper does not say how it ended; it said {logs:?}")
                }
            }
        }
    }

    /// The next line for the log that has `part` in it.
    pub fn logged(&self, part: &str) -> String {
        let end = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        loop {
            match self.reports.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Report::Log { text, .. }) if text.contains(part) => return text,
                Ok(other) => seen.push(other),
                Err(_) => panic!("no line with `{part}`, only {seen:?}"),
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A helper under test.
pub struct Helper {
    pub child: Child,
    errors: PathBuf,
}

impl Helper {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// It ends by itself, in time, and has neither panicked nor taken too much memory.
    pub fn ends_well(&mut self) {
        let begun = Instant::now();
        let mut memory = 0;
        while self.child.try_wait().unwrap().is_none() {
            memory = memory.max(peak_memory_kb(self.pid()).unwrap_or(0));
            assert!(begun.elapsed() < PATIENCE, "the helper does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        self.is_unharmed(memory);
    }

    /// Up to now it has neither panicked nor taken too much memory.
    pub fn is_unharmed(&self, memory: u64) {
        let memory = memory.max(peak_memory_kb(self.pid()).unwrap_or(0));
        assert!(memory < MOST_MEMORY_KB, "the helper took {memory} KiB");
        let errors = fs::read_to_string(&self.errors).unwrap_or_default();
        assert!(!errors.contains("panicked"), "{errors}");
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn peak_memory_kb(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

/// State letter of a process, none when it is gone.
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn pando() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_pando"))
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    pando_node::sys::effective_uid() == 0
}
