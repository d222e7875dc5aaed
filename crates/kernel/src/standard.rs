//! Descriptors 0, 1 and 2 as this program was given them. Rust's runtime opens `/dev/null` on those that are closed, before `main`; a
//! program that is started later would inherit that, and find open what its caller had closed.

use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Run by the C library before `main`, and so before Rust's runtime.
#[used]
// SAFETY: the section holds pointers to functions, called one after the other before any other thread exists. This one makes three system
// calls and stores a number: it needs nothing of a runtime that is not there yet.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for fd in 0..=2 {
        // SAFETY: plain values.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

/// Programs that are started from now on, and given these descriptors as they are, find closed those that we found closed.
pub fn hand_on_closed() {
    let closed = CLOSED.load(Ordering::Relaxed);
    for fd in (0..=2).filter(|fd| closed & 1 << fd != 0) {
        // SAFETY: plain values. Nobody else can have taken the number: the runtime's /dev/null, which nobody closes, is there.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
