//! One run of a task, watched to its end or its deadline.

use crate::command::Task;
use crate::mover::{Driver, Mover, Plan, Tally};
use crate::processes::{self, MARK};
use crate::random::Random;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
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
    let (watched, pid) = watch(&mut child, task, &mut driver, started, way.deadline)?;
    let mut outcome = Outcome { pid, took: started.elapsed(), tally: driver.tally, ..Outcome::default() };
    match watched {
        Some(status) => outcome.ended = of_program(task, describe(status)),
        None => {
            let seen = way.mover.evidence(pid);
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
    let mut command = match task.within.split_first() {
        Some((first, words)) => {
            let mut command = way.mover.command(Path::new(first));
            command.args(words).arg(&task.exe);
            command
        }
        None => way.mover.command(&task.exe),
    };
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

/// Waits for the end and moves the program meanwhile; none when the deadline came first. Gives the program's pid, too.
fn watch(
    child: &mut Child,
    task: &Task,
    driver: &mut Driver<'_>,
    started: Instant,
    deadline: Duration,
) -> io::Result<(Option<ExitStatus>, u32)> {
    let exe = fs::canonicalize(&task.exe)?;
    let runs = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|e| e == exe);
    let (mut pid, mut runs_since) = (child.id(), None);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((Some(status), pid));
        }
        let now = started.elapsed();
        if now >= deadline {
            return Ok((None, pid));
        }
        if runs_since.is_none() {
            let found =
                if task.within.is_empty() { runs(pid).then_some(pid) } else { below(child.id()).find(|&p| runs(p)) };
            (pid, runs_since) = (found.unwrap_or(pid), found.map(|_| now));
        }
        let due = runs_since.zip(driver.next()).map(|(since, next)| since + next);
        match due {
            Some(due) if due <= now => {
                let since = runs_since.unwrap_or(now);
                driver.step(pid, now - since, deadline.saturating_sub(now).max(TICK));
            }
            Some(due) => std::thread::sleep((due - now).min(TICK)),
            None => std::thread::sleep(TICK),
        }
    }
}

/// The processes below `pid`, the nearest first.
fn below(pid: u32) -> impl Iterator<Item = u32> {
    let (mut found, mut at) = (vec![pid], 0);
    while at < found.len() {
        let list = fs::read_to_string(format!("/proc/{0}/task/{0}/children", found[at])).unwrap_or_default();
        found.extend(list.split_ascii_whitespace().filter_map(|w| w.parse::<u32>().ok()));
        at += 1;
    }
    found.into_iter().skip(1)
}

/// How the program ended, where a shell tells it: a signal as 128 more.
fn of_program(task: &Task, ended: String) -> String {
    let code = ended.strip_prefix("exit ").and_then(|c| c.parse::<i32>().ok());
    match code.filter(|&c| !task.within.is_empty() && c > 128) {
        Some(code) => format!("signal {}", code - 128),
        None => ended,
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
