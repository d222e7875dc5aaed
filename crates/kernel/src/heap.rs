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
