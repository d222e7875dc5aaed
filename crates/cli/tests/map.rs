//! `pando map`: every line has its task, whoever fails and whichever node is lost.

mod lab;

use lab::{Daemon, Lab, until};
use pando_kernel::procfs;
use pando_node::views::Job;
use std::fs;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

const JOBS: &str = "[jobs]\nroot = true\nlost_after_ms = 2000\n";

fn map(node: &Daemon, words: &[&str]) -> Command {
    let mut command = node.cli(&["map"]);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn give(command: &mut Command, lines: &str) -> Child {
    let mut child = command.spawn().unwrap();
    let (mut to, lines) = (child.stdin.take().unwrap(), lines.to_owned());
    std::thread::spawn(move || to.write_all(lines.as_bytes()));
    child
}

fn ended(child: Child) -> (i32, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code().unwrap_or(-1), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn numbers(upto: usize) -> String {
    (1..=upto).map(|i| format!("{i}\n")).collect()
}

fn sorted(text: &str) -> Vec<usize> {
    let mut all: Vec<usize> = text.lines().map(|l| l.parse().unwrap()).collect();
    all.sort_unstable();
    all
}

#[test]
fn each_line_has_one_task_and_its_output_is_in_one_piece() {
    let lab = Lab::new(3, JOBS);
    let n2 = &lab.nodes[1];
    let (status, out, err) = ended(give(&mut map(n2, &["-P4", "echo"]), &numbers(3000)));
    assert_eq!((status, sorted(&out), err.as_str()), (0, (1..=3000).collect(), ""));
    let script = "for i in 1 2 3 4 5; do echo {} $i; sleep 0.01; echo {} $i >&2; done; echo $PANDO_NODE > \"$OUT.{}\"";
    let out = lab.dir.join("out");
    let (status, text, err) = ended(give(map(n2, &["-P3", "sh", "-c", script]).env("OUT", &out), &numbers(30)));
    assert_eq!(status, 0, "{err}");
    for text in [text, err] {
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 150);
        for piece in lines.chunks(5) {
            let task = piece[0].split(' ').next().unwrap();
            assert_eq!(piece, (1..=5).map(|i| format!("{task} {i}")).collect::<Vec<_>>());
        }
    }
    let nodes: std::collections::BTreeSet<String> =
        (1..=30).map(|i| fs::read_to_string(lab.dir.join(format!("out.{i}"))).unwrap().trim().to_owned()).collect();
    assert_eq!(nodes.len(), 3, "all nodes have some");
    let child = give(&mut map(n2, &["-0", "printf", "<%s>"]), "a b\0c\nd\0");
    let out = ended(child).1;
    assert!(out == "<a b><c\nd>" || out == "<c\nd><a b>", "{out}");
    let file = lab.dir.join("lines");
    fs::write(&file, "a\nb\n").unwrap();
    let output = n2.cli(&["run", "--each"]).arg(&file).args(["echo", "<{}>"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text == "<a>\n<b>\n" || text == "<b>\n<a>\n", "{text}");
    // Much of it, too.
    let (_, out, _) = ended(give(&mut map(n2, &["-P2", "sh", "-c", "yes {} | head -c 12000000"]), &numbers(4)));
    let turns = out.lines().collect::<Vec<_>>().chunk_by(|a, b| a == b).count();
    assert!(out.len() == 48_000_000 && turns == 4, "{turns}");
    let (status, _, err) = ended(give(&mut map(n2, &["echo"]), &("x".repeat(200_000) + "\n")));
    assert!(status == 1 && err.contains("longer than a program's argument may be"), "{err}");
    assert_eq!(ended(give(&mut map(n2, &["true"]), "")).0, 0);
    let (status, _, err) = ended(give(&mut map(n2, &["/no/such/program"]), "1\n"));
    assert!(status == 125 && err.contains("/no/such/program"), "{err}");
}

#[test]
fn tasks_that_fail_are_tried_again_and_counted() {
    let lab = Lab::new(2, JOBS);
    let n1 = &lab.nodes[0];
    let (status, out, err) = ended(give(&mut map(n1, &["sh", "-c", "echo {}; [ {} != 3 ]"]), &numbers(5)));
    assert_eq!((status, sorted(&out)), (123, vec![1, 2, 3, 4, 5]));
    assert!(err.contains("ended with exit status 1") && err.contains("[ 3 != 3 ]"), "{err}");
    // Each fails twice.
    let count = lab.dir.join("count");
    let script = "echo x >> \"$COUNT.{}\"; [ $(wc -l < \"$COUNT.{}\") = 3 ]";
    let failed = |retries: &str, mark: &str| {
        let count = format!("{}{mark}", count.display());
        let mut command = map(n1, &["--retries", retries, "sh", "-c", script]);
        ended(give(command.env("COUNT", &count), &numbers(20))).0
    };
    assert_eq!((failed("2", "a"), failed("1", "b")), (0, 123));
    let started = lab.dir.join("started");
    let script = "echo {} >> \"$S\"; sleep 0.05; [ {} != 2 ]";
    let mut command = map(n1, &["--fail-fast", "-P1", "sh", "-c", script]);
    let (status, ..) = ended(give(command.env("S", &started), &numbers(500)));
    let begun = lab::lines_of(&started).len();
    assert!(status == 123 && begun < 50, "{status} {begun}");
}

#[test]
fn what_ran_at_a_node_that_is_lost_runs_elsewhere_and_nothing_is_left() {
    let mut lab = Lab::new(4, &format!("{JOBS}arity = 1\n"));
    let go = lab.dir.join("go");
    let script = "until [ -e \"$GO\" ]; do sleep 0.02; done; echo {}";
    let mut command = map(&lab.nodes[0], &["-P3", "sh", "-c", script]);
    let child = give(command.env("GO", &go).env("MARK", "m1"), &numbers(100));
    let marked = || {
        let is = |pid: &i32| procfs::variable(*pid, "MARK").is_some_and(|m| m == "m1");
        procfs::processes().into_iter().filter(is).filter(|pid| *pid != child.id() as i32).count()
    };
    until("tasks at all nodes", || (marked() >= 12).then_some(()));
    // Those below it in the tree are lost with it.
    lab.nodes[2].kill();
    fs::write(&go, "").unwrap();
    let pid = child.id();
    let (status, out, err) = ended(child);
    assert_eq!((status, sorted(&out)), (0, (1..=100).collect()), "{err}");
    assert!(err.contains("node n3 was lost") && err.contains("node n4 was lost"), "{err}");
    let _ = pid;
    // Ended by its user.
    let mut command = map(&lab.nodes[0], &["-P3", "sh", "-c", "sleep 1000 & sleep 1000"]);
    let child = give(command.env("MARK", "m2"), &numbers(100));
    let left = || {
        let is = |pid: &i32| procfs::variable(*pid, "MARK").is_some_and(|m| m == "m2");
        procfs::processes().into_iter().filter(is).count()
    };
    until("tasks", || (left() >= 6).then_some(()));
    lab::signal(child.id(), "INT");
    let (status, _, err) = ended(child);
    assert!(status == 130 && err.contains("interrupted"), "{status} {err}");
    until("nothing left", || (left() == 0).then_some(()));
    for node in [0, 1, 3] {
        until("no job", || lab.nodes[node].client().get::<Vec<Job>>("/v1/jobs").unwrap().is_empty().then_some(()));
    }
}

#[test]
fn what_is_run_again_is_told_once() {
    let lab = Lab::new(4, &format!("{JOBS}arity = 1\n"));
    let go = lab.dir.join("go");
    let script = "until [ -e \"$GO\" ]; do sleep 0.02; done; echo {}";
    let mut command = map(&lab.nodes[0], &["-P2", "sh", "-c", script]);
    let child = give(command.env("GO", &go).env("MARK", "m3"), &numbers(60));
    // The shells of tasks; what they start in their loops comes and goes.
    let is_task = |pid: &i32| procfs::name(*pid) == "sh" && procfs::variable(*pid, "MARK").is_some_and(|m| m == "m3");
    let tasks = || procfs::processes().iter().filter(|pid| is_task(pid)).count();
    until("tasks at all nodes", || (tasks() >= 8).then_some(()));
    // The node of n4's parent in the tree goes on, and so do n4's tasks, which are given to others.
    lab::signal(lab::launchers_of(&lab.nodes[2])[0] as u32, "KILL");
    until("that its tasks are gone", || (tasks() < 8).then_some(()));
    fs::write(&go, "").unwrap();
    let (status, out, err) = ended(child);
    assert_eq!((status, sorted(&out)), (0, (1..=60).collect()), "{err}");
}

#[test]
fn a_task_that_is_too_long_for_a_message_fails_and_the_others_run() {
    let lab = Lab::new(1, JOBS);
    let mut command = map(&lab.nodes[0], &["--"]);
    command.arg("echo").args(["{}"; 80]);
    let (status, out, said) = ended(give(&mut command, &format!("a\n{}\nb\n", "x".repeat(120_000))));
    assert_eq!(status, 123, "{said}");
    assert!(out.contains("a a a") && out.contains("b b b") && said.contains("task 2 is too long"), "{said}");
}

#[test]
fn what_waits_behind_a_long_one_runs_elsewhere() {
    let lab = Lab::new(2, JOBS);
    let (go, done) = (lab.dir.join("go"), lab.dir.join("done"));
    // Short ones, so that many are given at once; then one that does not end.
    let script = "[ {} = 400 ] && until [ -e \"$GO\" ]; do sleep 0.02; done; echo {} >> \"$DONE\"";
    let mut command = map(&lab.nodes[0], &["-P1", "sh", "-c", script]);
    let child = give(command.env("GO", &go).env("DONE", &done), &numbers(500));
    until("all others", || (lab::lines_of(&done).len() == 499).then_some(()));
    fs::write(&go, "").unwrap();
    let (status, _, err) = ended(child);
    assert_eq!((status, sorted(&fs::read_to_string(&done).unwrap())), (0, (1..=500).collect()), "{err}");
}

#[test]
fn gnu_parallels_words_do_what_they_do_there() {
    let lab = Lab::new(2, JOBS);
    let n1 = &lab.nodes[0];
    let run = |words: &[&str], lines: &str| ended(give(&mut map(n1, words), lines));
    // In the order of the lines, whoever ends first.
    let script = "[ $(({} % 4)) = 1 ] && sleep 0.2; echo {}; echo {}";
    let twice: String = (1..=40).map(|i| format!("{i}\n{i}\n")).collect();
    assert_eq!(run(&["-k", "-P4", "sh", "-c", script], &numbers(40)), (0, twice, String::new()));
    let (status, out, _) = run(&["-k", "--retries", "1", "sh", "-c", "echo {}; [ {} != 2 ]"], &numbers(3));
    assert_eq!((status, out.as_str()), (123, "1\n2\n2\n3\n"));
    let strings = ["-k", "echo", "{#}", "{.}", "{/}", "{//}", "{/.}", "<{}>"];
    assert_eq!(run(&strings, "a/b.c\nd\n").1, "1 a/b b.c a b <a/b.c>\n2 d d . d <d>\n");
    assert_eq!(run(&["-k", "-j2", "echo", "x{}", ":::", "a b", "c"], "not read\n").1, "xa b\nxc\n");
    let (status, _, err) = run(&["echo", ":::", "a", ":::", "b"], "");
    assert!(status == 125 && err.contains(":::"), "{status} {err}");
    let begun = std::time::Instant::now();
    let (_, out, _) = run(&["-k", "--delay", "0.2", "date", "+%s%N #"], &numbers(4));
    assert!(begun.elapsed().as_millis() >= 600, "{:?}", begun.elapsed());
    let times: Vec<u64> = out.lines().map(|l| l.split(' ').next().unwrap().parse().unwrap()).collect();
    // Each goes to another process, which is woken sooner or later.
    assert!(times.windows(2).all(|w| w[1] > w[0] + 50_000_000), "{times:?}");
    // One that takes too long ends, deaf or not, with what it has started.
    let log = lab.dir.join("late").display().to_string();
    let script = "[ {} = 1 ] && trap '' TERM; [ {} = 3 ] || { sh -c 'while :; do sleep 0.1; done' & while :; do sleep 0.1; done; }";
    let mut command = map(n1, &["-P4", "--timeout", "0.5", "--joblog", &log, "sh", "-c", script]);
    let (status, _, err) = ended(give(command.env("MARK", "late"), &numbers(3)));
    assert!(status == 123 && err.matches("took longer than it may, and was ended").count() == 2, "{status} {err}");
    let ends: Vec<Vec<String>> =
        logged(&log).into_iter().map(|l| vec![l[0].clone(), l[6].clone(), l[7].clone()]).collect();
    assert!(ends.contains(&["1", "-1", "15"].map(String::from).to_vec()), "{ends:?}");
    assert!(ends.contains(&["3", "0", "0"].map(String::from).to_vec()), "{ends:?}");
    let marked = |pid: &i32| procfs::variable(*pid, "MARK").is_some_and(|m| m == "late");
    until("nothing left", || (procfs::processes().iter().filter(|p| marked(p)).count() == 0).then_some(()));
}

/// The fields of a job log's lines.
fn logged(path: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().skip(1).map(|l| l.split('\t').map(|f| f.trim().to_owned()).collect()).collect()
}

#[test]
fn what_was_done_is_logged_and_not_done_again() {
    let lab = Lab::new(2, JOBS);
    let n1 = &lab.nodes[0];
    let log = lab.dir.join("log").display().to_string();
    let count = lab.dir.join("count");
    let run = |words: &[&str], upto: usize| {
        let words = [words, &["sh", "-c", "echo {} >> \"$COUNT\"; echo {}; [ {} != 3 ]"]].concat();
        ended(give(map(n1, &words).env("COUNT", &count), &numbers(upto)))
    };
    assert_eq!(run(&["--joblog", &log], 5).0, 123);
    let mut lines = logged(&log);
    lines.sort();
    let ends: Vec<String> = lines.iter().map(|l| format!("{} {} {} {}", l[0], l[5], l[6], l[7])).collect();
    assert_eq!(ends, ["1 2 0 0", "2 2 0 0", "3 2 1 0", "4 2 0 0", "5 2 0 0"]);
    assert!(lines.iter().all(|l| ["n1", "n2"].contains(&l[1].as_str()) && l.len() == 9 && l[8].contains("echo")));
    let (status, out, _) = run(&["--joblog", &log, "--resume"], 7);
    assert_eq!((status, sorted(&out), logged(&log).len()), (0, vec![6, 7], 7));
    let (status, out, _) = run(&["--joblog", &log, "--resume-failed", "-k"], 8);
    assert_eq!((status, out.as_str()), (123, "3\n8\n"));
    assert_eq!(sorted(&fs::read_to_string(&count).unwrap()), [1, 2, 3, 3, 4, 5, 6, 7, 8]);
    assert_eq!(run(&["--resume"], 1).0, 2, "without a log");
    let (status, out, err) = run(&["--joblog", "/dev/full"], 5);
    assert!(status == 125 && out.is_empty() && err.contains("--joblog /dev/full: No space left"), "{status} {err}");
    // A disk that becomes full: nothing is shown that was not logged.
    if !lab::is_root("what_was_done_is_logged_and_not_done_again") {
        return;
    }
    let (disk, kept) = (lab.dir.join("disk"), lab.dir.join("kept"));
    fs::create_dir(&disk).unwrap();
    let script = "mount -t tmpfs -o size=4k none \"$DISK\" && seq 500 | $PANDO map --joblog \"$DISK/log\" echo; s=$?; cat \"$DISK/log\" > \"$KEPT\"; exit $s";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).env("PANDO", env!("CARGO_BIN_EXE_pando")).env("PANDO_SOCKET", &n1.socket);
    let output = command.env("DISK", &disk).env("KEPT", &kept).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(
        output.status.code() == Some(1) && err.contains("No space left") && err.contains("all tasks are ended"),
        "{err}"
    );
    let logged: Vec<String> = logged(&kept.display().to_string()).into_iter().map(|l| l[0].clone()).collect();
    assert!(!out.is_empty() && out.lines().all(|line| logged.contains(&line.to_owned())), "{out} {logged:?}");
}
