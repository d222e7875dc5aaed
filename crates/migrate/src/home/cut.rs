//! Transfers that a stop of ours cuts short. The kernel ends them with what is through, as for a signal; without a signal the program must
//! not see that.

use super::{Deputy, Flight, Result};
use crate::restart;
use pando_kernel::procfs;
use std::os::unix::fs::MetadataExt;

/// Numbers of `/dev/zero`, `/dev/random` and `/dev/urandom`, which look for signals after each page.
const ENDLESS: [u64; 3] = [libc::makedev(1, 5), libc::makedev(1, 8), libc::makedev(1, 9)];

impl Deputy {
    /// Has a stop made a transfer short that blocks until all is through?
    pub(super) fn is_cut_short(&self, nr: u64, args: &[u64; 6], result: i64) -> bool {
        let transfers = [libc::SYS_write, libc::SYS_sendto, libc::SYS_recvfrom].contains(&(nr as i64));
        let waits_for_all = nr as i64 != libc::SYS_recvfrom || args[3] as i32 & libc::MSG_WAITALL != 0;
        transfers && waits_for_all && (result as u64) < args[2] && self.blocks(args[0] as i32)
    }

    fn blocks(&self, fd: i32) -> bool {
        procfs::descriptor_flags(self.pid, fd).is_some_and(|f| f & libc::O_NONBLOCK == 0)
    }

    /// Has a stop made a read short that can be made again, whole, since nothing was taken from anywhere?
    pub(super) fn gives_the_same_again(&self, nr: u64, args: &[u64; 6], result: i64) -> bool {
        let endless = |fd: u64| {
            let file = std::fs::metadata(format!("/proc/{}/fd/{}", self.pid, fd as i32));
            file.is_ok_and(|m| ENDLESS.contains(&m.rdev()))
        };
        match nr as i64 {
            libc::SYS_getrandom => (result as u64) < args[1],
            libc::SYS_read | libc::SYS_pread64 => (result as u64) < args[2] && endless(args[0]),
            _ => false,
        }
    }

    /// The process goes home before its call could begin: it is made natively. What a move before this one had cut short is still that.
    pub(super) fn call_never_made(&mut self, tid: i32) -> Result<()> {
        let thread = &mut self.threads[tid];
        if let Some(flight) = thread.flight.as_mut().filter(|f| f.done_before > 0) {
            let done = std::mem::take(&mut flight.done_before);
            flight.args[1] -= done;
            flight.args[2] += done;
            thread.cut_short = Some((flight.nr, flight.args, done));
        }
        self.call_interrupted(tid, restart::NOINTR)
    }

    /// A freeze cut a blocking transfer short: the rest is transferred before the thread goes on by itself, however long that takes.
    pub(super) fn transfer_rest(&mut self, tid: i32, nr: u64, mut args: [u64; 6], done: u64) -> Result<()> {
        args[1] += done;
        args[2] -= done;
        let outputs_max = self.outputs_max(tid, nr, args);
        self.threads[tid].flight = Some(Flight::new(0, nr, args, outputs_max, done));
        self.threads[tid].halt();
        self.begin(tid)
    }
}
