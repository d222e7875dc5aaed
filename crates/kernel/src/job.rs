//! Job control as somebody between a shell and a program has to do it: a child that stops, the terminal's foreground group, stopping as
//! the child did.

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended, and nothing is left of it.
    Ended(ExitStatus),
    /// It was stopped by this signal.
    Stopped(i32),
}

/// Waits until child `pid` ends or stops. Each stop is told once.
pub fn wait(pid: i32) -> io::Result<Change> {
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a live object of ours.
        match check(i64::from(unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) })) {
            Ok(_) if libc::WIFSTOPPED(status) => return Ok(Change::Stopped(libc::WSTOPSIG(status))),
            Ok(_) => return Ok(Change::Ended(ExitStatus::from_raw(status))),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether child `pid`, whose stop [`wait`] has told, has gone on since, and perhaps stopped anew or ended: no more than a look.
pub fn has_gone_on(pid: i32) -> bool {
    let how = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: siginfo_t is plain data for which all zeroes is a valid value, and lives through the call; where there is nothing to tell
    // the kernel leaves, or makes, its pid 0.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, how) == 0 && info.si_pid() == pid
    }
}

/// The process group of `pid`; 0 for ours.
pub fn group(pid: i32) -> Option<i32> {
    // SAFETY: plain values.
    check(i64::from(unsafe { libc::getpgid(pid) })).ok().map(|group| group as i32)
}

/// The session of `pid`.
pub fn session(pid: i32) -> Option<i32> {
    // SAFETY: plain values.
    check(i64::from(unsafe { libc::getsid(pid) })).ok().map(|session| session as i32)
}

/// Whether our parent is of our session: only then may somebody notice that we are stopped, and have us go on.
pub fn is_watched() -> bool {
    // SAFETY: plain values.
    unsafe { libc::getsid(libc::getppid()) == libc::getsid(0) }
}

/// The controlling terminal.
pub struct Terminal(File);

impl Terminal {
    /// None if there is none.
    pub fn open() -> Option<Terminal> {
        File::options().read(true).write(true).open("/dev/tty").ok().map(Terminal)
    }

    /// The group that reads from it and gets its signals.
    pub fn foreground(&self) -> Option<i32> {
        // SAFETY: plain values, of a descriptor that is open.
        check(i64::from(unsafe { libc::tcgetpgrp(self.0.as_raw_fd()) })).ok().map(|group| group as i32)
    }

    /// Gives it to another group of the session, from the foreground: from elsewhere this stops us, as it should.
    pub fn give(&self, group: i32) -> io::Result<()> {
        // SAFETY: plain values, of a descriptor that is open.
        check(i64::from(unsafe { libc::tcsetpgrp(self.0.as_raw_fd(), group) })).map(drop)
    }

    /// The same from wherever we are.
    pub fn seize(&self, group: i32) -> io::Result<()> {
        // SAFETY: the sets are initialised before use and live through the calls; the mask of this thread alone changes, and is put back.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGTTOU);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            let given = self.give(group);
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            given
        }
    }
}

/// Stops this process by a signal that stops by default, whatever it does with that otherwise. Comes back when somebody has it go on, or
/// at once if nobody could (an orphaned process group does not stop by the terminal's signals).
pub fn stop_by(signal: i32) {
    // SAFETY: the default action of a signal, plain data put back as it was, a set that is initialised before use. A thread that
    // raises a signal which it does not block has it before the call returns.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &action, &mut old);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
        libc::sigaction(signal, &old, std::ptr::null_mut());
    }
}
