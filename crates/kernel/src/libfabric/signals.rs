//! What this process does with signals, put back after somebody else's code has set handlers of its own: the shm provider does, and ends the process
//! from them.

use std::mem::MaybeUninit;

/// All that have numbers below the real-time ones.
const SIGNALS: std::ops::Range<i32> = 1..32;

/// What was set when this was made is set again when it is dropped.
pub struct Kept(Vec<(i32, libc::sigaction)>);

impl Kept {
    pub fn new() -> Kept {
        let of = |signal: i32| {
            let mut now = MaybeUninit::<libc::sigaction>::uninit();
            // SAFETY: nothing is set; what is written to is ours, and has been written to when 0 is returned.
            let known = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0 };
            // SAFETY: as above.
            known.then(|| (signal, unsafe { now.assume_init() }))
        };
        Kept(SIGNALS.filter_map(of).collect())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (signal, before) in &self.0 {
            // SAFETY: it was in force before, so its handler can be called.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
    }
}
