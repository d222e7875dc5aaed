//! How busy this node is: runnable threads over CPUs, smoothed so that it rises fast and falls slowly (a node
//! that flutters attracts what it then throws out), and memory that can be had without swapping.

use crate::config::LoadSource;
use crate::owner::is_pandos;
use crate::runnable::Runnable;
use pando_wire::message::{Load, Standing};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Weight of a new figure in the smoothed rate of paging.
const WEIGHT: f64 = 0.15;
/// Waiting for memory for so long is as bad as a page that comes from disk, microseconds.
const FAULT_US: u64 = 2000;
/// What is left of the speed at which memory went, when it was looked again.
const PAUSE: f64 = 0.5;
/// No more processes of a cgroup are looked at than this.
const MAX_LOOKED_AT: usize = 4096;

/// Measures when asked.
pub struct Meter {
    source: LoadSource,
    cpus: f64,
    speed: u32,
    runnable: Runnable,
    counted: Option<Instant>,
    /// Pages that came from disk, and microseconds for which somebody waited for memory.
    waits: Option<(Instant, u64, u64)>,
    paging: f64,
    free: Option<(Instant, u64)>,
    falling: f64,
}

impl Meter {
    /// Looks at the machine once. `speed`: of one CPU, 1000 being usual.
    pub fn new(source: LoadSource, speed: u32) -> Self {
        let machine = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let limited = source.cgroup.as_deref().and_then(cgroup_cpus);
        let cpus = source.cpus.or(limited).unwrap_or_else(|| f64::from(machine)).clamp(0.01, 1e6);
        Meter {
            source,
            cpus,
            speed,
            runnable: Runnable::default(),
            counted: None,
            waits: None,
            paging: 0.0,
            free: None,
            falling: 0.0,
        }
    }

    /// The load now; whom the node takes in is not for this to say. `come` and `gone`: threads, in thousandths, that did so since the last time.
    /// `gangs`: CPUs that they hold, and the lists of their processes, which are no other load.
    pub fn measure(&mut self, guests: u32, (come, gone): (i64, i64), gangs: &(u32, Vec<PathBuf>)) -> Load {
        let cgroup = self.source.cgroup.as_deref();
        let all = cgroup.map_or_else(machine_runnable, cgroup_runnable);
        let lists = gangs.1.iter().map(|list| fs::read_to_string(list).unwrap_or_default());
        let runnable = (all - running(&lists.collect::<String>())).max(0.0);
        let now = Instant::now();
        let since = self.counted.replace(now).map_or_else(Default::default, |before| now.duration_since(before));
        self.runnable.count(since, (runnable * 1000.0) as i64, come, gone);
        let cgroup = self.source.cgroup.as_deref();
        let group = self.source.memory_cgroup.as_deref().or(cgroup);
        let ((memory, free), faults, stalled_us) = (memory(group), major_faults(group), stalled_us(group));
        self.fall(now, free);
        let paging = self.paging(now, faults, stalled_us);
        Load {
            cpus_milli: (self.cpus * 1000.0) as u32,
            reserved_milli: gangs.0.saturating_mul(1000).min((self.cpus * 1000.0) as u32),
            speed: self.speed,
            runnable_milli: self.runnable.milli(),
            memory,
            free,
            paging,
            guests,
            standing: Standing::default(),
        }
    }

    /// By how many bytes a second free memory goes down just now.
    pub fn falling(&self) -> u64 {
        self.falling as u64
    }

    fn fall(&mut self, now: Instant, free: u64) {
        if let Some((when, before)) = self.free {
            let rate = before.saturating_sub(free) as f64 / now.duration_since(when).as_secs_f64().max(1e-3);
            // A program that grows pauses, too.
            self.falling = rate.max(self.falling * PAUSE);
        }
        self.free = Some((now, free));
    }

