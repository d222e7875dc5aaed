//! Where a testbed keeps its files, and what they say.
//!
//! A testbed is a directory `BASE/NAME`. `testbed.json` (the plan) is written before anything else is made, so
//! that `down` knows about everything that may exist after a crash at any point; `holder.json` is written by the
//! holder once the namespaces are there.

use crate::error::{Context, Error, Result};
use crate::{processes, sys};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of a testbed that was given none.
pub const DEFAULT_NAME: &str = "default";
/// Names the testbed of a process (in its environment).
pub const ENV_NAME: &str = "PANDO_TESTBED";
/// Names the testbed's directory; `down` finds what belongs to it by this.
pub const ENV_DIR: &str = "PANDO_TESTBED_DIR";
/// Names the node at which a process was started.
pub const ENV_NODE: &str = "PANDO_TESTBED_NODE";

/// What a testbed is to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// How many nodes.
    pub nodes: usize,
    /// CPUs of each node, over and over; none: no limit.
    #[serde(default)]
    pub cpus: Vec<f64>,
    /// CPUs that each node counts on where they are not limited: all of them share this machine.
    #[serde(default)]
    pub counts_on: Option<f64>,
    /// Each node has one CPU of this machine for gangs, one after the other.
    #[serde(default)]
    pub pin: bool,
    /// Bytes of memory per node.
    pub memory: Option<u64>,
    /// One-way delay between two nodes, milliseconds.
    pub delay_ms: Option<f64>,
    /// Speed of each node's line, Mbit/s.
    pub rate_mbit: Option<f64>,
    /// Its nodes move nothing by themselves.
    #[serde(default)]
    pub still: bool,
    /// A file with more of every node's configuration.
    #[serde(default)]
    pub config: Option<PathBuf>,
}

/// The plan: `testbed.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The testbed's name.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// What was asked for.
    pub shape: Shape,
    /// The program that nodes run.
    pub exe: PathBuf,
    /// Who brought it up: pid and start time.
    pub owner: (u32, u64),
    /// Take everything down when the owner ends (the demo and the benchmark want that).
    pub tied: bool,
    /// Whether everything is in a user namespace of its own.
    pub user_namespace: bool,
    /// Control group directories, one per hierarchy; each node has one below, by its name.
    pub cgroups: Vec<PathBuf>,
    /// The cluster was formed.
    pub formed: bool,
    /// A directory that goes with the testbed.
    pub scratch: Option<PathBuf>,
}

/// What the holder keeps: `holder.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Holding {
    /// The holder's pid.
    pub pid: u32,
    /// Its start time, so that a reused pid is not taken for it.
    pub start_time: u64,
    /// For each node the holder's descriptor of its network namespace, and that namespace's inode.
    pub networks: Vec<(i32, u64)>,
    /// For each node the holder's descriptor of the namespace with its host name.
    pub names: Vec<i32>,
}

/// The port on which every node listens, in its own network namespace.
pub const PORT: u16 = 7400;

impl Shape {
    /// CPUs of node `index` (from 0), if they are limited.
    pub fn cpus_of(&self, index: usize) -> Option<f64> {
        self.cpus.get(index % self.cpus.len().max(1)).copied()
    }
}

impl Plan {
    /// Names of the nodes.
    pub fn nodes(&self) -> Vec<String> {
        (1..=self.shape.nodes).map(|i| format!("n{i}")).collect()
    }

    /// Index of a node by name, from 0.
    pub fn index(&self, node: &str) -> Result<usize> {
        self.nodes().iter().position(|n| n == node).ok_or_else(|| Error::NoNode {
            testbed: self.name.clone(),
            node: node.to_string(),
            has: format!("n1 to n{}", self.shape.nodes),
        })
    }

    /// A node's directory.
    pub fn node_dir(&self, node: &str) -> PathBuf {
        self.dir.join(node)
    }

    /// A node's state directory (`PANDO_STATE`).
    pub fn state(&self, node: &str) -> PathBuf {
        self.node_dir(node).join("state")
    }

