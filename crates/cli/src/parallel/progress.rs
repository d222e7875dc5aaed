//! One line on the terminal that says how far it is.

use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Nothing is drawn before so long.
const FIRST: Duration = Duration::from_millis(500);
const EVERY: Duration = Duration::from_millis(200);

/// See above.
pub struct Progress {
    on: bool,
    begun: Instant,
    drawn: Option<Instant>,
    shown: bool,
    /// It was taken away for something else, and comes back at once.
    cleared: bool,
    /// Tasks that are known, that have ended, failed for good, and were tried again.
    pub total: u32,
    /// See there.
    pub done: u32,
    /// See there.
    pub failed: u32,
    /// See there.
    pub again: u32,
}

impl Progress {
    /// Nothing has happened yet.
    pub fn new(on: bool) -> Progress {
        Progress {
            on,
            begun: Instant::now(),
            drawn: None,
            shown: false,
            cleared: false,
            total: 0,
            done: 0,
            failed: 0,
            again: 0,
        }
    }

    fn text(&self) -> String {
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        let again = if self.again > 0 { format!(", {} tried again", self.again) } else { String::new() };
        failed + &again
    }

    /// Draws it, if it is time.
    pub fn draw(&mut self, running: usize, waiting: usize, all_known: bool) {
        let soon = !self.cleared && self.drawn.is_some_and(|when| when.elapsed() < EVERY);
        let early = self.begun.elapsed() < FIRST || soon;
        if !self.on || early {
            return;
        }
        self.drawn = Some(Instant::now());
        let seconds = self.begun.elapsed().as_secs_f64();
        let rate = f64::from(self.done) / seconds;
        let left = (running + waiting) as f64;
        let eta = match all_known && rate > 0.0 {
            true => format!(", {:.0} s left", (left / rate).ceil()),
            false => String::new(),
        };
        let more = if all_known { "" } else { "+" };
        let (done, total, text) = (self.done, self.total, self.text());
        let mut err = io::stderr().lock();
        let _ = write!(err, "\r\x1b[K{done} of {total}{more} done{text}, {running} at nodes, {rate:.0} a second{eta}");
        let _ = err.flush();
        (self.shown, self.cleared) = (true, false);
    }

    /// Something else is to be shown.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
            self.cleared = true;
        }
    }

    /// Says something.
    pub fn say(&mut self, text: &str) {
        self.clear();
        eprintln!("pando: {text}");
    }

    /// The last line.
    pub fn finish(&mut self) {
        self.clear();
        if self.on && self.total > 0 {
            let seconds = self.begun.elapsed().as_secs_f64();
            let (done, rate, text) = (self.done, f64::from(self.done) / seconds, self.text());
            let tasks = if done == 1 { "task" } else { "tasks" };
            eprintln!("pando: {done} {tasks} in {seconds:.1} s, {rate:.0} a second{text}");
        }
    }
}
