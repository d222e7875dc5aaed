//! What one launcher leaves behind is not the next one's: Slurm's daemons tidy up for half a second after `srun` has ended.

use crate::bench::fabric;
use crate::error::{Context, Error, Result};
use std::path::Path;
use std::time::{Duration, Instant};

/// The machine is looked at for so long: a few ticks of its clock for each CPU.
const LOOK: Duration = Duration::from_millis(60);
/// Looks in a row that see it idle.
const LOOKS: usize = 2;
/// So much of its CPUs is idle then. Daemons at rest take a part of the others.
const IDLE: f64 = 0.7;
/// Nobody tidies up for longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits before each run of a series until the machine is calm. One that has other work is not waited for again.
#[derive(Default)]
pub struct Calm {
    never: bool,
}

impl Calm {
    /// Until it is calm.
    pub fn wait(&mut self) -> Result<()> {
        let (begun, mut calm) = (Instant::now(), 0);
        while !self.never && calm < LOOKS {
            let before = Times::now()?;
            fabric::pass(LOOK)?;
            calm = if Times::now()?.idle_since(&before) >= IDLE { calm + 1 } else { 0 };
            self.never = begun.elapsed() > PATIENCE;
        }
        Ok(())
    }
}

/// Of all CPUs, in ticks (proc(5), /proc/stat).
#[derive(Debug, PartialEq)]
struct Times {
    idle: u64,
    all: u64,
}

impl Times {
    fn now() -> Result<Times> {
        let path = Path::new("/proc/stat");
        Times::read(&std::fs::read_to_string(path).at("read", path)?)
            .ok_or_else(|| Error::Other("/proc/stat has no line `cpu`".into()))
    }

    /// user, nice, system, idle, waiting for a disk (which is idle), interrupts, soft interrupts, stolen; the guests' after them are in
    /// user's and nice's already.
    fn read(text: &str) -> Option<Times> {
        let words = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = words.take(8).map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
        Some(Times { idle: ticks.get(3)? + ticks.get(4)?, all: ticks.iter().sum() })
    }

    fn idle_since(&self, before: &Times) -> f64 {
        // The kernel's idle times may go back by a tick.
        let all = self.all.saturating_sub(before.all).max(1);
        self.idle.saturating_sub(before.idle) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_that_is_idle() {
        let text = "cpu  100 0 50 800 50 0 0 0 70 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let before = Times::read(text).unwrap();
        assert_eq!(before, Times { idle: 850, all: 1000 });
        let later = Times::read("cpu  104 0 52 806 52 0 0 2 70 0\n").unwrap();
        assert_eq!(later.idle_since(&before), 8.0 / 16.0);
        assert_eq!(before.idle_since(&later), 0.0);
        assert!(Times::read("intr 5\n").is_none() && Times::read("cpu  1 2 3\n").is_none());
    }
}
