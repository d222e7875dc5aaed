//! The programs: started at home, told when to end, and looked at.

use crate::judge;
use crate::mover::Mover;
use crate::processes::{self, MARK};
use crate::program::{self, Program};
use crate::run::{self, Outcome};
use crate::suite::unique;
use crate::testbed::Testbed;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// One computes, one is blocked in a call.
const NAMES: [&str; 2] = ["phase-work", "phase-wait"];
/// How often something is looked at.
const TICK: Duration = Duration::from_millis(2);

/// Waits until `done` gives something.
pub(super) fn until<T>(patience: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + patience;
    loop {
        let found = done();
        if found.is_some() || Instant::now() >= end {
            return found;
        }
        std::thread::sleep(TICK);
    }
}

/// A running program.
pub(super) struct Actor {
    pub name: &'static str,
    pub pid: u32,
    child: Child,
    /// It goes on until this is closed.
    input: Option<ChildStdin>,
    dir: PathBuf,
    mark: String,
}

fn find(name: &str) -> Result<PathBuf, String> {
    let all = program::all().map_err(|e| e.to_string())?;
    let program = all.iter().find(|p: &&Program| p.name == name).ok_or(format!("no program {name}"))?;
    program.compile().map_err(|e| e.to_string())
}

fn spawn(name: &'static str, mut command: Command, dir: PathBuf) -> Result<Actor, String> {
    let mark = unique();
    let fail = |e: std::io::Error| format!("{name}: {e}");
    fs::create_dir_all(&dir).map_err(fail)?;
    let output = |name: &str| File::create(dir.join(name));
    let mut child = command
        .args(["100", "told"])
        .current_dir(&dir)
        .env(MARK, &mark)
        .stdin(Stdio::piped())
        .stdout(output("stdout").map_err(fail)?)
        .stderr(output("stderr").map_err(fail)?)
        .spawn()
        .map_err(fail)?;
    let input = child.stdin.take();
    Ok(Actor { name, pid: child.id(), child, input, dir, mark })
}

/// What the programs do when nothing happens to them.
pub(super) fn references() -> &'static [Outcome] {
    static FOUND: OnceLock<Vec<Outcome>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let one = |name: &&'static str| {
            let mut actor = spawn(name, Command::new(find(name)?), scratch())?;
            actor.ready()?;
            actor.may_end();
            let outcome = actor.end(Duration::from_secs(30));
            let good = outcome.ended == "exit 0" && outcome.stdout.ends_with(b"ok\n");
            if good { Ok(outcome) } else { Err(format!("{name}: the reference is wrong: {}", outcome.ended)) }
        };
        NAMES.iter().map(one).collect::<Result<_, String>>().unwrap_or_else(|e| panic!("{e}"))
    })
}

fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("pando-phases-{}", unique()))
}

/// All of them, running at home.
pub(super) fn start(testbed: &Testbed) -> Result<Vec<Actor>, String> {
    let one = |name: &&'static str| spawn(name, testbed.command(&find(name)?), scratch());
    let mut actors = NAMES.iter().map(one).collect::<Result<Vec<_>, String>>()?;
    for actor in &mut actors {
        actor.ready()?;
    }
    Ok(actors)
}

impl Actor {
    fn stdout(&self) -> Vec<u8> {
        fs::read(self.dir.join("stdout")).unwrap_or_default()
    }

    fn ready(&mut self) -> Result<(), String> {
        until(Duration::from_secs(20), || self.stdout().starts_with(b"ready\n").then_some(()))
            .ok_or(format!("{} did not start", self.name))
    }

    /// Lets it come to its end.
    pub fn may_end(&mut self) {
        self.input = None;
    }

    /// Whether it has not ended.
    pub fn lives(&mut self) -> bool {
        self.how_it_ended().is_none()
    }

    /// Its status, or why that can't be had: nobody else may wait for it.
    pub fn how_it_ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(status) => status.map(run::describe),
            Err(e) => Some(format!("unknown: waiting for it failed: {e}")),
        }
    }

    /// Waits for its end and gives what came of it.
    pub fn end(&mut self, patience: Duration) -> Outcome {
        let status: Option<ExitStatus> = until(patience, || self.child.try_wait().ok().flatten());
        let mut outcome = Outcome { pid: self.pid, ..Outcome::default() };
        match status {
            Some(status) => outcome.ended = run::describe(status),
            None => outcome.hang = Some(format!("nothing after {patience:?}")),
        }
        outcome.stdout = self.stdout();
        outcome.stderr = fs::read(self.dir.join("stderr")).unwrap_or_default();
        outcome
    }

    /// How `outcome` differs from the reference.
    pub fn differences(&self, outcome: &Outcome) -> Vec<String> {
        let index = NAMES.iter().position(|n| *n == self.name).unwrap_or(0);
        judge::differences(&references()[index], outcome)
    }

    /// Why it is not at home by itself, if so; `page`: whether a page of ours may be in it.
    pub fn not_by_itself(&self, page: bool) -> Option<String> {
        let proc = |file: &str| fs::read_to_string(Path::new("/proc").join(self.pid.to_string()).join(file));
        let (Ok(status), Ok(maps)) = (proc("status"), proc("maps")) else { return Some("it is gone".into()) };
        let line = |name: &str| status.lines().find(|l| l.starts_with(name)).unwrap_or("").to_string();
        if !line("TracerPid:").ends_with("\t0") {
            return Some(format!("it is traced still ({})", line("TracerPid:")));
        }
        if line("State:").contains("topped") || line("State:").contains("racing") {
            return Some(format!("it stands still ({})", line("State:")));
        }
        // The engine's code: executable, and of no file.
        let ours = maps.lines().find(|l| l.contains(" r-xp ") && l.split_whitespace().count() == 5);
        ours.filter(|_| !page).map(|l| format!("a mapping of ours is still there: {l}"))
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.may_end();
        if self.lives() {
            processes::kill_marked(&self.mark);
            let _ = self.child.kill();
            until(Duration::from_secs(2), || (!self.lives()).then_some(()));
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}
