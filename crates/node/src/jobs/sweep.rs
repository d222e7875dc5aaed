//! What is left of ranks when their launcher was killed: its own children die with it, theirs are found by their environment.

use crate::launcher::{MARK, sweep_scratch};
use pando_kernel::{procfs, signal};
use std::time::Duration;

/// Between two rounds: what is killed may be starting others.
const ROUNDS: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Ends all processes with this mark that have these variables, too.
pub fn sweep(mark: &str, of: &[(&str, &str)]) {
    let is = |pid: i32, name: &str, value: &str| procfs::variable(pid, name).is_some_and(|v| v == value);
    let is_of_it = |pid: &i32| is(*pid, MARK, mark) && of.iter().all(|(name, value)| is(*pid, name, value));
    for _ in 0..ROUNDS {
        let left: Vec<i32> = procfs::processes().into_iter().filter(is_of_it).collect();
        let lives = |pid: &&i32| procfs::stat(**pid).is_some_and(|s| s.lives());
        if left.iter().filter(lives).count() == 0 {
            break;
        }
        left.iter().for_each(|pid| _ = signal::kill(*pid, libc::SIGKILL));
        std::thread::sleep(PAUSE);
    }
    sweep_scratch();
}
