//! The calls that the guest's own kernel runs.

/// A call that may run natively.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeRule {
    /// Its number.
    pub nr: u32,
    /// If given, only when the low 32 bits of the argument with this index are among these.
    pub arg: Option<(u8, &'static [u32])>,
}

/// The clocks that read the same everywhere: real time, monotonic (the time namespace sets its offset), their coarse forms, and time
/// since boot. Not the raw monotonic one: how far it is from the other depends on what NTP did to the machine.
const CLOCKS: &[u32] = &[0, 1, 5, 6, 7];
/// Wait, wake, requeue, compare and requeue, wait and wake with a bit set; each plain, private, with the real-time clock, and both.
const FUTEXES: &[u32] =
    &[0, 1, 3, 4, 9, 10, 128, 129, 131, 132, 137, 138, 256, 257, 259, 260, 265, 266, 384, 385, 387, 388, 393, 394];
/// Operations that write: wake and operate; with priority inheritance lock (two forms), unlock and try. The kernel does not wait for
/// userfaultfd when it writes to a futex (fault_in_user_writeable says EFAULT), so the page must be there before.
const WRITING_FUTEXES: &[u32] = &[5, 6, 7, 8, 13];
/// Set and get FS and GS.
const BASES: &[u32] = &[0x1001, 0x1002, 0x1003, 0x1004];
const CPU_TIMERS: &[u32] = &[libc::ITIMER_VIRTUAL as u32, libc::ITIMER_PROF as u32];

const fn always(nr: libc::c_long) -> NativeRule {
    NativeRule { nr: nr as u32, arg: None }
}

const fn when(nr: libc::c_long, arg: u8, values: &'static [u32]) -> NativeRule {
    NativeRule { nr: nr as u32, arg: Some((arg, values)) }
}

const NATIVES: &[NativeRule] = &[
    always(libc::SYS_rt_sigreturn),
    always(libc::SYS_sched_yield),
    always(libc::SYS_getpid),
    always(libc::SYS_gettid),
    always(libc::SYS_gettimeofday),
    always(libc::SYS_time),
    always(libc::SYS_getcpu),
    always(libc::SYS_getrandom),
    always(libc::SYS_membarrier),
    always(libc::SYS_rseq),
    always(libc::SYS_set_robust_list),
    always(libc::SYS_set_tid_address),
    always(libc::SYS_futex_waitv),
    always(454), // futex_wake
    always(455), // futex_wait
    always(456), // futex_requeue
    when(libc::SYS_get_robust_list, 0, &[0]),
    when(libc::SYS_futex, 1, FUTEXES),
    when(libc::SYS_arch_prctl, 0, BASES),
    when(libc::SYS_clock_gettime, 0, CLOCKS),
    when(libc::SYS_clock_getres, 0, CLOCKS),
    when(libc::SYS_setitimer, 0, CPU_TIMERS),
    when(libc::SYS_getitimer, 0, CPU_TIMERS),
];

/// All calls that the guest's kernel runs, for its filter.
pub fn natives() -> &'static [NativeRule] {
    NATIVES
}

/// Whether the guest's kernel runs this call once the words are there that it writes.
pub(crate) fn needs_words(nr: u64, args: &[u64; 6]) -> bool {
    nr == libc::SYS_futex as u64 && WRITING_FUTEXES.contains(&(args[1] as u32 & 0x7f))
}

/// Whether the guest's kernel runs this call.
pub(crate) fn is_native(nr: u64, args: &[u64; 6]) -> bool {
    NATIVES.iter().filter(|r| u64::from(r.nr) == nr).any(|r| match r.arg {
        None => true,
        Some((i, values)) => args.get(usize::from(i)).is_some_and(|&a| values.contains(&(a as u32))),
    })
}
