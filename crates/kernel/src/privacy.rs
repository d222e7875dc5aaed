//! Keeping other processes of the same user out of this one.

use crate::check;
use std::io;

/// From now on no process without privileges may trace this one, read or write its memory, or take its descriptors, also not one
/// of the same user (PR_SET_DUMPABLE). Lasts until the next execve.
pub fn keep_others_out() -> io::Result<()> {
    // SAFETY: plain values.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })).map(drop)
}
