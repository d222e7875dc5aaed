//! Stepping into a node: its network namespace, its host name, its control groups, its CPU, its environment.

use crate::cgroup;
use crate::error::{Context, Error, Result};
use crate::place::{ENV_DIR, ENV_NAME, ENV_NODE, Plan};
use crate::{seat, sys};
use pando_kernel::affinity;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Everything that is needed to step into a node, opened beforehand: after the first step, `/proc` and the control
/// groups could be out of reach.
pub struct Entry {
    user: Option<File>,
    network: OwnedFd,
    name: OwnedFd,
    doors: Vec<File>,
    cpu: Option<usize>,
}

impl Entry {
    /// For a process outside, through the holder.
    pub fn open(plan: &Plan, node: &str) -> Result<Entry> {
        let index = plan.index(node)?;
        let holding = plan.holding()?;
        let (fd, inode) = holding.networks[index];
        let path = PathBuf::from(format!("/proc/{}/fd/{fd}", holding.pid));
        let network = File::open(&path).at("open the network namespace", &path)?;
        if network.metadata().at("look at", &path)?.ino() != inode {
            return Err(Error::HolderGone(plan.name.clone()));
        }
        let path = PathBuf::from(format!("/proc/{}/fd/{}", holding.pid, holding.names[index]));
        let name = File::open(&path).at("open the UTS namespace", &path)?;
        let user = if plan.user_namespace { user_namespace(holding.pid)? } else { None };
        let cpu = affinity::allowed(holding.pid).ok().and_then(|cpus| seat::of(&plan.shape, index, &cpus));
        Ok(Entry {
            user,
            network: network.into(),
            name: name.into(),
            doors: cgroup::doors(&plan.node_cgroups(node)),
            cpu,
        })
    }

    /// For the holder itself, which has the namespace open and is in the right user namespace.
    pub fn inside(plan: &Plan, node: &str, (network, name): (&OwnedFd, &OwnedFd)) -> Result<Entry> {
        let network = network.try_clone().context("duplicate a namespace descriptor")?;
        let name = name.try_clone().context("duplicate a namespace descriptor")?;
        let cpu = affinity::allowed(0)
            .ok()
            .and_then(|cpus| plan.index(node).ok().and_then(|i| seat::of(&plan.shape, i, &cpus)));
        Ok(Entry { user: None, network, name, doors: cgroup::doors(&plan.node_cgroups(node)), cpu })
    }

    /// Steps in, for good. Async-signal-safe: allocates nothing, so it may run between fork and exec.
    pub fn step_in(&self) -> io::Result<()> {
        // A door that does not open only costs the limit; `up` has said so.
        self.doors.iter().for_each(|door| drop(cgroup::enter(door)));
        // Where this is not to be had processes of one node get less alike; that is all.
        self.cpu.map(affinity::only).transpose().ok();
        if let Some(user) = &self.user {
            sys::setns(user.as_raw_fd(), libc::CLONE_NEWUSER)?;
        }
        sys::setns(self.network.as_raw_fd(), libc::CLONE_NEWNET)?;
        sys::setns(self.name.as_raw_fd(), libc::CLONE_NEWUTS)
    }

    /// Makes a command start inside.
    pub fn attach(self, command: &mut Command) {
        // SAFETY: step_in makes system calls only.
        unsafe { command.pre_exec(move || self.step_in()) };
    }
}

/// The holder's user namespace, unless we are in it already.
fn user_namespace(holder: u32) -> Result<Option<File>> {
    let path = PathBuf::from(format!("/proc/{holder}/ns/user"));
    let theirs = File::open(&path).at("open the user namespace", &path)?;
    let own = std::fs::metadata("/proc/self/ns/user").context("look at /proc/self/ns/user")?;
    let same = theirs.metadata().at("look at", &path)?.ino() == own.ino();
    Ok(if same { None } else { Some(theirs) })
}

/// The environment of a process at a node. PATH gets the directory of `pando` at its end, so that scripts find it.
pub fn environment(plan: &Plan, node: &str) -> Vec<(&'static str, OsString)> {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin:/usr/sbin:/sbin".into());
    let bin = plan.exe.parent().map(|d| d.as_os_str().to_owned()).unwrap_or_default();
    if !std::env::split_paths(&path).any(|p| p.as_os_str() == bin) {
        path.push(":");
        path.push(bin);
    }
    vec![
        ("PATH", path),
        ("PANDO_SOCKET", plan.socket(node).into()),
        ("PANDO_STATE", plan.state(node).into()),
        (ENV_NAME, plan.name.clone().into()),
        (ENV_DIR, plan.dir.clone().into()),
        (ENV_NODE, node.into()),
    ]
}

/// A command as at `node`. The program `pando` is the one that the testbed runs.
pub fn command(plan: &Plan, node: &str, program: &OsString) -> Result<Command> {
    let entry = Entry::open(plan, node)?;
    let mut command = match program.to_str() {
        Some("pando") => Command::new(&plan.exe),
        _ => Command::new(program),
    };
    command.envs(environment(plan, node));
    entry.attach(&mut command);
    Ok(command)
}

/// Runs `pando ARGS` at a node and returns what it printed.
pub fn pando(plan: &Plan, node: &str, args: &[&str]) -> Result<String> {
    let mut command = command(plan, node, &"pando".into())?;
    let output = command.args(args).stdin(std::process::Stdio::null()).output();
    let what = || format!("pando {} (at {node})", args.first().unwrap_or(&""));
    let output: Output = output.context(what())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    let said = if said.is_empty() { output.status.to_string() } else { said };
    Err(Error::Command { what: what(), said })
}

/// `testbed exec`: becomes the command. Same pid, same terminal, so signals and job control just work.
pub fn exec(plan: &Plan, node: &str, command: &[OsString]) -> Result<i32> {
    let entry = Entry::open(plan, node)?;
    entry.step_in().map_err(|source| Error::Io { what: format!("step into {node}{}", hint(plan)), source })?;
    let mut all = Command::new(if command[0] == "pando" { plan.exe.clone().into() } else { command[0].clone() });
    all.args(&command[1..]).envs(environment(plan, node));
    pando_kernel::standard::hand_on_closed();
    let source = all.exec();
    let missing = source.kind() == io::ErrorKind::NotFound;
    eprintln!("pando: cannot run {}: {source}", command[0].to_string_lossy());
    Ok(if missing { 127 } else { 126 })
}

fn hint(plan: &Plan) -> &'static str {
    if plan.user_namespace {
        " (an ordinary user can do this only from outside the testbed)"
    } else {
        " (only root can, for a testbed that root brought up)"
    }
}
