//! Signals that come to us are for every process of every rank. Ctrl-C twice ends everything at once.

use super::{Line, terminal};
use pando_kernel::signal;
use pando_launch::Ask;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Two interrupts within this mean it.
const TWICE: Duration = Duration::from_secs(1);

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
pub fn hold(terminal: bool) -> Vec<i32> {
    let sizes = terminal.then_some(libc::SIGWINCH);
    let heeded: Vec<i32> = PASSED.into_iter().filter(|s| !signal::is_ignored(*s)).chain(sizes).collect();
    signal::block(&heeded);
    heeded
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The last signal that was passed on and ends programs; 0 for none.
static LAST: AtomicI32 = AtomicI32::new(0);

/// The user has ended it: what ranks end with is no news.
pub fn has_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// The last signal that came and may have ended all; 0 for none.
pub fn last() -> i32 {
    LAST.load(Ordering::Relaxed)
}

/// Passes them on, for ever. `held`: ranks stand still, and would not hear of their end.
pub fn pass_on(signals: Vec<i32>, held: bool, line: Line) {
    let user = line.clone();
    let pass = move |number: i32| {
        if ![libc::SIGCONT, libc::SIGSTOP].contains(&number) {
            LAST.store(number, Ordering::Relaxed);
        }
        line.ask(&Ask::Signal(number as u8));
        if held && [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&number) {
            line.ask(&Ask::Signal(libc::SIGCONT as u8));
        }
        line.clone()
    };
    std::thread::spawn(move || {
        let mut last: Option<Instant> = None;
        let mut killed = false;
        loop {
            match signal::wait_for(&signals) {
                libc::SIGINT => {
                    let twice = last.replace(Instant::now()).is_some_and(|when| when.elapsed() < TWICE);
                    match (twice, killed) {
                        (false, _) => {
                            INTERRUPTED.store(true, Ordering::Relaxed);
                            pass(libc::SIGINT);
                            eprintln!("pando: interrupted; once more within a second ends all ranks at once");
                        }
                        (true, false) => {
                            killed = true;
                            pass(libc::SIGINT).ask(&Ask::Kill);
                        }
                        // The node here does not answer. The job ends when our connection does.
                        (true, true) => std::process::exit(128 + libc::SIGINT),
                    }
                }
                libc::SIGTSTP => {
                    // Ranks are in sessions of their own, where the terminal's stop does nothing.
                    pass(libc::SIGSTOP);
                    terminal::leave();
                    let _ = signal::kill(std::process::id() as i32, libc::SIGSTOP);
                }
                libc::SIGWINCH => terminal::tell_size(&user),
                number if number > 0 => {
                    if number == libc::SIGCONT {
                        terminal::again(&user);
                    }
                    let ends = [libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&number);
                    INTERRUPTED.fetch_or(ends, Ordering::Relaxed);
                    pass(number);
                }
                _ => {}
            }
        }
    });
}
