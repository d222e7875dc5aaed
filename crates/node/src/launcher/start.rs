//! Starts one rank.

use super::ready::Ready;
use super::streams::{Input, Phase, Streams};
use crate::whose::TESTBED_NODE;
use pando_kernel::pty;
use pando_kernel::rank::Setup;
use pando_kernel::spawn::{Program, spawn};
use pando_launch::{Ending, Kind, Manager, Order, Parcel, STEP, Share, Stdin, Stream};
use serde_bytes::ByteBuf;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

/// By this variable a node finds what is left of ranks.
pub const MARK: &str = "PANDO_MARK";
/// As shells have it.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// The variable in which a task finds its number.
const TASK: &str = "PANDO_TASK";

/// A rank that runs, or has run.
pub struct Rank {
    /// Its process; 0 if there never was one.
    pub pid: i32,
    /// How it ended.
    pub ended: Option<Ending>,
    /// When it began, and how long it ran.
    pub begun: Instant,
    /// See there.
    pub ran: Duration,
    /// Says when it has run for as long as it may.
    pub clock: Option<AbortHandle>,
    /// It has.
    pub late: bool,
    /// Its end has been told: what it said has been said.
    pub quiet: bool,
    /// The pipes that it writes to, as long as nobody reads them: most tasks have ended before somebody has to.
    pub unread: Option<[File; 2]>,
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
        Rank { ended: Some(Ending::Exit(status)), ..Rank::new(0, Vec::new(), phase) }
    }

    fn new(pid: i32, readers: Vec<JoinHandle<()>>, phase: watch::Sender<Phase>) -> Rank {
        let (begun, ran, clock, late) = (Instant::now(), Duration::ZERO, None, false);
        let (ended, quiet, unread, drained) = (None, false, None, 0);
        Rank { pid, ended, begun, ran, clock, late, quiet, unread, readers, drained, phase }
    }

    /// From now on what it writes is read as it comes.
    pub fn attend(&mut self, task: u32, streams: &Streams) {
        for (stream, from) in [Stream::Out, Stream::Err].into_iter().zip(self.unread.take().into_iter().flatten()) {
            // Without it only what it writes is lost, and that is said.
            match streams.read(task, stream, from.into(), self.phase.subscribe()) {
                Ok(reader) => self.readers.push(reader),
                Err(why) => {
                    streams.say(task, format!("pando: what the task writes can't be read: {why}\n").into_bytes())
                }
            }
        }
    }

    /// It has ended, and what it wrote has been said.
    pub fn is_settled(&self) -> bool {
        self.ended.is_some() && self.unread.is_none() && self.drained >= self.readers.len()
    }

    /// It has ended, and that has been told.
    pub fn is_over(&self) -> bool {
        self.ended.is_some() && self.quiet
    }
}

/// What all tasks of a job have at this node.
pub struct Alike {
    program: Program,
    setup: Setup,
    nothing: OwnedFd,
}

impl Alike {
    /// Of a place.
    pub fn make(order: &Order, place: u32, ready: &Ready) -> io::Result<Alike> {
        let (job, node) = (order.job.to_string(), order.nodes[place as usize].node.clone());
        let mut environment = given(order, ready);
        // That of a task which maps in turn.
        environment.retain(|(name, _)| name != TASK);
        let own = [("PANDO_JOB_ID", job), ("PANDO_HEAD", order.nodes[0].node.clone()), ("PANDO_NODE", node)];
        environment.extend(own.map(|(name, value)| (name.into(), value.into())));
        let program = Program::new(ready.program.as_os_str(), &[], &environment)?;
        let cpus = ready.cpus.first().cloned().unwrap_or_default();
        let setup = setup(order, ready, cpus, ready.keep.into_iter().collect());
        Ok(Alike { program, setup, nothing: nothing()? })
    }

