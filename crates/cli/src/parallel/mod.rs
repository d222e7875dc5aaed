//! `pando run -n`: a parallel job. Its head is the daemon here, to which we speak for as long as it runs; we show what ranks write, give them
//! what we read, pass signals on, and end as they ended.

pub mod environment;
mod filled;
mod held;
mod hostfile;
mod input;
mod joblog;
mod libraries;
mod lines;
pub mod map;
mod output;
mod program;
mod progress;
pub mod several;
mod signals;
mod step;
mod template;
mod terminal;

use crate::args::{RunOptions, names};
use crate::batch;
use environment::environment;
pub use hostfile::list as slots;
use input::Input;
use output::Printer;
use pando_kernel::rank;
use pando_launch::{
    Ask, Ending, Environment, Frames, LONGEST_JOB_NAME, Request, Share, Stdin, Task, Tell, Turns, encode,
};
use pando_node::client::{Client, ClientError};
use pando_node::sys;
use program::Sources;
use serde_bytes::ByteBuf;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Nothing was started, and that is our doing (as env(1) and timeout(1) have it).
pub const NOT_STARTED: i32 = 125;
/// As shells have it.
const NOT_FOUND: i32 = 127;
/// Ranks that end badly are told of one by one up to so many.
const TOLD: usize = 8;
/// It has run for as long as it may: as timeout(1) has it.
const TIMED_OUT: i32 = 124;
/// Seconds between asking ranks to end and ending them, if the user says nothing.
const GRACE_S: u64 = 2;
/// A node was lost: as if its ranks had been killed.
const LOST: i32 = 128 + libc::SIGKILL;
/// What is no whole line is shown when nothing has come for so long.
const PAUSE: Duration = Duration::from_millis(100);

/// Says something to the head, from any thread.
#[derive(Clone)]
pub struct Line(Arc<Mutex<UnixStream>>);

impl Line {
    /// False when the head is gone.
    pub fn ask(&self, ask: &Ask) -> bool {
        encode(ask).is_ok_and(|bytes| self.write(&bytes))
    }

    /// The same of frames that are ready to go.
    pub fn write(&self, frames: &[u8]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(frames).is_ok()
    }
}

/// What looks like an option and is none was taken for the program. The status then.
fn is_no_program(verb: &str, command: &[OsString]) -> Option<i32> {
    let word = command[0].to_string_lossy();
    let program = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|d| d.join(&command[0]).is_file()));
    (word.starts_with('-') && !program).then(|| {
        eprintln!(
            "pando: `{word}` is no option of `pando {verb}`, nor a program\n`pando {verb} --help` shows what there is"
        );
        NOT_FOUND
    })
}

/// Runs it; gives our exit status.
pub fn run(client: &Client, options: &RunOptions) -> i32 {
    if let Some(status) = is_no_program("run", &options.command) {
        return status;
    }
    if let Some(id) = options.parallel.jobid.filter(|id| !batch::is_within(*id)) {
        let why = batch::enter_again(client, id);
        eprintln!("pando: {why}; nothing was started");
        return NOT_STARTED;
    }
    let fail = |why: &str| {
        eprintln!("pando: {why}; nothing was started");
        NOT_STARTED
    };
    let (request, sources) = match request(options) {
        Ok(made) => made,
        Err(why) => return fail(&why),
    };
    let printer = match Printer::new(&options.parallel) {
        Ok(printer) => printer,
        Err(why) => return fail(&why),
    };
    // Before there is another thread.
    let signals = signals::hold(request.terminal.is_some());
    let stream = match open(client, &request) {
        Ok(stream) => stream,
        Err(e) => return fail(&e.to_string()),
    };
    let Ok(writer) = stream.try_clone() else { return fail("no more descriptors") };
    let line = Line(Arc::new(Mutex::new(writer)));
    signals::pass_on(signals, request.hold, line.clone());
    let input = (request.stdin != Stdin::None).then(|| Input::start(line.clone()));
    let (nodes, hold, has_terminal) = (Vec::new(), request.hold, request.terminal.is_some());
    let mut job =
        Job { printer, input, line, sources, nodes, begun: false, hold, has_terminal, ended: Ended::default() };
    let status = match job.follow(stream) {
        Ok(()) => {
            terminal::leave();
            job.ended.status()
        }
        Err(e) => {
            terminal::leave();
            job.printer.finish();
            eprintln!("pando: the node here broke off ({e}): the job ends; see its log, node.log");
            1
        }
    };
    let by_itself = job.ended.fatal != Some(TIMED_OUT);
    if let Some(number) = job.ended.by_signal.filter(|_| job.size() == 1 && by_itself) {
        sys::die_of(number);
    }
    status
}

