//! The helper of one batch job at a time: a process that starts its script, keeps its files open, measures it, and leaves nothing behind. It outlives the
//! daemon: what it has to say it says to the next one. When the job's end is stored it may serve another one of the same user. One thread: the kernel
//! kills the script when the thread that started it ends.

pub(crate) mod claim;
pub(crate) mod files;
pub mod held;
pub mod hooks;
mod line;
mod pbs;
mod room;
pub(crate) mod script;
pub mod variables;

use crate::jobs::numbers::Numbers;
use crate::launcher::family;
use crate::queue::errand::{Key, Order};
use crate::scratch::{self, Scratch, Wanted};
use crate::whose::TESTBED_NODE;
use files::Files;
use held::{Held, Kept};
use hooks::Hooks;
use line::Line;
use pando_kernel::job_group::{JobGroup, Parents};
use pando_kernel::procfs;
use pando_kernel::rank::{self, Setup, User};
use pando_kernel::spawn::{Program, spawn};
use pando_kernel::usage::{self, Used};
use pando_launch::Identity;
use pando_queue::{How, Usage, Work};
use script::Script;
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsStr};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, interval_at, sleep, sleep_until};

/// What it is called, as a process.
pub const NAME: &str = "pando-batch";
/// By this variable a node finds what is left of a job whose helper was killed.
pub const RUN: &str = "PANDO_BATCH";
/// Without a daemon it tries to find the next one so often.
const AGAIN: Duration = Duration::from_millis(300);
/// Who is told to end has so long before he is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Memory is looked at so often.
const LOOK: Duration = Duration::from_millis(1000);
/// And so often where it is limited.
const CLOSE_LOOK: Duration = Duration::from_millis(100);

/// What the daemon has it do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The job.
    pub order: Order,
    /// Whose rights it gets; none: ours, and we have no others.
    pub user: Option<Identity>,
    /// This node.
    pub node: String,
    /// What all batch jobs of this node have in their environment.
    pub mark: String,
    /// Where the daemon listens for helpers.
    pub socket: PathBuf,
    /// And for `pando`, which the script may call.
    pub api: PathBuf,
    /// Is made by the first helper of a run; there is never another one.
    pub file: PathBuf,
    /// A file that is this helper's own, if it has had a job before. No other helper of this node has ever had this name.
    pub spare: PathBuf,
    /// Its control groups are to be new ones: somebody else knows those of the last job.
    pub fresh: bool,
    /// CPUs that are its own here; none: it may use all.
    pub cpus: Vec<u16>,
    /// Its generic resources here, by number.
    pub numbers: Numbers,
    /// The scratch directory that it is to have.
    pub scratch: Option<Wanted>,
    /// What the administrator wants to be done before and after it.
    pub hooks: Hooks,
    /// More variables of its environment, in the place of the user's.
    pub variables: Vec<(String, String)>,
}

/// To the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Said {
    /// First of all, to a daemon that did not start it.
    Here {
        /// Which job.
        key: Key,
        /// It runs, or has run.
        began: bool,
    },
    /// Nothing should run at this node until an administrator has looked at it, and why.
    Unfit(String),
    /// It runs.
    Began,
    /// Nothing is left of it.
    Ended(How, Usage),
    /// First of all, to the daemon that gave it the job.
    Took {
        /// It runs, or has run.
        began: bool,
        /// Its control groups.
        groups: Vec<PathBuf>,
    },
    /// Just before the end: after it the helper is there for another job of the same user.
    Stays,
    /// What it has used until now.
    Used(Usage),
}

/// From the daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Told {
    /// End it, and say why where its output goes.
    End(String),
    /// To all its processes.
    Signal(i32),
    /// Its time is nearly over: to the script alone, or to the parallel jobs that it has started.
    Warn {
        /// The signal.
        number: i32,
        /// To the script.
        script: bool,
    },
    /// Its end is stored: nothing more is to be done for it.
    Bye,
    /// Take this on: only to a helper that has no job, on the connection that it was started with.
    Take(Box<Task>),
    /// How much has it used until now?
    Measure,
}

/// What a run is called in its processes' environment.
pub fn name_of(key: &Key) -> String {
    format!("{}/{}/{}", key.keeper, key.id, key.run)
}

