//! Parallel jobs on real daemons: what ranks read, write and end with, and that nothing is left of them whoever dies.

mod lab;

use lab::{Daemon, Lab, fails, is_root, ok, signal, until};
use pando_kernel::procfs;
use pando_node::views::Job;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

const JOBS: &str = "[jobs]\nroot = true\nlost_after_ms = 2000\n";

fn run(node: &Daemon, words: &[&str]) -> Command {
    let mut command = node.cli(&["run"]);
    command.args(words);
    command
}

fn code(command: &mut Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code().unwrap_or(-1), String::from_utf8(stderr).unwrap())
}

/// Processes of ranks that were given this mark; those that have ended and were not waited for, too.
fn left(mark: &str) -> Vec<i32> {
    let marked =
        |pid: &i32| procfs::variable(*pid, "MARK").is_some_and(|m| m == mark) && *pid != std::process::id() as i32;
    procfs::processes().into_iter().filter(marked).collect()
}

/// The launchers below these daemons.
fn launchers(lab: &Lab) -> Vec<i32> {
    lab.nodes.iter().filter(|n| n.child_lives()).flat_map(lab::launchers_of).collect()
}

/// A job that goes on for long, with processes of processes; it has begun.
fn long(lab: &Lab, mark: &str, words: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = run(&lab.nodes[0], words);
    let program = "(setsid sleep 1000 & ) ; sleep 1000 & echo begun; wait";
    command.args(["sh", "-c", program]).env("MARK", mark).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    (child, out)
}

fn said(mut child: Child) -> (i32, String) {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code().unwrap_or(-1), text)
}

/// But for `pando run` itself, which has the mark too.
fn nothing_is_left(lab: &Lab, mark: &str) {
    until(&format!("nothing left of {mark}"), || left(mark).is_empty().then_some(()));
    until("no launchers", || launchers(lab).is_empty().then_some(()));
    for node in lab.nodes.iter().filter(|n| n.child_lives()) {
        until("no job", || node.client().get::<Vec<Job>>("/v1/jobs").unwrap().is_empty().then_some(()));
        until("no zombies", || (node.zombies() == 0).then_some(()));
    }
}

#[test]
fn every_rank_has_its_place_and_its_words() {
    let lab = Lab::new(3, JOBS);
    let n1 = &lab.nodes[0];
    let text = ok(&mut run(
        n1,
        &["-N3", "-n7", "sh", "-c", "echo $PANDO_RANK $PANDO_SIZE $PANDO_NODE $PANDO_LOCAL_RANK $SLURM_PROCID"],
    ));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let at = [("n1", 0), ("n1", 1), ("n1", 2), ("n2", 0), ("n2", 1), ("n3", 0), ("n3", 1)];
    let expected: Vec<String> = (0..7).map(|r| format!("{r} 7 {} {} {r}", at[r].0, at[r].1)).collect();
    assert_eq!(lines, expected);
    // What a shell hands on.
    let mut command = Command::new("sh");
    let script = "umask 027; ulimit -n 77; cd /usr; exec \"$@\"";
    command.args(["-c", script, "sh"]).arg(env!("CARGO_BIN_EXE_pando")).args([
        "run",
        "-w",
        "n3",
        "sh",
        "-c",
        "umask; ulimit -n; pwd; echo \"$X\"",
    ]);
    command.env("PANDO_SOCKET", &n1.socket).env("X", "a b\nc");
    assert_eq!(ok(&mut command), "0027\n77\n/usr\na b\nc\n");
    assert_eq!(ok(&mut run(n1, &["-w", "n2", "-D", "/tmp", "pwd"])), "/tmp\n");
    // CPUs of one's own, as far as there are enough.
    let script = "grep Cpus_allowed_list /proc/self/status";
    let mine: Vec<String> =
        ok(&mut run(n1, &["-w", "n2", "-n2", "-c1", "sh", "-c", script])).lines().map(str::to_owned).collect();
    if std::thread::available_parallelism().unwrap().get() > 1 {
        assert!(mine.len() == 2 && mine[0] != mine[1], "{mine:?}");
    }
    // Under another name.
    let link = lab.dir.join("mpiexec");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pando"), &link).unwrap();
    let mut command = Command::new(&link);
    command.args(["-np", "2", "-hosts", "n2,n3", "sh", "-c", "echo $PANDO_NODE"]).env("PANDO_SOCKET", &n1.socket);
    let mut names: Vec<String> = ok(&mut command).lines().map(str::to_owned).collect();
    names.sort();
    assert_eq!(names, ["n2", "n3"]);
    let refused = [
        (vec!["-N4", "true"], "3 take ranks"),
        (vec!["-N2", "/no/such/program"], "/no/such/program"),
        (vec!["-w", "n2", "-D", "/no/such/directory", "true"], "there is no directory /no/such/directory here"),
        (vec!["-w", "n9", "true"], "n9"),
        (vec!["-N2", "/etc/passwd"], "it is no program"),
    ];
    for (words, why) in refused {
        let (status, text) = code(&mut run(n1, &words));
        assert!(
            status == 125 && text.contains(why) && text.contains("nothing was started"),
            "{words:?}: {status} {text}"
        );
    }
    nothing_is_left(&lab, "none");
}

