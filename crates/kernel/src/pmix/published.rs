//! What the library calls when a rank publishes something, looks for it, or takes it back: texts and bytes under names. As in [`super::called`] all is copied, and
//! an answer is given once.

use super::called::{Done, Event, RUNS, SPACE, rank_of, tell};
use super::ffi::{
    BAD_PARAM, BYTES, ERROR, Info, LookupDone, NOT_SUPPORTED, ONCE, OpDone, PERSISTENCE, Proc, STRING, SUCCESS,
};
use super::info::Published;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::PoisonError;

/// Most names of one call.
const MOST_NAMES: usize = 4096;
/// Keys that say how, and not what, begin so.
const OF_PMIX: &str = "pmix.";
const WAIT: &str = "pmix.wait";
const PERSIST: &str = "pmix.persist";

/// What a rank has published by a name, or found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The rank that has published it.
    pub rank: u32,
    /// A text; or
    pub text: String,
    /// bytes.
    pub bytes: Option<Vec<u8>>,
}

/// Somebody who waits for what was published, and is told a failure if nobody finds it.
#[derive(Debug)]
pub struct Finder {
    done: LookupDone,
    data: usize,
}

impl Finder {
    /// Names, and what was published by them.
    pub fn give(mut self, found: Vec<(String, Found)>) {
        self.end(SUCCESS, found);
    }

    /// There is nothing.
    pub fn fail(mut self, status: i32) {
        self.end(status, Vec::new());
    }

    fn end(&mut self, status: c_int, found: Vec<(String, Found)>) {
        let Some(done) = self.done.take() else { return };
        let runs = RUNS.read().unwrap_or_else(PoisonError::into_inner);
        if !*runs {
            return;
        }
        let mut found = Published::new(SPACE.get().map_or("", String::as_str), found);
        let (list, count) = found.raw();
        let list = if count == 0 { std::ptr::null_mut() } else { list };
        // SAFETY: the function and its datum came together and have not been used; the library runs, and stays so while the lock is held; it copies
        // the list before it returns.
        unsafe { done(status, list, count, self.data as *mut c_void) };
    }
}

impl Drop for Finder {
    fn drop(&mut self) {
        self.end(ERROR, Vec::new());
    }
}

/// What is behind the end of a key may be anything.
fn key_of(info: &Info) -> Option<&str> {
    std::str::from_utf8(info.key.split(|byte| *byte == 0).next()?).ok()
}

/// # Safety
///
/// So many of the library's, in its call.
unsafe fn infos<'a>(info: *const Info, count: usize) -> &'a [Info] {
    match info.is_null() || count == 0 {
        true => &[],
        // SAFETY: the caller's.
        false => unsafe { std::slice::from_raw_parts(info, count) },
    }
}

/// A list of texts that ends with a null; none, if there is no list. Fails where a text is none, or there are too many.
///
/// # Safety
///
/// Such a list of the library's, in its call.
unsafe fn texts(list: *mut *mut c_char) -> Result<Option<Vec<String>>, ()> {
    if list.is_null() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for at in 0..=MOST_NAMES {
        // SAFETY: the caller's; nothing behind the null is read.
        let text = unsafe { *list.add(at) };
        if text.is_null() {
            return Ok(Some(found));
        }
        // SAFETY: its texts are terminated.
        found.push(unsafe { CStr::from_ptr(text) }.to_str().map_err(drop)?.to_owned());
    }
    Err(())
}

pub unsafe extern "C" fn publish(
    proc: *const Proc,
    info: *const Info,
    count: usize,
    function: OpDone,
    data: *mut c_void,
) -> c_int {
    let (mut published, mut once) = (Vec::new(), false);
    // SAFETY: as below.
    let rank = unsafe { rank_of(proc) };
    // SAFETY: the library's own, in its call.
    for info in unsafe { infos(info, count) } {
        let Some(key) = key_of(info) else { return BAD_PARAM };
        if key.starts_with(OF_PMIX) {
            // SAFETY: that is what it holds.
            once |= key == PERSIST && info.value.kind == PERSISTENCE && unsafe { info.value.data.persistence } == ONCE;
            continue;
        }
        // SAFETY: it holds what its kind says, a text is terminated, and so many bytes are there; null is looked for.
        let found = unsafe {
            match info.value.kind {
                STRING if !info.value.data.string.is_null() => {
                    let text = CStr::from_ptr(info.value.data.string).to_str().ok();
                    text.map(|text| Found { rank, text: text.to_owned(), bytes: None })
                }
                BYTES if info.value.data.bytes.at.is_null() || info.value.data.bytes.size == 0 => {
                    Some(Found { rank, text: String::new(), bytes: Some(Vec::new()) })
                }
                BYTES => {
                    let bytes = info.value.data.bytes;
                    let bytes = std::slice::from_raw_parts(bytes.at.cast(), bytes.size).to_vec();
                    Some(Found { rank, text: String::new(), bytes: Some(bytes) })
                }
                STRING => None,
                _ => return NOT_SUPPORTED,
            }
        };
        let Some(found) = found else { return BAD_PARAM };
        published.push((key.to_owned(), found));
    }
    if published.is_empty() || published.len() > MOST_NAMES {
        return BAD_PARAM;
    }
    tell(Event::Publish { rank, published, once, done: Done::new(function, data) });
    SUCCESS
}

pub unsafe extern "C" fn lookup(
    proc: *const Proc,
    keys: *mut *mut c_char,
    info: *const Info,
    count: usize,
    done: LookupDone,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the library's own, in its call.
    let (rank, names, info) = unsafe { (rank_of(proc), texts(keys), infos(info, count)) };
    let Ok(Some(names)) = names else { return BAD_PARAM };
    if names.is_empty() {
        return BAD_PARAM;
    }
    let waits = info.iter().any(|info| key_of(info) == Some(WAIT));
    tell(Event::Lookup { rank, names, waits, answer: Finder { done, data: data as usize } });
    SUCCESS
}

pub unsafe extern "C" fn unpublish(
    proc: *const Proc,
    keys: *mut *mut c_char,
    _info: *const Info,
    _count: usize,
    function: OpDone,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the library's own, in its call.
    let (rank, names) = unsafe { (rank_of(proc), texts(keys)) };
    let Ok(names) = names else { return BAD_PARAM };
    tell(Event::Unpublish { rank, names, done: Done::new(function, data) });
    SUCCESS
}
