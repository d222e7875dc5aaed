//! A program that no node has: it goes to all of them with the job that runs it, and is there the next time.

use super::{Spread, command::timed, pando};
use crate::entry;
use crate::error::{Context, Error, Result};
use crate::place::Plan;
use crate::scratch::Scratch;
use serde::Serialize;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Bytes of it.
const SIZE: u64 = 12 << 20;
/// Runs with the same one after its first.
const AGAIN: usize = 4;

/// A program of 12 MB, one rank on each node.
#[derive(Clone, Debug, Serialize)]
pub struct Sent {
    /// Nodes.
    pub nodes: usize,
    /// No node has it.
    pub cold: Spread,
    /// All have it.
    pub cached: Spread,
}

/// Whether `pando run` can send a program.
pub fn is_known(plan: &Plan) -> Result<bool> {
    Ok(entry::pando(plan, "n1", &["run", "--help"])?.contains("--bcast"))
}

/// With so many programs, all different.
pub fn measure(plan: &Plan, scratch: &Scratch, nodes: usize, programs: usize) -> Result<Sent> {
    let (mut cold, mut cached) = (Vec::new(), Vec::new());
    for i in 0..programs {
        let path = scratch.0.join(format!("program-{nodes}-{i}"));
        write(&path)?;
        let text = path.to_string_lossy();
        let run = || Ok(timed(pando(plan, nodes, nodes, &["--bcast=always"], &[&text])?, "pando run --bcast")?.took);
        cold.push(run()?);
        for _ in 0..AGAIN {
            cached.push(run()?);
        }
        std::fs::remove_file(&path).at("remove", &path)?;
    }
    Ok(Sent { nodes, cold: Spread::of(&cold), cached: Spread::of(&cached) })
}

/// `true` with random bytes after its end: what is loaded of it is as little as ever, so that only its way to the nodes counts.
fn write(path: &Path) -> Result<()> {
    let source = super::command::installed("true").ok_or_else(|| Error::Other("there is no `true` here".into()))?;
    let mut program = std::fs::read(&source).at("read", &source)?;
    let more = SIZE.saturating_sub(program.len() as u64);
    let random = Path::new("/dev/urandom");
    std::fs::File::open(random).and_then(|f| f.take(more).read_to_end(&mut program)).at("read", random)?;
    let mut file = std::fs::File::create(path).at("create", path)?;
    file.write_all(&program).at("write", path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o755)).at("make executable", path)
}
