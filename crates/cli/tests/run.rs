//! `pando run`: the program ends as it would without us.

mod lab;

use lab::{Lab, fails, ok, pando, this_program, until};
use pando_node::views::Process;
use std::os::unix::process::ExitStatusExt;

/// Run by a daemon as its engine; nothing in an ordinary run of the tests.
#[test]
fn __deputy() {
    lab::fake::deputy();
}

fn status(words: &[&str], socket: &std::path::Path) -> (Option<i32>, String) {
    let output = pando().arg("run").args(words).env("PANDO_SOCKET", socket).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn the_status_is_the_programs_own() {
    let lab = Lab::new(1, "");
    let nowhere = lab.dir.join("nowhere");
    for socket in [&lab.nodes[0].socket, &nowhere] {
        let code = |script: &str| status(&["/bin/sh", "-c", script], socket);
        assert_eq!(code("exit 0"), (Some(0), String::new()));
        assert_eq!(code("exit 42"), (Some(42), String::new()));
        for (word, number) in [("TERM", 15), ("USR1", 10), ("KILL", 9)] {
            let script = format!("kill -{word} $$");
            let ended = pando().args(["run", "/bin/sh", "-c", &script]).env("PANDO_SOCKET", socket).status().unwrap();
            assert_eq!(ended.signal(), Some(number), "a shell must see by what it ended");
        }
        assert_eq!(status(&["/no/such/program"], socket).0, Some(127));
        assert_eq!(status(&["/etc/passwd"], socket).0, Some(126));
        let echoed = ok(pando().args(["run", "echo", "--node", "x", "-d"]).env("PANDO_SOCKET", socket));
        assert_eq!(echoed, "--node x -d\n", "the program's options are its own");
    }
    let (code, said) = status(&["--node", "n2", "/bin/sh", "-c", "exit 3"], &nowhere);
    assert_eq!(code, Some(3));
    assert!(said.contains("it runs here and not at n2") && said.contains("pando node"), "{said}");
    let (code, said) = status(&["--node", "n9", "sleep", "0.5"], &lab.nodes[0].socket);
    assert_eq!(code, Some(125));
    assert!(said.contains("there is no node n9 (there are n1); nothing was started"), "{said}");
}

#[test]
fn a_file_has_what_the_program_says_and_nothing_else() {
    let lab = Lab::new(1, "");
    let file = lab.dir.join("said");
    let mut run = lab.nodes[0].cli(&["run", "-d", "echo", "hello"]);
    let output =
        run.stdout(std::fs::File::create(&file).unwrap()).stderr(std::process::Stdio::piped()).output().unwrap();
    assert!(output.status.success());
    let pid: u32 = String::from_utf8(output.stderr).unwrap().trim().parse().expect("its pid");
    assert!(pid > 0);
    until("what it says", || (std::fs::read_to_string(&file).unwrap() == "hello\n").then_some(()));
}

#[test]
fn descriptors_that_are_closed_are_closed_for_the_program() {
    let lab = Lab::new(1, "");
    // The listing is opened above all that is of interest.
    let script = "ls -l /proc/self/fd/ 2>&7 | sed 's/.* \\([0-9]* -> .*\\)/\\1/; s/proc.*/proc/; s/pipe.*/pipe/' >&7";
    for closed in ["", "<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"] {
        let said = |words: &str| {
            let line = format!("{words} $0 -c \"$script\" 7>&1 {closed}");
            let mut command = std::process::Command::new("/bin/sh");
            command.args(["-c", &line, "/bin/sh"]).env("script", script).env("PANDO_SOCKET", &lab.nodes[0].socket);
            ok(command.env("pando", env!("CARGO_BIN_EXE_pando")).stdin(std::process::Stdio::null()))
        };
        assert_eq!(said("$pando run"), said(""), "{closed}");
    }
}

#[test]
fn a_signal_for_us_is_for_the_program() {
    let lab = Lab::new(1, "");
    let script = "trap 'echo got $s; exit 7' $s; echo ready; while :; do sleep 0.05; done";
    for name in ["INT", "TERM", "HUP", "USR1"] {
        // In the background a shell has us ignore SIGINT, which the program would inherit and could not trap.
        let mut command = std::process::Command::new("env");
        command.arg(format!("--default-signal={name}")).arg(pando().get_program());
        command.args(["run", "/bin/sh", "-c", script]).env("s", name).env("PANDO_SOCKET", &lab.nodes[0].socket);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        lab::signal(child.id(), name);
        assert_eq!(lines.next().unwrap().unwrap(), format!("got {name}"));
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }
}

#[test]
fn a_program_is_known_and_goes_where_it_was_told() {
    let lab = Lab::new(2, &format!("engine_program = {:?}", this_program()));
    let n1 = &lab.nodes[0];
    let pid: u32 = ok(&mut n1.cli(&["run", "-d", "--node", "n2", "sleep", "1000"])).trim().parse().unwrap();
    let known: Process = n1.process(pid).unwrap();
    lab::signal(pid, "KILL");
    assert_eq!((known.place.as_str(), known.moves, known.records[0].reason.as_str()), ("n2", 1, "run"));
    let mut child = n1.cli(&["run", "--node", "best", "sleep", "1000"]).spawn().unwrap();
    let known: Process = until("it is away", || {
        let all: Vec<Process> = n1.client().get("/v1/processes").unwrap();
        all.into_iter().find(|p| p.pid != pid && p.place == "n2")
    });
    let stat = std::fs::read_to_string(format!("/proc/{}/status", known.pid)).unwrap();
    assert!(stat.contains(&format!("PPid:\t{}\n", child.id())), "our child: {stat}");
    lab::signal(known.pid, "TERM");
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    let listed = fails(&mut n1.cli(&["explain", &known.pid.to_string()]));
    assert!(listed.contains("there is no process"), "{listed}");
}
