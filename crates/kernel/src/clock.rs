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

/// CPU time of this thread.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// What a process's time namespace adds to this machine's clocks, nanoseconds: to the monotonic one and to time since boot.
/// `who`: its name in `/proc`.
pub fn offsets(who: &str) -> (i64, i64) {
    parse_offsets(&std::fs::read_to_string(format!("/proc/{who}/timens_offsets")).unwrap_or_default())
}

/// Each line: a clock, seconds, nanoseconds.
fn parse_offsets(text: &str) -> (i64, i64) {
    let of = |clock: &str| {
        let mut words = text.lines().find_map(|l| l.strip_prefix(clock))?.split_ascii_whitespace();
        let (seconds, ns) = (words.next()?.parse::<i64>().ok()?, words.next()?.parse::<i64>().ok()?);
        seconds.checked_mul(1_000_000_000)?.checked_add(ns)
    };
    (of("monotonic").unwrap_or(0), of("boottime").unwrap_or(0))
}

/// The clocks of a process less those of this one, nanoseconds: monotonic, and since boot.
pub fn ahead_of_us(pid: i32) -> (i64, i64) {
    let (theirs, ours) = (offsets(&pid.to_string()), offsets("self"));
    (theirs.0.wrapping_sub(ours.0), theirs.1.wrapping_sub(ours.1))
}

/// CPU time of another process (the clock id encoding of `clock_getcpuclockid`).
pub fn process_cpu_ns(pid: i32) -> u64 {
    read((!pid << 3) | 2)
}

#[cfg(test)]
mod tests {
    use super::parse_offsets;

    #[test]
    fn offsets_have_a_sign() {
        assert_eq!(
            parse_offsets("monotonic           -2         5\nboottime            100         0\n"),
            (-1_999_999_995, 100_000_000_000)
        );
        assert_eq!(parse_offsets(""), (0, 0));
        assert_eq!(parse_offsets("monotonic 9223372036854775807 9\nboottime x y"), (0, 0));
    }
}
