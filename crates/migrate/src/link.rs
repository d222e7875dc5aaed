//! A helper's line to its node's daemon. The daemon may die and come back; the helper goes on meanwhile.

use crate::control::{Command, Report};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How often a lost daemon is looked for.
const RETRY: Duration = Duration::from_secs(1);
/// Longest line a daemon may send.
const MAX_LINE: usize = 64 * 1024;
/// Reports kept for a daemon that is away.
const MAX_BACKLOG: usize = 256;

/// The line.
pub struct Link {
    path: String,
    socket: Option<UnixStream>,
    input: Vec<u8>,
    tried: Instant,
    hello: Option<Report>,
    state: Option<Report>,
    backlog: Vec<Report>,
}

impl Link {
    /// Connects, or tries again later.
    pub fn new(path: &str) -> Self {
        let mut link = Link {
            path: path.to_string(),
            socket: None,
            input: Vec::new(),
            tried: Instant::now(),
            hello: None,
            state: None,
            backlog: Vec::new(),
        };
        link.connect();
        link
    }

    /// For poll; None while there is no daemon.
    pub fn raw(&self) -> Option<RawFd> {
        self.socket.as_ref().map(AsRawFd::as_raw_fd)
    }

    fn connect(&mut self) {
        self.tried = Instant::now();
        let Ok(socket) = UnixStream::connect(&self.path) else { return };
        // Writes block at most this long: a stalled daemon must not stall a program.
        let _ = socket.set_write_timeout(Some(Duration::from_millis(200)));
        self.socket = Some(socket);
        self.input.clear();
        for report in [self.hello.clone(), self.state.clone()].into_iter().flatten() {
            self.write(&report);
        }
        for report in std::mem::take(&mut self.backlog) {
            self.report(report);
        }
    }

    fn write(&mut self, report: &Report) -> bool {
        let Some(socket) = &mut self.socket else { return false };
        let mut line = serde_json::to_vec(report).unwrap_or_default();
        line.push(b'\n');
        if socket.write_all(&line).is_err() {
            self.socket = None;
            return false;
        }
        true
    }

    /// Says something to the daemon; kept for the next one if there is none now.
    pub fn report(&mut self, report: Report) {
        match &report {
            Report::Hello { .. } => self.hello = Some(report.clone()),
            Report::State { .. } => self.state = Some(report.clone()),
            _ => {}
        }
        let kept = matches!(report, Report::MoveDone { .. } | Report::Done { .. } | Report::Log { .. });
        if !self.write(&report) && kept && self.backlog.len() < MAX_BACKLOG {
            self.backlog.push(report);
        }
    }

    /// Logs a sentence.
    pub fn log(&mut self, level: &str, text: String) {
        self.report(Report::Log { level: level.into(), text });
    }

    /// Commands that have arrived. Also looks for a daemon that went away.
    pub fn commands(&mut self) -> Vec<Command> {
        if self.socket.is_none() && self.tried.elapsed() >= RETRY {
            self.connect();
        }
        let Some(socket) = &mut self.socket else { return Vec::new() };
        let _ = socket.set_nonblocking(true);
        let mut buf = [0u8; 4096];
        let mut lost = false;
        loop {
            match socket.read(&mut buf) {
                Ok(0) => lost = true,
                Ok(n) if self.input.len() + n <= MAX_LINE => {
                    self.input.extend_from_slice(&buf[..n]);
                    continue;
                }
                Ok(_) => lost = true,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => lost = true,
            }
            break;
        }
        let _ = socket.set_nonblocking(false);
        if lost {
            self.socket = None;
        }
        let mut out = Vec::new();
        while let Some(end) = self.input.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            if let Ok(command) = serde_json::from_slice(&line) {
                out.push(command);
            }
        }
        out
    }
}
