//! What the headers of libfabric 1.17 (`rdma/fabric.h`, `fi_domain.h`, `fi_endpoint.h`, `fi_cm.h`, `fi_eq.h`) say, as far as it is used here, and the
//! library itself, found when it is needed. Most of its calls are inline functions there, which look into the tables that its objects point to.
//!
//! Invariants: each struct has the layout that a C compiler gives it on a 64-bit machine (the sizes and offsets below were printed by a C program
//! with those headers), or is the beginning of one that only the library makes; the library is never unloaded; nothing but `fi_version` is called
//! before its version is known.

use crate::loaded::library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The interface that is asked for: 1.17.
pub const VERSION: u32 = 1 << 16 | 17;

pub const MSG: u64 = 1 << 1;
pub const RECEIVES: u64 = 1 << 10;
pub const SENDS: u64 = 1 << 11;
/// The address in `fi_getinfo` is this end's.
pub const SOURCE: u64 = 1 << 57;
pub const RELIABLE_DATAGRAMS: c_int = 3;
pub const ONE_THREAD: c_int = 3;
pub const SENDERS_WAIT: c_int = 2;
pub const TABLE: c_int = 2;
pub const ENTRIES_OF_MESSAGES: c_int = 2;
pub const NO_WAITING: c_int = 0;
pub const DESCRIPTOR: c_int = 3;
pub const GET_WAIT: c_int = 5;
pub const ENABLE: c_int = 6;
pub const ANYBODY: u64 = u64::MAX;
/// Formats of addresses: as sockets have them, and texts.
pub const SOCKET_ADDRESSES: std::ops::RangeInclusive<u32> = 1..=3;
pub const TEXT: u32 = 9;

pub const AGAIN: isize = -(libc::EAGAIN as isize);
/// An operation has failed: there is an entry about it.
pub const FAILED_ONE: isize = -259;

/// `struct fi_info`.
#[repr(C)]
pub struct Info {
    pub next: *mut Info,
    pub caps: u64,
    pub mode: u64,
    pub address_format: u32,
    pub source_length: usize,
    pub target_length: usize,
    pub source: *mut c_void,
    pub target: *mut c_void,
    pub handle: *mut c_void,
    pub sending: *mut c_void,
    pub receiving: *mut c_void,
    pub endpoint: *mut EndpointAttributes,
    pub domain: *mut DomainAttributes,
    pub fabric: *mut FabricAttributes,
    pub nic: *mut c_void,
}

/// The beginning of `struct fi_ep_attr`.
#[repr(C)]
pub struct EndpointAttributes {
    pub kind: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub longest_message: usize,
    pub prefix: usize,
}

/// The beginning of `struct fi_domain_attr`.
#[repr(C)]
pub struct DomainAttributes {
    pub domain: *mut c_void,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resources: c_int,
    pub addresses: c_int,
    pub registration: c_int,
}

/// `struct fi_fabric_attr`.
#[repr(C)]
pub struct FabricAttributes {
    pub fabric: *mut c_void,
    pub name: *mut c_char,
    pub provider: *mut c_char,
    pub provider_version: u32,
    pub version: u32,
}

/// `struct fi_av_attr`.
#[repr(C)]
pub struct TableAttributes {
    pub kind: c_int,
    pub context_bits: c_int,
    pub count: usize,
    pub each: usize,
    pub name: *const c_char,
    pub map: *mut c_void,
    pub flags: u64,
}

/// `struct fi_cq_attr`.
#[repr(C)]
pub struct QueueAttributes {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait: c_int,
    pub vector: c_int,
    pub condition: c_int,
    pub set: *mut c_void,
}

/// `struct fi_cq_msg_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Entry {
    pub context: usize,
    pub flags: u64,
    pub length: usize,
}

/// `struct fi_cq_err_entry`.
#[repr(C)]
pub struct Failure {
    pub context: usize,
    pub flags: u64,
    pub length: usize,
    pub buffer: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub over: usize,
    pub error: c_int,
    pub of_provider: c_int,
    pub more: *mut c_void,
    pub more_length: usize,
}

/// `struct fid`: what every object begins with.
#[repr(C)]
pub struct Object {
    pub class: usize,
    pub context: *mut c_void,
    pub calls: *const Calls,
}

/// The beginning of `struct fi_ops`.
#[repr(C)]
pub struct Calls {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut Object) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Object, *mut Object, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Object, c_int, *mut c_void) -> c_int,
}

/// `struct fid_fabric`, `fid_domain`, `fid_av` and `fid_cq`, as far as they are alike.
#[repr(C)]
pub struct Of<T> {
    pub object: Object,
    pub calls: *const T,
}

/// The beginning of `struct fi_ops_fabric`.
#[repr(C)]
pub struct FabricCalls {
    pub size: usize,
    pub domain: unsafe extern "C" fn(*mut Of<FabricCalls>, *mut Info, *mut *mut Of<DomainCalls>, *mut c_void) -> c_int,
    pub not_used: [*const c_void; 3],
    pub try_wait: unsafe extern "C" fn(*mut Of<FabricCalls>, *mut *mut Object, c_int) -> c_int,
}

