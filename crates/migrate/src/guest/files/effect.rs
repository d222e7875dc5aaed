//! What a forwarded call may do to the descriptors whose reads are answered here. Pure.
//!
//! Whatever the call, where they stand is said at home before it (positions are cheap to say). This is about the rest: who else may move
//! a position from now on, and which numbers mean another file.

use std::ops::RangeInclusive;

/// It.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing more.
    None,
    /// It may move their positions while it runs.
    Uses(Vec<i32>),
    /// It opens a file: one whose reads can be answered here?
    Opens(bool),
    /// The first one gets a duplicate: of the second number, or of the one that it returns.
    Dup(i32, Option<i32>),
    /// Each may get a second owner.
    SharesAll,
    /// They are closed, or nothing is known of them any more.
    Ends(RangeInclusive<i32>),
    /// It changes its nature, and that of its duplicates.
    Changes(i32),
    /// It does not bear that anyone else has a hold on a file: all are let go first.
    LetGo,
}

impl Effect {
    /// Does such a call return a new descriptor?
    pub fn makes_one(&self) -> bool {
        matches!(self, Effect::Opens(_) | Effect::Dup(..))
    }
}

/// Is a descriptor that was opened with these flags one whose reads can be answered here?
fn reads_only(flags: u64) -> bool {
    let odd = libc::O_ACCMODE | libc::O_PATH | libc::O_DIRECT | libc::O_DIRECTORY | libc::O_TRUNC;
    flags as i32 & odd == libc::O_RDONLY
}

/// An opener that will not wait for a lease is told that the file is busy: none may be in its way. One that truncates may break none.
fn impatient(flags: u64) -> bool {
    let writes = flags as i32 & (libc::O_WRONLY | libc::O_RDWR) != 0;
    flags as i32 & libc::O_TRUNC != 0 || (writes && flags as i32 & libc::O_NONBLOCK != 0)
}

