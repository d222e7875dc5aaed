//! Events on disk: `events.jsonl` in the state directory, one JSON object a line, and the file before it. It is our own, but a crash may
//! tear its last line and anybody who is root may edit it: what can't be read is passed over.

use super::KEPT;
use crate::views::Event;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that has grown beyond this becomes the one before, and the one before that is gone.
const LARGEST: u64 = 1 << 20;
/// Bytes that are read of a file, from its end: whatever lies there can't fill our memory.
const MOST_READ: u64 = 2 * LARGEST;
/// Numbers above are no numbers of ours; there must be room to count on.
const LAST_NUMBER: u64 = 1 << 53;

/// The file that is written.
pub struct Journal {
    path: PathBuf,
    file: Option<File>,
    size: u64,
    /// A line may have been written in part: the next one begins anew.
    torn: bool,
    /// That it can't be written has been said.
    complained: bool,
}

impl Journal {
    /// The latest events that are written down, oldest first. A file that can't be had costs the events, not the daemon.
    pub fn open(state: &Path) -> (Journal, Vec<Event>) {
        let path = state.join("events.jsonl");
        let mut events = events(&tail(&before(&path)));
        let now = tail(&path);
        events.extend(self::events(&now));
        let mut last = 0;
        events.retain(|e| {
            let grows = e.seq > last && e.seq < LAST_NUMBER;
            last = if grows { e.seq } else { last };
            grows
        });
        events.drain(..events.len().saturating_sub(KEPT));
        let torn = now.last().is_some_and(|b| *b != b'\n');
        let mut journal = Journal { path, file: None, size: 0, torn, complained: false };
        journal.begin();
        (journal, events)
    }

    fn begin(&mut self) {
        let opened = File::options().create(true).append(true).mode(0o600).open(&self.path);
        match opened.and_then(|f| Ok((f.metadata()?.len(), f))) {
            Ok((size, file)) => (self.size, self.file) = (size, Some(file)),
            Err(e) => self.complain(&e),
        }
    }

    fn complain(&mut self, e: &std::io::Error) {
        if !std::mem::replace(&mut self.complained, true) {
            tracing::error!("{} can't be written, events will not survive this daemon: {e}", self.path.display());
        }
    }

    /// Adds one.
    pub fn add(&mut self, event: &Event) {
        if self.size > LARGEST {
            if let Err(e) = fs::rename(&self.path, before(&self.path)) {
                self.complain(&e);
                return;
            }
            self.torn = false;
            self.begin();
        }
        let mut line = if self.torn { vec![b'\n'] } else { Vec::new() };
        line.extend(serde_json::to_vec(event).unwrap_or_default());
        line.push(b'\n');
        let Some(file) = &mut self.file else { return };
        let written = file.write_all(&line);
        self.size += line.len() as u64;
        self.torn = written.is_err();
        match written {
            Ok(()) => self.complained = false,
            Err(e) => self.complain(&e),
        }
    }
}

fn before(path: &Path) -> PathBuf {
    path.with_extension("jsonl.1")
}

/// The end of a file; empty if it can't be read.
fn tail(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(MOST_READ)))?;
        file.take(MOST_READ).read_to_end(&mut bytes)
    });
    if read.as_ref().is_err_and(|e| e.kind() != std::io::ErrorKind::NotFound) {
        tracing::warn!("{} can't be read: {:?}", path.display(), read.err());
    }
    bytes
}

/// Those lines that are events.
fn events(bytes: &[u8]) -> Vec<Event> {
    bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own, gone at the end.
    struct State(PathBuf);

    impl State {
        fn new(name: &str) -> State {
            let dir = std::env::temp_dir().join(format!("pando-journal-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).unwrap();
            State(dir)
        }

        fn numbers(&self) -> Vec<u64> {
            Journal::open(&self.0).1.iter().map(|e| e.seq).collect()
        }

        fn file(&self) -> PathBuf {
            self.0.join("events.jsonl")
        }
    }

    impl Drop for State {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn event(seq: u64, text: &str) -> Event {
        Event { seq, ..Event::new("node", text) }
    }

    #[test]
    fn a_torn_last_line_costs_that_line_only() {
        let state = State::new("torn");
        let (mut journal, none) = Journal::open(&state.0);
        assert!(none.is_empty());
        (1..=3).for_each(|n| journal.add(&event(n, "x")));
        let whole = fs::read(state.file()).unwrap();
        for cut in 0..whole.len() {
            fs::write(state.file(), &whole[..cut]).unwrap();
            let (mut journal, kept) = Journal::open(&state.0);
            assert!(kept.len() <= 3);
            let next = kept.last().map_or(1, |e| e.seq + 1);
            journal.add(&event(next, "after"));
            let numbers = state.numbers();
            assert_eq!(numbers.len(), kept.len() + 1, "cut at {cut}");
            assert_eq!(numbers.last(), Some(&next));
        }
    }

    #[test]
    fn what_is_no_event_of_ours_is_passed_over() {
        let state = State::new("strange");
        let mut text = Vec::new();
        for line in ["null", "{\"seq\":1}", "\u{0}", "[[[[", "{\"seq\":-1,\"kind\":\"x\"}"] {
            text.extend(line.bytes().chain([b'\n']));
        }
        for seq in [5, 5, 4, 6, u64::MAX, LAST_NUMBER, 7] {
            text.extend(serde_json::to_vec(&event(seq, "x")).unwrap());
            text.push(b'\n');
        }
        text.extend([0xff, 0xfe, b'\n']);
        fs::write(state.file(), text).unwrap();
        assert_eq!(state.numbers(), [5, 6, 7]);
    }

    #[test]
    fn no_bytes_are_too_strange() {
        bolero::check!().for_each(|bytes: &[u8]| drop(events(bytes)));
    }

    #[test]
    fn it_stays_small_and_the_latest_are_kept() {
        let state = State::new("large");
        let (mut journal, _) = Journal::open(&state.0);
        let text = "x".repeat(900);
        (1..=5000).for_each(|n| journal.add(&event(n, &text)));
        let sizes = fs::read_dir(&state.0).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
        assert!(sizes.sum::<u64>() <= 2 * LARGEST + 4096);
        let numbers = state.numbers();
        assert_eq!((numbers.len(), numbers.first(), numbers.last()), (KEPT, Some(&4001), Some(&5000)));
    }
}
