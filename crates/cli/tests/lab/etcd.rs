//! A real etcd of the test's own, and ways to it that can be cut.

use super::until;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// On loopback; it goes with this.
pub struct Etcd {
    child: Option<Child>,
    ports: [u16; 2],
    dir: PathBuf,
}

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Etcd {
    /// None: this machine has none, which is said.
    pub fn new(name: &str) -> Option<Etcd> {
        let dir = std::env::temp_dir().join(format!("pando-etcd-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let mut etcd = Etcd { child: None, ports: [port(), port()], dir };
        match etcd.start() {
            true => Some(etcd),
            false => {
                eprintln!("SKIPPED: {name}: there is no etcd here: apt-get install etcd-server");
                None
            }
        }
    }

    pub fn start(&mut self) -> bool {
        let [url, peer] = self.ports.map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new("etcd");
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--listen-peer-urls", &peer]);
        command.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]);
        command.arg("--data-dir").arg(&self.dir).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else { return false };
        self.child = Some(child);
        until("etcd", || TcpStream::connect(("127.0.0.1", self.ports[0])).ok().map(drop));
        true
    }

    /// Kill -9.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Removes a key, as whoever has etcdctl can.
    pub fn remove(&self, base64_of_key: &str) {
        let text = format!("{{\"key\":\"{base64_of_key}\"}}");
        let head = format!("POST /v3/kv/deleterange HTTP/1.0\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n", text.len());
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[0])).unwrap();
        stream.write_all((head + &text).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("\"deleted\":\"1\""), "{answer}");
    }

    /// A way there.
    pub fn way(&self) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Way { port: listener.local_addr().unwrap().port(), inner: Arc::default() };
        let (inner, to) = (way.inner.clone(), self.ports[0]);
        std::thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let inner = inner.clone();
                std::thread::spawn(move || inner.carry(from, to));
            }
        });
        way
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[derive(Default)]
struct Inner {
    is_cut: AtomicBool,
}

impl Inner {
    fn carry(self: Arc<Inner>, from: TcpStream, to: u16) {
        let Ok(there) = TcpStream::connect(("127.0.0.1", to)) else { return };
        let (mut back, mut on) = (there.try_clone().unwrap(), from.try_clone().unwrap());
        let inner = self.clone();
        std::thread::spawn(move || inner.copy(&mut back, &mut on));
        self.copy(&mut from.try_clone().unwrap(), &mut there.try_clone().unwrap());
        let _ = (from.shutdown(Shutdown::Both), there.shutdown(Shutdown::Both));
    }

    /// What comes while it is cut goes nowhere, and nobody is told.
    fn copy(&self, from: &mut TcpStream, to: &mut TcpStream) {
        let mut bytes = [0; 64 << 10];
        loop {
            let n = from.read(&mut bytes).unwrap_or(0);
            while self.is_cut.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
            if n == 0 || to.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// What a node takes for etcd.
pub struct Way {
    port: u16,
    inner: Arc<Inner>,
}

impl Way {
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Nothing goes either way; what is under way comes later.
    pub fn cut(&self, cut: bool) {
        self.inner.is_cut.store(cut, Ordering::SeqCst);
    }
}
