//! How busy this node is: runnable threads over CPUs, smoothed so that it rises fast and falls slowly (a node
//! that flutters attracts what it then throws out), and memory that can be had without swapping.

use crate::config::LoadSource;
use pando_wire::message::Load;
use std::fs;
use std::path::Path;

/// Weight of a new figure when it is higher, and when it is lower, than the smoothed one.
const RISE: f64 = 0.5;
const FALL: f64 = 0.15;
/// No more processes of a cgroup are looked at than this.
const MAX_LOOKED_AT: usize = 4096;

/// Measures when asked.
pub struct Meter {
    source: LoadSource,
    cpus: u32,
    smoothed: f64,
}

impl Meter {
    /// Looks at the machine once.
    pub fn new(source: LoadSource) -> Self {
        let machine = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let limited = source.cgroup.as_deref().and_then(cgroup_cpus);
        let cpus = source.cpus.or(limited).unwrap_or(machine);
        Meter { source, cpus, smoothed: 0.0 }
    }

    /// The load now.
    pub fn measure(&mut self, guests: u32) -> Load {
        let runnable = match &self.source.cgroup {
            Some(dir) => cgroup_runnable(dir),
            None => machine_runnable(),
        };
        let weight = if runnable > self.smoothed { RISE } else { FALL };
        self.smoothed += weight * (runnable - self.smoothed);
        let (memory, free) = memory(self.source.cgroup.as_deref());
        Load { cpus: self.cpus, runnable_milli: (self.smoothed * 1000.0) as u32, memory, free, guests }
    }
}

/// Fourth field of `/proc/loadavg`, without the thread that reads it.
fn machine_runnable() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let running = text.split_whitespace().nth(3).and_then(|f| f.split('/').next()?.parse::<f64>().ok());
    (running.unwrap_or(1.0) - 1.0).max(0.0)
}

/// In the group itself and in those directly below it, where guests are.
fn cgroup_runnable(dir: &Path) -> f64 {
    let read = |dir: &Path| fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let below = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).filter(|p| p.is_dir());
    let pids = below.fold(read(dir), |pids, below| pids + &read(&below));
    let me = std::process::id().to_string();
    let running = |pid: &&str| {
        *pid != me
            && fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|s| s.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R')))
    };
    pids.lines().take(MAX_LOOKED_AT).filter(running).count() as f64
}

fn cgroup_cpus(dir: &Path) -> Option<u32> {
    let text = fs::read_to_string(dir.join("cpu.max")).ok()?;
    let mut words = text.split_whitespace();
    let (quota, period): (f64, f64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((quota / period).ceil().max(1.0) as u32)
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
        (Some(max), Some(used)) => (max.min(machine.0), max.saturating_sub(used).min(machine.1)),
        _ => machine,
    }
}
