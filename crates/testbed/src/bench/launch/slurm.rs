//! Slurm on the nodes of a testbed, for one measurement: munged, slurmctld at the first node and a slurmd at each, with a configuration of their
//! own. All of them run in the nodes' networks, so that what this leaves, its job steps too, ends with the testbed, however the benchmark ends.
//!
//! It is as fast as it can be had: nothing is bound, counted, confined or accounted for, nothing is logged but errors, and the nodes are said to
//! have more CPUs than a job takes, so that no job waits for the end of the one before it. Its daemons do next to nothing between jobs.

use super::command::{installed, timed};
use crate::error::{Context, Error, Result};
use crate::place::{Plan, address};
use crate::scratch::Scratch;
use crate::{entry, sys};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What is called of it, and of the system.
const PROGRAMS: [(&str, &str); 9] = [
    ("munged", "munge"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("srun", "slurm-client"),
    ("salloc", "slurm-client"),
    ("sbcast", "slurm-client"),
    ("sinfo", "slurm-client"),
    ("unshare", "util-linux"),
    ("mount", "mount"),
];
/// Until all nodes are idle: so many daemons start at once on one machine.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(100);
/// Variables of a job in which the benchmark itself may run, which say where and how its commands run.
const FOREIGN: [&str; 5] = ["SLURM", "SRUN_", "SALLOC_", "SBATCH_", "SBCAST_"];

/// Its daemons; ended when dropped.
pub struct Slurm {
    dir: PathBuf,
    daemons: Vec<(String, Child)>,
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for (_, child) in &mut self.daemons {
            drop(child.kill());
        }
        for (_, child) in &mut self.daemons {
            drop(child.wait());
        }
    }
}

/// Why it is not used, if it is not.
pub fn missing(plan: &Plan) -> Option<String> {
    let gone: Vec<_> = PROGRAMS.into_iter().filter(|(program, _)| installed(program).is_none()).collect();
    if let Some((program, package)) = gone.first() {
        return Some(match gone.iter().any(|(program, _)| *program == "srun") {
            true => "it is not installed (on Debian: apt-get install slurm-wlm)".into(),
            false => format!("{program} is not installed (on Debian: apt-get install {package})"),
        });
    }
    plan.user_namespace.then(|| "only root can run its daemons on the nodes of a testbed".into())
}

/// Starts all daemons and waits until all nodes are idle.
pub fn start(plan: &Plan, scratch: &Scratch) -> Result<Slurm> {
    let dir = scratch.0.join("slurm");
    for dir in [&dir, &dir.join("state"), &dir.join("local")] {
        std::fs::create_dir(dir).at("create", dir)?;
        // munged wants its socket where anybody could come to it.
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).at("open to others", dir)?;
    }
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).at("write", &dir.join(name));
    write("slurm.conf", &configuration(&dir, &plan.nodes()))?;
    // Without this file the machine's own would be taken; no plugin that is configured makes any group.
    write("cgroup.conf", "CgroupAutomount=no\n")?;
    make_key(&dir.join("munge.key"))?;
    let mut slurm = Slurm { dir, daemons: Vec::new() };
    slurm.munged(plan)?;
    slurm.daemon(plan, "n1", "slurmctld", &["slurmctld", "-D"])?;
    for node in plan.nodes() {
        slurm.slurmd(plan, &node)?;
    }
    let all = plan.shape.nodes;
    slurm.wait("Slurm's nodes being idle", |slurm| {
        let said = match slurm.at_first(plan, "sinfo")?.args(["-h", "-N", "-o", "%N %T"]).output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(source) => return Err(Error::Io { what: "run sinfo".into(), source }),
        };
        let states = states(&said);
        let text = states.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ");
        let text = if text.is_empty() { "slurmctld does not answer".into() } else { text };
        Ok((states.get("idle") == Some(&all), text))
    })?;
    Ok(slurm)
}

/// A secret of this run.
fn make_key(path: &Path) -> Result<()> {
    let mut key = [0; 128];
    let random = Path::new("/dev/urandom");
    std::fs::File::open(random).and_then(|mut f| f.read_exact(&mut key)).at("read", random)?;
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).at("create", path)?;
    file.write_all(&key).at("write", path)
}

