//! Signals: sets, siginfo as bytes, default actions, and sending.

use crate::check;
use std::io;

/// A `siginfo_t` as the kernel lays it out.
pub type SigInfo = [u8; 128];

/// Signal number in a siginfo.
pub fn number(info: &SigInfo) -> i32 {
    i32::from_le_bytes([info[0], info[1], info[2], info[3]])
}

/// `si_code` in a siginfo.
pub fn code(info: &SigInfo) -> i32 {
    i32::from_le_bytes([info[8], info[9], info[10], info[11]])
}

/// `si_timerid` and `si_overrun` of a signal that an expired timer sent (timer_create(2)).
pub fn of_timer(info: &SigInfo) -> Option<(i32, u32)> {
    const SI_TIMER: i32 = -2;
    let word = |at: usize| [info[at], info[at + 1], info[at + 2], info[at + 3]];
    (code(info) == SI_TIMER).then(|| (i32::from_le_bytes(word(16)), u32::from_le_bytes(word(20))))
}

/// Says how often the timer has expired since, beyond the first time.
pub fn set_overrun(info: &mut SigInfo, overrun: u32) {
    info[20..24].copy_from_slice(&overrun.min(i32::MAX as u32).to_le_bytes());
}

/// The bit of a signal in a set.
pub fn bit(signal: i32) -> u64 {
    if (1..=64).contains(&signal) { 1 << (signal - 1) } else { 0 }
}

/// What a signal does that nobody handles (signal(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    /// Ends the process.
    Terminate,
    /// Ends the process and may dump core.
    Core,
    /// Nothing.
    Ignore,
    /// Job control stop.
    Stop,
}

/// Default action of a signal.
pub fn default_action(signal: i32) -> DefaultAction {
    match signal {
        libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT => DefaultAction::Ignore,
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => DefaultAction::Stop,
        libc::SIGQUIT
        | libc::SIGILL
        | libc::SIGTRAP
        | libc::SIGABRT
        | libc::SIGBUS
        | libc::SIGFPE
        | libc::SIGSEGV
        | libc::SIGXCPU
        | libc::SIGXFSZ
        | libc::SIGSYS => DefaultAction::Core,
        _ => DefaultAction::Terminate,
    }
}

/// The address that a fault is about (`si_addr`).
pub fn address(info: &SigInfo) -> u64 {
    u64::from_le_bytes(info[16..24].try_into().unwrap_or_default())
}

/// Is this a fault the CPU raises at the instruction itself?
pub fn is_fault(info: &SigInfo) -> bool {
    matches!(number(info), libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP) && code(info) > 0
}

/// Sends `signal` to one thread.
pub fn tgkill(tgid: i32, tid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::syscall(libc::SYS_tgkill, tgid, tid, signal) })?;
    Ok(())
}

/// Sends `signal` to a process.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { i64::from(libc::kill(pid, signal)) })?;
    Ok(())
}

/// `si_code` of a signal that was sent to one thread (tkill(2)).
const SI_TKILL: i32 = -6;

/// Was it sent to one thread, and not to the process?
pub fn is_for_thread(info: &SigInfo) -> bool {
    code(info) == SI_TKILL
}

/// Sends a signal that was taken out of the queue of process `pid`, or of its thread `tid`, once more. Where the kernel lets nobody say
/// who sent it, it comes from us.
pub fn send_again(pid: i32, tid: i32, info: &SigInfo) -> io::Result<()> {
    let number = number(info);
    // SAFETY: the kernel reads a siginfo_t of 128 bytes, which `info` is.
    let queued = unsafe {
        if is_for_thread(info) {
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, number, info.as_ptr())
        } else {
            libc::syscall(libc::SYS_rt_sigqueueinfo, pid, number, info.as_ptr())
        }
    };
    let plain = || if is_for_thread(info) { tgkill(pid, tid, number) } else { kill(pid, number) };
    check(queued).map(drop).or_else(|_| plain())
}

/// Sleeps until a child changes, at most `limit`. Where SIGCHLD is not blocked it is the time that ends the sleep. True: it took SIGCHLD.
pub fn wait_for_child(limit: std::time::Duration) -> bool {
    let time = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: `set` is initialised by sigemptyset before use; no siginfo is asked for; `time` lives through the call.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigtimedwait(&set, std::ptr::null_mut(), &time) > 0
    }
}

/// Is it ignored, because whoever started us wants it so?
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: sigaction is plain data for which all zeroes is a valid value; nothing is changed.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: the set is initialised by sigemptyset before use.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        signals.iter().for_each(|s| _ = libc::sigaddset(&mut set, *s));
        set
    }
}

/// They wait until somebody asks for them, in this thread and those that it starts.
pub fn block(signals: &[i32]) {
    let set = set_of(signals);
    // SAFETY: the pointer is to a live object of ours.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
}

/// Waits for one of them, which are blocked.
pub fn wait_for(signals: &[i32]) -> i32 {
    let (set, mut number) = (set_of(signals), 0);
    // SAFETY: the pointers are to live objects of ours.
    unsafe { libc::sigwait(&set, &mut number) };
    number
}

/// Blocks SIGCHLD, and SIGIO (a lease is wanted back), in this thread and returns a non-blocking signalfd for both.
pub fn child_signal_fd() -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: `set` is initialised by sigemptyset before use; the descriptor returned is ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigaddset(&mut set, libc::SIGIO);
        check(i64::from(libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())))?;
        let fd = check(i64::from(libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)))?;
        Ok(std::os::fd::OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Has this child or tracee ended? It stays to be waited for, and who waits for it beside us hears nothing yet.
pub fn has_ended(pid: i32) -> bool {
    // SAFETY: siginfo_t is plain data for which all zeroes is a valid value, and lives through the call.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        // Stops of a tracee are told whether they were asked for or not.
        let ends = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
        libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, how) == 0
            && info.si_pid() == pid
            && ends.contains(&info.si_code)
    }
}
