//! A small client of a node's local API: HTTP and JSON over its Unix socket.
//!
//! Only what the demo and the benchmark need, and only the fields they read, so that the node's answers may grow.

use crate::error::{Context, Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest answer that is read.
const LONGEST: u64 = 16 << 20;

/// One of `GET /v1/processes`: a process that was moved or registered.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Pid at home.
    pub pid: u32,
    /// Home node.
    pub home: String,
    /// Where it is.
    pub place: String,
    /// A phase of docs/engine.md, or `home`.
    pub phase: String,
    /// Pages pushed in the background.
    pub pushed: u64,
    /// CPU time by node, milliseconds.
    pub cpu_by_node: Vec<(String, u64)>,
    /// `home` when the node that answers is its home.
    pub role: String,
    /// The latest moves, oldest first.
    pub records: Vec<Move>,
}

/// One finished move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Move {
    /// From which node.
    pub from: String,
    /// To which node.
    pub to: String,
    /// From the stop to the first instruction at the new place, microseconds.
    pub freeze_us: u64,
    /// From the request to that, microseconds.
    pub total_us: u64,
    /// Why.
    pub reason: String,
}

/// One of `GET /v1/decisions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Decision {
    /// The process.
    pub pid: u32,
    /// What became of it, a sentence.
    pub text: String,
}

/// `GET /v1/decisions`: what the balancer did and did not.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Decisions {
    /// Moves, oldest first.
    pub moves: Vec<Decision>,
    /// Why the others stay.
    pub stays: Vec<Decision>,
}

/// One of `GET /v1/events`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Event {
    /// Counts up.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// `move`, `failed`, `lost` and others.
    pub kind: String,
    /// The sentence.
    pub text: String,
    /// The process.
    pub pid: Option<u32>,
}

/// One of `GET /v1/nodes`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// `up`, `suspect` or `down`.
    pub state: String,
    /// Threads that want to run, smoothed.
    pub runnable: f64,
    /// Processes of other nodes there.
    pub guests: u32,
}

/// What a node knows of the fabric.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Fabric {
    /// Names.
    pub members: Vec<String>,
    /// The heartbeat, as it comes there.
    pub strobe: Strobe,
    /// By which way bytes have come.
    pub multicast: Multicast,
    /// See there.
    pub libfabric: Libfabric,
}

/// Of libfabric at one node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Libfabric {
    /// Bytes that were sent by it.
    pub sent: u64,
}

/// Of multicast at one node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Multicast {
    /// Members besides the one that orders, and how many of them hear it; that one knows.
    pub heard: Option<(usize, usize)>,
    /// Bytes that came by datagrams.
    pub caught: u64,
    /// And in their place down the tree.
    pub mended: u64,
}

/// The strobe at one node, since it has had its period.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Strobe {
    /// Beats that have come.
    pub beats: u64,
    /// Those that were late.
    pub late: u64,
    /// Those that the manager did not send.
    pub skipped: u64,
    /// Half of them, and 99 of 100, were off by less than this, microseconds.
    pub off_us: Option<(u64, u64)>,
}

/// `GET /v1/fabric`.
pub fn fabric(socket: &Path) -> Result<Fabric> {
    parse(&request(socket, "GET", "/v1/fabric", "", Duration::from_secs(5))?)
}

/// A variable of that node.
pub fn variable(socket: &Path, name: &str) -> Result<i64> {
    let answer = request(socket, "GET", &format!("/v1/fabric/variable/{name}"), "", Duration::from_secs(5))?;
    let value: serde_json::Value = parse(&answer)?;
    value["value"].as_i64().ok_or_else(|| Error::Other("the node's answer has no value".into()))
}

/// Writes `new` to a variable of all nodes if all have `value`.
pub fn compare_and_write(socket: &Path, name: &str, value: i64, new: i64) -> Result<()> {
    let body = serde_json::json!({ "variable": name, "comparison": "==", "value": value, "write": [name, new] });
    let answer = request(socket, "POST", "/v1/fabric/compare", &body.to_string(), Duration::from_secs(30))?;
    match parse::<serde_json::Value>(&answer)?["held"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(Error::Other(format!("{name} is not {value} everywhere"))),
    }
}

/// Brings bytes to a region of all nodes; down the tree, or by multicast where that is heard.
pub fn transfer(socket: &Path, region: &str, bytes: &[u8], tree: bool) -> Result<()> {
    let path = format!("/v1/fabric/transfer?region={region}&tree={tree}");
    exchange(socket, "POST", &path, bytes, Duration::from_secs(300)).map(drop)
}

