//! Waits with a mask of their own (sigsuspend, ppoll, pselect6, epoll_pwait) that are made again at home.
//!
//! What broke them off was our stop, and their threads stand with the program's own mask in front of them. A signal that this mask lets in and
//! the call's blocks would have had to wait: its handler may run first, as under strace(1), but it must not end the wait.

use super::Deputy;
use super::memory::View;
use crate::restart;
use pando_calls::temporary_mask;
use pando_kernel::procfs;
use pando_kernel::ptrace::Registers;
use pando_kernel::signal;

impl Deputy {
    /// Has the call of a thread with these registers and this mask made again whatever handler runs, where none can run that the call lets in.
    pub(super) fn waits_again(&self, tid: i32, mask: u64, r: &mut Registers) {
        if (r.orig_rax as i64) < 0 || ![restart::SYS, restart::NOHAND].contains(&(r.rax as i64)) {
            return;
        }
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        let Some(own) = temporary_mask(r.orig_rax, &args, &mut View(&self.memory)) else { return };
        let handled = self.handlers.keys().fold(0, |set, n| set | signal::bit(*n));
        let (may_run, ends_it) = (handled & !mask, handled & !mask & !own);
        let due = procfs::status(tid).map_or(0, |s| s.pending) & may_run;
        if ends_it == 0 || due != 0 && due & ends_it == 0 {
            r.rax = restart::NOINTR as u64;
        }
    }
}
