//! What the header of OpenPMIx 4 (`pmix_common.h`, `pmix_server.h`) says, as far as it is used here, and the library itself, found when it is needed.
//!
//! Invariants: each struct has the layout that a C compiler gives it on a 64-bit machine (the sizes below were printed by a C program with that
//! header); the library is never unloaded, so that what was found in it stays valid; nothing here is called before its version is known.

use crate::loaded::library;
use std::ffi::{CStr, c_char, c_int, c_void};

/// Longest name of a space (a job), and of a key.
pub const MOST_SPACE: usize = 255;
const MOST_KEY: usize = 511;

/// All ranks of a job, where one rank is named.
pub const ALL_RANKS: u32 = u32::MAX - 1;

pub const SUCCESS: c_int = 0;
pub const ERROR: c_int = -1;
pub const BAD_PARAM: c_int = -27;
pub const NOT_FOUND: c_int = -46;
pub const NOT_SUPPORTED: c_int = -47;
pub const DUPLICATE: c_int = -53;
/// It has been done already; nobody will be called.
pub const DONE: c_int = -157;

/// Types of values.
pub const BOOL: u16 = 1;
pub const STRING: u16 = 3;
pub const UINT16: u16 = 13;
pub const UINT32: u16 = 14;
pub const INFO: u16 = 24;
pub const BYTES: u16 = 27;
pub const PERSISTENCE: u16 = 30;
pub const DATA_ARRAY: u16 = 39;
pub const RANK: u16 = 40;
pub const REGEX: u16 = 49;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proc {
    pub space: [u8; MOST_SPACE + 1],
    pub rank: u32,
}

/// `pmix_data_array_t`.
#[repr(C)]
pub struct DataArray {
    pub kind: u16,
    pub size: usize,
    pub array: *mut c_void,
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    pub at: *mut c_char,
    pub size: usize,
}

/// What is found once is gone then: a `pmix_persistence_t`.
pub const ONCE: u8 = 1;

