//! What the library calls, on its own threads, when a rank wants something. Everything becomes an [`Event`]; who takes it answers when it likes.
//!
//! Invariants: all that a call points to is copied before it returns; an answer is given once, and never after the library was shut down.

use super::ffi::{ALL_RANKS, DONE, ERROR, Info, ModexDone, NOT_FOUND, NOT_SUPPORTED, OpDone, Proc, SUCCESS};
use super::published::{Finder, Found};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{OnceLock, PoisonError, RwLock};

/// What ranks of this node want.
#[derive(Debug)]
pub enum Event {
    /// A rank has begun to speak.
    Connected(u32),
    /// It has finished.
    Finalized(u32),
    /// It ends the job.
    Abort {
        /// The rank.
        rank: u32,
        /// The status that it wants.
        status: i32,
        /// It waits for this.
        done: Done,
    },
    /// All those of these ranks that are on this node have come together.
    Fence {
        /// The ranks; none: all of the job.
        ranks: Option<Vec<u32>>,
        /// What they say to the others.
        said: Vec<u8>,
        /// Who waits.
        answer: Answer,
    },
    /// The same, of ranks that connect or disconnect: they say nothing.
    Meet {
        /// The ranks; none: all of the job.
        ranks: Option<Vec<u32>>,
        /// They wait for this.
        done: Done,
    },
    /// A rank wants more of them to be started, and was told that this is not done.
    Spawn(u32),
    /// A rank publishes something under these names.
    Publish {
        /// The rank.
        rank: u32,
        /// Names, and what it is.
        published: Vec<(String, Found)>,
        /// It is gone as soon as somebody has found it.
        once: bool,
        /// It waits for this.
        done: Done,
    },
    /// A rank looks for what was published under these names.
    Lookup {
        /// The rank.
        rank: u32,
        /// The names.
        names: Vec<String>,
        /// It waits until they are there.
        waits: bool,
        /// Who waits.
        answer: Finder,
    },
    /// A rank takes back what it has published.
    Unpublish {
        /// The rank.
        rank: u32,
        /// Under these names; none: all.
        names: Option<Vec<String>>,
        /// It waits for this.
        done: Done,
    },
    /// Somebody wants to know what a rank of another node has said.
    Modex {
        /// That rank.
        rank: u32,
        /// Who waits.
        answer: Answer,
    },
}

/// Takes them.
pub type Listener = Box<dyn Fn(Event) + Send + Sync>;

/// There is one library in a process, and so one listener.
pub static LISTENER: OnceLock<Listener> = OnceLock::new();
/// The job's name: nobody here knows another one's.
pub static SPACE: OnceLock<String> = OnceLock::new();
/// May the library be called? Whoever answers holds it.
pub static RUNS: RwLock<bool> = RwLock::new(false);

pub(super) fn tell(event: Event) {
    if let Some(listener) = LISTENER.get() {
        listener(event);
    }
}

/// Somebody who waits for bytes, and is told a failure if nobody gives any.
#[derive(Debug)]
pub struct Answer {
    done: ModexDone,
    data: usize,
}

unsafe extern "C" fn release(bytes: *mut c_void) {
    // SAFETY: `Answer::end` made it of such a box, and the library gives it back once.
    drop(unsafe { Box::from_raw(bytes.cast::<Vec<u8>>()) });
}

impl Answer {
    /// Here they are.
    pub fn give(mut self, bytes: Vec<u8>) {
        self.end(SUCCESS, bytes);
    }

    /// There are none.
    pub fn fail(mut self, status: i32) {
        self.end(status, Vec::new());
    }

    fn end(&mut self, status: c_int, bytes: Vec<u8>) {
        let Some(done) = self.done.take() else { return };
        let runs = RUNS.read().unwrap_or_else(PoisonError::into_inner);
        if !*runs {
            return;
        }
        let bytes = Box::new(bytes);
        let (at, length) = (bytes.as_ptr().cast(), bytes.len());
        let at = if length == 0 { std::ptr::null() } else { at };
        // SAFETY: the function and its datum came together and have not been used; the library runs, and stays so while the lock is held; the
        // bytes live until it releases them.
        unsafe { done(status, at, length, self.data as *mut c_void, Some(release), Box::into_raw(bytes).cast()) };
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.end(ERROR, Vec::new());
    }
}

/// Somebody who waits until something was done, and is told so at the latest when nobody does it.
#[derive(Debug)]
pub struct Done {
    function: OpDone,
    data: usize,
    status: c_int,
}

impl Done {
    pub(super) fn new(function: OpDone, data: *mut c_void) -> Done {
        Done { function, data: data as usize, status: SUCCESS }
    }

    /// It could not be done.
    pub fn fail(mut self, status: i32) {
        self.status = status;
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        let Some(function) = self.function.take() else { return };
        let runs = RUNS.read().unwrap_or_else(PoisonError::into_inner);
        if *runs {
            // SAFETY: as for an `Answer`.
            unsafe { function(self.status, self.data as *mut c_void) };
        }
    }
}

