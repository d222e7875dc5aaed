//! Signals.

use libc::{self as n, c_long};

use super::NOTHING;
use crate::item::Item::{In, Out, OutPos};
use crate::item::Len::{Min, N};
use crate::walk::Spec;

pub(super) fn spec(nr: c_long) -> Option<Spec> {
    Some(match nr {
        n::SYS_kill | n::SYS_tkill | n::SYS_tgkill | n::SYS_pause => NOTHING,
        n::SYS_rt_sigaction => Spec::Items(&[In(1, N(32)), Out(2, N(32))]),
        n::SYS_rt_sigprocmask => Spec::Items(&[In(1, N(8)), Out(2, N(8))]),
        n::SYS_sigaltstack => Spec::Items(&[In(0, N(24)), Out(1, N(24))]),
        n::SYS_rt_sigpending => Spec::Items(&[Out(0, Min(1, 8))]),
        n::SYS_rt_sigsuspend => Spec::Items(&[In(0, N(8))]),
        n::SYS_rt_sigtimedwait => Spec::Items(&[In(0, N(8)), OutPos(1, N(128)), In(2, N(16))]),
        n::SYS_rt_sigqueueinfo => Spec::Items(&[In(2, N(128))]),
        n::SYS_rt_tgsigqueueinfo => Spec::Items(&[In(3, N(128))]),
        n::SYS_pidfd_send_signal => Spec::Items(&[In(2, N(128))]),
        n::SYS_signalfd | n::SYS_signalfd4 => Spec::Items(&[In(1, N(8))]),
        _ => return None,
    })
}
