//! Starts one rank.

use super::ready::Ready;
use super::streams::{Input, Phase, Streams};
use pando_kernel::rank::{self, Setup};
use pando_launch::{Ending, Manager, Order, Share, Stdin, Stream};
use serde_bytes::ByteBuf;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// By this variable a node finds what is left of ranks.
pub const MARK: &str = "PANDO_MARK";
/// As shells have it.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// A rank that runs, or has run.
pub struct Rank {
    /// Its process; 0 if there never was one.
    pub pid: i32,
    /// How it ended.
    pub ended: Option<Ending>,
    /// Its end has been told: what it said has been said.
    pub quiet: bool,
    /// Tasks that read what it writes, and how many of them have said what it wrote itself.
    pub readers: Vec<JoinHandle<()>>,
    /// See there.
    pub drained: usize,
    /// What they are to know.
    pub phase: watch::Sender<Phase>,
}

impl Rank {
    /// One whose program could not be started.
    pub fn never_begun(why: &io::Error) -> Rank {
        let status = if why.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
        let phase = watch::channel(Phase::Gone).0;
        Rank { pid: 0, ended: Some(Ending::Exit(status)), quiet: false, readers: Vec::new(), drained: 0, phase }
    }

    /// It has ended, and what it wrote has been said.
    pub fn is_settled(&self) -> bool {
        self.ended.is_some() && self.drained >= self.readers.len()
    }

    /// It has ended, and that has been told.
    pub fn is_over(&self) -> bool {
        self.ended.is_some() && self.quiet
    }
}

/// Starts one task of many: it reads nothing, and speaks to no process manager.
pub fn task(
    order: &Order,
    (place, number): (u32, u32),
    words: &[ByteBuf],
    ready: &Ready,
    streams: &Streams,
) -> io::Result<Rank> {
    let (out, stdout) = io::pipe()?;
    let (err, stderr) = io::pipe()?;
    let mut command = Command::new(&ready.program);
    let name = OsStr::from_bytes(words.first().map_or(b"", |w| w.as_slice()));
    command.arg0(name).args(words.iter().skip(1).map(|w| OsStr::from_bytes(w)));
    give(&mut command, order);
    let share = &order.nodes[place as usize];
    command.env(MARK, &ready.mark).env("PANDO_JOB_ID", order.job.to_string()).env("PANDO_HEAD", &order.nodes[0].node);
    command.env("PANDO_TASK", number.to_string()).env("PANDO_NODE", &share.node);
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    rank::prepare(&mut command, setup(order, ready, Vec::new(), ready.keep.into_iter().collect()));
    let pid = command.spawn()?.id() as i32;
    let (phase, heeds) = watch::channel(Phase::Runs);
    let readers = vec![
        streams.read(number, Stream::Out, OwnedFd::from(out), heeds.clone())?,
        streams.read(number, Stream::Err, OwnedFd::from(err), heeds)?,
    ];
    Ok(Rank { pid, ended: None, quiet: false, readers, drained: 0, phase })
}

