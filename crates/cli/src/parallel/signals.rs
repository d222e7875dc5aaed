//! Signals that come to us are for every process of every rank. Ctrl-C twice ends everything at once.

use super::Line;
use pando_kernel::signal;
use pando_launch::Ask;

const PASSED: [i32; 8] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// From now on they wait; what our caller ignores stays ignored.
pub fn hold() -> Vec<i32> {
    let heeded: Vec<i32> = PASSED.into_iter().filter(|s| !signal::is_ignored(*s)).collect();
    signal::block(&heeded);
    heeded
}

/// Passes them on, for ever.
pub fn pass_on(signals: Vec<i32>, line: Line) {
    std::thread::spawn(move || {
        let mut interrupts = 0;
        loop {
            match signal::wait_for(&signals) {
                libc::SIGINT => {
                    interrupts += 1;
                    match interrupts {
                        1 => {
                            line.ask(&Ask::Signal(libc::SIGINT as u8));
                            eprintln!("pando: interrupted; once more ends all ranks at once");
                        }
                        2 => _ = line.ask(&Ask::Kill),
                        // The node here does not answer. The job ends when our connection does.
                        _ => std::process::exit(128 + libc::SIGINT),
                    }
                }
                libc::SIGTSTP => {
                    // Ranks are in sessions of their own, where the terminal's stop does nothing.
                    line.ask(&Ask::Signal(libc::SIGSTOP as u8));
                    let _ = signal::kill(std::process::id() as i32, libc::SIGSTOP);
                }
                number if number > 0 => _ = line.ask(&Ask::Signal(number as u8)),
                _ => {}
            }
        }
    });
}
