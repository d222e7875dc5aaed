//! What processes that have ended have used.

/// Of all children that were waited for, and of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// CPU time of users' and system's code, milliseconds.
    pub cpu_ms: u64,
    /// The most resident bytes that one of them had.
    pub largest: u64,
    /// Bytes read from disks.
    pub read: u64,
    /// Bytes written to disks.
    pub written: u64,
}

impl Used {
    /// What was used since then. Of the largest nobody knows when it was.
    pub fn since(self, before: Used) -> Used {
        Used {
            cpu_ms: self.cpu_ms.saturating_sub(before.cpu_ms),
            largest: self.largest,
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
        }
    }
}

/// See getrusage(2).
pub fn of_children() -> Used {
    // SAFETY: rusage is plain data for which all zeroes is a valid value, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    Used::from(usage)
}

impl From<libc::rusage> for Used {
    fn from(usage: libc::rusage) -> Used {
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        let us = |t: libc::timeval| number(t.tv_sec) * 1_000_000 + number(t.tv_usec);
        Used {
            cpu_ms: (us(usage.ru_utime) + us(usage.ru_stime)) / 1000,
            largest: number(usage.ru_maxrss) * 1024,
            // In blocks of 512 bytes, whatever the file system has.
            read: number(usage.ru_inblock) * 512,
            written: number(usage.ru_oublock) * 512,
        }
    }
}
