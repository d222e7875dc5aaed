//! What can go wrong, said so that the user knows what to do next.

use std::path::{Path, PathBuf};

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the testbed, the demo or the benchmark.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A wrong command line. `testbed`, `demo` and `bench` exit with status 2.
    #[error("{0}")]
    Usage(String),
    /// A program that the testbed calls is not installed.
    #[error("`{program}` is not installed; it is part of {package} (on Debian: apt-get install {package})")]
    Missing {
        /// The program.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// A kernel facility refused, with what it is for.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A file of the testbed does not say what it should.
    #[error("{path}: {source}; `pando testbed down --name {name}` clears it away")]
    Record {
        /// The file.
        path: PathBuf,
        /// The testbed.
        name: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// There is no testbed of this name.
    #[error("no testbed `{0}` is up; `pando testbed up 3 --name {0}` starts one")]
    NotUp(String),
    /// There is one already.
    #[error(
        "testbed `{0}` exists already (perhaps left by a run that was killed); `pando testbed down --name {0}` removes it"
    )]
    Exists(String),
    /// No such node in this testbed.
    #[error("testbed `{testbed}` has no node `{node}`; it has {has}")]
    NoNode {
        /// The testbed.
        testbed: String,
        /// What was asked for.
        node: String,
        /// The names there are.
        has: String,
    },
    /// The process that keeps the namespaces is gone.
    #[error(
        "the process that keeps the namespaces of testbed `{0}` is gone; `pando testbed down --name {0}` clears the rest away"
    )]
    HolderGone(String),
    /// A command at a node failed.
    #[error("{what} failed: {said}")]
    Command {
        /// The command line.
        what: String,
        /// What it printed, or its status.
        said: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {seconds} s{detail}")]
    Late {
        /// What was waited for.
        what: String,
        /// For how long.
        seconds: u64,
        /// How far it got.
        detail: String,
    },
    /// Ctrl-C or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// Anything else, a whole sentence.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// The exit status of the command: 2 for a wrong command line, 130 after Ctrl-C, else 1.
    pub fn status(&self) -> i32 {
        match self {
            Error::Usage(_) => 2,
            Error::Interrupted => 130,
            _ => 1,
        }
    }
}

/// Says what an I/O error was about.
pub trait Context<T> {
    /// Wraps the error with `what`.
    fn context(self, what: impl Into<String>) -> Result<T>;
    /// Wraps the error with `verb` and the path.
    fn at(self, verb: &str, path: &Path) -> Result<T>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Io { what: what.into(), source })
    }

    fn at(self, verb: &str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { what: format!("{verb} {}", path.display()), source })
    }
}
