//! The same process moved by CRIU, where it is installed: dump and restore, and with lazy pages.
//!
//! Its freeze is the time from the start of the dump to the end of the restore, on one machine with the images in
//! memory: the best case for it.

use crate::error::{Context, Error, Result};
use crate::place::Plan;
use crate::sys;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Freeze times, milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Criu {
    /// Size of the heap.
    pub megabytes: usize,
    /// Dump and restore.
    pub dump_restore_ms: f64,
    /// The same with lazy pages.
    pub lazy_ms: f64,
}

/// A port for the pages, on the machine's loopback interface.
const PORT: u16 = 27_417;
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether it is installed.
pub fn installed() -> bool {
    Command::new("criu").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Whether it can work with this kernel; the first thing it says against it if not.
pub fn usable() -> Result<()> {
    let output = Command::new("criu").arg("check").stdin(Stdio::null()).output().context("run criu check")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|l| !l.contains("exited, status")).unwrap_or("it does not say why").to_string();
    Err(Error::Command { what: "criu check".into(), said: first })
}

/// Measures one size.
pub fn measure(plan: &Plan, megabytes: usize) -> Result<Criu> {
    Ok(Criu { megabytes, dump_restore_ms: once(plan, megabytes, plain)?, lazy_ms: once(plan, megabytes, lazy)? })
}

/// A process of that size, and a directory for its images in memory; both are gone afterwards.
fn once(plan: &Plan, megabytes: usize, how: fn(&Path, &mut Child) -> Result<()>) -> Result<f64> {
    let dir = images()?;
    let mut child = start(plan, megabytes, &dir)?;
    let pid = child.id();
    let begin = Instant::now();
    let done = how(&dir, &mut child);
    let took = begin.elapsed().as_secs_f64() * 1000.0;
    // The restored process has the same pid and is not our child.
    drop(sys::kill(pid, libc::SIGKILL));
    drop(child.wait());
    drop(std::fs::remove_dir_all(&dir));
    done.map(|()| took)
}

fn images() -> Result<PathBuf> {
    let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
    let dir = base.join(format!("pando-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).at("create", &dir)?;
    Ok(dir)
}

fn start(plan: &Plan, megabytes: usize, dir: &Path) -> Result<Child> {
    let said = dir.join("said");
    let out = std::fs::File::create(&said).at("create", &said)?;
    let mut command = Command::new(&plan.exe);
    command.args([crate::HEAP, &megabytes.to_string(), "alone"]).stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
    sys::in_new_session(&mut command);
    let child = command.spawn().context("start the heap")?;
    let deadline = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&said).is_ok_and(|s| s.contains("ready")) {
        if Instant::now() > deadline {
            return Err(Error::Late { what: "the heap".into(), seconds: 30, detail: String::new() });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}

fn criu(dir: &Path, words: &[&str]) -> Command {
    // It has no limit of its own, and where it does not fit the kernel it may wait for ever.
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=1", "20", "criu"])
        .args(words)
        .arg("-D")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn run(mut command: Command) -> Result<()> {
    let output = command.output().context("run criu")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(Error::Command { what: "criu".into(), said })
}

fn plain(dir: &Path, child: &mut Child) -> Result<()> {
    run(criu(dir, &["dump", "-t", &child.id().to_string()]))?;
    // Its pid must be free for the restored one.
    child.wait().context("wait for the dumped process")?;
    run(criu(dir, &["restore", "-d"]))
}

fn lazy(dir: &Path, child: &mut Child) -> Result<()> {
    let (pid, port) = (child.id().to_string(), PORT.to_string());
    let server = ["--address", "127.0.0.1", "--port", &port];
    let dump = [&["dump", "-t", &pid, "--lazy-pages"], &server[..]].concat();
    let mut dump = criu(dir, &dump).spawn().context("run criu")?;
    let outcome = lazy_restore(dir, child, &server);
    drop(dump.kill());
    drop(dump.wait());
    outcome
}

fn lazy_restore(dir: &Path, child: &mut Child, server: &[&str]) -> Result<()> {
    // The dump serves pages from the moment it listens.
    let deadline = Instant::now() + PATIENCE;
    while !listens() {
        if Instant::now() > deadline {
            return Err(Error::Late { what: "criu's page server".into(), seconds: 30, detail: String::new() });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.wait().context("wait for the dumped process")?;
    let pages = [&["lazy-pages", "--page-server"], server].concat();
    let mut pages = criu(dir, &pages).spawn().context("run criu")?;
    let outcome = run(criu(dir, &["restore", "--lazy-pages", "-d"]));
    drop(pages.kill());
    drop(pages.wait());
    outcome
}

/// Whether someone listens on our port.
fn listens() -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = format!(":{PORT:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&port)) && fields.nth(1) == Some("0A")
    })
}