#[test]
fn what_ranks_write_comes_whole_and_what_they_read_is_what_was_sent() {
    let lab = Lab::new(3, JOBS);
    let n2 = &lab.nodes[1];
    // Megabytes of each rank: no line lost, none in another one's.
    let program = "i=0; while [ $i -lt 30000 ]; do echo \"rank $PANDO_RANK line $i of a text that is long enough to be cut\"; i=$((i+1)); done";
    let text = ok(&mut run(n2, &["-N3", "-n6", "sh", "-c", program]));
    let mut next = [0; 6];
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let rank: usize = words[1].parse().unwrap();
        assert_eq!(line, format!("rank {rank} line {} of a text that is long enough to be cut", next[rank]));
        next[rank] += 1;
    }
    assert_eq!(next, [30000; 6]);
    // Bytes of any kind there and back.
    let bytes: Vec<u8> = (0..5_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (words, copies) in [(vec!["-w", "n3", "cat"], 1), (vec!["-N3", "-i", "all", "-o", "OUT.%r", "cat"], 3)] {
        let pattern = lab.dir.join("OUT.%r").display().to_string();
        let words: Vec<&str> = words.iter().map(|w| if *w == "OUT.%r" { pattern.as_str() } else { w }).collect();
        let mut child = run(n2, &words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut to, sent) = (child.stdin.take().unwrap(), bytes.clone());
        let writes = std::thread::spawn(move || to.write_all(&sent).unwrap());
        let mut got = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
        writes.join().unwrap();
        assert!(child.wait().unwrap().success());
        if copies == 1 {
            assert!(got == bytes);
        } else {
            (0..copies).for_each(|r| assert!(fs::read(lab.dir.join(format!("OUT.{r}"))).unwrap() == bytes, "rank {r}"));
        }
    }
    // Nobody reads it: that blocks nobody.
    let mut child = run(n2, &["-N2", "true"]).stdin(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(&bytes);
    assert!(child.wait().unwrap().success());
    let text = ok(run(n2, &["-N2", "-l", "-i", "none", "sh", "-c", "printf 'a\\nb'; cat"]).stdin(Stdio::null()));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: a", "0: b", "1: a", "1: b"]);
}

#[test]
fn a_job_ends_as_its_ranks_end() {
    let lab = Lab::new(2, JOBS);
    let n1 = &lab.nodes[0];
    assert_eq!(code(&mut run(n1, &["-w", "n2", "sh", "-c", "exit 7"])), (7, String::new()));
    let (status, text) =
        code(run(n1, &["-N2", "-n4", "sh", "-c", "[ $PANDO_RANK = 3 ] && exit 9; sleep 1000"]).env("MARK", "e1"));
    assert!(
        status == 9 && text.contains("rank 3 at n2 ended with exit status 9; the others are ended"),
        "{status} {text}"
    );
    // Deaf ones, too.
    let deaf = "trap '' TERM; [ $PANDO_RANK = 1 ] && exit 3; while :; do sleep 1; done";
    assert_eq!(code(run(n1, &["-N2", "--grace", "1", "sh", "-c", deaf]).env("MARK", "e2")).0, 3);
    let kept = "[ $PANDO_RANK = 0 ] && exit 4; sleep 0.3; echo done";
    let output = run(n1, &["-N2", "--kill-on-bad-exit=0", "sh", "-c", kept]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(4), b"done\n".as_slice()));
    let (status, text) = code(&mut run(n1, &["-N2", "sh", "-c", "kill -SEGV $$"]));
    assert!(status == 139 && text.contains("was ended by signal 11"), "{status} {text}");
    nothing_is_left(&lab, "e1");
    nothing_is_left(&lab, "e2");
}

