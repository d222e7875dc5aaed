//! Control groups for `--cpus` and `--memory`, and to know which processes belong to a node.
//!
//! Both layouts are served: one unified hierarchy (v2), and a hierarchy per controller (v1, also beside a unified
//! one that has no controllers). All our groups lie below a group that is there already; no group of the machine is
//! changed.

use crate::error::{Context, Result};
use crate::place::Shape;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Period over which a share of CPU time is measured: short, so that half a CPU does not mean stalls of 50 ms.
pub const PERIOD_US: u64 = 20_000;

/// Of a busy machine nodes get so many times what another process gets, as long as they have not had what they were promised: files of both
/// versions, and that much.
const WEIGHT: [(&str, &str); 2] = [("cpu.shares", "16384"), ("cpu.weight", "1600")];

/// Where our groups can go, and what could not be had.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// Directories under which to make a group `pando-testbed-NAME`.
    pub parents: Vec<PathBuf>,
    /// Controllers that were asked for and are not to be had here.
    pub missing: Vec<String>,
}

/// Looks for places for the controllers that this shape needs.
pub fn sites(shape: &Shape) -> Sites {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mounts = mounts(&read("/proc/self/mountinfo"));
    let own = own(&read("/proc/self/cgroup"));
    let mut sites = Sites::default();
    let wanted = [("cpu", !shape.cpus.is_empty()), ("memory", shape.memory.is_some())];
    let wanted: Vec<&str> = wanted.iter().filter(|w| w.1).map(|w| w.0).collect();
    for controller in &wanted {
        match site(controller, &wanted, &mounts, &own) {
            Some(parent) if sites.parents.contains(&parent) => {}
            Some(parent) => sites.parents.push(parent),
            None => sites.missing.push(controller.to_string()),
        }
    }
    if sites.parents.is_empty() {
        // Only to know what belongs to a node; namespaces and parents tell most of it too.
        sites.parents.extend(["", "pids", "freezer"].iter().find_map(|c| site(c, &[], &mounts, &own)));
    }
    sites
}

/// A mounted hierarchy: its controllers (none for v2), the group at its mount point, the mount point.
type Mount = (Vec<String>, String, PathBuf);

fn mounts(mountinfo: &str) -> Vec<Mount> {
    let parse = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?.to_string(), PathBuf::from(left.next()?));
        let mut right = right.split(' ');
        match (right.next()?, right.nth(1)?) {
            ("cgroup2", _) => Some((Vec::new(), root, point)),
            ("cgroup", options) => Some((options.split(',').map(str::to_string).collect(), root, point)),
            _ => None,
        }
    };
    mountinfo.lines().filter_map(parse).collect()
}

/// Our own group in each hierarchy: controllers (one empty name for v2) and path.
fn own(cgroup: &str) -> Vec<(Vec<String>, String)> {
    let parse = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?.split(',').map(str::to_string).collect(), fields.next()?.to_string()))
    };
    cgroup.lines().filter_map(parse).collect()
}

/// The group below which one for `controller` can be made (an empty name: any v2 group). For v1 that is our own
/// group; in v2 the nearest one above us that passes all wanted controllers on, because a group that has processes
/// of its own cannot.
fn site(controller: &str, wanted: &[&str], mounts: &[Mount], own: &[(Vec<String>, String)]) -> Option<PathBuf> {
    let path = |name: &str| own.iter().find(|(c, _)| c.iter().any(|c| c == name)).map(|(_, p)| p.as_str());
    let below = |root: &str, point: &Path, path: &str| {
        let rest = if root == "/" { path } else { path.strip_prefix(root)? };
        Some(point.join(rest.trim_start_matches('/')))
    };
    let v1 = mounts.iter().find(|m| m.0.iter().any(|c| c == controller));
    if let (Some((_, root, point)), false) = (v1, controller.is_empty()) {
        return below(root, point, path(controller)?).filter(|dir| writable(dir));
    }
    let (_, root, point) = mounts.iter().find(|m| m.0.is_empty())?;
    let start = below(root, point, path("")?)?;
    let passes = |dir: &Path| {
        let on = std::fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
        (controller.is_empty() || on.split_whitespace().any(|c| c == controller))
            && wanted.iter().all(|w| on.split_whitespace().any(|c| c == *w))
    };
    start
        .ancestors()
        .take_while(|dir| dir.starts_with(point))
        .find(|dir| passes(dir) && writable(dir))
        .map(Path::to_path_buf)
}

