//! Keeping real-time signals in order for a process that has just come home into a storm of them.
//!
//! The kernel's queue can only be appended to, and others append all the time. So the process runs, still traced, and each signal
//! that it is about to get is exchanged for the oldest one of its number, until the last one that was put back is through.

use super::{Deputy, HomeError, Result, at};
use crate::control::Command;
use pando_kernel::poll;
use pando_kernel::ptrace::{Stop, Tracee};
use pando_kernel::signal::{self, SigInfo};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;

/// How long nothing may happen before it is looked whether the signals were fetched by other means (sigwaitinfo).
const QUIET_US: i64 = 500_000;

impl Deputy {
    /// The process runs and `put_back` are pending in some order. Returns when it has been let go.
    pub(super) fn escort(&mut self, tracee: Tracee, put_back: Vec<SigInfo>) -> Result<()> {
        let set = put_back.iter().fold(0, |s, i| s | signal::bit(signal::number(i)));
        let mut tokens = put_back.clone();
        let mut queue: VecDeque<SigInfo> = put_back.into();
        loop {
            match at("wait", tracee.wait(false))? {
                Some(Stop::Gone(status)) => return Err(HomeError::Ended(status)),
                Some(Stop::Signal(number)) => {
                    let signal = exchange(tracee, number, &mut tokens, &mut queue)?;
                    if tokens.is_empty() {
                        return at("let it go", tracee.detach(signal));
                    }
                    at("continue", tracee.cont(signal))?;
                }
                Some(Stop::Event(libc::SIGTRAP)) => {
                    let mut pending = tracee.pending(true);
                    pending.extend(tracee.pending(false));
                    if pending.iter().all(|i| set & signal::bit(signal::number(i)) == 0) {
                        self.give_the_rest(&tokens, queue);
                        return at("let it go", tracee.detach(0));
                    }
                    at("continue", tracee.cont(0))?;
                }
                Some(Stop::Event(_)) => at("listen", tracee.listen())?,
                Some(Stop::Other(_)) => at("continue", tracee.cont(0))?,
                None => self.wait_for_stop(tracee)?,
            }
        }
    }

    /// Nothing is pending: `tokens` were fetched by other means (sigwaitinfo), with what the kernel's queue said. Whatever else was taken
    /// in exchange has not been given yet.
    fn give_the_rest(&self, tokens: &[SigInfo], mut queue: VecDeque<SigInfo>) {
        for token in tokens {
            if let Some(known) = queue.iter().position(|i| i[..32] == token[..32]) {
                queue.remove(known);
            }
        }
        for info in queue {
            // A process that has ended meanwhile needs none.
            let _ = signal::send_again(self.pid, self.pid, &info);
        }
    }

    fn wait_for_stop(&mut self, tracee: Tracee) -> Result<()> {
        let fds = [(self.children.as_raw_fd(), false), (self.link.raw().unwrap_or(-1), false)];
        let ready = at("poll", poll::wait(&fds, QUIET_US))?;
        poll::drain(self.children.as_raw_fd());
        for command in self.commands() {
            if let Command::Move { request, .. } = command {
                let why = "it has just come home and its signals are being put in order; try again in a moment";
                self.move_done(request, Err(format!("process {}: {why}", self.pid)));
            }
        }
        if ready.iter().all(|r| *r == 0) { at("interrupt", tracee.interrupt()) } else { Ok(()) }
    }
}

/// The siginfo to deliver for `number`: the oldest one known.
fn exchange(tracee: Tracee, number: i32, tokens: &mut Vec<SigInfo>, queue: &mut VecDeque<SigInfo>) -> Result<i32> {
    if !queue.iter().any(|i| signal::number(i) == number) {
        return Ok(number);
    }
    let info = at("siginfo", tracee.siginfo())?;
    match tokens.iter().position(|t| t[..32] == info[..32]) {
        Some(known) => drop(tokens.remove(known)),
        None => queue.push_back(info),
    }
    let oldest = queue.iter().position(|i| signal::number(i) == number).and_then(|i| queue.remove(i));
    if let Some(oldest) = oldest {
        at("siginfo", tracee.set_siginfo(&oldest))?;
    }
    Ok(number)
}
