//! get_robust_list(2).

use std::io;

/// Address of the head of a thread's list of robust futexes; 0 if it has none. The caller must be allowed to trace it.
pub fn robust_list(tid: i32) -> io::Result<u64> {
    let (mut head, mut length) = (0u64, 0usize);
    // SAFETY: both pointers are to live objects of ours.
    let code = unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut length) };
    crate::check(code).map(|_| head)
}