/// The life of one: it ends when its daemon has nothing for it, or is no more.
pub fn serve(connection: OwnedFd) -> i32 {
    let run = || {
        rank::adopt_orphans()?;
        let parents = Parents::read();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut children = signal(SignalKind::child())?;
            let mut line = Some(Line::first(connection)?);
            let mut left = None;
            while let Some(Told::Take(task)) = hear(&mut line).await {
                let Some(held) = begin(&task, &parents, &mut left)? else { break };
                left = live(*task, held, &mut line, &mut children).await?;
            }
            left.map_or(Ok(()), |left| left.remove())
        })
    };
    match run() {
        Ok(()) => 0,
        Err(e) => {
            let e: io::Error = e;
            eprintln!("pando: the helper of a batch job: {e}");
            1
        }
    }
}

async fn hear(line: &mut Option<Line>) -> Option<Told> {
    line.as_mut()?.next().await
}

/// Makes the run's file, so that no other helper begins it, and its groups, of those that the last job has left where they are good for it. None: another
/// one was first.
fn begin(task: &Task, parents: &Parents, left: &mut Option<JobGroup>) -> io::Result<Option<Held>> {
    let in_words = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", task.file.display()));
    let planned = parents.plan(&held::group_name(task));
    let text = |groups| serde_json::to_vec(&kept(task, groups)).map_err(io::Error::other);
    if !claim::claim(&task.file, &task.spare, &text(planned.clone())?).map_err(in_words)? {
        return Ok(None);
    }
    let made = Held::make(task, parents, left.take());
    if made.group().dirs() != planned {
        std::fs::write(&task.file, text(made.group().dirs().to_vec())?).map_err(in_words)?;
    }
    if let Some((_, _, groups)) = &task.user {
        rank::take_groups(groups)?;
    }
    Ok(Some(made))
}

fn kept(task: &Task, groups: Vec<PathBuf>) -> Kept {
    let (user, numbers) = (task.order.user.clone(), task.numbers.clone());
    let (cpus, scratch) = (task.cpus.clone(), task.scratch.as_ref().map(|wanted| wanted.dir.clone()));
    Kept { key: task.order.key.clone(), user, cpus, numbers, groups, scratch, away: None }
}

/// The script, as far as it is known.
struct Job {
    task: Task,
    held: Held,
    files: Option<Files>,
    pid: i32,
    begun: bool,
    /// When those that were told to end are killed.
    kill_at: Option<Instant>,
    /// Most bytes that all processes together have had.
    peak: u64,
    out_of_memory: bool,
    ended: Option<(How, Usage)>,
    /// Removed when nothing is left of it.
    hosts: Option<pbs::Hosts>,
    /// The same.
    script: Option<Script>,
    /// The same.
    scratch: Option<Scratch>,
    /// It had more there than it may.
    out_of_scratch: bool,
    /// Why nothing should run here.
    unfit: Option<String>,
    /// What this helper's children had used before.
    before: Used,
    /// All that it used could be told from what others used before it.
    measured: bool,
}

/// Serves one job until its end is stored. Without a line the helper is to end then; with one its groups are there for the next job.
async fn live(task: Task, held: Held, line: &mut Option<Line>, children: &mut Signal) -> io::Result<Option<JobGroup>> {
    let mut job = Job {
        task,
        held,
        files: None,
        pid: 0,
        begun: false,
        kill_at: None,
        peak: 0,
        out_of_memory: false,
        ended: None,
        unfit: None,
        hosts: None,
        before: usage::of_children(),
        measured: false,
        script: None,
        scratch: None,
        out_of_scratch: false,
    };
    match job.prepare().await {
        Err(why) => job.ended = Some((How::NotBegun(why), Usage::default())),
        Ok(()) => {
            match job.start() {
                Ok(()) => job.begun = true,
                Err(why) => job.ended = Some((How::NotBegun(why), Usage::default())),
            }
            if job.ended.is_some() {
                job.epilog().await;
            }
        }
    }
    if job.ended.is_some() {
        job.clear();
        let _ = job.held.group().remove();
    }
    loop {
        if let Some(to) = line {
            if job.speak(to, children).await {
                // Only the daemon that has started it knows what it is good for.
                *line = line.take().filter(|line| line.is_first && job.measured);
                return Ok(job.leave(line.is_some()));
            }
            *line = None;
        }
        match UnixStream::connect(&job.task.socket).await {
            Ok(stream) => *line = Some(Line::again(stream)),
            Err(_) if !job.task.file.exists() => {
                // The node's state is gone: no daemon will ask for this.
                job.held.end().await;
                job.clear();
                return Ok(job.leave(false));
            }
            Err(_) => job.alone(children).await,
        }
    }
}

