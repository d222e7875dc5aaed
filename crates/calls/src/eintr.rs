//! Calls that a stop breaks off for good.

/// Calls that the kernel ends with EINTR when a tracer stops their thread or lets an ignored signal through, although no handler runs
/// (signal(7), "Interruption of system calls and library functions by stop signals"). Other calls are restarted by the kernel.
const ALWAYS: &[i64] = &[
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_splice,
    libc::SYS_sendfile,
    // Of a file in memory: what it had allocated it gives back.
    libc::SYS_fallocate,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
];

/// Whether EINTR from call `nr` may be a stop's doing, so that the call has to be made again.
pub fn gives_eintr_by_itself(nr: u64) -> bool {
    ALWAYS.contains(&(nr as i64))
}
