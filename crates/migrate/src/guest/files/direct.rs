//! Files on file systems that this node has, too: they are read here (docs/decisions/0019).
//!
//! Opening and reading may wait for a server: a thread does it, one after the other, which touches nothing else. What is in memory already is read at once.

use crate::guest::{Guest, GuestError, Result};
use crate::message::{MAX_NUMBERS, MAX_WAY, Shared, Up};
use pando_kernel::{beneath, clock, description, poll};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Most files that are open at a time.
const MOST: usize = 256;
/// Who root's processes are here: what only root may read is read at home.
const NOBODY: u32 = 65_534;

enum Job {
    /// Open the file below this directory, with the rights of this user; it must be the one that is described.
    Open(Box<Shared>, String, Option<u32>),
    /// Read so much for the held call.
    Read { call: u64, id: u64, file: Arc<File>, from: u64, len: usize },
}

enum Outcome {
    Opened(u64, io::Result<File>),
    Read { call: u64, id: u64, from: u64, bytes: io::Result<Vec<u8>> },
}

/// The thread that waits for servers.
#[derive(Debug)]
struct Worker {
    jobs: Sender<Job>,
    done: Receiver<Outcome>,
    /// Readable when something is done.
    wake: UnixStream,
}

/// A read that the thread makes, or has made.
#[derive(Debug)]
struct Pending {
    id: u64,
    from: u64,
    bytes: Option<io::Result<Vec<u8>>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    /// What this node has, by name.
    shared: BTreeMap<String, String>,
    uid: Option<u32>,
    worker: Option<Worker>,
    /// Answers of home whose file is being opened, with their questions.
    opening: BTreeMap<u64, (u64, Shared)>,
    open: BTreeMap<u64, (Arc<File>, u64)>,
    /// By the held call.
    pending: BTreeMap<u64, Pending>,
}

fn same(file: &File, wanted: &Shared) -> io::Result<bool> {
    let m = file.metadata()?;
    Ok((m.ino(), m.size(), (m.ctime(), m.ctime_nsec())) == (wanted.inode, wanted.size, wanted.changed))
}

