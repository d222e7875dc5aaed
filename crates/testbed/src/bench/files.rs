//! Files at home that are read abroad: one after the other, a second time, here and there.

use super::program::Program;
use crate::demo::report::median;
use crate::error::{Context, Error, Result};
use crate::place::Plan;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// What a reader sees: bytes a second, and the time of a read of 4 KB here or there.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Reader {
    /// All of it for the first time, by 1 MB.
    pub first: f64,
    /// Once more, after lseek, by 1 MB.
    pub again: f64,
    /// Opened again, by 1 MB.
    pub reopened: f64,
    /// Once more by 64 KB.
    pub again_small: f64,
    /// 4 KB here and there in what has been read already, microseconds (median).
    pub random_known_us: f64,
    /// The same in a file that has not been read before.
    pub random_new_us: f64,
}

/// The same reads at home and abroad.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Files {
    /// Size of the file that is read from end to end, bytes.
    pub bytes: u64,
    /// At home, all of it in the page cache.
    pub home: Reader,
    /// Abroad.
    pub away: Reader,
}

/// Reads here and there.
const READS: u64 = 2000;
/// Of a file that is too large to be fetched whole after a few of them.
const LARGE: u64 = 64 << 20;

/// The measurement.
pub fn measure(plan: &Plan, bytes: u64) -> Result<Files> {
    let bytes = bytes.next_multiple_of(1 << 20);
    let dir = plan.node_dir("n1");
    let (one, other) = (dir.join("bench-read"), dir.join("bench-read-random"));
    let measured = create(&one, bytes).and_then(|()| create(&other, LARGE)).and_then(|()| {
        let mut probe = Program::at(plan, "n1", &[crate::PROBE])?;
        let question = format!("read {} {}", one.display(), other.display());
        let mut ask = || -> Result<Reader> {
            let answer = probe.ask(&question)?;
            serde_json::from_value(answer).map_err(|e| Error::Other(e.to_string()))
        };
        // The first time brings it into the page cache.
        ask()?;
        let home = ask()?;
        super::measure::go_away(plan, probe.pid())?;
        let mut ask = || -> Result<Reader> {
            let answer = probe.ask(&question)?;
            serde_json::from_value(answer).map_err(|e| Error::Other(e.to_string()))
        };
        Ok(Files { bytes, home, away: ask()? })
    });
    for path in [one, other] {
        drop(std::fs::remove_file(path));
    }
    measured
}

fn create(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path).at("create", path)?;
    let block: Vec<u8> = (0..1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    (0..bytes >> 20).try_for_each(|_| file.write_all(&block)).at("write", path)
}

/// The probe's part: reads, and says how it was.
pub fn read(one: &str, other: &str) -> Result<serde_json::Value> {
    let mut large = vec![1; 1 << 20];
    let mut file = File::open(one).context("open a file")?;
    let bytes = file.metadata().context("look at a file")?.len();
    let first = through(&mut file, &mut large)?;
    let again = through(&mut file, &mut large)?;
    drop(file);
    let mut file = File::open(one).context("open a file")?;
    let reopened = through(&mut file, &mut large)?;
    let again_small = through(&mut file, &mut large[..64 << 10])?;
    let random_known_us = here_and_there(&file, bytes)?;
    let random_new_us = here_and_there(&File::open(other).context("open a file")?, LARGE)?;
    let reader = Reader { first, again, reopened, again_small, random_known_us, random_new_us };
    serde_json::to_value(reader).map_err(|e| Error::Other(e.to_string()))
}

/// Reads all of it; bytes a second.
fn through(file: &mut File, buffer: &mut [u8]) -> Result<f64> {
    file.seek(SeekFrom::Start(0)).context("seek")?;
    let (start, mut total) = (Instant::now(), 0);
    loop {
        match file.read(buffer).context("read")? {
            0 => return Ok(total as f64 / start.elapsed().as_secs_f64().max(1e-9)),
            got => total += got,
        }
    }
}

fn here_and_there(file: &File, bytes: u64) -> Result<f64> {
    let mut block = [0; 4096];
    let mut took = Vec::new();
    for i in 0..READS.min(bytes >> 12) {
        let page = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (bytes >> 12);
        let before = Instant::now();
        file.read_exact_at(&mut block, page << 12).context("read")?;
        took.push(before.elapsed().as_nanos() as u64);
    }
    Ok(median(&mut took).unwrap_or(0) as f64 / 1000.0)
}
