//! The few system calls that neither std nor a library has a safe face for: what a child does between fork and
//! exec, locks, users' names. All `unsafe` of the daemon and the command line is here.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The descriptor on which a guest helper finds its connection.
pub const CONNECTION: RawFd = 3;

/// Who runs this.
pub fn effective_uid() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// The group whose rights this process has.
pub fn effective_gid() -> u32 {
    // SAFETY: getegid has no preconditions and cannot fail.
    unsafe { libc::getegid() }
}

/// Milliseconds of a clock tick in `/proc` (USER_HZ is 100 on this architecture).
pub const MS_A_TICK: u64 = 10;

/// Sends a signal to a process, with the rights of who runs this.
pub fn send_signal(pid: u32, number: i32) -> io::Result<()> {
    pando_kernel::signal::kill(pid as i32, number)
}

/// Clock ticks since the machine started, as the start times in `/proc` count them.
pub fn boot_ticks() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live object of ours; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    (now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000) / MS_A_TICK
}

/// Takes the lock on `file`, or finds it taken.
pub fn lock(file: &File) -> bool {
    // SAFETY: the descriptor is open, and flock touches no memory.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// The name of a user at this machine, or the number.
pub fn user_name(uid: u32) -> String {
    let mut buffer = vec![0u8; 4096];
    // SAFETY: passwd is plain data for which all zeroes is a valid value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    let (text, length) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: all pointers are to live objects of ours, and the length is the buffer's.
    let code = unsafe { libc::getpwuid_r(uid, &mut entry, text, length, &mut found) };
    if code != 0 || found.is_null() {
        return uid.to_string();
    }
    // SAFETY: on success pw_name points to a terminated string inside `buffer`, which lives.
    unsafe { CStr::from_ptr(entry.pw_name) }.to_string_lossy().into_owned()
}

/// Year, month and day, hour, minute and second.
pub type Moment = [i32; 6];

/// A moment (seconds since 1970) in the local time zone.
pub fn local_time(seconds: u64) -> Moment {
    broken_down(seconds, libc::localtime_r)
}

fn broken_down(seconds: u64, by: unsafe extern "C" fn(*const libc::time_t, *mut libc::tm) -> *mut libc::tm) -> Moment {
    let seconds = seconds as libc::time_t;
    // SAFETY: tm is plain data for which all zeroes is a valid value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live objects of ours. One that is out of range leaves the zeroes.
    unsafe { by(&seconds, &mut tm) };
    [tm.tm_year.saturating_add(1900), tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec]
}

/// A moment (milliseconds since 1970) in UTC, as RFC 3339 has it.
pub fn utc_text(ms: u64) -> String {
    let [year, month, day, hour, minute, second] = broken_down(ms / 1000, libc::gmtime_r);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// Seconds since 1970 of a moment in the local time zone, or in UTC.
pub fn seconds_of(moment: Moment, utc: bool) -> Option<u64> {
    let [year, month, day, hour, minute, second] = moment;
    // SAFETY: tm is plain data for which all zeroes is a valid value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    (tm.tm_year, tm.tm_mon, tm.tm_mday) = (year - 1900, month - 1, day);
    (tm.tm_hour, tm.tm_min, tm.tm_sec, tm.tm_isdst) = (hour, minute, second, -1);
    // SAFETY: the pointer is to a live object of ours.
    let seconds = unsafe { if utc { libc::timegm(&mut tm) } else { libc::mktime(&mut tm) } };
    let same = [tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday] == [year, month, day];
    // What does not come back as it was (30 February) is no date.
    u64::try_from(seconds).ok().filter(|_| same)
}

/// How many seconds local time is ahead of UTC at a moment (seconds since 1970).
pub fn zone_s(seconds: u64) -> i64 {
    let local = seconds_of(local_time(seconds), true).unwrap_or(seconds);
    local as i64 - seconds as i64
}

/// How many characters a line of standard output has room for: what COLUMNS says, or the terminal that it is.
pub fn terminal_width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    // SAFETY: winsize is plain data for which all zeroes is a valid value; TIOCGWINSZ fills the object of ours that it is given.
    let asked = || unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(1, libc::TIOCGWINSZ, &mut size) == 0).then_some(usize::from(size.ws_col))
    };
    said.or_else(asked).filter(|columns| *columns > 0)
}

/// Gives signals their default action again.
pub fn default_signals(signals: &[i32]) {
    for signal in signals {
        // SAFETY: restoring the default action has no preconditions.
        unsafe { libc::signal(*signal, libc::SIG_DFL) };
    }
}

/// Ends this process as the signal ends one by default, without a core file. Comes back only if it does not.
pub fn die_of(signal: i32) {
    default_signals(&[signal]);
    // SAFETY: plain values and live objects; no handler is installed for the signal any more.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
}

