//! Names and barriers of some ranks over PMIx: Open MPI's programs publish, find and take back, groups of one job meet at a port, and ranks on several
//! nodes meet without the others.

mod lab;

use lab::{Daemon, Lab};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const JOBS: &str = "[jobs]\nroot = true\nlost_after_ms = 2000\n";
const NAMES: &str = include_str!("open_mpi/names.c");
const SOME: &str = include_str!("open_mpi/some.c");

/// A program, if it can be made here; its test says aloud that it was not run.
fn program(lab: &Lab, test: &str, (source, compiler): (&str, &str)) -> Option<PathBuf> {
    let (file, program) = (lab.dir.join("ranks.c"), lab.dir.join("ranks"));
    fs::write(&file, source).unwrap();
    let line = format!("{compiler} -o {} {}", program.display(), file.display());
    // What a linker wants comes after what wants it.
    let line = if compiler == "cc" { format!("{line} $(pkg-config --cflags --libs pmix)") } else { line };
    let made = Command::new("/bin/sh").arg("-c").arg(&line).output().unwrap();
    if made.status.success() {
        return Some(program);
    }
    let why = String::from_utf8_lossy(&made.stderr).into_owned();
    eprintln!("SKIPPED {test}: {compiler} (Debian: libopenmpi-dev, libpmix-dev) makes no program here: {why}");
    None
}

fn run(node: &Daemon, words: &[&str], program: &Path, how: &[&str]) -> (i32, Vec<String>, String) {
    let mut command = node.cli(&["run"]);
    command.args(words).arg(program).args(how).env("OMPI_MCA_btl_tcp_if_include", "lo").stdin(Stdio::null());
    command.env_remove("OMPI_MCA_btl_vader_backing_directory");
    let Output { status, stdout, stderr } = command.output().unwrap();
    let mut lines: Vec<String> = String::from_utf8(stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    (status.code().unwrap_or(-1), lines, String::from_utf8(stderr).unwrap())
}

#[test]
fn programs_of_open_mpi_find_names() {
    let lab = Lab::new(3, JOBS);
    let Some(program) = program(&lab, "programs_of_open_mpi_find_names", (NAMES, "mpicc.openmpi")) else { return };
    for _ in 0..2 {
        // The second job knows nothing of the first one's.
        let (status, lines, text) = run(&lab.nodes[1], &["-N3", "-n4"], &program, &["names"]);
        let all = |rank| {
            [format!("{rank} after: nothing"), format!("{rank} before: nothing"), format!("{rank} then: port_7")]
        };
        assert_eq!((status, lines), (0, (0..4).flat_map(all).collect()), "{text}");
    }
}

#[test]
fn groups_of_one_job_meet_at_a_port() {
    let lab = Lab::new(3, JOBS);
    let Some(program) = program(&lab, "groups_of_one_job_meet_at_a_port", (NAMES, "mpicc.openmpi")) else { return };
    let (status, lines, text) = run(&lab.nodes[0], &["-N3", "-n6"], &program, &["meet"]);
    let expected = ["0 is 3 of all: 15", "1 is 0 of all: 15", "2 is 4 of all: 15", "3 is 1 of all: 15"];
    let expected = expected.into_iter().chain(["4 is 5 of all: 15", "5 is 2 of all: 15"]).map(str::to_owned);
    assert_eq!((status, lines), (0, expected.collect()), "{text}");
}

#[test]
fn nobody_is_started_later() {
    let lab = Lab::new(2, JOBS);
    let Some(program) = program(&lab, "nobody_is_started_later", (NAMES, "mpicc.openmpi")) else { return };
    let (status, lines, text) = run(&lab.nodes[0], &["-N2", "-n2"], &program, &["more"]);
    assert!(status == 3 && !lines.iter().any(|line| line.ends_with("has more")), "{status} {lines:?} {text}");
    assert!(text.contains("ranks of Open MPI's programs begin with their job"), "{text}");
}

#[test]
fn some_ranks_meet_without_the_others() {
    let lab = Lab::new(3, JOBS);
    let Some(program) = program(&lab, "some_ranks_meet_without_the_others", (SOME, "cc")) else { return };
    for words in [["-N3", "-n5", "--mpi=pmix"], ["-N1", "-n2", "--mpi=pmix"]] {
        let (status, lines, text) = run(&lab.nodes[0], &words, &program, &[]);
        let last: u32 = if words[0] == "-N3" { 4 } else { 1 };
        let mut expected = vec!["0 again: DUPLICATE KEY".to_owned(), format!("0 met card of {last}")];
        expected.push(format!("{last} met card of 0"));
        expected.extend((0..=last).map(|rank| format!("{rank} then NOT-FOUND")));
        expected.extend((1..=last).map(|rank| format!("{rank} found news of 0")));
        expected.sort();
        assert_eq!((status, lines), (0, expected), "{text}");
    }
}
