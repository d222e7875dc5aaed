//! The engine socket: helpers connect, say who they are, report, and get commands. A helper outlives its daemon
//! and says hello to the next one, so nothing here assumes that we started it.

use crate::daemon::Node;
use crate::engine::Failure;
use crate::owner::{Facts, clean, exists};
use crate::processes::{Arrival, Key, Progress, Totals};
use crate::queue::batch;
use crate::sys;
use crate::views::Event;
use pando_migrate::control::{Command, MoveRecord, Report};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// Longest line of a helper.
const MAX_LINE: usize = 64 * 1024;
/// Commands that may wait for one helper.
const MAX_WAITING: usize = 16;
/// A helper takes a command within this.
const PATIENCE: Duration = Duration::from_secs(5);

/// Accepts helpers until the daemon ends.
pub async fn serve(node: Arc<Node>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(talk(node.clone(), stream));
            }
            Err(e) => {
                tracing::error!("the engine socket: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// A helper that said hello.
struct Helper {
    role: String,
    key: Key,
    pid: u32,
}

impl std::fmt::Display for Helper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the {} (pid {}) of process {} of {}", self.role, self.pid, self.key.1, self.key.0)
    }
}

async fn talk(node: Arc<Node>, stream: UnixStream) {
    let me = sys::effective_uid();
    match stream.peer_cred() {
        Ok(cred) if cred.uid() == me || cred.uid() == 0 => {}
        other => return tracing::warn!("the engine socket: refused {other:?}"),
    }
    let (reader, writer) = stream.into_split();
    let mut lines = Lines { reader, buffer: Vec::new() };
    let Some(helper) = meet(&node, &mut lines).await else {
        return;
    };
    let (orders, queue) = mpsc::channel(MAX_WAITING);
    let Some(id) = node.engine.enter(&helper.role, &helper.key, orders) else {
        return tracing::error!("engine: too many helpers; {helper} was turned away");
    };
    if helper.role == "guest" {
        node.slots.proved(helper.pid);
        node.balancing.arrived(&helper.key);
    }
    tracing::info!("engine: here is {helper}");
    let end = converse(&node, &helper, lines, writer, queue).await;
    node.table().disconnected(&helper.key, helper.pid);
    match end {
        Ok(true) => {}
        Ok(false) if exists(helper.pid) => {
            tracing::warn!("engine: {helper} hung up; it may come again")
        }
        Ok(false) => tracing::warn!("engine: {helper} is gone without a word"),
        Err(e) => tracing::warn!("engine: {helper}: {e}"),
    }
    node.engine.leave(id);
}

/// A helper says hello when the target has made a place, or why not, and each of the steps to there has its limit.
fn hello_within(node: &Node) -> Duration {
    let limits = &node.config.limits;
    PATIENCE + Duration::from_millis(limits.connect_ms + limits.prepare_ms + limits.freeze_ms)
}

/// Reads up to the hello. A helper that fails early has none: it only says why.
async fn meet(node: &Arc<Node>, lines: &mut Lines) -> Option<Helper> {
    loop {
        let report = match tokio::time::timeout(hello_within(node), lines.next()).await {
            Ok(Ok(Some(report))) => report,
            Ok(Ok(None)) => return None,
            other => {
                tracing::warn!("the engine socket: a connection that says no hello: {other:?}");
                return None;
            }
        };
        match report {
            Report::Hello { role, helper, pid, home, uid, command, body } => {
                let local = home == node.name();
                let start_time = if local { Facts::read(pid).map_or(0, |f| f.start_time) } else { 0 };
                let key = (home, pid);
                let command = clean(&command);
                let arrival = Arrival { key: key.clone(), uid, command, helper, start_time, body };
                node.table().arrived(arrival);
                return Some(Helper { role, key, pid: helper });
            }
            Report::MoveDone { request, pid, result } => {
                let key = node.table().local(pid);
                move_done(node, &key, request, result);
            }
            Report::Log { level, text } => log("a helper", &level, &text),
            Report::Done { pid, outcome, detail } => {
                tracing::info!("engine: process {pid}: {outcome}: {}", clean(&detail));
            }
            Report::State { .. } | Report::Waits { .. } => tracing::warn!("engine: a state before hello"),
        }
    }
}

/// Until the connection ends; true if the helper said that it would.
async fn converse(
    node: &Arc<Node>,
    helper: &Helper,
    mut lines: Lines,
    mut writer: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Command>,
) -> io::Result<bool> {
    let mut done = false;
    loop {
        tokio::select! {
            line = lines.next() => match line {
                Ok(Some(report)) => done |= heed(node, helper, report),
                Ok(None) => return Ok(done),
                Err(_) if done => return Ok(done),
                Err(e) => return Err(e),
            },
            Some(command) = queue.recv() => {
                let mut text = serde_json::to_vec(&command)?;
                text.push(b'\n');
                let sent = tokio::time::timeout(PATIENCE, writer.write_all(&text)).await;
                match sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                    Err(_) if done => return Ok(done),
                    other => other?,
                }
            }
        }
    }
}

