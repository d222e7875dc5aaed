//! Gangs, as tests look at them.

use super::{Daemon, Lab, ok};
use pando_node::views::{FabricStatus, GangStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    super::until(what, || done().then_some(()))
}

/// A job that is ended with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub fn gang(node: &Daemon, words: &[&str]) -> Running {
    let words = [&["run", "--gang"], words].concat();
    Running(node.cli(&words).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

/// All nodes are up, and in the fabric.
pub fn together(lab: &Lab) {
    lab.settled();
    let members = |node: &Daemon| {
        let fabric: FabricStatus = serde_json::from_str(&ok(&mut node.cli(&["fabric", "--json"]))).unwrap();
        fabric.members.len()
    };
    until("all in the fabric", || lab.nodes.iter().all(|n| members(n) == lab.nodes.len()));
}

pub fn status(node: &Daemon) -> GangStatus {
    serde_json::from_str(&ok(&mut node.cli(&["gang", "--json"]))).unwrap()
}

/// The control groups of a node's gangs, by gang, with whether each runs: nobody of it is aside.
pub fn groups(node: &Daemon) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    let prefix = format!("pando-gang-{}-", node.pid());
    let own = own_group();
    for entry in fs::read_dir(own).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix(&prefix).and_then(|number| number.strip_suffix("-aside")) {
            let runs = fs::read_to_string(entry.path().join("cgroup.procs")).unwrap_or_default().is_empty();
            found.insert(number.to_owned(), runs);
        }
    }
    found
}

/// The lists of processes of a node's first gang: those that run, and those aside.
pub fn lists(node: &Daemon) -> (PathBuf, PathBuf) {
    let number = groups(node).into_keys().next().unwrap();
    let of = |end: &str| own_group().join(format!("pando-gang-{}-{number}{end}/cgroup.procs", node.pid()));
    (of(""), of("-aside"))
}

/// How many processes a gang has at a node that are switched with it.
pub fn members(node: &Daemon, number: &str) -> usize {
    let of = |end: &str| own_group().join(format!("pando-gang-{}-{number}{end}/cgroup.procs", node.pid()));
    ["", "-aside"].iter().map(|end| fs::read_to_string(of(end)).unwrap_or_default().lines().count()).sum()
}

/// The directory of the control group in which the daemon makes gangs': that in which this process and the daemons are (version 1), or the one above,
/// which was delegated (version 2).
fn own_group() -> PathBuf {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let all: Vec<(&str, &str)> = text.lines().filter_map(|l| l.split_once(':')?.1.split_once(':')).collect();
    let of = |is: &dyn Fn(&str) -> bool| all.iter().find(|(names, _)| is(names)).map(|(_, path)| *path);
    let below = |top: &str, path: &str| Path::new(top).join(path.trim_start_matches('/'));
    match of(&|names| names.split(',').any(|n| n == "cpu")) {
        Some(path) => below("/sys/fs/cgroup/cpu", path),
        None => {
            below("/sys/fs/cgroup", of(&str::is_empty).unwrap_or_default().rsplit_once('/').map_or("", |(up, _)| up))
        }
    }
}

/// Why gangs can't be tried here.
pub fn missing() -> Option<String> {
    let can = fs::OpenOptions::new().write(true).open(own_group().join("cgroup.procs")).is_ok();
    let switched = own_group().join("cpu.shares").exists() || own_group().join("cpu.idle").exists();
    (!can || !switched).then(|| "there is no cpu controller of control groups that is ours to use".into())
}

/// What runs at both nodes in one moment: looked at twice, for a switch may come in between.
pub fn turn(nodes: &[&Daemon]) -> Option<BTreeSet<Vec<(String, bool)>>> {
    let look = || nodes.iter().map(|n| groups(n).into_iter().collect::<Vec<_>>()).collect::<Vec<_>>();
    let (one, two) = (look(), look());
    (one == two).then(|| one.into_iter().collect())
}
