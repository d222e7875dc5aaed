//! Processes of this machine as `/proc` shows them, and signals for those that we started.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// In the environment of everything that belongs to one run.
pub const MARK: &str = "PANDO_SUITE_RUN";

/// One process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// State letter.
    pub state: char,
    /// Name, at most 15 characters.
    pub name: String,
    /// Command line.
    pub args: Vec<String>,
}

/// One process by its pid.
pub fn read(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let mut fields = stat[close + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let args = args.split(|b| *b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect();
    Some(Process { pid, parent, state, name: stat[open + 1..close].to_string(), args })
}

/// All processes.
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries.flatten().filter_map(|e| read(e.file_name().to_str()?.parse().ok()?)).collect()
}

/// Those among `all` that descend from `root`, itself included.
pub fn family(all: &[Process], root: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([root]);
    loop {
        let before = found.len();
        found.extend(all.iter().filter(|p| found.contains(&p.parent)).map(|p| p.pid).collect::<Vec<_>>());
        if found.len() == before {
            return found;
        }
    }
}

/// Those that carry the mark of a run, zombies not included.
pub fn marked(run: &str) -> Vec<Process> {
    with(MARK, run)
}

/// Those in whose environment `name` is `value`, zombies not included.
pub fn with(name: &str, value: &str) -> Vec<Process> {
    all().into_iter().filter(|p| has(p.pid, name, value)).collect()
}

/// Whether `name` is `value` in a process's environment.
pub fn has(pid: u32, name: &str, value: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let want = format!("{name}={value}");
    environment.split(|b| *b == 0).any(|v| v == want.as_bytes())
}

/// Sends a signal by the shell's own `kill` (`KILL`, `STOP`, ...).
pub fn signal(pid: u32, name: &str) -> bool {
    let command = format!("kill -{name} {pid}");
    Command::new("sh").args(["-c", &command]).output().is_ok_and(|o| o.status.success())
}

/// Kills whatever is left of a run; gives what it was.
pub fn kill_marked(run: &str) -> Vec<Process> {
    let left = marked(run);
    for process in &left {
        signal(process.pid, "KILL");
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_all_generations() {
        let process = |pid, parent| Process { pid, parent, state: 'S', name: String::new(), args: Vec::new() };
        let all = [process(4, 3), process(3, 2), process(2, 1), process(9, 1)];
        assert_eq!(family(&all, 2), BTreeSet::from([2, 3, 4]));
    }
}
