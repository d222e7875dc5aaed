//! One run of a task, watched to its end or its deadline.

use crate::command::Task;
use crate::mover::{Driver, Mover, Plan, Tally};
use crate::processes::{self, MARK};
use crate::random::Random;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a run is looked at.
const TICK: Duration = Duration::from_millis(2);
/// What a run leaves behind has this long to go away.
const LEFTOVER_PATIENCE: Duration = Duration::from_millis(1500);

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its pid.
    pub pid: u32,
    /// `exit 0`, `signal 15`.
    pub ended: String,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Files that were left, with their contents, when they count.
    pub files: BTreeMap<String, Vec<u8>>,
    /// From start to end.
    pub took: Duration,
    /// The moves.
    pub tally: Tally,
    /// It did not end: what was seen.
    pub hang: Option<String>,
    /// Processes of the run that outlived it.
    pub left: Vec<String>,
}

/// How to run.
pub struct Way<'a> {
    /// Starts and moves.
    pub mover: &'a dyn Mover,
    /// When to move.
    pub plan: Plan,
    /// For places and pauses.
    pub random: Random,
    /// How long the program is to work, if it takes that.
    pub ms: Option<u64>,
    /// It must have ended after this.
    pub deadline: Duration,
}

/// Runs a task in `dir` (made here): `work` is its working directory, `stdout` and `stderr` lie beside it.
pub fn run(task: &Task, way: Way<'_>, dir: &Path) -> io::Result<Outcome> {
    let work = dir.join("work");
    fs::create_dir_all(&work)?;
    if let Some(input) = &task.input {
        std::os::unix::fs::symlink(input, work.join("input"))?;
    }
    let mark = crate::suite::unique();
    let mut child = start(task, &way, dir, &work, &mark)?;
    let started = Instant::now();
    let mut driver = Driver::new(way.mover, way.plan, way.random);
    let watched = watch(&mut child, &task.exe, &mut driver, started, way.deadline)?;
    let mut outcome = Outcome { pid: child.id(), took: started.elapsed(), tally: driver.tally, ..Outcome::default() };
    match watched {
        Some(status) => outcome.ended = describe(status),
        None => {
            let seen = way.mover.evidence(child.id());
            outcome.hang = Some(seen);
            outcome.ended = format!("nothing after {:?}", way.deadline);
            child.kill()?;
            reap(&mut child);
        }
    }
    outcome.left = leftovers(&mark, outcome.hang.is_some());
    outcome.stdout = fs::read(dir.join("stdout"))?;
    outcome.stderr = fs::read(dir.join("stderr"))?;
    if task.leaves_files {
        collect(&work, &work, &mut outcome.files)?;
    }
    Ok(outcome)
}

fn start(task: &Task, way: &Way<'_>, dir: &Path, work: &Path, mark: &str) -> io::Result<Child> {
    let stdin = match &task.stdin {
        Some(path) => Stdio::from(File::open(path)?),
        None => Stdio::null(),
    };
    let mut command = way.mover.command(&task.exe);
    command.args(&task.args);
    if let (true, Some(ms)) = (task.timed, way.ms) {
        command.arg(ms.to_string());
    }
    command
        .current_dir(work)
        .env(MARK, mark)
        .env("LC_ALL", "C")
        .stdin(stdin)
        .stdout(File::create(dir.join("stdout"))?)
        .stderr(File::create(dir.join("stderr"))?)
        .spawn()
}

/// Waits for the end and moves the program meanwhile; none when the deadline came first.
fn watch(
    child: &mut Child,
    exe: &Path,
    driver: &mut Driver<'_>,
    started: Instant,
    deadline: Duration,
) -> io::Result<Option<ExitStatus>> {
    let exe = fs::canonicalize(exe)?;
    let link = PathBuf::from(format!("/proc/{}/exe", child.id()));
    let mut runs_since = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let now = started.elapsed();
        if now >= deadline {
            return Ok(None);
        }
        if runs_since.is_none() && fs::read_link(&link).is_ok_and(|e| e == exe) {
            runs_since = Some(now);
        }
        let due = runs_since.zip(driver.next()).map(|(since, next)| since + next);
        match due {
            Some(due) if due <= now => {
                let since = runs_since.unwrap_or(now);
                driver.step(child.id(), now - since, deadline.saturating_sub(now).max(TICK));
            }
            Some(due) => std::thread::sleep((due - now).min(TICK)),
            None => std::thread::sleep(TICK),
        }
    }
}

/// After the kill of a hang: a process that the engine holds may take a moment, or never end.
fn reap(child: &mut Child) {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(TICK);
    }
}

/// Waits for what is left of a run, and kills what stays.
fn leftovers(mark: &str, hung: bool) -> Vec<String> {
    let end = Instant::now() + if hung { Duration::ZERO } else { LEFTOVER_PATIENCE };
    while !processes::marked(mark).is_empty() && Instant::now() < end {
        std::thread::sleep(TICK * 10);
    }
    let left = processes::kill_marked(mark);
    left.iter().map(|p| format!("{} {} ({})", p.pid, p.args.join(" "), p.state)).collect()
}

/// `exit 0`, `signal 15`.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => format!("{status:?}"),
    }
}

fn collect(top: &Path, dir: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let kind = fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            collect(top, &path, files)?;
        } else if kind.is_file() {
            let name = path.strip_prefix(top).unwrap_or(&path).to_string_lossy().into_owned();
            files.insert(name, fs::read(&path)?);
        }
    }
    Ok(())
}
