//! A control group for one guest, below the one that its helper is in: the kernel's own word on how many threads and how much
//! memory it gets. Both layouts are served: a hierarchy for each controller (v1), and one for all (v2) where a part of it has
//! been delegated to us. Where neither is to be had, there is no group.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Names of our groups begin with this; the helper's pid follows.
const NAME: &str = "pando-guest-";

/// What the kernel is to hold a guest to.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Threads and processes.
    pub pids: u64,
    /// Bytes.
    pub memory: u64,
}

/// Mounted hierarchies and our own place in them.
pub(crate) struct Hierarchies {
    /// Controllers (none for v2), the group at the mount point, the mount point.
    mounts: Vec<(Vec<String>, String, PathBuf)>,
    /// Controllers (one empty name for v2), our group.
    own: Vec<(Vec<String>, String)>,
}

impl Hierarchies {
    pub(crate) fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self::parse(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"))
    }

    fn parse(mountinfo: &str, cgroup: &str) -> Self {
        let names = |list: &str| list.split(',').map(str::to_string).collect::<Vec<_>>();
        let mount = |line: &str| {
            let (left, right) = line.split_once(" - ")?;
            let mut left = left.split(' ').skip(3);
            let (root, point) = (left.next()?.to_string(), PathBuf::from(left.next()?));
            let mut right = right.split(' ');
            match (right.next()?, right.nth(1)?) {
                ("cgroup2", _) => Some((Vec::new(), root, point)),
                ("cgroup", options) => Some((names(options), root, point)),
                _ => None,
            }
        };
        let own = |line: &str| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((names(fields.next()?), fields.next()?.to_string()))
        };
        Hierarchies {
            mounts: mountinfo.lines().filter_map(mount).collect(),
            own: cgroup.lines().filter_map(own).collect(),
        }
    }

    /// The directory of our own group for a controller, and whether it is of v1.
    pub(crate) fn directory(&self, controller: &str) -> Option<(PathBuf, bool)> {
        let of = |wanted: &str| {
            let (_, path) = self.own.iter().find(|(names, _)| names.iter().any(|n| n == wanted))?;
            let here = |names: &[String]| match wanted {
                "" => names.is_empty(),
                _ => names.iter().any(|n| n == wanted),
            };
            let (_, root, point) = self.mounts.iter().find(|m| here(&m.0))?;
            let rest = if root == "/" { path } else { path.strip_prefix(root.as_str())? };
            Some(point.join(rest.trim_start_matches('/')))
        };
        of(controller).map(|dir| (dir, true)).or_else(|| of("").map(|dir| (dir, false)))
    }
}

/// The directory in v2 in which a group with these controllers can be made: ours is one below it (a group that has processes passes no
/// controllers on), and it has been delegated to us.
pub(crate) fn delegated(own: &Path) -> Option<PathBuf> {
    let above = own.parent()?;
    let writable = |name: &str| fs::OpenOptions::new().write(true).open(above.join(name)).is_ok();
    let alone = fs::read_to_string(above.join("cgroup.procs")).is_ok_and(|list| list.trim().is_empty());
    // The manager of the machine keeps its slices to itself.
    let unit = above.extension().is_some_and(|e| e == "service" || e == "scope");
    (unit && alone && writable("cgroup.procs") && writable("cgroup.subtree_control")).then(|| above.to_owned())
}

/// Removes groups of helpers that are gone. The kernel keeps those that are in use.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let helper = name.to_str().and_then(|n| n.strip_prefix(NAME)?.parse::<u32>().ok());
        if helper.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The smallest limit of memory that we are under ourselves.
pub fn memory_limit() -> Option<u64> {
    let (own, v1) = Hierarchies::read().directory("memory")?;
    let file = if v1 { "memory.limit_in_bytes" } else { "memory.max" };
    let limit = |dir: &Path| fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
    own.ancestors().filter_map(limit).min()
}

/// The least memory that is left below the limits that we are under ourselves.
pub fn memory_left() -> Option<u64> {
    let (own, v1) = Hierarchies::read().directory("memory")?;
    let (limit, used) =
        if v1 { ("memory.limit_in_bytes", "memory.usage_in_bytes") } else { ("memory.max", "memory.current") };
    let number = |dir: &Path, file: &str| fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
    own.ancestors().filter_map(|dir| Some(number(dir, limit)?.saturating_sub(number(dir, used)?))).min()
}

