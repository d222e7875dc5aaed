//! Waits whose limit counts from their start on, and that begin it anew when they are made again after a stop.
//!
//! Not here: those whose end the kernel keeps (nanosleep, poll: restart blocks), those that say when, not how long, and io_getevents: nobody moves
//! with an AIO context, which is memory shared with the kernel.

/// Where such a call has its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// In the argument with this index: milliseconds, for ever below 0.
    Argument(usize),
    /// A `struct timespec` where that argument points, which the kernel only reads.
    Read(usize),
    /// A `struct timespec` there; when the call ends, or is broken off, the kernel writes what is left of it.
    Left(usize),
    /// The same, a `struct timeval`.
    LeftMicros(usize),
}

/// The limit of call `nr`; `None`: it has none.
pub fn limit(nr: u64, args: &[u64; 6]) -> Option<Limit> {
    let found = match nr as libc::c_long {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => Limit::Argument(3),
        libc::SYS_rt_sigtimedwait => Limit::Read(2),
        libc::SYS_semtimedop | libc::SYS_epoll_pwait2 => Limit::Read(3),
        libc::SYS_ppoll => Limit::Left(2),
        libc::SYS_pselect6 => Limit::Left(4),
        libc::SYS_select => Limit::LeftMicros(4),
        _ => return None,
    };
    match found {
        Limit::Argument(i) => ((args[i] as i32) >= 0).then_some(found),
        Limit::Read(i) | Limit::Left(i) | Limit::LeftMicros(i) => (args[i] != 0).then_some(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_ever_has_no_limit() {
        let with = |nr: libc::c_long, at: usize, value: u64| {
            let mut args = [7; 6];
            args[at] = value;
            limit(nr as u64, &args)
        };
        assert_eq!(with(libc::SYS_epoll_wait, 3, 20), Some(Limit::Argument(3)));
        assert_eq!(with(libc::SYS_epoll_wait, 3, -1i32 as u32 as u64), None);
        assert_eq!(with(libc::SYS_rt_sigtimedwait, 2, 0x1000), Some(Limit::Read(2)));
        assert_eq!(with(libc::SYS_semtimedop, 3, 0), None);
        assert_eq!(with(libc::SYS_select, 4, 0x1000), Some(Limit::LeftMicros(4)));
        assert_eq!(with(libc::SYS_poll, 2, 20), None);
    }
}