impl Job {
    fn start(&mut self) -> Result<(), String> {
        let Task { order, user, mark, node, .. } = &self.task;
        let who = user.as_ref().map(|u| (u.0, u.1));
        let directory = PathBuf::from(OsStr::from_bytes(&order.directory.0));
        if !rank::as_user(who, || directory.is_dir()) {
            let shown = directory.display();
            let why = format!("node {node}: there is no directory {shown} (--chdir takes another one)");
            // It is its user's mistake: it will be no better at the next try.
            self.ended = Some((How::CantBegin(why), Usage::default()));
            return Ok(());
        }
        let files = match rank::as_user(who, || files::open(order, node, &directory)) {
            Ok(files) => files,
            // They will be no better at the next try.
            Err(why) => {
                self.ended = Some((How::CantBegin(why), Usage::default()));
                return Ok(());
            }
        };
        self.script = script::of(&self.task, who);
        let named = self.script.as_ref().map(Script::path);
        let (words, script) =
            script::command(order, named.clone()).map_err(|e| format!("node {node}: the script: {e}"))?;
        let mut environment = variables::all(order, node);
        let mut more = |name: &str, value: &OsStr| environment.push((name.into(), value.to_owned()));
        if let Some(hosts) = pbs::hosts(order, who) {
            more("PBS_NODEFILE", hosts.path().as_os_str());
            pbs::variables(order, node).iter().for_each(|(name, value)| more(name, value.as_ref()));
            self.hosts = Some(hosts);
        }
        self.task.variables.iter().for_each(|(name, value)| more(name, value.as_ref()));
        more("PANDO_SOCKET", self.task.api.as_os_str());
        // It is there, wherever it was submitted.
        std::env::var_os(TESTBED_NODE).iter().for_each(|here| more(TESTBED_NODE, here));
        more(crate::launcher::MARK, mark.as_ref());
        more(RUN, name_of(&order.key).as_ref());
        let (doors, mine) = (self.held.group().doors(), rank::limits());
        let setup = Setup {
            user: user.clone().map(|(uid, gid, groups)| User { uid, gid, groups }),
            umask: 0o022,
            limits: order.limits.iter().filter(|limit| !mine.contains(limit)).copied().collect(),
            cpus: self.task.cpus.clone(),
            doors: doors.iter().map(AsRawFd::as_raw_fd).collect(),
            terminal: false,
            ignored: rank::ignored(),
            directory: CString::new(order.directory.0.clone()).map_err(|e| e.to_string())?,
            keep: script.iter().map(|file| file.as_raw_fd()).collect(),
        };
        let program =
            script.as_ref().map_or(words[0].clone(), |file| format!("/proc/self/fd/{}", file.as_raw_fd()).into());
        let stdio = [&files.input, &files.output, &files.error].map(AsRawFd::as_raw_fd);
        match Program::new(&program, &words, &environment).and_then(|program| spawn(&program, &setup, stdio)) {
            Ok(pid) => self.pid = pid,
            // As a shell has it: the user finds it where he looks for it.
            Err(e) => {
                let word = program.to_string_lossy().into_owned();
                let what = match order.work {
                    Work::Script { .. } => "its script's interpreter".to_owned(),
                    Work::Words(_) => word,
                };
                let _ = writeln!(&files.words, "pando: {what}: {e}");
                let status = if e.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
                self.ended = Some((How::Exit(status), Usage::default()));
            }
        }
        self.files = Some(files);
        Ok(())
    }

    /// Without a daemon, for a while.
    async fn alone(&mut self, children: &mut Signal) {
        tokio::select! {
            () = sleep(AGAIN) => {}
            _ = children.recv() => self.collect().await,
        }
        self.look().await;
    }