/// See the module. `control`: the messages that it sends may carry descriptors.
pub(crate) fn effect(nr: u64, args: &[u64; 6], control: bool) -> Effect {
    let fd = |i: usize| args[i] as i32;
    let Ok(nr) = i64::try_from(nr) else { return Effect::SharesAll };
    match nr {
        libc::SYS_open if impatient(args[1]) => Effect::LetGo,
        libc::SYS_openat if impatient(args[2]) => Effect::LetGo,
        libc::SYS_open => Effect::Opens(reads_only(args[1])),
        libc::SYS_openat => Effect::Opens(reads_only(args[2])),
        libc::SYS_openat2 | libc::SYS_open_by_handle_at => Effect::LetGo,
        // Whoever waits for the end of the process may want to write.
        libc::SYS_exit_group => Effect::LetGo,
        // Who watches files would see ours opened and closed.
        libc::SYS_inotify_init | libc::SYS_inotify_init1 | libc::SYS_fanotify_init => Effect::LetGo,
        libc::SYS_close => Effect::Ends(fd(0)..=fd(0)),
        libc::SYS_close_range if args[2] & !u64::from(libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC) != 0 => {
            Effect::None
        }
        // From now on a number may mean another descriptor to another thread.
        libc::SYS_unshare => Effect::Ends(i32::MIN..=i32::MAX),
        libc::SYS_close_range if args[2] as u32 & libc::CLOSE_RANGE_UNSHARE != 0 => Effect::Ends(i32::MIN..=i32::MAX),
        libc::SYS_close_range if args[2] as u32 & libc::CLOSE_RANGE_CLOEXEC != 0 => Effect::None,
        libc::SYS_close_range => {
            let most = |value: u64| i32::try_from(value as u32).unwrap_or(i32::MAX);
            Effect::Ends(most(args[0])..=most(args[1]))
        }
        libc::SYS_dup => Effect::Dup(fd(0), None),
        libc::SYS_dup2 | libc::SYS_dup3 if fd(0) == fd(1) => Effect::None,
        libc::SYS_dup2 | libc::SYS_dup3 => Effect::Dup(fd(0), Some(fd(1))),
        libc::SYS_fcntl => match fd(1) {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => Effect::Dup(fd(0), None),
            libc::F_SETFL => Effect::Changes(fd(0)),
            libc::F_SETLEASE => Effect::LetGo,
            _ => Effect::None,
        },
        libc::SYS_sendmsg | libc::SYS_sendmmsg if !control => Effect::None,
        libc::SYS_sendmsg | libc::SYS_sendmmsg | libc::SYS_pidfd_getfd => Effect::SharesAll,
        libc::SYS_clone | libc::SYS_clone3 if crate::home::is_thread(args[0]) => Effect::None,
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => Effect::SharesAll,
        libc::SYS_sendfile => Effect::Uses(vec![fd(0), fd(1)]),
        libc::SYS_splice | libc::SYS_copy_file_range => Effect::Uses(vec![fd(0), fd(2)]),
        // They say where.
        libc::SYS_pread64 | libc::SYS_preadv | libc::SYS_fstat | libc::SYS_newfstatat | libc::SYS_statx => Effect::None,
        libc::SYS_mmap | libc::SYS_flock | libc::SYS_fadvise64 | libc::SYS_readahead => Effect::None,
        // Among them all that have a descriptor first: read, readv, preadv2, lseek, getdents, ioctl ...
        _ => Effect::Uses(vec![fd(0)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nr: i64, args: &[u64]) -> Effect {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        effect(nr as u64, &all, true)
    }

    #[test]
    fn who_shares_and_who_ends() {
        assert_eq!(of(libc::SYS_dup2, &[5, 7]), Effect::Dup(5, Some(7)));
        assert_eq!(of(libc::SYS_dup2, &[5, 5]), Effect::None);
        assert_eq!(of(libc::SYS_fcntl, &[5, libc::F_DUPFD_CLOEXEC as u64, 9]), Effect::Dup(5, None));
        assert_eq!(of(libc::SYS_fcntl, &[5, libc::F_SETFL as u64, 0]), Effect::Changes(5));
        assert_eq!(
            of(libc::SYS_close_range, &[3, 4, u64::from(libc::CLOSE_RANGE_UNSHARE)]),
            Effect::Ends(i32::MIN..=i32::MAX)
        );
        assert_eq!(of(libc::SYS_fcntl, &[5, libc::F_GETFL as u64]), Effect::None);
        assert_eq!(of(libc::SYS_close_range, &[3, u64::from(u32::MAX), 0]), Effect::Ends(3..=i32::MAX));
        assert_eq!(of(libc::SYS_clone, &[17]), Effect::SharesAll);
        assert_eq!(of(libc::SYS_clone, &[u64::from(pando_kernel::inject::THREAD_FLAGS)]), Effect::None);
        assert_eq!(of(libc::SYS_sendmsg, &[5]), Effect::SharesAll);
        assert_eq!(effect(libc::SYS_sendmsg as u64, &[5; 6], false), Effect::None);
        assert_eq!(of(libc::SYS_ioctl, &[5]), Effect::Uses(vec![5]));
        assert_eq!(effect(1 << 63, &[5; 6], false), Effect::SharesAll);
    }

    #[test]
    fn only_the_impatient_are_feared() {
        let (write, now) = (libc::O_WRONLY as u64, libc::O_NONBLOCK as u64);
        assert_eq!(of(libc::SYS_openat, &[0, 0, write]), Effect::Opens(false));
        assert_eq!(of(libc::SYS_openat, &[0, 0, write | now]), Effect::LetGo);
        assert_eq!(of(libc::SYS_open, &[0, now]), Effect::Opens(true));
        assert_eq!(of(libc::SYS_open, &[0, libc::O_TRUNC as u64]), Effect::LetGo);
    }

    #[test]
    fn readers_of_plain_files() {
        assert!(reads_only((libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOATIME | libc::O_CREAT) as u64));
        for odd in [libc::O_RDWR, libc::O_WRONLY, libc::O_PATH, libc::O_DIRECT, libc::O_DIRECTORY] {
            assert!(!reads_only(odd as u64));
        }
    }
}
