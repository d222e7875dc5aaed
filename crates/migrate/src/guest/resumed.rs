//! The call that a thread was blocked in when it was frozen at home, until it is blocked in that again.
//!
//! Home's freeze has broken it off, and here it is made again. A signal that comes in between finds the thread in front of the call, but the
//! program has been in it for long: with a handler it ends as its restart code says (EINTR), and is not just made after the handler. Not so a signal
//! that the call itself blocks (sigsuspend, ppoll, ...): it would have had to wait, and the call goes on.

use super::Guest;
use super::calls::View;
use crate::restart;
use pando_calls::{mask_place, temporary_mask};
use pando_kernel::ptrace::Registers;
use pando_kernel::signal;

/// Such a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resumed {
    nr: u64,
    args: [u64; 6],
    /// What home's kernel said when it was broken off.
    code: i64,
}

impl Resumed {
    /// In the registers with which a thread begins here.
    pub fn of(r: &Registers) -> Option<Resumed> {
        let (nr, code) = (r.orig_rax, r.rax as i64);
        let blocked = [restart::SYS, restart::NOHAND, restart::BLOCK].contains(&code);
        ((nr as i64) >= 0 && blocked).then(|| Resumed { nr, args: arguments(r), code })
    }

    /// Is it this one?
    pub fn is(&self, nr: u64, args: &[u64; 6]) -> bool {
        let again = self.code == restart::BLOCK && nr == libc::SYS_restart_syscall as u64;
        (nr == self.nr || again) && *args == self.args
    }

    /// Where a signal that comes before the call says "make it again whatever runs".
    pub fn instead(&self, code: i64) -> i64 {
        if code == restart::NOINTR { self.code } else { code }
    }
}

fn arguments(r: &Registers) -> [u64; 6] {
    [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]
}

impl Guest {
    /// The restart code for a call of which it is said that it is made again with this one.
    pub(super) fn instead(&self, tid: i32, code: i64) -> i64 {
        let mut view = View { memory: &self.memory, areas: &self.areas };
        // Which signal came is not known: one that the call blocks does not end it.
        let resumed = self.threads[tid].resumed.filter(|r| mask_place(r.nr, &r.args, &mut view) == Some(0));
        resumed.map_or(code, |r| r.instead(code))
    }

    /// Does the resumed call let that signal in?
    fn lets_in(&self, resumed: &Resumed, signal: i32) -> bool {
        let mut view = View { memory: &self.memory, areas: &self.areas };
        match mask_place(resumed.nr, &resumed.args, &mut view) {
            Some(0) => true,
            Some(_) => {
                let mask = temporary_mask(resumed.nr, &resumed.args, &mut view);
                mask.is_some_and(|mask| mask & signal::bit(signal) == 0)
            }
            None => false,
        }
    }

    /// Is a stopped thread about to make its resumed call, or was it kicked out before anybody saw it there? Then its registers are made
    /// to say that the call was broken off. `signal`: by this one.
    pub(super) fn still_in_resumed(&self, tid: i32, r: &mut Registers, signal: Option<i32>) -> bool {
        let Some(resumed) = self.threads[tid].resumed else { return false };
        if signal.is_some_and(|signal| !self.lets_in(&resumed, signal)) {
            return false;
        }
        let args = arguments(r);
        let kicked = [restart::SYS, restart::NOINTR].contains(&(r.rax as i64));
        if (r.orig_rax as i64) >= 0 && resumed.is(r.orig_rax, &args) && kicked {
            r.rax = resumed.code as u64;
            return true;
        }
        if resumed.is(r.rax, &args) && self.at_syscall(r.rip) {
            (r.orig_rax, r.rax, r.rip) = (r.rax, resumed.code as u64, r.rip + 2);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_kernel::ptrace;

    fn registers(nr: i64, rax: i64) -> Registers {
        let mut r = ptrace::from_words(&[7; ptrace::REGISTER_WORDS]).expect("registers");
        (r.orig_rax, r.rax) = (nr as u64, rax as u64);
        r
    }

    #[test]
    fn only_calls_that_waited_are_resumed() {
        assert_eq!(Resumed::of(&registers(-1, restart::SYS)), None);
        assert_eq!(Resumed::of(&registers(libc::SYS_read, 5)), None);
        assert_eq!(Resumed::of(&registers(libc::SYS_read, restart::NOINTR)), None);
        let read = Resumed::of(&registers(libc::SYS_read, restart::SYS)).expect("it waited");
        assert!(read.is(libc::SYS_read as u64, &[7; 6]) && !read.is(libc::SYS_write as u64, &[7; 6]));
        assert!(!read.is(libc::SYS_read as u64, &[8; 6]) && !read.is(libc::SYS_restart_syscall as u64, &[7; 6]));
        assert_eq!((read.instead(restart::NOINTR), read.instead(restart::BLOCK)), (restart::SYS, restart::BLOCK));
        let sleep = Resumed::of(&registers(libc::SYS_nanosleep, restart::BLOCK)).expect("it waited");
        assert!(sleep.is(libc::SYS_restart_syscall as u64, &[7; 6]));
    }
}
