//! `pando run --pty`: a program has a terminal of its own at its node, and the user's own becomes it.

mod lab;

use lab::{Lab, fails, ok, until};
use pando_kernel::{procfs, pty};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

const JOBS: &str = "[jobs]\nroot = true\nlost_after_ms = 2000\n";

/// The user's terminal, and what is at it.
struct Desk {
    keys: File,
    theirs: std::os::fd::OwnedFd,
    screen: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl Desk {
    /// `pando run --pty` with these words, at a terminal of 30 rows and 90 columns.
    fn new(lab: &Lab, words: &[&str]) -> Desk {
        let (ours, theirs) = pty::open((30, 90), None).unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_pando"), "run", "--pty"]).args(words);
        command
            .env("PANDO_SOCKET", &lab.nodes[0].socket)
            .env("TERM", "vt100")
            .env("MARK", lab.dir.join("pty"))
            .env("PS1", "> ");
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let (mut from, screen) = (File::from(ours.try_clone().unwrap()), Arc::<Mutex<Vec<u8>>>::default());
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = from.read(&mut piece) {
                shown.lock().unwrap().extend_from_slice(&piece[..read]);
            }
        });
        Desk { keys: File::from(ours), theirs, screen, child }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// So often by now.
    fn shows(&self, text: &str, times: usize) {
        until(&format!("{text:?} on the screen"), || (self.text().matches(text).count() >= times).then_some(()));
    }

    fn mode(&self) -> String {
        ok(Command::new("stty").arg("-a").stdin(self.theirs.try_clone().unwrap()))
    }

    fn ends(&mut self) -> i32 {
        let status = until("its end", || self.child.try_wait().unwrap());
        assert!(self.mode().contains(" icanon") && self.mode().contains(" echo "), "{}", self.mode());
        status.code().unwrap_or(-1)
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the screen\n{}", self.text());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_shell_is_used_as_if_it_were_here() {
    let lab = Lab::new(2, JOBS);
    let mut desk = Desk::new(&lab, &["-w", "n2", "sh", "-i"]);
    desk.shows("> ", 1);
    assert!(desk.mode().contains("-icanon") && desk.mode().contains("-isig"), "{}", desk.mode());
    desk.types("echo at $PANDO_NODE $TERM; stty size; tty\r");
    desk.shows("at n2 vt100\r\n30 90\r\n/dev/pts/", 1);
    // A window of another size.
    pty::set_size(&desk.theirs, (41, 101)).unwrap();
    until("the new size", || {
        desk.types("stty size\r");
        std::thread::yield_now();
        desk.text().contains("41 101\r\n").then_some(())
    });
    // Its own terminal makes signals of keys.
    desk.types("sh -c 'echo sle\"\"eps; exec sleep 1000'\r");
    desk.shows("sleeps\r\n", 1);
    desk.types("\x03");
    desk.types("echo go\"\"es on $?\r");
    desk.shows("goes on 130\r\n", 1);
    // Much of it comes whole, and as it was written.
    desk.types("seq 20000; echo e\"\"nd\r");
    desk.shows("end\r\n", 1);
    let all: String = (1..=20000).map(|i| format!("{i}\r\n")).collect();
    assert!(desk.text().contains(&all));
    // Keys that nobody reads hang nobody.
    desk.types("exec sh -c 'stty raw -echo; echo last; sleep 0.3; exit 7'\r");
    desk.shows("last\n", 1);
    desk.types(&"x".repeat(3000));
    assert_eq!(desk.ends(), 7);
}

#[test]
fn the_terminal_is_as_it_was_whatever_ends_it() {
    let mut lab = Lab::new(2, JOBS);
    let said = fails(lab.nodes[0].cli(&["run", "--pty", "true"]).stdin(Stdio::null()));
    assert!(said.contains("--pty: standard input is no terminal; nothing was started"), "{said}");
    let script = "trap 'exit 5' TERM; echo re''ady; while :; do sleep 0.05; done";
    // Other ranks have none, and what they write is in lines all the same.
    let script_of_two = "[ $PANDO_RANK = 0 ] || { tty; echo one; exit; }; tty; sleep 0.5";
    let mut desk = Desk::new(&lab, &["-N2", "sh", "-c", script_of_two]);
    assert_eq!(desk.ends(), 0);
    // In any order: they are different ranks.
    let said = desk.text();
    assert!(["not a tty\r\n", "one\r\n", "/dev/pts/"].iter().all(|part| said.contains(part)), "{said}");
    let mut desk = Desk::new(&lab, &["-w", "n2", "sh", "-c", script]);
    desk.shows("ready", 1);
    let pando = procfs::children(desk.child.id() as i32).first().copied().unwrap_or(desk.child.id() as i32);
    lab::signal(pando as u32, "TERM");
    assert_eq!(desk.ends(), 5);
    let mut desk = Desk::new(&lab, &["-w", "n2", "sh", "-c", "kill -KILL $$"]);
    assert!([137, -1].contains(&desk.ends()));
    let mut desk = Desk::new(&lab, &["-w", "n2", "-t", "0:01", "sh", "-c", "sleep 1000"]);
    assert_eq!(desk.ends(), 124);
    let mut desk = Desk::new(&lab, &["-w", "n2", "sh", "-c", script]);
    desk.shows("ready", 1);
    lab.nodes[1].kill();
    assert_eq!(desk.ends(), 137);
    assert!(desk.text().contains("node n2 was lost"), "{}", desk.text());
    let marked =
        |pid: &i32| procfs::variable(*pid, "MARK").is_some_and(|m| m == lab.dir.join("pty").display().to_string());
    until("nothing left", || (procfs::processes().iter().filter(|p| marked(p)).count() == 0).then_some(()));
}
