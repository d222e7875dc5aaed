//! Standard input, for the ranks that get it: no more of it is read than they take, and a window.

use super::Line;
use pando_kernel::job::{self, Terminal};
use pando_launch::Ask;
use std::io::{self, IsTerminal, Read};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Bytes that are read at once, and that are on their way at most.
const PIECE: usize = 32 << 10;
const WINDOW: u64 = 256 << 10;
/// In the background the terminal is somebody else's: it is looked so often whether it is ours.
const LOOK: Duration = Duration::from_millis(200);

/// See above.
pub struct Input(Arc<(Mutex<u64>, Condvar)>);

impl Input {
    /// Begins to read.
    pub fn start(line: Line) -> Input {
        let taken: Arc<(Mutex<u64>, Condvar)> = Arc::default();
        let theirs = taken.clone();
        std::thread::spawn(move || {
            let _ = carry(&line, &theirs);
            line.ask(&Ask::StdinEnds);
        });
        Input(taken)
    }

    /// So many bytes have been taken in all.
    pub fn taken(&self, bytes: u64) {
        let mut taken = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        *taken = bytes.max(*taken);
        self.0.1.notify_one();
    }
}

fn carry(line: &Line, taken: &(Mutex<u64>, Condvar)) -> io::Result<()> {
    let mut from = io::stdin();
    let mut buffer = vec![0; PIECE];
    let mut sent = 0u64;
    loop {
        {
            let mut now = taken.0.lock().unwrap_or_else(PoisonError::into_inner);
            while sent.saturating_sub(*now) >= WINDOW {
                now = taken.1.wait(now).unwrap_or_else(PoisonError::into_inner);
            }
            // Nobody wants any more.
            if *now == u64::MAX {
                return Ok(());
            }
        }
        while from.is_terminal() && !is_ours() {
            std::thread::sleep(LOOK);
        }
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        sent += read as u64;
        if !line.ask(&Ask::Stdin(buffer[..read].to_vec())) {
            return Ok(());
        }
    }
}

fn is_ours() -> bool {
    Terminal::open().is_none_or(|t| t.foreground() == job::group(0))
}
