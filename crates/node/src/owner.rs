//! Whose process is it? Read from `/proc`, by the daemon, never believed from a request.

use crate::views::Process;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Who asks: what the kernel says about the other end of a local socket.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Process, as the daemon's pid namespace sees it; 0 when it does not.
    pub pid: u32,
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "uid {} (pid {})", self.uid, self.pid)
    }
}

/// What `/proc` says about a process.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Real, effective, saved and file-system user.
    pub uids: [u32; 4],
    /// Field 22 of `stat`: tells a reused pid.
    pub start_time: u64,
    /// Command line, or the name in brackets.
    pub command: String,
    /// It has ended, with all its threads, and waits for its parent.
    pub zombie: bool,
    /// Job control holds it.
    pub stopped: bool,
}

/// Longest command line that is kept, in characters.
const MAX_COMMAND: usize = 200;
/// Longest sentence of someone else that goes into the log.
const MAX_SENTENCE: usize = 1000;

impl Facts {
    /// Of a process that there is only in a test.
    #[cfg(test)]
    pub fn of_test(command: &str) -> Facts {
        Facts { uids: [0; 4], start_time: 0, command: command.into(), zombie: false, stopped: false }
    }

    /// Reads them; the error is a sentence.
    pub fn read(pid: u32) -> Result<Self, String> {
        let gone = |_| format!("there is no process {pid} here: `ps` shows the processes of this machine");
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(gone)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(gone)?;
        let strange = || format!("/proc/{pid} can't be understood");
        let line = status.lines().find_map(|l| l.strip_prefix("Uid:")).ok_or_else(strange)?;
        let uids: Vec<u32> = line.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        let rest = stat.rsplit_once(')').ok_or_else(strange)?.1;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let start = fields.get(19).and_then(|f| f.parse().ok()).ok_or_else(strange)?;
        let threads = status.lines().find_map(|l| l.strip_prefix("Threads:")?.trim().parse::<u32>().ok());
        let name = stat.split_once('(').map_or("", |(_, r)| r.rsplit_once(')').map_or("", |(n, _)| n));
        Ok(Facts {
            uids: uids.try_into().map_err(|_| strange())?,
            start_time: start,
            command: command(pid).unwrap_or_else(|| format!("[{name}]")),
            zombie: fields.first() == Some(&"Z") && threads == Some(1),
            stopped: fields.first() == Some(&"T"),
        })
    }

    /// What is shown of a process that was never moved.
    pub fn at_home(self, pid: u32, me: &str) -> Process {
        Process {
            pid,
            uid: self.uids[0],
            home: me.to_owned(),
            place: me.to_owned(),
            phase: "home".into(),
            role: "home".into(),
            command: self.command,
            stopped: self.stopped,
            ..Process::default()
        }
    }

    /// The one user whose rights it has; none if it has those of several.
    pub fn owner(&self) -> Option<u32> {
        self.uids.iter().all(|u| *u == self.uids[0]).then_some(self.uids[0])
    }

    /// Whose it is, the beginning of a sentence.
    pub fn belongs(&self, pid: u32) -> String {
        match self.owner() {
            Some(uid) => format!("process {pid} belongs to uid {uid}"),
            None => pando_migrate::inspect::of_several_users(pid, &self.uids),
        }
    }

    /// Only root and the one whose process it is in every respect: a set-user-id program is not its caller's.
    pub fn permits(&self, caller: Caller) -> bool {
        caller.uid == 0 || self.owner() == Some(caller.uid)
    }
}

/// Whether the process that began at `start_time` still lives.
pub fn lives(pid: u32, start_time: u64) -> bool {
    Facts::read(pid).is_ok_and(|f| f.start_time == start_time && !f.zombie)
}

/// Whether any process has this pid and is not a zombie.
pub fn exists(pid: u32) -> bool {
    Facts::read(pid).is_ok_and(|f| !f.zombie)
}

/// Is it a daemon, a helper or a testbed's holder? Known by the program's hidden words and by the program itself.
pub fn is_pandos(pid: u32) -> bool {
    const WORDS: [&[u8]; 5] = [b"__deputy", b"__guest", b"__starter", b"__testbed-holder", b"node"];
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let word = text.split(|b| *b == 0).nth(1).unwrap_or_default();
    let file = |who: &str| fs::metadata(format!("/proc/{who}/exe")).map(|m| (m.dev(), m.ino())).ok();
    WORDS.contains(&word) && file(&pid.to_string()).is_some_and(|theirs| file("self") == Some(theirs))
}

/// Is it the helper of a guest, of this node or another one that runs the same program?
pub fn is_guest_helper(pid: u32) -> bool {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.split(|b| *b == 0).nth(1) == Some(b"__guest")
}

fn command(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|b| !b.is_empty())?;
    let text = clean(&String::from_utf8_lossy(&bytes).replace('\0', " "));
    Some(text.chars().take(MAX_COMMAND).collect())
}

/// Fit for a log or a terminal: no control characters, not long.
pub fn clean(text: &str) -> String {
    let printable = |c: char| match c {
        '\n' | '\t' => ' ',
        c if c.is_control() => '?',
        c => c,
    };
    text.trim().chars().take(MAX_SENTENCE).map(printable).collect()
}
