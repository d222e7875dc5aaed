//! A guest stands still for a moment while this node is nearly out of memory (pando_balance's brake). Home knows nothing of it: to the
//! program it is as if others had the CPU.

use super::{Guest, Result};
use std::time::{Duration, Instant};

/// The daemon says it again and again; without it a guest goes on after this time at the latest.
const LONGEST: Duration = Duration::from_secs(15);

/// A guest that got a signal meanwhile is left alone for so long.
const RESTS: Duration = Duration::from_secs(10);

/// Whether it stands still.
#[derive(Debug, Default)]
pub(super) struct Still {
    until: Option<Instant>,
    /// When a signal ended it.
    signalled: Option<Instant>,
}

impl Still {
    /// It does.
    pub fn is_on(&self) -> bool {
        self.until.is_some()
    }
}

impl Guest {
    /// Nobody runs for so long; 0: all go on.
    pub(super) fn stand_still(&mut self, ms: u64) -> Result<()> {
        if ms == 0 {
            return self.stand_still_no_more();
        }
        if self.still.signalled.is_some_and(|when| when.elapsed() < RESTS) {
            return Ok(());
        }
        self.still.until = Some(Instant::now() + Duration::from_millis(ms).min(LONGEST));
        for tid in self.threads.which(|t| !t.stopped && !t.ending) {
            self.interrupt(tid)?;
        }
        Ok(())
    }

    /// A signal has come: whoever sends one does not wait until there is memory again.
    pub(super) fn signal_came(&mut self) -> Result<()> {
        if self.still.is_on() {
            self.still.signalled = Some(Instant::now());
        }
        self.stand_still_no_more()
    }

    /// All go on that have no other reason to stand still.
    pub(super) fn stand_still_no_more(&mut self) -> Result<()> {
        if self.still.until.take().is_some() {
            for tid in self.threads.which(|t| t.stopped) {
                self.go_on(tid)?;
            }
        }
        Ok(())
    }

    /// Goes on when its time is over.
    pub(super) fn watch_still(&mut self) -> Result<()> {
        match self.still.until.is_some_and(|until| until <= Instant::now()) {
            true => self.stand_still_no_more(),
            false => Ok(()),
        }
    }

    /// When [`Guest::watch_still`] has something to do.
    pub(super) fn still_for(&self) -> Duration {
        self.still.until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()))
    }
}
