//! What people see of processes: `ps`, `explain`, and a line when a move takes long.

mod lab;

use lab::personal::Home;
use lab::{Lab, Sleeper, fails, is_root, ok, this_program, until};
use pando_node::views::Process;
use std::process::{Command, Stdio};

/// Run by a daemon as its engine; nothing in an ordinary run of the tests.
#[test]
fn __deputy() {
    lab::fake::deputy();
}

fn fake_lab(count: usize) -> Lab {
    Lab::new(count, &format!("engine_program = {:?}", this_program()))
}

fn explain(lab: &Lab, pid: u32) -> String {
    ok(&mut lab.nodes[0].cli(&["explain", &pid.to_string()]))
}

#[test]
fn a_process_whose_move_was_refused_is_not_kept() {
    let lab = fake_lab(2);
    let (n1, sleeper) = (&lab.nodes[0], Sleeper::new());
    for reason in ["complain", "crash"] {
        let request = serde_json::json!({ "pid": sleeper.pid(), "dest": "n2", "reason": reason });
        let refused: Result<serde_json::Value, _> = n1.client().post("/v1/move", &request);
        assert!(refused.is_err());
        until("it is forgotten", || n1.process(sleeper.pid()).is_none().then_some(()));
    }
    // With the real engine: it says hello before it refuses.
    let lab = Lab::new(2, "");
    let stopped = Sleeper::new();
    lab::signal(stopped.pid(), "STOP");
    let said = fails(&mut lab.nodes[0].cli(&["move", &stopped.pid().to_string(), "n2"]));
    assert!(said.contains("stopped"), "{said}");
    until("it is forgotten", || lab.nodes[0].process(stopped.pid()).is_none().then_some(()));
    assert_eq!(ok(&mut lab.nodes[0].cli(&["ps"])).lines().count(), 1, "nothing but the header");
}

#[test]
fn ps_shows_what_is_at_work_and_all_if_asked() {
    let lab = fake_lab(2);
    let (n1, sleeper) = (&lab.nodes[0], Sleeper::new());
    let pid = sleeper.pid().to_string();
    let listed = |words: &[&str]| ok(&mut n1.cli(words)).contains(&pid);
    ok(&mut n1.cli(&["move", &pid, "n2"]));
    assert!(listed(&["ps"]));
    ok(&mut n1.cli(&["move", &pid, "home"]));
    until("it is home for good", || n1.process(sleeper.pid()).filter(|p| p.helper.is_none()));
    assert!(!listed(&["ps"]) && listed(&["ps", "-a"]) && listed(&["ps", "--json"]));
    let job: u32 = ok(&mut n1.cli(&["run", "-d", "sleep", "1000"])).trim().parse().unwrap();
    let shown = ok(&mut n1.cli(&["ps"]));
    lab::signal(job, "KILL");
    assert!(shown.contains(&job.to_string()), "a job is shown wherever it is: {shown}");
}

