//! Clocks, sleeps and timers.

use libc::{self as n, c_long};

use super::NOTHING;
use crate::class::clock_owner;
use crate::item::Item::{In, InOut, Out, Remaining};
use crate::item::Len::N;
use crate::walk::Spec;

const CPU_CLOCK: Spec = Spec::Home("it waits for a clock of CPU time");

pub(super) fn spec(nr: c_long, args: &[u64; 6]) -> Option<Spec> {
    Some(match nr {
        n::SYS_nanosleep => Spec::Items(&[In(0, N(16)), Remaining(1)]),
        n::SYS_clock_nanosleep | n::SYS_timer_create if clock_owner(args[0]).is_some() => CPU_CLOCK,
        n::SYS_clock_nanosleep if args[1] & libc::TIMER_ABSTIME as u64 != 0 => Spec::Items(&[In(2, N(16))]),
        n::SYS_clock_nanosleep => Spec::Items(&[In(2, N(16)), Remaining(3)]),
        n::SYS_alarm | n::SYS_timerfd_create | n::SYS_timer_getoverrun | n::SYS_timer_delete => NOTHING,
        n::SYS_getitimer | n::SYS_timer_gettime | n::SYS_timerfd_gettime => Spec::Items(&[Out(1, N(32))]),
        n::SYS_setitimer => Spec::Items(&[In(1, N(32)), Out(2, N(32))]),
        n::SYS_timer_create => Spec::Items(&[In(1, N(64)), Out(2, N(4))]),
        n::SYS_timer_settime | n::SYS_timerfd_settime => Spec::Items(&[In(2, N(32)), Out(3, N(32))]),
        n::SYS_clock_gettime | n::SYS_clock_getres => Spec::Items(&[Out(1, N(16))]),
        n::SYS_clock_settime => Spec::Items(&[In(1, N(16))]),
        n::SYS_gettimeofday => Spec::Items(&[Out(0, N(16)), Out(1, N(8))]),
        n::SYS_settimeofday => Spec::Items(&[In(0, N(16)), In(1, N(8))]),
        n::SYS_time => Spec::Items(&[Out(0, N(8))]),
        n::SYS_adjtimex => Spec::Items(&[InOut(0, N(208))]),
        n::SYS_clock_adjtime => Spec::Items(&[InOut(1, N(208))]),
        n::SYS_times => Spec::Items(&[Out(0, N(32))]),
        n::SYS_getrusage => Spec::Items(&[Out(1, N(144))]),
        _ => return None,
    })
}
