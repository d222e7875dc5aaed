//! Bringing a testbed up.

use crate::error::{Context, Error, Result};
use crate::holder::{self, Ask};
use crate::place::{Plan, Shape, base, check_name, trusted_base};
use crate::{cgroup, cluster, down, network, processes, sys};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Brings a testbed up: processes, namespaces, groups, the cluster. What was made is taken away again when it fails.
/// With `tied` the testbed ends with the calling process, however that ends.
pub fn up(name: &str, shape: Shape, tied: bool, scratch: Option<&Path>) -> Result<Plan> {
    network::check_installed(shape.rate_mbit.is_some())?;
    let mut plan = plan(name, shape, tied, scratch)?;
    match bring_up(&mut plan) {
        Ok(()) => Ok(plan),
        Err(e) => {
            let signal = sys::interrupted();
            sys::clear_interrupt();
            if let Err(left) = down::down(name) {
                eprintln!("pando testbed: while taking it away again: {left}");
            }
            Err(if signal.is_some() { Error::Interrupted } else { e })
        }
    }
}

fn plan(name: &str, shape: Shape, tied: bool, scratch: Option<&Path>) -> Result<Plan> {
    // Others may look: with root's testbed, ordinary users at a node reach their daemon's socket.
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(base()).at("create", &base())?;
    let base = trusted_base()?;
    let dir = base.join(check_name(name)?);
    match std::fs::create_dir(&dir) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Error::Exists(name.to_string()));
        }
        other => other.at("create", &dir)?,
    }
    let exe = std::env::current_exe().context("find our own program")?;
    // A program that was built again while it runs.
    let exe = PathBuf::from(exe.to_string_lossy().trim_end_matches(" (deleted)"));
    let sites = cgroup::sites(&shape);
    if !sites.missing.is_empty() {
        let what = sites.missing.join(" and ");
        eprintln!("pando testbed: no control group with {what} can be had here: that limit is not in force");
    }
    let pid = std::process::id();
    let plan = Plan {
        cgroups: sites.parents.iter().map(|p| p.join(format!("pando-testbed-{name}"))).collect(),
        name: name.to_string(),
        dir,
        shape,
        exe,
        owner: (pid, processes::start_time(pid).unwrap_or(0)),
        tied,
        user_namespace: !sys::is_root(),
        formed: false,
        scratch: scratch.map(Path::to_path_buf),
    };
    plan.save()?;
    Ok(plan)
}

/// A node's configuration: its load is that of its own control group, not of the whole machine. The file is there
/// for the user too: what is changed in it counts from the next `kill --daemon` and `start` on.
fn configure(plan: &Plan, index: usize, node: &str) -> Result<()> {
    // All run on this machine, however busy it is while it is measured.
    let mut text = String::from("[load]\nspeed = 1.0\n");
    if let Some(group) = plan.node_cgroups(node).first() {
        text += &format!("cgroup = {}\n", serde_json::Value::from(group.to_string_lossy()));
    }
    let of_memory = |group: &&PathBuf| group.components().any(|c| c.as_os_str() == "memory");
    if let Some(group) = plan.node_cgroups(node).iter().find(of_memory) {
        text += &format!("memory_cgroup = {}\n", serde_json::Value::from(group.to_string_lossy()));
    }
    let pinned = plan.shape.pin.then_some(1.0);
    if let Some(cpus) = plan.shape.cpus_of(index).or(plan.shape.counts_on).or(pinned) {
        text += &format!("cpus = {cpus:?}\n");
    }
    if plan.shape.still {
        text += "[balance]\nevery_ms = 0\n";
    }
    let more = match &plan.shape.config {
        Some(more) => std::fs::read_to_string(more).at("read", more)?,
        None => String::new(),
    };
    // All nodes have the same root.
    if !more.contains("[jobs]") {
        text += "[jobs]\nroot = true\n";
    }
    if plan.shape.pin && !more.contains("[gang]") {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        text += &format!("[gang]\ncpus = [{}]\n", index % cpus);
    }
    // Each would take the machine's first CPUs for its batch jobs.
    if !more.contains("[queue]") {
        text += "[queue]\nbind = false\n";
    }
    text += &more;
    let path = plan.config(node);
    std::fs::write(&path, text).at("write", &path)
}

fn bring_up(plan: &mut Plan) -> Result<()> {
    if plan.user_namespace {
        eprintln!("pando testbed: not root: the nodes are in a user namespace of your own (personal mode)");
    }
    for node in plan.nodes() {
        let dir = plan.node_dir(&node);
        std::fs::create_dir(&dir).at("create", &dir)?;
    }
    for (index, node) in plan.nodes().iter().enumerate() {
        configure(plan, index, node)?;
    }
    for failed in cgroup::make(&plan.cgroups, &plan.nodes(), &plan.shape)? {
        eprintln!("pando testbed: a limit is not in force: {failed}");
    }
    holder::start(plan)?;
    cluster::form(plan)?;
    plan.formed = true;
    plan.save()?;
    holder::ask(plan, &Ask::Formed)?;
    if sys::interrupted().is_some() { Err(Error::Interrupted) } else { Ok(()) }
}