/// The beginning of `struct fi_ops_domain`.
#[repr(C)]
pub struct DomainCalls {
    pub size: usize,
    pub table: unsafe extern "C" fn(
        *mut Of<DomainCalls>,
        *mut TableAttributes,
        *mut *mut Of<TableCalls>,
        *mut c_void,
    ) -> c_int,
    pub queue: unsafe extern "C" fn(
        *mut Of<DomainCalls>,
        *mut QueueAttributes,
        *mut *mut Of<QueueCalls>,
        *mut c_void,
    ) -> c_int,
    pub endpoint: unsafe extern "C" fn(*mut Of<DomainCalls>, *mut Info, *mut *mut Point, *mut c_void) -> c_int,
}

/// The beginning of `struct fi_ops_av`.
#[repr(C)]
pub struct TableCalls {
    pub size: usize,
    pub insert: unsafe extern "C" fn(*mut Of<TableCalls>, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
}

/// The beginning of `struct fi_ops_cq`.
#[repr(C)]
pub struct QueueCalls {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut Of<QueueCalls>, *mut Entry, usize) -> isize,
    pub not_used: *const c_void,
    pub read_failure: unsafe extern "C" fn(*mut Of<QueueCalls>, *mut Failure, u64) -> isize,
}

/// The beginning of `struct fid_ep`.
#[repr(C)]
pub struct Point {
    pub object: Object,
    pub calls: *const c_void,
    pub names: *const NameCalls,
    pub messages: *const MessageCalls,
}

/// The beginning of `struct fi_ops_cm`.
#[repr(C)]
pub struct NameCalls {
    pub size: usize,
    pub not_used: *const c_void,
    pub name: unsafe extern "C" fn(*mut Object, *mut c_void, *mut usize) -> c_int,
}

/// The beginning of `struct fi_ops_msg`.
#[repr(C)]
pub struct MessageCalls {
    pub size: usize,
    pub receive: unsafe extern "C" fn(*mut Point, *mut c_void, usize, *mut c_void, u64, usize) -> isize,
    pub not_used: [*const c_void; 2],
    pub send: unsafe extern "C" fn(*mut Point, *const c_void, usize, *mut c_void, u64, usize) -> isize,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Info>() == 120 && offset_of!(Info, fabric) == 104 && offset_of!(Info, address_format) == 24);
    assert!(offset_of!(EndpointAttributes, longest_message) == 16 && offset_of!(EndpointAttributes, prefix) == 24);
    assert!(offset_of!(DomainAttributes, threading) == 16 && offset_of!(DomainAttributes, registration) == 36);
    assert!(size_of::<FabricAttributes>() == 32 && offset_of!(FabricAttributes, provider) == 16);
    assert!(size_of::<TableAttributes>() == 48 && size_of::<QueueAttributes>() == 40);
    assert!(size_of::<Entry>() == 24 && size_of::<Failure>() == 80 && size_of::<Object>() == 24);
    assert!(offset_of!(Of<TableCalls>, calls) == 24 && offset_of!(Point, names) == 32);
    assert!(offset_of!(Point, messages) == 40 && offset_of!(FabricCalls, try_wait) == 40);
    assert!(offset_of!(DomainCalls, queue) == 16 && offset_of!(DomainCalls, endpoint) == 24);
    assert!(offset_of!(NameCalls, name) == 16 && offset_of!(MessageCalls, send) == 32);
    assert!(offset_of!(QueueCalls, read_failure) == 24 && offset_of!(MessageCalls, receive) == 8);
};

library! {
    version = c"fi_version": fn() -> u32;
    get_info = c"fi_getinfo": fn(u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info) -> c_int;
    free_info = c"fi_freeinfo": fn(*mut Info) -> ();
    copy_info = c"fi_dupinfo": fn(*const Info) -> *mut Info;
    open = c"fi_fabric": fn(*mut FabricAttributes, *mut *mut Of<FabricCalls>, *mut c_void) -> c_int;
    error_string = c"fi_strerror": fn(c_int) -> *const c_char;
}

impl Library {
    /// Loads it from this file, or where libraries are, if it is one whose layouts are known. The error is for people.
    pub fn load(file: &Path) -> Result<Library, String> {
        let shown = file.display();
        let name = CString::new(file.as_os_str().as_bytes()).map_err(|_| format!("{shown} is no file's name"))?;
        // SAFETY: the name is terminated; what the library does as it is loaded is as for any program that is linked with it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(format!("{shown} can't be loaded (Debian: libfabric1)"));
        }
        let library = Library::look_up(handle).map_err(|name| format!("{shown} has no {name}"))?;
        // SAFETY: it takes nothing and gives a number, in all versions.
        let version = unsafe { (library.version)() };
        match (version >> 16, version & 0xffff) {
            (1, 17..) => Ok(library),
            (major, minor) => Err(format!("{shown} is {major}.{minor}: only 1.17 and later ones of 1 are known")),
        }
    }

    /// What an error means, with what failed. The text is for people.
    pub fn error(&self, what: &str, status: isize) -> String {
        let number = c_int::try_from(status.unsigned_abs()).unwrap_or(c_int::MAX);
        // SAFETY: it gives a terminated text that stays, for any number.
        let text = unsafe { CStr::from_ptr((self.error_string)(number)) };
        format!("libfabric: {what}: {}", text.to_string_lossy())
    }

    /// An error, if it is one.
    pub fn check(&self, what: &str, status: c_int) -> Result<(), String> {
        if status < 0 { Err(self.error(what, status as isize)) } else { Ok(()) }
    }
}