#[test]
fn a_signal_is_for_every_process_of_every_rank() {
    let lab = Lab::new(2, JOBS);
    let program = "trap 'echo outer' USR1; sh -c \"trap 'echo inner; exit' USR1; echo ready; while :; do sleep 0.05; done\"; exit 0";
    let mut command = run(&lab.nodes[0], &["-N2", "-n4", "sh", "-c", program]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (0..4).for_each(|_| assert_eq!(lines.next().unwrap().unwrap(), "ready"));
    signal(child.id(), "USR1");
    let mut rest: Vec<String> = lines.map(Result::unwrap).collect();
    rest.sort_unstable();
    assert_eq!(rest, [vec!["inner"; 4], vec!["outer"; 4]].concat());
    child.wait().unwrap();
    // Ctrl-C twice.
    let (child, _out) = long(&lab, "s1", &["-N2", "-n4"]);
    let pid = child.id();
    until("all of four ranks, and the command", || (left("s1").len() == 13).then_some(()));
    signal(pid, "INT");
    signal(pid, "INT");
    said(child);
    nothing_is_left(&lab, "s1");
    // Stopped and going on with its command; held, and let go.
    let mut command = run(&lab.nodes[0], &["-N2", "--hold", "echo", "goes"]);
    let mut child =
        command.env("MARK", "s2").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("is held"), "{line}");
    until("held ranks", || (left("s2").len() == 3).then_some(()));
    signal(child.id(), "CONT");
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), child.wait().unwrap().code()), ("goes\ngoes\n", Some(0)));
}

#[test]
fn whoever_dies_the_job_ends_and_nothing_is_left() {
    let mut lab = Lab::new(4, &format!("{JOBS}arity = 1\n"));
    let (child, _out) = long(&lab, "d1", &["-N4", "-n8"]);
    lab.nodes[2].kill();
    let (status, text) = said(child);
    assert!(status == 137 && text.contains("node n3 was lost") && text.contains("the job is ended"), "{status} {text}");
    nothing_is_left(&lab, "d1");
    // Nobody may know yet that it is gone: another one is taken.
    assert_eq!(ok(&mut run(&lab.nodes[0], &["-N3", "echo", "x"])), "x\nx\nx\n");
    let text = fails(&mut run(&lab.nodes[0], &["-N4", "echo", "x"]));
    assert!(text.contains("4 nodes are wanted, 3 take ranks") && text.contains("nothing was started"), "{text}");
    lab.nodes[2].start();
    lab.settled();
    // A launcher.
    let (child, _out) = long(&lab, "d2", &["-N4", "-n4"]);
    signal(lab::launchers_of(&lab.nodes[1])[0] as u32, "KILL");
    let (status, text) = said(child);
    assert!(
        status == 137 && text.contains("node n2 was lost (the process that started its ranks was killed)"),
        "{text}"
    );
    nothing_is_left(&lab, "d2");
    // The user's command.
    let (mut child, _out) = long(&lab, "d3", &["-N4", "-n4"]);
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&lab, "d3");
    // One that stands still.
    let (child, _out) = long(&lab, "d4", &["-N4", "-n4"]);
    signal(lab.nodes[3].pid(), "STOP");
    let (status, text) = said(child);
    assert!(status == 137 && text.contains("node n4 was lost (nothing was heard of it"), "{text}");
    signal(lab.nodes[3].pid(), "CONT");
    nothing_is_left(&lab, "d4");
    // The head itself.
    let (child, _out) = long(&lab, "d5", &["-N4", "-n4"]);
    lab.nodes[0].kill();
    let (status, text) = said(child);
    assert!(status == 1 && text.contains("broke off"), "{status} {text}");
    nothing_is_left(&lab, "d5");
}

