//! The suite's own programs: found, read, compiled.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// How a program ends when all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// With this exit code.
    Exit(i32),
    /// Killed by this signal.
    Signal(i32),
}

/// One program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name of its file without `.c`.
    pub name: String,
    /// Its file.
    pub source: PathBuf,
    /// Flags for gcc beside `-O1` (`// suite: flags ...`).
    pub flags: Vec<String>,
    /// How it ends (`// suite: ends exit 3`, `// suite: ends signal 15`).
    pub ends: Ends,
    /// Why it may have to stay at home (`// suite: may stay: ...`).
    pub may_stay: Option<String>,
    /// Why it may end differently when moved: a limit that is known and written down (`// suite: known limit: ...`).
    pub known_limit: Option<String>,
}

/// The directory of the programs.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// All programs, by name.
pub fn all() -> io::Result<Vec<Program>> {
    let mut programs = Vec::new();
    for entry in fs::read_dir(sources())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "c") {
            programs.push(Program::read(path)?);
        }
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

impl Program {
    /// Reads the directives of a source file.
    fn read(source: PathBuf) -> io::Result<Program> {
        let text = fs::read_to_string(&source)?;
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut program =
            Program { name, source, flags: Vec::new(), ends: Ends::Exit(0), may_stay: None, known_limit: None };
        for line in text.lines().filter_map(|l| l.strip_prefix("// suite: ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["flags", ..] => program.flags = words[1..].iter().map(|w| w.to_string()).collect(),
                ["ends", "exit", n] => program.ends = Ends::Exit(parse(n, line)?),
                ["ends", "signal", n] => program.ends = Ends::Signal(parse(n, line)?),
                ["known", "limit:", ..] => program.known_limit = Some(words[2..].join(" ")),
                ["may", "stay:", ..] => program.may_stay = Some(words[2..].join(" ")),
                _ => {
                    return Err(io::Error::other(format!("{}: `{line}` is no directive", program.name)));
                }
            }
        }
        Ok(program)
    }

    /// Compiles it unless that was done since it changed; gives the executable.
    pub fn compile(&self) -> io::Result<PathBuf> {
        let dir = target_dir()?.join("suite-programs");
        fs::create_dir_all(&dir)?;
        let exe = dir.join(&self.name);
        let mut files = BTreeSet::new();
        includes(&self.source, &mut files)?;
        let newest = files.iter().map(|f| modified(f)).max().unwrap_or(SystemTime::now());
        if exe.exists() && modified(&exe) > newest {
            return Ok(exe);
        }
        let aside = dir.join(format!(".{}.{}", self.name, crate::suite::unique()));
        let made = Command::new("gcc")
            .args(["-O1", "-Wall", "-Wextra", "-o"])
            .arg(&aside)
            .arg(&self.source)
            .args(&self.flags)
            .output()?;
        if !made.status.success() {
            return Err(io::Error::other(format!("{}: {}", self.name, String::from_utf8_lossy(&made.stderr))));
        }
        fs::rename(&aside, &exe)?;
        Ok(exe)
    }
}

fn parse(number: &str, line: &str) -> io::Result<i32> {
    number.parse().map_err(|_| io::Error::other(format!("`{line}`: not a number")))
}

pub(crate) fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|m| m.modified()).unwrap_or(SystemTime::now())
}

/// A file and all it includes by `#include "..."`.
fn includes(path: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    if !found.insert(path.to_path_buf()) {
        return Ok(());
    }
    for line in fs::read_to_string(path)?.lines() {
        if let Some(name) = line.strip_prefix("#include \"").and_then(|l| l.strip_suffix('"')) {
            includes(&path.with_file_name(name), found)?;
        }
    }
    Ok(())
}

/// The directory of this build (`target/debug`), from the running executable.
pub fn target_dir() -> io::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let dir = exe.parent().ok_or_else(|| io::Error::other("no directory"))?;
    let above = if dir.ends_with("deps") { dir.parent().unwrap_or(dir) } else { dir };
    Ok(above.to_path_buf())
}

/// Why the programs can't be compiled here, if they can't.
pub fn missing_compiler() -> Option<String> {
    match Command::new("gcc").arg("--version").output() {
        Ok(output) if output.status.success() => None,
        _ => Some("gcc is not installed".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_can_be_read_and_says_what_it_is() {
        let programs = all().expect("read the programs");
        assert!(programs.len() >= 50);
        for program in programs {
            let text = fs::read_to_string(&program.source).expect("read");
            assert!(text.starts_with("/* "), "{}: begins with what it is about", program.name);
        }
    }
}
