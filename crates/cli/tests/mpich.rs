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
