//! Starts the engine's helpers: in a session of their own, with nothing of the daemon's but what they are
//! given, so that they outlive it and no secret leaks into them.

use crate::daemon::Node;
use crate::sys;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

/// Starts `pando ROLE` with `order` on its standard input, and `connection` as descriptor 3.
pub async fn spawn(node: &Node, role: &str, order: &impl Serialize, connection: Option<OwnedFd>) -> io::Result<Child> {
    let mut command = prepared(node, role)?;
    command.stdin(Stdio::piped());
    sys::prepare_helper(command.as_std_mut(), connection.as_ref().map(AsRawFd::as_raw_fd));
    let mut child = command.spawn()?;
    drop(connection);
    let text = serde_json::to_vec(order).map_err(io::Error::other)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that died before it read its order is found by whoever waits for it.
        let _ = stdin.write_all(&text).await;
    }
    Ok(child)
}

/// `pando ROLE`, with a log and little of our environment.
fn prepared(node: &Node, role: &str) -> io::Result<Command> {
    let program = node.config.engine_program.clone().unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let file = node.place.state.join("helpers.log");
    let complaints = File::options().create(true).append(true).mode(0o600).open(file)?;
    let mut command = Command::new(program);
    command.arg0("pando").arg(role).env_clear().current_dir("/").kill_on_drop(false);
    command.envs(std::env::vars_os().filter(|(name, _)| keeps(&name.to_string_lossy())));
    command.stdout(complaints.try_clone()?).stderr(complaints);
    Ok(command)
}

/// Starts what becomes the launchers of jobs, which finds the daemon on its standard input.
pub fn spawn_starter(node: &Node, daemon: OwnedFd) -> io::Result<Child> {
    let mut command = prepared(node, "__starter")?;
    command.stdin(Stdio::from(daemon));
    sys::prepare_helper(command.as_std_mut(), None);
    command.spawn()
}

/// Environment that a helper may see: what makes it find things and speak, nothing of the administrator's.
fn keeps(name: &str) -> bool {
    matches!(name, "PATH" | "LANG" | "TMPDIR" | "RUST_BACKTRACE") || name.starts_with("PANDO_")
}
