//! Processes, scheduling, limits and the system as a whole.

use libc::{self as n, c_long};

use super::NOTHING;
use crate::item::Item::{In, InOut, Out, OutPos, OutRet};
use crate::item::Len::{A, I, Min, N, U};
use crate::walk::{Spec, Walk};

const MAX_EXTENSIBLE: u64 = 4096;

pub(super) fn spec(nr: c_long, args: &[u64; 6]) -> Option<Spec> {
    Some(match nr {
        n::SYS_exit
        | n::SYS_exit_group
        | n::SYS_restart_syscall
        | n::SYS_set_tid_address
        | n::SYS_sched_yield
        | n::SYS_getpriority
        | n::SYS_setpriority
        | n::SYS_ioprio_get
        | n::SYS_ioprio_set
        | n::SYS_sched_getscheduler
        | n::SYS_sched_get_priority_max
        | n::SYS_sched_get_priority_min
        | n::SYS_mlock
        | n::SYS_mlock2
        | n::SYS_munlock
        | n::SYS_mlockall
        | n::SYS_munlockall
        // The engine changes the map on both sides; nothing in memory is read.
        | n::SYS_mmap
        | n::SYS_munmap
        | n::SYS_mprotect
        | n::SYS_mremap
        | n::SYS_madvise
        | n::SYS_brk
        | n::SYS_pidfd_open
        | n::SYS_pidfd_getfd
        | n::SYS_process_mrelease => NOTHING,
        // Only to ask: others change how the guest's kernel maps memory.
        n::SYS_personality if args[0] as u32 == u32::MAX => NOTHING,
        // What is shared with a file has to be at home before it is written to it.
        n::SYS_msync => Spec::Items(&[In(0, A(1))]),
        n::SYS_wait4 => Spec::Items(&[OutPos(1, N(4)), OutPos(3, N(144))]),
        // The kernel clears siginfo on failure, and says 0 whether there was a child or not.
        n::SYS_waitid => Spec::Items(&[InOut(2, N(128)), InOut(4, N(144))]),
        n::SYS_uname => Spec::Items(&[Out(0, N(390))]),
        n::SYS_sysinfo => Spec::Items(&[Out(0, N(112))]),
        n::SYS_sethostname | n::SYS_setdomainname => Spec::Items(&[In(0, I(1))]),
        n::SYS_getrlimit => Spec::Items(&[Out(1, N(16))]),
        n::SYS_setrlimit => Spec::Items(&[In(1, N(16))]),
        n::SYS_prlimit64 => Spec::Items(&[In(2, N(16)), Out(3, N(16))]),
        n::SYS_sched_setparam => Spec::Items(&[In(1, N(4))]),
        n::SYS_sched_getparam => Spec::Items(&[Out(1, N(4))]),
        n::SYS_sched_setscheduler => Spec::Items(&[In(2, N(4))]),
        n::SYS_sched_rr_get_interval => Spec::Items(&[Out(1, N(16))]),
        n::SYS_sched_setaffinity => Spec::Items(&[In(2, U(1))]),
        n::SYS_sched_getaffinity => Spec::Items(&[OutRet(2, U(1))]),
        n::SYS_sched_setattr => Spec::Walk(sched_setattr),
        n::SYS_sched_getattr => Spec::Items(&[InOut(1, Min(2, MAX_EXTENSIBLE as u32))]),
        _ => return None,
    })
}

/// Its first word is its size, which the kernel corrects when it is too large.
fn sched_setattr(w: &mut Walk<'_>) {
    let attr = w.arg(1);
    w.inout(attr, 4);
    if w.planning()
        && let Some(size) = w.peek_u32(attr)
    {
        // 0 stands for the first version's size.
        w.input(attr, u64::from(size).clamp(48, MAX_EXTENSIBLE));
    }
}
