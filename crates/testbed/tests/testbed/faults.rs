//! A testbed comes up, is broken in every way, heals, and leaves nothing behind.

use crate::bed::{Bed, can_run, eventually};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

#[test]
fn a_command_runs_as_if_at_the_node() {
    if !can_run("a_command_runs_as_if_at_the_node") {
        return;
    }
    let bed = Bed::named("exec");
    bed.ok(&["up", "2", "--cpus", "0.5", "--memory", "512M"]);
    let child = bed.command(&["exec", "n2", "--", "sh", "-c", "echo $$ $PANDO_SOCKET; ip -br addr; pando nodes"]);
    let child = { child }.stdout(Stdio::piped()).spawn().expect("pando runs");
    let pid = child.id();
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with(&format!("{pid} /run/pando-testbed/{}/n2/", bed.name)), "same pid, its socket: {text}");
    assert!(text.contains("10.77.0.2/16") && !text.contains("10.77.0.1/16"), "its network: {text}");
    assert!(output.status.success(), "pando is found and its daemon answers");
    assert_eq!(bed.run(&["exec", "n1", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(bed.run(&["exec", "n1", "no-such-program"]).status.code(), Some(127));
    // Half a CPU is on one CPU (seat.rs).
    let cpus = bed.ok(&["exec", "n1", "--", "grep", "Cpus_allowed_list", "/proc/self/status"]);
    let list = cpus.split_whitespace().nth(1).unwrap();
    assert!(list.parse::<usize>().is_ok(), "{cpus}");
    let unknown = bed.run(&["exec", "n9", "true"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("has n1 to n2"));
    let again = bed.run(&["up", "2"]);
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("exists already"));
    bed.ok(&["down"]);
    assert_eq!(bed.remains(), Vec::<String>::new());
    bed.ok(&["down"]);
}

#[test]
fn signals_reach_the_command() {
    use std::os::unix::process::ExitStatusExt;
    if !can_run("signals_reach_the_command") {
        return;
    }
    let bed = Bed::named("signals");
    bed.ok(&["up", "1"]);
    let mut child = bed.command(&["exec", "n1", "sleep", "60"]).spawn().expect("pando runs");
    // SAFETY: kill with our own child's pid.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().expect("it ends").signal(), Some(libc::SIGTERM));
}

#[test]
fn a_cut_drops_packets_and_keeps_connections() {
    if !can_run("a_cut_drops_packets_and_keeps_connections") {
        return;
    }
    let bed = Bed::named("cut");
    bed.ok(&["up", "2", "--delay", "1"]);
    let mut echo = Echo::start(&bed);
    echo.say("one");
    bed.ok(&["cut", "n2"]);
    assert_eq!(bed.status()["nodes"][1]["cut"], true);
    eventually("n1 missing n2", || bed.sees(1).is_some_and(|s| s.len() == 1));
    writeln!(echo.input, "two").expect("the connection is open");
    std::thread::sleep(std::time::Duration::from_millis(300));
    bed.ok(&["heal", "n2"]);
    assert_eq!(echo.hear(), "two", "what was said while cut arrives after healing");
    echo.say("three");
    eventually("all seeing all again", || (1..=2).all(|n| bed.sees(n).is_some_and(|s| s.len() == 2)));
    drop(echo);
    bed.ok(&["down"]);
    assert_eq!(bed.remains(), Vec::<String>::new());
}

#[test]
fn a_stalled_node_is_missed_and_comes_back() {
    if !can_run("a_stalled_node_is_missed_and_comes_back") {
        return;
    }
    let bed = Bed::named("stall");
    bed.ok(&["up", "2"]);
    bed.ok(&["stall", "n2", "0.2"]);
    assert_eq!(bed.status()["nodes"][1]["daemon"], "running", "a stall with a time ends by itself");
    bed.ok(&["stall", "n2"]);
    assert_eq!(bed.status()["nodes"][1]["daemon"], "stalled");
    bed.ok(&["heal", "n2"]);
    assert_eq!(bed.status()["nodes"][1]["daemon"], "running");
    eventually("all seeing all", || (1..=2).all(|n| bed.sees(n).is_some_and(|s| s.len() == 2)));
}

#[test]
fn a_killed_node_is_gone_with_its_programs_and_starts_again() {
    use std::os::unix::process::ExitStatusExt;
    if !can_run("a_killed_node_is_gone_with_its_programs_and_starts_again") {
        return;
    }
    let bed = Bed::named("kill");
    bed.ok(&["up", "2"]);
    let mut at_two = bed.command(&["exec", "n2", "sleep", "60"]).spawn().expect("pando runs");
    let mut at_one = bed.command(&["exec", "n1", "sleep", "60"]).spawn().expect("pando runs");
    bed.ok(&["kill", "--daemon", "n2"]);
    assert_eq!(bed.status()["nodes"][1]["daemon"], "down");
    assert_eq!(at_two.try_wait().expect("a child"), None, "only the daemon was killed");
    bed.ok(&["start", "n2"]);
    assert!(!bed.run(&["start", "n2"]).status.success(), "it runs already");
    bed.ok(&["kill", "n2"]);
    assert_eq!(at_two.wait().expect("it ends").signal(), Some(libc::SIGKILL));
    assert_eq!(at_one.try_wait().expect("a child"), None, "n1 was not touched");
    bed.ok(&["start", "n2"]);
    eventually("all seeing all", || (1..=2).all(|n| bed.sees(n).is_some_and(|s| s.len() == 2)));
    bed.ok(&["down"]);
    at_one.wait().expect("down ends it");
    assert_eq!(bed.remains(), Vec::<String>::new());
}

#[test]
fn the_delay_is_what_was_asked_for() {
    if !can_run("the_delay_is_what_was_asked_for") {
        return;
    }
    let bed = Bed::named("delay");
    bed.ok(&["up", "2", "--delay", "20", "--rate", "100"]);
    let mut echo = Echo::start(&bed);
    echo.say("warm");
    let start = std::time::Instant::now();
    echo.say("now");
    let took = start.elapsed().as_millis();
    assert!((40..400).contains(&took), "a round trip with 20 ms each way took {took} ms");
}

/// A perl program at n2 that echoes lines, and one at n1 that sends what we say.
struct Echo {
    server: Child,
    client: Child,
    input: std::process::ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

const SERVER: &str = "use IO::Socket::INET; $| = 1; my $l = IO::Socket::INET->new(Listen => 1, LocalPort => 9000) \
    or die; print \"ready\\n\"; my $c = $l->accept; $c->autoflush(1); while (<$c>) { print $c $_ }";
const CLIENT: &str = "use IO::Socket::INET; $| = 1; my $c = IO::Socket::INET->new('10.77.0.2:9000') or die; \
    $c->autoflush(1); while (<STDIN>) { print $c $_; print scalar <$c> }";

impl Echo {
    fn start(bed: &Bed) -> Echo {
        let mut server = bed.command(&["exec", "n2", "perl", "-e", SERVER]);
        let mut server = server.stdout(Stdio::piped()).spawn().expect("perl runs");
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("it says ready");
        let mut client = bed.command(&["exec", "n1", "perl", "-e", CLIENT]);
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("perl runs");
        let input = client.stdin.take().expect("piped");
        let output = BufReader::new(client.stdout.take().expect("piped"));
        Echo { server, client, input, output }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the echo");
        line.trim().to_string()
    }

    fn say(&mut self, text: &str) {
        writeln!(self.input, "{text}").expect("the client listens");
        assert_eq!(self.hear(), text);
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server] {
            child.kill().and_then(|()| child.wait()).expect("our child");
        }
    }
}
