//! What the control groups say while an experiment runs: memory in use, limits that were hit, and whether nodes got the CPU time that they were
//! promised.

use crate::cgroup;
use crate::place::Plan;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two looks at memory, and at CPUs.
const LOOK: Duration = Duration::from_millis(100);
const CPU_LOOK: Duration = Duration::from_millis(500);
/// A node that computes in most periods, and is stopped at its limit in few of these, did not get as far as that.
const COMPUTES: f64 = 0.8;
const STOPPED: f64 = 0.6;

/// Watches a testbed.
pub struct Watch {
    /// Memory groups of the nodes, if memory is limited.
    groups: Vec<PathBuf>,
    limit: u64,
    hits: Vec<u64>,
    looked: Instant,
    cpu_looked: Instant,
    /// CPU groups of the nodes, if that is limited: periods in which they computed, and those in which they were stopped.
    periods: Vec<(PathBuf, (u64, u64))>,
    looks: (u32, u32),
    /// Memory in use at the worst moment, percent of all.
    pub memory: f64,
    /// Seconds in which a node had no memory left, all nodes together.
    pub short_s: f64,
}

impl Watch {
    /// From now on.
    pub fn new(plan: &Plan) -> Watch {
        let has = |dir: &PathBuf| ["memory.limit_in_bytes", "memory.max"].iter().any(|f| dir.join(f).exists());
        let group = |node: &String| plan.node_cgroups(node).into_iter().find(has);
        let limited = plan.shape.memory.is_some();
        let groups: Vec<PathBuf> = plan.nodes().iter().filter(|_| limited).filter_map(group).collect();
        let cpu = |node: &String| plan.node_cgroups(node).into_iter().find_map(|g| Some((g.clone(), periods(&g)?)));
        let periods = plan.nodes().iter().filter_map(cpu).collect();
        Watch {
            hits: groups.iter().map(|g| hits(g)).collect(),
            groups,
            limit: plan.shape.memory.unwrap_or(0),
            looked: Instant::now(),
            cpu_looked: Instant::now(),
            periods,
            looks: (0, 0),
            memory: 0.0,
            short_s: 0.0,
        }
    }

    /// Looks, if it is time to.
    pub fn look(&mut self) {
        if self.looked.elapsed() >= LOOK {
            let passed = self.looked.elapsed().as_secs_f64();
            self.looked = Instant::now();
            let mut used = 0;
            for (group, known) in self.groups.iter().zip(&mut self.hits) {
                used += in_use(group);
                let now = hits(group);
                if now > *known {
                    self.short_s += passed;
                }
                *known = now;
            }
            let all = self.limit * self.groups.len() as u64;
            self.memory = self.memory.max(used as f64 * 100.0 / all.max(1) as f64);
        }
        if self.cpu_looked.elapsed() >= CPU_LOOK {
            let passed = self.cpu_looked.elapsed().as_micros() as f64 / cgroup::PERIOD_US as f64;
            self.cpu_looked = Instant::now();
            for (group, known) in &mut self.periods {
                let Some(now) = periods(group) else { continue };
                let (computed, stopped) = (now.0.saturating_sub(known.0) as f64, now.1.saturating_sub(known.1) as f64);
                *known = now;
                if computed >= passed * COMPUTES {
                    self.looks.0 += 1;
                    self.looks.1 += u32::from(stopped < computed * STOPPED);
                }
            }
        }
    }

    /// Percent of the time in which nodes had something to compute and did not get the CPU time that they were promised.
    pub fn starved(&self) -> f64 {
        f64::from(self.looks.1) * 100.0 / f64::from(self.looks.0.max(1))
    }
}

fn number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn line(file: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// How often something did not fit (Documentation/admin-guide/cgroup-v1/memory.rst, and v2's `max` events).
fn hits(group: &Path) -> u64 {
    number(&group.join("memory.failcnt")).or_else(|| line(&group.join("memory.events"), "max")).unwrap_or(0)
}

/// Bytes without those of files, which the kernel gives back.
fn in_use(group: &Path) -> u64 {
    let all = number(&group.join("memory.usage_in_bytes")).or_else(|| number(&group.join("memory.current")));
    let stat = group.join("memory.stat");
    let files = line(&stat, "total_cache").or_else(|| line(&stat, "file"));
    all.unwrap_or(0).saturating_sub(files.unwrap_or(0))
}

/// Periods in which a group computed, and in which it was stopped at its limit (cpu.stat, the same in both versions).
fn periods(group: &Path) -> Option<(u64, u64)> {
    let stat = group.join("cpu.stat");
    Some((line(&stat, "nr_periods")?, line(&stat, "nr_throttled")?))
}

/// Whether this machine can put memory aside.
pub fn has_swap() -> bool {
    let text = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    text.lines().count() > 1
}
