//! The rules of the tree: short files and functions, names that say something, pure crates that are pure,
//! unsafe code only where it is allowed.
//!
//! Exceptions are listed, each with its reason, in `crates/xtask/tidy.allow`; one that is not needed is an
//! offence itself.

mod allow;
mod length;
mod names;
mod purity;
mod text;
mod tree;

use std::fmt;
use std::path::Path;

/// The place where exceptions are listed.
pub const ALLOW_LIST: &str = "crates/xtask/tidy.allow";

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// The rule, as it is called in the list of exceptions.
    pub rule: &'static str,
    /// The file, and `:function` where the rule is about one.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

impl Offence {
    fn new(rule: &'static str, place: impl Into<String>, what: impl Into<String>) -> Self {
        Offence { rule, place: place.into(), what: what.into() }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.rule, self.place, self.what)
    }
}

/// A file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// Path from the root, with slashes.
    pub path: String,
    /// Contents; empty if it is not text.
    pub text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The crate it belongs to: `calls` for `crates/calls/src/lib.rs`.
    fn krate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }
}

/// Reads the tree under `root` and applies every rule and every exception.
pub fn tidy(root: &Path) -> Vec<Offence> {
    let files = match tree::read(root) {
        Ok(files) => files,
        Err(e) => {
            return vec![Offence::new("tree", root.display().to_string(), e.to_string())];
        }
    };
    let list = files.iter().find(|f| f.path == ALLOW_LIST);
    allow::filter(list.map_or("", |f| &f.text), offences(&files))
}

/// Every offence in `files`, exceptions included.
pub fn offences(files: &[File]) -> Vec<Offence> {
    let mut found = Vec::new();
    for file in files {
        length::check(file, &mut found);
        names::check(file, &mut found);
        purity::check(file, &mut found);
        text::check(file, &mut found);
    }
    names::check_crates(files, &mut found);
    found
}
