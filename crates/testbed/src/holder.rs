//! The holder: one process per testbed that keeps the namespaces, starts the daemons and cuts wires.
//!
//! It is the only one that must stay inside; all other commands come and go. It adopts and reaps what the daemons
//! leave behind, so that nothing depends on what pid 1 is here. If whoever brings the testbed up dies before it is
//! ready (or, for the demo and the benchmark, at any time), it takes everything away and ends.

use crate::entry::{Entry, environment};
use crate::error::{Context, Error, Result};
use crate::network::Network;
use crate::place::{ENV_DIR, ENV_NAME, Holding, PORT, Plan, address, write_json};
use crate::{down, processes, sys};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What can be asked of the holder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// How things are.
    State,
    /// Start the daemon of a node.
    Start {
        /// Index of the node.
        node: usize,
    },
    /// Take a node off the network, or back on.
    Cut {
        /// Index of the node.
        node: usize,
        /// Off or on.
        cut: bool,
    },
    /// The cluster is formed: live on without the one who brought it up (unless tied to it).
    Formed,
}

/// How things are, or what went wrong.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Why not.
    pub error: Option<String>,
    /// Which nodes are cut off.
    pub cut: Vec<bool>,
    /// The running daemon of each node that the holder started.
    pub daemons: Vec<Option<u32>>,
    /// How the last daemon of each node ended.
    pub ended: Vec<Option<String>>,
}

/// Requests are short.
const LONGEST_REQUEST: u64 = 4096;

/// Asks the holder of a testbed.
pub fn ask(plan: &Plan, ask: &Ask) -> Result<Answer> {
    plan.holding()?;
    let gone = |_| Error::HolderGone(plan.name.clone());
    let mut stream = UnixStream::connect(plan.dir.join("holder.sock")).map_err(gone)?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).context("set a time limit")?;
    let mut line = serde_json::to_string(ask).map_err(|e| Error::Other(e.to_string()))?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(gone)?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).context("read the holder's answer")?;
    let answer: Answer = serde_json::from_str(&reply).map_err(|_| Error::HolderGone(plan.name.clone()))?;
    match answer.error {
        Some(error) => Err(Error::Other(error)),
        None => Ok(answer),
    }
}

/// Starts the holder of a planned testbed and waits until the namespaces are there.
pub fn start(plan: &Plan) -> Result<()> {
    let log = plan.dir.join("holder.log");
    let log = std::fs::File::create(&log).at("create", &log)?;
    let mut command = Command::new(&plan.exe);
    command.args([crate::HOLDER.as_ref(), plan.name.as_ref() as &std::ffi::OsStr]);
    command.env(ENV_NAME, &plan.name).env(ENV_DIR, &plan.dir).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    sys::in_new_session(&mut command);
    let mut child = command.spawn().at("start", &plan.exe)?;
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut said).context("wait for the testbed's holder")?;
    }
    if said == "ready\n" {
        return Ok(());
    }
    drop(child.wait());
    Err(Error::Other(if said.is_empty() { "the testbed's holder died at once".into() } else { said.trim().into() }))
}

/// The holder's main function: `pando __testbed-holder NAME`.
pub fn main(name: &str) -> i32 {
    let outcome = Plan::load(name).and_then(Holder::new);
    let said = match &outcome {
        Ok(_) => "ready\n".to_string(),
        Err(e) => format!("{e}\n"),
    };
    drop(std::io::stdout().write_all(said.as_bytes()));
    drop(std::io::stdout().flush());
    // Whoever waits reads until the end of the pipe; the log takes its place.
    // SAFETY: both descriptors are open for the whole life of the process.
    unsafe { libc::dup2(2, 1) };
    let ended = outcome.and_then(Holder::serve);
    if let Err(e) = ended {
        eprintln!("pando testbed: {e}");
        // Nobody else would clear away what there is if the one who waited for us is gone too.
        if let Ok(plan) = Plan::load(name)
            && processes::start_time(plan.owner.0) != Some(plan.owner.1)
        {
            drop(down::from_inside(&plan));
        }
        return 1;
    }
    0
}

struct Holder {
    plan: Plan,
    network: Network,
    listener: UnixListener,
    signals: OwnedFd,
    owner: Option<OwnedFd>,
    daemons: Vec<Option<u32>>,
    ended: Vec<Option<String>>,
}

