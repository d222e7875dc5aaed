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

/// After so long without an answer it is looked whether there is anybody.
const WORD_AFTER: Duration = Duration::from_secs(2);
/// And so long is listened for that.
const PROBE: Duration = Duration::from_secs(1);

/// A daemon's socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    /// Told, once in a request, that the node is silent.
    tell: Option<fn(&str)>,
}

impl Client {
    /// For the daemon behind `socket`.
    pub fn new(socket: &Path) -> Self {
        Client { socket: socket.to_owned(), tell: None }
    }

    /// The same, which says so while the node answers nothing: some seconds before the call gives up.
    #[must_use]
    pub fn telling(self, tell: fn(&str)) -> Self {
        Client { tell: Some(tell), ..self }
    }

    /// Says that the daemon is silent, unless it only has much to do for this request.
    fn tell_if_silent(&self) {
        let Some(tell) = self.tell else { return };
        let ask = || exchange(UnixStream::connect(&self.socket)?, "GET", "/v1/info", &[], PROBE, || {});
        if ask().is_err() {
            let socket = self.socket.display();
            tell(&format!("the node at {socket} does not answer (stopped, or overloaded?): waiting for it"));
        }
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
        stream.set_read_timeout(Some(WORD_AFTER)).map_err(broken)?;
        while !answer.ends_with(b"\r\n\r\n") {
            match read_some(&mut stream, &mut one) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.tell_if_silent();
                    stream.set_read_timeout(None).map_err(broken)?;
                    continue;
                }
                Ok(0) => return Err(ClientError::Broken("not HTTP".into())),
                came => _ = came.map_err(broken)?,
            }
            answer.push(one[0]);
            if answer.len() > 16 << 10 {
                return Err(ClientError::Broken("not HTTP".into()));
            }
        }
        stream.set_read_timeout(None).map_err(broken)?;
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
        // What is only looked up is there at once; orders may take as long as the daemon itself waits.
        let at_once = method == "GET" && !path.contains("wait=");
        let patience = Duration::from_secs(if at_once { 15 } else { 600 });
        let answer =
            exchange(stream, method, path, body, patience, || self.tell_if_silent()).map_err(|e| match e.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    ClientError::Silent { socket: self.socket.clone() }
                }
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

/// One request. `silent` is called when nothing has come for [`WORD_AFTER`].
fn exchange(
    mut stream: UnixStream,
    method: &str,
    path: &str,
    body: &[u8],
    patience: Duration,
    silent: impl FnOnce(),
) -> io::Result<Vec<u8>> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: pando\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let first = patience.min(WORD_AFTER);
    stream.set_read_timeout(Some(first))?;
    let mut answer = vec![0; 4096];
    let came = match read_some(&mut stream, &mut answer) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock && first < patience => {
            silent();
            stream.set_read_timeout(Some(patience - first))?;
            read_some(&mut stream, &mut answer)?
        }
        came => came?,
    };
    answer.truncate(came);
    stream.set_read_timeout(Some(patience))?;
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    Ok(answer)
}

/// As `read`, whatever signals come: with a time limit even SIGCONT ends one (signal(7)).
fn read_some(stream: &mut UnixStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(into) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            came => return came,
        }
    }
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
    use super::{Client, ClientError, parse};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::sync::Mutex;

    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// A node that answers what it is, if `awake`, and the order only after the caller was told, or would have been.
    fn told_by(awake: bool) -> Vec<String> {
        let socket = std::env::temp_dir().join(format!("pando-client-{}-{awake}", std::process::id()));
        let listener = UnixListener::bind(&socket).unwrap();
        let client = Client::new(&socket).telling(|text| TOLD.lock().unwrap().push(text.into()));
        let node = std::thread::spawn(move || {
            let (mut order, _) = listener.accept().unwrap();
            let (mut probe, _) = listener.accept().unwrap();
            let mut all = Vec::new();
            if awake {
                // What nobody has read when it is closed would reset the connection.
                assert!(probe.read(&mut [0; 4096]).unwrap() > 0);
                probe.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
                drop(probe);
            } else {
                // Until the caller has lost its patience with it.
                probe.read_to_end(&mut all).unwrap();
            }
            order.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n7").unwrap();
            order.shutdown(std::net::Shutdown::Write).unwrap();
            // What it still says is read, so that it is not reset.
            let _ = order.read_to_end(&mut all);
        });
        let answer: Result<u32, ClientError> = client.post("/v1/order", &());
        assert_eq!(answer.unwrap(), 7);
        node.join().unwrap();
        std::fs::remove_file(&socket).unwrap();
        std::mem::take(&mut *TOLD.lock().unwrap())
    }

    #[test]
    fn a_node_that_is_silent_is_told_of_and_one_that_works_is_not() {
        assert_eq!(told_by(true), Vec::<String>::new());
        let told = told_by(false);
        assert!(told.len() == 1 && told[0].contains("does not answer"), "{told:?}");
    }

    #[test]
    fn an_answer_that_was_cut_off_is_none() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";
        assert_eq!(parse(answer), Some((200, &b"body"[..])));
        (0..answer.len()).for_each(|cut| assert_eq!(parse(&answer[..cut]), None, "{cut}"));
        assert_eq!(parse(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), Some((101, &b""[..])));
    }
}