#[test]
fn ps_shows_the_command_after_exec_in_eighty_columns() {
    let lab = fake_lab(1);
    let (n1, go) = (&lab.nodes[0], lab.dir.join("go"));
    let long = "x".repeat(150);
    let script = format!("while [ ! -e {} ]; do sleep 0.01; done; exec sh -c 'read a' {long}", go.display());
    let mut child = n1.cli(&["run", "sh", "-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    let known: Process = until("it is known", || {
        let all: Vec<Process> = n1.client().get("/v1/processes").unwrap();
        all.into_iter().next()
    });
    assert!(known.command.starts_with("sh -c while"), "{known:?}");
    std::fs::write(go, "").unwrap();
    until("the new command", || n1.process(known.pid).filter(|p| p.command.starts_with("sh -c read a xxx")));
    let narrow = ok(n1.cli(&["ps"]).env("COLUMNS", "80"));
    assert!(narrow.lines().all(|l| l.len() <= 80) && narrow.contains("sh -c read a"), "{narrow}");
    assert!(narrow.lines().any(|l| l.len() == 80), "{narrow}");
    let whole = ok(n1.cli(&["ps"]).env_remove("COLUMNS"));
    assert!(whole.contains(&long), "what is no terminal has no width: {whole}");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn explain_knows_what_is_no_program() {
    let lab = fake_lab(2);
    let mut child = Command::new("true").spawn().unwrap();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    until("a zombie", || state().contains(") Z ").then_some(()));
    let zombie = explain(&lab, child.id());
    let parent = format!("its parent, process {} (", std::process::id());
    assert!(zombie.contains("it has ended (a zombie)") && zombie.contains(&parent), "{zombie}");
    assert_eq!(zombie.matches("ended").count(), 1, "one obstacle is enough: {zombie}");
    child.wait().unwrap();
    let gone = fails(&mut lab.nodes[0].cli(&["explain", &child.id().to_string()]));
    assert!(gone.contains(&format!("there is no process {} here", child.id())), "{gone}");
    let sleeper = Sleeper::new();
    let plain = explain(&lab, sleeper.pid());
    assert!(plain.contains("resident, 1 thread)") && plain.contains(", 0 moves"), "{plain}");
    if !is_root("explain_knows_what_is_no_program (process 1 and the kernel's own)") {
        return;
    }
    let init = explain(&lab, 1);
    assert!(init.contains("process 1, the init of this machine") && !init.contains("best other node"), "{init}");
    match std::fs::read_to_string("/proc/2/comm") {
        Ok(name) if name.trim() == "kthreadd" => {
            let kernel = explain(&lab, 2);
            assert!(kernel.contains("a kernel thread: it belongs to the kernel of this machine"), "{kernel}");
        }
        _ => eprintln!("SKIPPED: no kernel thread can be seen from here"),
    }
}

#[test]
fn a_guest_is_explained_by_its_home_and_pid_there() {
    let lab = Lab::new(3, "");
    let sleeper = Sleeper::new();
    ok(&mut lab.nodes[0].cli(&["move", &sleeper.pid().to_string(), "n2"]));
    let helper = until("the guest is known", || lab.nodes[1].process(sleeper.pid())?.helper);
    let child = |pid: u32| -> u32 {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        list.split_whitespace().next().unwrap().parse().unwrap()
    };
    let body = child(child(helper)).to_string();
    let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!((name(&helper.to_string()).as_str(), name(&body).as_str()), ("pando-guest\n", "guest:sleep\n"));
    for verb in [&["explain", &body][..], &["move", &body, "n3"]] {
        let said = fails(&mut lab.nodes[1].cli(verb));
        assert!(said.contains(&format!("how process {} of node n1 runs here", sleeper.pid())), "{said}");
    }
    let said = fails(&mut lab.nodes[2].cli(&["explain", &body]));
    assert!(said.contains("a guest of another node on this machine"), "{said}");
}

#[test]
fn where_a_process_is_cut_off_explain_says_what_that_means() {
    let lab = fake_lab(2);
    let sleeper = Sleeper::new();
    ok(&mut lab.nodes[0].cli(&["move", &sleeper.pid().to_string(), "n2"]));
    assert!(!explain(&lab, sleeper.pid()).contains("lost_after_ms"));
    lab::signal(lab.nodes[1].pid(), "STOP");
    let state = || lab.nodes[0].node("n2").state;
    until("not up", || (state() != pando_node::views::Liveness::Up).then_some(()));
    let said = explain(&lab, sleeper.pid());
    lab::signal(lab.nodes[1].pid(), "CONT");
    assert!(said.contains("node n2 is ") && said.contains("lost_after_ms"), "{said}");
}

#[test]
fn who_waits_at_a_terminal_is_told_what_for() {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("SKIPPED who_waits_at_a_terminal_is_told_what_for: it needs script (bsdutils), for a terminal");
        return;
    }
    let lab = fake_lab(2);
    let (n1, sleeper) = (&lab.nodes[0], Sleeper::new());
    std::fs::write(n1.state.join("dawdle"), "").unwrap();
    let line = format!("{} move {} n2", env!("CARGO_BIN_EXE_pando"), sleeper.pid());
    let said = lab.dir.join("said");
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-f", "-c", &line]).arg(&said).env("PANDO_SOCKET", &n1.socket);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let waits = format!("process {} waits for n2 to take it, and goes on at n1 meanwhile", sleeper.pid());
    let text = || std::fs::read_to_string(&said).unwrap_or_default();
    until("a line", || text().contains(&waits).then_some(()));
    std::fs::write(n1.state.join("let-go"), "").unwrap();
    assert!(child.wait().unwrap().success());
    until("the end", || text().contains("n1 -> n2").then_some(()));
    assert_eq!(text().matches("waits for").count(), 1, "{}", text());
}