    /// Starts one task of many: it reads nothing, and speaks to no process manager.
    pub fn start(&self, number: u32, words: &[ByteBuf]) -> io::Result<Rank> {
        let (out, stdout) = io::pipe()?;
        let (err, stderr) = io::pipe()?;
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_slice()).collect();
        let program = self.program.again(&words, (TASK, &number.to_string()))?;
        let pid = spawn(&program, &self.setup, [self.nothing.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()])?;
        // What it writes ends when it does.
        drop((stdout, stderr));
        let unread = Some([out, err].map(|end| File::from(OwnedFd::from(end))));
        Ok(Rank { unread, ..Rank::new(pid, Vec::new(), watch::channel(Phase::Runs).0) })
    }
}

/// The environment that the user's command had, and what came along.
fn given(order: &Order, ready: &Ready) -> Vec<(OsString, OsString)> {
    // A rank that starts a gang would wait for its own CPUs.
    let users = order.task.environment.iter().filter(|(name, _)| name.as_slice() != b"PANDO_GANG");
    let own = |bytes: &ByteBuf| OsStr::from_bytes(bytes).to_owned();
    let mut all: Vec<_> = users.chain(&ready.variables).map(|(name, value)| (own(name), own(value))).collect();
    // The daemon to which `pando` speaks is this node's, where it is not in the usual place.
    for name in ["PANDO_SOCKET", "PANDO_STATE", TESTBED_NODE] {
        if let Some(value) = std::env::var_os(name) {
            all.push((name.into(), value));
        }
    }
    if let Some(dir) = &ready.along {
        all.extend([("PANDO_JOB_DIR".into(), dir.clone()), ("LD_LIBRARY_PATH".into(), library_path(order, dir))]);
        if let Some(list) = variable(order, b"LD_PRELOAD") {
            all.push(("LD_PRELOAD".into(), preloaded(order, list, dir)));
        }
    }
    all.push((MARK.into(), (&ready.mark).into()));
    all
}

/// Nothing to read.
fn nothing() -> io::Result<OwnedFd> {
    File::open("/dev/null").map(OwnedFd::from)
}

fn variable<'a>(order: &'a Order, name: &[u8]) -> Option<&'a [u8]> {
    let named = order.task.environment.iter().find(|(n, _)| n.as_slice() == name);
    named.map(|(_, value)| value.as_slice()).filter(|value| !value.is_empty())
}

/// The loader looks there first.
fn library_path(order: &Order, dir: &OsStr) -> OsString {
    let mut list = dir.to_owned();
    if let Some(users) = variable(order, b"LD_LIBRARY_PATH") {
        list.push(":");
        list.push(OsStr::from_bytes(users));
    }
    list
}

/// What is loaded before all else is named by its path: what came along has another one here.
fn preloaded(order: &Order, list: &[u8], dir: &OsStr) -> OsString {
    let (mut out, directory) = (OsString::new(), Path::new(OsStr::from_bytes(&order.task.directory)));
    for word in list.split(|b| b" :".contains(b)).filter(|word| !word.is_empty()).map(OsStr::from_bytes) {
        let path = directory.join(word);
        let came = |f: &&Parcel| f.kind != Kind::Program && f.path.as_slice() == path.as_os_str().as_bytes();
        let came = order.files.iter().find(came).filter(|_| word.as_bytes().contains(&b'/'));
        if !out.is_empty() {
            out.push(":");
        }
        match came {
            Some(file) => out.push(Path::new(dir).join(OsStr::from_bytes(&file.name))),
            None => out.push(word),
        }
    }
    out
}

fn setup(order: &Order, ready: &Ready, cpus: Vec<u16>, keep: Vec<RawFd>) -> Setup {
    Setup {
        user: ready.user.clone(),
        umask: order.task.umask,
        limits: ready.limits.clone(),
        cpus,
        directory: ready.directory.clone(),
        keep,
        terminal: false,
        doors: ready.doors.iter().map(AsRawFd::as_raw_fd).collect(),
        ignored: ready.ignored.clone(),
    }
}

