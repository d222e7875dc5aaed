//! How much there is in a directory, where the file system does not say it: all that is below is looked at, in a thread of its own and not too often.

use pando_kernel::beneath;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two counts, and so many times as long as the last one took.
const PAUSE: Duration = Duration::from_secs(1);
const REST: u32 = 10;
/// The last one of a job takes no longer.
const LAST: Duration = Duration::from_secs(2);
/// Nor does any other.
const LONGEST: Duration = Duration::from_secs(60);
/// Files with several names that are remembered.
const MOST_LINKED: usize = 1 << 20;

/// What was counted last, and what is being counted.
#[derive(Default)]
pub struct Counts {
    last: u64,
    runs: Option<JoinHandle<(u64, Duration)>>,
    next: Option<Instant>,
}

impl Counts {
    /// As it was found last. Begins another count when it is time.
    pub fn look(&mut self, dir: &Path) -> u64 {
        if let Some(runs) = self.runs.take_if(|runs| runs.is_finished()) {
            let (found, took) = runs.join().unwrap_or_default();
            self.last = found;
            self.next = Some(Instant::now() + PAUSE.max(took * REST));
        }
        if self.runs.is_none() && self.next.is_none_or(|at| Instant::now() >= at) {
            let dir = dir.to_owned();
            let count = move || {
                let begun = Instant::now();
                (bytes(&dir, LONGEST).unwrap_or(0), begun.elapsed())
            };
            self.runs = std::thread::Builder::new().name("pando-counts".into()).spawn(count).ok();
        }
        self.last
    }

    /// As it is now, if that is found out soon.
    pub fn finish(&mut self, dir: &Path) -> u64 {
        bytes(dir, LAST).unwrap_or(0).max(self.last)
    }
}

/// Bytes that all below a directory takes of its file system; fewer, where that is not found out in this time. No link is followed, whatever is done
/// there meanwhile.
pub fn bytes(dir: &Path, within: Duration) -> io::Result<u64> {
    let until = Instant::now() + within;
    let top = super::open(dir)?;
    let device = top.metadata()?.dev();
    let (mut sum, mut linked) = (top.metadata()?.blocks() * 512, BTreeSet::new());
    let mut dirs = vec![PathBuf::from(".")];
    while let Some(path) = dirs.pop() {
        // It may be gone.
        let Ok(open) = beneath::directory(&top, &path) else { continue };
        for entry in entries(&open)?.flatten() {
            let Ok(about) = entry.metadata() else { continue };
            if about.dev() != device {
                continue;
            }
            if about.is_dir() {
                dirs.push(path.join(entry.file_name()));
            } else if about.nlink() > 1 && (linked.len() >= MOST_LINKED || !linked.insert(about.ino())) {
                continue;
            }
            sum += about.blocks() * 512;
            if Instant::now() >= until {
                return Ok(sum);
            }
        }
    }
    Ok(sum)
}

/// A path to what is open, whatever is called so now.
pub fn path_of(open: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// What is in it.
pub fn entries(open: &File) -> io::Result<fs::ReadDir> {
    fs::read_dir(path_of(open))
}

/// Megabytes that are free in a directory's file system for those who are not root.
pub fn free_mb(dir: &Path) -> io::Result<u64> {
    pando_kernel::space::free(&File::open(dir)?).map(|bytes| bytes >> 20)
}
