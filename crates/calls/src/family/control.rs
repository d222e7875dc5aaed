//! `fcntl` and `prctl`, by command.

use libc::{self as n, c_long};

use super::NOTHING;
use crate::item::Item::{In, InOut, Out, OutRet, Text};
use crate::item::Len::{A, N};
use crate::names::called;
use crate::walk::Spec;

pub(super) fn spec(nr: c_long, args: &[u64; 6]) -> Option<Spec> {
    match nr {
        n::SYS_fcntl => Some(fcntl(args[1] as u32)),
        n::SYS_prctl => Some(prctl(args)),
        _ => None,
    }
}

fn fcntl(cmd: u32) -> Spec {
    match cmd {
        // Descriptors, flags, owner, signal.
        0..=4 | 8..=11 => NOTHING,
        // F_GETLK, F_OFD_GETLK
        5 | 36 => Spec::Items(&[InOut(2, N(32))]),
        // F_SETLK, F_SETLKW and the same for open file descriptions
        6 | 7 | 37 | 38 => Spec::Items(&[In(2, N(32))]),
        15 => Spec::Items(&[In(2, N(8))]),
        16 | 17 => Spec::Items(&[Out(2, N(8))]),
        // Leases, notices, copies, sizes of pipes, seals.
        1024..=1034 => NOTHING,
        // Hints.
        1035 | 1037 => Spec::Items(&[Out(2, N(8))]),
        1036 | 1038 => Spec::Items(&[In(2, N(8))]),
        _ => Spec::Home(called(n::SYS_fcntl as u64)),
    }
}

fn prctl(args: &[u64; 6]) -> Spec {
    match args[0] as i32 {
        // Those with a plain argument, or none.
        n::PR_SET_PDEATHSIG
        | n::PR_GET_DUMPABLE
        | n::PR_GET_KEEPCAPS
        | n::PR_SET_KEEPCAPS
        | n::PR_GET_TIMING
        | n::PR_SET_TIMING
        | n::PR_GET_SECCOMP
        | n::PR_CAPBSET_READ
        | n::PR_CAPBSET_DROP
        | n::PR_GET_SECUREBITS
        | n::PR_SET_SECUREBITS
        | n::PR_SET_TIMERSLACK
        | n::PR_GET_TIMERSLACK
        | n::PR_TASK_PERF_EVENTS_DISABLE
        | n::PR_TASK_PERF_EVENTS_ENABLE
        | n::PR_MCE_KILL
        | n::PR_MCE_KILL_GET
        | n::PR_SET_CHILD_SUBREAPER
        | n::PR_SET_NO_NEW_PRIVS
        | n::PR_GET_NO_NEW_PRIVS
        | n::PR_GET_THP_DISABLE
        | n::PR_SET_THP_DISABLE
        | n::PR_CAP_AMBIENT
        | n::PR_GET_SPECULATION_CTRL
        | n::PR_SET_PTRACER => NOTHING,
        // Undumpable would shut out the engine too.
        n::PR_SET_DUMPABLE if args[1] == 1 => NOTHING,
        n::PR_GET_PDEATHSIG | n::PR_GET_TSC | n::PR_GET_CHILD_SUBREAPER => Spec::Items(&[Out(1, N(4))]),
        n::PR_SET_NAME => Spec::Items(&[Text(1, 16)]),
        n::PR_GET_NAME => Spec::Items(&[Out(1, N(16))]),
        n::PR_GET_TID_ADDRESS => Spec::Items(&[Out(1, N(8))]),
        // Names an area; the name is at the end.
        n::PR_SET_VMA => Spec::Items(&[Text(4, 80)]),
        // PR_GET_AUXV
        0x4155_5856 => Spec::Items(&[OutRet(1, A(2))]),
        _ => Spec::Home(called(n::SYS_prctl as u64)),
    }
}