impl Slurm {
    fn munged(&mut self, plan: &Plan) -> Result<()> {
        let file = |name: &str| self.dir.join(name).display().to_string();
        let mut words = vec!["munged".to_string(), "--foreground".into(), format!("--origin={}", address(0))];
        for (option, name) in
            [("key", "munge.key"), ("socket", "munge.sock"), ("pid", "munge.pid"), ("seed", "munge.seed")]
        {
            let option = if option == "socket" { "socket".into() } else { format!("{option}-file") };
            words.push(format!("--{option}={}", file(name)));
        }
        words.push(format!("--log-file={}", file("munge.log")));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.daemon(plan, "n1", "munged", &words)?;
        self.wait("munged's socket", |slurm| Ok((slurm.dir.join("munge.sock").exists(), "it is not there".into())))
    }

    /// The nodes share this machine's files, and `sbcast` writes to the same path at each. So that each writes one of its own a directory of
    /// the node's lies over that path, seen by its slurmd and what that starts.
    fn slurmd(&mut self, plan: &Plan, node: &str) -> Result<()> {
        let own = local(plan, node);
        std::fs::create_dir(&own).at("create", &own)?;
        let (own, shared) = (own.to_string_lossy(), self.dir.join("local"));
        let script = "mount --bind \"$1\" \"$2\" && exec slurmd -D";
        let words = ["unshare", "-m", "sh", "-c", script, "sh", &own, &shared.to_string_lossy()];
        self.daemon(plan, node, &format!("slurmd of {node}"), &words)
    }

    fn daemon(&mut self, plan: &Plan, node: &str, name: &str, words: &[&str]) -> Result<()> {
        let path = said(&self.dir, name);
        let said = std::fs::File::create(&path).at("create", &path)?;
        let mut command = self.at(plan, node, words[0])?;
        command.args(&words[1..]).current_dir("/").stdin(Stdio::null());
        command.stdout(said.try_clone().at("open", &path)?).stderr(said);
        sys::in_new_session(&mut command);
        self.daemons.push((name.into(), command.spawn().context(format!("start {name}"))?));
        Ok(())
    }

    /// Until it is done; not when it takes too long, or a daemon has ended meanwhile.
    fn wait(&mut self, what: &str, mut done: impl FnMut(&Slurm) -> Result<(bool, String)>) -> Result<()> {
        let begun = Instant::now();
        loop {
            let (is_done, detail) = done(self)?;
            if is_done {
                return Ok(());
            }
            if sys::interrupted().is_some() {
                return Err(Error::Interrupted);
            }
            for (name, child) in &mut self.daemons {
                if let Some(status) = child.try_wait().context(format!("look at {name}"))? {
                    let words = std::fs::read_to_string(said(&self.dir, name)).unwrap_or_default();
                    let last = words.trim().lines().last().map_or(String::new(), |line| format!(": {line}"));
                    return Err(Error::Other(format!("{name} has ended ({status}){last}")));
                }
            }
            if begun.elapsed() > PATIENCE {
                let detail = format!(": {detail}");
                return Err(Error::Late { what: what.into(), seconds: PATIENCE.as_secs(), detail });
            }
            std::thread::sleep(STEP);
        }
    }

    /// One of its commands, as at the first node.
    pub fn at_first(&self, plan: &Plan, program: &str) -> Result<Command> {
        self.at(plan, "n1", program)
    }

    fn at(&self, plan: &Plan, node: &str, program: &str) -> Result<Command> {
        let mut command = entry::command(plan, node, &program.into())?;
        for (name, _) in std::env::vars_os() {
            if FOREIGN.iter().any(|foreign| name.to_string_lossy().starts_with(foreign)) {
                command.env_remove(name);
            }
        }
        command.env("SLURM_CONF", self.dir.join("slurm.conf"));
        Ok(command)
    }

    /// `srun` as at the first node.
    pub fn command(&self, plan: &Plan, nodes: usize, ranks: usize, words: &[&str]) -> Result<Command> {
        self.among(plan, nodes, ranks, &[], words)
    }

    /// The same with more options.
    pub fn among(&self, plan: &Plan, nodes: usize, ranks: usize, more: &[&str], words: &[&str]) -> Result<Command> {
        let mut command = self.at_first(plan, "srun")?;
        command.args(["-N", &nodes.to_string(), "-n", &ranks.to_string()]);
        if ranks > nodes {
            command.arg("--overcommit");
        }
        command.args(more).args(words);
        Ok(command)
    }

