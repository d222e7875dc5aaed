//! Making the nodes one cluster, and asking them what they see.

use crate::entry;
use crate::error::{Error, Result};
use crate::holder::{self, Ask};
use crate::place::{PORT, Plan, address};
use crate::sys;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a daemon may take to answer, and all daemons to see each other.
const PATIENCE: Duration = Duration::from_secs(30);
/// Silence up to this long needs no explanation.
const QUIET: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(50);

/// The first node makes the cluster, each other one joins with a token of its own.
pub fn form(plan: &Plan) -> Result<()> {
    let nodes = plan.nodes();
    for (index, node) in nodes.iter().enumerate() {
        let state = plan.state(node);
        let state = state.to_string_lossy();
        if index == 0 {
            entry::pando(plan, node, &["init", "--name", node, "--state", &state])?;
        } else {
            let token = entry::pando(plan, &nodes[0], &["token"])?;
            let config = plan.config(node);
            let config = config.to_string_lossy();
            let join = ["join", token.trim(), "--state", &state, "--name", node];
            let join = [&join[..], &["--config", &config]].concat();
            entry::pando(plan, node, &join)?;
        }
        start(plan, node)?;
    }
    let all: BTreeSet<String> = nodes.iter().cloned().collect();
    let mut missing = String::new();
    wait("all nodes seeing each other", || {
        missing = nodes
            .iter()
            .filter_map(|n| sees(plan, n).err().map_or_else(|| short(n, &all, plan), |e| Some(format!("{n}: {e}"))))
            .collect::<Vec<_>>()
            .join("; ");
        Ok((missing.is_empty(), missing.clone()))
    })
}

fn short(node: &str, all: &BTreeSet<String>, plan: &Plan) -> Option<String> {
    let seen = sees(plan, node).unwrap_or_default();
    let missing: Vec<&str> = all.difference(&seen).map(String::as_str).collect();
    (!missing.is_empty()).then(|| format!("{node} does not see {}", missing.join(" ")))
}

/// Starts a node's daemon and waits until it answers.
pub fn start(plan: &Plan, node: &str) -> Result<()> {
    let index = plan.index(node)?;
    holder::ask(plan, &Ask::Start { node: index })?;
    wait(&format!("an answer of the daemon of {node} ({}:{PORT})", address(index)), || {
        let state = holder::ask(plan, &Ask::State)?;
        if let Some(ended) = &state.ended[index] {
            return Err(Error::Other(format!("the daemon of {node} {ended}{}", last_words(plan, node))));
        }
        match entry::pando(plan, node, &["nodes", "--json"]) {
            Ok(_) => Ok((true, String::new())),
            Err(e) => Ok((false, e.to_string())),
        }
    })
}

/// The end of a node's log, for an error message.
fn last_words(plan: &Plan, node: &str) -> String {
    let log = std::fs::read_to_string(plan.log(node)).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let tail = lines[lines.len().saturating_sub(5)..].join("\n  ");
    if tail.is_empty() { String::new() } else { format!(". Its last words:\n  {tail}") }
}

/// Polls until `done` says so. Says what it waits for when that takes long; Ctrl-C ends it.
pub fn wait(what: &str, mut done: impl FnMut() -> Result<(bool, String)>) -> Result<()> {
    let start = Instant::now();
    let mut said = start;
    loop {
        let (is_done, detail) = done()?;
        if is_done {
            return Ok(());
        }
        if sys::interrupted().is_some() {
            return Err(Error::Interrupted);
        }
        let detail = if detail.is_empty() { detail } else { format!(" ({detail})") };
        if start.elapsed() > PATIENCE {
            return Err(Error::Late { what: what.to_string(), seconds: PATIENCE.as_secs(), detail });
        }
        if said.elapsed() > QUIET {
            said = Instant::now();
            eprintln!("pando testbed: waiting for {what}{detail}");
        }
        std::thread::sleep(STEP);
    }
}

/// The nodes that `node`'s daemon sees alive, itself included.
pub fn sees(plan: &Plan, node: &str) -> Result<BTreeSet<String>> {
    let text = entry::pando(plan, node, &["nodes", "--json"])?;
    parse_nodes(&text).ok_or_else(|| Error::Command { what: format!("pando nodes (at {node})"), said: text })
}

/// Reads `pando nodes --json`.
fn parse_nodes(text: &str) -> Option<BTreeSet<String>> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let list = value.get("nodes").unwrap_or(&value).as_array()?;
    let alive = |node: &serde_json::Value| match (node.get("alive"), node.get("state")) {
        (Some(alive), _) => alive.as_bool().unwrap_or(false),
        (_, Some(state)) => matches!(state.as_str(), Some("alive" | "up" | "ready" | "self")),
        _ => true,
    };
    let name = |node: &serde_json::Value| node.get("name")?.as_str().map(str::to_string);
    Some(list.iter().filter(|n| alive(n)).filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_are_alive_count() {
        let text = r#"[{"name":"n1","alive":true},{"name":"n2","alive":false}]"#;
        assert_eq!(parse_nodes(text), Some(BTreeSet::from(["n1".to_string()])));
        assert_eq!(parse_nodes("no"), None);
    }
}
