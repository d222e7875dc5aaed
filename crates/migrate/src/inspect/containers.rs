//! What a container has of its own and can't take along. Most of it stays at home with the body, which makes the calls: mounts, the
//! network, users, capabilities, labels, control groups.

use super::{Obstacle, obstacle};
use pando_kernel::procfs;
use std::fs;
use std::path::PathBuf;

/// Namespaces and filters that speak against a move.
pub(super) fn obstacles(pid: i32, status: &procfs::Status) -> Vec<Obstacle> {
    let mut out = Vec::new();
    if procfs::innermost_tid(pid).is_ok_and(|inner| inner == 1) {
        let why = "it is the first process of its pid namespace (pid 1 of a container)";
        out.push(obstacle(
            why,
            "move a process that it has started; start a container's program under an init (docker run --init)",
        ));
    }
    let space = |name: &str| -> Option<PathBuf> { fs::read_link(format!("/proc/{pid}/ns/{name}")).ok() };
    if space("time") != space("time_for_children") {
        out.push(obstacle("it has made a time namespace for its children", "move the children, which are in it"));
    }
    if status.seccomp != 0 {
        let advice = "start it without its sandbox option; a container with --security-opt seccomp=unconfined";
        out.push(obstacle("it runs under a seccomp filter of its own", advice));
    }
    out
}