fn writable(dir: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(dir.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: `path` is a C string that outlives the call.
    dir.is_dir() && unsafe { libc::access(path.as_ptr(), libc::W_OK) } == 0
}

/// Makes the groups of a testbed (their directories are in the plan already) and sets the limits of each node.
/// Returns what could not be set.
pub fn make(groups: &[PathBuf], nodes: &[String], shape: &Shape) -> Result<Vec<String>> {
    let mut failed = Vec::new();
    for group in groups {
        make_dir(group)?;
        let unified = group.join("cgroup.subtree_control").exists();
        if unified {
            for (wanted, name) in [(!shape.cpus.is_empty(), "+cpu"), (shape.memory.is_some(), "+memory")] {
                if wanted && let Err(e) = std::fs::write(group.join("cgroup.subtree_control"), name) {
                    failed.push(format!("{name}: {e}"));
                }
            }
        }
        for (file, weight) in WEIGHT {
            if !shape.cpus.is_empty()
                && group.join(file).exists()
                && let Err(e) = std::fs::write(group.join(file), weight)
            {
                failed.push(format!("{file}: {e}"));
            }
        }
        for (index, node) in nodes.iter().enumerate() {
            make_dir(&group.join(node))?;
            for (file, value) in settings(unified, shape, index) {
                let path = group.join(node).join(file);
                let ours = path.exists() || unified;
                if ours && let Err(e) = std::fs::write(&path, &value) {
                    failed.push(format!("{}: {e}", path.display()));
                }
            }
        }
    }
    failed.dedup();
    Ok(failed)
}

fn make_dir(dir: &Path) -> Result<()> {
    match std::fs::create_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other.at("make the control group", dir),
    }
}

/// File and value of each limit of node `index`. The period comes before the quota, which is checked against it.
fn settings(unified: bool, shape: &Shape, index: usize) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if let Some(cpus) = shape.cpus_of(index) {
        let quota = ((cpus * PERIOD_US as f64) as u64).max(1_000);
        if unified {
            all.push(("cpu.max", format!("{quota} {PERIOD_US}")));
        } else {
            all.push(("cpu.cfs_period_us", PERIOD_US.to_string()));
            all.push(("cpu.cfs_quota_us", quota.to_string()));
        }
    }
    if let Some(bytes) = shape.memory {
        all.push((if unified { "memory.max" } else { "memory.limit_in_bytes" }, bytes.to_string()));
    }
    all
}

/// The files to write a `0` to in order to join these groups, opened now, because after a change of namespace they
/// could not be. A group that is gone is left out.
pub fn doors(groups: &[PathBuf]) -> Vec<File> {
    groups.iter().filter_map(|g| OpenOptions::new().write(true).open(g.join("cgroup.procs")).ok()).collect()
}

/// Moves this process through the door. Async-signal-safe.
pub fn enter(door: &File) -> std::io::Result<()> {
    let mut door: &File = door;
    door.write_all(b"0")
}

/// Pids in these groups and in those below them (a node makes one for each guest).
pub fn members(groups: &[PathBuf]) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    for group in groups {
        let list = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        all.extend(list.lines().filter_map(|l| l.parse::<u32>().ok()));
        let below = std::fs::read_dir(group).into_iter().flatten().flatten().map(|e| e.path());
        all.extend(members(&below.filter(|p| p.is_dir()).collect::<Vec<_>>()));
    }
    all
}

/// Moves those that live on (a shell inside a node from which the testbed is taken away) out of the way, to the group
/// above the testbed's.
pub fn release(group: &Path, spared: &BTreeSet<u32>) {
    let inside = std::fs::read_dir(group).into_iter().flatten().flatten().map(|e| e.path());
    let members = members(&inside.filter(|p| p.is_dir()).collect::<Vec<_>>());
    for pid in members.intersection(spared) {
        if let Some(above) = group.parent() {
            // Where that is refused, the removal that follows says that the group is busy.
            drop(std::fs::write(above.join("cgroup.procs"), pid.to_string()));
        }
    }
}

/// Removes a testbed's groups with what lies below them. They must be empty; the caller tries again until they are.
pub fn remove(group: &Path) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(group) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        remove(&entry.path())?;
    }
    match std::fs::remove_dir(group) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_are_read() {
        let info = "30 25 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                    31 25 0:27 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup rw\n\
                    32 25 0:28 / /run rw - tmpfs tmpfs rw\n";
        let found = mounts(info);
        assert_eq!(found.len(), 2);
        assert!(found[0].0.contains(&"cpu".to_string()) && found[0].1 == "/");
        assert_eq!(found[1], (vec![], "/docker/x".to_string(), PathBuf::from("/sys/fs/cgroup")));
    }

    #[test]
    fn own_groups_by_controller() {
        let found = own("4:memory:/a/b\n1:cpu,cpuacct:/\n0::/user.slice/x:y\n");
        assert_eq!(found[0], (vec!["memory".to_string()], "/a/b".to_string()));
        assert_eq!(found[2], (vec![String::new()], "/user.slice/x:y".to_string()));
    }

    #[test]
    fn limits_in_both_dialects() {
        let shape = Shape { cpus: vec![0.5, 0.25], memory: Some(1 << 30), ..Shape::default() };
        let v2 = settings(true, &shape, 2);
        assert_eq!(v2[0], ("cpu.max", "10000 20000".to_string()));
        assert_eq!(settings(false, &shape, 0)[2], ("memory.limit_in_bytes", "1073741824".to_string()));
        assert_eq!(settings(false, &shape, 1)[1], ("cpu.cfs_quota_us", "5000".to_string()));
    }
}
