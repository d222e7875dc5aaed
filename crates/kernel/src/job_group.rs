//! Control groups of one batch job, below the one that its node's daemon is in: what is in them is the job's, whatever it has made of its
//! environment, session and parents, and the kernel counts its time and memory. Both layouts are served (see [`crate::cgroup`]); a controller
//! that is not there, or not ours to use, is done without.

use crate::cgroup::{Hierarchies, delegated};
use crate::signal;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// In version 1 each has a hierarchy of its own: memory and its limit, CPU time, and one more to find processes where there is neither.
const FINDS: &str = "pids";
/// See there.
const CONTROLLERS: [&str; 3] = ["memory", "cpuacct", FINDS];
/// Bytes that may be left in groups which another job gets: the kernel charges pages ahead, some for each CPU. What a job has had is told in MB.
const LEFT: u64 = 1 << 20;

/// See above. Nothing is removed unless [`JobGroup::remove`] is called: the groups outlive whoever made them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobGroup {
    dirs: Vec<PathBuf>,
    /// The limit of memory that they were made with.
    limit: Option<u64>,
}

/// Where groups can be made: below the groups of this process, which it does not leave.
#[derive(Clone, Debug)]
pub struct Parents {
    /// With the controller that is wanted there.
    dirs: Vec<(&'static str, PathBuf)>,
}

impl Parents {
    /// As it is now.
    pub fn read() -> Parents {
        let all = Hierarchies::read();
        let mut dirs: Vec<(&'static str, PathBuf)> = Vec::new();
        for controller in CONTROLLERS {
            let Some((own, v1)) = all.directory(controller) else { continue };
            let Some(parent) = (if v1 { Some(own) } else { delegated(&own) }) else { continue };
            if !v1 {
                // CPU time is counted without any controller; a limit of memory needs one.
                let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
            }
            if dirs.iter().all(|(_, dir)| *dir != parent) {
                dirs.push((controller, parent));
            }
        }
        Parents { dirs }
    }

    /// Where [`Parents::make`] makes groups of this name, if nothing is in its way.
    pub fn plan(&self, name: &str) -> Vec<PathBuf> {
        let alone = self.dirs.len() == 1;
        let wanted = self.dirs.iter().filter(|(controller, _)| alone || *controller != FINDS);
        wanted.map(|(_, parent)| parent.join(name)).collect()
    }

    /// Makes groups of this name, with a limit of memory in bytes, where that is possible; with none it is empty. Groups that are there already are
    /// those of an earlier attempt, and are used.
    pub fn make(&self, name: &str, memory: Option<u64>) -> JobGroup {
        let mut group = JobGroup { dirs: Vec::new(), limit: memory };
        for (controller, parent) in &self.dirs {
            let dir = parent.join(name);
            // Each costs as much as some of a short job's other parts: none is made that says nothing new.
            if (*controller != FINDS || group.is_empty()) && make_dir(&dir).is_ok() {
                group.dirs.push(dir);
            }
        }
        if let Some(bytes) = memory {
            group.limit(bytes);
        }
        group
    }
}

impl JobGroup {
    /// See [`Parents::make`].
    pub fn make(name: &str, memory: Option<u64>) -> JobGroup {
        Parents::read().make(name, memory)
    }

    /// Groups that were made before, as far as they are there.
    pub fn again(dirs: Vec<PathBuf>) -> JobGroup {
        JobGroup { dirs: dirs.into_iter().filter(|dir| dir.is_dir()).collect(), limit: None }
    }

    /// Has their counters begin anew for another job, with nobody in them: to make and remove groups takes ten times as long. None: they can't be another
    /// job's with that limit, and are removed. Version 2 has no counters that can be set back.
    pub fn renew(self, memory: Option<u64>) -> Option<JobGroup> {
        if !self.is_empty() && self.limit == memory && self.dirs.iter().all(|dir| begins_anew(dir).unwrap_or(false)) {
            return Some(self);
        }
        let _ = self.remove();
        None
    }

    /// Where they are.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    fn limit(&self, bytes: u64) {
        for dir in &self.dirs {
            for file in ["memory.limit_in_bytes", "memory.max"].map(|f| dir.join(f)).iter().filter(|f| f.exists()) {
                // What can't be set is not held to here: whoever looks at the job's memory does it (`holds_memory`).
                let _ = fs::write(file, bytes.to_string());
            }
            // One process that is ended leaves a job that waits for it.
            let _ = write_there(&dir.join("memory.oom.group"), "1");
        }
    }

    /// Does the kernel hold it to a limit of memory?
    pub fn holds_memory(&self) -> bool {
        // Version 1 writes a number near the largest one for "none".
        self.number(&["memory.limit_in_bytes", "memory.max"]).is_some_and(|bytes| bytes < 1 << 60)
    }

    /// Files to which a process writes `0` to come in.
    pub fn doors(&self) -> Vec<File> {
        let open = |dir: &PathBuf| OpenOptions::new().write(true).open(dir.join("cgroup.procs")).ok();
        self.dirs.iter().filter_map(open).collect()
    }

