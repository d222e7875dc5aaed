//! Files at home of which the guest's side may answer reads: leases, their end, and the bytes (docs/engine.md, Files).

use super::owners::Looks;
use super::shared::{SharedFiles, Way};
use super::{Deputy, HomeError, Result};
use crate::control::Io;
use crate::message::{
    CHUNK, DRIFT_MS, Down, File as Given, GRANT_MS, MAX_FETCH, MAX_FILES, MAX_NUMBERS, Owners, Shared,
};
use pando_kernel::lease::ReadLease;
use pando_kernel::{description, pidfd, procfs};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime};

/// So long a file stays as it is after `Forget` when no answer comes.
const KEPT: Duration = Duration::from_millis(GRANT_MS + DRIFT_MS);
/// Who has let others wait so often gets no more files.
const TOO_LATE: u32 = 10;
/// Files that were let go and may be had again without their bytes.
const REMEMBERED: usize = 256;
/// A change so soon after another one might get the same time.
const SAME_TIME: Duration = Duration::from_millis(100);
/// How often the disk is asked again, before the file is given up.
const DISK_TRIES: u32 = 50;
const DISK_PAUSE: Duration = Duration::from_millis(1);
/// File systems of this machine alone, whose content nobody changes behind the kernel's back: ext, xfs, btrfs, f2fs. Not tmpfs: a write through
/// the descriptor of a memfd breaks no lease, and one through a mapping need not change a time.
const LOCAL: [i64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// What a file is, and when it last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    pub fn of(file: &File) -> io::Result<Stamp> {
        let m = file.metadata()?;
        Ok(Stamp { device: m.dev(), inode: m.ino(), size: m.size(), changed: (m.ctime(), m.ctime_nsec()) })
    }

    /// The same of a plain file whose server may not answer.
    fn known(fd: &OwnedFd) -> io::Result<Stamp> {
        let m = description::known(fd)?;
        if u32::from(m.stx_mode) & libc::S_IFMT != libc::S_IFREG {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let changed = (m.stx_ctime.tv_sec, i64::from(m.stx_ctime.tv_nsec));
        let device = libc::makedev(m.stx_dev_major, m.stx_dev_minor);
        Ok(Stamp { device, inode: m.stx_ino, size: m.stx_size, changed })
    }

    /// Will every change from now on have another time?
    fn is_old(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let changed = u64::try_from(self.changed.0).ok().map(|s| Duration::new(s, self.changed.1 as u32));
        changed.and_then(|changed| now.checked_sub(changed)).is_some_and(|age| age > SAME_TIME)
    }

    pub fn is_same_file(&self, other: &Stamp) -> bool {
        self.file() == other.file()
    }

    /// Device and inode.
    pub fn file(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// How far a file is.
enum Standing {
    Granted(ReadLease),
    /// `Forget` has been said; somebody waits for the lease.
    Forgotten {
        since: Instant,
        _lease: ReadLease,
    },
    /// No answer came in time: whoever waited has been let in.
    Overdue,
}

/// A file that has been granted.
struct Granted {
    stamp: Stamp,
    standing: Standing,
    /// What is to be sent: from where to where.
    wanted: VecDeque<(u64, u64)>,
    tries: u32,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Files {
    granted: BTreeMap<u64, Granted>,
    last: u64,
    process: Option<OwnedFd>,
    remembered: VecDeque<(u64, Stamp)>,
    /// Which one's turn it is.
    turn: u64,
    /// How often `Release` did not come in time.
    late: u32,
    asleep: Option<Instant>,
    /// Descriptors that were granted.
    descriptors: BTreeSet<i32>,
    looks: Looks,
    pub(super) shared_files: SharedFiles,
    /// Does another process have the same descriptors (CLONE_FILES), or a thread other ones? Asked once: what is made later is made at home.
    shared: Option<bool>,
    /// Has the process files watched (inotify, fanotify)? Asked once; what it makes later is a call of its own.
    watches: Option<bool>,
    /// Bytes that the process's calls moved while it was away.
    pub io: Io,
}

impl Files {
    /// The process made this call.
    pub fn note_call(&mut self, nr: u64, ret: i64) {
        self.io.count(nr, ret);
        match i64::try_from(nr) {
            // Descriptors, or errors.
            Ok(libc::SYS_dup | libc::SYS_dup2 | libc::SYS_dup3 | libc::SYS_fcntl) => {
                self.descriptors.extend(i32::try_from(ret).ok());
            }
            Ok(libc::SYS_close_range) => self.shared = None,
            _ => {}
        }
        let watching = [libc::SYS_inotify_init, libc::SYS_inotify_init1, libc::SYS_fanotify_init];
        if watching.contains(&(nr as i64)) {
            self.watches = Some(true);
        }
    }

    /// Is there something to send now?
    pub fn is_busy(&self) -> bool {
        self.asleep.is_none_or(|since| since.elapsed() >= DISK_PAUSE)
            && self.granted.values().any(|g| !g.wanted.is_empty() && matches!(g.standing, Standing::Granted(_)))
    }

    /// Microseconds until something is to be done.
    pub fn until_next(&self) -> i64 {
        let kept = self.granted.values().filter_map(|g| match &g.standing {
            Standing::Forgotten { since, .. } => Some(KEPT.saturating_sub(since.elapsed())),
            _ => None,
        });
        let disk = self.asleep.map(|since| DISK_PAUSE.saturating_sub(since.elapsed()));
        kept.chain(disk).min().map_or(i64::MAX, |left| left.as_micros() as i64 + 1)
    }

    /// The last name that a file was given.
    pub(super) fn last_id(&self) -> u64 {
        self.last
    }

    /// Is nothing granted?
    pub fn is_empty(&self) -> bool {
        self.granted.is_empty()
    }

    /// All leases end here, and the guest's side has no file any more.
    pub fn end(&mut self) {
        *self = Files { io: self.io, ..Files::default() };
    }

    /// What the guest's side has of this file may be of use once more, if the file has not changed since it was granted.
    fn remember(&mut self, id: u64, stamp: Stamp) {
        if stamp.is_old() {
            self.remembered.push_back((id, stamp));
            while self.remembered.len() > REMEMBERED {
                self.remembered.pop_front();
            }
        }
    }
}

/// Does nobody want to write, and is the file what it was? (An open with O_RDONLY and O_TRUNC breaks no lease.)
fn is_as_granted(lease: &ReadLease, stamp: &Stamp) -> bool {
    lease.is_whole() && Stamp::of(lease.file()).is_ok_and(|now| now == *stamp)
}

/// With its parent or a child: who else would have been made with CLONE_FILES. Or do its threads have several tables?
fn shares_descriptors(pid: i32) -> bool {
    let own =
        procfs::threads(pid).is_ok_and(|all| all.into_iter().all(|t| t == pid || description::same_table(pid, t)));
    !own || procfs::family(pid).into_iter().any(|other| description::same_table(pid, other))
}

/// Where a file of the process can be read.
enum Where {
    /// Here, by a description of our own.
    Here(File),
    /// There.
    There(Way),
}

/// A file of the process that may be granted.
struct Candidate {
    place: Where,
    position: Option<u64>,
    numbers: Vec<i32>,
    stamp: Stamp,
}

impl Deputy {
    /// The guest's side wants to answer reads of this descriptor.
    pub(super) fn on_ask(&mut self, ask: u64, fd: i32, owners: Owners) -> Result<()> {
        self.mind_leases()?;
        let given = self.look_at(fd, owners).ok().and_then(|candidate| {
            self.files.descriptors.insert(fd);
            self.files.descriptors.extend(&candidate.numbers);
            self.grant(ask, candidate)
        });
        self.tell(&given.unwrap_or(Down::Refused(ask)), &[])
    }

    fn look_at(&mut self, fd: i32, owners: Owners) -> io::Result<Candidate> {
        let refused = || io::Error::from(io::ErrorKind::Unsupported);
        let process = match self.files.process.take() {
            Some(process) => process,
            None => pidfd::open(self.pid)?,
        };
        let process = self.files.process.insert(process);
        let theirs = pidfd::getfd(process, fd)?;
        let flags = description::flags(&theirs)?;
        let odd = libc::O_ACCMODE | libc::O_PATH | libc::O_DIRECT;
        if flags & odd != libc::O_RDONLY {
            return Err(refused());
        }
        let way = match self.shared_way(&theirs) {
            Some(way) => Stamp::known(&theirs).ok().filter(|stamp| self.may_be_shared(stamp)).map(|stamp| (way, stamp)),
            None => None,
        };
        if way.is_none() && !LOCAL.contains(&description::file_system(&theirs)?) {
            return Err(refused());
        }
        if self.files.watches.is_none() {
            self.files.watches = Some(self.watches_files());
        }
        if self.files.shared.is_none() {
            self.files.shared = Some(shares_descriptors(self.pid));
        }
        if self.files.watches == Some(true) || self.files.shared == Some(true) {
            return Err(refused());
        }
        let (place, stamp) = match way {
            Some((way, stamp)) => (Where::There(way), stamp),
            None => {
                let theirs = File::from(theirs.try_clone()?);
                let stamp = Stamp::of(&theirs)?;
                let is_file = theirs.metadata()?.is_file();
                let file = is_file.then(|| description::open_anew(&theirs.into(), flags)).ok_or_else(refused)??;
                if !Stamp::of(&file)?.is_same_file(&stamp) {
                    return Err(refused());
                }
                (Where::Here(file), stamp)
            }
        };
        let numbers = match owners {
            Owners::Unknown => {
                let found = self.files.looks.numbers(self.pid, &theirs, self.order.whole_machine);
                found.filter(|n| n.len() <= MAX_NUMBERS)
            }
            Owners::Known => Some(Vec::new()),
            Owners::Any => None,
        };
        let position = numbers.as_ref().map(|_| description::position(&theirs)).transpose()?;
        Ok(Candidate { place, position, numbers: numbers.unwrap_or_default(), stamp })
    }

    /// One that has would see us open and read them.
    fn watches_files(&self) -> bool {
        let watches = |e: fs::DirEntry| {
            let link = fs::read_link(e.path()).unwrap_or_default();
            ["anon_inode:inotify", "anon_inode:[fanotify]"].iter().any(|name| link.as_os_str() == *name)
        };
        fs::read_dir(format!("/proc/{}/fd", self.pid)).is_ok_and(|all| all.flatten().any(watches))
    }

    fn grant(&mut self, ask: u64, candidate: Candidate) -> Option<Down> {
        let Candidate { place, position, numbers, stamp } = candidate;
        let files = &mut self.files;
        let file = match place {
            Where::Here(file) => file,
            Where::There(Way { below, path }) => {
                files.last += 1;
                let id = files.shared_files.offer(files.last, stamp);
                let Stamp { inode, size, changed, .. } = stamp;
                return Some(Down::Shared(ask, Shared { id, below, path, inode, size, changed, position, numbers }));
            }
        };
        if let Some((&id, known)) = files.granted.iter().find(|(_, g)| g.stamp.is_same_file(&stamp)) {
            let given = Given { id, size: known.stamp.size, position, numbers, same_as: None };
            return matches!(known.standing, Standing::Granted(_)).then_some(Down::Granted(ask, given));
        }
        let overdue = files.granted.values().any(|g| matches!(g.standing, Standing::Overdue));
        if overdue || files.late >= TOO_LATE || files.granted.len() >= MAX_FILES {
            return None;
        }
        let lease = ReadLease::take(file).ok()?;
        let stamp = Stamp::of(lease.file()).ok()?;
        files.last += 1;
        let same_as = files.remembered.iter().find(|r| r.1 == stamp).map(|r| r.0);
        files.remembered.retain(|r| !r.1.is_same_file(&stamp));
        let size = stamp.size;
        let new = Granted { stamp, standing: Standing::Granted(lease), wanted: VecDeque::new(), tries: 0 };
        files.granted.insert(files.last, new);
        Some(Down::Granted(ask, Given { id: files.last, size, position, numbers, same_as }))
    }

    /// Reads were answered abroad: the descriptor stands there.
    pub(super) fn on_position(&mut self, fd: i32, at: u64) -> Result<()> {
        let moved = self.files.process.as_ref().map(|p| pidfd::getfd(p, fd).and_then(|d| description::seek(&d, at)));
        match moved {
            Some(Ok(())) => Ok(()),
            // The process is being killed.
            Some(Err(e)) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            // Somebody else has closed it, whom we did not see: from now on all reads are made here.
            Some(Err(e)) if e.raw_os_error() == Some(libc::EBADF) && self.files.descriptors.contains(&fd) => {
                self.files.shared = Some(true);
                let all: Vec<u64> = self.files.granted.keys().copied().collect();
                all.into_iter().try_for_each(|id| self.forget_file(id))
            }
            _ => Err(self.broken(&format!("a position of descriptor {fd} that it can't have"))),
        }
    }

    /// Bytes of a file are wanted.
    pub(super) fn on_fetch(&mut self, id: u64, from: u64, len: u32) -> Result<()> {
        let end = from.saturating_add(u64::from(len));
        let Some(granted) = self.files.granted.get_mut(&id) else {
            return Err(self.broken(&format!("file {id}, which it does not have")));
        };
        let waiting: u64 = granted.wanted.iter().map(|w| w.1 - w.0).sum();
        if len == 0 || end > granted.stamp.size || waiting + u64::from(len) > MAX_FETCH || granted.wanted.len() > 64 {
            return Err(self.broken(&format!("{len} bytes of file {id} at {from}")));
        }
        // What has been forgotten is not sent any more: that crosses.
        if matches!(granted.standing, Standing::Granted(_)) {
            granted.wanted.push_back((from, end));
        }
        Ok(())
    }

    /// The guest's side answers nothing more from it.
    pub(super) fn on_release(&mut self, id: u64) -> Result<()> {
        let Some(granted) = self.files.granted.remove(&id) else {
            return Err(self.broken(&format!("file {id}, which it does not have")));
        };
        let stamp = granted.stamp;
        let asked = matches!(granted.standing, Standing::Granted(_));
        // Here the lease ends.
        drop(granted);
        self.files.remember(id, stamp);
        if asked { self.tell(&Down::Forget(id), &[]) } else { Ok(()) }
    }

    /// Is all that is granted still so?
    pub(super) fn on_renew(&mut self, number: u64) -> Result<()> {
        self.mind_leases()?;
        self.tell(&Down::Renewed(number), &[])
    }

    /// Somebody may want to write: the guest's side must forget the file first, or has had its time.
    pub(super) fn mind_leases(&mut self) -> Result<()> {
        let mut forget = Vec::new();
        for (id, granted) in &mut self.files.granted {
            let late = matches!(&granted.standing, Standing::Forgotten { since, .. } if since.elapsed() >= KEPT);
            let wanted = matches!(&granted.standing, Standing::Granted(lease) if !is_as_granted(lease, &granted.stamp));
            if late {
                granted.standing = Standing::Overdue;
                self.files.late += 1;
            } else if wanted {
                forget.push(*id);
            }
        }
        forget.into_iter().try_for_each(|id| self.forget_file(id))
    }

    fn forget_file(&mut self, id: u64) -> Result<()> {
        let Some(granted) = self.files.granted.get_mut(&id) else { return Ok(()) };
        granted.wanted.clear();
        match std::mem::replace(&mut granted.standing, Standing::Overdue) {
            Standing::Granted(lease) => {
                granted.standing = Standing::Forgotten { since: Instant::now(), _lease: lease };
            }
            said => {
                granted.standing = said;
                return Ok(());
            }
        }
        self.tell(&Down::Forget(id), &[])
    }

    /// Sends the next bytes that are wanted: one file after the other has its turn.
    pub(super) fn send_file_data(&mut self) -> Result<()> {
        let turn = self.files.turn;
        let ready = |(id, g): (&u64, &Granted)| {
            (!g.wanted.is_empty() && matches!(g.standing, Standing::Granted(_))).then_some(*id)
        };
        let all: Vec<u64> = self.files.granted.iter().filter_map(ready).collect();
        let Some(id) = all.iter().copied().find(|&id| id > turn).or(all.first().copied()) else { return Ok(()) };
        self.files.turn = id;
        let (Some(granted), Some(abroad)) = (self.files.granted.get_mut(&id), &mut self.abroad) else { return Ok(()) };
        let Standing::Granted(lease) = &granted.standing else { return Ok(()) };
        let Some(&(from, end)) = granted.wanted.front() else { return Ok(()) };
        let (most, mut got) = ((end - from).min(CHUNK as u64) as usize, 0);
        let sent = abroad.chan.send_made(&Down::FileData(id, from), most, |body| {
            got = description::read_at_once(lease.file(), body, most, from)?;
            let good = got > 0 && is_as_granted(lease, &granted.stamp);
            if good { Ok(()) } else { Err(io::ErrorKind::StaleNetworkFileHandle.into()) }
        });
        let sent = sent.map_err(|source| HomeError::Target { node: abroad.node.clone(), source })?;
        if sent.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) && granted.tries < DISK_TRIES {
            granted.tries += 1;
            self.files.asleep = Some(Instant::now());
            return Ok(());
        }
        (granted.tries, self.files.asleep) = (0, None);
        if sent.is_err() {
            // Somebody wants to write, or the disk takes long: we must not wait for it, the process itself may.
            return self.forget_file(id);
        }
        match granted.wanted.front_mut() {
            Some(first) if from + (got as u64) < end => first.0 += got as u64,
            _ => drop(granted.wanted.pop_front()),
        }
        Ok(())
    }
}
