//! A few real daemons on loopback, each with a state directory of its own; everything they started is gone when
//! the lab is dropped.
#![allow(dead_code, reason = "each test program uses its part of it")]

pub mod batch;
pub mod etcd;
pub mod fake;
pub mod gangs;
pub mod group;

pub mod naive;
pub mod personal;
pub mod programs;
pub mod terminal;

use pando_node::client::Client;
use pando_node::views::{Liveness, Node, Process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest that anything here may take.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Short limits, so that tests of them are short.
const CONFIG: &str = "\
[membership]\nprobe_ms = 300\nanswer_ms = 100\nsuspect_ms = 1500\ntell_ms = 100\n\
[connections]\nhello_within_ms = 700\nhandshake_within_ms = 2000\nmax_local_per_user = 40\nredial_ms = 50\nsilence_ms = 2500\n\
[guests]\nmax_unproved = 3\nprove_within_ms = 4000\n";

static LABS: AtomicU32 = AtomicU32::new(0);

pub fn pando() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
    command.stdin(Stdio::null()).env_remove("PANDO_SOCKET").env_remove("PANDO_STATE");
    command
}

/// Polls until `done` gives something.
pub fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub struct Daemon {
    pub name: String,
    pub state: PathBuf,
    pub socket: PathBuf,
    /// What a shell does before it starts, in mounts of its own (root only): a node that sees other files.
    pub before: Option<String>,
    child: Option<Child>,
    settings: String,
}

pub struct Lab {
    pub dir: PathBuf,
    pub nodes: Vec<Daemon>,
}

impl Lab {
    /// A cluster of `count` nodes n1, n2, ... that see each other. `settings` are more lines of configuration.
    pub fn new(count: usize, settings: &str) -> Self {
        Lab::with(count, |_| settings.to_owned())
    }

