//! Which processes belong to a testbed or to one node of it, from `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One process of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Parent.
    pub ppid: u32,
    /// State letter of `/proc/PID/stat`.
    pub state: char,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
    /// Executable, if we may read it.
    pub exe: Option<PathBuf>,
    /// Command line.
    pub args: Vec<String>,
    /// Inode of its network namespace, if we may read it.
    pub network: Option<u64>,
    /// The testbed directory its environment names.
    pub dir: Option<PathBuf>,
}

/// All processes now.
pub fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).filter_map(read).collect()
}

/// One process, or none if it is gone.
pub fn read(pid: u32) -> Option<Process> {
    let root = PathBuf::from(format!("/proc/{pid}"));
    let stat = std::fs::read_to_string(root.join("stat")).ok()?;
    let (state, ppid, start_time) = parse_stat(&stat)?;
    let args = std::fs::read(root.join("cmdline")).unwrap_or_default();
    Some(Process {
        pid,
        ppid,
        state,
        start_time,
        exe: std::fs::read_link(root.join("exe")).ok(),
        args: args.split(|b| *b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect(),
        network: std::fs::metadata(root.join("ns/net")).ok().map(|m| m.ino()),
        dir: std::fs::read(root.join("environ")).ok().and_then(|e| environment(&e, crate::place::ENV_DIR)),
    })
}

/// Start time of a process that exists and is no zombie.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (state, _, start) = parse_stat(&stat)?;
    (state != 'Z' && state != 'X').then_some(start)
}

/// State, parent and start time. The command may contain spaces and brackets: fields are counted after the last one.
fn parse_stat(stat: &str) -> Option<(char, u32, u64)> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let ppid = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some((state, ppid, start))
}

fn environment(block: &[u8], name: &str) -> Option<PathBuf> {
    let value = block.split(|b| *b == 0).find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(PathBuf::from(OsStr::from_bytes(value)))
}

/// What makes a process part of a node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Inode of the node's network namespace (only while the holder keeps it: inodes are used again).
    pub network: Option<u64>,
    /// Pids in the node's control groups.
    pub grouped: BTreeSet<u32>,
}

/// The processes of node `which`: in its network namespace, in its control groups, or started by one of those
/// (a guest lives in a network namespace of its own) unless they are in another node of the testbed.
pub fn of_node(all: &[Process], nodes: &[Node], which: usize) -> BTreeSet<u32> {
    let direct = |p: &Process, n: &Node| (p.network.is_some() && p.network == n.network) || n.grouped.contains(&p.pid);
    let elsewhere =
        |p: &Process| nodes.iter().enumerate().any(|(i, n)| i != which && direct(p, n)) && !direct(p, &nodes[which]);
    let seeds = all.iter().filter(|p| direct(p, &nodes[which])).map(|p| p.pid).collect();
    with_descendants(all, seeds, elsewhere)
}

/// The processes of a whole testbed: of its nodes, or with its directory in their environment, and all they started.
pub fn of_testbed(all: &[Process], nodes: &[Node], dir: &Path) -> BTreeSet<u32> {
    let mut seeds: BTreeSet<u32> = (0..nodes.len()).flat_map(|i| of_node(all, nodes, i)).collect();
    seeds.extend(all.iter().filter(|p| p.dir.as_deref() == Some(dir)).map(|p| p.pid));
    with_descendants(all, seeds, |_| false)
}

fn with_descendants(all: &[Process], seeds: BTreeSet<u32>, stop: impl Fn(&Process) -> bool) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<&Process>> = BTreeMap::new();
    for process in all {
        children.entry(process.ppid).or_default().push(process);
    }
    let mut todo: Vec<u32> = seeds.iter().copied().collect();
    let mut found = seeds;
    while let Some(pid) = todo.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if !stop(child) && found.insert(child.pid) {
                todo.push(child.pid);
            }
        }
    }
    found
}

