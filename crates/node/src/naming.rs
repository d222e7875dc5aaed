//! Which process does a caller mean? One in a container counts processes by its own pid namespace.

use crate::owner::Caller;
use std::fs;
use std::path::PathBuf;

/// The pids of a process from our namespace inwards; none when it is not to be seen.
fn pids(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect()
}

fn space(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// Our pid of the process that `caller` calls `pid`. The error is a sentence.
pub fn meant(caller: Caller, pid: u32) -> Result<u32, String> {
    match pids(caller.pid).len() {
        1 => return Ok(pid),
        0 => {
            let why = "your processes are not to be seen from this node, which is in a pid namespace of its own";
            return Err(format!("{why}: ask from inside it (nsenter -p)"));
        }
        _ => {}
    }
    let theirs =
        space(caller.pid).ok_or("your pid namespace can't be looked at: name the process from outside of it")?;
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut all = all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let found = all.find(|&p| pids(p).last() == Some(&pid) && space(p).is_some_and(|s| s == theirs));
    found.ok_or_else(|| format!("there is no process {pid} in your pid namespace: `ps` shows those that there are"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_counts_as_we_do_is_taken_at_his_word() {
        let caller = |pid| Caller { uid: 0, pid };
        assert_eq!(meant(caller(std::process::id()), 4_194_000), Ok(4_194_000));
        assert!(meant(caller(0), 7).unwrap_err().contains("nsenter"));
    }
}
