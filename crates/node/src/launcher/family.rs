//! Everything that this launcher has started, and that was started by it: orphans come to the launcher.

use super::AGAIN;
use pando_kernel::{procfs, rank, signal};

fn all() -> Vec<i32> {
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

/// Ends all that there is, and what is started meanwhile.
pub async fn end_all() {
    loop {
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
