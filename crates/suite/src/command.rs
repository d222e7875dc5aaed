//! What is run: a program of the suite, or a real one.

use crate::program::{Ends, Program};
use std::io;
use std::path::PathBuf;

/// Something that can be run unmoved and moved, with the same result.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// The executable (an ELF file, not a script).
    pub exe: PathBuf,
    /// Arguments.
    pub args: Vec<String>,
    /// How long it is to run, as an argument, when it takes that.
    pub timed: bool,
    /// A directory that it finds as `input` in its working directory.
    pub input: Option<PathBuf>,
    /// What it reads from standard input, else nothing.
    pub stdin: Option<PathBuf>,
    /// The files that it leaves are part of the result.
    pub leaves_files: bool,
    /// How it must end even in the reference run.
    pub ends: Ends,
    /// A command that runs it: its own words come behind these. Empty: it is run by itself.
    pub within: Vec<String>,
    /// Why it may have to stay at home.
    pub may_stay: Option<String>,
    /// Why it may end differently when moved.
    pub known_limit: Option<String>,
}

impl Task {
    /// A task for a program of the suite; compiles it.
    pub fn of(program: &Program) -> io::Result<Task> {
        Ok(Task {
            name: program.name.clone(),
            exe: program.compile()?,
            args: Vec::new(),
            timed: true,
            input: None,
            stdin: None,
            leaves_files: false,
            ends: program.ends,
            within: Vec::new(),
            may_stay: program.may_stay.clone(),
            known_limit: program.known_limit.clone(),
        })
    }
}
