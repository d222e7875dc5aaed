//! A node's memory group, in place of what the kernel has.

use std::path::PathBuf;

/// What a node takes for its memory group: 1 GB, of which a test says how much is used.
pub struct Group(PathBuf);

impl Group {
    pub fn new(name: &str) -> Group {
        let dir = std::env::temp_dir().join(format!("pando-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("memory.max"), (1u64 << 30).to_string()).unwrap();
        let group = Group(dir);
        group.used(100);
        group
    }

    pub fn used(&self, megabytes: u64) {
        std::fs::write(self.0.join("memory.current"), (megabytes << 20).to_string()).unwrap();
    }

    /// Of the node's configuration.
    pub fn line(&self) -> String {
        format!("memory_cgroup = {:?}\n", self.0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