    /// The same, with each node's own.
    pub fn with(count: usize, settings: impl Fn(usize) -> String) -> Self {
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("pando-lab-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let mut lab = Lab { dir, nodes: Vec::new() };
        for index in 1..=count {
            let daemon = lab.prepare(&format!("n{index}"), &settings(index));
            if index == 1 {
                ok(pando().args(["init", "--name", "n1", "--state"]).arg(&daemon.state));
            } else {
                let token = lab.token();
                ok(&mut daemon.join(&token, &daemon.name));
            }
            lab.nodes.push(daemon);
            lab.nodes[index - 1].start();
        }
        lab.settled();
        lab
    }

    /// Directories and configuration of a machine that is no node yet. Lines of `settings` that begin with `guests.` are keys of that
    /// table, which is there already.
    pub fn prepare(&self, name: &str, settings: &str) -> Daemon {
        let state = self.dir.join(name);
        fs::create_dir_all(&state).unwrap();
        let socket = self.dir.join(format!("{name}.sock"));
        // What moves by itself is the business of tests that ask for it.
        let still = if settings.contains("[balance]") { "" } else { "[balance]\nevery_ms = 0\n" };
        let (guests, others): (Vec<&str>, Vec<&str>) = settings.lines().partition(|l| l.starts_with("guests."));
        let guests: String = guests.iter().map(|l| l.replacen("guests.", "", 1) + "\n").collect();
        // The last table is that of the guests.
        let settings = format!("{}\n{still}{CONFIG}{guests}", others.join("\n"));
        Daemon { name: name.into(), state, socket, before: None, child: None, settings }
    }

    pub fn token(&self) -> String {
        ok(&mut self.nodes[0].cli(&["token"])).trim().to_owned()
    }

    /// Waits until every running node sees every running node up.
    pub fn settled(&self) {
        let running: Vec<&Daemon> = self.nodes.iter().filter(|d| d.child.is_some()).collect();
        until("all nodes up", || {
            let all_up = |d: &&Daemon| {
                let nodes = d.client().get::<Vec<Node>>("/v1/nodes").unwrap_or_default();
                let up = |n: &&Daemon| {
                    let heard = |v: &Node| v.state == Liveness::Up && v.heard_ms.is_some();
                    nodes.iter().any(|v| v.name == n.name && heard(v))
                };
                running.iter().all(up)
            };
            running.iter().all(all_up).then_some(())
        });
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in &mut self.nodes {
                let ended = node.child.as_mut().map(|c| c.try_wait());
                eprintln!("--- {} ended: {ended:?}", node.name);
                eprintln!("--- log of {}\n{}", node.name, node.log());
                eprintln!(
                    "--- its helpers\n{}",
                    fs::read_to_string(node.state.join("helpers.log")).unwrap_or_default()
                );
            }
        }
        for node in &mut self.nodes {
            node.kill();
            node.end_helpers();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Daemon {
    pub fn client(&self) -> Client {
        Client::new(&self.socket)
    }

    pub fn cli(&self, words: &[&str]) -> Command {
        let mut command = pando();
        command.args(words).env("PANDO_SOCKET", &self.socket).env("PANDO_STATE", &self.state);
        command
    }

    pub fn join(&self, token: &str, name: &str) -> Command {
        let mut command = pando();
        command.args(["join", token, "--name", name, "--listen", "127.0.0.1:0", "--state"]).arg(&self.state);
        command
    }

    pub fn start(&mut self) {
        let config = self.state.join("pando.toml");
        fs::write(&config, &self.settings).unwrap();
        let log = fs::File::options().create(true).append(true).open(self.state.join("stderr")).unwrap();
        let mut command = match &self.before {
            None => pando(),
            Some(script) => {
                let mut command = Command::new("unshare");
                let script = format!("{script} && exec \"$@\"");
                command.args(["-m", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_pando")]);
                command.stdin(Stdio::null()).env_remove("PANDO_SOCKET").env_remove("PANDO_STATE");
                command
            }
        };
        command.args(["node", "--listen", "127.0.0.1:0", "--name", &self.name, "--state"]).arg(&self.state);
        command.arg("--socket").arg(&self.socket).arg("--config").arg(config);
        command.env("PANDO_FAKE_LAB", &self.state).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        until("an answer", || {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                let said = fs::read_to_string(self.state.join("stderr")).unwrap_or_default();
                panic!("the daemon of {} ended: {status}\n{said}\n{}", self.name, self.log());
            }
            self.client().get::<Vec<Node>>("/v1/nodes").ok()
        });
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn child_lives(&self) -> bool {
        self.child.is_some()
    }

    /// Kill -9.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM; gives whether it ended well.
    pub fn stop(&mut self) -> bool {
        let mut child = self.child.take().unwrap();
        signal(child.id(), "TERM");
        child.wait().unwrap().success()
    }

    /// Helpers outlive their daemon by design: the fake ones have written down who they are.
    fn end_helpers(&self) {
        for line in fs::read_to_string(self.state.join("fake-pids")).unwrap_or_default().lines() {
            let pid: u32 = line.parse().unwrap_or(0);
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if command.windows(3).any(|w| w == b"__d" || w == b"__g") {
                signal(pid, "KILL");
            }
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.state.join("node.log")).unwrap_or_default()
    }

    /// Waits for a line of the log that has `text` in it.
    pub fn logs(&self, text: &str) {
        until(&format!("`{text}` in the log of {}", self.name), || self.log().contains(text).then_some(()));
    }

    pub fn audit(&self) -> String {
        fs::read_to_string(self.state.join("audit.log")).unwrap_or_default()
    }

    pub fn node(&self, name: &str) -> Node {
        let nodes: Vec<Node> = self.client().get("/v1/nodes").unwrap();
        nodes.into_iter().find(|n| n.name == name).unwrap_or_else(|| panic!("{} does not know {name}", self.name))
    }

    pub fn addr(&self) -> String {
        self.node(&self.name).addr
    }

    pub fn process(&self, pid: u32) -> Option<Process> {
        let all: Vec<Process> = self.client().get("/v1/processes").unwrap();
        all.into_iter().find(|p| p.pid == pid)
    }

    /// The process here in which a guest runs.
    pub fn guest(&self, pid: u32) -> Option<i32> {
        let mut below = vec![self.process(pid).filter(|p| p.role == "guest")?.helper? as i32];
        while let Some(pid) = below.pop() {
            if fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with("guest:")) {
                return Some(pid);
            }
            below.extend(pando_kernel::procfs::children(pid));
        }
        None
    }

    /// Children of the daemon that ended and were not waited for.
    pub fn zombies(&self) -> usize {
        let parent = format!("PPid:\t{}\n", self.pid());
        let is = |status: &str| status.contains("State:\tZ") && status.contains(&parent);
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter(|e| fs::read_to_string(e.path().join("status")).is_ok_and(|s| is(&s))).count()
    }
}

/// The launchers of jobs at a node: children of its starter.
pub fn launchers_of(node: &Daemon) -> Vec<i32> {
    let below = pando_kernel::procfs::children(node.pid() as i32).into_iter().flat_map(pando_kernel::procfs::children);
    below.filter(|pid| pando_kernel::procfs::name(*pid) == "pando-launcher").collect()
}

pub fn signal(pid: u32, name: &str) {
    let _ = Command::new("/bin/sh").arg("-c").arg(format!("kill -{name} {pid}")).status();
}

/// Runs it to its good end; gives what it printed.
pub fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs it to its bad end; gives what it complained.
pub fn fails(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} was expected to fail: {}", text(&output));
    String::from_utf8(output.stderr).unwrap()
}

fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}\n{err}", output.status)
}

/// Whether tests of more than one user can run. Says so if not.
pub fn is_root(test: &str) -> bool {
    let root = pando_node::sys::effective_uid() == 0;
    if !root {
        eprintln!("SKIPPED {test}: it needs root, to be two users");
    }
    root
}

/// A process of ours that does nothing, ended with the value.
pub struct Sleeper(Child);

impl Sleeper {
    pub fn new() -> Self {
        Self::of(&mut Command::new("sleep"))
    }

    /// Of a program that is, or is like, sleep(1).
    pub fn of(program: &mut Command) -> Self {
        Sleeper(program.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where a test program of ours finds itself.
pub fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

pub fn lines_of(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A copy of sleep(1) with another mode.
pub fn sleep_with_mode(dir: &Path, mode: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let (file, sleep) = (dir.join(format!("sleep-{mode:o}")), ok(Command::new("sh").args(["-c", "command -v sleep"])));
    fs::copy(sleep.trim(), &file).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    file
}