    /// A node's API socket (`PANDO_SOCKET`).
    pub fn socket(&self, node: &str) -> PathBuf {
        self.node_dir(node).join("pando.sock")
    }

    /// A node's configuration file.
    pub fn config(&self, node: &str) -> PathBuf {
        self.node_dir(node).join("pando.toml")
    }

    /// Where a node's daemon writes what it logs.
    pub fn log(&self, node: &str) -> PathBuf {
        self.node_dir(node).join("log")
    }

    /// The control groups of a node.
    pub fn node_cgroups(&self, node: &str) -> Vec<PathBuf> {
        self.cgroups.iter().map(|c| c.join(node)).collect()
    }

    /// Reads the plan of a testbed.
    pub fn load(name: &str) -> Result<Plan> {
        let dir = trusted_base()?.join(check_name(name)?);
        let path = dir.join("testbed.json");
        let text = match std::fs::read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::NotUp(name.to_string()));
            }
            other => other.at("read", &path)?,
        };
        serde_json::from_slice(&text).map_err(|source| Error::Record { path, name: name.to_string(), source })
    }

    /// Writes the plan.
    pub fn save(&self) -> Result<()> {
        write_json(&self.dir.join("testbed.json"), self)
    }

    /// What the holder wrote, if the holder is alive.
    pub fn holding(&self) -> Result<Holding> {
        let gone = || Error::HolderGone(self.name.clone());
        let path = self.dir.join("holder.json");
        let text = std::fs::read(&path).map_err(|_| gone())?;
        let holding: Holding =
            serde_json::from_slice(&text).map_err(|source| Error::Record { path, name: self.name.clone(), source })?;
        if processes::start_time(holding.pid) == Some(holding.start_time) { Ok(holding) } else { Err(gone()) }
    }
}

/// Writes a file at once: a reader sees the old one or the whole new one.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let text = serde_json::to_vec_pretty(value).map_err(|e| Error::Other(format!("{}: {e}", path.display())))?;
    let aside = path.with_extension("new");
    std::fs::write(&aside, text).at("write", &aside)?;
    std::fs::rename(&aside, path).at("rename to", path)
}

/// The directory of all testbeds of this user.
pub fn base() -> PathBuf {
    if sys::is_root() {
        return PathBuf::from("/run/pando-testbed");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(dir) if dir.is_dir() => dir.join("pando-testbed"),
        _ => std::env::temp_dir().join(format!("pando-testbed-{}", sys::euid())),
    }
}

/// The same, if nobody else could have put something there: a plan names programs that we run.
pub fn trusted_base() -> Result<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let base = base();
    match std::fs::symlink_metadata(&base) {
        Ok(m) if !m.is_dir() || m.uid() != sys::euid() || m.mode() & 0o022 != 0 => Err(Error::Other(format!(
            "{} belongs to somebody else or others may write to it: it is not used",
            base.display()
        ))),
        _ => Ok(base),
    }
}

/// A name becomes a directory and a part of a socket's path, which may be 107 bytes long in all.
pub fn check_name(name: &str) -> Result<&str> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 32 || !name.chars().all(good) {
        return Err(Error::Usage(format!(
            "`{name}` is no good name for a testbed: at most 32 letters, digits, - and _"
        )));
    }
    Ok(name)
}

/// The address of node `index` (from 0). Private, and only inside the testbed's own namespaces.
pub fn address(index: usize) -> String {
    format!("10.77.{}.{}", index / 250, index % 250 + 1)
}

/// Names of the testbeds that have a directory.
pub fn existing() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(base()) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|e| e.path().is_dir())
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|n| check_name(n).is_ok())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for bad in ["", ".", "..", "a/b", "a b", "x".repeat(33).as_str()] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!(check_name("demo-12_b").is_ok());
    }

    #[test]
    fn addresses_stay_in_one_net_and_differ() {
        let all: std::collections::BTreeSet<String> = (0..1000).map(address).collect();
        assert_eq!(all.len(), 1000);
        assert_eq!(address(0), "10.77.0.1");
        assert_eq!(address(250), "10.77.1.1");
    }
}
