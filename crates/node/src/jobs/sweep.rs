//! What is left of ranks when their launcher was killed: its own children die with it, theirs are found by their environment.

use pando_kernel::{procfs, signal};

/// Between two rounds: what is killed may be starting others.
const ROUNDS: usize = 20;

/// Ends all processes of that job on this machine that this daemon may end.
pub fn sweep(head: &str, job: u64) {
    let (job, node) = (job.to_string(), head.to_owned());
    let is_of_it = |pid: &i32| {
        procfs::variable(*pid, "PANDO_JOB_ID").as_ref() == Some(&job)
            && procfs::variable(*pid, "PANDO_HEAD").as_ref() == Some(&node)
            && !procfs::name(*pid).is_empty()
    };
    for _ in 0..ROUNDS {
        let left: Vec<i32> = procfs::processes().into_iter().filter(is_of_it).collect();
        let lives = |pid: &&i32| procfs::stat(**pid).is_some_and(|s| s.lives());
        if left.iter().filter(lives).count() == 0 {
            break;
        }
        left.iter().for_each(|pid| _ = signal::kill(*pid, libc::SIGKILL));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    crate::launcher::sweep_scratch();
}