/// Acts on a report; true if it was the last.
fn heed(node: &Arc<Node>, helper: &Helper, report: Report) -> bool {
    let key = &helper.key;
    match report {
        Report::Hello { .. } => tracing::warn!("engine: a second hello of {helper}"),
        Report::State {
            place, phase, stopped, calls, pulled, pushed, found, cpu_abroad_ms, cpu_by_node, io, ..
        } => {
            let counters = [calls, pulled, pushed, cpu_abroad_ms];
            let counted = Totals { counters, found, cpu_by_node, io };
            node.table().progress(key, Progress { place, phase, stopped, counted });
            if helper.role == "deputy" {
                let cpu_ms = node.table().get(key).map_or(0, |known| known.view.cpu_abroad_ms);
                batch::away::counts(node, key.1, cpu_ms);
            }
        }
        Report::MoveDone { request, result, .. } => move_done(node, key, request, result),
        Report::Waits { waits, .. } => {
            let started = Facts::read(key.1).map_or(0, |f| f.start_time);
            node.engine.keep_waits(key.1, started, waits);
        }
        Report::Done { outcome, detail, .. } => {
            let kind = if outcome == "lost" { "lost" } else { "process" };
            let uid = node.table().get(key).map(|k| k.view.uid);
            let detail = clean(&detail);
            let text = match detail.starts_with("process ") || detail.starts_with("guest ") {
                true => format!("{detail} ({outcome})"),
                false => format!("process {} of {}: {detail} ({outcome})", key.1, key.0),
            };
            let from = node.table().get(key).map(|k| k.view.place.clone());
            if helper.role == "deputy" && matches!(outcome.as_str(), "lost" | "failed") {
                batch::away::lost(node, key.1, from.as_deref().unwrap_or_default());
            }
            let (pid, home) = (Some(key.1), Some(key.0.clone()));
            // "process 17 (make): it was killed": the rest of the fields say the first half.
            let reason = Some(detail.rsplit_once("): ").map_or(&*detail, |(_, why)| why).to_owned());
            // The move that ended so has been told of.
            if matches!(outcome.as_str(), "home" | "refused") {
                tracing::info!("process: {text}");
            } else {
                node.events.say(Event { uid, pid, home, from, reason, ..Event::new(kind, text) });
            }
            node.table().done(key, &outcome);
            return true;
        }
        Report::Log { level, text } => log(&helper.to_string(), &level, &text),
    }
    false
}

fn move_done(node: &Arc<Node>, key: &Key, request: u64, result: Result<MoveRecord, String>) {
    let uid = node.table().get(key).map(|k| k.view.uid);
    let goal = node.engine.goal(request);
    node.counts.moved(result.as_ref().map_or("other", |r| &r.reason), result.is_ok());
    let event = match &result {
        Ok(r) => {
            let freeze = r.freeze_us as f64 / 1000.0;
            let text =
                format!("process {} went from {} to {} ({}), frozen {freeze:.1} ms", key.1, r.from, r.to, r.reason);
            let (from, to, reason) = (Some(r.from.clone()), Some(r.to.clone()), Some(r.reason.clone()));
            Event { from, to, reason, ..Event::new("move", text) }
        }
        Err(e) => {
            let text = did_not_move(key.1, &clean(e));
            let from = node.table().get(key).map(|k| k.view.place.clone());
            let reason = e.strip_prefix(&format!("process {} can't move: ", key.1)).unwrap_or(e).to_owned();
            Event { from, to: goal.as_ref().map(|g| g.to.clone()), reason: Some(reason), ..Event::new("failed", text) }
        }
    };
    // That one ended before it could be moved is worth no event.
    let follows = goal.is_some_and(|g| g.follows);
    if result.is_ok() || (!follows && exists(key.1)) {
        node.events.say(Event { uid, pid: Some(key.1), home: Some(key.0.clone()), ..event });
    }
    if let Ok(record) = &result {
        node.table().moved(key, record.clone());
        if record.from == node.name() {
            node.balancing.left(key);
        }
    }
    node.engine.answer(request, result.map_err(Failure::Said));
}

/// The engine's sentence may say itself whom it is about.
pub fn did_not_move(pid: u32, why: &str) -> String {
    if why.starts_with(&format!("process {pid} ")) {
        why.to_owned()
    } else {
        format!("process {pid} did not move: {why}")
    }
}

fn log(who: &str, level: &str, text: &str) {
    let text = clean(text);
    match level {
        "error" => tracing::error!("{who}: {text}"),
        "warn" => tracing::warn!("{who}: {text}"),
        _ => tracing::info!("{who}: {text}"),
    }
}

/// Reads lines that have a limit. Cancelling `next` loses nothing.
struct Lines {
    reader: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> io::Result<Option<Report>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(io::Error::other);
            }
            if self.buffer.len() > MAX_LINE {
                return Err(io::Error::other(format!("a line longer than {MAX_LINE} bytes")));
            }
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}
