//! The allocator's habits.

/// Keeps large buffers in the heap between uses. By itself glibc maps each anew, and the page faults of a 256 KiB buffer cost more
/// than filling it.
pub fn keep_large_buffers() {
    const LARGE: i32 = 32 << 20;
    // SAFETY: mallopt takes plain values and is called before other threads exist.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * LARGE);
    }
}

/// Few arenas: what a daemon of a dozen threads has free in one serves all of them. By itself glibc makes one for each thread, up to eight for each
/// CPU, and each keeps what its thread needed at most. To be called before other threads exist.
pub fn share_arenas() {
    const MOST: i32 = 2;
    // SAFETY: mallopt takes plain values.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, MOST) };
}

/// What is freed is put together with its neighbours at once. By itself glibc keeps small pieces apart and puts all of them together at each request for
/// more than a kilobyte, which a daemon makes all the time; pieces of the sizes that it uses most are kept by each thread all the same.
pub fn join_small_pieces() {
    const NONE: i32 = 0;
    // SAFETY: mallopt takes plain values.
    unsafe { libc::mallopt(libc::M_MXFAST, NONE) };
}

/// Gives back to the kernel what is free in the heap, between what is in use, too.
pub fn trim() {
    // SAFETY: it takes a plain value, and may be called by any thread at any time.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use super::trim;

    fn anonymous_kb() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse().unwrap()
    }

    #[test]
    fn what_is_free_between_what_is_in_use_is_given_back() {
        // Each two pages long, so that what stays keeps the others from the heap's end.
        let mut all: Vec<Option<Vec<u8>>> = (0..4096).map(|_| Some(vec![1; 8192])).collect();
        all.iter_mut().step_by(2).for_each(|one| *one = None);
        let before = anonymous_kb();
        trim();
        let after = anonymous_kb();
        assert!(after + 4096 < before, "{before} kB, then {after}");
    }
}
