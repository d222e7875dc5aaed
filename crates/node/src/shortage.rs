//! Processes that the kernel has ended here for want of memory: it tells nobody but its own log, and their users see a status of 137.

use crate::config::LoadSource;
use crate::daemon::Node;
use crate::views::Event;
use std::fs;
use std::path::{Path, PathBuf};

/// Counts them, from when it was made.
pub struct Shortage {
    group: Option<PathBuf>,
    known: u64,
}

impl Shortage {
    /// Of the group whose memory is the node's, or of the machine.
    pub fn new(source: &LoadSource) -> Shortage {
        let group = source.memory_cgroup.clone().or_else(|| source.cgroup.clone());
        let known = ended(group.as_deref());
        Shortage { group, known }
    }

    /// How many more there are than when it was last asked.
    fn more(&mut self) -> u64 {
        let now = ended(self.group.as_deref());
        now.saturating_sub(std::mem::replace(&mut self.known, now))
    }

    /// Says so, if there are any.
    pub fn look(&mut self, node: &Node) {
        let (more, name) = (self.more(), node.name());
        if more > 0 {
            let text = format!(
                "node {name} ran out of memory, and the kernel ended {more} of its processes ({} MB are free now)",
                node.vector().free >> 20
            );
            node.events.say(Event {
                from: Some(name),
                reason: Some("out of memory".into()),
                ..Event::new("memory", text)
            });
        }
    }
}

/// Since the group was made, or the machine began. Groups of version 1 say it of themselves alone, without those below.
fn ended(group: Option<&Path>) -> u64 {
    let of = |text: String| text.lines().find_map(|l| l.strip_prefix("oom_kill "))?.trim().parse::<u64>().ok();
    let read = |file: PathBuf| fs::read_to_string(file).ok().and_then(of);
    let said =
        group.and_then(|dir| ["memory.events", "memory.oom_control"].iter().find_map(|file| read(dir.join(file))));
    said.or_else(|| read("/proc/vmstat".into())).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_once() {
        let dir = std::env::temp_dir().join(format!("pando-shortage-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let write = |count: u64| {
            fs::write(dir.join("memory.oom_control"), format!("oom_kill_disable 0\nunder_oom 0\noom_kill {count}\n"))
        };
        write(3).unwrap();
        let mut shortage = Shortage::new(&LoadSource { cgroup: Some(dir.clone()), ..LoadSource::default() });
        assert_eq!(shortage.more(), 0, "what was before is nobody's business");
        write(5).unwrap();
        assert_eq!((shortage.more(), shortage.more()), (2, 0));
        fs::remove_dir_all(dir).unwrap();
    }
}
