//! Programs of Open MPI, as a distribution brings it: their ranks find each other through OpenPMIx, and nothing is left of them or of what they
//! shared, whoever dies.

mod lab;

use lab::{Daemon, Lab, signal, until};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const JOBS: &str = "[jobs]\nroot = true\nlost_after_ms = 2000\n";
/// Where ranks of a node have what they share.
const SHARED: &str = "OMPI_MCA_btl_vader_backing_directory";

/// Says who it is, whom it sees on its node and in all, and where its node's ranks share files; then ends in some way.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    int rank, size, local, sum = 0, left = -1;
    const char *how = count > 1 ? words[1] : "";
    MPI_Comm node;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &local);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &left, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    printf("%d %d %d %d %d %s\n", rank, size, local, sum, left, getenv("OMPI_MCA_btl_vader_backing_directory"));
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(how, "abort") && rank == size - 1) MPI_Abort(MPI_COMM_WORLD, 7);
    if (!strcmp(how, "early") && rank == size - 1) _exit(0);
    if (*how) sleep(1000);
    MPI_Finalize();
    return 0;
}
"#;

/// The program, if it can be made here; its test says aloud that it was not run.
fn program(lab: &Lab, test: &str) -> Option<PathBuf> {
    let (source, program) = (lab.dir.join("ranks.c"), lab.dir.join("ranks"));
    fs::write(&source, PROGRAM).unwrap();
    let made = Command::new("mpicc.openmpi").arg("-o").arg(&program).arg(&source).output();
    let why = match made {
        Ok(made) if made.status.success() => return Some(program),
        Ok(made) => String::from_utf8_lossy(&made.stderr).into_owned(),
        Err(e) => e.to_string(),
    };
    eprintln!("SKIPPED {test}: mpicc.openmpi (Debian: libopenmpi-dev, openmpi-bin) makes no program here: {why}");
    None
}

/// All nodes are on one machine: their ranks speak over its loopback, which Open MPI leaves out by itself.
fn run(node: &Daemon, words: &[&str], program: &Path, how: &[&str]) -> Command {
    let mut command = node.cli(&["run"]);
    command.args(words).arg(program).args(how).env("OMPI_MCA_btl_tcp_if_include", "lo").env_remove(SHARED);
    command.stdin(Stdio::null());
    command
}

/// What ranks said, in their order.
fn lines(text: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut lines: Vec<Vec<String>> = text.lines().map(words).collect();
    lines.sort_by_key(|words| words[0].parse::<u32>().unwrap());
    lines
}

/// Nothing of what the ranks shared.
fn nothing_is_left(said: &[Vec<String>]) {
    let shared: BTreeSet<&String> = said.iter().map(|words| &words[5]).collect();
    assert!(!shared.is_empty() && shared.iter().all(|dir| dir.contains("pando-pmix-")), "{shared:?}");
    for dir in shared {
        let dir = Path::new(dir).parent().unwrap();
        until(&format!("{} gone", dir.display()), || (!dir.exists()).then_some(()));
    }
}

/// A job that goes on; all its ranks have said something.
fn long(lab: &Lab, program: &Path, ranks: usize) -> (Child, Vec<Vec<String>>) {
    let mut command = run(&lab.nodes[0], &["-N3", &format!("-n{ranks}")], program, &["sleep"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    (0..ranks).for_each(|_| assert!(out.read_line(&mut text).unwrap() > 0, "{text}"));
    (child, lines(&text))
}

fn ended(mut child: Child) -> (i32, String) {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code().unwrap_or(-1), text)
}

fn launcher(node: &Daemon) -> Option<i32> {
    lab::launchers_of(node).first().copied()
}

#[test]
fn ranks_of_open_mpi_find_each_other() {
    let lab = Lab::new(3, JOBS);
    let Some(program) = program(&lab, "ranks_of_open_mpi_find_each_other") else { return };
    // What they say to each other comes with the barrier, or when it is asked for.
    for modex in ["0", "1"] {
        for (words, nodes, size) in [(["-N3", "-n6"], 3, 6), (["-N1", "-n3"], 1, 3)] {
            let mut command = run(&lab.nodes[1], &words, &program, &[]);
            let Output { status, stdout, stderr } =
                command.env("OMPI_MCA_pmix_base_async_modex", modex).output().unwrap();
            let (text, errors) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
            assert!(status.success() && errors.is_empty(), "{words:?}: {status} {text} {errors}");
            let said = lines(&text);
            assert_eq!(said.len(), size, "{text}");
            for (rank, words) in said.iter().enumerate() {
                let (local, sum, left) = (size / nodes, size * (size - 1) / 2, (rank + size - 1) % size);
                assert_eq!(words[..5].join(" "), format!("{rank} {size} {local} {sum} {left}"));
            }
            assert_eq!(said.iter().map(|words| &words[5]).collect::<BTreeSet<_>>().len(), nodes);
            nothing_is_left(&said);
        }
    }
    // Who does not ask for it does not get it.
    let mut command = run(&lab.nodes[0], &["-N2", "--mpi", "none"], Path::new("env"), &[]);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(!text.contains("PMIX_") && !text.contains("PMI_") && text.contains("PANDO_RANK=1"), "{text}");
}

#[test]
fn one_that_breaks_off_ends_all() {
    let lab = Lab::new(3, JOBS);
    let Some(program) = program(&lab, "one_that_breaks_off_ends_all") else { return };
    let cases = [
        ("abort", 7, "rank 5 has ended the job with status 7 (MPI_Abort)"),
        ("early", 1, "rank 5 at n3 ended with exit status 0 without MPI_Finalize"),
    ];
    for (how, status, why) in cases {
        let output = run(&lab.nodes[0], &["-N3", "-n6"], &program, &[how]).output().unwrap();
        let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.code() == Some(status) && errors.contains(why), "{how}: {} {errors}", output.status);
        nothing_is_left(&lines(&text));
    }
}

#[test]
fn what_ranks_shared_goes_whoever_dies() {
    let mut lab = Lab::new(3, JOBS);
    let Some(program) = program(&lab, "what_ranks_shared_goes_whoever_dies") else { return };
    let (child, said) = long(&lab, &program, 6);
    signal(launcher(&lab.nodes[1]).unwrap() as u32, "KILL");
    let (status, text) = ended(child);
    assert!(status == 137 && text.contains("node n2 was lost"), "{status} {text}");
    nothing_is_left(&said);
    // A whole node: its launcher is killed before it can hear that its daemon is gone, and the next one cleans up.
    let (child, said) = long(&lab, &program, 6);
    let launcher = launcher(&lab.nodes[2]).unwrap() as u32;
    signal(launcher, "STOP");
    lab.nodes[2].kill();
    signal(launcher, "KILL");
    let (status, text) = ended(child);
    assert!(status == 137 && text.contains("node n3 was lost"), "{status} {text}");
    lab.nodes[2].start();
    nothing_is_left(&said);
    // And the user's command.
    let (mut child, said) = long(&lab, &program, 6);
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&said);
}
