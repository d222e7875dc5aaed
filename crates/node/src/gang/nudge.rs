//! A switch that counts at once. The kernel looks who is to run on a CPU when somebody wakes or sleeps there, or with its next tick (4 ms at 250 Hz); a
//! group's new weight alone is no reason. So a thread on each CPU, which comes before all programs, wakes for a moment after each switch. And while
//! gangs take turns the daemon's own threads come before programs: each turn would begin late by what they wait for a CPU.

use pando_kernel::{affinity, precedence};
use std::collections::BTreeMap;
use std::thread::{Builder, Thread, park};

/// Threads that bring beats: the runtime's and the strobe's.
const OURS: [&str; 2] = ["tokio-rt-worker", "strobe"];

#[derive(Default)]
pub struct Nudges {
    /// By CPU; they wait most of the time.
    threads: BTreeMap<u16, Thread>,
    first: bool,
}

impl Nudges {
    /// From now on these CPUs, too.
    pub fn reach(&mut self, cpus: &[u16]) {
        for &cpu in cpus {
            if self.threads.contains_key(&cpu) {
                continue;
            }
            let waits = move || {
                // Without the right to it there is a tick.
                if affinity::only(cpu.into()).and_then(|()| precedence::set(0, true)).is_ok() {
                    loop {
                        park();
                    }
                }
            };
            if let Ok(begun) = Builder::new().name("pando-nudge".into()).stack_size(64 << 10).spawn(waits) {
                self.threads.insert(cpu, begun.thread().clone());
            }
        }
    }

    /// Who runs is looked at anew, on all of them.
    pub fn nudge(&self) {
        self.threads.values().for_each(Thread::unpark);
    }

    /// The daemon's threads come before programs, or do not any more.
    pub fn take_precedence(&mut self, first: bool) {
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