    /// Its processes, and those of groups that it has made below.
    pub fn pids(&self) -> Vec<i32> {
        let mut all = Vec::new();
        self.dirs.iter().for_each(|dir| members(dir, &mut all));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Kills all that are in it now. Gives how many there were: again, until there are none.
    pub fn kill(&self) -> usize {
        let found = self.pids();
        // Who is not there starts nobody.
        if found.is_empty() {
            return 0;
        }
        for dir in &self.dirs {
            // All at once, where the kernel can (version 2, Linux 5.14).
            let _ = write_there(&dir.join("cgroup.kill"), "1");
        }
        // Who stands still starts nobody.
        found.iter().for_each(|pid| _ = signal::kill(*pid, libc::SIGSTOP));
        self.pids().iter().for_each(|pid| _ = signal::kill(*pid, libc::SIGKILL));
        found.len()
    }

    fn number(&self, files: &[&str]) -> Option<u64> {
        self.dirs.iter().flat_map(|dir| files.iter().filter_map(move |file| number(&dir.join(file)))).next()
    }

    /// CPU time of all that was ever in it, milliseconds.
    pub fn cpu_ms(&self) -> Option<u64> {
        let of_v2 = |dir: &PathBuf| {
            let text = fs::read_to_string(dir.join("cpu.stat")).ok()?;
            text.lines().find_map(|l| l.strip_prefix("usage_usec ")?.trim().parse::<u64>().ok())
        };
        // It is the last one that has it.
        let ns = self.dirs.iter().rev().find_map(|dir| number(&dir.join("cpuacct.usage"))).map(|ns| ns / 1_000_000);
        ns.or_else(|| self.dirs.iter().find_map(of_v2).map(|us| us / 1000))
    }

    /// The most bytes of memory that it has had at once, with files in the page cache that it has read or written, and with what it holds in memory
    /// file systems. Before Linux 5.19 version 2 knows only what it has now.
    pub fn memory_peak(&self) -> Option<u64> {
        self.number(&["memory.max_usage_in_bytes", "memory.peak", "memory.current"])
    }

    /// The kernel has ended some of it for want of memory.
    pub fn out_of_memory(&self) -> bool {
        let read = |dir: &PathBuf, file: &str| fs::read_to_string(dir.join(file)).ok();
        let says = |dir| read(dir, "memory.oom_control").or_else(|| read(dir, "memory.events"));
        killed(&self.dirs.iter().find_map(says).unwrap_or_default())
    }

    /// Removes them; they must be empty.
    pub fn remove(&self) -> io::Result<()> {
        remove_all(&self.dirs)
    }
}

/// What groups of batch jobs are called that have this mark, up to their helper's name.
pub fn prefix(mark: &str) -> String {
    format!("pando-{}-", mark.replace('/', "_"))
}

/// What tells the node that has this state from others on the same machine.
pub fn mark(state: &Path) -> String {
    fs::metadata(state).map_or_else(|_| state.display().to_string(), |m| format!("{:x}-{:x}", m.dev(), m.ino()))
}

/// The same of its batch jobs.
pub fn batch_mark(mark: &str) -> String {
    format!("{mark}-batch")
}

/// All groups of batch jobs of the node that has this state.
pub fn of_node(state: &Path) -> Vec<JobGroup> {
    named(&prefix(&batch_mark(&mark(state))))
}

/// Groups below ours whose names begin so.
pub fn named(begin: &str) -> Vec<JobGroup> {
    let all = Hierarchies::read();
    let mut found = Vec::new();
    for controller in CONTROLLERS {
        let Some((own, v1)) = all.directory(controller) else { continue };
        let Some(parent) = (if v1 { Some(own) } else { delegated(&own) }) else { continue };
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(begin)) && entry.path().is_dir() {
                found.push(JobGroup { dirs: vec![entry.path()], limit: None });
            }
        }
    }
    found
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Does the kernel say that it has killed one?
fn killed(text: &str) -> bool {
    let number = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok();
    text.lines().filter_map(number).any(|n| n > 0)
}

/// A group of version 1 without others below, in which next to nothing is left, as if it had been made now. None: it can't be.
fn begins_anew(dir: &Path) -> Option<bool> {
    if fs::metadata(dir).ok()?.nlink() != 2 {
        return Some(false);
    }
    let set_back = |file: &str| write_there(&dir.join(file), "0");
    if let Some(left) = number(&dir.join("memory.usage_in_bytes")) {
        let none_killed = !killed(&fs::read_to_string(dir.join("memory.oom_control")).ok()?);
        return Some(left <= LEFT && none_killed && set_back("memory.max_usage_in_bytes").is_ok());
    }
    Some(set_back("cpuacct.usage").is_ok())
}

/// A write to a file that has to be there: the file system of control groups makes none, others would.
fn write_there(file: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
}

fn make_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn below(dir: &Path) -> impl Iterator<Item = PathBuf> {
    // A group without others below has two names, its own and its `.`; where directories have other numbers of names this says nothing.
    let has_none = fs::metadata(dir).is_ok_and(|found| found.nlink() == 2);
    let entries = (!has_none).then(|| fs::read_dir(dir).into_iter().flatten().flatten()).into_iter().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path())
}