fn open(wanted: &Shared, directory: &str, uid: Option<u32>) -> io::Result<File> {
    let file = beneath::open(directory, &wanted.path, uid)?;
    if same(&file, wanted)? { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
}

fn read(file: &File, from: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut have = 0;
    while have < len {
        match file.read_at(&mut bytes[have..], from + have as u64) {
            Ok(0) => break,
            Ok(got) => have += got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(have);
    Ok(bytes)
}

fn work(jobs: &Receiver<Job>, done: &Sender<Outcome>, mut wake: &UnixStream) {
    for job in jobs {
        let outcome = match job {
            Job::Open(wanted, directory, uid) => Outcome::Opened(wanted.id, open(&wanted, &directory, uid)),
            Job::Read { call, id, file, from, len } => Outcome::Read { call, id, from, bytes: read(&file, from, len) },
        };
        // Nobody hears it any more when the guest has ended. A full socket wakes, too.
        let _ = done.send(outcome).map(|()| wake.write(&[1]));
    }
}

impl Worker {
    fn new() -> io::Result<Worker> {
        let ((jobs, ordered), (tell, done)) = (channel(), channel());
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        std::thread::Builder::new().name("shared-files".into()).spawn(move || work(&ordered, &tell, &waker))?;
        Ok(Worker { jobs, done, wake })
    }
}

impl Direct {
    /// What the node has, and whose process the guest is. `root`: this helper may take others' rights.
    pub fn new(shared: &[(String, String)], uid: u32, root: bool) -> Direct {
        let uid = root.then_some(if uid == 0 { NOBODY } else { uid });
        Direct { shared: shared.iter().cloned().collect(), uid, ..Direct::default() }
    }

    /// For poll.
    pub fn raw(&self) -> RawFd {
        self.worker.as_ref().map_or(-1, |w| w.wake.as_raw_fd())
    }

    /// Can there be any?
    pub fn is_on(&self) -> bool {
        !self.shared.is_empty()
    }

    /// The size that it had when it was opened here.
    pub fn size(&self, id: u64) -> Option<u64> {
        self.open.get(&id).map(|f| f.1)
    }

    pub fn remove(&mut self, id: u64) {
        self.open.remove(&id);
    }

    fn order(&mut self, job: Job) -> bool {
        if self.worker.is_none() {
            self.worker = Worker::new().ok();
        }
        self.worker.as_ref().is_some_and(|w| w.jobs.send(job).is_ok())
    }

    /// The bytes from there, at most so many, for this call. None: they are on their way.
    fn bytes(&mut self, call: u64, id: u64, from: u64, len: usize) -> Option<io::Result<Vec<u8>>> {
        let (file, _) = self.open.get(&id)?;
        match self.pending.get(&call) {
            Some(p) if (p.id, p.from) == (id, from) && p.bytes.is_none() => return None,
            Some(p) if (p.id, p.from) == (id, from) => return self.pending.remove(&call)?.bytes,
            _ => {}
        }
        let mut bytes = Vec::new();
        if description::read_at_once(file, &mut bytes, len, from).is_ok_and(|got| got == len) {
            return Some(Ok(bytes));
        }
        let file = file.clone();
        self.pending.insert(call, Pending { id, from, bytes: None });
        match self.order(Job::Read { call, id, file, from, len }) {
            true => None,
            false => Some(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl Guest {
    /// Home has said which file it is.
    pub(crate) fn on_shared(&mut self, ask: u64, shared: Shared) -> Result<()> {
        let id = shared.id;
        if shared.numbers.len() > MAX_NUMBERS || shared.path.len() > MAX_WAY || shared.below.len() > MAX_WAY {
            return Err(GuestError::Protocol(format!("file {id} by a way that is too long")));
        }
        if self.files.asks.remove(&ask).is_none() {
            return Err(GuestError::Protocol(format!("an answer to question {ask}")));
        }
        let direct = &mut self.files.direct;
        let directory = direct.shared.get(&shared.below).filter(|_| direct.open.len() < MOST).cloned();
        let job = directory.map(|directory| Job::Open(Box::new(shared.clone()), directory, direct.uid));
        direct.opening.insert(id, (ask, shared));
        match job.is_some_and(|job| direct.order(job)) {
            true => self.answers_are_here(),
            false => self.opened_here(id, Err(io::ErrorKind::NotFound.into())),
        }
    }

    fn opened_here(&mut self, id: u64, file: io::Result<File>) -> Result<()> {
        let files = &mut self.files;
        let Some((ask, shared)) = files.direct.opening.remove(&id) else { return Ok(()) };
        match file {
            Ok(file) => {
                let now = clock::boottime_ns();
                if files.descriptors.granted(ask, id, shared.position, &shared.numbers, now) {
                    files.direct.open.insert(id, (Arc::new(file), shared.size));
                }
            }
            Err(_) => {
                files.descriptors.unanswered(ask);
                self.send(&Up::NotShared(id), &[])?;
            }
        }
        self.files.news = true;
        self.answers_are_here()
    }

    /// It is not to be read here any more.
    pub(crate) fn on_unshared(&mut self, id: u64) -> Result<()> {
        self.files.direct.opening.remove(&id).into_iter().for_each(|(ask, _)| self.files.descriptors.unanswered(ask));
        self.drop_direct(|known| known == id)?;
        self.retry_reads()
    }

    /// Some are read at home from now on, unless they are asked for again.
    pub(super) fn drop_direct(&mut self, which: impl Fn(u64) -> bool) -> Result<()> {
        self.tell_positions()?;
        let ids: Vec<u64> = self.files.direct.open.keys().copied().filter(|id| which(*id)).collect();
        for id in ids {
            self.files.direct.open.remove(&id);
            self.files.descriptors.let_go(id);
        }
        Ok(())
    }

    /// The thread has done something.
    pub(crate) fn direct_done(&mut self) -> Result<()> {
        let Some(worker) = &self.files.direct.worker else { return Ok(()) };
        poll::drain(worker.wake.as_raw_fd());
        let outcomes: Vec<Outcome> = worker.done.try_iter().collect();
        for outcome in outcomes {
            match outcome {
                Outcome::Opened(id, file) => self.opened_here(id, file)?,
                Outcome::Read { call, id, from, bytes } => {
                    if let Some(p) = self.files.direct.pending.get_mut(&call).filter(|p| (p.id, p.from) == (id, from)) {
                        p.bytes = Some(bytes);
                    }
                }
            }
        }
        // Calls that have gone another way: nobody wants their bytes.
        let held: Vec<u64> = self.threads.iter().filter_map(|t| t.call.map(|c| c.id)).collect();
        self.files.direct.pending.retain(|call, _| held.contains(call));
        self.files.news = true;
        Ok(())
    }

    /// The bytes of a read that is answered here. None: they are on their way. An error: it is home's.
    pub(super) fn direct_bytes(
        &mut self,
        call: u64,
        id: u64,
        from: u64,
        len: usize,
    ) -> Result<Option<io::Result<Vec<u8>>>> {
        let bytes = self.files.direct.bytes(call, id, from, len);
        if let Some(Err(_)) = &bytes {
            self.send(&Up::NotShared(id), &[])?;
            self.drop_direct(|known| known == id)?;
        }
        Ok(bytes)
    }
}
