//! One command from its start to its end, with the time that took.

use crate::error::{Context, Error, Result};
use crate::sys;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// No job of the benchmark takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nor says more.
const LONGEST: usize = 1 << 20;

/// A command that has ended well.
pub struct Done {
    /// From its start to its end.
    pub took: Duration,
    /// When it ended.
    pub ended: SystemTime,
    /// What it has printed.
    pub out: String,
}

/// Ended when dropped: nothing of us is left when a job hangs.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Runs a command until it ends. A bad end is an error, with what it said.
pub fn timed(command: Command, what: &str) -> Result<Done> {
    timed_within(PATIENCE, command, what)
}

/// The same for what may take longer than a job.
pub fn timed_within(patience: Duration, mut command: Command, what: &str) -> Result<Done> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = Running(command.spawn().context(format!("start {what}"))?);
    // Nothing comes and it does not end, as at a terminal. An end of input, passed on to ranks that have ended, is what mpiexec may die of.
    let _input = child.0.stdin.take();
    let out = child.0.stdout.take().map(OwnedFd::from);
    let err = child.0.stderr.take().map(OwnedFd::from);
    let mut pipes: Vec<(std::fs::File, Vec<u8>)> = Vec::new();
    pipes.extend([out, err].into_iter().flatten().map(|fd| (fd.into(), Vec::new())));
    let mut open = vec![true; pipes.len()];
    while open.iter().any(|open| *open) {
        if sys::interrupted().is_some() {
            return Err(Error::Interrupted);
        }
        if start.elapsed() > patience {
            let detail = pipes.last().map_or(String::new(), |(_, said)| last_line(said));
            return Err(Error::Late { what: format!("the end of {what}"), seconds: patience.as_secs(), detail });
        }
        let which: Vec<usize> = (0..pipes.len()).filter(|i| open[*i]).collect();
        let fds: Vec<RawFd> = which.iter().map(|i| pipes[*i].0.as_raw_fd()).collect();
        let ready = sys::poll(&fds, Some(Duration::from_millis(200))).context("wait for a command")?;
        for (i, _) in which.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            let mut buffer = [0; 16384];
            let (pipe, said) = &mut pipes[i];
            let got = pipe.read(&mut buffer).context("read what a command says")?;
            open[i] = got > 0;
            said.extend_from_slice(&buffer[..got.min(LONGEST - said.len().min(LONGEST))]);
        }
    }
    let status = child.0.wait().context(format!("wait for {what}"))?;
    let (took, ended) = (start.elapsed(), SystemTime::now());
    let mut said = pipes.into_iter().map(|(_, said)| said);
    let (out, err) = (said.next().unwrap_or_default(), said.next().unwrap_or_default());
    if !status.success() {
        return Err(Error::Command { what: what.into(), said: format!("{status}{}", last_line(&err)) });
    }
    Ok(Done { took, ended, out: String::from_utf8_lossy(&out).into_owned() })
}

fn last_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    text.trim().lines().last().map_or(String::new(), |line| format!(": {line}"))
}

/// Where a program is.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Result<Done> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        timed(command, "sh")
    }

    #[test]
    fn what_it_prints_and_how_it_fails() {
        assert_eq!(sh("echo a; echo b >&2; echo c").unwrap().out, "a\nc\n");
        let said = sh("echo x; echo why >&2; exit 3").err().unwrap().to_string();
        assert!(said.contains("status: 3") && said.ends_with(": why"), "{said}");
    }

    #[test]
    fn programs_are_found_or_not() {
        assert!(installed("sh").is_some() && installed("no-such-program-of-anybody").is_none());
    }
}
