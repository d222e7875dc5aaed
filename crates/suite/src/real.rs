//! Real programs of the system, on data that we make.

use crate::built::RECIPES;
use crate::command::Task;
use crate::program::Ends;
use crate::random::Random;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What can be run here.
#[derive(Debug, Default)]
pub struct Found {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Programs that are not installed.
    pub missing: Vec<String>,
}

/// One entry of the table: name, program, arguments, whether standard input is `text`.
type Entry = (&'static str, &'static str, &'static [&'static str], bool);

const ROWS: &str = "input/rows.csv";
const LARGE: &str = "input/large";

/// Inputs lie in `input/`: `text` (2 MB of lines), `wide` (6 MB), `large` (40 MB), `text.gz` (`large` packed), `rows.csv`, `many.c`, `part-1.c` to `part-8.c`, the scripts, and what they need.
const TABLE: &[Entry] = &[
    ("python3", "python3", &["-I", "input/work.py"], false),
    ("perl", "perl", &["input/work.pl", "input/text"], false),
    ("gawk", "gawk", &["-f", "input/work.awk", ROWS, ROWS, ROWS, ROWS, ROWS], false),
    ("awk", "awk", &["-f", "input/work.awk", ROWS, ROWS, ROWS, ROWS, ROWS], false),
    ("gzip", "gzip", &["-9", "-n", "-c"], true),
    ("gunzip", "gzip", &["-d", "-c", "input/text.gz"], false),
    ("xz", "xz", &["-T1", "-3", "-c", "input/text"], false),
    ("bzip2", "bzip2", &["-9", "-c", "input/wide"], false),
    ("sort", "sort", &["--parallel=1", "-S", "300K", "-k2", "input/large", "-o", "sorted"], false),
    ("sha256sum", "sha256sum", &[LARGE, LARGE, LARGE, LARGE, LARGE], false),
    ("sqlite3", "sqlite3", &["work.db", ".read input/work.sql"], false),
    ("bc", "bc", &["-l", "-q", "input/work.bc"], false),
    ("sed", "sed", &["-E", "s/([a-z]+) ([a-z]+)/\\2 \\1/g; s/(oo|ba)+/<&>/g; /^qu/d", "input/wide"], false),
    ("grep", "grep", &["-c", "-E", "(ab|ba|oo|qu)(.*[aeiou])z.*9$", LARGE, LARGE, LARGE, LARGE], false),
    ("bash", "bash", &["input/work.sh"], false),
    ("bash-pipelines", "bash", &["input/pipelines.sh"], false),
    ("python3-threads", "python3", &["-I", "input/threads.py"], false),
    ("node", "node", &["input/workers.js"], false),
    ("xz-threads", "xz", &["-T4", "--block-size=250KiB", "-6", "-c", "input/wide"], false),
    ("sort-threads", "sort", &["--parallel=4", "-S", "200M", "-k2", LARGE, LARGE, "-o", "sorted"], false),
    ("make", "make", &["-s", "-j4", "-f", "input/work.mk"], false),
];

/// All tasks, with their inputs made in `dir`.
pub fn tasks(dir: &Path) -> io::Result<Found> {
    fs::create_dir_all(dir)?;
    make_inputs(dir)?;
    let mut found = Found::default();
    for (name, program, args, stdin) in TABLE {
        match executable(program) {
            Some(exe) => found.tasks.push(task(name, exe, args, dir, *stdin)),
            None => found.missing.push(format!("{name}: {program} is not installed")),
        }
    }
    match compiler() {
        Some(exe) => {
            let args = ["-quiet", "-O2", "input/many.i", "-o", "many.s"];
            found.tasks.push(task("cc1", exe, &args, dir, false));
        }
        None => found.missing.push("cc1: gcc is not installed".into()),
    }
    match java() {
        // Without the file of counters that it would share with whoever watches it.
        Ok(exe) => found.tasks.push(task("java", exe, &["-XX:-UsePerfData", "input/Threads.java"], dir, false)),
        Err(why) => found.missing.push(format!("java: {why}")),
    }
    for recipe in RECIPES {
        match recipe.make()? {
            Ok(exe) => found.tasks.push(task(recipe.name, exe, &[], dir, false)),
            Err(why) => found.missing.push(format!("{}: {why}", recipe.name)),
        }
    }
    Ok(found)
}

/// A java that can run a source file; or why there is none.
fn java() -> Result<PathBuf, &'static str> {
    let exe = executable("java").ok_or("java is not installed")?;
    let modules = Command::new(&exe).arg("--list-modules").output().map_err(|_| "java can't be run")?;
    let compiles = String::from_utf8_lossy(&modules.stdout).lines().any(|l| l.starts_with("jdk.compiler@"));
    if compiles { Ok(exe) } else { Err("it has no compiler") }
}

