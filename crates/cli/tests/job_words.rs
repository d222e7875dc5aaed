//! The words that users of other launchers reach for: Slurm's, and those of mpiexec.

mod lab;

use lab::{Daemon, Lab, fails, ok, until};
use pando_node::views::Job;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const JOBS: &str = "[jobs]\nroot = true\nlost_after_ms = 2000\n";

fn run(node: &Daemon, words: &[&str]) -> Command {
    let mut command = node.cli(&["run"]);
    command.args(words).stdin(Stdio::null());
    command
}

fn code(command: &mut Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code().unwrap_or(-1), String::from_utf8(stderr).unwrap())
}

/// The nodes that ranks were on, in the order of ranks.
fn nodes(node: &Daemon, words: &[&str]) -> String {
    let all = [words, &["sh", "-c", "echo $PANDO_RANK $PANDO_NODE"]].concat();
    by_rank(&ok(&mut run(node, &all)))
}

fn by_rank(text: &str) -> String {
    let mut lines: Vec<(u32, &str)> =
        text.lines().map(|l| l.split_once(' ').unwrap()).map(|(rank, name)| (rank.parse().unwrap(), name)).collect();
    lines.sort_unstable();
    lines.into_iter().map(|l| l.1).collect::<Vec<_>>().join(" ")
}

