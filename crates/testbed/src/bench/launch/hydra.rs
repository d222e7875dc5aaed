//! MPICH's launcher on the nodes of a testbed. What ssh does elsewhere a script does here: it steps into a node's network and takes its host
//! name, in a few milliseconds and without cryptography, so Hydra is better off than with ssh.

use super::Spread;
use super::command::{installed, timed};
use crate::entry;
use crate::error::{Context, Result};
use crate::place::{Plan, address};
use crate::scratch::Scratch;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

/// Ready to start jobs.
pub struct Hydra {
    program: PathBuf,
    script: PathBuf,
}

/// Finds it and writes its script; or says why it is not used.
pub fn find(plan: &Plan, scratch: &Scratch) -> std::result::Result<Hydra, String> {
    let program = installed("mpiexec.hydra").ok_or("it is not installed")?;
    installed("nsenter").ok_or("nsenter is not installed, with which it gets into the nodes")?;
    if plan.user_namespace {
        return Err("only root can get from one node of a testbed into another, as Hydra must".into());
    }
    let script = script(plan, scratch).map_err(|e| e.to_string())?;
    Ok(Hydra { program, script })
}

/// The script gets what ssh would get: options, a host, words for a shell.
fn script(plan: &Plan, scratch: &Scratch) -> Result<PathBuf> {
    let holding = plan.holding()?;
    let doors = scratch.0.join("nodes");
    std::fs::create_dir(&doors).at("create", &doors)?;
    for (index, ((network, _), name)) in holding.networks.iter().zip(&holding.names).enumerate() {
        for (kind, fd) in [("net", network), ("uts", name)] {
            let door = doors.join(format!("{}.{kind}", address(index)));
            symlink(format!("/proc/{}/fd/{fd}", holding.pid), &door).at("create", &door)?;
        }
    }
    let script = scratch.0.join("into");
    let doors = doors.display();
    let text = format!(
        "#!/bin/sh\nwhile case $1 in -*) ;; *) false ;; esac; do shift; done\nnode=$1\nshift\n\
         eval \"exec nsenter --net='{doors}/'$node.net --uts='{doors}/'$node.uts $*\"\n"
    );
    std::fs::write(&script, text).at("write", &script)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).at("make executable", &script)?;
    Ok(script)
}

impl Hydra {
    /// `mpiexec` as at the first node: the proxies of all nodes connect to it there.
    pub fn command(&self, plan: &Plan, nodes: usize, ranks: usize, words: &[&str]) -> Result<Command> {
        let hosts: Vec<String> = (0..nodes).map(address).collect();
        let mut command = entry::command(plan, "n1", &self.program.clone().into())?;
        command.args(["-launcher", "ssh", "-launcher-exec"]).arg(&self.script);
        command.args(["-localhost", &address(0), "-hosts", &hosts.join(",")]);
        command.args(["-n", &ranks.to_string(), "-ppn", &ranks.div_ceil(nodes).to_string()]).args(words);
        Ok(command)
    }

    /// What the script costs, which is no doing of Hydra's: `true` at another node.
    pub fn script(&self, plan: &Plan) -> Result<Spread> {
        let last = address(plan.shape.nodes - 1);
        let one = || {
            let mut command = entry::command(plan, "n1", &self.script.clone().into())?;
            command.args(["-x", &last, "true"]);
            Ok(timed(command, "the launcher script")?.took)
        };
        Ok(Spread::of(&(0..20).map(|_| one()).collect::<Result<Vec<_>>>()?))
    }
}
