//! What this process does with signals, put back after somebody else's code has set handlers of its own. Libraries that libfabric needs do so as soon
//! as they are loaded (libpsm2, libinfinipath), its shm provider when it is asked; both end the process from them, without a word.

use std::ffi::c_void;
use std::mem::MaybeUninit;

/// All that have numbers below the real-time ones.
const SIGNALS: std::ops::Range<i32> = 1..32;

/// What was set when this was made is set again when it is dropped, but for what this program has set itself since.
pub struct Kept(Vec<(i32, libc::sigaction)>);

impl Kept {
    pub fn new() -> Kept {
        Kept(SIGNALS.filter_map(|signal| Some((signal, now(signal)?))).collect())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (signal, before) in &self.0 {
            if now(*signal).is_some_and(|now| now.sa_sigaction != before.sa_sigaction && !is_ours(now.sa_sigaction)) {
                // SAFETY: it was in force before, so its handler can be called.
                unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
            }
        }
    }
}

/// What is set for a signal.
fn now(signal: i32) -> Option<libc::sigaction> {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set; what is written to is ours, and has been written to when 0 is returned.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0 };
    // SAFETY: as above.
    known.then(|| unsafe { now.assume_init() })
}

/// Is it code of this program, not of a library?
fn is_ours(handler: libc::sighandler_t) -> bool {
    let own = now as fn(i32) -> Option<libc::sigaction>;
    base(handler).is_some() && base(handler) == base(own as libc::sighandler_t)
}

/// Where the file was loaded that has this address.
fn base(address: libc::sighandler_t) -> Option<*mut c_void> {
    let mut about = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: any address may be asked for; what is written to is ours, and has been written to when it is not 0.
    let known = unsafe { libc::dladdr(address as *const c_void, about.as_mut_ptr()) != 0 };
    // SAFETY: as above.
    known.then(|| unsafe { about.assume_init() }.dli_fbase)
}
