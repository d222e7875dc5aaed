//! What a kernel keeps for a thread beside its registers: how it is put back, on either side.

use crate::message::Context;
use pando_kernel::inject::{Call, call};

/// The calls that the thread itself makes for it. Its alternative signal stack (`stack_t`) must be in memory at `altstack`.
pub fn calls(context: &Context, altstack: u64) -> Vec<Call> {
    let mut calls = vec![call(libc::SYS_sigaltstack, &[altstack, 0])];
    let (rseq, size, signature) = context.rseq;
    if rseq != 0 {
        calls.push(call(libc::SYS_rseq, &[rseq, u64::from(size), 0, u64::from(signature)]));
    }
    if context.robust.0 != 0 {
        calls.push(call(libc::SYS_set_robust_list, &[context.robust.0, context.robust.1]));
    }
    if context.tid_address != 0 {
        calls.push(call(libc::SYS_set_tid_address, &[context.tid_address]));
    }
    calls
}
