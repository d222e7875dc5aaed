//! The few kernel calls of the testbed that std has no face for.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// Turns the result of a C call into one of Rust's.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Whether we are root in our user namespace.
pub fn is_root() -> bool {
    euid() == 0
}

/// Effective user id.
pub fn euid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// Effective group id.
pub fn egid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::getegid() }
}

/// Enters the namespace behind `fd`. Async-signal-safe: allocates nothing.
pub fn setns(fd: RawFd, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: setns reads two integers.
    check(unsafe { libc::setns(fd, kind) }).map(drop)
}

/// Leaves namespaces of these kinds for new ones.
pub fn unshare(kinds: libc::c_int) -> io::Result<()> {
    // SAFETY: unshare reads one integer.
    check(unsafe { libc::unshare(kinds) }).map(drop)
}

/// Names the host, as all processes of this UTS namespace see it.
pub fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as the name has.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// A new session, so that no terminal's Ctrl-C reaches us. Async-signal-safe.
pub fn setsid() -> io::Result<()> {
    // SAFETY: takes nothing.
    check(unsafe { libc::setsid() }).map(drop)
}

/// Makes a command start in a session of its own.
pub fn in_new_session(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: setsid is a system call.
    unsafe { command.pre_exec(setsid) };
}

/// Sends a signal; a process that is gone already is no error.
pub fn kill(pid: u32, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: kill reads two integers.
    match check(unsafe { libc::kill(pid as libc::pid_t, signal) }) {
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other.map(drop),
    }
}

/// Whether our own child has ended: its wait status. Leaves other children alone.
pub fn reap_any() -> Option<(u32, i32)> {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    (pid > 0).then_some((pid as u32, status))
}

/// A wait status in words.
pub fn status_text(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("ended by signal {}", libc::WTERMSIG(status))
    } else {
        format!("exit status {}", libc::WEXITSTATUS(status))
    }
}

/// Lets a descriptor survive exec. Async-signal-safe.
pub fn keep_over_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: fcntl on a number; a wrong one is EBADF.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map(drop)
}

/// Keeps these capabilities over the next exec, as ambient ones. A process that is not uid 0 in its own user
/// namespace would lose them, and then `ip` could do nothing there. Async-signal-safe.
pub fn keep_capabilities(capabilities: &[u32]) -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let header = Header { version: 0x2008_0522, pid: 0 };
    // Two sets of effective, permitted, inheritable.
    let mut data = [[0u32; 3]; 2];
    // SAFETY: header and data have the layout of version 3 and outlive the call.
    check(unsafe { libc::syscall(libc::SYS_capget, &header, data.as_mut_ptr()) } as i32)?;
    for capability in capabilities {
        data[(capability / 32) as usize][2] |= 1 << (capability % 32);
    }
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_capset, &header, data.as_ptr()) } as i32)?;
    for capability in capabilities {
        // SAFETY: prctl with integers only.
        check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, u64::from(*capability), 0, 0) })?;
    }
    Ok(())
}

/// Blocks signals and returns a descriptor that reads them. Programs started by `std::process` get an empty mask.
pub fn signalfd(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use; the calls only read it.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        check(libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()))?;
        let fd = check(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Reads one signal number from [`signalfd`], if there is one.
pub fn read_signal(fd: &OwnedFd) -> Option<i32> {
    // SAFETY: signalfd_siginfo is plain data; read fills at most its size.
    unsafe {
        let mut info = std::mem::zeroed::<libc::signalfd_siginfo>();
        let size = std::mem::size_of_val(&info);
        let got = libc::read(fd.as_raw_fd(), (&raw mut info).cast(), size);
        (got == size as isize).then_some(info.ssi_signo as i32)
    }
}

/// Waits until one of `fds` is readable; says which. A signal counts as nothing readable.
pub fn poll(fds: &[RawFd], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut set: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let time = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(t.subsec_nanos() as i32),
    });
    let time = time.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: `set` and `time` outlive the call, the length is the vector's.
    match check(unsafe { libc::ppoll(set.as_mut_ptr(), set.len() as libc::nfds_t, time, std::ptr::null()) }) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(vec![false; fds.len()]),
        Err(e) => Err(e),
        Ok(_) => Ok(set.iter().map(|p| p.revents != 0).collect()),
    }
}

static INTERRUPTED: AtomicI32 = AtomicI32::new(0);

extern "C" fn note_signal(signal: libc::c_int) {
    INTERRUPTED.store(signal, Ordering::SeqCst);
}

/// From now on Ctrl-C, SIGTERM and a hang-up only set a flag, so that what was begun can be cleaned up.
pub fn catch_interrupts() {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().for_each(catch);
}

/// The same for one signal.
pub fn catch(signal: libc::c_int) {
    let handler: extern "C" fn(libc::c_int) = note_signal;
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
}

/// The signal that asked us to stop, if any (see [`catch_interrupts`]).
pub fn interrupted() -> Option<i32> {
    match INTERRUPTED.load(Ordering::SeqCst) {
        0 => None,
        signal => Some(signal),
    }
}

/// Forgets an interrupt, for the clean-up that follows it.
pub fn clear_interrupt() {
    INTERRUPTED.store(0, Ordering::SeqCst);
}

/// Whether this descriptor is a terminal.
pub fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: isatty reads one integer.
    unsafe { libc::isatty(fd) == 1 }
}

/// Index of a network interface of our network namespace.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `name` is a C string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Memory for which huge pages are advised, given back when dropped.
#[derive(Default)]
pub struct HugeWords {
    map: Option<std::ptr::NonNull<u64>>,
    bytes: usize,
}

impl HugeWords {
    /// So many bytes of zeros, a multiple of 2 MiB and on such a boundary.
    pub fn new(bytes: usize) -> io::Result<HugeWords> {
        const HUGE: usize = 2 << 20;
        let bytes = bytes.next_multiple_of(HUGE);
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping touches no other; its ends that are not on the boundary are given back and never used.
        unsafe {
            let map = libc::mmap(std::ptr::null_mut(), bytes + HUGE, prot, flags, -1, 0);
            if map == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let before = (map as usize).next_multiple_of(HUGE) - map as usize;
            let start = map.cast::<u8>().add(before);
            if before > 0 {
                libc::munmap(map, before);
            }
            libc::munmap(start.add(bytes).cast(), HUGE - before);
            // A kernel without huge pages says no; the words are there all the same.
            libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE);
            Ok(HugeWords { map: std::ptr::NonNull::new(start.cast()), bytes })
        }
    }

    /// All of it.
    pub fn words(&mut self) -> &mut [u64] {
        match self.map {
            // SAFETY: `map` has `bytes` bytes, aligned, initialised by the kernel, owned by us alone and borrowed through `self`.
            Some(map) => unsafe { std::slice::from_raw_parts_mut(map.as_ptr(), self.bytes / 8) },
            None => &mut [],
        }
    }
}

impl Drop for HugeWords {
    fn drop(&mut self) {
        if let Some(map) = self.map {
            // SAFETY: ours, and nothing borrows it any more.
            unsafe { libc::munmap(map.as_ptr().cast(), self.bytes) };
        }
    }
}