#[test]
fn a_program_with_rights_of_others_is_refused_for_that() {
    let test = "a_program_with_rights_of_others_is_refused_for_that";
    if !is_root(test) {
        return;
    }
    let (lab, home) = (Lab::new(2, ""), Home::new());
    let Some(node) = home.node(test, "p") else { return };
    // Owned by root: one acts as root, the other is only not to be read.
    for (mode, explained, moved) in [
        (
            0o4755,
            "has rights of uid 0, too, as a set-user-ID program does: only root may explain it",
            "only root may move it",
        ),
        (0o0711, "it is closed even to its own user", "it is closed even to its own user"),
    ] {
        let program = Sleeper::of(&mut home.command(lab::sleep_with_mode(&lab.dir, mode)));
        let pid = program.pid().to_string();
        let both = |command: &mut Command| {
            let output = command.output().unwrap();
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
        };
        let said = both(&mut node.cli(&["explain", &pid]));
        assert!(said.contains(explained) && said.contains("a node that root runs"), "{mode:o}: {said}");
        assert!(!said.contains("its owner"), "its owner asks: {said}");
        let said = both(node.cli(&["move", &pid, "n2"]).env("PANDO_SOCKET", &lab.nodes[0].socket));
        assert!(said.contains(moved), "{mode:o}: {said}");
    }
}

#[test]
fn what_is_stopped_is_shown_as_stopped_wherever_it_is() {
    let (lab, sleeper) = (Lab::new(2, ""), Sleeper::new());
    let (here, there) = (&lab.nodes[0], &lab.nodes[1]);
    let pid = sleeper.pid();
    ok(&mut here.cli(&["move", &pid.to_string(), "n2"]));
    for _ in 0..2 {
        lab::signal(pid, "STOP");
        for node in [here, there] {
            until("it is stopped", || node.process(pid).filter(|p| p.stopped && p.phase == "away"));
            let row = ok(&mut node.cli(&["ps"]));
            assert!(row.contains(" n2 ") && row.contains("stopped") && !row.contains("away"), "{row}");
        }
        let said = explain(&lab, pid);
        assert!(said.contains("now at n2 (away, stopped)"), "{said}");
        lab::signal(pid, "CONT");
        for node in [here, there] {
            until("it goes on", || node.process(pid).filter(|p| !p.stopped && p.phase == "away"));
        }
        assert!(explain(&lab, pid).contains("now at n2 (away)"));
    }
    let job: u32 = ok(&mut here.cli(&["run", "-d", "sleep", "1000"])).trim().parse().unwrap();
    lab::signal(job, "STOP");
    until("it is stopped at home", || here.process(job).filter(|p| p.stopped && p.phase == "home"));
    lab::signal(job, "KILL");
}

#[test]
fn what_was_lost_is_remembered() {
    let lab = Lab::new(2, "");
    let mut run = lab.nodes[0].cli(&["run", "--node", "n2", "sleep", "1000"]);
    let run = run.stderr(Stdio::piped()).spawn().unwrap();
    let guest = until("a guest", || {
        let all: Vec<Process> = lab.nodes[1].client().get("/v1/processes").unwrap();
        all.into_iter().find(|p| p.phase == "away")
    });
    until("it is away", || lab.nodes[0].process(guest.pid).filter(|p| p.phase == "away"));
    lab::signal(guest.helper.unwrap(), "KILL");
    let said = String::from_utf8(run.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("`pando events` has what happened before"), "{said}");
    let pid = guest.pid.to_string();
    for words in [&["explain", &pid][..], &["move", &pid, "home"]] {
        let said = fails(&mut lab.nodes[0].cli(words));
        let begins = format!("pando: process {pid} was lost at n2 ");
        assert!(said.starts_with(&begins) && said.contains(" s ago: ") && said.contains("`pando events`"), "{said}");
    }
}

#[test]
fn a_program_that_denies_itself_new_code_is_told_from_others() {
    let lab = Lab::new(2, "");
    // prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0)
    let script = "$| = 1; print syscall(157, 65, 1, 0, 0, 0), qq(\\n); print qq(still here\\n) while <STDIN>";
    let mut command = Command::new("perl");
    let mut child = command.args(["-e", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    if lines.next().unwrap().unwrap() != "0" {
        child.kill().unwrap();
        child.wait().unwrap();
        eprintln!("SKIPPED a_program_that_denies_itself_new_code_is_told_from_others: the kernel has no PR_SET_MDWE");
        return;
    }
    let said = fails(&mut lab.nodes[0].cli(&["move", &child.id().to_string(), "n2"]));
    assert!(said.contains("PR_SET_MDWE") && said.contains("MemoryDenyWriteExecute=no"), "{said}");
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"well?\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "still here");
    drop(input);
    assert!(child.wait().unwrap().success());
}
