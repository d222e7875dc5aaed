//! A control group whose processes run as others do, or only where nobody else wants to run (SCHED_IDLE for a whole group: `cpu.idle`, Linux
//! 5.15): one write switches all of a gang's processes here, however many they are, and none of them can see it. Where that file is missing
//! the group's weight is made as small as the kernel allows.

use crate::cgroup::Hierarchies;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Names of our groups begin with this; the pid of the process that made it and a number follow.
const NAME: &str = "pando-gang-";

/// See above. Removed when this is dropped.
#[derive(Debug)]
pub struct Turns {
    dir: PathBuf,
    idle: Option<File>,
    weight: File,
    /// What the weight is while it runs, and else.
    weights: (String, String),
}

impl Turns {
    /// Makes one that runs, for processes that have so many CPUs. It weighs what as many processes outside of it do.
    ///
    /// # Errors
    ///
    /// `Unsupported` where there is no `cpu` controller in which this process may make groups.
    pub fn make(number: u64, cpus: u32) -> io::Result<Turns> {
        let no =
            || io::Error::new(io::ErrorKind::Unsupported, "control groups with the cpu controller can't be made here");
        let (own, v1) = Hierarchies::read().directory("cpu").ok_or_else(no)?;
        let parent = if v1 { own } else { crate::cgroup::delegated(&own).ok_or_else(no)? };
        sweep(&parent);
        if !v1 {
            fs::write(parent.join("cgroup.subtree_control"), "+cpu")?;
        }
        let dir = parent.join(format!("{NAME}{}-{number:x}", std::process::id()));
        fs::create_dir(&dir)?;
        Turns::of(&dir, v1, cpus).inspect_err(|_| drop(fs::remove_dir(&dir)))
    }

    fn of(dir: &Path, v1: bool, cpus: u32) -> io::Result<Turns> {
        let open = |name: &str| OpenOptions::new().write(true).open(dir.join(name));
        // Ranges of the two: 2 to 262144, a process weighs 1024; 1 to 10000, it weighs 100.
        let (file, weights) = match v1 {
            true => ("cpu.shares", ((1024 * u64::from(cpus)).clamp(1024, 262_144), 2)),
            false => ("cpu.weight", ((100 * u64::from(cpus)).clamp(100, 10_000), 1)),
        };
        let weights = (weights.0.to_string(), weights.1.to_string());
        let turns = Turns { dir: dir.to_owned(), idle: open("cpu.idle").ok(), weight: open(file)?, weights };
        turns.run(true)?;
        Ok(turns)
    }

    /// What a process writes 0 to to be in it.
    pub fn entrance(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Its processes run as others do, or only where nobody else wants to.
    pub fn run(&self, yes: bool) -> io::Result<()> {
        let say = |mut file: &File, text: &str| file.write_all(text.as_bytes());
        match (&self.idle, yes) {
            (Some(idle), false) => say(idle, "1"),
            (None, false) => say(&self.weight, &self.weights.1),
            (idle, true) => {
                idle.as_ref().map_or(Ok(()), |idle| say(idle, "0"))?;
                say(&self.weight, &self.weights.0)
            }
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        // What is still there is found by `sweep`.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Is the hierarchy of a group for this only (version 1)? Who enters leaves no other group then, but one of the same controller.
pub fn is_alone(list: &Path) -> bool {
    list.with_file_name("cpu.shares").exists()
}

/// Removes what earlier processes have left.
pub fn sweep_all() {
    if let Some((own, v1)) = Hierarchies::read().directory("cpu")
        && let Some(parent) = if v1 { Some(own) } else { crate::cgroup::delegated(&own) }
    {
        sweep(&parent);
    }
}

/// Removes groups that nobody is in, of processes that are gone.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|n| n.strip_prefix(NAME)?.split('-').next()?.parse::<u32>().ok());
        if maker.is_some_and(|pid| pid != std::process::id() && !Path::new(&format!("/proc/{pid}")).exists()) {
            // The kernel keeps those that are in use.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_made_switched_and_removed() {
        let turns = match Turns::make(0xabc, 2) {
            Ok(turns) => turns,
            Err(e) => return eprintln!("SKIPPED a_group_is_made_switched_and_removed: {e}"),
        };
        let dir = turns.dir.clone();
        let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default().trim().to_owned();
        let weighs = || if read("cpu.shares").is_empty() { read("cpu.weight") } else { read("cpu.shares") };
        assert!(["2048", "200"].contains(&weighs().as_str()), "{}", weighs());
        turns.run(false).unwrap();
        assert!(read("cpu.idle") == "1" || ["2", "1"].contains(&weighs().as_str()));
        turns.run(true).unwrap();
        assert!(["2048", "200"].contains(&weighs().as_str()), "the weight is back: {}", weighs());
        drop(turns);
        assert!(!dir.exists());
    }
}