/// The union in `pmix_value_t`.
#[repr(C)]
pub union Data {
    pub flag: bool,
    pub string: *mut c_char,
    pub bytes: Bytes,
    pub persistence: u8,
    pub uint16: u16,
    pub uint32: u32,
    pub array: *mut DataArray,
    pub room: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
pub struct Value {
    pub kind: u16,
    pub data: Data,
}

/// `pmix_pdata_t`.
#[repr(C)]
pub struct Found {
    pub publisher: Proc,
    pub key: [u8; MOST_KEY + 1],
    pub value: Value,
}

/// `pmix_info_t`.
#[repr(C)]
pub struct Info {
    pub key: [u8; MOST_KEY + 1],
    pub flags: u32,
    pub value: Value,
}

const _: () = {
    assert!(size_of::<Proc>() == 260 && std::mem::offset_of!(Proc, rank) == 256);
    assert!(size_of::<DataArray>() == 24 && std::mem::offset_of!(DataArray, array) == 16);
    assert!(size_of::<Value>() == 32 && std::mem::offset_of!(Value, data) == 8);
    assert!(size_of::<Info>() == 552 && std::mem::offset_of!(Info, value) == 520);
    assert!(size_of::<Found>() == 808 && std::mem::offset_of!(Found, value) == 776);
    assert!(std::mem::offset_of!(Module, publish) == 40 && std::mem::offset_of!(Module, disconnect) == 80);
    assert!(std::mem::offset_of!(Module, fence) == 24 && std::mem::offset_of!(Module, connected2) == 216);
};

pub type OpDone = Option<unsafe extern "C" fn(status: c_int, data: *mut c_void)>;
pub type Release = Option<unsafe extern "C" fn(data: *mut c_void)>;
pub type ModexDone = Option<
    unsafe extern "C" fn(
        status: c_int,
        bytes: *const c_char,
        length: usize,
        data: *mut c_void,
        release: Release,
        release_data: *mut c_void,
    ),
>;
pub type LookupDone = Option<unsafe extern "C" fn(status: c_int, found: *mut Found, count: usize, data: *mut c_void)>;
pub type DmodexAnswer = unsafe extern "C" fn(status: c_int, bytes: *mut c_char, length: usize, data: *mut c_void);

pub type Finalized = unsafe extern "C" fn(*const Proc, *mut c_void, OpDone, *mut c_void) -> c_int;
pub type Abort = unsafe extern "C" fn(
    *const Proc,
    *mut c_void,
    c_int,
    *const c_char,
    *mut Proc,
    usize,
    OpDone,
    *mut c_void,
) -> c_int;
pub type Fence =
    unsafe extern "C" fn(*const Proc, usize, *const Info, usize, *mut c_char, usize, ModexDone, *mut c_void) -> c_int;
pub type DirectModex = unsafe extern "C" fn(*const Proc, *const Info, usize, ModexDone, *mut c_void) -> c_int;
pub type Publish = unsafe extern "C" fn(*const Proc, *const Info, usize, OpDone, *mut c_void) -> c_int;
pub type Lookup =
    unsafe extern "C" fn(*const Proc, *mut *mut c_char, *const Info, usize, LookupDone, *mut c_void) -> c_int;
pub type Unpublish =
    unsafe extern "C" fn(*const Proc, *mut *mut c_char, *const Info, usize, OpDone, *mut c_void) -> c_int;
pub type Spawn =
    unsafe extern "C" fn(*const Proc, *const Info, usize, *const c_void, usize, *const c_void, *mut c_void) -> c_int;
pub type Meet = unsafe extern "C" fn(*const Proc, usize, *const Info, usize, OpDone, *mut c_void) -> c_int;
pub type Connected = unsafe extern "C" fn(*const Proc, *mut c_void, *mut Info, usize, OpDone, *mut c_void) -> c_int;

/// `pmix_server_module_t`. What is not offered is null; and there is room for what later headers have put behind it.
#[repr(C)]
pub struct Module {
    pub connected: *const c_void,
    pub finalized: Option<Finalized>,
    pub abort: Option<Abort>,
    pub fence: Option<Fence>,
    pub direct_modex: Option<DirectModex>,
    pub publish: Option<Publish>,
    pub lookup: Option<Lookup>,
    pub unpublish: Option<Unpublish>,
    pub spawn: Option<Spawn>,
    pub connect: Option<Meet>,
    pub disconnect: Option<Meet>,
    pub not_offered: [*const c_void; 16],
    pub connected2: Option<Connected>,
    pub room: [*const c_void; 16],
}

library! {
    error_string = c"PMIx_Error_string": fn(c_int) -> *const c_char;
    value_load = c"PMIx_Value_load": fn(*mut Value, *const c_void, u16) -> c_int;
    value_destruct = c"PMIx_Value_destruct": fn(*mut Value) -> ();
    init = c"PMIx_server_init": fn(*mut Module, *mut Info, usize) -> c_int;
    finalize = c"PMIx_server_finalize": fn() -> c_int;
    regex = c"PMIx_generate_regex": fn(*const c_char, *mut *mut c_char) -> c_int;
    ppn = c"PMIx_generate_ppn": fn(*const c_char, *mut *mut c_char) -> c_int;
    register_space = c"PMIx_server_register_nspace": fn(*const u8, c_int, *mut Info, usize, OpDone, *mut c_void) -> c_int;
    register_client = c"PMIx_server_register_client": fn(*const Proc, u32, u32, *mut c_void, OpDone, *mut c_void) -> c_int;
    setup_fork = c"PMIx_server_setup_fork": fn(*const Proc, *mut *mut *mut c_char) -> c_int;
    dmodex = c"PMIx_server_dmodex_request": fn(*const Proc, DmodexAnswer, *mut c_void) -> c_int;
}

/// The first version number in a text like `OpenPMIx 4.2.2 (PMIx Standard: 4.2, ...)`.
fn version(text: &str) -> Option<(u32, u32)> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let mut parts = text[start..].split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Library {
    /// Loads it, if it is one whose layouts are known. The error is for people.
    pub fn load() -> Result<Library, String> {
        // SAFETY: the name is terminated; what the library does as it is loaded is as for any program that is linked with it. Its own plugins
        // look for its functions, so they are global.
        let handle = unsafe { libc::dlopen(c"libpmix.so.2".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            return Err("Open MPI programs need libpmix.so.2 (Debian: libpmix2) on every node".into());
        }
        // SAFETY: as in `look_up`.
        let found = unsafe { libc::dlsym(handle, c"PMIx_Get_version".as_ptr()) };
        if found.is_null() {
            return Err("libpmix.so.2 is no OpenPMIx library".into());
        }
        // SAFETY: it takes nothing and gives a terminated text that stays, in all versions.
        let text = unsafe {
            let get: unsafe extern "C" fn() -> *const c_char = std::mem::transmute(found);
            CStr::from_ptr(get()).to_string_lossy().into_owned()
        };
        match version(&text) {
            Some((4, minor)) if minor >= 2 => {}
            _ => return Err(format!("libpmix.so.2 is {text}: only OpenPMIx 4.2 and later ones of 4 are known")),
        }
        Library::look_up(handle).map_err(|name| format!("libpmix.so.2 has no {name}"))
    }

    /// What a status means, if it is bad. The text is for people.
    pub fn check(&self, what: &str, status: c_int) -> Result<(), String> {
        if matches!(status, SUCCESS | DONE) {
            return Ok(());
        }
        // SAFETY: it gives a terminated text that stays, for any number.
        let text = unsafe { CStr::from_ptr((self.error_string)(status)) };
        Err(format!("libpmix.so.2: {what}: {}", text.to_string_lossy()))
    }
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_are_read_from_what_libraries_say_of_themselves() {
        assert_eq!(version("OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, Stable ABI: 0.0)"), Some((4, 2)));
        assert_eq!(version("OpenPMIx 5.0.3, repo rev: v5.0.3"), Some((5, 0)));
        assert_eq!((version("PMIx"), version("4"), version("")), (None, None, None));
    }
}
