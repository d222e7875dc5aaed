//! Breaking things on purpose: cut, stall, kill; and heal.

use crate::error::{Context, Error, Result};
use crate::holder::{self, Ask};
use crate::place::Plan;
use crate::processes::{self, Process};
use crate::{cluster, down, sys};
use std::time::{Duration, Instant};

/// Packets from and to the node are dropped from now on; connections stay open.
pub fn cut(plan: &Plan, node: &str) -> Result<()> {
    holder::ask(plan, &Ask::Cut { node: plan.index(node)?, cut: true }).map(drop)
}

/// Undoes a cut and a stall.
pub fn heal(plan: &Plan, node: &str) -> Result<()> {
    let index = plan.index(node)?;
    for process in machinery(plan, index).iter().rev() {
        sys::kill(process.pid, libc::SIGCONT).context(format!("continue process {}", process.pid))?;
    }
    holder::ask(plan, &Ask::Cut { node: index, cut: false }).map(drop)
}

/// Stops the node's daemon and helpers (a guest computes on, but nothing answers it), the daemon first so that it starts no helper meanwhile. With a time, goes
/// on by itself after it (also when this command is ended by Ctrl-C).
pub fn stall(plan: &Plan, node: &str, seconds: Option<f64>) -> Result<()> {
    let index = plan.index(node)?;
    let mut stopped = 0;
    loop {
        // Helpers that were just being started are seen in the next round. One that has just ended stays a zombie: the daemon stands still. One
        // that is held by its tracer (t) goes on when that does.
        let runs = |p: &Process| !matches!(p.state, 'T' | 't' | 'Z' | 'X');
        let running: Vec<Process> = machinery(plan, index).into_iter().filter(runs).collect();
        if running.is_empty() {
            break;
        }
        for process in &running {
            sys::kill(process.pid, libc::SIGSTOP).context(format!("stop process {}", process.pid))?;
        }
        stopped += 1;
        std::thread::sleep(Duration::from_millis(2));
        if stopped > 500 {
            return Err(Error::Other(format!("the processes of {node} do not stop")));
        }
    }
    if stopped == 0 && daemon(plan, index).is_none() {
        return Err(Error::Other(format!("the daemon of {node} does not run; `pando testbed start {node}` starts it")));
    }
    let Some(seconds) = seconds else {
        return Ok(());
    };
    let end = Instant::now() + Duration::from_secs_f64(seconds.min(86_400.0));
    while Instant::now() < end && sys::interrupted().is_none() {
        std::thread::sleep(end.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
    }
    for process in machinery(plan, index).iter().rev() {
        sys::kill(process.pid, libc::SIGCONT).context(format!("continue process {}", process.pid))?;
    }
    Ok(())
}

/// Ends everything at the node at once, as a crash of its machine would: the daemon, helpers, guests, and the
/// programs that run there. Or only the daemon.
pub fn kill(plan: &Plan, node: &str, only_daemon: bool) -> Result<usize> {
    let index = plan.index(node)?;
    let mut ended = 0;
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let victims = if only_daemon { daemon(plan, index).into_iter().collect() } else { everything(plan, index)? };
        if victims.is_empty() {
            return Ok(ended);
        }
        if Instant::now() > deadline {
            return Err(Error::Other(format!("the processes of {node} do not end")));
        }
        for process in &victims {
            sys::kill(process.pid, libc::SIGKILL).context(format!("kill process {}", process.pid))?;
        }
        ended = ended.max(victims.len());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts the node's daemon again.
pub fn start(plan: &Plan, node: &str) -> Result<()> {
    cluster::start(plan, node)
}

/// The node's daemon, if it runs.
pub fn daemon(plan: &Plan, index: usize) -> Option<Process> {
    machinery(plan, index).into_iter().find(|p| processes::is_daemon(p, &plan.exe))
}

/// The daemon and the helpers of a node, the daemon first.
pub fn machinery(plan: &Plan, index: usize) -> Vec<Process> {
    let all = processes::all();
    let members = processes::of_node(&all, &down::nodes(plan), index);
    let ours = |p: &Process| members.contains(&p.pid) && p.state != 'Z' && processes::is_machinery(p, &plan.exe);
    let mut found: Vec<Process> = all.into_iter().filter(ours).collect();
    found.sort_by_key(|p| (!processes::is_daemon(p, &plan.exe), p.pid));
    found
}

fn everything(plan: &Plan, index: usize) -> Result<Vec<Process>> {
    plan.holding()?;
    let all = processes::all();
    let members = processes::of_node(&all, &down::nodes(plan), index);
    let spared = processes::own_line(&all);
    Ok(all.into_iter().filter(|p| members.contains(&p.pid) && !spared.contains(&p.pid) && p.state != 'Z').collect())
}
