//! MPI's programs that are several in one job know which one they are (MPI_APPNUM), on all nodes.

mod lab;

use lab::batch::Place;
use lab::{Lab, ok};
use std::fs;
use std::process::Command;

const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words) {
    int rank, found, *number;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &found);
    printf("%d is %s, number %d\n", rank, words[1], found ? *number : -1);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
"#;

fn lines(command: &mut Command) -> Vec<String> {
    let mut lines: Vec<String> = ok(command).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn each_knows_its_number(compiler: &str, package: &str) {
    let lab = Lab::new(2, "[jobs]\nroot = true\n");
    let (source, program) = (lab.dir.join("which.c"), lab.dir.join("which"));
    fs::write(&source, PROGRAM).unwrap();
    if !Command::new(compiler).arg("-o").arg(&program).arg(&source).status().is_ok_and(|s| s.success()) {
        eprintln!("SKIPPED several_programs: {compiler} (Debian: {package}) makes no program here");
        return;
    }
    let (place, which) = (Place::new(&lab), program.to_str().unwrap());
    let called = |name: &str, words: &[&str]| lines(&mut place.called(&lab.nodes[0], name, words));
    let words = ["-host", "n1:2,n2:2", "-n", "1", which, "a", ":", "-n", "2", which, "b", ":", "-n", "1", which, "c"];
    let expected = ["0 is a, number 0", "1 is b, number 1", "2 is b, number 1", "3 is c, number 2"];
    assert_eq!(called("mpiexec", &words), expected);
    let file = lab.dir.join("programs");
    fs::write(&file, format!("1,3 {which} odd\n* {which} even\n")).unwrap();
    let words = ["-w", "n1,n2", "-n", "4", "--multi-prog", file.to_str().unwrap()];
    let expected = ["0 is even, number 1", "1 is odd, number 0", "2 is even, number 1", "3 is odd, number 0"];
    assert_eq!(called("srun", &words), expected);
    assert_eq!(called("mpiexec", &["-n", "2", which, "x"]), ["0 is x, number 0", "1 is x, number 0"]);
}

#[test]
fn ranks_of_mpich_know_which_program_they_are() {
    each_knows_its_number("mpicc.mpich", "libmpich-dev, mpich");
}

#[test]
fn ranks_of_open_mpi_know_which_program_they_are() {
    each_knows_its_number("mpicc.openmpi", "libopenmpi-dev, openmpi-bin");
}
