//! Resource limits of other processes.

use crate::check;
use std::io;

/// What a process may have of something (see setrlimit(2)).
pub use libc::rlimit as Limit;

/// There is none.
pub const NONE: Limit = Limit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };

/// The limit of a process on a resource; `new`, if given, takes its place.
pub fn limit(pid: i32, resource: u32, new: Option<Limit>) -> io::Result<Limit> {
    let mut old = NONE;
    let new = new.as_ref().map_or(std::ptr::null(), |new| std::ptr::from_ref(new));
    // SAFETY: prlimit reads a rlimit at `new`, unless that is null, and writes one at `old`.
    check(unsafe { i64::from(libc::prlimit(pid, resource, new, &mut old)) })?;
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_set_and_put_back() {
        let pid = std::process::id() as i32;
        let old =
            limit(pid, libc::RLIMIT_CORE, Some(Limit { rlim_cur: 0, ..limit(pid, libc::RLIMIT_CORE, None).unwrap() }));
        let old = old.unwrap();
        assert_eq!(limit(pid, libc::RLIMIT_CORE, Some(old)).unwrap().rlim_cur, 0);
        assert_eq!(limit(pid, libc::RLIMIT_CORE, None).unwrap().rlim_cur, old.rlim_cur);
    }
}
