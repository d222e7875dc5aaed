//! Programs in containers: namespaces, capabilities and roots of their own. They move as any program does, and see the same.

mod lab;

use lab::{Lab, PATIENCE, fails, ok, until};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Says on each line of its input what it is and can: ids, in the kernel's words too, children, threads, signals to itself, files.
const PROBE: &str = "
import ctypes, os, signal, sys, threading
kernel = ctypes.CDLL(None)
got = []
signal.signal(signal.SIGUSR1, lambda *a: got.append(1))
def child():
    pid = os.fork()
    if pid == 0: os._exit(7 if os.getppid() == me else 8)
    return os.waitpid(pid, 0) == (pid, 7 << 8)
def thread():
    seen = []
    t = threading.Thread(target=lambda: seen.append((threading.get_native_id(), kernel.syscall(186))))
    t.start(); t.join()
    return seen[0][0] == seen[0][1] > 0
me = os.getpid()
print('ready', flush=True)
for line in sys.stdin:
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(me, signal.SIGUSR1)
    status = open('/proc/self/status').read()
    caps = [l for l in status.splitlines() if l.startswith(('Cap', 'NoNew', 'Uid', 'Gid', 'Groups'))]
    try: os.setuid(4321); raised = True
    except OSError as e: raised = e.errno
    lock = threading.Lock(); lock.acquire(); lock.release()
    print(os.getpid(), kernel.syscall(39), kernel.syscall(186), os.getppid(), os.getuid(), os.getgid(), os.getgroups(),
        int(open('/proc/self/stat').read().split()[0]), child(), thread(), len(got) % 2, os.listdir('/'), os.getcwd(),
        os.uname().nodename, caps, raised if raised is not True else 0, flush=True)
print('end', flush=True)
";

