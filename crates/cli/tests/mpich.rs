//! Programs of MPICH, as a distribution brings it: their ranks find each other over PMI-1, on several nodes, and one that ends early or aborts ends
//! all.

mod lab;

use lab::{Daemon, Lab};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const JOBS: &str = "[jobs]\nroot = true\nlost_after_ms = 2000\n";

const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    int rank, size, sum = 0, left = -1;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &left, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    printf("%d of %d: sum %d, left %d\n", rank, size, sum, left);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (count > 1 && !strcmp(words[1], "names")) {
        char port[MPI_MAX_PORT_NAME] = "";
        int kind = 0;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        if (rank == 0) MPI_Publish_name("door", MPI_INFO_NULL, "port_7");
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Error_class(MPI_Lookup_name("door", MPI_INFO_NULL, port), &kind);
        printf("%d finds %s\n", rank, kind == MPI_SUCCESS ? port : "nothing");
        MPI_Error_class(MPI_Lookup_name("window", MPI_INFO_NULL, port), &kind);
        printf("%d finds %s\n", rank, kind == MPI_ERR_NAME ? "no window" : "something");
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) MPI_Unpublish_name("door", MPI_INFO_NULL, "port_7");
        MPI_Finalize();
        return 0;
    }
    if (count > 1 && rank == 1) {
        if (!strcmp(words[1], "abort")) MPI_Abort(MPI_COMM_WORLD, 7);
        if (!strcmp(words[1], "early")) _exit(0);
    }
    if (count > 1) sleep(1000);
    MPI_Finalize();
    return 0;
}
"#;

/// The program, if it can be made here; its test says aloud that it was not run.
fn program(lab: &Lab, test: &str) -> Option<PathBuf> {
    let (source, program) = (lab.dir.join("ranks.c"), lab.dir.join("ranks"));
    fs::write(&source, PROGRAM).unwrap();
    let made = Command::new("mpicc.mpich").arg("-o").arg(&program).arg(&source).output();
    let why = match made {
        Ok(made) if made.status.success() => return Some(program),
        Ok(made) => String::from_utf8_lossy(&made.stderr).into_owned(),
        Err(e) => e.to_string(),
    };
    eprintln!("SKIPPED {test}: mpicc.mpich (Debian: libmpich-dev, mpich) makes no program here: {why}");
    None
}

fn run(node: &Daemon, words: &[&str], program: &Path, how: &[&str]) -> (i32, Vec<String>, String) {
    let mut command = node.cli(&["run"]);
    let Output { status, stdout, stderr } =
        command.args(words).arg(program).args(how).stdin(Stdio::null()).output().unwrap();
    let mut lines: Vec<String> = String::from_utf8(stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    (status.code().unwrap_or(-1), lines, String::from_utf8(stderr).unwrap())
}

#[test]
fn ranks_of_mpich_find_each_other() {
    let lab = Lab::new(3, JOBS);
    let Some(program) = program(&lab, "ranks_of_mpich_find_each_other") else { return };
    for (words, size) in [(vec!["-N3", "-n7"], 7), (vec!["-N1", "-n4"], 4), (vec!["-N3"], 3)] {
        let (status, lines, text) = run(&lab.nodes[0], &words, &program, &[]);
        let sum = size * (size - 1) / 2;
        let line = |rank: u32| format!("{rank} of {size}: sum {sum}, left {}", (rank + size - 1) % size);
        assert_eq!((status, lines), (0, (0..size).map(line).collect::<Vec<_>>()), "{text}");
    }
}

#[test]
fn one_that_breaks_off_ends_all() {
    let lab = Lab::new(2, JOBS);
    let Some(program) = program(&lab, "one_that_breaks_off_ends_all") else { return };
    let (status, _, text) = run(&lab.nodes[0], &["-N2", "-n4"], &program, &["abort"]);
    assert!(status == 7 && text.contains("rank 1"), "{status} {text}");
    let (status, _, text) = run(&lab.nodes[0], &["-N2", "-n4"], &program, &["early"]);
    assert!(status == 1 && text.contains("without MPI_Finalize"), "{status} {text}");
}

/// Speaks PMI-1 itself: MPICH as a distribution builds it keeps names in files.
const NAMES: &str = r#"
import os, socket
s = socket.socket(fileno=int(os.environ["PMI_FD"]))
f = s.makefile("rw")
rank = os.environ["PMI_RANK"]
def ask(line):
    f.write(line + "\n")
    f.flush()
    return f.readline().strip()
def all_here():
    assert ask("cmd=barrier_in").startswith("cmd=barrier_out")
ask("cmd=init pmi_version=1 pmi_subversion=1")
def say(line):
    print(rank, ask(line), flush=True)
if rank == "0":
    say("cmd=lookup_name service=door")
    say("cmd=publish_name service=door port=tag#0$n1$")
all_here()
if rank == "2":
    say("cmd=publish_name service=door port=other")
    say("cmd=lookup_name service=door")
    say("cmd=unpublish_name service=door")
all_here()
if rank == "1":
    say("cmd=lookup_name service=door")
    say("cmd=unpublish_name service=door")
all_here()
ask("cmd=finalize")
"#;

#[test]
fn names_are_known_to_all_ranks_of_a_job() {
    let lab = Lab::new(3, JOBS);
    let python = Path::new("python3");
    for _ in 0..2 {
        // The second job knows nothing of the first one's.
        let (status, lines, text) = run(&lab.nodes[2], &["-N3", "-n3"], python, &["-c", NAMES]);
        let expected = [
            "0 cmd=lookup_result info=notok rc=1 msg=service_door_not_found",
            "0 cmd=publish_result info=ok rc=0 msg=success",
            "1 cmd=lookup_result info=notok rc=1 msg=service_door_not_found",
            "1 cmd=unpublish_result info=notok rc=1 msg=service_door_not_found",
            "2 cmd=lookup_result info=ok rc=0 msg=success port=tag#0$n1$",
            "2 cmd=publish_result info=notok rc=1 msg=duplicate_service_door",
            "2 cmd=unpublish_result info=ok rc=0 msg=success",
        ];
        assert_eq!((status, lines), (0, expected.map(str::to_owned).to_vec()), "{text}");
    }
}

#[test]
fn programs_of_mpich_find_names() {
    let lab = Lab::new(2, JOBS);
    let test = "programs_of_mpich_find_names";
    let Some(program) = program(&lab, test) else { return };
    // Where MPICH keeps names in files they are there.
    let home = lab.dir.join("home");
    fs::create_dir(&home).unwrap();
    let mut command = lab.nodes[0].cli(&["run", "-N2", "-n2", "-D"]);
    command.arg(&home).arg(&program).arg("names").env("HOME", &home).env("MPIR_CVAR_NAMESERV_FILE_PUBDIR", &home);
    let text = lab::ok(&mut command);
    for line in ["0 finds port_7", "1 finds port_7", "0 finds no window", "1 finds no window"] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
}
