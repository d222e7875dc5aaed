//! Transfers that a stop of ours cuts short. The kernel ends them with what is through, as for a signal; without a signal the program must
//! not see that.

use super::{Deputy, Flight, Result};
use crate::restart;

impl Deputy {
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
