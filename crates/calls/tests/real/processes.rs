//! Identity, children, limits, scheduling and the system.

use libc as n;

use crate::arena::{Arena, Call, Case, must, sys};

/// A child that has ended with status 7.
fn child() -> u64 {
    // SAFETY: the child only exits.
    let pid = unsafe {
        let pid = n::fork();
        if pid == 0 {
            n::_exit(7);
        }
        pid
    };
    assert!(pid > 0);
    pid as u64
}

fn capabilities(a: &mut Arena, version: u32, size: usize) -> Call {
    let header = a.ints(&[version as i32, 0]);
    Call::new(n::SYS_capget, &[header, a.room(size)])
}

pub const CASES: &[Case] = &[
    ("getgroups", |a| Call::new(n::SYS_getgroups, &[100, a.room(400)])),
    ("getgroups, how many", |a| Call::new(n::SYS_getgroups, &[0, a.room(400)])),
    ("getresuid", |a| Call::new(n::SYS_getresuid, &[a.room(4), a.room(4), a.room(4)])),
    ("capget 3", |a| capabilities(a, 0x2008_0522, 24)),
    ("capget 1", |a| capabilities(a, 0x1998_0330, 12)),
    ("capget, unknown version", |a| capabilities(a, 0, 24)),
    ("wait4", |a| Call::new(n::SYS_wait4, &[child(), a.room(4), 0, a.room(144)]).unstable()),
    ("wait4, not yet", |a| {
        // SAFETY: the child only waits.
        let pid = unsafe {
            let pid = n::fork();
            if pid == 0 {
                n::pause();
                n::_exit(0);
            }
            pid as u64
        };
        Call::new(n::SYS_wait4, &[pid, a.room(4), n::WNOHANG as u64, a.room(144)]).unstable().probe(move || {
            must(n::SYS_kill, &[pid, 9]);
            assert_eq!(sys(n::SYS_wait4, &[pid, 0, 0, 0]), pid as i64);
            Vec::new()
        })
    }),
    ("wait4, none", |a| Call::new(n::SYS_wait4, &[u64::MAX, a.room(4), 0, a.room(144)])),
    ("waitid", |a| Call::new(n::SYS_waitid, &[1, child(), a.room(128), n::WEXITED as u64, a.room(144)]).unstable()),
    ("waitid, none", |a| Call::new(n::SYS_waitid, &[0, 0, a.room(128), n::WEXITED as u64, a.room(144)])),
    ("uname", |a| Call::new(n::SYS_uname, &[a.room(390)])),
    ("sysinfo", |a| Call::new(n::SYS_sysinfo, &[a.room(112)]).unstable()),
    ("getrlimit", |a| Call::new(n::SYS_getrlimit, &[7, a.room(16)])),
    ("getrlimit, wrong", |a| Call::new(n::SYS_getrlimit, &[99, a.room(16)])),
    ("prlimit64", |a| {
        let limit = a.words(&[0; 2]);
        must(n::SYS_getrlimit, &[4, limit]);
        Call::new(n::SYS_prlimit64, &[0, 4, limit, a.room(16)])
    }),
    ("getrusage", |a| Call::new(n::SYS_getrusage, &[0, a.room(144)]).unstable()),
    ("times", |a| Call::new(n::SYS_times, &[a.room(32)]).unstable()),
    ("sched_getparam", |a| Call::new(n::SYS_sched_getparam, &[0, a.room(4)])),
    ("sched_setparam", |a| Call::new(n::SYS_sched_setparam, &[0, a.ints(&[0])])),
    ("sched_getaffinity", |a| Call::new(n::SYS_sched_getaffinity, &[0, 128, a.room(128)])),
    ("sched_rr_get_interval", |a| Call::new(n::SYS_sched_rr_get_interval, &[0, a.room(16)])),
    ("sched_getattr", |a| Call::new(n::SYS_sched_getattr, &[0, a.room(100), 100, 0])),
    ("sched_setattr", |a| Call::new(n::SYS_sched_setattr, &[0, a.words(&[48, 0, 0, 0, 0, 0, 0]), 0])),
    ("sched_setattr, too large", |a| {
        let mut words = [u64::MAX; 20];
        words[0] = 160;
        Call::new(n::SYS_sched_setattr, &[0, a.words(&words), 0])
    }),
    ("prctl PR_GET_NAME", |a| Call::new(n::SYS_prctl, &[16, a.room(16)])),
    ("prctl PR_SET_NAME", |a| Call::new(n::SYS_prctl, &[15, a.text("pando")])),
    ("prctl PR_GET_PDEATHSIG", |a| Call::new(n::SYS_prctl, &[2, a.room(4)])),
    ("prctl PR_GET_CHILD_SUBREAPER", |a| Call::new(n::SYS_prctl, &[37, a.room(4)])),
    ("prctl PR_GET_TSC", |a| Call::new(n::SYS_prctl, &[25, a.room(4)])),
    ("prctl PR_GET_AUXV", |a| Call::new(n::SYS_prctl, &[0x4155_5856, a.room(64), 64, 0, 0])),
    ("getppid", |a| Call::new(n::SYS_getppid, &[a.room(1)])),
];
