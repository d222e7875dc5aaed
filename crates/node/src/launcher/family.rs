//! Everything that this process (a launcher, or the helper of a batch job) has started, and that was started by it: orphans come to the launcher.

use super::AGAIN;
use pando_kernel::{job, procfs, rank, signal};

pub fn all() -> Vec<i32> {
    let me = std::process::id() as i32;
    let mut found = procfs::children(me);
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(procfs::children(pid));
        next += 1;
    }
    found
}

/// To every process of every rank.
pub fn signal_all(number: i32) {
    for pid in all() {
        // One that has ended meanwhile needs none.
        let _ = signal::kill(pid, number);
    }
}

/// To every process of the session that this one leads, and to what those have started.
pub fn signal_session(leader: i32, number: i32) {
    let mut found: Vec<i32> = all().into_iter().filter(|pid| job::session(*pid) == Some(leader)).collect();
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        let more: Vec<i32> = procfs::children(pid).into_iter().filter(|child| !found.contains(child)).collect();
        found.extend(more);
        next += 1;
    }
    found.into_iter().for_each(|pid| _ = signal::kill(pid, number));
}

/// Ends all that there is, and what is started meanwhile.
pub async fn end_all() {
    // The kernel says sooner than its lists whether there is anybody.
    while rank::has_children() {
        let left = all();
        if left.is_empty() {
            return;
        }
        // Who stands still starts nobody.
        left.iter().for_each(|pid| _ = signal::kill(*pid, libc::SIGSTOP));
        all().iter().for_each(|pid| _ = signal::kill(*pid, libc::SIGKILL));
        tokio::time::sleep(AGAIN).await;
        while rank::collect().is_some() {}
    }
}