    /// With a daemon. Gives whether all is over.
    async fn speak(&mut self, line: &mut Line, children: &mut Signal) -> bool {
        // What ends at once is not looked at: its largest process is known then.
        let pause = if self.limit() > 0 && !self.held.has_limit { CLOSE_LOOK } else { LOOK };
        let mut looks = interval_at(Instant::now() + pause, pause);
        let began = self.begun;
        let here = match line.is_first {
            true => Said::Took { began, groups: self.held.group().dirs().to_vec() },
            false => Said::Here { key: self.task.order.key.clone(), began },
        };
        let mut unsaid = vec![here];
        unsaid.extend(self.unfit.clone().filter(|_| self.ended.is_none()).map(Said::Unfit));
        let mut told_end = false;
        loop {
            if let (false, Some((how, usage))) = (told_end, &self.ended) {
                unsaid.extend(self.unfit.clone().map(Said::Unfit));
                unsaid.extend((line.is_first && self.measured).then_some(Said::Stays));
                unsaid.push(Said::Ended(how.clone(), *usage));
                told_end = true;
            }
            if !line.say(&std::mem::take(&mut unsaid)).await {
                return false;
            }
            tokio::select! {
                told = line.next() => match told {
                    Some(Told::Bye) => return self.ended.is_some(),
                    Some(Told::End(why)) => self.end(&why),
                    Some(Told::Signal(number)) => self.held.signal(number),
                    Some(Told::Warn { number, script }) => self.warn(number, script),
                    Some(Told::Measure) => {
                        let used = self.so_far();
                        unsaid.push(Said::Used(used));
                    }
                    _ => return false,
                },
                _ = children.recv() => self.collect().await,
                () = sleep_until(self.kill_at.unwrap_or_else(Instant::now)), if self.kill_at.is_some() => self.kill(),
                _ = looks.tick(), if self.ended.is_none() => self.look().await,
            }
        }
    }

    /// The administrator's, before the script. An error: nothing should run here.
    async fn prolog(&mut self) -> Result<(), String> {
        let Some(program) = self.task.hooks.prolog.clone() else { return Ok(()) };
        let done = hooks::run(&program, self.task.hooks.limit, &self.known()).await;
        done.map_err(|why| {
            let why = format!("the prolog: {why}");
            self.unfit = Some(why.clone());
            format!("node {}: {why}", self.task.node)
        })
    }

    /// And after it, when nothing of it is left.
    async fn epilog(&mut self) {
        let Some(program) = self.task.hooks.epilog.clone() else { return };
        let mut known = self.known();
        if let Some((how, usage)) = &self.ended {
            let status = crate::queue::office::status_of(how).to_string();
            known.extend([("PANDO_STATUS".to_owned(), status), ("PANDO_CPU_MS".to_owned(), usage.cpu_ms.to_string())]);
        }
        if let Err(why) = hooks::run(&program, self.task.hooks.limit, &known).await {
            self.unfit = Some(format!("the epilog: {why}"));
        }
        // What it has left behind, too, wherever that has gone.
        self.held.end().await;
    }

    /// What prolog and epilog know of the job: its variables, without its user's.
    fn known(&self) -> Vec<(String, String)> {
        let Task { order, user, node, .. } = &self.task;
        let mut all: Vec<(String, String)> =
            variables::ours(order, node).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        // What they write is not to be in their job's user's hands.
        all.extend(self.task.variables.iter().filter(|(name, _)| name != scratch::TEMPORARY).cloned());
        all.push(("PANDO_USER".into(), order.user.clone()));
        if let Some((uid, gid, _)) = user {
            all.extend([("SLURM_JOB_UID".into(), uid.to_string()), ("SLURM_JOB_GID".into(), gid.to_string())]);
        }
        all
    }

    fn say(&self, text: &str) {
        if let Some(files) = &self.files {
            let (id, node) = (self.task.order.key.id, &self.task.node);
            // It would wait for who reads a FIFO, and with it all that is to end: then nothing is said.
            let _ = writeln!(&files.words, "pando: job {id} on {node}: {text}");
        }
    }

    fn end(&mut self, why: &str) {
        if self.ended.is_some() || self.kill_at.is_some() {
            return;
        }
        self.kill_at = Some(Instant::now() + GRACE);
        self.held.signal(libc::SIGTERM);
        // Who stands still hears nothing else.
        self.held.signal(libc::SIGCONT);
        self.say(&format!("{why}; its processes are ended"));
    }

    /// As sbatch --signal has it: the script hears it with B: only, and otherwise those who speak for its steps, who pass it on to the ranks.
    fn warn(&self, number: i32, script: bool) {
        let ours = std::fs::read_link("/proc/self/exe").ok();
        let is_ours = |pid: &i32| ours.is_some() && std::fs::read_link(format!("/proc/{pid}/exe")).ok() == ours;
        let whom = match script {
            true => vec![self.pid],
            false => family::all().into_iter().filter(is_ours).collect(),
        };
        whom.into_iter().filter(|_| self.ended.is_none()).for_each(|pid| _ = pando_kernel::signal::kill(pid, number));
    }

