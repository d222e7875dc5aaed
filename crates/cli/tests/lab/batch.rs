//! Batch jobs, as tests submit them.

use super::{Daemon, Lab, ok};
use pando_node::queue::ask::Past;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `pando WORDS` at a node, in a directory.
pub fn cli(node: &Daemon, dir: &Path, words: &[&str]) -> Command {
    let mut command = node.cli(words);
    command.current_dir(dir);
    command
}

/// The number of the job that was made.
pub fn submit(node: &Daemon, dir: &Path, words: &[&str]) -> String {
    let said = ok(&mut cli(node, dir, &[&["submit", "--parsable"], words].concat()));
    said.trim().to_owned()
}

/// What has ended.
pub fn history(node: &Daemon, dir: &Path) -> Vec<Past> {
    serde_json::from_str(&ok(&mut cli(node, dir, &["history", "--json"]))).unwrap()
}

/// A directory of its own for a test's jobs.
pub fn place(lab: &Lab, name: &str) -> PathBuf {
    let dir = lab.nodes[0].state.parent().unwrap().join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// A directory to work in, and one with all names of the binary.
pub struct Place {
    pub dir: PathBuf,
    pub bin: PathBuf,
}

impl Place {
    pub fn new(lab: &Lab) -> Place {
        let dir = lab.dir.join("work");
        let bin = dir.join("bin");
        fs::create_dir_all(&bin).unwrap();
        let exe = lab.nodes[0].cli(&[]).get_program().to_owned();
        for name in ["pando", "sbatch", "squeue", "scancel", "srun", "sacct", "sinfo", "salloc", "scontrol", "mpiexec"]
        {
            symlink(&exe, bin.join(name)).unwrap();
        }
        Place { dir, bin }
    }

    /// A command by one of its names, at a node.
    pub fn called(&self, node: &Daemon, name: &str, words: &[&str]) -> Command {
        let like = node.cli(&[]);
        let mut command = Command::new(self.bin.join(name));
        command.args(words).current_dir(&self.dir).stdin(Stdio::null());
        like.get_envs().for_each(|(n, v)| _ = v.map(|v| command.env(n, v)));
        command.env("PATH", format!("{}:/usr/bin:/bin", self.bin.display()));
        command
    }
}
