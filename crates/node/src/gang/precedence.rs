//! While gangs take turns the daemon's own threads come before programs: each turn would begin late by what they wait for a CPU.

use pando_kernel::precedence;

/// Threads that bring beats: the runtime's, the strobe's, and the one that counts turns.
const OURS: [&str; 3] = ["tokio-rt-worker", "strobe", super::metronome::NAME];

/// Whether they do.
#[derive(Default)]
pub struct Precedence {
    first: bool,
}

impl Precedence {
    /// The daemon's threads come before programs, or do not any more.
    pub fn take(&mut self, first: bool) {
        if std::mem::replace(&mut self.first, first) == first {
            return;
        }
        for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let tid = task.file_name().to_str().and_then(|tid| tid.parse().ok());
            if let Some(tid) = tid.filter(|_| OURS.contains(&name.trim())) {
                // It may have ended, or not be allowed to: then it comes as before.
                let _ = precedence::set(tid, first);
            }
        }
    }
}