fn open(client: &Client, request: &Request) -> Result<UnixStream, ClientError> {
    let mut stream = client.upgrade("/v1/jobs", "pando-job")?;
    let broken = |e: &dyn std::fmt::Display| ClientError::Broken(e.to_string());
    let bytes = encode(request).map_err(|e| broken(&e))?;
    stream.write_all(&bytes).map_err(|e| broken(&e))?;
    Ok(stream)
}

/// The nodes that were named; in a batch job its own, and no others.
fn among(options: &crate::args::ParallelOptions, slots: &[(String, u32)]) -> Result<Vec<String>, String> {
    let named = names(options.nodelist.as_ref());
    let batch = std::env::var("PANDO_BATCH_NODES").unwrap_or_default();
    let own: Vec<&str> = batch.split(',').filter(|n| !n.is_empty()).collect();
    if own.is_empty() {
        let outside = options
            .relative
            .map_or(Ok(named), |_| Err("--relative is for steps of a batch job: -w names nodes".to_owned()));
        return outside;
    }
    let wanted = named.iter().chain(slots.iter().map(|(node, _)| node));
    if let Some(stranger) = wanted.into_iter().find(|n| !own.contains(&n.as_str())) {
        return Err(format!("node {stranger} is none of this batch job's, which has {batch}"));
    }
    if !named.is_empty() || !slots.is_empty() {
        return Ok(named);
    }
    let skipped = options.relative.unwrap_or(0) as usize;
    let own = own.get(skipped..).filter(|left| left.len() >= options.node_count.unwrap_or(1) as usize).ok_or_else(|| {
        format!("--relative {skipped}: this batch job's nodes are {batch}, and too few come after those that are skipped")
    })?;
    Ok(own.iter().map(|name| (*name).to_owned()).collect())
}

/// A step has as many of the job's nodes as it has ranks for, where nothing else is said; the head takes those where the fewest of the job's
/// ranks run.
fn nodes_of_step(options: &crate::args::ParallelOptions, own: usize) -> Option<u32> {
    let is_step = std::env::var_os("PANDO_BATCH_NODES").is_some_and(|nodes| !nodes.is_empty());
    let is_free = options.nodelist.is_none() && options.slots.is_none() && options.hostfile.is_none();
    let ranks = options.ranks.map(|n| options.per_node.map_or(n, |each| n.div_ceil(each.max(1))));
    (is_step && is_free).then(|| ranks.unwrap_or(1).clamp(1, own.max(1) as u32))
}

/// Slurm's variables of one rank, which are another one's here.
const OF_A_RANK: [&str; 3] = ["SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_TOPOLOGY_ADDR"];

/// Slurm's variables of the batch job that this is a step of, and what its script has made of them. The launcher says what is another one for a rank.
fn of_the_job(all: &environment::Variables) -> Vec<OsString> {
    let is_meant = |name: &&OsString| {
        name.as_bytes().starts_with(b"SLURM_") && !OF_A_RANK.iter().any(|of| name.as_os_str() == OsStr::new(of))
    };
    match all.contains_key(OsStr::new("PANDO_BATCH_JOB")) {
        true => all.keys().filter(is_meant).cloned().collect(),
        false => Vec::new(),
    }
}

/// What the user has said, and what a shell would hand on.
fn request(options: &RunOptions) -> Result<(Request, Sources), String> {
    let p = &options.parallel;
    let all: environment::Variables = std::env::vars_os().collect();
    let more: Vec<OsString> = of_the_job(&all).into_iter().chain(p.env.iter().flatten().cloned()).collect();
    let environment = environment(all, p.export.as_deref(), &more)?;
    let terminal = p.pty.then(terminal::size).transpose()?;
    let environment = if p.pty { terminal::with_kind(environment) } else { environment };
    let Begins { command, becomes, parts } = begins(options)?;
    let task = Task { parts, ..task_of(&command, p.chdir.as_deref(), environment)? };
    let stdin = p.input.unwrap_or(Stdin::Rank(0));
    let directory = PathBuf::from(OsStr::from_bytes(&task.directory));
    if let (Stdin::Rank(rank), Some(ranks)) = (stdin, p.ranks)
        && rank >= ranks
        && ranks > 0
    {
        return Err(format!("--input {rank}: there are ranks 0 to {}", ranks - 1));
    }
    let sources = Sources::find(&command[0], &directory, p.bcast.unwrap_or_default(), &p.with)?;
    let program = Path::new(&becomes).file_name().unwrap_or_default();
    let slots = match (&p.slots, &p.hostfile) {
        (Some(slots), _) => slots.0.clone(),
        (None, Some(file)) => hostfile::read(file)?,
        (None, None) => Vec::new(),
    };
    let among = among(p, &slots)?;
    step::fits(p)?;
    let request = Request {
        ranks: p.ranks,
        nodes: p.node_count.or_else(|| nodes_of_step(p, among.len()).filter(|_| p.exclusive.is_none())),
        per_node: p.per_node,
        cpus: p.cpus,
        among,
        exclude: names(p.exclude.as_ref()),
        slots,
        oversubscribe: p.oversubscribe,
        task,
        name: p.job_name.clone().unwrap_or_else(|| plain_name(program)),
        time_ms: p.time.filter(|time| !time.is_zero()).map(|time| time.as_millis() as u64),
        stdin,
        terminal,
        kill_on_bad: p.kill_on_bad_exit != Some(0),
        grace_ms: p.grace.unwrap_or(GRACE_S).saturating_mul(1000),
        hold: p.hold,
        pool: false,
        gang: turns(p),
        exclusive: p.exclusive.as_ref().map(|_| step::exclusive()).transpose()?.unwrap_or_default(),
        memory_mb: p.mem.unwrap_or(0),
        quality: quality(p),
        mpi: program::mpi(p.mpi.unwrap_or_default(), &becomes, &directory),
        files: sources.files(),
        needs: sources.needs.clone(),
    };
    Ok((request, sources))
}

