//! A line for each task that has ended, as GNU parallel's --joblog has it: what was done is known after any end, and is not done again.

use pando_launch::Ending;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HEAD: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";
/// Longest line that is read.
const LONGEST: usize = 1 << 20;

/// Which of the tasks in a log are not run again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// There is no earlier log that counts.
    No,
    /// None of them.
    All,
    /// Those that ended well.
    Well,
}

/// The log.
pub struct Joblog {
    file: File,
    path: PathBuf,
}

/// A task that has ended.
pub struct Line<'a> {
    /// The number of its line of input, from 1.
    pub number: u64,
    /// Where it ran.
    pub node: &'a str,
    /// How long.
    pub took: Duration,
    /// Bytes that it wrote.
    pub wrote: u64,
    /// How it ended.
    pub how: Ending,
    /// What it was.
    pub command: &'a str,
}

impl Joblog {
    /// Begins one, or goes on with it; the numbers of those that need not be run. The error is for people.
    pub fn open(path: &Path, resume: Resume) -> Result<(Joblog, BTreeSet<u64>), String> {
        let make = || -> io::Result<(Joblog, BTreeSet<u64>)> {
            let mut options = OpenOptions::new();
            let file = options.read(true).append(true).create(true).open(path)?;
            let (mut done, mut kept) = (BTreeSet::new(), 0);
            if resume != Resume::No {
                (done, kept) = known(&file, resume)?;
            }
            // A line without an end is of nobody: what wrote it was ended in it. A device has no length.
            if file.metadata()?.is_file() {
                file.set_len(kept)?;
            }
            let mut log = Joblog { file, path: path.to_owned() };
            if kept == 0 {
                log.file.write_all(HEAD.as_bytes())?;
            }
            Ok((log, done))
        };
        make().map_err(|e| format!("--joblog {}: {e}", path.display()))
    }

    /// One more has ended. The error is for people.
    pub fn add(&mut self, line: &Line) -> Result<(), String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (begun, took) = (now.saturating_sub(line.took).as_secs_f64(), line.took.as_secs_f64());
        let (status, signal) = match line.how {
            Ending::Exit(status) => (i32::from(status), 0),
            Ending::Signal(number) => (0, i32::from(number)),
            // As GNU parallel has one that took too long.
            Ending::Late => (-1, libc::SIGTERM),
            Ending::OutOfMemory => (0, libc::SIGKILL),
            Ending::Early => (1, 0),
        };
        let (number, node, wrote, command) = (line.number, line.node, line.wrote, line.command);
        let text = format!("{number}\t{node}\t{begun:14.3}\t{took:10.3}\t0\t{wrote}\t{status}\t{signal}\t{command}\n");
        // In one write: whoever ends us leaves no half of it.
        self.file.write_all(text.as_bytes()).map_err(|e| format!("--joblog {}: {e}", self.path.display()))
    }
}

/// The numbers in a log, and how many bytes of it are whole lines.
fn known(file: &File, resume: Resume) -> io::Result<(BTreeSet<u64>, u64)> {
    let (mut done, mut whole) = (BTreeSet::new(), 0);
    let mut from = BufReader::new(file);
    loop {
        let mut line = Vec::new();
        let read = io::Read::take(&mut from, LONGEST as u64).read_until(b'\n', &mut line)?;
        if read == 0 || line.last() != Some(&b'\n') {
            return Ok((done, whole));
        }
        whole += read as u64;
        let text = String::from_utf8_lossy(&line);
        let fields: Vec<&str> = text.split('\t').collect();
        let Some(number) = fields[0].trim().parse().ok().filter(|_| fields.len() >= 9) else { continue };
        let well = fields[6].trim() == "0" && fields[7].trim() == "0";
        // Of one that was run again the last end counts.
        match well || resume == Resume::All {
            true => _ = done.insert(number),
            false => _ = done.remove(&number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_known_again_and_half_a_line_is_not() {
        let path = std::env::temp_dir().join(format!("pando-joblog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let add = |log: &mut Joblog, number, how| {
            let took = Duration::from_millis(1250);
            log.add(&Line { number, node: "n2", took, wrote: 5, how, command: "echo a" }).unwrap();
        };
        let (mut log, done) = Joblog::open(&path, Resume::All).unwrap();
        assert!(done.is_empty(), "there was none");
        add(&mut log, 1, Ending::Exit(0));
        add(&mut log, 2, Ending::Exit(3));
        add(&mut log, 4, Ending::Signal(9));
        add(&mut log, 5, Ending::Late);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split('\t').collect()).collect();
        assert_eq!(lines[0].join(" "), "Seq Host Starttime JobRuntime Send Receive Exitval Signal Command");
        assert_eq!(
            (lines[1][1], lines[1][3].trim(), &lines[1][4..]),
            ("n2", "1.250", &["0", "5", "0", "0", "echo a"][..])
        );
        assert_eq!((&lines[3][6..8], &lines[4][6..8]), (&["0", "9"][..], &["-1", "15"][..]));
        log.file.write_all(b"6\tn1\t1\t1\t0\t0\t0\t0\tec").unwrap();
        let all = |resume| Joblog::open(&path, resume).unwrap().1.into_iter().collect::<Vec<_>>();
        assert_eq!(all(Resume::All), [1, 2, 4, 5]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        add(&mut Joblog::open(&path, Resume::All).unwrap().0, 2, Ending::Exit(0));
        assert_eq!(all(Resume::Well), [1, 2]);
        assert_eq!(all(Resume::No), [] as [u64; 0]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), HEAD, "begun anew");
        std::fs::remove_file(&path).unwrap();
        assert!(Joblog::open(Path::new("/dev/full"), Resume::No).is_err_and(|e| e.contains("/dev/full")));
    }
}
