//! What batch jobs have written: files at their first nodes, read there with the rights of the job's user and no others, piece by piece.

use super::ask::{From, Piece};
use super::batch;
use super::clerk::Desk;
use super::deliver;
use super::errand::{Errand, Key};
use super::journal::{Journal, Search};
use super::shown;
use crate::batch_job::files::{self, Names};
use crate::daemon::Node;
use crate::jobs::member;
use crate::sys::effective_uid;
use pando_kernel::beneath;
use pando_kernel::rank::{self, User};
use pando_queue::{Bytes, Files, Id, Queue, State};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Most bytes of one piece.
const PIECE: u64 = 128 << 10;
/// Lines are looked for in so many bytes before the end.
const MOST_BACK: u64 = 16 << 20;
/// Longest wait for more.
const PATIENCE: Duration = Duration::from_secs(10);
/// A file is looked at so often for more.
const LOOK: Duration = Duration::from_millis(100);

/// So begins what is said where the node of a job has no answer. Whoever follows the job asks again.
pub const AWAY: &str = "the job's node can't be asked";

/// What is to be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// Of this run.
    pub key: Key,
    /// Its own number; 0, if it is not known.
    pub number: u64,
    /// What people call it.
    pub name: String,
    /// Whose it is.
    pub user: String,
    /// Where it runs.
    pub directory: Bytes,
    /// Its files.
    pub files: Files,
    /// Its errors.
    pub error: bool,
    /// From where.
    pub from: From,
    /// If there is nothing yet.
    pub patience_ms: u64,
}

/// What was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bit {
    /// The bytes.
    pub bytes: Bytes,
    /// Where they begin.
    pub at: u64,
}

/// What the queue's node knows of what is asked for.
pub struct Found {
    /// Where, and what; none: it has not begun.
    pub wanted: Option<(String, Wanted)>,
    /// Its end.
    pub end: Option<(State, i32)>,
    /// What it waits for.
    pub reason: String,
}

/// Looks for a task in the queue or, where that has forgotten it, in the history; and for whose it is. The error is for people.
pub fn find(queue: &Queue, journal: &Journal, keeper: String, id: Id) -> Result<(String, Found), String> {
    let none = || format!("there is no job {id} in the queue or the history");
    let job = queue.job(id.job);
    if job.is_some_and(|job| job.is_array() && id.task.is_none()) {
        return Err(of_many(id, first_task(queue, id)));
    }
    let old = journal.history(&Search { job: Some(id.job), task: id.task, most: u32::MAX, ..Search::default() });
    let old = old.map_err(|e| e.to_string())?;
    if let Some(task) = old.first().and_then(|old| old.outcome.id.task).filter(|_| id.task.is_none()) {
        return Err(of_many(id, task));
    }
    let past = old.into_iter().rev();
    // Those that never began have no nodes.
    let past = past.into_iter().find(|old| old.outcome.id == id && !old.outcome.run.shares.is_empty());
    let task = id.task.unwrap_or(0);
    // Its files are made just before it begins.
    let run = job.and_then(|job| job.running.get(&task)).filter(|run| run.began.is_some());
    let (user, name, directory, files) = match (job, &past) {
        (Some(job), _) => (&job.spec.user, &job.spec.name, &job.spec.directory, &job.spec.files),
        (None, Some(old)) => (&old.user, &old.name, &old.outcome.directory, &old.outcome.files),
        (None, None) => return Err(none()),
    };
    let run = run.or(past.as_ref().map(|old| &old.outcome.run));
    let past_number = past.as_ref().map_or(0, |old| old.outcome.asked.number);
    let number = job.map_or(past_number, |job| job.number_of(task));
    let place = run.and_then(|run| run.shares.first().map(|share| (share.node.clone(), run.run)));
    let wanted = place.map(|(node, run)| {
        let key = Key { keeper, id, run };
        let (name, user, directory, files) = (name.clone(), user.clone(), directory.clone(), files.clone());
        (node, Wanted { key, number, name, user, directory, files, error: false, from: From::Byte(0), patience_ms: 0 })
    });
    let found = Found { wanted, end: shown::end(queue, journal, id)?, reason: queue.reason(id) };
    Ok((user.clone(), found))
}

fn of_many(id: Id, task: u32) -> String {
    format!("job {id} is an array: say which of its tasks, like {id}_{task}")
}

fn first_task(queue: &Queue, id: Id) -> u32 {
    let array = queue.job(id.job).and_then(|job| job.spec.array.as_ref());
    array.and_then(|array| array.tasks.first()).unwrap_or(0)
}

/// Reads where it was written.
pub async fn fetch(node: &Arc<Node>, desk: &Desk, found: Found, ask: (bool, From, u64)) -> Result<Piece, String> {
    let Found { wanted, end, reason } = found;
    let (error, from, patience_ms) = ask;
    let nothing = |run| Piece { run, bytes: Bytes::default(), at: 0, end, reason: reason.clone() };
    let Some((to, wanted)) = wanted else { return Ok(nothing(None)) };
    let run = wanted.key.run;
    // What is over writes nothing more.
    let patience_ms = if end.is_some() { 0 } else { patience_ms };
    let wanted = Wanted { error, from, patience_ms, ..wanted };
    let sent = deliver::order(node, desk, &to, &Errand::Read(Box::new(wanted))).await;
    let text = sent.map_err(|failure| match failure.refused {
        true => failure.why,
        // Its daemon may be there again in a moment, and the job goes on without.
        false => format!("{AWAY}: {}", failure.why),
    })?;
    let bit: Bit = serde_json::from_slice(&text).map_err(|e| format!("node {to}: {e}"))?;
    Ok(Piece { bytes: bit.bytes, at: bit.at, ..nothing(Some(run)) })
}

