//! Who did what and why it was allowed or refused: `audit.log`, one JSON object a line.

use crate::events::now_ms;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// One line.
#[derive(Serialize)]
pub struct Entry<'a> {
    /// `uid 1000 (pid 17)` or an address.
    pub who: String,
    /// The verb: `move`, `token`, `join`, ...
    pub what: &'a str,
    /// What it was done to.
    pub on: String,
    /// Whether it was allowed.
    pub allowed: bool,
    /// Why it was asked, or why refused.
    pub why: String,
}

/// The log.
pub struct Audit(Mutex<File>);

impl Audit {
    /// Opens it for appending.
    pub fn open(state: &Path) -> std::io::Result<Self> {
        let file = File::options().create(true).append(true).mode(0o600).open(state.join("audit.log"))?;
        Ok(Audit(Mutex::new(file)))
    }

    /// Adds a line.
    pub fn note(&self, entry: &Entry<'_>) {
        #[derive(Serialize)]
        struct Line<'a> {
            time_ms: u64,
            #[serde(flatten)]
            entry: &'a Entry<'a>,
        }
        let mut line = serde_json::to_vec(&Line { time_ms: now_ms(), entry }).unwrap_or_default();
        line.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One write, so that lines of two daemons over one file never mix.
        if let Err(e) = file.write_all(&line) {
            tracing::error!("audit.log can't be written: {e}");
        }
    }
}
