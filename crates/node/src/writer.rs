//! Writes the daemon's files beside all else: while a disk has other work, a small file can take seconds, and a node that waits for it looks dead
//! to all others.

use crate::place::replace_file;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// After a failure it is tried again within this time.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    /// What is to be in which file; of two the later one counts.
    due: BTreeMap<PathBuf, Vec<u8>>,
    ended: bool,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    news: Condvar,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until [`Writer::finish`].
    fn work(&self) {
        let mut failed: BTreeSet<PathBuf> = BTreeSet::new();
        let mut state = self.state();
        loop {
            let ended = state.ended;
            for (file, bytes) in std::mem::take(&mut state.due) {
                drop(state);
                let written = replace_file(&file, &bytes);
                state = self.state();
                match written {
                    Ok(()) => drop(failed.remove(&file)),
                    Err(e) => {
                        if failed.insert(file.clone()) {
                            tracing::error!("{} can't be written: {e}; it is tried again", file.display());
                        }
                        state.due.entry(file).or_insert(bytes);
                    }
                }
            }
            if ended {
                return;
            }
            // Said while a file was being written.
            let news = state.ended || state.due.keys().any(|file| !failed.contains(file));
            state = match (news, state.due.is_empty()) {
                (true, _) => state,
                (false, true) => self.news.wait(state).unwrap_or_else(PoisonError::into_inner),
                (false, false) => self.news.wait_timeout(state, AGAIN).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}

/// The one who writes.
pub struct Writer {
    desk: Arc<Desk>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Begins.
    pub fn start() -> std::io::Result<Arc<Writer>> {
        let desk = Arc::new(Desk::default());
        let works = desk.clone();
        let thread = std::thread::Builder::new().name("pando-writer".into()).spawn(move || works.work())?;
        Ok(Arc::new(Writer { desk, thread: Mutex::new(Some(thread)) }))
    }

    /// This is to be in that file, soon; a crash leaves what was there or what is to be.
    pub fn write(&self, file: &Path, bytes: Vec<u8>) {
        self.desk.state().due.insert(file.to_owned(), bytes);
        self.desk.news.notify_one();
    }

    /// Writes what is due, and nothing from then on.
    pub fn finish(&self) {
        self.desk.state().ended = true;
        self.desk.news.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|t| t.join().is_err()) {
            tracing::error!("the thread that writes files has failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_in_the_file_and_what_failed_is_tried_again() {
        let dir = std::env::temp_dir().join(format!("pando-writer-{}", std::process::id()));
        let (file, later) = (dir.join("a"), dir.join("there/later"));
        std::fs::create_dir_all(&dir).unwrap();
        let writer = Writer::start().unwrap();
        (0..100u32).for_each(|i| writer.write(&file, i.to_string().into_bytes()));
        // Its directory is not there yet.
        writer.write(&later, b"x".to_vec());
        std::fs::create_dir_all(dir.join("there")).unwrap();
        writer.finish();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "99");
        assert_eq!(std::fs::read_to_string(&later).unwrap(), "x");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