    /// Faults a second, smoothed; or what the waiting for memory comes to, if that is more.
    fn paging(&mut self, now: Instant, faults: u64, stalled_us: u64) -> u32 {
        if let Some((when, before, stalled)) = self.waits {
            let seconds = now.duration_since(when).as_secs_f64().max(1e-3);
            let waits = faults.saturating_sub(before).max(stalled_us.saturating_sub(stalled) / FAULT_US);
            self.paging += WEIGHT * (waits as f64 / seconds - self.paging);
        }
        self.waits = Some((now, faults, stalled_us));
        self.paging as u32
    }
}

/// Microseconds for which some thread waited for memory (pressure stall information: Documentation/accounting/psi.rst); 0 where the kernel does not
/// count that. It sees what faults do not show: reclaim, and few pages of a slow disk.
fn stalled_us(cgroup: Option<&Path>) -> u64 {
    let of = |text: String| {
        let line = text.lines().find(|l| l.starts_with("some "))?.to_owned();
        line.split_once("total=")?.1.trim().parse::<u64>().ok()
    };
    let file = cgroup.map_or_else(|| Path::new("/proc/pressure/memory").into(), |dir| dir.join("memory.pressure"));
    fs::read_to_string(file).ok().and_then(of).unwrap_or(0)
}

/// Pages that had to come from disk, since the machine or the control group began.
fn major_faults(cgroup: Option<&Path>) -> u64 {
    let of = |text: String| text.lines().find_map(|l| l.strip_prefix("pgmajfault "))?.trim().parse::<u64>().ok();
    let group = cgroup.and_then(|dir| fs::read_to_string(dir.join("memory.stat")).ok()).and_then(of);
    group.or_else(|| fs::read_to_string("/proc/vmstat").ok().and_then(of)).unwrap_or(0)
}

/// Fourth field of `/proc/loadavg`, without the thread that reads it.
fn machine_runnable() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let running = text.split_whitespace().nth(3).and_then(|f| f.split('/').next()?.parse::<f64>().ok());
    (running.unwrap_or(1.0) - 1.0).max(0.0)
}

/// Of `/proc/PID/task/TID/stat`: is that a part of Pando, or a program that is only called so?
fn is_ours(stat: &Path) -> bool {
    let pid = stat.components().nth(2).and_then(|c| c.as_os_str().to_str()?.parse().ok());
    pid.is_some_and(is_pandos)
}

/// In the group itself and in those directly below it, where guests are.
fn cgroup_runnable(dir: &Path) -> f64 {
    let read = |dir: &Path| fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    // The directory says what is one: to ask for each of its files takes longer than all else here.
    let is_dir = |e: &fs::DirEntry| e.file_type().is_ok_and(|kind| kind.is_dir());
    let below = fs::read_dir(dir).into_iter().flatten().flatten().filter(is_dir);
    running(&below.fold(read(dir), |pids, below| pids + &read(&below.path())))
}

/// Threads of these processes, one in a line, that run or want to.
fn running(pids: &str) -> f64 {
    let me = std::process::id().to_string();
    // What Pando itself does is no load that could go elsewhere.
    let running = |stat: &std::path::PathBuf| {
        let text = fs::read_to_string(stat).unwrap_or_default();
        let (name, rest) = text.rsplit_once(')').unwrap_or_default();
        rest.trim_start().starts_with('R') && !(name.contains("(pando-") && is_ours(stat))
    };
    let threads = |pid: &str| {
        let all = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        all.map(|e| e.path().join("stat")).filter(running).count()
    };
    pids.lines().take(MAX_LOOKED_AT).filter(|pid| *pid != me).map(threads).sum::<usize>() as f64
}