/// What ranks begin with, and become.
struct Begins {
    /// What every one begins with.
    command: Vec<OsString>,
    /// The program that it is, or the first of them becomes.
    becomes: OsString,
    /// From which rank on it is which program, if there are several.
    parts: Vec<(u32, u32)>,
}

fn begins(options: &RunOptions) -> Result<Begins, String> {
    let p = &options.parallel;
    let first = options.command[0].clone();
    if !p.multi_prog {
        let parts = p.firsts.iter().copied().zip(0..).collect();
        return Ok(Begins { command: options.command.clone(), becomes: p.becomes.clone().unwrap_or(first), parts });
    }
    let shown = first.to_string_lossy().into_owned();
    let in_words = |why: String| format!("--multi-prog {shown}: {why}");
    let text = std::fs::read_to_string(&first).map_err(|e| in_words(e.to_string()))?;
    let programs = several::read(&text, p.ranks.unwrap_or(1)).map_err(in_words)?;
    let becomes = programs.first().map_or(first, |program| program.words[0].clone());
    Ok(Begins { command: several::command(&programs), becomes, parts: several::parts(&programs) })
}

/// The variable says it for all jobs here, as far as they fit: a batch job of a queue whose jobs share CPUs has it for its steps.
fn turns(p: &crate::args::ParallelOptions) -> Turns {
    match p.gang {
        true => Turns::Yes,
        false if std::env::var_os("PANDO_GANG").is_some_and(|yes| yes == "1") && !p.oversubscribe => Turns::IfItFits,
        false => Turns::No,
    }
}

/// A step's is its batch job's.
fn quality(p: &crate::args::ParallelOptions) -> Option<String> {
    p.qos.clone().or_else(|| std::env::var("PANDO_QOS").ok().filter(|name| !name.is_empty()))
}

/// A job's name has its limits, a program's has others.
fn plain_name(program: &OsStr) -> String {
    let mut name: String = program.to_string_lossy().chars().filter(|c| !c.is_control()).collect();
    name.truncate(name.floor_char_boundary(LONGEST_JOB_NAME));
    name
}

fn bytes_of(text: &OsStr) -> ByteBuf {
    ByteBuf::from(text.as_bytes())
}

/// A command, and what a shell would hand on.
fn task_of(command: &[OsString], chdir: Option<&Path>, mut environment: Environment) -> Result<Task, String> {
    let directory = match chdir {
        Some(dir) => std::path::absolute(dir).map_err(|e| format!("{}: {e}", dir.display()))?,
        None => std::env::current_dir().map_err(|e| format!("the working directory: {e}"))?,
    };
    environment.push((ByteBuf::from("PWD"), bytes_of(directory.as_os_str())));
    Ok(Task {
        words: command.iter().map(|w| bytes_of(w)).collect(),
        environment,
        directory: bytes_of(directory.as_os_str()),
        umask: rank::umask(),
        limits: rank::limits(),
        parts: Vec::new(),
    })
}

/// How it ended.
#[derive(Default)]
struct Ended {
    /// The status of what was first, if that ended all.
    fatal: Option<i32>,
    /// The highest of all.
    highest: i32,
    by_signal: Option<i32>,
    /// Ranks that ended badly by themselves.
    bad: usize,
}

impl Ended {
    fn rank(&mut self, how: Ending, fatal: bool) {
        if fatal {
            self.fatal.get_or_insert(how.status());
        }
        self.highest = self.highest.max(how.status());
        if let Ending::Signal(number) = how {
            self.by_signal = Some(number.into());
        }
    }

