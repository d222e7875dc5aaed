//! A small C project built by `make -j4` at home and by `pando run`.

use crate::demo::report::median;
use crate::entry;
use crate::error::{Context, Error, Result};
use crate::place::Plan;
use serde::Serialize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Files of the project.
const FILES: usize = 20;
/// Functions in each.
const FUNCTIONS: usize = 60;
/// Builds at each place.
const ROUNDS: usize = 3;

/// Seconds, median.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Build {
    /// At home.
    pub home_s: f64,
    /// Begun by `pando run --node n2`.
    pub away_s: f64,
}

/// What is missing for it.
pub fn missing() -> Option<&'static str> {
    let runs = |tool: &str| {
        let mut command = Command::new(tool);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|s| s.success())
    };
    ["make", "gcc"].into_iter().find(|tool| !runs(tool))
}

/// The measurement: by turns, each from the beginning.
pub fn measure(plan: &Plan) -> Result<Build> {
    let dir = plan.node_dir("n1").join("bench-build");
    project(&dir)?;
    let (mut home, mut away) = (Vec::new(), Vec::new());
    let measured = (0..ROUNDS).try_for_each(|_| -> Result<()> {
        home.push(build(plan, &dir, false)?);
        away.push(build(plan, &dir, true)?);
        Ok(())
    });
    drop(std::fs::remove_dir_all(&dir));
    measured?;
    let seconds = |took: &mut Vec<u64>| median(took).unwrap_or(0) as f64 / 1e6;
    Ok(Build { home_s: seconds(&mut home), away_s: seconds(&mut away) })
}

fn project(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).at("create", dir)?;
    let mut objects = String::new();
    for file in 0..FILES {
        let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for f in 0..FUNCTIONS {
            text += &format!(
                "long work_{file}_{f}(long n) {{\n    long sum = {f};\n    for (long i = 0; i < n; i++) sum = sum * 31 + (i ^ {file});\n    return sum;\n}}\n"
            );
        }
        let path = dir.join(format!("part{file}.c"));
        std::fs::write(&path, text).at("write", &path)?;
        objects += &format!(" part{file}.o");
    }
    let main = dir.join("main.c");
    std::fs::write(&main, "long work_0_0(long n);\nint main(void) { return (int)(work_0_0(0) & 1); }\n")
        .at("write", &main)?;
    let rules = format!(
        "all: program\nprogram: main.o{objects}\n\tgcc -o $@ $^\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\nclean:\n\trm -f *.o program\n"
    );
    let makefile = dir.join("Makefile");
    std::fs::write(&makefile, rules).at("write", &makefile)
}

/// Builds everything anew; microseconds.
fn build(plan: &Plan, dir: &Path, away: bool) -> Result<u64> {
    run(plan, dir, &["make", "-s", "clean"])?;
    let begun = Instant::now();
    if away {
        run(plan, dir, &["pando", "run", "--node", "n2", "make", "-s", "-j4"])?;
    } else {
        run(plan, dir, &["make", "-s", "-j4"])?;
    }
    let took = begun.elapsed().as_micros() as u64;
    match dir.join("program").exists() {
        true => Ok(took),
        false => Err(Error::Other("make said that all is well, but there is no program".into())),
    }
}

fn run(plan: &Plan, dir: &Path, words: &[&str]) -> Result<()> {
    let mut command = entry::command(plan, "n1", &words[0].into())?;
    let output = command.args(&words[1..]).current_dir(dir).stdin(Stdio::null()).output().context(words.join(" "))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(Error::Command { what: words.join(" "), said: format!("{}: {said}", output.status) })
}
