//! `pando run` stops when its program stops and has it go on when it goes on itself, so that the shell sees one job, whatever process
//! group the program has made for itself.

use pando_kernel::job::{self, Change, Terminal};
use pando_kernel::signal;
use std::io;
use std::process::ExitStatus;

/// The program, our child.
pub struct Job {
    pid: i32,
    /// The terminal was its group's when it stopped, and it has not got it back yet.
    had_terminal: bool,
    /// Who had the terminal when we went on in the background: our shell.
    shell: Option<i32>,
}

impl Job {
    /// Begins.
    pub fn new(pid: u32) -> Job {
        Job { pid: pid as i32, had_terminal: false, shell: None }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            match job::wait(self.pid)? {
                Change::Ended(status) => {
                    self.leave_terminal();
                    return Ok(status);
                }
                Change::Stopped(signal) => self.stopped(signal),
            }
        }
    }

    fn stopped(&mut self, signal: i32) {
        // Without a terminal there is no job control, and nobody would have us go on.
        let terminal = Terminal::open().filter(|_| job::is_watched());
        let (Some(terminal), Some(ours), Some(its)) = (terminal, job::group(0), job::group(self.pid)) else { return };
        if ours != its && terminal.foreground() == Some(its) {
            // A shell that is our parent takes it in any case; another parent would find it with a group that sleeps.
            self.had_terminal = terminal.seize(ours).is_ok();
        }
        if !job::has_gone_on(self.pid) {
            job::stop_by(signal);
        }
        if ours == its && job::has_gone_on(self.pid) {
            // The shell's SIGCONT was for both of us. If it is stopped again by now, that is the next Ctrl-Z.
            return;
        }
        if ours != its && self.had_terminal && terminal.foreground() == Some(ours) {
            self.had_terminal = terminal.give(its).is_err();
        }
        self.shell = terminal.foreground().filter(|group| ![ours, its].contains(group));
        let _ = signal::kill(if ours == its { self.pid } else { -its }, libc::SIGCONT);
    }

    /// A shell that ends gives the terminal to the group that it came from, ours, also when that is in the background.
    fn leave_terminal(&self) {
        let (Some(shell), Some(ours)) = (self.shell, job::group(0)) else { return };
        if let Some(terminal) = Terminal::open().filter(|t| t.foreground() == Some(ours)) {
            let _ = terminal.give(shell);
        }
    }
}
