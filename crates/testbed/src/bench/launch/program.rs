//! A program that no node has: it goes to all of them with the job that runs it, and is there the next time.

use super::calm::Calm;
use super::slurm::Slurm;
use super::{Spread, command::timed, pando};
use crate::bench::Step;
use crate::entry;
use crate::error::{Context, Error, Result};
use crate::place::Plan;
use crate::scratch::Scratch;
use serde::Serialize;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of it.
const SIZE: u64 = 12 << 20;
/// Who is measured.
pub const OURS: &str = "pando run --bcast";
pub const THEIRS: &str = "sbcast and srun";
/// Nobody who puts a copy at each node takes less on one machine: as many copies are written by as many threads as there are CPUs, and nothing is sent.
pub const WRITTEN: &str = "the copies, only written";
/// Runs with the same one after its first.
const AGAIN: usize = 4;

/// A program of 12 MB, one rank on each node.
#[derive(Clone, Debug, Serialize)]
pub struct Sent {
    /// Who sends and starts it.
    pub launcher: &'static str,
    /// Nodes.
    pub nodes: usize,
    /// No node has it.
    pub cold: Spread,
    /// All have it. None for who keeps nothing.
    pub cached: Option<Spread>,
}

/// Whether `pando run` can send a program.
pub fn is_known(plan: &Plan) -> Result<bool> {
    Ok(entry::pando(plan, "n1", &["run", "--help"])?.contains("--bcast"))
}

/// With so many programs, all different, by turns.
pub fn measure(
    (plan, scratch): (&Plan, &Scratch),
    slurm: Option<&Slurm>,
    step: &mut Step,
    (nodes, programs): (usize, usize),
) -> Result<Vec<Sent>> {
    let what = format!("a program of 12 MB on {nodes} nodes");
    let (mut cold, mut cached, mut theirs, mut written) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut calm = Calm::default();
    for i in 0..programs {
        let path = scratch.0.join(format!("program-{nodes}-{i}"));
        write(&path)?;
        let text = path.to_string_lossy();
        calm.wait()?;
        let run = || Ok(timed(pando(plan, nodes, nodes, &["--bcast=always"], &[&text])?, OURS)?.took);
        let times = step.take(&what, || (0..=AGAIN).map(|_| run()).collect::<Result<Vec<_>>>())?.unwrap_or_default();
        cold.extend(times.first());
        cached.extend(times.iter().skip(1));
        calm.wait()?;
        written.extend(step.take(&format!("{what}, {WRITTEN}"), || copies(scratch, nodes, &path))?);
        if let Some(slurm) = slurm {
            calm.wait()?;
            theirs.extend(step.take(&format!("{what}, {THEIRS}"), || slurm.sent(plan, nodes, &path))?);
        }
        std::fs::remove_file(&path).at("remove", &path)?;
    }
    let spread = |times: &[Duration]| (!times.is_empty()).then(|| Spread::of(times));
    let row = |launcher, cold, cached| Some(Sent { launcher, nodes, cold: spread(cold)?, cached: spread(cached) });
    let all = [row(OURS, &cold, &cached), row(THEIRS, &theirs, &[]), row(WRITTEN, &written, &[])];
    Ok(all.into_iter().flatten().collect())
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

/// A copy for each node.
fn copies(scratch: &Scratch, nodes: usize, path: &Path) -> Result<Duration> {
    let program = std::fs::read(path).at("read", path)?;
    let dir = scratch.0.join("copies");
    std::fs::create_dir(&dir).at("create", &dir)?;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let write = &|first: usize| {
        (first..nodes).step_by(threads).try_for_each(|node| {
            let copy = dir.join(node.to_string());
            std::fs::write(&copy, &program).at("write", &copy)
        })
    };
    let begun = Instant::now();
    let written = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|first| scope.spawn(move || write(first))).collect();
        let ended = all.into_iter().map(|one| one.join().map_err(|_| Error::Other("a thread has panicked".into()))?);
        ended.collect::<Result<Vec<()>>>()
    });
    let took = begun.elapsed();
    std::fs::remove_dir_all(&dir).at("remove", &dir)?;
    written.map(|_| took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_written_and_taken_away() {
        let scratch = Scratch::make(&format!("bench-copies-{}", std::process::id())).unwrap();
        let path = scratch.0.join("program");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        assert!(copies(&scratch, 5, &path).unwrap() > Duration::ZERO);
        assert!(!scratch.0.join("copies").exists());
        assert!(copies(&scratch, 5, Path::new("/no/such/program")).is_err());
    }
}