/// Sets the strobe's period.
pub fn strobe_every(socket: &Path, period_us: u64) -> Result<()> {
    let body = serde_json::json!({ "period_us": period_us }).to_string();
    request(socket, "POST", "/v1/fabric/strobe", &body, Duration::from_secs(30)).map(drop)
}

/// The processes whose home is the node behind this socket.
pub fn processes(socket: &Path) -> Result<Vec<Process>> {
    let body = request(socket, "GET", "/v1/processes", "", Duration::from_secs(5))?;
    let all: Vec<Process> = parse(&body)?;
    Ok(all.into_iter().filter(|p| p.role != "guest").collect())
}

/// Moves a process; returns when it has moved, or says why not.
pub fn move_to(socket: &Path, pid: u32, dest: &str, reason: &str) -> Result<Option<Move>> {
    let body = serde_json::json!({ "pid": pid, "dest": dest, "reason": reason }).to_string();
    let answer = request(socket, "POST", "/v1/move", &body, Duration::from_secs(60))?;
    let value: serde_json::Value = parse(&answer)?;
    // Nothing to do (it is there already) is an answer without a record.
    let record = value.get("record").unwrap_or(&value).clone();
    Ok(serde_json::from_value(record).ok().filter(|m: &Move| !m.to.is_empty()))
}

/// What the balancer of that node did, and why the rest stays.
pub fn decisions(socket: &Path) -> Result<Decisions> {
    parse(&request(socket, "GET", "/v1/decisions", "", Duration::from_secs(5))?)
}

/// What happened after event `since`.
pub fn events(socket: &Path, since: u64) -> Result<Vec<Event>> {
    parse(&request(socket, "GET", &format!("/v1/events?since={since}"), "", Duration::from_secs(5))?)
}

/// All nodes, as that node knows them.
pub fn nodes(socket: &Path) -> Result<Vec<Node>> {
    parse(&request(socket, "GET", "/v1/nodes", "", Duration::from_secs(5))?)
}

/// Empties a node, or lets it be used again.
pub fn drain(socket: &Path, node: &str, on: bool) -> Result<()> {
    let body = serde_json::json!({ "node": node, "on": on }).to_string();
    request(socket, "POST", "/v1/drain", &body, Duration::from_secs(10)).map(drop)
}

/// The node's figures for Prometheus, those without labels, by name.
pub fn figures(socket: &Path) -> Result<BTreeMap<String, f64>> {
    let text = request(socket, "GET", "/metrics", "", Duration::from_secs(5))?;
    let figure = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    Ok(text.lines().filter(|l| !l.starts_with('#') && !l.contains('{')).filter_map(figure).collect())
}

/// Asks the queue something; the answer as it comes.
pub fn queue(socket: &Path, question: &serde_json::Value, patience: Duration) -> Result<serde_json::Value> {
    parse(&request(socket, "POST", "/v1/queue", &question.to_string(), patience)?)
}

fn parse<T: serde::de::DeserializeOwned>(body: &str) -> Result<T> {
    serde_json::from_str(body).map_err(|e| Error::Other(format!("the node's answer makes no sense: {e}")))
}

fn request(socket: &Path, method: &str, path: &str, body: &str, patience: Duration) -> Result<String> {
    exchange(socket, method, path, body.as_bytes(), patience)
}

fn exchange(socket: &Path, method: &str, path: &str, body: &[u8], patience: Duration) -> Result<String> {
    let mut stream = UnixStream::connect(socket).at("connect to", socket)?;
    stream.set_read_timeout(Some(patience)).context("set a time limit")?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: pando\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).at("write to", socket)?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).at("read from", socket)?;
    let (status, body) = split(&answer).ok_or_else(|| Error::Other("the node's answer is not HTTP".into()))?;
    if (200..300).contains(&status) {
        return Ok(body);
    }
    let said = serde_json::from_str::<serde_json::Value>(&body).ok();
    let said = said.and_then(|v| Some(v.get("error")?.as_str()?.to_string()));
    Err(Error::Other(said.unwrap_or_else(|| format!("status {status}: {body}"))))
}

/// Status and body of an answer, also one in chunks.
fn split(answer: &[u8]) -> Option<(u16, String)> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = &answer[end + 4..];
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(body)? } else { body.to_vec() };
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

fn unchunk(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&body[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        let start = end + 2;
        whole.extend_from_slice(body.get(start..start.checked_add(size)?)?);
        body = body.get(start + size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_bodies() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]";
        assert_eq!(split(plain), Some((200, "[]".into())));
        let chunks = b"HTTP/1.1 409 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
        assert_eq!(split(chunks), Some((409, "abcd".into())));
        let lies = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc";
        assert_eq!(split(lies), None);
        assert_eq!(split(b"nonsense"), None);
    }
}
