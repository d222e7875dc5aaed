//! Places where a helper stands still so that a test can strike exactly there. Off unless the node's own administrator writes
//! `[test] holds = true` into its configuration.
//!
//! A test makes an empty file `SIDE-PHASE-PID` in the node's directory for holds (`home-freeze-4711`; the pid is the one at home). The
//! helper that comes there renames it to `SIDE-PHASE-PID.held` and waits until that is gone. Nothing that another node sends has any part
//! in it but the pid, a number.

use std::path::Path;
use std::time::{Duration, Instant};

/// How often it is looked whether the file is gone.
const TICK: Duration = Duration::from_millis(1);
/// A hold that was forgotten ends by itself.
const LONGEST: Duration = Duration::from_secs(60);

/// A side of a move.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    /// The helper at home.
    Home,
    /// The helper abroad.
    Guest,
}

/// One process's holds on one side.
#[derive(Clone, Debug)]
pub(crate) struct Holds {
    dir: Option<String>,
    side: Side,
    pid: i32,
}

impl Holds {
    /// In `dir`, as the order says; none: nothing is ever held.
    pub(crate) fn new(dir: Option<&str>, side: Side, pid: i32) -> Self {
        Holds { dir: dir.map(str::to_string), side, pid }
    }

    /// Stands still if a test wants that in this phase of this process.
    pub(crate) fn at(&self, phase: &str) {
        let Some(dir) = &self.dir else { return };
        let side = match self.side {
            Side::Home => "home",
            Side::Guest => "guest",
        };
        let wish = Path::new(dir).join(format!("{side}-{phase}-{}", self.pid));
        let held = wish.with_extension("held");
        if std::fs::rename(&wish, &held).is_err() {
            return;
        }
        let since = Instant::now();
        while held.exists() && since.elapsed() < LONGEST {
            std::thread::sleep(TICK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_stands_still_until_its_file_is_gone() {
        let dir = std::env::temp_dir().join(format!("pando-hold-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let holds = Holds::new(dir.to_str(), Side::Home, 7);
        holds.at("freeze");
        std::fs::write(dir.join("home-send-7"), "").expect("a wish");
        holds.at("freeze");
        let held = dir.join("home-send-7.held");
        let helper = std::thread::spawn(move || holds.at("send"));
        while !held.exists() {
            std::thread::yield_now();
        }
        assert!(!helper.is_finished());
        std::fs::remove_file(&held).expect("the file");
        helper.join().expect("it goes on");
        std::fs::remove_dir_all(&dir).expect("the directory");
    }
}