/// Starts it, with more variables than all ranks get. Gives the connection to its PMI-1 manager and its terminal, too, if it has them.
pub fn start(
    order: &Order,
    place: u32,
    number: u32,
    ready: &Ready,
    streams: &Streams,
    input: &mut Input,
    more: Vec<(OsString, OsString)>,
) -> io::Result<(Rank, Option<UnixStream>, Option<OwnedFd>)> {
    let share = &order.nodes[place as usize];
    let local = number - share.first;
    let pair = (order.manager == Manager::Pmi1).then(std::os::unix::net::UnixStream::pair).transpose()?;
    let (ours, theirs) = pair.map_or((None, None), |(ours, theirs)| (Some(ours), Some(theirs)));
    let pmi = theirs.as_ref().map(|theirs| theirs.as_raw_fd());
    let ends = match order.terminal.filter(|_| number == 0) {
        Some(size) => Ends::terminal(size, ready)?,
        None => Ends::pipes(wants_input(order, number))?,
    };
    let mut environment = given(order, ready);
    let own = variables(order, share, number, pmi).into_iter().map(|(name, value)| (name.into(), value.into()));
    environment.extend(own.chain(more));
    let (program, directory) = program(order, number, ready, &environment)?;
    // Between the two programs of a held rank.
    let held = ready.open.as_ref().filter(|_| order.hold).map(AsRawFd::as_raw_fd);
    let cpus = ready.cpus.get(local as usize).cloned().unwrap_or_default();
    let keep = [pmi, ready.keep.or(held)].into_iter().flatten().collect();
    let terminal = ends.terminal;
    let setup = Setup { terminal: terminal.is_some(), directory, ..setup(order, ready, cpus, keep) };
    let pid = spawn(&program, &setup, ends.theirs.each_ref().map(AsRawFd::as_raw_fd))?;
    // Our copies of what it has, which would keep a terminal open.
    drop(ends.theirs);
    if let Some(to) = ends.input {
        input.attach(number, to, streams)?;
    }
    let (phase, heeds) = watch::channel(Phase::Runs);
    let read = |(stream, from)| streams.read(number, stream, from, heeds.clone());
    let readers: io::Result<Vec<_>> = ends.outputs.into_iter().map(read).collect();
    let readers = readers?;
    let connection =
        ours.map(|ours| ours.set_nonblocking(true).and_then(|()| UnixStream::from_std(ours))).transpose()?;
    Ok((Rank::new(pid, readers, phase), connection, terminal))
}

/// What a rank runs, and where.
fn program(
    order: &Order,
    rank: u32,
    ready: &Ready,
    environment: &[(OsString, OsString)],
) -> io::Result<(Program, CString)> {
    let (file, directory) = ready.of(order.program_of(rank));
    let words = order.words_of(rank).iter().map(|w| OsStr::from_bytes(w).to_owned());
    let program = if order.hold {
        // It stops itself before it becomes the program.
        let before = ["pando".into(), "__hold".into(), file.as_os_str().to_owned()];
        Program::new(OsStr::new("/proc/self/exe"), &before.into_iter().chain(words).collect::<Vec<_>>(), environment)?
    } else {
        Program::new(file.as_os_str(), &words.collect::<Vec<_>>(), environment)?
    };
    Ok((program, directory.clone()))
}

fn wants_input(order: &Order, rank: u32) -> bool {
    match order.stdin {
        Stdin::None => false,
        Stdin::All => true,
        Stdin::Rank(only) => only == rank,
    }
}

/// What a rank reads and writes, and our ends of it.
struct Ends {
    theirs: [OwnedFd; 3],
    input: Option<OwnedFd>,
    outputs: Vec<(Stream, OwnedFd)>,
    terminal: Option<OwnedFd>,
}

