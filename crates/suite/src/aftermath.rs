//! What a fault leaves: lines in logs, processes on the nodes, nodes that must find each other again.

use crate::evidence;
use crate::processes::{self, Process};
use crate::testbed::Testbed;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Waits until every node knows every other one to be up again.
pub fn all_see_all(testbed: &Testbed) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        let status = testbed.pando(&["testbed", "status"])?;
        if status.lines().filter(|l| l.trim_end().ends_with("n1 n2 n3")).count() == 3 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err("the nodes did not find each other again within 20 s".into())
}

/// The guests: processes below a helper at the target that have no children of their own.
pub fn guests(helpers: &[Process]) -> BTreeSet<u32> {
    let all = processes::all();
    let tops = helpers.iter().filter(|h| h.args.iter().any(|a| a == "__guest"));
    let below: BTreeSet<u32> = tops.flat_map(|h| processes::family(&all, h.pid)).collect();
    let helpers: BTreeSet<u32> = helpers.iter().map(|h| h.pid).collect();
    let parents: BTreeSet<u32> = all.iter().map(|p| p.parent).collect();
    below.into_iter().filter(|p| !parents.contains(p) && !helpers.contains(p)).collect()
}

/// Whether a line of a log says that a process was lost.
pub fn tells(line: &str, pid: u32) -> bool {
    let names = line.split(|c: char| !c.is_ascii_digit()).any(|word| word == pid.to_string());
    names && ["lost", "ended", "killed", "died", "gone"].iter().any(|word| line.contains(word))
}

/// All that the nodes have logged.
pub fn logs(testbed: &Testbed) -> String {
    let mut all = String::new();
    for node in &testbed.nodes {
        for log in ["log", "state/helpers.log", "state/node.log"] {
            all += &std::fs::read_to_string(node.log.with_file_name(log)).unwrap_or_default();
        }
    }
    all
}

/// Helpers, `guests` and zombies that have not gone away `within` this time.
pub fn left_behind(testbed: &Testbed, guests: &BTreeSet<u32>, within: Duration) -> Vec<String> {
    let end = Instant::now() + within;
    loop {
        let helpers = evidence::helpers(&testbed.nodes);
        let daemons: BTreeSet<u32> = testbed.nodes.iter().filter_map(|n| n.pid).collect();
        let all = processes::all();
        let zombies = all.iter().filter(|p| p.state == 'Z' && daemons.contains(&p.parent));
        let old = all.iter().filter(|p| guests.contains(&p.pid));
        let left: Vec<&Process> = helpers.iter().chain(zombies).chain(old).collect();
        if left.is_empty() {
            return Vec::new();
        }
        if Instant::now() >= end {
            let tell = |p: &&Process| format!("left: {}", evidence::of_process(p.pid));
            return left.iter().map(tell).collect();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_of_one_process_only() {
        assert!(tells("process 123 (x) was lost with n2", 123));
        assert!(!tells("process 1234 was lost", 123));
        assert!(!tells("process 123 went to n2", 123));
    }
}
