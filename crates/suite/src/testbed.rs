//! A testbed of our own: three nodes, programs at n1, moves by n1's API.

use crate::api;
use crate::evidence;
use crate::mover::{Moved, Mover};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// One node.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// Its API socket.
    pub socket: PathBuf,
    /// Its log.
    pub log: PathBuf,
    /// Its daemon.
    pub pid: Option<u32>,
}

/// A running testbed; gone when dropped, and also when this process dies in any way.
pub struct Testbed {
    /// The program.
    pub pando: PathBuf,
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<NodeInfo>,
    /// Move by the command line instead of the API.
    pub by_command: bool,
    /// Where programs are sent; all nodes if none are named.
    pub places: Vec<String>,
    /// Takes the testbed down when its standard input ends.
    guard: Option<Child>,
}

/// Why there can be no testbed here, if so.
pub fn missing() -> Option<String> {
    let me = std::fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m));
    match me {
        Ok(0) => None,
        _ => Some("moving needs root here: userfaultfd for the guests, namespaces for the testbed".into()),
    }
}

impl Testbed {
    /// Brings up a fresh one of `nodes` nodes; `keep` leaves it there at the end.
    pub fn up(pando: &Path, name: &str, nodes: usize, keep: bool) -> Result<Testbed, String> {
        Testbed::configured(pando, name, nodes, keep, None)
    }

    /// The same with a file that has more of the nodes' configuration.
    pub fn configured(
        pando: &Path,
        name: &str,
        nodes: usize,
        keep: bool,
        config: Option<&Path>,
    ) -> Result<Testbed, String> {
        let mut testbed = Testbed::named(pando, name);
        if !keep {
            let down = "trap '' INT TERM HUP; read x; exec \"$0\" testbed down --name \"$1\"";
            let guard = Command::new("sh")
                .args(["-c", down])
                .arg(pando)
                .arg(name)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            testbed.guard = Some(guard.map_err(|e| format!("sh: {e}"))?);
        }
        let (config, nodes) = (config.map(|c| c.display().to_string()), nodes.to_string());
        let more = config.iter().flat_map(|c| ["--config", c]);
        testbed.pando(&["testbed", "up", &nodes, "--no-balance"].into_iter().chain(more).collect::<Vec<_>>())?;
        testbed.look()?;
        Ok(testbed)
    }

    /// One that is there, and stays there.
    pub fn existing(pando: &Path, name: &str) -> Result<Testbed, String> {
        let mut testbed = Testbed::named(pando, name);
        testbed.look()?;
        Ok(testbed)
    }

    fn named(pando: &Path, name: &str) -> Testbed {
        let (pando, name) = (pando.into(), name.into());
        Testbed { pando, name, nodes: Vec::new(), by_command: false, places: Vec::new(), guard: None }
    }

    /// Runs `pando ARGS --name NAME`; gives its standard output.
    pub fn pando(&self, args: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.pando)
            .args(args)
            .args(["--name", &self.name])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("{}: {e}", self.pando.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("pando {}: {} ({})", args.join(" "), said.trim(), output.status))
    }

    /// Asks for the nodes anew (a daemon that was started again has another pid).
    pub fn look(&mut self) -> Result<(), String> {
        let text = self.pando(&["testbed", "status", "--json"])?;
        let status: Value = serde_json::from_str(&text).map_err(|e| format!("testbed status: {e}: {text}"))?;
        let node = |n: &Value| {
            Some(NodeInfo {
                name: n["name"].as_str()?.into(),
                socket: n["socket"].as_str()?.into(),
                log: n["log"].as_str()?.into(),
                pid: n["pid"].as_u64().map(|p| p as u32),
            })
        };
        let nodes = status["nodes"].as_array().and_then(|all| all.iter().map(node).collect::<Option<Vec<_>>>());
        self.nodes = nodes.filter(|n| !n.is_empty()).ok_or(format!("testbed status makes no sense: {text}"))?;
        Ok(())
    }

    fn by_api(&self, pid: u32, dest: &str, patience: Duration) -> Moved {
        let answer = match api::move_to(&self.nodes[0].socket, pid, dest, patience) {
            Ok(answer) => answer,
            Err(why) => return Moved::Silent(why),
        };
        let record = answer.body.get("record").unwrap_or(&answer.body);
        if answer.status == 200 {
            let freeze = record["freeze_us"].as_u64().unwrap_or(0);
            return Moved::To(record["to"].as_str().unwrap_or(dest).into(), freeze);
        }
        let why = answer.body["error"].as_str().map_or_else(|| answer.body.to_string(), String::from);
        refusal(pid, why)
    }

    fn by_command(&self, pid: u32, dest: &str) -> Moved {
        let output = Command::new(&self.pando)
            .args(["testbed", "exec", "--name", &self.name, "n1", "--"])
            .arg(&self.pando)
            .args(["move", &pid.to_string(), dest])
            .stdin(Stdio::null())
            .output();
        match output {
            Ok(output) if output.status.success() => Moved::To(dest.into(), 0),
            Ok(output) => refusal(pid, String::from_utf8_lossy(&output.stderr).trim().into()),
            Err(e) => Moved::Silent(e.to_string()),
        }
    }
}

/// A refusal of a process that has ended is no refusal.
fn refusal(pid: u32, why: String) -> Moved {
    match crate::processes::read(pid) {
        Some(process) if process.state != 'Z' && process.state != 'X' => Moved::Refused(why),
        _ => Moved::Ended,
    }
}

impl Mover for Testbed {
    fn command(&self, exe: &Path) -> Command {
        let mut command = Command::new(&self.pando);
        command.args(["testbed", "exec", "--name", &self.name, "n1", "--"]).arg(exe);
        command
    }

    fn destinations(&self) -> Vec<String> {
        if !self.places.is_empty() {
            return self.places.clone();
        }
        let others = self.nodes.iter().skip(1).map(|n| n.name.clone());
        others.chain(["home".to_string()]).collect()
    }

    fn move_to(&self, pid: u32, dest: &str, patience: Duration) -> Moved {
        if self.by_command { self.by_command(pid, dest) } else { self.by_api(pid, dest, patience) }
    }

    fn evidence(&self, pid: u32) -> String {
        evidence::of_testbed(pid, &self.nodes)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}
