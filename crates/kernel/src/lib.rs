//! Safe faces of the kernel facilities Pando uses: ptrace, userfaultfd, pagemap, seccomp, namespaces, procfs.
//!
//! One facility, one module, one name. Almost all `unsafe` of the project lives here.

pub mod affinity;
pub mod asleep;
pub mod beneath;
pub mod cgroup;
pub mod clock;
pub mod datagram;
pub mod description;
pub mod futex;
pub mod heap;
pub mod inject;
pub mod job;
pub mod job_group;
pub mod lease;
pub mod libfabric;
pub mod limit;
mod loaded;
pub mod memory;
pub mod naming;
pub mod notify;
pub mod pagemap;
pub mod pidfd;
pub mod pmix;
pub mod poll;
pub mod power;
pub mod precedence;
pub mod privacy;
pub mod procfs;
pub mod ptrace;
pub mod pty;
pub mod quota;
pub mod rank;
pub mod resident;
pub mod sandbox;
pub mod scm;
pub mod signal;
pub mod space;
pub mod sparse;
pub mod spawn;
pub mod standard;
pub mod turns;
pub mod uffd;
pub mod unnamed;
pub mod urgency;
pub mod usage;
pub mod vdso;
pub mod vma;
pub mod xstate;

/// Bytes in a page.
pub const PAGE: u64 = 4096;

/// Rounds down to a page boundary.
pub fn page_floor(addr: u64) -> u64 {
    addr & !(PAGE - 1)
}

/// Rounds up to a page boundary.
pub fn page_ceil(addr: u64) -> u64 {
    addr.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// Turns a `-1` result into the `errno` error.
pub(crate) fn check(result: i64) -> std::io::Result<i64> {
    if result == -1 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}