fn cgroup_cpus(dir: &Path) -> Option<f64> {
    let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
    // The second names are those of version 1.
    let text =
        read("cpu.max").or_else(|| Some(format!("{} {}", read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?)))?;
    let mut words = text.split_whitespace();
    let (quota, period): (f64, f64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// Bytes of files that are kept as long as there is nothing better to do with the memory.
fn cached(group: &Path) -> u64 {
    let text = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    // Version 1 has the sums over all groups below under names of their own.
    let of = |names: [&str; 2]| -> Option<u64> {
        let line =
            |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok());
        Some(line(names[0])? + line(names[1])?)
    };
    of(["total_inactive_file", "total_active_file"]).or_else(|| of(["inactive_file", "active_file"])).unwrap_or(0)
}

fn memory(cgroup: Option<&Path>) -> (u64, u64) {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    let machine = (field("MemTotal:").unwrap_or(0), field("MemAvailable:").unwrap_or(0));
    let number = |file: &str| fs::read_to_string(cgroup?.join(file)).ok()?.trim().parse::<u64>().ok();
    // The second names are those of version 1.
    let max = number("memory.max").or_else(|| number("memory.limit_in_bytes"));
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"));
    match (max, used) {
        (Some(max), Some(used)) => {
            let used = used.saturating_sub(cgroup.map_or(0, cached));
            (max.min(machine.0), max.saturating_sub(used).min(machine.1))
        }
        _ => machine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn meter() -> Meter {
        Meter::new(LoadSource::default(), 1000)
    }

    #[test]
    fn waiting_for_memory_counts_as_paging_where_the_kernel_says_so() {
        let group = std::env::temp_dir().join(format!("pando-pressure-{}", std::process::id()));
        fs::create_dir_all(&group).unwrap();
        assert_eq!(stalled_us(Some(&group)), 0, "a kernel without it");
        let text =
            "some avg10=1.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        fs::write(group.join("memory.pressure"), text).unwrap();
        let stalled = stalled_us(Some(&group));
        assert_eq!(stalled, 1_000_000);
        fs::remove_dir_all(group).unwrap();
        let (mut waits, mut faults, mut neither) = (meter(), meter(), meter());
        let begun = Instant::now();
        for (seconds, stalled) in [(0, 0), (1, stalled)] {
            let now = begun + Duration::from_secs(seconds);
            waits.paging(now, 0, stalled);
            faults.paging(now, stalled / FAULT_US, 0);
            neither.paging(now, 9, 9);
        }
        assert_eq!((waits.paging, faults.paging, neither.paging), (WEIGHT * 500.0, WEIGHT * 500.0, 0.0));
    }

    #[test]
    fn what_gangs_run_is_no_other_load() {
        let mut spins = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let dir = std::env::temp_dir().join(format!("pando-gangs-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (list, empty) = (dir.join("cgroup.procs"), dir.join("none"));
        fs::write(&list, format!("{}\n", spins.id())).unwrap();
        let source = LoadSource { cgroup: Some(dir.clone()), cpus: Some(2.0), ..LoadSource::default() };
        let load = |gangs: &(u32, Vec<PathBuf>)| {
            let mut meter = Meter::new(source.clone(), 1000);
            (0..8).for_each(|_| _ = meter.measure(0, (0, 0), gangs));
            let load = meter.measure(0, (0, 0), gangs);
            (load.runnable_milli > 0, load.reserved_milli)
        };
        assert_eq!(load(&(0, Vec::new())), (true, 0));
        assert_eq!(load(&(1, vec![list])), (false, 1000));
        assert_eq!(load(&(9, vec![empty])), (true, 2000), "no more than there are");
        drop((spins.kill(), spins.wait(), fs::remove_dir_all(dir)));
    }

    #[test]
    fn memory_that_goes_is_seen_to_go_and_for_a_while_after_that() {
        let (mut meter, begun) = (meter(), Instant::now());
        let mut falls = |ms: u64, free: u64| {
            meter.fall(begun + Duration::from_millis(ms), free);
            meter.falling()
        };
        assert_eq!([falls(0, 4000), falls(500, 3000), falls(1000, 3000), falls(1500, 3500)], [0, 2000, 1000, 500]);
    }
}
