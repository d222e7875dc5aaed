//! Taking a testbed away, whatever state it is in.

use crate::error::{Context, Error, Result};
use crate::place::{Plan, base, check_name, trusted_base};
use crate::processes::{self, Process};
use crate::{cgroup, sys};
use pando_kernel::job_group;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long killed processes may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// `testbed down`: true if there was anything. Going again over what is gone already does no harm.
pub fn down(name: &str) -> Result<bool> {
    let dir = trusted_base()?.join(check_name(name)?);
    if !dir.exists() {
        return Ok(false);
    }
    let plan = match Plan::load(name) {
        Ok(plan) => Some(plan),
        // Killed before the plan was written: then nothing else was made.
        Err(Error::NotUp(_) | Error::Record { .. }) => None,
        Err(e) => return Err(e),
    };
    end_processes(plan.as_ref(), &dir)?;
    remove(plan.as_ref(), &dir)?;
    Ok(true)
}

/// The same by the holder itself, which ends right after.
pub fn from_inside(plan: &Plan) -> Result<()> {
    end_processes(Some(plan), &plan.dir)?;
    remove(Some(plan), &plan.dir)
}

/// What makes a process part of each node. Namespaces count only while the holder keeps them: their inodes are used
/// again.
pub fn nodes(plan: &Plan) -> Vec<processes::Node> {
    let holding = plan.holding().ok();
    let node = |(i, name): (usize, String)| processes::Node {
        network: holding.as_ref().map(|h| h.networks[i].1),
        grouped: cgroup::members(&plan.node_cgroups(&name)),
    };
    plan.nodes().into_iter().enumerate().map(node).collect()
}

/// Ends everything of the testbed but ourselves and those above us, the holder last.
fn end_processes(plan: Option<&Plan>, dir: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let holder = plan.and_then(|p| p.holding().ok()).map(|h| h.pid);
    loop {
        let all = processes::all();
        let spared = processes::own_line(&all);
        let nodes = plan.map(nodes).unwrap_or_default();
        let found = processes::of_testbed(&all, &nodes, dir);
        let left: Vec<&Process> =
            all.iter().filter(|p| found.contains(&p.pid) && !spared.contains(&p.pid) && p.state != 'Z').collect();
        if left.is_empty() {
            return Ok(());
        }
        // The holder adopts and reaps the others, so it goes when it is alone.
        let alone = left.iter().all(|p| Some(p.pid) == holder);
        for process in left.iter().filter(|p| alone || Some(p.pid) != holder) {
            sys::kill(process.pid, libc::SIGKILL).context(format!("end process {}", process.pid))?;
        }
        if Instant::now() > deadline {
            let pids: BTreeSet<u32> = left.iter().map(|p| p.pid).collect();
            return Err(Error::Late {
                what: "the end of the testbed's processes".into(),
                seconds: PATIENCE.as_secs(),
                detail: format!(": {pids:?} are left"),
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn remove(plan: Option<&Plan>, dir: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    for group in plan.map(|p| p.cgroups.as_slice()).unwrap_or_default() {
        cgroup::release(group, &processes::own_line(&processes::all()));
        // A group is busy for a moment after its last process has ended.
        while let Err(e) = cgroup::remove(group) {
            if Instant::now() > deadline {
                return Err(e).at("remove the control group", group);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    for node in plan.map(Plan::nodes).unwrap_or_default() {
        let state = dir.join(node).join("state");
        // Helpers of batch jobs that were ended had no time for it.
        job_group::of_node(&state).iter().for_each(|group| _ = group.remove());
    }
    if let Some(scratch) = plan.and_then(|p| p.scratch.as_deref()) {
        or_gone(std::fs::remove_dir_all(scratch)).at("remove", scratch)?;
    }
    // The plan goes last: without it nobody would know about what is left after a crash here.
    let plan_file = dir.join("testbed.json");
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        other => Some(other.at("read", dir)?),
    };
    for entry in entries.into_iter().flatten().flatten().filter(|e| e.path() != plan_file) {
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|t| t.is_dir());
        let gone = if is_dir { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        or_gone(gone).at("remove", &path)?;
    }
    or_gone(std::fs::remove_dir_all(dir)).at("remove", dir)?;
    // Succeeds for the last testbed only.
    drop(std::fs::remove_dir(base()));
    Ok(())
}

/// The holder of a testbed may be taking it away at the same time.
fn or_gone(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