    fn status(&self) -> i32 {
        self.fatal.unwrap_or(self.highest)
    }
}

struct Job {
    printer: Printer,
    input: Option<Input>,
    line: Line,
    sources: Sources,
    nodes: Vec<Share>,
    begun: bool,
    hold: bool,
    /// The first rank has one of its own.
    has_terminal: bool,
    ended: Ended,
}

impl Job {
    fn size(&self) -> u32 {
        self.nodes.iter().map(|n| n.ranks).sum()
    }

    /// Until nothing is left of it.
    fn follow(&mut self, mut stream: UnixStream) -> io::Result<()> {
        let mut frames = Frames::default();
        let mut buffer = vec![0; 256 << 10];
        loop {
            while let Some(tell) = frames.take::<Tell>().map_err(io::Error::other)? {
                if self.heed(tell) {
                    self.printer.finish();
                    return Ok(());
                }
            }
            stream.set_read_timeout(self.printer.has_rest().then_some(PAUSE))?;
            match stream.read(&mut buffer) {
                Ok(0) if self.ended.fatal.is_some() && !self.begun => {
                    self.printer.finish();
                    return Ok(());
                }
                Ok(0) => return Err(io::Error::other("it hung up")),
                Ok(read) => frames.room().extend_from_slice(&buffer[..read]),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    self.printer.pause();
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Ranks that others have started.
    fn more(&mut self, nodes: Vec<Share>) {
        self.printer.more(&nodes);
        self.nodes.extend(nodes);
    }

    /// True at the end.
    fn heed(&mut self, tell: Tell) -> bool {
        match tell {
            Tell::No(why) => {
                self.printer.say(&format!("{why}; nothing was started"));
                self.ended.fatal.get_or_insert(NOT_STARTED);
                // The head says when nothing is left; where there was nothing it hangs up.
            }
            Tell::Waits(why) => self.printer.say(&format!("waiting: {why}")),
            Tell::Begun { job, step, nodes } => {
                (self.begun, self.nodes) = (true, nodes);
                self.printer.begin(job, step, &self.nodes);
                if let Some(Err(e)) = self.has_terminal.then(|| terminal::enter(&self.line)) {
                    self.printer.say(&format!("the terminal here: {e}"));
                }
                if self.hold {
                    let me = std::process::id();
                    self.printer.say(&format!("job {job} is held: `kill -CONT {me}` lets it begin"));
                }
            }
            Tell::More(nodes) => self.more(nodes),
            Tell::Output { place, rank, stream, bytes } => {
                self.printer.output(rank, stream, &bytes);
                self.line.ask(&Ask::Taken { place, bytes: bytes.len() as u32 });
            }
            Tell::Want { file, upto } => {
                if let Err(why) = self.sources.send(file, upto, &self.line) {
                    self.ended.fatal.get_or_insert(NOT_STARTED);
                    self.printer.say(&format!("{why}; nothing was started"));
                    self.line.ask(&Ask::Kill);
                }
            }
            Tell::StdinTaken(bytes) => _ = self.input.as_ref().map(|input| input.taken(bytes)),
            Tell::Ended { node, rank, how, fatal } => {
                self.ended.rank(how, fatal);
                // A single program's end needs no words, as in a shell.
                let is_news = fatal || self.ended.fatal.is_none();
                self.ended.bad += usize::from(is_news);
                if self.size() > 1 && is_news && self.ended.bad <= TOLD && !signals::has_interrupted() {
                    let others = if fatal { "; the others are ended (--kill-on-bad-exit=0 leaves them)" } else { "" };
                    self.printer.say(&format!("rank {rank} at {node} {how}{others}"));
                }
            }
            Tell::Abort { rank, status } => {
                self.ended.fatal.get_or_insert(i32::from(status).max(1));
                self.printer.say(&format!("rank {rank} has ended the job with status {status} (MPI_Abort)"));
            }
            Tell::Lost { node, why } => {
                self.ended.fatal.get_or_insert(LOST);
                self.printer.say(&format!("node {node} was lost ({why}); the job is ended"));
            }
            Tell::TimeOver => {
                self.ended.fatal.get_or_insert(TIMED_OUT);
                self.printer.say("it has run for as long as it may (--time); the job is ended");
            }
            Tell::Over => {
                if !self.begun && self.ended.fatal.is_none() {
                    self.ended.fatal = Some(128 + signals::last());
                    self.printer.say("it was ended before it began");
                }
                if self.ended.bad > TOLD && !signals::has_interrupted() {
                    self.printer.say(&format!("{} more ranks ended badly", self.ended.bad - TOLD));
                }
                return true;
            }
            // Of jobs that have slots (`pando map`).
            Tell::Done { .. } | Tell::Without { .. } | Tell::Returned { .. } => {}
        }
        false
    }
}