/// The environment that the user's command had.
fn give(command: &mut Command, order: &Order) {
    command.env_clear();
    for (name, value) in &order.task.environment {
        command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
    }
    // The daemon to which `pando` speaks is this node's, where it is not in the usual place.
    for name in ["PANDO_SOCKET", "PANDO_STATE"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}

fn setup(order: &Order, ready: &Ready, cpus: Vec<u16>, keep: Vec<RawFd>) -> Setup {
    Setup {
        user: ready.user.clone(),
        umask: order.task.umask,
        limits: order.task.limits.clone(),
        cpus,
        directory: ready.directory.clone(),
        keep,
    }
}

/// Starts it, with more variables than all ranks get. Gives the connection to its PMI-1 manager, too, if it has one.
pub fn start(
    order: &Order,
    place: u32,
    number: u32,
    ready: &Ready,
    streams: &Streams,
    input: &mut Input,
    more: Vec<(OsString, OsString)>,
) -> io::Result<(Rank, Option<UnixStream>)> {
    let share = &order.nodes[place as usize];
    let local = number - share.first;
    let pair = (order.manager == Manager::Pmi1).then(std::os::unix::net::UnixStream::pair).transpose()?;
    let (ours, theirs) = pair.map_or((None, None), |(ours, theirs)| (Some(ours), Some(theirs)));
    let pmi = theirs.as_ref().map(|theirs| theirs.as_raw_fd());
    let (mine, stdin) = if wants_input(order, number) { pipe_in()? } else { (None, Stdio::null()) };
    let (out, stdout) = io::pipe()?;
    let (err, stderr) = io::pipe()?;
    let mut command = match order.hold {
        // It stops itself before it becomes the program.
        true => {
            let mut command = Command::new("/proc/self/exe");
            command.arg0("pando").arg("__hold").arg(&ready.program);
            command
        }
        false => Command::new(&ready.program),
    };
    let words: Vec<&OsStr> = order.task.words.iter().map(|w| OsStr::from_bytes(w)).collect();
    if order.hold {
        command.args(&words);
    } else {
        command.arg0(words[0]).args(&words[1..]);
    }
    give(&mut command, order);
    command.env(MARK, &ready.mark);
    for (name, value) in variables(order, share, number, pmi) {
        command.env(name, value);
    }
    command.envs(more);
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    // Between the two programs of a held rank.
    let held = ready.open.as_ref().filter(|_| order.hold).map(AsRawFd::as_raw_fd);
    let cpus = ready.cpus.get(local as usize).cloned().unwrap_or_default();
    let keep = [pmi, ready.keep.or(held)].into_iter().flatten().collect();
    rank::prepare(&mut command, setup(order, ready, cpus, keep));
    // It is waited for by pid: orphans are taken in by the same call.
    let pid = command.spawn()?.id() as i32;
    if let Some(mine) = mine {
        input.attach(number, mine, streams)?;
    }
    let (phase, heeds) = watch::channel(Phase::Runs);
    let readers = vec![
        streams.read(number, Stream::Out, OwnedFd::from(out), heeds.clone())?,
        streams.read(number, Stream::Err, OwnedFd::from(err), heeds)?,
    ];
    let connection =
        ours.map(|ours| ours.set_nonblocking(true).and_then(|()| UnixStream::from_std(ours))).transpose()?;
    Ok((Rank { pid, ended: None, quiet: false, readers, drained: 0, phase }, connection))
}

fn wants_input(order: &Order, rank: u32) -> bool {
    match order.stdin {
        Stdin::None => false,
        Stdin::All => true,
        Stdin::Rank(only) => only == rank,
    }
}

fn pipe_in() -> io::Result<(Option<OwnedFd>, Stdio)> {
    let (theirs, mine) = io::pipe()?;
    Ok((Some(mine.into()), theirs.into()))
}

/// What a rank may want to know: our own names, those of Slurm, which many programs ask for, and those of PMI.
fn variables(order: &Order, share: &Share, rank: u32, pmi: Option<i32>) -> Vec<(&'static str, String)> {
    let mut shares: Vec<&Share> = order.nodes.iter().filter(|s| s.ranks > 0).collect();
    shares.sort_by_key(|s| s.first);
    let names: Vec<&str> = shares.iter().map(|s| s.node.as_str()).collect();
    let at = shares.iter().position(|s| s.node == share.node).unwrap_or(0);
    let (job, size, local) = (order.job.to_string(), order.size().to_string(), (rank - share.first).to_string());
    let (rank, list, directory) =
        (rank.to_string(), names.join(","), Path::new(OsStr::from_bytes(&order.task.directory)));
    let directory = directory.display().to_string();
    let mut all = vec![
        ("PANDO_JOB_ID", job.clone()),
        ("PANDO_HEAD", order.nodes[0].node.clone()),
        ("PANDO_RANK", rank.clone()),
        ("PANDO_SIZE", size.clone()),
        ("PANDO_LOCAL_RANK", local.clone()),
        ("PANDO_LOCAL_SIZE", share.ranks.to_string()),
        ("PANDO_NODE", share.node.clone()),
        ("PANDO_NODE_RANK", at.to_string()),
        ("PANDO_NODES", list.clone()),
        ("SLURM_JOB_ID", job.clone()),
        ("SLURM_JOBID", job),
        ("SLURM_STEP_ID", "0".into()),
        ("SLURM_PROCID", rank.clone()),
        ("SLURM_LOCALID", local),
        ("SLURM_NODEID", at.to_string()),
        ("SLURM_NTASKS", size.clone()),
        ("SLURM_NPROCS", size.clone()),
        ("SLURM_NNODES", names.len().to_string()),
        ("SLURM_JOB_NUM_NODES", names.len().to_string()),
        ("SLURM_JOB_NODELIST", list.clone()),
        ("SLURM_NODELIST", list),
        ("SLURMD_NODENAME", share.node.clone()),
        ("SLURM_SUBMIT_DIR", directory),
    ];
    if let Some(pmi) = pmi {
        all.extend([("PMI_RANK", rank.clone()), ("PMI_ID", rank), ("PMI_SIZE", size), ("PMI_FD", pmi.to_string())]);
    }
    all.extend(order.cpus.map(|cpus| ("SLURM_CPUS_PER_TASK", cpus.to_string())));
    all
}
