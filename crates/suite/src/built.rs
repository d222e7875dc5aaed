//! Real programs that are compiled here from one source each, as their languages make them.

use crate::program;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What makes a program.
pub struct Recipe {
    /// The task's name.
    pub name: &'static str,
    /// The compiler.
    tool: &'static str,
    /// Its arguments; `SOURCE` and `PROGRAM` stand for the two files.
    args: &'static [&'static str],
    /// The source, in `scripts`.
    source: &'static str,
}

/// All of them.
pub const RECIPES: &[Recipe] = &[
    Recipe { name: "go", tool: "go", args: &["build", "-o", "PROGRAM", "SOURCE"], source: "goroutines.go" },
    Recipe {
        name: "rust",
        tool: "rustc",
        args: &["--edition=2021", "-O", "-o", "PROGRAM", "SOURCE"],
        source: "threads.rs",
    },
    Recipe { name: "openmp", tool: "gcc", args: &["-O2", "-fopenmp", "-o", "PROGRAM", "SOURCE"], source: "openmp.c" },
];

impl Recipe {
    /// Makes the program unless that was done since its source changed; why not, if it can't be made here.
    pub fn make(&self) -> io::Result<Result<PathBuf, String>> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(self.source);
        let dir = program::target_dir()?.join("suite-programs");
        fs::create_dir_all(&dir)?;
        let exe = dir.join(format!("real-{}", self.name));
        if exe.exists() && program::modified(&exe) > program::modified(&source) {
            return Ok(Ok(exe));
        }
        let aside = dir.join(format!("real-{}-{}", self.name, crate::suite::unique()));
        let mut command = Command::new(self.tool);
        for arg in self.args {
            match *arg {
                "SOURCE" => command.arg(&source),
                "PROGRAM" => command.arg(&aside),
                other => command.arg(other),
            };
        }
        // No network, and no module around the source: it needs the standard library only.
        let made = match command.env("GOTOOLCHAIN", "local").env("GO111MODULE", "off").output() {
            Ok(made) => made,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Err(format!("{} is not installed", self.tool))),
            Err(e) => return Err(e),
        };
        if !made.status.success() {
            let text = String::from_utf8_lossy(&made.stderr);
            let line = text.lines().find(|l| l.contains("error")).or(text.lines().next()).unwrap_or_default();
            return Ok(Err(format!("{} could not compile {}: {line}", self.tool, self.source)));
        }
        fs::rename(&aside, &exe)?;
        Ok(Ok(exe))
    }
}
