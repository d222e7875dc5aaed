//! How a thread competes for the CPU (sched(7)): its policy and its nice value.

use crate::check;
use std::io;

/// Policy and nice value of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgency {
    /// SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, or a real-time policy.
    pub policy: i32,
    /// -20 to 19.
    pub nice: i32,
}

impl Default for Urgency {
    fn default() -> Self {
        Urgency { policy: libc::SCHED_OTHER, nice: 0 }
    }
}

/// The calling thread.
pub fn me() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Runs only where nobody else wants to.
pub const LAST: Urgency = Urgency { policy: libc::SCHED_IDLE, nice: 0 };

/// Of thread `tid`.
pub fn of(tid: i32) -> io::Result<Urgency> {
    // SAFETY: plain values.
    let policy = check(unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) })? as i32;
    // SAFETY: plain values. The kernel itself returns 20 less the nice value.
    let nice = 20 - check(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid) })? as i32;
    Ok(Urgency { policy, nice })
}

/// Makes thread `tid` so urgent.
///
/// # Errors
/// The kernel's, above all EPERM where it would become more urgent.
pub fn set(tid: i32, urgency: Urgency) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads a sched_param.
    check(unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, urgency.policy, &raw const param) })?;
    // SAFETY: plain values.
    check(unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, tid, urgency.nice) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_what_is() {
        let wanted = Urgency { policy: libc::SCHED_BATCH, nice: 7 };
        let thread = std::thread::spawn(move || {
            // SAFETY: no arguments.
            let me = unsafe { libc::gettid() };
            set(me, wanted).and_then(|()| of(me)).unwrap()
        });
        assert_eq!(thread.join().unwrap(), wanted);
    }
}
