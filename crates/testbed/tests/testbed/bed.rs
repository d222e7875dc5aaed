//! A testbed under test, and the search for anything it left behind.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The `pando` to test: `$PANDO_BIN`, or the one of this workspace, which is built first if need be.
pub fn pando() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(given) = std::env::var_os("PANDO_BIN") {
            return given.into();
        }
        // target/PROFILE/deps/this-test
        let test = std::env::current_exe().expect("this test has a path");
        let profile = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "pando", "--target-dir"]);
        build.arg(profile.parent().expect("target/PROFILE"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(build.status().expect("cargo runs").success(), "pando does not build");
        profile.join("pando")
    })
}

/// Says loudly that a test does not run here: a passing test's captured output is not shown.
pub fn skipped(test: &str, why: &str) {
    let line = format!("SKIPPED {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("stderr takes a line");
}

/// Whether tests that need root and `ip` can run; says so if not.
pub fn can_run(test: &str) -> bool {
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        skipped(test, "it needs root");
        return false;
    }
    has_ip(test)
}

/// Whether iproute2 is installed; says so if not.
pub fn has_ip(test: &str) -> bool {
    let has = Command::new("ip").arg("-V").output().is_ok();
    if !has {
        skipped(test, "it needs `ip` (iproute2)");
    }
    has
}

/// A testbed by name; taken away at the end of the test, however that ends.
pub struct Bed {
    /// Its name.
    pub name: String,
}

impl Bed {
    /// One that does not exist yet, with a name of its own.
    pub fn named(test: &str) -> Bed {
        let bed = Bed { name: format!("t{}-{test}", std::process::id()) };
        bed.run(&["down"]);
        bed
    }

    /// `pando testbed VERB --name NAME ...`.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(pando());
        command.arg("testbed").arg(args[0]).args(["--name", &self.name]).args(&args[1..]);
        command
    }

    /// Runs one and returns what it printed.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("pando runs")
    }

    /// Runs one that must succeed; its output.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "testbed {args:?}: {} {said}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `status --json`.
    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.ok(&["status", "--json"])).expect("status is JSON")
    }

    /// Names that a node sees alive; none if it does not answer.
    pub fn sees(&self, node: usize) -> Option<BTreeSet<String>> {
        let status = self.status();
        let list = status["nodes"][node - 1]["sees"].as_array()?.clone();
        Some(list.iter().filter_map(|n| n.as_str().map(str::to_string)).collect())
    }

    /// What is left of it on this machine.
    pub fn remains(&self) -> Vec<String> {
        remains(&self.name)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.run(&["down"]);
    }
}

/// Processes, directories and control groups of a testbed, and traces in the machine's own network.
pub fn remains(name: &str) -> Vec<String> {
    let mut left = Vec::new();
    for base in ["/run/pando-testbed".into(), std::env::temp_dir().join("pando-testbed-65534")] {
        let dir: PathBuf = base.join(name);
        if dir.exists() {
            left.push(format!("directory {}", dir.display()));
        }
    }
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let needle = format!("PANDO_TESTBED={name}");
        if environ.split(|b| *b == 0).any(|v| v == needle.as_bytes()) {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            left.push(format!("process {:?}: {}", entry.file_name(), String::from_utf8_lossy(&command)));
        }
    }
    groups(Path::new("/sys/fs/cgroup"), &format!("pando-testbed-{name}"), 6, &mut left);
    for args in [["netns", "list"], ["link", "show"]] {
        let output = Command::new("ip").args(args).output().expect("ip runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        left.extend(text.lines().filter(|l| l.contains("br0") || l.contains("pando")).map(str::to_string));
    }
    left
}

fn groups(dir: &Path, name: &str, depth: usize, left: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            if entry.file_name() == name {
                left.push(format!("control group {}", entry.path().display()));
            } else if depth > 0 {
                groups(&entry.path(), name, depth - 1, left);
            }
        }
    }
}

/// Waits until `done`; panics with `what` after 30 s.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what} did not happen within 30 s");
        std::thread::sleep(Duration::from_millis(50));
    }
}
