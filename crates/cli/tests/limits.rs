//! Honest programs that need more of a node than a guest gets there: they go home and on, with exact results.

mod lab;

use lab::{Lab, PATIENCE, fails, ok, until};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const LIMITS: &str = "[limits]\nguest_threads = 10\nguest_memory_mb = 120\n";

/// Makes as many threads as it is told, and waits with all of them.
const THREADS: &str = "
import sys, threading
end, all = threading.Event(), []
print('ready', flush=True)
for line in sys.stdin:
    for i in range(int(line)):
        all.append(threading.Thread(target=end.wait))
        all[-1].start()
    print(len(all), flush=True)
end.set()
for t in all: t.join()
print('ok', flush=True)
";

/// Takes as many MiB as it is told, and looks at all of them in the end.
const MEMORY: &str = "
import sys
all = []
print('ready', flush=True)
for line in sys.stdin:
    for i in range(int(line)):
        all.append(bytes([len(all) % 251]) * (1 << 20))
    print(len(all), flush=True)
assert all == [bytes([i % 251]) * (1 << 20) for i in range(len(all))]
print('ok', flush=True)
";

/// A program that does what it is told, line by line.
struct Told {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Told {
    /// None, said aloud, where there is no python3.
    fn start(test: &str, program: &str) -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            eprintln!("SKIPPED {test}: there is no python3");
            return None;
        };
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut told = Told { child, input, output };
        assert_eq!(told.line(), "ready");
        Some(told)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().into()
    }

    fn tell(&mut self, what: u32) -> String {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
        self.line()
    }

    fn ends_well(mut self) {
        drop(self.input.take());
        assert_eq!(self.line(), "ok");
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "it does not end");
        }
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn comes_home(lab: &Lab, pid: u32, why: &str) {
    let home = || lab.nodes[0].process(pid).filter(|p| p.place == "n1" && p.phase == "home");
    until("it is at home", || home().map(drop));
    until("an event says why", || ok(&mut lab.nodes[0].cli(&["events"])).contains(why).then_some(()));
}

#[test]
fn a_program_with_more_threads_goes_home_and_on() {
    let Some(mut told) = Told::start("a_program_with_more_threads_goes_home_and_on", THREADS) else { return };
    let lab = Lab::new(2, LIMITS);
    let pid = told.pid().to_string();
    ok(&mut lab.nodes[0].cli(&["move", &pid, "n2"]));
    assert_eq!(told.tell(5), "5");
    assert_eq!(lab.nodes[0].process(told.pid()).unwrap().place, "n2");
    assert_eq!(told.tell(20), "25");
    comes_home(&lab, told.pid(), "more threads than a guest gets here, 10");
    let said = fails(&mut lab.nodes[0].cli(&["move", &pid, "n2"]));
    assert!(said.contains("more threads than a guest gets here, 10 ([limits] guest_threads)"), "{said}");
    assert_eq!(told.tell(1), "26");
    told.ends_well();
}

#[test]
fn a_program_with_more_memory_goes_home_and_on() {
    let Some(mut told) = Told::start("a_program_with_more_memory_goes_home_and_on", MEMORY) else { return };
    let lab = Lab::new(2, LIMITS);
    let pid = told.pid().to_string();
    ok(&mut lab.nodes[0].cli(&["move", &pid, "n2"]));
    assert_eq!(told.tell(20), "20");
    assert_eq!(lab.nodes[0].process(told.pid()).unwrap().place, "n2");
    assert_eq!(told.tell(400), "420");
    comes_home(&lab, told.pid(), "more memory than a guest gets here, 120 MiB");
    // It is too large from the start now; it may go, and comes back.
    let _ = lab.nodes[0].cli(&["move", &pid, "n2"]).output();
    assert_eq!(told.tell(1), "421");
    told.ends_well();
}