/// The groups of one guest, removed when this is dropped.
#[derive(Debug, Default)]
pub struct Group {
    made: Vec<PathBuf>,
}

impl Group {
    /// Makes groups with a name of this process where that is possible, one for each hierarchy.
    pub fn make(bounds: Bounds) -> Group {
        let name = format!("{NAME}{}", std::process::id());
        let all = Hierarchies::read();
        let mut group = Group::default();
        for controller in ["pids", "memory"] {
            let Some((own, v1)) = all.directory(controller) else { continue };
            let Some(parent) = (if v1 { Some(own) } else { delegated(&own) }) else { continue };
            let dir = parent.join(&name);
            sweep(&parent);
            if !v1 && fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}")).is_err() {
                continue;
            }
            if group.made.contains(&dir) || fs::create_dir(&dir).is_ok() {
                group.bound(&dir, controller, v1, bounds);
                group.keep(dir);
            }
        }
        group
    }

    fn bound(&self, dir: &Path, controller: &str, v1: bool, bounds: Bounds) {
        let (file, value) = match (controller, v1) {
            ("pids", _) => ("pids.max", bounds.pids),
            (_, true) => ("memory.limit_in_bytes", bounds.memory),
            (_, false) => ("memory.max", bounds.memory),
        };
        // What can't be set is not held to here, but by the other means (guest/room.rs).
        let _ = fs::write(dir.join(file), value.to_string());
    }

    fn keep(&mut self, dir: PathBuf) {
        if !self.made.contains(&dir) {
            self.made.push(dir);
        }
    }

    /// Puts a process in.
    pub fn admit(&self, pid: i32) -> io::Result<()> {
        self.made.iter().try_for_each(|dir| fs::write(dir.join("cgroup.procs"), pid.to_string()))
    }

    /// Has the kernel ended one of its processes for want of memory?
    pub fn out_of_memory(&self) -> bool {
        let killed = |dir: &PathBuf| {
            let texts = ["memory.oom_control", "memory.events"].map(|file| fs::read_to_string(dir.join(file)));
            texts.iter().flatten().any(|t| {
                t.lines().filter_map(|l| l.strip_prefix("oom_kill ")).any(|n| n.trim() != "0" && !n.is_empty())
            })
        };
        self.made.iter().any(killed)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for dir in &self.made {
            // Its processes have been collected by now; what a helper that was killed leaves behind is found by `sweep`.
            let _ = fs::remove_dir(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "30 25 0:26 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids\n\
                        31 25 0:27 /docker/x /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n\
                        32 25 0:28 / /run rw - tmpfs tmpfs rw\n";

    #[test]
    fn both_layouts_are_found() {
        let all = Hierarchies::parse(INFO, "8:pids:/a/b\n0::/docker/x/y\n");
        assert_eq!(all.directory("pids"), Some((PathBuf::from("/sys/fs/cgroup/pids/a/b"), true)));
        assert_eq!(all.directory("memory"), Some((PathBuf::from("/sys/fs/cgroup/unified/y"), false)));
        let elsewhere = Hierarchies::parse(INFO, "8:pids:/a/b\n0::/\n");
        assert_eq!(elsewhere.directory("memory"), None, "what is not mounted can't be used");
        assert_eq!(Hierarchies::parse("", "").directory("pids"), None);
    }

    #[test]
    fn only_what_was_delegated_is_divided() {
        let dir = std::env::temp_dir().join(format!("pando-delegated-{}", std::process::id()));
        let own = dir.join("pando.service/daemon");
        fs::create_dir_all(&own).unwrap();
        for (file, text) in [("cgroup.procs", ""), ("cgroup.subtree_control", "")] {
            fs::write(dir.join("pando.service").join(file), text).unwrap();
        }
        assert_eq!(delegated(&own), Some(dir.join("pando.service")));
        assert_eq!(delegated(&dir.join("pando.service")), None, "a slice is the manager's");
        fs::write(dir.join("pando.service/cgroup.procs"), "12\n").unwrap();
        assert_eq!(delegated(&own), None, "there are processes in it");
        fs::remove_dir_all(&dir).unwrap();
    }
}