/// Ignores signals.
pub fn ignore_signals(signals: &[i32]) {
    for signal in signals {
        // SAFETY: ignoring a signal has no preconditions.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// Passes signals on that somebody sends to us, not those that the terminal sends to us and the program alike. What our caller
/// ignores stays ignored, for the program too. Ends when the value is dropped.
pub struct PassingOn(());

static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// Signals that came before there was a program, as a set.
static EARLY: AtomicU64 = AtomicU64::new(0);

extern "C" fn pass_on(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO a valid siginfo, which of a signal that a process sent has its pid.
    let (from_kernel, sender) = unsafe { ((*info).si_code > 0, (*info).si_pid()) };
    let program = PROGRAM.load(Ordering::SeqCst);
    // What the program sends to its process group it has got itself.
    if from_kernel || signal == libc::SIGTTIN || program != 0 && sender == program {
        return;
    }
    EARLY.fetch_or(1 << signal, Ordering::SeqCst);
    if program != 0 && EARLY.fetch_and(!(1 << signal), Ordering::SeqCst) & 1 << signal != 0 {
        // SAFETY: kill touches no memory and may be called in a handler.
        unsafe { libc::kill(program, signal) };
    }
}

impl PassingOn {
    /// Begins; signals wait for [`PassingOn::to`].
    pub fn begin() -> PassingOn {
        let sent = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];
        // These are the program's to heed: we stop when, and if, it has stopped.
        let stops = [libc::SIGTSTP, libc::SIGTTIN];
        for signal in sent.into_iter().chain(stops) {
            // SAFETY: sigaction is plain data for which all zeroes is a valid value; the handler only uses atomics and kill.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut old);
                if old.sa_sigaction != libc::SIG_IGN {
                    let mut new: libc::sigaction = std::mem::zeroed();
                    new.sa_sigaction = pass_on as *const () as usize;
                    new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                    libc::sigaction(signal, &new, std::ptr::null_mut());
                }
            }
        }
        PassingOn(())
    }

    /// Names the program; it gets what came meanwhile.
    pub fn to(&self, program: u32) {
        PROGRAM.store(program as i32, Ordering::SeqCst);
        let early = EARLY.swap(0, Ordering::SeqCst);
        for signal in (1..64).filter(|s| early & 1 << s != 0) {
            // SAFETY: kill touches no memory.
            unsafe { libc::kill(program as i32, signal) };
        }
    }
}

impl Drop for PassingOn {
    fn drop(&mut self) {
        // The pid may soon be another's.
        PROGRAM.store(0, Ordering::SeqCst);
    }
}

/// A program started by `pando run`: signals as its caller has them, a session of its own if `detach`, and where the
/// kernel lets only ancestors trace (Yama) the `daemon`'s helpers are named.
pub fn prepare_program(command: &mut std::process::Command, daemon: Option<u32>, detach: bool) {
    let prepare = move || {
        // Rust's runtime ignores it.
        default_signals(&[libc::SIGPIPE]);
        if let Some(pid) = daemon {
            // SAFETY: prctl with a number touches no memory. Where there is no such rule it fails, which is of no interest.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(pid), 0, 0, 0) };
        }
        // SAFETY: setsid has no preconditions.
        if detach && unsafe { libc::setsid() } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: only async-signal-safe calls are made between fork and exec.
    unsafe { command.pre_exec(prepare) };
}

/// Has `command` begin without the signals blocked that this process waits for: a child has its parent's mask otherwise.
pub fn unblock_signals(command: &mut std::process::Command) {
    let prepare = || {
        // SAFETY: sigset_t is plain data; the pointers are to a live object of ours; the calls are async-signal-safe.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            match libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }
    };
    // SAFETY: only async-signal-safe calls are made between fork and exec.
    unsafe { command.pre_exec(prepare) };
}

/// A helper of the engine: own session, `connection` as descriptor 3, everything else closed on exec.
pub fn prepare_helper(command: &mut std::process::Command, connection: Option<RawFd>) {
    // SAFETY: only async-signal-safe calls are made between fork and exec.
    unsafe { command.pre_exec(move || detach(connection)) };
}

fn detach(connection: Option<RawFd>) -> io::Result<()> {
    let check = |code: libc::c_long| {
        if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    let first_closed = CONNECTION + i32::from(connection.is_some());
    // SAFETY: plain system calls on numbers. Descriptor 3 belongs to nobody in this child: the pipe through which std
    // reports a failed exec is above it (`reserve_low_descriptors`).
    unsafe {
        check(libc::setsid().into())?;
        match connection {
            Some(fd) if fd == CONNECTION => check(libc::fcntl(fd, libc::F_SETFD, 0).into())?,
            Some(fd) => check(libc::dup2(fd, CONNECTION).into())?,
            None => {}
        }
        // Marked, not closed: std still needs its pipe.
        let range = libc::syscall(libc::SYS_close_range, first_closed, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        check(range)?;
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        check(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()).into())
    }
}

/// Takes descriptor 3 if it is free, so that nothing the daemon opens later, not even for an instant during a
/// spawn, is what a child's connection is put over.
pub fn reserve_low_descriptors() -> io::Result<Vec<File>> {
    let mut kept = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        if file.as_raw_fd() > CONNECTION {
            return Ok(kept);
        }
        kept.push(file);
    }
}