fn task(name: &str, exe: PathBuf, args: &[&str], dir: &Path, stdin: bool) -> Task {
    Task {
        name: name.into(),
        exe,
        args: args.iter().map(|a| a.to_string()).collect(),
        timed: false,
        input: Some(dir.to_path_buf()),
        stdin: stdin.then(|| dir.join("text")),
        leaves_files: true,
        ends: Ends::Exit(0),
        within: Vec::new(),
        may_stay: None,
        known_limit: None,
    }
}

/// Where a program really is: links followed, and no script in front of it.
fn executable(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_elf = |p: &PathBuf| fs::read(p).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
    let standard = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    let places = standard.into_iter().chain(std::env::split_paths(&path));
    places.filter_map(|dir| fs::canonicalize(dir.join(name)).ok()).find(is_elf).or_else(|| behind(name))
}

/// A script in front of python3 (pyenv and the like) knows where the program is.
fn behind(name: &str) -> Option<PathBuf> {
    if name != "python3" {
        return None;
    }
    let tell = "import os, sys; print(os.path.realpath(sys.executable))";
    let output = Command::new(name).args(["-c", tell]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.exists().then_some(path)
}

fn compiler() -> Option<PathBuf> {
    let output = Command::new("gcc").arg("-print-prog-name=cc1").output().ok()?;
    fs::canonicalize(String::from_utf8(output.stdout).ok()?.trim()).ok()
}

fn make_inputs(dir: &Path) -> io::Result<()> {
    let mut random = Random::new(2026);
    let syllables = ["ba", "do", "qui", "ra", "oo", "zen", "ta", "li", "mo", "ez", "ab", "ur"];
    let mut text = String::new();
    while text.len() < 6 << 20 {
        for _ in 0..random.within(3, 12) {
            for _ in 0..random.within(1, 4) {
                text += random.pick::<&str>(&syllables);
            }
            text.push(' ');
        }
        let _ = writeln!(text, "{}", random.within(0, 99_999));
    }
    let mut rows = String::from("id,name,amount,day\n");
    for id in 0..60_000 {
        let (a, b) = (random.pick::<&str>(&syllables), random.pick::<&str>(&syllables));
        let _ = writeln!(rows, "{id},{a}{b},{}.{:02},{}", random.within(0, 9999), id % 100, random.within(1, 366));
    }
    fs::write(dir.join("wide"), &text)?;
    let end = text[..2 << 20].rfind('\n').map_or(text.len(), |at| at + 1);
    text.truncate(end);
    fs::write(dir.join("large"), text.repeat(20))?;
    fs::write(dir.join("text"), &text)?;
    fs::write(dir.join("rows.csv"), rows)?;
    fs::write(dir.join("many.c"), c_source(&mut random, 130))?;
    for part in 1..=8 {
        fs::write(dir.join(format!("part-{part}.c")), c_source(&mut random, 12))?;
    }
    for (name, contents) in SCRIPTS {
        fs::write(dir.join(name), contents)?;
    }
    // What the programs need that programs make; without them these tasks are missing anyway.
    let make = "gzip -n -k -f -1 large && mv large.gz text.gz; gcc -E -P many.c -o many.i";
    Command::new("sh").args(["-c", make]).current_dir(dir).output()?;
    Ok(())
}

/// A C file that keeps a compiler busy, with 130 functions for a second.
fn c_source(random: &mut Random, functions: u32) -> String {
    let mut text = String::from("#include <stdio.h>\n#include <string.h>\n#include <stdlib.h>\n");
    for f in 0..functions {
        let _ = writeln!(text, "static int f{f}(int a, int b, int *t) {{\n  int s = {f};");
        for _ in 0..6 {
            let (x, y, z) = (random.within(1, 99), random.within(1, 31), random.within(0, 15));
            let _ = writeln!(
                text,
                "  for (int i = 0; i < {x}; i++) {{ s += (a ^ i) * {y} + t[(i + {z}) & 15]; if (s % {x} == b) s ^= t[{z}]; }}"
            );
        }
        text += "  return s;\n}\n";
    }
    text += "int main(void) {\n  int t[16] = {0}, s = 0;\n";
    for f in 0..functions {
        let _ = writeln!(text, "  s += f{f}(s, {f}, t); t[{f} & 15] = s;");
    }
    text + "  printf(\"%d\\n\", s);\n  return 0;\n}\n"
}

const SCRIPTS: &[(&str, &str)] = &[
    ("work.py", include_str!("../scripts/work.py")),
    ("work.pl", include_str!("../scripts/work.pl")),
    ("work.awk", include_str!("../scripts/work.awk")),
    ("work.sql", include_str!("../scripts/work.sql")),
    ("work.bc", include_str!("../scripts/work.bc")),
    ("work.sh", include_str!("../scripts/work.sh")),
    ("work.mk", include_str!("../scripts/work.mk")),
    ("pipelines.sh", include_str!("../scripts/pipelines.sh")),
    ("threads.py", include_str!("../scripts/threads.py")),
    ("workers.js", include_str!("../scripts/workers.js")),
    ("Threads.java", include_str!("../scripts/Threads.java")),
];
