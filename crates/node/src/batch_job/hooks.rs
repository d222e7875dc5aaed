//! What the administrator wants to be done on a batch job's first node before and after it (`[queue] prolog` and `epilog`): with the helper's rights, and with
//! nothing of the user's environment.

use pando_kernel::{rank, signal};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Those of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Hooks {
    /// Before the script.
    pub prolog: Option<PathBuf>,
    /// When nothing is left of the job.
    pub epilog: Option<PathBuf>,
    /// Each is ended after so long.
    pub limit: Duration,
}

/// Runs one to its end. The error is for people. Other children that end meanwhile are taken in, too: this is before the script begins, or when nothing
/// of it is left.
pub async fn run(program: &Path, limit: Duration, variables: &[(String, String)]) -> Result<(), String> {
    let shown = program.display();
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).envs(variables.iter().map(|(name, value)| (name, value)));
    // What it says goes where helpers write.
    let says = std::io::stderr().as_fd().try_clone_to_owned().map_err(|e| e.to_string())?;
    command.stdin(Stdio::null()).stdout(says).process_group(0).current_dir("/");
    let pid = command.spawn().map_err(|e| format!("{shown}: {e}"))?.id() as i32;
    let until = Instant::now() + limit;
    let mut late = false;
    loop {
        while let Some((ended, status)) = rank::collect() {
            if ended == pid {
                return if late { Err(too_long(program, limit)) } else { verdict(program, status) };
            }
        }
        if Instant::now() >= until && !std::mem::replace(&mut late, true) {
            // Its whole group.
            let _ = signal::kill(-pid, libc::SIGKILL);
        }
        sleep(LOOK).await;
    }
}

fn too_long(program: &Path, limit: Duration) -> String {
    format!("{} takes longer than {} s ([queue] hook_s), and was ended", program.display(), limit.as_secs())
}

fn verdict(program: &Path, status: ExitStatus) -> Result<(), String> {
    let shown = program.display();
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(format!("{shown} ended with status {code}")),
        (None, number) => Err(format!("{shown} was ended by signal {}", number.unwrap_or(0))),
    }
}
