//! The `pando` program: found, or built.

use crate::program::target_dir;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The path of a `pando` that is no older than its sources: `PANDO_BIN`, or the one of this build, built if need be.
pub fn find() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("PANDO_BIN") {
        return Ok(PathBuf::from(path));
    }
    let dir = target_dir().map_err(|e| e.to_string())?;
    let exe = dir.join("pando");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = fs::metadata(&exe).and_then(|m| m.modified()).ok();
    if built.is_some_and(|b| newest_source(&root.join("crates")) <= b) {
        return Ok(exe);
    }
    eprintln!("building pando ...");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "-q", "-p", "pando", "--bin", "pando"]).current_dir(&root);
    if dir.ends_with("release") {
        cargo.arg("--release");
    }
    if let Some(target) = dir.parent() {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    match cargo.status() {
        Ok(status) if status.success() && exe.exists() => Ok(exe),
        Ok(_) => Err("pando does not build: cargo build -p pando".into()),
        Err(e) => Err(format!("cargo can't be run: {e}")),
    }
}

/// When the newest Rust file outside of the suite and of tests was written.
fn newest_source(dir: &Path) -> SystemTime {
    let mut newest = SystemTime::UNIX_EPOCH;
    let Ok(entries) = fs::read_dir(dir) else {
        return newest;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !["suite", "tests", "benches", "target", "fuzz"].iter().any(|n| path.ends_with(n)) {
                newest = newest.max(newest_source(&path));
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            newest = newest.max(entry.metadata().and_then(|m| m.modified()).unwrap_or(newest));
        }
    }
    newest
}