/// This process and all above it: whoever asks for an end must live to see it.
pub fn own_line(all: &[Process]) -> BTreeSet<u32> {
    let parents: BTreeMap<u32, u32> = all.iter().map(|p| (p.pid, p.ppid)).collect();
    let mut line = BTreeSet::new();
    let mut pid = std::process::id();
    while pid != 0 && line.insert(pid) {
        pid = parents.get(&pid).copied().unwrap_or(0);
    }
    line
}

/// Whether this is Pando's own machinery at a node: the daemon, or a helper of a moving process. Commands that a
/// user gives (`pando ps`) and the benchmark's own programs are not.
pub fn is_machinery(process: &Process, exe: &Path) -> bool {
    let same = process.exe.as_deref().is_some_and(|e| same_program(e, exe));
    let word = process.args.get(1).map_or("", String::as_str);
    same && (word == "node" || (word.starts_with("__") && !crate::is_hidden(word)))
}

/// Whether this is a node's daemon.
pub fn is_daemon(process: &Process, exe: &Path) -> bool {
    process.exe.as_deref().is_some_and(|e| same_program(e, exe)) && process.args.get(1).is_some_and(|a| a == "node")
}

/// The kernel marks an executable that was replaced while it ran (a rebuild) with ` (deleted)`.
fn same_program(running: &Path, exe: &Path) -> bool {
    running == exe || running.as_os_str().as_bytes().strip_suffix(b" (deleted)") == Some(exe.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, ppid: u32, network: u64) -> Process {
        Process {
            pid,
            ppid,
            state: 'S',
            start_time: 1,
            exe: Some(PathBuf::from("/x/pando")),
            args: vec!["pando".into(), "node".into()],
            network: Some(network),
            dir: None,
        }
    }

    fn nodes() -> Vec<Node> {
        [10, 20].map(|n| Node { network: Some(n), grouped: BTreeSet::new() }).into()
    }

    #[test]
    fn a_guest_in_its_own_network_belongs_to_the_node_of_its_parent() {
        let all = [process(5, 1, 10), process(6, 5, 99), process(7, 6, 99), process(8, 1, 99)];
        assert_eq!(of_node(&all, &nodes(), 0), BTreeSet::from([5, 6, 7]));
        assert!(of_node(&all, &nodes(), 1).is_empty());
    }

    #[test]
    fn a_program_started_from_one_node_at_another_belongs_to_the_other() {
        let all = [process(5, 1, 10), process(6, 5, 20), process(7, 6, 20)];
        assert_eq!(of_node(&all, &nodes(), 0), BTreeSet::from([5]));
        assert_eq!(of_node(&all, &nodes(), 1), BTreeSet::from([6, 7]));
    }

    #[test]
    fn the_environment_finds_what_has_no_namespace_of_ours() {
        let mut holder = process(9, 1, 1);
        holder.dir = Some(PathBuf::from("/run/t"));
        let all = [holder, process(5, 1, 10), process(11, 1, 1)];
        assert_eq!(of_testbed(&all, &nodes(), Path::new("/run/t")), BTreeSet::from([5, 9]));
    }

    #[test]
    fn stat_with_a_hostile_name() {
        let stat = "7 (a) S (b) R 3 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4242 1 2";
        assert_eq!(parse_stat(stat), Some(('R', 3, 4242)));
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn commands_are_not_machinery() {
        let mut p = process(1, 1, 1);
        assert!(is_machinery(&p, Path::new("/x/pando")) && is_daemon(&p, Path::new("/x/pando")));
        p.args[1] = "ps".into();
        assert!(!is_machinery(&p, Path::new("/x/pando")));
        p.args[1] = "__deputy".into();
        p.exe = Some(PathBuf::from("/x/pando (deleted)"));
        assert!(is_machinery(&p, Path::new("/x/pando")) && !is_daemon(&p, Path::new("/x/pando")));
        p.args[1] = "__heap".into();
        assert!(!is_machinery(&p, Path::new("/x/pando")));
    }
}
