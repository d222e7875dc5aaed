//! Nice values and scheduling policies: the guest competes for the other node's CPUs as the process does for home's.

use super::{Deputy, Result};
use crate::message::Down;
use pando_kernel::urgency;

/// Calls that may change them.
pub(super) fn may_change(nr: u64) -> bool {
    let calls =
        [libc::SYS_setpriority, libc::SYS_sched_setscheduler, libc::SYS_sched_setattr, libc::SYS_sched_setparam];
    calls.contains(&(nr as i64))
}

impl Deputy {
    /// Says what has changed since the last time: others change it, too (renice(1)).
    pub(super) fn tell_urgency(&mut self) -> Result<()> {
        let mut changed = Vec::new();
        for thread in self.threads.iter_mut() {
            // One that has just ended has none.
            let Ok(now) = urgency::of(thread.tracee.tid) else { continue };
            if now != thread.urgency {
                thread.urgency = now;
                changed.push(Down::Urgency(thread.inner, now.policy, now.nice));
            }
        }
        changed.iter().try_for_each(|down| self.tell(down, &[]))
    }

    /// A new guest knows of nothing.
    pub(super) fn forget_urgency(&mut self) {
        self.threads.iter_mut().for_each(|t| t.urgency = urgency::Urgency::default());
    }
}
