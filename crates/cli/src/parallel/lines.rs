//! Lines of input, of which each becomes a task.

use super::map::Event;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Sender, SyncSender};

/// The kernel takes no longer word (MAX_ARG_STRLEN).
const LONGEST_LINE: usize = (128 << 10) - 1;

/// Reads them to their end, which is told; a line is told of when it is in the queue.
pub fn read(input: impl Read, zero: bool, gives: &SyncSender<OsString>, tell: &Sender<Event>) {
    let mut input = BufReader::new(input);
    let end = if zero { 0 } else { b'\n' };
    loop {
        let mut line = Vec::new();
        match input.read_until(end, &mut line) {
            Ok(0) => break,
            Ok(_) => {
                if line.last() == Some(&end) {
                    line.pop();
                }
                let wrong = match () {
                    () if line.contains(&0) => "has a zero byte: see --null",
                    () if line.len() > LONGEST_LINE => "is longer than a program's argument may be (128 KB)",
                    () => "",
                };
                if !wrong.is_empty() {
                    let start: String = String::from_utf8_lossy(&line).chars().take(20).collect();
                    let _ = tell.send(Event::Failed(format!("a line of the input {wrong} (it begins with {start:?})")));
                    break;
                }
                let word = OsStr::from_bytes(&line).to_owned();
                if gives.send(word).is_err() || tell.send(Event::Line).is_err() {
                    return;
                }
            }
            Err(e) => {
                let _ = tell.send(Event::Failed(format!("the input: {e}")));
                break;
            }
        }
    }
    let _ = tell.send(Event::NoMoreLines);
}