fn members(dir: &Path, all: &mut Vec<i32>) {
    let list = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    // Who is in another pid namespace has number 0 here.
    all.extend(list.lines().filter_map(|l| l.parse::<i32>().ok()).filter(|pid| *pid > 0));
    below(dir).for_each(|dir| members(&dir, all));
}

/// Each of them that can be; the first error.
fn remove_all(dirs: &[PathBuf]) -> io::Result<()> {
    let mut first = Ok(());
    for dir in dirs {
        first = first.and(remove(dir));
    }
    first
}

fn remove(dir: &Path) -> io::Result<()> {
    let gone = |done: io::Result<()>| match done {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    };
    // Groups below it are rare.
    gone(fs::remove_dir(dir)).or_else(|_| {
        remove_all(&below(dir).collect::<Vec<_>>())?;
        gone(fs::remove_dir(dir))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Directories with the files of both layouts say what a group would.
    #[test]
    fn both_layouts_are_read() {
        let base = std::env::temp_dir().join(format!("pando-job-group-{}", std::process::id()));
        let file = |dir: &str, name: &str, text: &str| {
            fs::create_dir_all(base.join(dir)).unwrap();
            fs::write(base.join(dir).join(name), text).unwrap();
        };
        file("m", "memory.max_usage_in_bytes", "4096\n");
        file("m", "memory.limit_in_bytes", "9223372036854771712\n");
        file("m", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
        file("c", "cpuacct.usage", "5000000\n");
        let v1 = JobGroup { dirs: ["m", "c"].map(|d| base.join(d)).to_vec(), limit: None };
        assert_eq!((v1.cpu_ms(), v1.memory_peak()), (Some(5), Some(4096)));
        assert!(!v1.holds_memory() && !v1.out_of_memory());
        file("u", "cpu.stat", "usage_usec 7000\nuser_usec 1\n");
        file("u", "memory.max", "1048576\n");
        file("u", "memory.peak", "77\n");
        file("u", "memory.events", "low 0\noom 1\noom_kill 2\n");
        file("u/below", "cgroup.procs", "12\n0\n");
        file("u", "cgroup.procs", "7\n12\n");
        let v2 = JobGroup { dirs: vec![base.join("u")], limit: None };
        assert_eq!((v2.cpu_ms(), v2.memory_peak()), (Some(7), Some(77)));
        assert!(v2.holds_memory() && v2.out_of_memory());
        // It has groups below; another job gets new ones.
        assert_eq!(begins_anew(&base.join("u")), Some(false));
        assert_eq!(v2.pids(), [7, 12]);
        assert_eq!(JobGroup::again(vec![base.join("gone")]).cpu_ms(), None);
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_real_one_holds_what_comes_in() {
        let name = format!("pando-batch-test-{}", std::process::id());
        let group = JobGroup::make(&name, None);
        if group.is_empty() || group.doors().is_empty() {
            eprintln!("SKIPPED: no control group can be made here");
            return;
        }
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        for dir in group.dirs() {
            fs::write(dir.join("cgroup.procs"), pid.to_string()).unwrap();
        }
        assert_eq!(group.pids(), [pid]);
        assert!(named(&name).iter().all(|g| g.pids() == [pid]));
        assert_eq!(group.kill(), 1);
        child.wait().unwrap();
        assert!(group.pids().is_empty());
        another_job_gets_them(group, &name);
        assert!(named(&name).is_empty());
    }

    /// With counters that begin anew, or not at all.
    fn another_job_gets_them(group: JobGroup, name: &str) {
        let dirs = group.dirs().to_vec();
        fs::create_dir(dirs[0].join("below")).unwrap();
        assert_eq!(group.renew(None), None, "there is a group below");
        assert!(!dirs[0].exists());
        assert_eq!(JobGroup::make(name, None).renew(Some(1 << 30)), None, "it has no such limit");
        assert!(!dirs[0].exists());
        let group = JobGroup::make(name, None);
        run_in(&group, "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done");
        let (used, memory) = (group.cpu_ms(), group.memory_peak());
        let Some(next) = group.renew(None) else {
            eprintln!("SKIPPED: groups of version 2 have no counters that can be set back");
            return;
        };
        assert!(used > Some(0) && next.cpu_ms() == Some(0), "{used:?} {:?}", next.cpu_ms());
        assert!(memory.is_none() || next.memory_peak().is_some_and(|peak| peak <= LEFT), "{:?}", next.memory_peak());
        run_in(&next, ":");
        assert!(next.cpu_ms() < used);
        next.remove().unwrap();
    }

    fn run_in(group: &JobGroup, script: &str) {
        let doors: Vec<String> = group.dirs().iter().map(|d| format!("echo 0 >{}/cgroup.procs", d.display())).collect();
        let done = Command::new("sh").args(["-c", &format!("{}\n{script}", doors.join("\n"))]).status().unwrap();
        assert!(done.success());
    }
}
