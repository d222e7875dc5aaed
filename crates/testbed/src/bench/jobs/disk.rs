//! How often a second the disk stores something for good: what a journal that stores one thing after the other can't exceed.

use crate::error::{Context, Result};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// For so long.
const TIME: Duration = Duration::from_secs(1);

/// Pages appended to a file in `dir` and stored (`fdatasync`), a second.
pub fn stores(dir: &Path) -> Result<f64> {
    let path = dir.join("disk");
    let mut file = std::fs::File::create_new(&path).at("create", &path)?;
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < TIME {
        file.write_all(&[0x5a; 4096]).and_then(|()| file.sync_data()).at("write to", &path)?;
        count += 1;
    }
    let rate = f64::from(count) / begun.elapsed().as_secs_f64();
    std::fs::remove_file(&path).at("remove", &path)?;
    Ok(rate)
}
