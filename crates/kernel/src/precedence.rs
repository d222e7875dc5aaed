//! Threads of the daemon that come before all programs (SCHED_RR): where ranks have their CPUs in turns of milliseconds, a daemon that waits for a CPU
//! as long as they do is late for every switch.

use crate::check;
use std::io;

/// This thread, or another one of this process, from now on; or as others again. What it starts does not inherit it.
pub fn set(tid: i32, first: bool) -> io::Result<()> {
    let (policy, priority) =
        if first { (libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 1) } else { (libc::SCHED_OTHER, 0) };
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: a pointer to a live object of ours.
    check(i64::from(unsafe { libc::sched_setscheduler(tid, policy, &parameter) })).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_comes_first_and_what_it_starts_does_not() {
        let policy = |tid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).unwrap();
            stat[stat.rfind(')').unwrap()..].split_whitespace().nth(39).unwrap().to_owned()
        };
        std::thread::spawn(move || {
            if let Err(e) = set(0, true) {
                return eprintln!("SKIPPED a_thread_comes_first_and_what_it_starts_does_not: {e}");
            }
            let mut child = std::process::Command::new("sleep").arg("10").spawn().unwrap();
            assert_eq!(policy(child.id()), "0");
            child.kill().unwrap();
            child.wait().unwrap();
            set(0, false).unwrap();
        })
        .join()
        .unwrap();
    }
}
