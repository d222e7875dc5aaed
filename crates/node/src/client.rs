//! Talks to the daemon on this machine: HTTP over its Unix socket, one request a connection. Blocking, for the
//! command line.

use crate::views::Refusal;
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// No answer is longer.
const MAX_ANSWER: u64 = 2 << 30;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no node runs here ({}: {cause}): start one with `pando node`, or set PANDO_SOCKET", socket.display())]
    NoDaemon {
        /// Where we looked.
        socket: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// It said no.
    #[error("{0}")]
    Refused(String),
    /// It is there and says nothing.
    #[error("the node at {} does not answer (stopped, or overloaded?)", socket.display())]
    Silent {
        /// Its socket.
        socket: PathBuf,
    },
    /// It broke off or makes no sense.
    #[error("the node's answer can't be understood ({0}): see its log, node.log")]
    Broken(String),
}

/// A daemon's socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// For the daemon behind `socket`.
    pub fn new(socket: &Path) -> Self {
        Client { socket: socket.to_owned() }
    }

    /// Whether a daemon answers there.
    pub fn is_up(&self) -> bool {
        UnixStream::connect(&self.socket).is_ok()
    }

    /// `GET path`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call("GET", path, &[])
    }

    /// `POST path` with a JSON body.
    pub fn post<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|e| ClientError::Broken(e.to_string()))?;
        self.call("POST", path, &body)
    }

    /// `POST path` with these bytes.
    pub fn send<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, ClientError> {
        self.call("POST", path, body)
    }

    /// `GET path`: bytes.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        self.raw("GET", path, &[])
    }

    /// Turns a connection into another protocol: `POST path` with an upgrade.
    pub fn upgrade(&self, path: &str, protocol: &str) -> Result<UnixStream, ClientError> {
        let socket = self.socket.clone();
        let mut stream = UnixStream::connect(&socket).map_err(|cause| ClientError::NoDaemon { socket, cause })?;
        let broken = |e: io::Error| ClientError::Broken(e.to_string());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: pando\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).map_err(broken)?;
        let mut answer = Vec::new();
        // Byte by byte: what follows is not ours.
        let mut one = [0];
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() > 16 << 10 || stream.read(&mut one).map_err(broken)? == 0 {
                return Err(ClientError::Broken("not HTTP".into()));
            }
            answer.push(one[0]);
        }
        if parse(&answer).is_some_and(|(status, _)| status == 101) {
            return Ok(stream);
        }
        stream.set_read_timeout(Some(Duration::from_secs(1))).map_err(broken)?;
        let _ = stream.take(16 << 10).read_to_end(&mut answer);
        let refused = parse(&answer).and_then(|(_, body)| serde_json::from_slice::<Refusal>(body).ok());
        Err(refused.map_or_else(
            || ClientError::Broken("it speaks another protocol".into()),
            |r| ClientError::Refused(r.error),
        ))
    }

    fn call<T: DeserializeOwned>(&self, method: &str, path: &str, body: &[u8]) -> Result<T, ClientError> {
        let body = self.raw(method, path, body)?;
        serde_json::from_slice(&body).map_err(|e| ClientError::Broken(e.to_string()))
    }

    fn raw(&self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, ClientError> {
        let socket = self.socket.clone();
        let stream = UnixStream::connect(&socket).map_err(|cause| ClientError::NoDaemon { socket, cause })?;
        let answer = exchange(stream, method, path, body).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent { socket: self.socket.clone() },
            _ => ClientError::Broken(e.to_string()),
        })?;
        let unfinished = || ClientError::Broken("it is not HTTP, or not all of it: did the node end?".into());
        let (status, body) = parse(&answer).ok_or_else(unfinished)?;
        if status != 200 {
            let text = match serde_json::from_slice::<Refusal>(body) {
                Ok(refusal) => refusal.error,
                Err(_) => format!("HTTP status {status}: {}", String::from_utf8_lossy(body)),
            };
            return Err(ClientError::Refused(text));
        }
        Ok(body.to_vec())
    }
}

fn exchange(mut stream: UnixStream, method: &str, path: &str, body: &[u8]) -> io::Result<Vec<u8>> {
    // What is only looked up is there at once; orders may take as long as the daemon itself waits.
    let at_once = method == "GET" && !path.contains("wait=");
    stream.set_read_timeout(Some(Duration::from_secs(if at_once { 15 } else { 600 })))?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: pando\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Status and body. The daemon sends a length and closes, so the body is the rest; one that is shorter was cut off.
fn parse(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let body = &answer[end + 4..];
    let lengths = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let whole = lengths.all(|(_, length)| length.trim().parse() == Ok(body.len()));
    whole.then_some((status, body))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_answer_that_was_cut_off_is_none() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";
        assert_eq!(parse(answer), Some((200, &b"body"[..])));
        (0..answer.len()).for_each(|cut| assert_eq!(parse(&answer[..cut]), None, "{cut}"));
        assert_eq!(parse(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), Some((101, &b""[..])));
    }
}
