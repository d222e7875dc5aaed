//! A node's local API: HTTP and JSON over its Unix socket.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest answer that is read.
const LONGEST: u64 = 16 << 20;

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Value,
}

/// Asks a node to move a process.
pub fn move_to(socket: &Path, pid: u32, dest: &str, patience: Duration) -> Result<Answer, String> {
    let body = json!({ "pid": pid, "dest": dest, "reason": "suite" }).to_string();
    request(socket, "POST", "/v1/move", &body, patience)
}

/// What a node says about the processes that it knows.
pub fn processes(socket: &Path) -> Result<Value, String> {
    request(socket, "GET", "/v1/processes", "", Duration::from_secs(3)).map(|a| a.body)
}

/// One request on a connection of its own.
pub fn request(socket: &Path, method: &str, path: &str, body: &str, patience: Duration) -> Result<Answer, String> {
    let fail = |e: std::io::Error| format!("the node's API: {e}");
    let mut stream = UnixStream::connect(socket).map_err(fail)?;
    stream.set_read_timeout(Some(patience)).map_err(fail)?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: pando\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).map_err(fail)?;
    let mut raw = Vec::new();
    let end = Instant::now() + patience;
    stream.take(LONGEST).read_to_end(&mut raw).map_err(|e| {
        let timed_out = e.kind() == std::io::ErrorKind::WouldBlock || Instant::now() >= end;
        if timed_out { format!("no answer within {patience:?}") } else { fail(e) }
    })?;
    parse(&raw).ok_or_else(|| format!("an answer that makes no sense: {:?}", String::from_utf8_lossy(&raw)))
}

fn parse(raw: &[u8]) -> Option<Answer> {
    let at = raw.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&raw[..at]).to_ascii_lowercase();
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    let body = &raw[at + 4..];
    let body = if head.contains("transfer-encoding: chunked") { unchunk(body)? } else { body.to_vec() };
    let body =
        serde_json::from_slice(&body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
    Some(Answer { status, body })
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let at = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..at]).ok()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(out);
        }
        out.extend_from_slice(rest.get(at + 2..at + 2 + size)?);
        rest = rest.get(at + 4 + size..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_plain_and_chunked() {
        let plain = parse(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{\"a\":1}").expect("parsed");
        assert_eq!((plain.status, &plain.body["a"]), (200, &json!(1)));
        let chunked =
            b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n";
        let chunked = parse(chunked).expect("parsed");
        assert_eq!((chunked.status, &chunked.body["a"]), (409, &json!(1)));
        assert!(parse(b"nonsense").is_none());
    }
}