/// # Safety
///
/// A pointer that the library gave, and has not returned from.
pub(super) unsafe fn rank_of(proc: *const Proc) -> u32 {
    // SAFETY: the caller's.
    unsafe { (*proc).rank }
}

/// # Safety
///
/// A function that the library gave together with this datum.
unsafe fn done(function: OpDone, data: *mut c_void) -> c_int {
    if let Some(function) = function {
        // SAFETY: the caller's; it is called once.
        unsafe { function(SUCCESS, data) };
    }
    SUCCESS
}

pub unsafe extern "C" fn connected(
    proc: *const Proc,
    _object: *mut c_void,
    _info: *mut Info,
    _infos: usize,
    function: OpDone,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the library's own pointers, in its call.
    unsafe {
        tell(Event::Connected(rank_of(proc)));
        done(function, data)
    }
}

pub unsafe extern "C" fn finalized(
    proc: *const Proc,
    _object: *mut c_void,
    function: OpDone,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        tell(Event::Finalized(rank_of(proc)));
        done(function, data)
    }
}

pub unsafe extern "C" fn abort(
    proc: *const Proc,
    _object: *mut c_void,
    status: c_int,
    _message: *const c_char,
    _procs: *mut Proc,
    _count: usize,
    function: OpDone,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let done = Done::new(function, data);
        tell(Event::Abort { rank: rank_of(proc), status, done });
    }
    SUCCESS
}

/// Is it one of this job's? What is behind the end of a name may be anything.
fn is_ours(proc: &Proc) -> bool {
    let name = proc.space.split(|byte| *byte == 0).next().unwrap_or_default();
    SPACE.get().is_some_and(|space| space.as_bytes() == name)
}

/// All ranks of one job, some, or nothing that can be brought together here.
///
/// # Safety
///
/// `procs` are so many of the library's, which it has not returned from.
unsafe fn ranks_of(procs: *const Proc, count: usize) -> Option<Option<Vec<u32>>> {
    if procs.is_null() || count == 0 {
        return Some(None);
    }
    // SAFETY: the caller's.
    let procs = unsafe { std::slice::from_raw_parts(procs, count) };
    if !procs.iter().all(is_ours) {
        return None;
    }
    if procs.iter().any(|p| p.rank == ALL_RANKS) {
        return Some(None);
    }
    Some(Some(procs.iter().map(|p| p.rank).collect()))
}

pub unsafe extern "C" fn fence(
    procs: *const Proc,
    count: usize,
    _info: *const Info,
    _infos: usize,
    bytes: *mut c_char,
    length: usize,
    function: ModexDone,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the library's own, in its call.
    let Some(ranks) = (unsafe { ranks_of(procs, count) }) else { return NOT_SUPPORTED };
    let said = match bytes.is_null() || length == 0 {
        true => Vec::new(),
        // SAFETY: so many bytes of the library's, which stay: whose they are after the call differs between versions, so they are left alone.
        false => unsafe { std::slice::from_raw_parts(bytes.cast(), length).to_vec() },
    };
    tell(Event::Fence { ranks, said, answer: Answer { done: function, data: data as usize } });
    SUCCESS
}

pub unsafe extern "C" fn spawn(
    proc: *const Proc,
    _info: *const Info,
    _infos: usize,
    _programs: *const c_void,
    _count: usize,
    _function: *const c_void,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the library's own pointer, in its call.
    tell(Event::Spawn(unsafe { rank_of(proc) }));
    NOT_SUPPORTED
}

pub unsafe extern "C" fn meet(
    procs: *const Proc,
    count: usize,
    _info: *const Info,
    _infos: usize,
    function: OpDone,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the library's own, in its call.
    let Some(ranks) = (unsafe { ranks_of(procs, count) }) else { return NOT_SUPPORTED };
    tell(Event::Meet { ranks, done: Done::new(function, data) });
    SUCCESS
}

pub unsafe extern "C" fn direct_modex(
    proc: *const Proc,
    _info: *const Info,
    _infos: usize,
    function: ModexDone,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the library's own, in its call.
    let (ours, rank) = unsafe { (is_ours(&*proc), rank_of(proc)) };
    if !ours {
        return NOT_FOUND;
    }
    tell(Event::Modex { rank, answer: Answer { done: function, data: data as usize } });
    SUCCESS
}

/// Who gets what a rank of this node has said.
pub type Asked = Box<dyn FnOnce(Option<Vec<u8>>) + Send>;

/// The library answers what [`super::Server::ask`] asked.
pub unsafe extern "C" fn answered(status: c_int, bytes: *mut c_char, length: usize, data: *mut c_void) {
    // SAFETY: `ask` made it of such a box, and the library calls once.
    let asked = unsafe { Box::from_raw(data.cast::<Asked>()) };
    let found = matches!(status, SUCCESS | DONE).then(|| match bytes.is_null() || length == 0 {
        true => Vec::new(),
        // SAFETY: so many bytes of the library's, in its call.
        false => unsafe { std::slice::from_raw_parts(bytes.cast(), length).to_vec() },
    });
    asked(found);
}
