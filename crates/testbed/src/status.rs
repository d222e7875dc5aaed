//! How a testbed is.

use crate::error::Result;
use crate::holder::{self, Ask};
use crate::place::{Plan, Shape, address};
use crate::{cluster, faults};
use serde::Serialize;
use std::path::PathBuf;

/// A testbed.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// The cluster was formed.
    pub formed: bool,
    /// Whether the process that keeps the namespaces is alive.
    pub holder: bool,
    /// Whether it is in a user namespace.
    pub user_namespace: bool,
    /// What was asked for.
    pub shape: Shape,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
}

/// One node of it.
#[derive(Debug, Serialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its address, inside the testbed's namespaces.
    pub address: String,
    /// `running`, `stalled` or `down`.
    pub daemon: &'static str,
    /// The daemon's pid.
    pub pid: Option<u32>,
    /// How the last daemon ended.
    pub ended: Option<String>,
    /// Helpers of moving processes at this node.
    pub helpers: usize,
    /// Whether it is cut off.
    pub cut: bool,
    /// Nodes that it sees alive; none if it does not answer.
    pub sees: Option<Vec<String>>,
    /// Its API socket.
    pub socket: PathBuf,
    /// Its log.
    pub log: PathBuf,
}

/// Looks.
pub fn status(plan: &Plan) -> Result<Status> {
    let held = holder::ask(plan, &Ask::State).ok();
    let node = |(i, name): (usize, String)| {
        let machinery = faults::machinery(plan, i);
        let daemon = faults::daemon(plan, i);
        let state = match &daemon {
            None => "down",
            Some(p) if p.state == 'T' => "stalled",
            Some(_) => "running",
        };
        let sees = (state == "running").then(|| cluster::sees(plan, &name).ok()).flatten();
        NodeStatus {
            address: address(i),
            daemon: state,
            pid: daemon.as_ref().map(|p| p.pid),
            ended: held.as_ref().and_then(|h| h.ended[i].clone()),
            helpers: machinery.len() - usize::from(daemon.is_some()),
            cut: held.as_ref().is_some_and(|h| h.cut[i]),
            sees: sees.map(|s| s.into_iter().collect()),
            socket: plan.socket(&name),
            log: plan.log(&name),
            name,
        }
    };
    Ok(Status {
        name: plan.name.clone(),
        dir: plan.dir.clone(),
        formed: plan.formed,
        holder: held.is_some(),
        user_namespace: plan.user_namespace,
        shape: plan.shape.clone(),
        nodes: plan.nodes().into_iter().enumerate().map(node).collect(),
    })
}

/// As text.
pub fn text(status: &Status) -> String {
    let mut out = format!("testbed {} in {}", status.name, status.dir.display());
    if status.user_namespace {
        out += ", in a user namespace";
    }
    if !status.formed {
        out += ", not formed (the command that brought it up is still at it, or was killed)";
    }
    if !status.holder {
        out += ", its namespaces' keeper is gone: `pando testbed down` clears it away";
    }
    out += &limits(&status.shape);
    out += "\nNODE   ADDRESS        DAEMON    PID      NETWORK  HELPERS  SEES\n";
    for n in &status.nodes {
        let pid = n.pid.map_or("-".to_string(), |p| p.to_string());
        let network = if n.cut { "cut" } else { "ok" };
        let sees = n.sees.as_ref().map_or("-".to_string(), |s| s.join(" "));
        out +=
            &format!("{:<6} {:<14} {:<9} {pid:<8} {network:<8} {:<8} {sees}\n", n.name, n.address, n.daemon, n.helpers);
    }
    out
}

fn limits(shape: &Shape) -> String {
    let mut out = String::new();
    if !shape.cpus.is_empty() {
        let each: Vec<String> = shape.cpus.iter().map(f64::to_string).collect();
        out += &format!(", {} CPUs a node", each.join("/"));
    }
    for (value, what) in [
        (shape.memory.map(|m| m as f64 / (1 << 20) as f64), "MB a node"),
        (shape.delay_ms, "ms delay"),
        (shape.rate_mbit, "Mbit/s"),
    ] {
        if let Some(value) = value {
            out += &format!(", {value} {what}");
        }
    }
    out
}
