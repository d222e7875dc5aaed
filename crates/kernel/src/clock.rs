//! Clocks, in nanoseconds.

/// Reads a clock by its id; 0 when it does not exist (a process that has ended).
fn read(id: libc::clockid_t) -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec for the whole call.
    if unsafe { libc::clock_gettime(id, &mut ts) } != 0 {
        return 0;
    }
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_BOOTTIME`.
pub fn boottime_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// `CLOCK_REALTIME`.
pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// CPU time of another process (the clock id encoding of `clock_getcpuclockid`).
pub fn process_cpu_ns(pid: i32) -> u64 {
    read((!pid << 3) | 2)
}
