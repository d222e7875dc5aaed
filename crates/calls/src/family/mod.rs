//! The tables, one file per family of calls.

mod control;
mod files;
mod ids;
mod ioctl;
mod ipc;
mod polling;
mod process;
mod signals;
mod socket_options;
mod sockets;
mod time;
mod vectors;

use libc::c_long;

use crate::names::called;
use crate::walk::Spec;

/// How the call is described.
pub(crate) fn spec(nr: u64, args: &[u64; 6]) -> Spec {
    c_long::try_from(nr)
        .ok()
        .and_then(|n| {
            files::spec(n)
                .or_else(|| sockets::spec(n))
                .or_else(|| polling::spec(n))
                .or_else(|| signals::spec(n))
                .or_else(|| time::spec(n, args))
                .or_else(|| ids::spec(n))
                .or_else(|| process::spec(n, args))
                .or_else(|| ipc::spec(n, args))
                .or_else(|| control::spec(n, args))
                .or_else(|| (n == libc::SYS_ioctl).then(|| ioctl::spec(args[1] as u32)))
        })
        .unwrap_or(Spec::Home(called(nr)))
}

/// Nothing in memory.
const NOTHING: Spec = Spec::Items(&[]);
