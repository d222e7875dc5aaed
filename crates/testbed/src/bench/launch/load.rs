//! What else is going on while jobs are started.

use crate::bench::program::Program;
use crate::entry;
use crate::error::{Context, Result};
use crate::place::{Plan, address};
use crate::{PEER, WORK};
use std::process::{Child, Stdio};

/// Streams between two nodes, at most.
const STREAMS: usize = 4;

/// Goes on until it is dropped.
pub struct Load {
    /// In words.
    pub what: String,
    loops: Vec<Child>,
    /// Clients before servers.
    _streams: Vec<Program>,
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.loops {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Two busy loops for each CPU of the machine, at the first nodes.
pub fn loops(plan: &Plan, nodes: usize) -> Result<Load> {
    let count = 2 * std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut load = Load { what: format!("{count} busy loops"), loops: Vec::new(), _streams: Vec::new() };
    for i in 0..count {
        let mut command = entry::command(plan, &format!("n{}", i % nodes + 1), &"pando".into())?;
        command.args([WORK, &u64::MAX.to_string(), "0", "1"]).stdin(Stdio::null()).stdout(Stdio::null());
        load.loops.push(command.spawn().context("start a busy loop")?);
    }
    Ok(load)
}

/// TCP streams between pairs of nodes, as fast as they go.
pub fn streams(plan: &Plan, nodes: usize) -> Result<Load> {
    let pairs = (nodes / 2).min(STREAMS);
    let (mut servers, mut all) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        servers.push(Program::at(plan, &format!("n{}", 2 * pair + 2), &[PEER, "pour"])?);
        all.push(Program::at(plan, &format!("n{}", 2 * pair + 1), &[PEER, "pour", &address(2 * pair + 1)])?);
    }
    all.extend(servers);
    Ok(Load { what: format!("{pairs} TCP streams"), loops: Vec::new(), _streams: all })
}