    fn kill(&mut self) {
        self.kill_at = Some(Instant::now() + GRACE);
        self.held.signal(libc::SIGKILL);
    }

    /// Takes in children that have ended. With the script everything ends that it has started.
    async fn collect(&mut self) {
        while let Some((pid, status)) = rank::collect() {
            if pid == self.pid && self.ended.is_none() {
                self.held.end().await;
                self.note_memory();
                self.note_scratch();
                let ended = (self.how(status), self.used());
                // Nobody hears of its end before all is done.
                self.ended = Some(ended);
                (self.hosts, self.script) = (None, None);
                self.kill_at = None;
                self.epilog().await;
                self.clear();
            }
        }
    }

    /// Its groups, if there may be another job for them. What can't be removed yet the next daemon removes.
    fn leave(self, stays: bool) -> Option<JobGroup> {
        let group = self.held.into_group();
        if !stays {
            let _ = group.remove();
        }
        stays.then_some(group)
    }

    fn how(&self, status: ExitStatus) -> How {
        match status.signal() {
            _ if self.out_of_memory => How::OutOfMemory,
            // As who writes a file larger than he may.
            _ if self.out_of_scratch => How::Signal(libc::SIGXFSZ),
            Some(number) => How::Signal(number),
            None => How::Exit(status.code().unwrap_or(0)),
        }
    }

    fn used(&mut self) -> Usage {
        let of = usage::of_children().since(self.before);
        let group = self.held.group();
        // The group knows of those, too, whom nobody has waited for, and of ranks, which are the launcher's.
        let cpu_ms = group.cpu_ms().unwrap_or(0).max(of.cpu_ms);
        let peak = group.memory_peak();
        self.measured = peak.is_some();
        let memory = peak.unwrap_or(self.peak.max(of.largest));
        let energy_mj = self.held.energy_mj(cpu_ms);
        let (memory_mb, scratch_mb) = (memory.div_ceil(1 << 20), self.scratch.as_ref().map_or(0, Scratch::peak_mb));
        Usage { cpu_ms, memory_mb, scratch_mb, read: of.read, written: of.written, energy_mj }
    }

    /// The same of one that runs: those whom nobody has waited for count, too.
    fn so_far(&mut self) -> Usage {
        if let Some((_, usage)) = &self.ended {
            return *usage;
        }
        self.look_at_scratch();
        let mut used = self.used();
        let (mut cpu_ms, mut memory) = (0, 0);
        for pid in family::all() {
            cpu_ms += procfs::cpu_ms(pid);
            memory += procfs::footprint(pid);
            let (read, written) = procfs::disk_bytes(pid);
            (used.read, used.written) = (used.read + read, used.written + written);
        }
        if self.held.group().cpu_ms().is_none() {
            used.cpu_ms += cpu_ms;
        }
        if self.held.group().memory_peak().is_none() {
            used.memory_mb = used.memory_mb.max(memory.div_ceil(1 << 20));
        }
        used
    }

    /// Bytes of memory that it may have here; 0: as many as there are.
    fn limit(&self) -> u64 {
        self.task.order.shares.first().map_or(0, |share| share.memory) << 20
    }

    /// How much memory do its processes have? Who has more than was asked for is ended, as there may be no control group that does it.
    async fn look(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.note_memory();
        self.look_at_scratch();
        self.held.energy_mj(0);
        if self.held.group().memory_peak().is_some() && (self.held.has_limit || self.limit() == 0) {
            return;
        }
        let all = family::all();
        let now: u64 = all.iter().map(|pid| procfs::footprint(*pid)).sum();
        self.peak = self.peak.max(now);
        let limit = self.limit();
        if limit > 0 && now > limit && !std::mem::replace(&mut self.out_of_memory, true) {
            self.held.signal(libc::SIGKILL);
            self.say(&format!("it has {} MB of memory, and asked for {} (--mem): it is ended", now >> 20, limit >> 20));
        }
    }

    /// Whom the kernel has taken a process for want of memory he ends, as his others wait for it.
    fn note_memory(&mut self) {
        if self.held.group().out_of_memory() && !std::mem::replace(&mut self.out_of_memory, true) {
            let asked = match self.limit() >> 20 {
                0 => "the node has no more".to_owned(),
                mb => format!("it asked for {mb} MB (--mem)"),
            };
            self.held.signal(libc::SIGKILL);
            self.say(&format!("the kernel has ended a process of it for want of memory: {asked}; the rest is ended"));
        }
    }
}