/// Says its clocks, less those that it began with, in seconds; and that they never go back.
const CLOCKS: &str = "
import sys, time
kinds = [time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC_RAW]
last = begun = [time.clock_gettime(k) for k in kinds]
print('ready', flush=True)
for line in sys.stdin:
    now = [time.clock_gettime(k) for k in kinds]
    assert all(a <= b for a, b in zip(last, now)), (last, now)
    last = now
    print(*[int(b - a) // 3600 for a, b in zip(begun, now)], *[int(b) // 1000000 for b in now], flush=True)
print('end', flush=True)
";

/// A program in a container, which answers line by line.
struct Boxed {
    child: Child,
    /// Its pid, as the test sees it.
    pid: u32,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Boxed {
    /// Runs `program` within `words`. None, said aloud, where that can't be.
    fn start(test: &str, words: &[&str], program: &str) -> Option<Self> {
        let (first, rest) = words.split_first().unwrap();
        let mut command = Command::new(first);
        command.args(rest).args(["python3", "-c", program]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            eprintln!("SKIPPED {test}: there is no {first}");
            return None;
        };
        let (input, mut output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        if line != "ready\n" {
            let mut why = String::new();
            let _ = std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut why);
            eprintln!("SKIPPED {test}: no such container can be made here: {}", why.trim());
            let _ = child.wait();
            return None;
        }
        let pid = last_of_line(child.id());
        Some(Boxed { child, pid, input, output })
    }

    fn says(&mut self) -> String {
        writeln!(self.input.as_mut().unwrap()).unwrap();
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().into()
    }

    fn inner_pid(&self) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find(|l| l.starts_with("NSpid:")).unwrap();
        line.split_whitespace().last().unwrap().into()
    }

    fn ends_well(mut self) {
        drop(self.input.take());
        assert_eq!(self.line(), "end");
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "it does not end");
        }
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Boxed {
    fn drop(&mut self) {
        pando_kernel::signal::kill(self.pid as i32, libc::SIGKILL).ok();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The youngest of the only children below `pid`.
fn last_of_line(pid: u32) -> u32 {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().next().and_then(|w| w.parse().ok()).map_or(pid, last_of_line)
}

/// Away, on to a third node, and home: it says the same everywhere.
fn moves_and_sees_the_same(test: &str, words: &[&str], program: &str) {
    let Some(mut boxed) = Boxed::start(test, words, program) else { return };
    let lab = Lab::new(3, "");
    let at_home = boxed.says();
    let pid = boxed.pid.to_string();
    for dest in ["n2", "n3", "home", "n2", "home"] {
        ok(&mut lab.nodes[0].cli(&["move", &pid, dest]));
        for _ in 0..2 {
            assert_eq!(boxed.says(), at_home, "{test} at {dest}");
        }
    }
    boxed.ends_well();
}

/// A shell as the container's init.
const INIT: [&str; 4] = ["sh", "-c", "\"$@\"; exit $?", "init"];

fn with_init<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [words, &INIT[..]].concat()
}

#[test]
fn namespaces_of_its_own() {
    let all = [
        "unshare",
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
        "--mount",
        "--net",
        "--ipc",
        "--uts",
    ];
    moves_and_sees_the_same("namespaces_of_its_own", &with_init(&all), PROBE);
}

#[test]
fn a_user_that_is_nobody_here() {
    let words = ["unshare", "--user", "--pid", "--fork", "--kill-child"];
    moves_and_sees_the_same("a_user_that_is_nobody_here", &with_init(&words), PROBE);
}

#[test]
fn containers_in_containers() {
    let one = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    let words = [with_init(&one), with_init(&one), with_init(&one)].concat();
    moves_and_sees_the_same("containers_in_containers", &words, PROBE);
}

#[test]
fn bubblewrap() {
    let words =
        ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--cap-drop", "ALL"];
    moves_and_sees_the_same("bubblewrap", &words, PROBE);
}

#[test]
fn fewer_rights() {
    let words = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"];
    moves_and_sees_the_same("fewer_rights", &words, PROBE);
}

#[test]
fn clocks_of_its_own() {
    let words =
        ["unshare", "--user", "--map-root-user", "--time", "--monotonic", "5000000", "--boottime", "9000000", "--fork"];
    moves_and_sees_the_same("clocks_of_its_own", &words, CLOCKS);
    let back = ["unshare", "--user", "--map-root-user", "--time", "--monotonic", "-1", "--boottime", "-1", "--fork"];
    moves_and_sees_the_same("clocks_of_its_own", &back, CLOCKS);
}

#[test]
fn the_first_process_of_a_container_stays() {
    let test = "the_first_process_of_a_container_stays";
    let words = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let Some(mut boxed) = Boxed::start(test, &words, PROBE) else { return };
    let lab = Lab::new(2, "");
    let (before, pid) = (boxed.says(), boxed.pid.to_string());
    let said = fails(&mut lab.nodes[0].cli(&["move", &pid, "n2"]));
    assert!(said.contains("the first process of its pid namespace") && said.contains("--init"), "{said}");
    let explained = ok(&mut lab.nodes[0].cli(&["explain", &pid]));
    assert!(explained.contains("the first process of its pid namespace"), "{explained}");
    assert_eq!(boxed.says(), before);
    boxed.ends_well();
}

#[test]
fn who_asks_from_inside_names_it_as_inside() {
    let test = "who_asks_from_inside_names_it_as_inside";
    let words = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    let Some(mut boxed) = Boxed::start(test, &with_init(&words), PROBE) else { return };
    let lab = Lab::new(2, "");
    let (before, inner, outer) = (boxed.says(), boxed.inner_pid(), boxed.pid.to_string());
    let inside = |words: &[&str]| {
        let mut command = Command::new("nsenter");
        command.args(["--target", &outer, "--user", "--preserve-credentials", "--pid", "--"]);
        command.arg(env!("CARGO_BIN_EXE_pando")).args(words).env("PANDO_SOCKET", &lab.nodes[0].socket);
        command
    };
    if Command::new("nsenter").arg("--version").output().is_err() {
        eprintln!("SKIPPED {test}: there is no nsenter");
        return;
    }
    let explained = ok(&mut inside(&["explain", &inner]));
    assert!(explained.contains("can it move? yes"), "{explained}");
    ok(&mut inside(&["move", &inner, "n2"]));
    until("it is away", || lab.nodes[0].process(boxed.pid).filter(|p| p.place == "n2").map(drop));
    assert_eq!(boxed.says(), before);
    // A number that only we have: ours is not theirs.
    let said = fails(&mut inside(&["move", &std::process::id().to_string(), "n2"]));
    assert!(said.contains("in your pid namespace"), "{said}");
    ok(&mut inside(&["move", &inner, "home"]));
    assert_eq!(boxed.says(), before);
    boxed.ends_well();
}
