//! Nodes in personal mode: those of an ordinary user, whoever runs the test.

use super::{ok, pando, until};
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static HOMES: AtomicU32 = AtomicU32::new(0);

/// The user's home, gone with the value.
pub struct Home {
    pub dir: PathBuf,
    /// Who that is, if it is not who runs the test.
    user: Option<u32>,
}

/// One of the user's nodes, ended with the value.
pub struct Personal {
    pub name: String,
    pub state: PathBuf,
    home: PathBuf,
    user: Option<u32>,
    child: Option<Child>,
}

impl Home {
    pub fn new() -> Home {
        let number = HOMES.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("pando-home-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let user = (pando_node::sys::effective_uid() == 0).then_some(65534);
        chown(&dir, user, user).unwrap();
        Home { dir, user }
    }

    /// A program of the user's.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        as_user(Command::new(program), self.user)
    }

    /// A cluster of one node. None, said aloud, where the user can't run the program.
    pub fn node(&self, test: &str, name: &str) -> Option<Personal> {
        let (state, home) = (self.dir.join(name), self.dir.clone());
        let mut node = Personal { name: name.into(), state, home, user: self.user, child: None };
        if let Err(e) = node.cli(&["--version"]).output() {
            eprintln!("SKIPPED {test}: an ordinary user can't run the program here: {e}");
            return None;
        }
        ok(&mut node.cli(&["init", "--name", name]));
        let mut daemon = node.cli(&["node", "--listen", "127.0.0.1:0"]);
        node.child = Some(daemon.stderr(Stdio::null()).spawn().unwrap());
        until("an answer", || node.cli(&["nodes"]).output().unwrap().status.success().then_some(()));
        Some(node)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn as_user(mut command: Command, user: Option<u32>) -> Command {
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

impl Personal {
    pub fn cli(&self, words: &[&str]) -> Command {
        let mut command = as_user(pando(), self.user);
        command.args(words).env("PANDO_STATE", &self.state).env("XDG_RUNTIME_DIR", &self.home).env("HOME", &self.home);
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME").current_dir(&self.home);
        command
    }
}

impl Drop for Personal {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