    /// How long it takes until a program that no node has has run at all of them: `sbcast` and `srun` in one allocation, as a user does it.
    pub fn sent(&self, plan: &Plan, nodes: usize, program: &Path) -> Result<Duration> {
        let name = program.file_name().unwrap_or_default();
        let there = self.dir.join("local").join(name);
        let count = nodes.to_string();
        let mut command = self.at_first(plan, "salloc")?;
        command.args(["-Q", "-N", &count, "-n", &count, "sh", "-c", "sbcast \"$1\" \"$2\" && exec srun \"$2\"", "sh"]);
        command.arg(program).arg(there);
        let took = timed(command, &format!("sbcast and srun on {nodes} nodes"))?.took;
        // Which nodes it took is Slurm's to say. What stays goes with the testbed.
        plan.nodes().iter().for_each(|node| drop(std::fs::remove_file(local(plan, node).join(name))));
        Ok(took)
    }
}

/// What a daemon says.
fn said(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{}.out", name.replace(' ', "-")))
}

/// What a node has at the path to which programs are sent.
fn local(plan: &Plan, node: &str) -> PathBuf {
    plan.node_dir(node).join("slurm")
}

/// All of Slurm's configuration.
fn configuration(dir: &Path, nodes: &[String]) -> String {
    let dir = dir.display();
    let first = nodes.first().map_or("n1", String::as_str);
    let mut text = format!(
        "ClusterName=bench\nSlurmctldHost={first}({})\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={dir}/munge.sock\nCredType=cred/munge\n\
         StateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/spool-%n\n\
         SlurmctldPidFile={dir}/slurmctld.pid\nSlurmdPidFile={dir}/slurmd-%n.pid\n\
         SlurmctldLogFile={dir}/slurmctld.log\nSlurmdLogFile={dir}/slurmd-%n.log\n\
         SlurmctldDebug=error\nSlurmdDebug=error\n\
         TaskPlugin=task/none\nProctrackType=proctrack/linuxproc\nJobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\nSwitchType=switch/none\nMpiDefault=none\n\
         SchedulerType=sched/backfill\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
         SlurmdParameters=config_overrides\nReturnToService=2\n\
         MessageTimeout=60\nSlurmdTimeout=300\nSlurmctldTimeout=300\n",
        address(0)
    );
    for (index, node) in nodes.iter().enumerate() {
        // As many as let some jobs that end overlap with the next one; they are in networks of their own and so have the same ports.
        _ = writeln!(text, "NodeName={node} NodeHostname={node} NodeAddr={} CPUs=16", address(index));
    }
    text + "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
}

/// How many nodes are in each state, from `sinfo -h -N -o '%N %T'`. One that does not answer has a `*` at its state.
fn states(said: &str) -> BTreeMap<&str, usize> {
    let mut states = BTreeMap::new();
    for state in said.lines().filter_map(|line| line.split_whitespace().nth(1)) {
        *states.entry(state).or_default() += 1;
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_name_and_address_and_no_file_is_elsewhere() {
        let text = configuration(Path::new("/tmp/x/slurm"), &["n1".into(), "n2".into()]);
        assert!(text.contains("\nSlurmctldHost=n1(10.77.0.1)\n"), "{text}");
        assert!(text.contains("\nNodeName=n2 NodeHostname=n2 NodeAddr=10.77.0.2 CPUs=16\n"), "{text}");
        assert_eq!(text.matches("NodeName=").count(), 2);
        assert!(text.contains("\nAuthInfo=socket=/tmp/x/slurm/munge.sock\n"), "{text}");
        let files = text.lines().filter_map(|line| line.split_once("=/")).collect::<Vec<_>>();
        assert!(files.len() >= 6 && files.iter().all(|(_, path)| path.starts_with("tmp/x/slurm/")), "{files:?}");
    }

    #[test]
    fn nodes_that_do_not_answer_are_not_idle() {
        let states = states("n1 idle\nn2 idle*\nn3 idle\nn4 unknown*\n\n");
        assert_eq!(states, BTreeMap::from([("idle", 2), ("idle*", 1), ("unknown*", 1)]));
    }
}
