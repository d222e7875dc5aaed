//! How much of home's files may be kept here: a share of what this machine, or the cgroup of this helper, has left.

use pando_kernel::cgroup;
use std::fs;

const SHARE: u64 = 8;
const LEAST: u64 = 64 << 20;
const MOST: u64 = 4 << 30;

/// `kept`: what there is already.
pub(super) fn budget(kept: u64) -> u64 {
    let free = available().unwrap_or(0).min(cgroup::memory_left().unwrap_or(u64::MAX));
    (free.saturating_add(kept) / SHARE).clamp(LEAST, MOST)
}

fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
