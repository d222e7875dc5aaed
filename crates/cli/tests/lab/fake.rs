//! An engine that only talks: it says what the real one says and moves nothing. A daemon whose `engine_program` is
//! a test program starts that as `PROGRAM __deputy`, which libtest takes for the name of a test.

use pando_migrate::control::{Command, DeputyOrder, Destination, GuestOrder, Io, MoveRecord, Report};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The state directory of the daemon that started us; none in an ordinary run of the tests.
fn lab() -> Option<PathBuf> {
    std::env::var_os("PANDO_FAKE_LAB").map(PathBuf::from)
}

fn append(dir: &Path, file: &str, line: &str) {
    let mut out = fs::File::options().create(true).append(true).open(dir.join(file)).unwrap();
    writeln!(out, "{line}").unwrap();
}

fn order<T: serde::de::DeserializeOwned>() -> T {
    serde_json::from_reader(std::io::stdin().lock()).unwrap()
}

/// A line to the daemon that is found again when the daemon comes back.
struct Line {
    path: String,
    hello: Vec<Report>,
    stream: BufReader<UnixStream>,
}

fn connect(path: &str) -> BufReader<UnixStream> {
    loop {
        if let Ok(stream) = UnixStream::connect(path) {
            return BufReader::new(stream);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Line {
    fn new(path: &str, hello: Report) -> Self {
        let mut line = Line { path: path.into(), hello: vec![hello.clone()], stream: connect(path) };
        line.say(&hello);
        line
    }

    fn say(&mut self, report: &Report) {
        let mut text = serde_json::to_vec(report).unwrap();
        text.push(b'\n');
        let _ = self.stream.get_mut().write_all(&text);
    }

    fn state(&mut self, pid: u32, place: &str, phase: &str) {
        let (place, phase) = (place.to_owned(), phase.to_owned());
        let counters = (17, 5, 6, 1234);
        let report = Report::State {
            pid,
            place: place.clone(),
            phase,
            stopped: false,
            calls: counters.0,
            pulled: counters.1,
            pushed: counters.2,
            found: 0,
            cpu_abroad_ms: counters.3,
            cpu_by_node: vec![(place, 1234)],
            io: Io::default(),
        };
        self.hello.truncate(1);
        self.hello.push(report.clone());
        self.say(&report);
    }

    fn command(&mut self) -> Command {
        loop {
            let mut text = String::new();
            match self.stream.read_line(&mut text) {
                Ok(n) if n > 0 => return serde_json::from_str(&text).unwrap(),
                _ => {
                    self.stream = connect(&self.path);
                    for report in self.hello.clone() {
                        self.say(&report);
                    }
                }
            }
        }
    }
}

fn name(dest: &Destination, home: &str) -> String {
    match dest {
        Destination::Home => home.into(),
        Destination::Node { name, .. } => name.clone(),
    }
}

/// Until somebody makes a file of that name, or the daemon's directory is gone.
fn until_let_go(dir: &Path) {
    while dir.exists() && !dir.join("let-go").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Plays a deputy, if a daemon started us as one.
pub fn deputy() {
    let Some(dir) = lab() else { return };
    let order: DeputyOrder = order();
    append(&dir, "fake-pids", &std::process::id().to_string());
    append(&dir, "deputy-orders", &serde_json::to_string(&order).unwrap());
    match order.reason.as_str() {
        "crash" => std::process::exit(7),
        _ if dir.join("dawdle").exists() => until_let_go(&dir),
        "complain" => {
            // As the real one does when it fails early: no hello.
            let mut stream = UnixStream::connect(&order.engine_socket).unwrap();
            let result = Err("the moon is in the way".into());
            let report = Report::MoveDone { request: order.request, pid: order.pid, result };
            writeln!(stream, "{}", serde_json::to_string(&report).unwrap()).unwrap();
            std::process::exit(1);
        }
        _ => {}
    }
    let (pid, home) = (order.pid, order.node.clone());
    let hello = Report::Hello {
        role: "deputy".into(),
        helper: std::process::id(),
        pid,
        home: home.clone(),
        uid: order.caller_uid,
        command: "fake command".into(),
        body: 0,
    };
    let mut line = Line::new(&order.engine_socket, hello);
    let mut place = home.clone();
    let mut wish = (order.request, order.dest, order.reason);
    loop {
        line.state(pid, &place, "freeze");
        let to = name(&wish.1, &home);
        let record = MoveRecord {
            from: place,
            to: to.clone(),
            reason: wish.2,
            freeze_us: 2500,
            total_us: 9000,
            frozen_bytes: 4096,
        };
        place = to;
        line.state(pid, &place, if place == home { "resume" } else { "away" });
        line.say(&Report::MoveDone { request: wish.0, pid, result: Ok(record) });
        if place == home {
            line.say(&Report::Done { pid, outcome: "home".into(), detail: "it came home".into() });
            std::process::exit(0);
        }
        wish = loop {
            if let Command::Move { request, dest, reason } = line.command() {
                break (request, dest, reason);
            }
        };
    }
}

/// Plays a guest helper: writes down what it was given; says hello when the first byte of the connection is still
/// there, and stays until the other end hangs up.
pub fn guest() {
    let Some(dir) = lab() else { return };
    let order: GuestOrder = order();
    append(&dir, "fake-pids", &std::process::id().to_string());
    let fds: Vec<String> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter_map(|e| Some((e.file_name(), fs::read_link(e.path()).ok()?)))
        .map(|(n, to)| format!("{}={}", n.to_string_lossy(), to.display()))
        .collect();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let session: u32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap().parse().unwrap();
    let report = serde_json::json!({
        "order": order, "fds": fds, "leads": session == std::process::id(),
        "silent": dir.join("silent").exists(),
    });
    append(&dir, "guest-orders", &report.to_string());
    // Descriptor 3 without any unsafe: the same socket, opened for reading its first bytes.
    let socket = "/proc/self/fd/3";
    append(&dir, "guest-sockets", &fs::read_link(socket).unwrap().display().to_string());
    if dir.join("silent").exists() {
        std::thread::sleep(Duration::from_secs(1000));
    }
    let hello = Report::Hello {
        role: "guest".into(),
        helper: std::process::id(),
        pid: 4242,
        home: "elsewhere".into(),
        uid: 0,
        command: "a visitor".into(),
        body: 0,
    };
    let mut line = Line::new(&order.engine_socket, hello);
    line.state(4242, &order.node, "away");
    let mut rest = Vec::new();
    let _ = line.stream.read_to_end(&mut rest);
}