impl Ends {
    fn pipes(reads: bool) -> io::Result<Ends> {
        let (input, stdin) = if reads { pipe_in()? } else { (None, nothing()?) };
        let (out, stdout) = io::pipe()?;
        let (err, stderr) = io::pipe()?;
        let outputs = vec![(Stream::Out, out.into()), (Stream::Err, err.into())];
        Ok(Ends { theirs: [stdin, stdout.into(), stderr.into()], input, outputs, terminal: None })
    }

    fn terminal(size: (u16, u16), ready: &Ready) -> io::Result<Ends> {
        let (ours, theirs) = pty::open(size, ready.user.as_ref().map(|user| (user.uid, user.gid)))?;
        let all = [theirs.try_clone()?, theirs.try_clone()?, theirs.try_clone()?];
        let (input, outputs) = (Some(ours.try_clone()?), vec![(Stream::Out, ours)]);
        // A program may close it for a while: it is there as long as the rank.
        Ok(Ends { theirs: all, input, outputs, terminal: Some(theirs) })
    }
}

fn pipe_in() -> io::Result<(Option<OwnedFd>, OwnedFd)> {
    let (theirs, mine) = io::pipe()?;
    Ok((Some(mine.into()), theirs.into()))
}

/// What a rank may want to know: our own names, those of Slurm, which many programs ask for, and those of PMI.
fn variables(order: &Order, share: &Share, rank: u32, pmi: Option<i32>) -> Vec<(&'static str, String)> {
    let mut shares: Vec<&Share> = order.nodes.iter().filter(|s| s.ranks > 0).collect();
    shares.sort_by_key(|s| s.first);
    let names: Vec<&str> = shares.iter().map(|s| s.node.as_str()).collect();
    let at = shares.iter().position(|s| s.node == share.node).unwrap_or(0);
    // A step of a batch job: scripts know the number of that.
    let of_batch = |wanted: &str| {
        let found = order.task.environment.iter().find(|(name, _)| name.as_slice() == wanted.as_bytes());
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    let batch = of_batch("PANDO_BATCH_NUMBER");
    let (job, size, local) = (order.job.to_string(), order.size().to_string(), (rank - share.first).to_string());
    let (rank, list, directory) =
        (rank.to_string(), names.join(","), Path::new(OsStr::from_bytes(&order.task.directory)));
    let directory = directory.display().to_string();
    let mut all = vec![
        ("PANDO_JOB_ID", job.clone()),
        ("PANDO_JOB_NAME", order.name.clone()),
        ("PANDO_HEAD", order.nodes[0].node.clone()),
        ("PANDO_RANK", rank.clone()),
        ("PANDO_SIZE", size.clone()),
        ("PANDO_LOCAL_RANK", local.clone()),
        ("PANDO_LOCAL_SIZE", share.ranks.to_string()),
        ("PANDO_NODE", share.node.clone()),
        ("PANDO_NODE_RANK", at.to_string()),
        ("PANDO_NODES", list.clone()),
        ("SLURM_JOB_ID", batch.clone().unwrap_or_else(|| job.clone())),
        ("SLURM_JOBID", batch.unwrap_or(job)),
        ("SLURM_JOB_NAME", of_batch("PANDO_BATCH_NAME").unwrap_or_else(|| order.name.clone())),
        ("SLURM_STEP_ID", of_batch(STEP).unwrap_or_else(|| "0".into())),
        ("SLURM_STEPID", of_batch(STEP).unwrap_or_else(|| "0".into())),
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
        all.extend(order.group.iter().map(|_| ("PMI_SPAWNED", "1".to_owned())));
        all.extend([("PMI_RANK", rank.clone()), ("PMI_ID", rank), ("PMI_SIZE", size), ("PMI_FD", pmi.to_string())]);
    }
    // Who started it.
    all.extend(order.group.iter().map(|group| ("PANDO_PARENT_JOB", group.of.to_string())));
    all.extend(order.cpus.map(|cpus| ("SLURM_CPUS_PER_TASK", cpus.to_string())));
    all
}