#[test]
fn nodes_are_listed_and_left_out_as_slurm_has_it() {
    let lab = Lab::new(3, JOBS);
    let n1 = &lab.nodes[0];
    assert_eq!(nodes(n1, &["-w", "n[1,3]"]), "n1 n3");
    assert_eq!(nodes(n1, &["-w", "n[2-3]", "-n3"]), "n2 n2 n3");
    assert_eq!(nodes(n1, &["-w", "n1,n[2-3]", "-x", "n[1-2]", "-N1"]), "n3");
    assert_eq!(nodes(n1, &["-N2", "--exclude=n1"]), "n2 n3");
    assert_eq!(nodes(n1, &["--nodes=3", "--ntasks-per-node=1"]), "n1 n2 n3");
    let file = lab.dir.join("hosts");
    std::fs::write(&file, "n3 slots=2\nn1:1 # and no more\n").unwrap();
    let file = file.display().to_string();
    assert_eq!(nodes(n1, &["--hostfile", &file]), "n3 n3 n1");
    assert_eq!(nodes(n1, &["--hostfile", &file, "-n", "2"]), "n3 n3");
    assert_eq!(nodes(n1, &["--hostfile", &file, "-n", "5", "--oversubscribe"]), "n3 n3 n3 n1 n1");
    for (words, why) in [
        (vec!["-w", "n[1-"], "brackets do not match"),
        (vec!["-x", "n[1-99999999]"], "more than"),
        (vec!["-x", "n9"], "--exclude: there is no node n9"),
        (vec!["-w", "n2", "-x", "n2"], "no node is left"),
        (vec!["--hostfile", &file, "-n", "4"], "--oversubscribe"),
        (vec!["--hostfile", "/no/such/file"], "/no/such/file"),
        (vec!["--mem-per-cpu=4G"], "`--mem-per-cpu` is Slurm's, and can't be heeded"),
        (vec!["-p", "debug"], "no partitions"),
        (vec!["--export", "=x"], "has no name"),
        (vec!["-t", "soon"], "HH:MM:SS"),
    ] {
        let said = fails(&mut run(n1, &[&words[..], &["true"]].concat()));
        assert!(said.contains(why), "{words:?}: {said}");
    }
    let mut command = n1.cli(&["map", "-w", "n[2-3]", "-x", "n2", "sh", "-c", "echo $PANDO_NODE # {}"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"1\n2\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"n3\nn3\n");
}

#[test]
fn a_job_has_its_name_its_variables_and_its_time() {
    let lab = Lab::new(2, JOBS);
    let n1 = &lab.nodes[0];
    let names = "echo $SLURM_JOB_NAME $PANDO_JOB_NAME";
    assert_eq!(ok(&mut run(n1, &["-J", "my job", "-w", "n2", "sh", "-c", names])), "my job my job\n");
    assert_eq!(ok(&mut run(n1, &["-w", "n2", "/bin/sh", "-c", names])), "sh sh\n");
    let shown = "env | grep -E '^(AA|BB)=' | sort | tr '\\n' ' '";
    let env = |words: &[&str]| {
        let all = [words, &["/bin/sh", "-c", shown]].concat();
        ok(run(n1, &all).env("AA", "1").env("BB", "2"))
    };
    assert_eq!(env(&["-w", "n2"]), "AA=1 BB=2 ");
    assert_eq!(env(&["-w", "n2", "--export=NONE"]), "");
    assert_eq!(env(&["-w", "n2", "--export=AA,BB=x y"]), "AA=1 BB=x y ");
    assert_eq!(env(&["-w", "n2", "--export=ALL,AA=0", "--env", "BB=1,2"]), "AA=0 BB=1,2 ");
    // Its name is shown while it runs; it runs no longer than it may, deaf or not.
    for (script, least) in [("echo begun; sleep 1000", 2), ("trap '' TERM; echo begun; while :; do sleep 0.1; done", 3)]
    {
        let begun = Instant::now();
        let mut command = run(n1, &["-N2", "-J", "long one", "-t", "0:02", "--grace", "1", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let jobs: Vec<Job> = n1.client().get("/v1/jobs").unwrap();
        assert_eq!(jobs.iter().map(|j| j.name.as_str()).collect::<Vec<_>>(), ["long one"]);
        assert!(ok(&mut n1.cli(&["jobs"])).contains("long one"));
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(124), "{said}");
        assert!(said.contains("it has run for as long as it may (--time); the job is ended"), "{said}");
        assert!(begun.elapsed() >= Duration::from_secs(least), "{:?}", begun.elapsed());
    }
    for node in &lab.nodes {
        until("no job", || node.client().get::<Vec<Job>>("/v1/jobs").unwrap().is_empty().then_some(()));
    }
    assert_eq!(code(&mut run(n1, &["-t", "1", "sh", "-c", "exit 3"])), (3, String::new()));
    assert_eq!(code(&mut run(n1, &["-t", "0", "-N2", "true"])), (0, String::new()));
}

#[test]
fn every_word_of_parallel_jobs_makes_one() {
    let lab = Lab::new(2, JOBS);
    let n1 = &lab.nodes[0];
    let out = lab.dir.join("out.%r").display().to_string();
    let script = ["sh", "-c", "echo $PANDO_RANK/$PANDO_SIZE $(pwd)"];
    let words: [&[&str]; 16] = [
        &["-D", "/usr"],
        &["-i", "none"],
        &["-e", "/dev/null"],
        &["-l"],
        &["-u"],
        &["-K"],
        &["--grace", "1"],
        &["--bcast"],
        &["--mpi", "none"],
        &["-t", "1"],
        &["-x", "n2"],
        &["-J", "x"],
        &["--export=ALL"],
        &["--env", "A=B"],
        &["-A", "me"],
        &["-Q", "-O"],
    ];
    for words in words {
        let text = ok(&mut run(n1, &[words, &script].concat()));
        let label = if words == ["-l"] { "0: " } else { "" };
        assert!(text.starts_with(&format!("{label}0/1 /")), "{words:?}: {text}");
        assert_eq!(text.contains("/usr\n"), words[0] == "-D");
    }
    assert_eq!(ok(&mut run(n1, &[&["-o", &out][..], &script].concat())), "");
    assert!(std::fs::read_to_string(lab.dir.join("out.0")).unwrap().starts_with("0/1 "));
    // Not said of one program that may move, and not silently.
    for words in [["-b", "-l"], ["--no-move", "-u"], ["-d", "--hold"]] {
        let said = fails(&mut run(n1, &[&words[..], &["true"]].concat()));
        assert!(said.contains("cannot be used with"), "{words:?}: {said}");
    }
    let said = fails(&mut run(n1, &["--each", "/dev/null", "-o", "x", "true"]));
    assert!(said.contains("cannot be used with"), "{said}");
    let nodes: BTreeSet<String> = ok(&mut run(n1, &["-N2", "hostname"])).lines().map(str::to_owned).collect();
    assert!(!nodes.is_empty());
}

#[test]
fn mpiexec_and_mpirun_are_other_names() {
    let lab = Lab::new(3, JOBS);
    let called = |name: &str, words: &[&str]| {
        let link = lab.dir.join(name);
        let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pando"), &link);
        let mut command = Command::new(link);
        command.args(words).env("PANDO_SOCKET", &lab.nodes[0].socket).env("AA", "1").stdin(Stdio::null());
        command
    };
    let script = ["sh", "-c", "echo $PANDO_RANK $PANDO_NODE"];
    let hosts = lab.dir.join("hosts").display().to_string();
    std::fs::write(&hosts, "n2:2\nn3 slots=1\n").unwrap();
    for (name, words, at) in [
        ("mpiexec", &["-n", "3", "-hosts", "n2,n3"][..], "n2 n2 n3"),
        ("mpiexec", &["-np", "4", "-ppn", "2", "-hosts", "n1,n3"], "n1 n1 n3 n3"),
        ("mpiexec", &["-f", &hosts, "-n", "2"], "n2 n2"),
        ("mpirun", &["--host", "n3:2,n1"], "n3 n3 n1"),
        ("mpirun", &["--hostfile", &hosts], "n2 n2 n3"),
        ("mpirun", &["-np", "4", "--oversubscribe", "--host", "n1,n2"], "n1 n1 n2 n2"),
        ("mpirun", &["--map-by", "ppr:1:node", "--bind-to", "none", "-host", "n1,n2"], "n1 n2"),
    ] {
        let text = ok(&mut called(name, &[words, &script].concat()));
        assert_eq!(by_rank(&text), at, "{name} {words:?}");
    }
    let env = ["sh", "-c", "echo $AA $BB $OMPI_MCA_btl $(pwd)"];
    let words = ["-n", "1", "-host", "n2", "-env", "BB", "x,y", "-x", "AA", "--mca", "btl", "self", "-wd", "/usr"];
    assert_eq!(ok(&mut called("mpirun", &[&words[..], &env].concat())), "1 x,y self /usr\n");
    assert_eq!(ok(&mut called("mpiexec", &["-n", "1", "-l", "-host", "n2", "echo", "-n", "-l"])), "0: -l\n");
    let several = ok(&mut called("mpirun", &["-n", "1", "-l", "echo", "a", ":", "-n", "2", "echo", "b"]));
    let mut several: Vec<&str> = several.lines().collect();
    several.sort_unstable();
    assert_eq!(several, ["0: a", "1: b", "2: b"]);
    for (words, why) in [
        (&["-fly", "true"][..], "`-fly` is no option of mpirun"),
        (&["--map-by", "node", "true"], "in blocks"),
        (&["-n", "4", "--hostfile", &hosts, "true"], "3 slots"),
    ] {
        let Output { status, stderr, .. } = called("mpirun", words).output().unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert!(status.code() == Some(125) && said.contains(why) && said.contains("nothing was started"), "{said}");
    }
}