#[test]
fn a_job_that_nobody_listens_to_ends_all_the_same() {
    let lab = Lab::new(2, JOBS);
    let n1 = &lab.nodes[0];
    // The reader is gone; the reader has stopped and the command is killed; then it is interrupted twice.
    let script = "\"$@\" | head -1";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_pando"), "run", "-N2", "yes"]);
    assert_eq!(ok(command.env("PANDO_SOCKET", &n1.socket).env("MARK", "q1")), "y\n");
    nothing_is_left(&lab, "q1");
    for how in ["KILL", "TERM", "INT"] {
        let mut command = run(n1, &["-N2", "yes"]);
        let mut child = command.env("MARK", how).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        until("ranks", || (left(how).len() == 3).then_some(()));
        signal(child.id(), how);
        if how == "INT" {
            signal(child.id(), how);
        }
        until("no ranks", || left(how).iter().all(|pid| *pid == child.id() as i32).then_some(()));
        // Who is only asked to end is heard to the end, should his reader go on.
        if how != "TERM" {
            until("no launchers", || launchers(&lab).is_empty().then_some(()));
        }
        drop(child.stdout.take());
        let _ = child.wait();
        nothing_is_left(&lab, how);
    }
    // Somebody outside has a rank's output open.
    let (mut child, _out) = {
        let mut command = run(n1, &["-w", "n2", "sh", "-c", "echo $$; exec sleep 1"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        (child, fs::OpenOptions::new().write(true).open(format!("/proc/{}/fd/1", line.trim())).unwrap())
    };
    assert!(child.wait().unwrap().success());
    // The process that would have to end the ranks is stopped.
    let (mut child, _out) = long(&lab, "q2", &["-w", "n2"]);
    signal(lab::launchers_of(&lab.nodes[1])[0] as u32, "STOP");
    // As often as somebody does whom nobody hears: two that come before it is looked for them are one.
    until("the command's end", || {
        signal(child.id(), "INT");
        child.try_wait().unwrap()
    });
    nothing_is_left(&lab, "q2");
}

#[test]
fn what_is_ended_before_it_begins_says_so() {
    let lab = Lab::new(2, JOBS);
    for wait in 0..12 {
        let mut child =
            run(&lab.nodes[0], &["-N2", "sleep", "1000"]).env("MARK", "b1").stdin(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait * 3));
        signal(child.id(), "TERM");
        let status = child.wait().unwrap();
        // By the signal itself, before it heeds any; or as its ranks ended.
        assert!(
            std::os::unix::process::ExitStatusExt::signal(&status) == Some(15) || status.code() == Some(143),
            "{status}"
        );
    }
    nothing_is_left(&lab, "b1");
}

#[test]
fn what_outlived_launcher_and_daemon_is_found_by_the_next_one() {
    let mut lab = Lab::new(2, JOBS);
    let (child, _out) = long(&lab, "o1", &["-w", "n2"]);
    let launcher = lab::launchers_of(&lab.nodes[1])[0] as u32;
    signal(launcher, "STOP");
    lab.nodes[1].kill();
    signal(launcher, "KILL");
    assert_eq!(said(child).0, 137);
    lab.nodes[1].start();
    nothing_is_left(&lab, "o1");
}

#[test]
fn what_a_job_leaves_ready_serves_the_next_one_if_it_is_still_there() {
    let mut lab = Lab::new(3, JOBS);
    // Each node's launcher, which is the parent of its ranks.
    let parents_of = |lab: &Lab, program: &[&str]| {
        let words = [&["-N3", "-n3"], program, &["-c", "echo $PANDO_NODE $PPID"]].concat();
        let text = ok(&mut run(&lab.nodes[0], &words));
        let mut lines: Vec<(String, i32)> =
            text.lines().map(|l| l.split_once(' ').unwrap()).map(|(n, p)| (n.into(), p.parse().unwrap())).collect();
        lines.sort();
        assert_eq!(lines.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["n1", "n2", "n3"]);
        lines.into_iter().map(|(_, pid)| pid).collect::<Vec<i32>>()
    };
    let parents = |lab: &Lab| parents_of(lab, &["sh"]);
    let spare = |pid: i32| until("a spare launcher", || (procfs::name(pid) == "pando-spare").then_some(()));
    let first = parents(&lab);
    first.iter().copied().for_each(spare);
    assert_eq!(parents(&lab), first);
    first.iter().copied().for_each(spare);
    // A program that comes along, and then is there, is no other job.
    for _ in 0..2 {
        assert_eq!(parents_of(&lab, &["--bcast=always", "sh"]), first);
        first.iter().copied().for_each(spare);
    }
    // One that does nothing is replaced, and so is one that is no more, and a link whose other end is no more.
    signal(first[0] as u32, "STOP");
    signal(first[1] as u32, "KILL");
    lab.nodes[2].kill();
    lab.nodes[2].start();
    lab.settled();
    let second = parents(&lab);
    assert!(first.iter().zip(&second).all(|(old, new)| old != new), "{first:?} {second:?}");
    until("the one that was stopped is no more", || {
        procfs::stat(first[0]).is_none_or(|stat| !stat.lives()).then_some(())
    });
    // Jobs side by side have launchers of their own.
    second.iter().copied().for_each(spare);
    let (job, _out) = long(&lab, "beside", &["-N3", "-n3"]);
    assert!(parents(&lab).iter().all(|pid| !second.contains(pid)));
    signal(job.id(), "TERM");
    assert_eq!(said(job).0, 143);
    nothing_is_left(&lab, "beside");
}

#[test]
fn who_takes_no_jobs_says_so() {
    let mut lab = Lab::new(2, "[jobs]\nlost_after_ms = 2000\n");
    let strict = lab.prepare("n3", "[jobs]\naccept = false\n");
    let token = lab.token();
    ok(&mut strict.join(&token, "n3"));
    lab.nodes.push(strict);
    lab.nodes[2].start();
    lab.settled();
    let text = fails(&mut run(&lab.nodes[0], &["-w", "n3", "true"]));
    assert!(text.contains("node n3: it takes no jobs of n1 ([jobs] accept, from)"), "{text}");
    if is_root("who_takes_no_jobs_says_so") {
        let text = fails(&mut run(&lab.nodes[0], &["-w", "n2", "true"]));
        assert!(text.contains("node n2: it runs nothing for another node's root ([jobs] root allows it)"), "{text}");
        // At home root is root.
        ok(&mut run(&lab.nodes[0], &["-w", "n1", "true"]));
        // A user's ranks have the user's rights, and no others.
        let program = "import os; os.setgroups([1]); os.setgid(65534); os.setuid(65534); os.execv(os.environ['P'], ['pando', 'run', '-w', 'n2', '-D', '/', 'id'])";
        let mut command = Command::new("python3");
        command.args(["-c", program]).env("P", env!("CARGO_BIN_EXE_pando")).env("PANDO_SOCKET", &lab.nodes[0].socket);
        let text = ok(&mut command);
        assert_eq!(text, ok(Command::new("id").arg("nobody")));
    }
}
