//! Nice values and scheduling policies, as home says.

use super::{Guest, GuestError, Result};
use pando_kernel::urgency::{self, Urgency};

/// What home's real-time policies and negative nice values are here: a guest does not get ahead of this node's own work.
fn of_a_guest(policy: i32, nice: i32) -> Urgency {
    let policy = match policy {
        libc::SCHED_BATCH | libc::SCHED_IDLE => policy,
        _ => libc::SCHED_OTHER,
    };
    Urgency { policy, nice: nice.max(0) }
}

impl Guest {
    /// A thread competes for the CPU like this from now on.
    pub(super) fn on_urgency(&mut self, tid: i32, policy: i32, nice: i32) -> Result<()> {
        if !(0..=16).contains(&policy) || !(-20..=19).contains(&nice) {
            return Err(GuestError::Protocol(format!("policy {policy} with nice value {nice}")));
        }
        if self.threads.has(tid) {
            // In personal mode the kernel lets nobody become more urgent again; and a thread may just have ended.
            let _ = urgency::set(self.threads[tid].tracee.tid, of_a_guest(policy, nice));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_ahead() {
        assert_eq!(of_a_guest(libc::SCHED_FIFO, -5), Urgency::default());
        assert_eq!(of_a_guest(libc::SCHED_IDLE, 3), Urgency { policy: libc::SCHED_IDLE, nice: 3 });
    }
}
