//! Two control groups for one gang: in one its processes run as others do, in the other one only where nobody else wants to (SCHED_IDLE for a whole
//! group: `cpu.idle`, Linux 5.15; before that the smallest weight that the kernel allows). A switch moves the processes from one to the other, and
//! none of them can see it. To change a group's weight instead would be one write, but the kernel still owes the group the time that it did
//! not get under its old weight, and gives it in the next one's turn (docs/decisions/0038).

use crate::cgroup::Hierarchies;
use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};

/// Names of our groups begin with this; the pid of the process that made it and a number follow.
const NAME: &str = "pando-gang-";
/// What the name of the second group ends with.
const ASIDE: &str = "-aside";
/// Its list of processes.
const LIST: &CStr = c"cgroup.procs";
/// Bytes of such a list that are read at once.
const PIECE: usize = 4096;

/// See above. Removed when this is dropped.
#[derive(Debug)]
pub struct Turns {
    runs: Group,
    aside: Group,
}

/// A control group: its directory, which is open, too, and its list of processes open for writing.
#[derive(Debug)]
struct Group {
    path: PathBuf,
    dir: File,
    list: File,
}

impl Turns {
    /// Makes one for processes that have so many CPUs. It weighs what as many processes outside of it do.
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
        // Ranges of the two: 2 to 262144, a process weighs 1024; 1 to 10000, it weighs 100.
        let (file, weight, least) = match v1 {
            true => ("cpu.shares", (1024 * u64::from(cpus)).clamp(1024, 262_144), "2"),
            false => ("cpu.weight", (100 * u64::from(cpus)).clamp(100, 10_000), "1"),
        };
        let name = format!("{NAME}{}-{number:x}", std::process::id());
        let runs = Group::make(parent.join(&name))?;
        let aside = Group::make(parent.join(name + ASIDE))?;
        fs::write(runs.path.join(file), weight.to_string())?;
        fs::write(aside.path.join("cpu.idle"), "1").or_else(|_| fs::write(aside.path.join(file), least))?;
        Ok(Turns { runs, aside })
    }

    /// What a process writes 0 to to be in it, and to run.
    pub fn entrance(&self) -> PathBuf {
        self.runs.path.join("cgroup.procs")
    }

    /// The lists of all of its processes.
    pub fn lists(&self) -> [PathBuf; 2] {
        [self.entrance(), self.aside.path.join("cgroup.procs")]
    }

    /// Moves nobody anywhere, so that the next switch is a quick one: the first one for a while waits until all CPUs have noticed, some of the kernel's
    /// ticks long (`rcu_sync`, under the lock on beginning processes).
    ///
    /// # Errors
    ///
    /// The kernel's; nothing is lost by them.
    pub fn stir(&self) -> io::Result<()> {
        let all = self.runs.processes()?;
        let first = all.split(|byte| *byte == b'\n').find(|pid| !pid.is_empty());
        first.map_or(Ok(()), |pid| (&self.runs.list).write_all(pid))
    }

    /// Its processes run as others do, or only where nobody else wants to. Whoever enters or begins meanwhile may be left where it is, until this is called
    /// again.
    ///
    /// # Errors
    ///
    /// The first process that can't be moved; all others are.
    pub fn run(&self, yes: bool) -> io::Result<()> {
        if yes { self.aside.empty_into(&self.runs) } else { self.runs.empty_into(&self.aside) }
    }
}

impl Group {
    fn make(path: PathBuf) -> io::Result<Group> {
        fs::create_dir(&path)?;
        let open = || Ok((File::open(&path)?, OpenOptions::new().write(true).open(path.join("cgroup.procs"))?));
        match open() {
            Ok((dir, list)) => Ok(Group { path, dir, list }),
            Err(e) => {
                let _ = fs::remove_dir(&path);
                Err(e)
            }
        }
    }

    /// Opened anew each time: version 1 shows an open list as it was for a second. By the directory, which spares the kernel most of the way.
    fn processes(&self) -> io::Result<Vec<u8>> {
        // SAFETY: a directory that is open, and a text that ends with 0; what comes back is a descriptor of nobody else, or -1.
        let mut list = unsafe {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            let fd = crate::check(libc::openat(self.dir.as_raw_fd(), LIST.as_ptr(), flags).into())?;
            File::from_raw_fd(fd as i32)
        };
        let mut all = Vec::new();
        loop {
            let had = all.len();
            all.resize(had + PIECE, 0);
            let read = list.read(&mut all[had..])?;
            all.truncate(had + read);
            if read == 0 {
                return Ok(all);
            }
        }
    }

    fn empty_into(&self, other: &Group) -> io::Result<()> {
        let mut failed = Ok(());
        for pid in self.processes()?.split(|byte| *byte == b'\n').filter(|pid| !pid.is_empty()) {
            match (&other.list).write_all(pid) {
                // It has ended.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                said => failed = failed.and(said),
            }
        }
        failed
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What is still there is found by `sweep`.
        let _ = fs::remove_dir(&self.path);
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
    fn all_processes_of_a_gang_step_aside_and_come_back() {
        let turns = match Turns::make(0xabc, 2) {
            Ok(turns) => turns,
            Err(e) => return eprintln!("SKIPPED all_processes_of_a_gang_step_aside_and_come_back: {e}"),
        };
        let read = |group: &Group, file: &str| fs::read_to_string(group.path.join(file)).unwrap_or_default();
        let weight = read(&turns.runs, "cpu.shares") + &read(&turns.runs, "cpu.weight");
        assert!(["2048", "200"].contains(&weight.trim()), "{weight}");
        let least = read(&turns.aside, "cpu.shares") + &read(&turns.aside, "cpu.weight");
        assert!(read(&turns.aside, "cpu.idle").trim() == "1" || ["2", "1"].contains(&least.trim()));

        let sleeps = || std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let mut children = [sleeps(), sleeps(), sleeps()];
        let mut pids: Vec<String> = children.iter().map(|c| c.id().to_string()).collect();
        pids.sort();
        pids.iter().for_each(|pid| fs::write(turns.entrance(), pid).unwrap());
        let seen = |group: &Group| {
            let mut list: Vec<String> = read(group, "cgroup.procs").lines().map(str::to_owned).collect();
            list.sort();
            list
        };
        for (yes, runs, aside) in [(false, &[][..], &pids[..]), (true, &pids, &[]), (true, &pids, &[])] {
            turns.run(yes).unwrap();
            assert_eq!((seen(&turns.runs), seen(&turns.aside)), (runs.to_vec(), aside.to_vec()));
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        turns.run(false).unwrap();
        let dirs = [turns.runs.path.clone(), turns.aside.path.clone()];
        drop(turns);
        assert!(dirs.iter().all(|dir| !dir.exists()));
    }
}
