//! Who the process is: users, groups, sessions, capabilities.

use libc::{self as n, c_long};

use super::NOTHING;
use crate::item::Item::{In, InMany, InOut, Out, OutMany};
use crate::item::Len::{I, N};
use crate::walk::Spec;

pub(super) fn spec(nr: c_long) -> Option<Spec> {
    Some(match nr {
        n::SYS_getuid
        | n::SYS_getgid
        | n::SYS_geteuid
        | n::SYS_getegid
        | n::SYS_setuid
        | n::SYS_setgid
        | n::SYS_setreuid
        | n::SYS_setregid
        | n::SYS_setresuid
        | n::SYS_setresgid
        | n::SYS_setfsuid
        | n::SYS_setfsgid
        | n::SYS_getppid
        | n::SYS_getpgrp
        | n::SYS_getpgid
        | n::SYS_setpgid
        | n::SYS_getsid
        | n::SYS_setsid
        // Also natively, but these are right as well.
        | n::SYS_getpid
        | n::SYS_gettid => NOTHING,
        n::SYS_getgroups => Spec::Items(&[OutMany(1, I(0), 4)]),
        n::SYS_setgroups => Spec::Items(&[InMany(1, I(0), 4)]),
        n::SYS_getresuid | n::SYS_getresgid => Spec::Items(&[Out(0, N(4)), Out(1, N(4)), Out(2, N(4))]),
        // The version in the header is corrected on failure. Version 1 has half as much data.
        n::SYS_capget => Spec::Items(&[InOut(0, N(8)), InOut(1, N(24))]),
        n::SYS_capset => Spec::Items(&[InOut(0, N(8)), In(1, N(24))]),
        _ => return None,
    })
}
