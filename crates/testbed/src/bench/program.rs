//! A program that the benchmark started at a node and talks to by lines.

use crate::entry;
use crate::error::{Context, Error, Result};
use crate::place::Plan;
use crate::sys;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program; killed when dropped.
pub struct Program {
    child: Child,
    input: Option<File>,
    output: File,
    heard: Vec<u8>,
}

impl Program {
    /// Starts `pando WORDS` at a node and waits until it says `ready`.
    pub fn at(plan: &Plan, node: &str, words: &[&str]) -> Result<Program> {
        Self::start(entry::command(plan, node, &"pando".into())?, words)
    }

    fn start(mut command: Command, words: &[&str]) -> Result<Program> {
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context(format!("start {}", words.join(" ")))?;
        let input = child.stdin.take().map(|i| File::from(OwnedFd::from(i)));
        let output = child.stdout.take().map(|o| File::from(OwnedFd::from(o)));
        let output = output.ok_or_else(|| Error::Other("no pipe".into()))?;
        let mut program = Program { child, input, output, heard: Vec::new() };
        match program.line()?.as_str() {
            "ready" => Ok(program),
            other => Err(Error::Other(format!("{} said `{other}`", words.join(" ")))),
        }
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line.
    pub fn send(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().ok_or_else(|| Error::Other("its input is closed".into()))?;
        input.write_all(format!("{line}\n").as_bytes()).context(format!("ask for {line}"))
    }

    /// Sends a line and reads the answer as JSON.
    pub fn ask(&mut self, line: &str) -> Result<serde_json::Value> {
        self.send(line)?;
        let answer = self.line()?;
        serde_json::from_str(&answer).map_err(|_| Error::Other(format!("`{line}` was answered by `{answer}`")))
    }

    /// Sends a line; the number `key` of the answer.
    pub fn number(&mut self, line: &str, key: &str) -> Result<f64> {
        self.send(line)?;
        self.number_of_line(key)
    }

    /// The number `key` of the next line.
    pub fn number_of_line(&mut self, key: &str) -> Result<f64> {
        let line = self.line()?;
        let value: Option<serde_json::Value> = serde_json::from_str(&line).ok();
        value.and_then(|v| v[key].as_f64()).ok_or_else(|| Error::Other(format!("it said `{line}`")))
    }

    /// Forgets what it has said until now: all whole lines that are in the pipe.
    pub fn forget(&mut self) -> Result<()> {
        while sys::poll(&[self.output.as_raw_fd()], Some(Duration::ZERO)).context("look for an answer")?[0] {
            self.heard.clear();
            self.hear()?;
        }
        let end = self.heard.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.heard.drain(..end);
        Ok(())
    }

    fn hear(&mut self) -> Result<()> {
        let mut buffer = [0; 65536];
        let got = self.output.read(&mut buffer).context("read an answer")?;
        if got == 0 {
            let status = self.child.wait().context("wait for its end")?;
            return Err(Error::Other(format!("process {} ended: {status}", self.pid())));
        }
        self.heard.extend_from_slice(&buffer[..got]);
        Ok(())
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(end) = self.heard.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim().to_string());
            }
            if sys::interrupted().is_some() {
                return Err(Error::Interrupted);
            }
            if Instant::now() > deadline {
                let what = format!("an answer of process {}", self.pid());
                return Err(Error::Late { what, seconds: PATIENCE.as_secs(), detail: String::new() });
            }
            let step = Some(Duration::from_millis(200));
            if sys::poll(&[self.output.as_raw_fd()], step).context("wait for an answer")?[0] {
                self.hear()?;
            }
        }
    }

    /// Closes its input and expects a last line and a good end.
    pub fn finish(mut self, last: &str) -> Result<()> {
        self.input = None;
        let line = self.line()?;
        let status = self.child.wait().context("wait for its end")?;
        if line == last && status.success() {
            return Ok(());
        }
        Err(Error::Other(format!("it said `{line}` and ended with {status}")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