impl Holder {
    fn new(plan: Plan) -> Result<Holder> {
        let signals = sys::signalfd(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP])
            .context("read signals from a descriptor")?;
        if plan.user_namespace {
            enter_user_namespace()?;
        }
        // SAFETY: prctl with integers: adopt orphans, and let our own user look at our namespaces.
        unsafe {
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        }
        let owner = watch(plan.owner)?;
        let network = Network::build(&plan)?;
        let pid = std::process::id();
        let start_time = processes::start_time(pid).unwrap_or(0);
        let socket = plan.dir.join("holder.sock");
        let listener = UnixListener::bind(&socket).at("listen on", &socket)?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).at("protect", &socket)?;
        let (networks, names) = (network.namespaces()?, network.names());
        write_json(&plan.dir.join("holder.json"), &Holding { pid, start_time, networks, names })?;
        let n = plan.shape.nodes;
        Ok(Holder { plan, network, listener, signals, owner, daemons: vec![None; n], ended: vec![None; n] })
    }

    fn serve(mut self) -> Result<()> {
        loop {
            let owner = self.owner.as_ref().map_or(-1, |fd| fd.as_raw_fd());
            let fds = [self.listener.as_raw_fd(), self.signals.as_raw_fd(), owner];
            let ready = sys::poll(&fds, None).context("wait for requests")?;
            if ready[2] || (ready[1] && self.signalled()) {
                return down::from_inside(&self.plan);
            }
            if ready[0]
                && let Ok((stream, _)) = self.listener.accept()
                && let Err(e) = self.serve_one(stream)
            {
                eprintln!("pando testbed: {e}");
            }
        }
    }

    /// Reaps the dead; says whether we were asked to end.
    fn signalled(&mut self) -> bool {
        let mut end = false;
        while let Some(signal) = sys::read_signal(&self.signals) {
            end |= signal != libc::SIGCHLD;
        }
        self.reap();
        end
    }

    fn reap(&mut self) {
        while let Some((pid, status)) = sys::reap_any() {
            if let Some(node) = self.daemons.iter().position(|d| *d == Some(pid)) {
                self.daemons[node] = None;
                self.ended[node] = Some(sys::status_text(status));
            }
        }
    }

    fn serve_one(&mut self, stream: UnixStream) -> Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(2))).context("set a time limit")?;
        let mut line = String::new();
        BufReader::new((&stream).take(LONGEST_REQUEST)).read_line(&mut line).context("read a request")?;
        let done = match serde_json::from_str(&line) {
            Ok(ask) => self.act(ask),
            Err(e) => Err(Error::Other(format!("not a request: {e}"))),
        };
        self.reap();
        let answer = Answer {
            error: done.err().map(|e| e.to_string()),
            cut: self.network.cut_off().to_vec(),
            daemons: self.daemons.clone(),
            ended: self.ended.clone(),
        };
        let reply = serde_json::to_string(&answer).map_err(|e| Error::Other(e.to_string()))? + "\n";
        (&stream).write_all(reply.as_bytes()).context("answer")
    }

    fn act(&mut self, ask: Ask) -> Result<()> {
        let known = |node: usize| {
            if node < self.daemons.len() { Ok(()) } else { Err(Error::Other(format!("there is no node {node}"))) }
        };
        match ask {
            Ask::State => Ok(()),
            Ask::Start { node } => known(node).and_then(|()| self.start_daemon(node)),
            Ask::Cut { node, cut } => known(node).and_then(|()| self.network.set_cut(node, cut)),
            Ask::Formed => {
                if !self.plan.tied {
                    self.owner = None;
                }
                Ok(())
            }
        }
    }

    fn start_daemon(&mut self, node: usize) -> Result<()> {
        self.reap();
        // One that was killed is a zombie at once, and can be reaped when the last of its threads is gone.
        let deadline = Instant::now() + Duration::from_secs(2);
        let dying = |pid: u32| processes::all().iter().any(|p| p.pid == pid && matches!(p.state, 'Z' | 'X'));
        while self.daemons[node].is_some_and(dying) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
            self.reap();
        }
        let name = format!("n{}", node + 1);
        if let Some(pid) = self.daemons[node] {
            return Err(Error::Other(format!("the daemon of {name} runs already (pid {pid})")));
        }
        let entry = Entry::inside(&self.plan, &name, self.network.namespace(node))?;
        let log_path = self.plan.log(&name);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&log_path).at("open", &log_path)?;
        let mut command = Command::new(&self.plan.exe);
        command.args(["node", "--name", &name, "--state"]).arg(self.plan.state(&name));
        command.arg("--config").arg(self.plan.config(&name));
        command.arg("--listen").arg(format!("{}:{PORT}", address(node)));
        command.arg("--socket").arg(self.plan.socket(&name));
        command.envs(environment(&self.plan, &name)).current_dir("/");
        command.stdin(Stdio::null()).stdout(log.try_clone().at("open", &log_path)?).stderr(log);
        entry.attach(&mut command);
        sys::in_new_session(&mut command);
        let child = command.spawn().at("start the daemon", &self.plan.exe)?;
        self.daemons[node] = Some(child.id());
        self.ended[node] = None;
        Ok(())
    }
}

/// A descriptor that becomes readable when the owner ends; none on a kernel that has no such thing.
fn watch((pid, start_time): (u32, u64)) -> Result<Option<OwnedFd>> {
    // SAFETY: pidfd_open reads two integers and returns a new descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    // SAFETY: the descriptor is new and ours.
    let fd = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
    if processes::start_time(pid) != Some(start_time) {
        return Err(Error::Other("whoever was bringing this testbed up is gone".into()));
    }
    Ok(fd)
}

/// An ordinary user makes the testbed inside a user namespace, where it is still itself: daemons and programs see
/// the same user as outside and have no privilege, as in personal mode on real machines.
fn enter_user_namespace() -> Result<()> {
    let (uid, gid) = (sys::euid(), sys::egid());
    let advice = "without root a testbed needs user namespaces, and this kernel refuses them \
                  (look at kernel.unprivileged_userns_clone, user.max_user_namespaces and \
                  kernel.apparmor_restrict_unprivileged_userns)";
    sys::unshare(libc::CLONE_NEWUSER).context(advice)?;
    let write = |file: &str, text: String| {
        let path = Path::new("/proc/self").join(file);
        std::fs::write(&path, text).context(format!("{advice}; write {}", path.display()))
    };
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{uid} {uid} 1\n"))?;
    write("gid_map", format!("{gid} {gid} 1\n"))
}
