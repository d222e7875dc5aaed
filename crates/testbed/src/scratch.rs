//! A directory for what a demo or a benchmark writes.

use crate::error::{Context, Result};
use std::path::PathBuf;

/// Gone at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// `name` is one that nobody else uses at the time.
    pub fn make(name: &str) -> Result<Scratch> {
        let dir = std::env::temp_dir().join(format!("pando-{name}"));
        std::fs::create_dir(&dir).at("create", &dir)?;
        Ok(Scratch(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