/// Whose rights the reader gets; none: ours, and we have no others. The error is for people.
fn reader(node: &Node, user: &str, peer: &str) -> Result<Option<User>, String> {
    if peer != node.name() {
        member::serves(node, peer, user)?;
    }
    let found = tokio::task::block_in_place(|| node.jobs.user(user));
    let (uid, gid, groups) = found.ok_or_else(|| format!("node {}: there is no user {user}", node.name()))?;
    match effective_uid() {
        0 => Ok(Some(User { uid, gid, groups })),
        me if me == uid => Ok(None),
        _ => Err(format!("node {} runs in personal mode, and not for {user}", node.name())),
    }
}

/// Some of a file here, with the rights of the job's user.
pub async fn read(node: &Arc<Node>, wanted: &Wanted, peer: &str) -> Result<Bit, String> {
    let here = node.name();
    let user = reader(node, &wanted.user, peer)?;
    let names = Names { id: wanted.key.id, number: wanted.number, name: &wanted.name, user: &wanted.user, node: &here };
    let directory = PathBuf::from(OsStr::from_bytes(&wanted.directory.0));
    let pattern = files::pattern(&wanted.files, wanted.key.id, wanted.error);
    let path = directory.join(OsStr::from_bytes(&files::filled(pattern, &names)));
    let why = |e: io::Error| format!("node {here}: {} can't be read: {e}", path.display());
    let open = || {
        // What is no file (a FIFO, a device) is not waited for; nor are this daemon's own files had by way of /proc/self/fd.
        beneath::open_plainly(&path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY)
    };
    let file = tokio::task::block_in_place(|| rank::as_whole_user(user.as_ref(), open)).map_err(why)?;
    if !file.metadata().map_err(why)?.is_file() {
        return Err(format!("node {here}: {} is no file, and nobody has kept what was written there", path.display()));
    }
    let until = Instant::now() + PATIENCE.min(Duration::from_millis(wanted.patience_ms));
    let mut at = match wanted.from {
        From::Byte(at) => at,
        From::Lines(lines) => tokio::task::block_in_place(|| before(&file, lines)).map_err(why)?,
    };
    loop {
        // Before the look at the file: what was written before it ended is seen.
        let is_over = !batch::is_here(node, &wanted.key);
        let (bytes, begin) = tokio::task::block_in_place(|| some(&file, at)).map_err(why)?;
        // What was begun anew may be longer by the next look: its beginning is still to be read.
        at = begin;
        if !bytes.is_empty() || is_over || Instant::now() >= until {
            return Ok(Bit { bytes: Bytes(bytes), at });
        }
        sleep(LOOK).await;
    }
}

/// From there; from the beginning, if it has been begun anew since.
fn some(file: &File, at: u64) -> io::Result<(Vec<u8>, u64)> {
    let size = file.metadata()?.len();
    let at = if at > size { 0 } else { at };
    let mut bytes = vec![0; PIECE.min(size - at) as usize];
    let read = file.read_at(&mut bytes, at)?;
    bytes.truncate(read);
    Ok((bytes, at))
}

/// Where the last so many lines begin, as tail(1) counts them: one that has no end yet is one.
fn before(file: &File, lines: u64) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let (mut at, mut left) = (size, lines);
    let mut block = vec![0; PIECE as usize];
    if lines == 0 {
        return Ok(size);
    }
    while at > size.saturating_sub(MOST_BACK) {
        let length = PIECE.min(at) as usize;
        let read = file.read_at(&mut block[..length], at - length as u64)?;
        let begin = at - length as u64;
        for i in (0..read).rev().filter(|i| block[*i] == b'\n') {
            let after = begin + i as u64 + 1;
            if after == size {
                continue;
            }
            left -= 1;
            if left == 0 {
                return Ok(after);
            }
        }
        at = begin;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_last_lines() {
        let path = std::env::temp_dir().join(format!("pando-logs-{}", std::process::id()));
        let mut writer = File::create(&path).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(before(&file, 3).unwrap(), 0);
        writer.write_all(b"a\nb\nc\n").unwrap();
        assert_eq!([0, 1, 2, 3, 9].map(|n| before(&file, n).unwrap()), [6, 4, 2, 0, 0]);
        writer.write_all(b"d").unwrap();
        assert_eq!([0, 1, 2, 9].map(|n| before(&file, n).unwrap()), [7, 6, 4, 0]);
        writer.write_all(&vec![b'x'; 2 * PIECE as usize]).unwrap();
        writer.write_all(b"\ne\n").unwrap();
        let end = file.metadata().unwrap().len();
        assert_eq!([1, 2, 3].map(|n| before(&file, n).unwrap()), [end - 2, 6, 4]);
        assert_eq!(some(&file, 6).unwrap(), ([b"d".as_slice(), &vec![b'x'; PIECE as usize - 1]].concat(), 6));
        assert_eq!(some(&file, end + 1).unwrap().1, 0, "it was begun anew");
    }
}
