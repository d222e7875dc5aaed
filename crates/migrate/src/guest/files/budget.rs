//! How much of home's files may be kept here: a share of what this machine, or the cgroup of this helper, has left.

use std::fs;
use std::path::Path;

const SHARE: u64 = 8;
const LEAST: u64 = 64 << 20;
const MOST: u64 = 4 << 30;

/// `kept`: what there is already.
pub(super) fn budget(kept: u64) -> u64 {
    let free = available().unwrap_or(0).min(left_in_cgroup().unwrap_or(u64::MAX));
    (free.saturating_add(kept) / SHARE).clamp(LEAST, MOST)
}

fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The least that is left below the limits of our cgroup and those above it.
fn left_in_cgroup() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|l| l.strip_prefix("0::/"))?;
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let left = |dir: &Path| {
        let (limit, used) = (number(&dir.join("memory.max"))?, number(&dir.join("memory.current"))?);
        Some(limit.saturating_sub(used))
    };
    let own = Path::new("/sys/fs/cgroup").join(own);
    own.ancestors().take_while(|dir| dir.starts_with("/sys/fs/cgroup")).filter_map(left).min()
}
