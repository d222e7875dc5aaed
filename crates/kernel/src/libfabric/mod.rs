//! An endpoint of libfabric for reliable datagrams: messages go to peers whose addresses are known, and come from anybody who knows this one's. The
//! library is found when it is needed (dlopen) and called as its headers say ([`ffi`]).
//!
//! Invariants: one thread makes an endpoint and uses it (it is not `Send`); a buffer that the library has is neither moved nor freed nor read before
//! the library has said that it is done with it, or the endpoint is closed.

mod ffi;
mod signals;

use crate::poll;
use ffi::{Library, Of, Point};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::Path;
use std::ptr::null_mut;

/// Longest address.
pub const MOST_ADDRESS: usize = 256;
/// Times that [`Endpoint::go_on`] asks for what has come.
const ROUNDS: usize = 16;
/// What an address of a provider that names its endpoints by texts begins with: `fi_shm://`, ...
const TEXT_BEGINS: &[u8] = b"fi_";

/// What is wanted.
pub struct Wanted<'a> {
    /// The library: a file, or a name that is looked for where libraries are.
    pub library: &'a Path,
    /// The provider, as `fi_info` calls it.
    pub provider: &'a str,
    /// This end's address in the network, for providers that have such ones.
    pub here: Option<IpAddr>,
    /// Bytes of a message that comes, at most.
    pub longest: usize,
    /// So many may come before somebody looks.
    pub buffers: usize,
}

/// Something has happened.
pub enum Event<'a> {
    /// A message has come: anybody's bytes.
    Came(&'a mut [u8]),
    /// What was sent under this token is on its way, or why it is not.
    Sent(u64, Result<(), String>),
    /// Something came that could not be taken.
    Spoiled(String),
}

/// One to whom something can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(u64);

/// Why something was not sent.
pub enum Unsent {
    /// There is no room now: later. It is given back.
    Again(Vec<u8>),
    /// It can't be.
    Never(String),
}

/// What is to be closed, in the order in which it was made.
struct Objects {
    library: Library,
    info: *mut ffi::Info,
    all: Vec<*mut ffi::Object>,
}

impl Drop for Objects {
    fn drop(&mut self) {
        for object in self.all.drain(..).rev() {
            // SAFETY: the library made it, nothing that was made of it is there any more, and it is closed once.
            let closed = unsafe { ((*(*object).calls).close)(object) };
            if closed < 0 {
                // What could not be closed may still be used by the library: all that it was made of stays.
                return;
            }
        }
        // SAFETY: the library made it, and nothing is left that points to it.
        unsafe { (self.library.free_info)(self.info) };
    }
}

/// See above.
pub struct Endpoint {
    objects: Objects,
    fabric: *mut Of<ffi::FabricCalls>,
    table: *mut Of<ffi::TableCalls>,
    queue: *mut Of<ffi::QueueCalls>,
    point: *mut Point,
    /// Readable when there is something to do; none: this provider can't say.
    ready: Option<RawFd>,
    format: u32,
    address: Vec<u8>,
    provider: String,
    known: HashMap<Vec<u8>, Peer>,
    /// Of messages that come: the context is the index and one.
    coming: Vec<Vec<u8>>,
    /// Those that the library does not have.
    free: Vec<usize>,
    /// Of messages that are under way, by context.
    going: HashMap<usize, (Vec<u8>, u64)>,
    next: usize,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let Some(point) = self.objects.all.pop() else { return };
        // SAFETY: the endpoint was made last, so nothing was made of it, and it is closed once.
        if unsafe { ((*(*point).calls).close)(point) } < 0 {
            // The library goes on with it, and with the buffers.
            std::mem::forget((std::mem::take(&mut self.coming), std::mem::take(&mut self.going)));
            self.objects.all.clear();
            self.objects.info = null_mut();
        }
    }
}

impl Endpoint {
    /// Opens one. The error is for people.
    pub fn open(wanted: &Wanted) -> Result<Endpoint, String> {
        let _signals = signals::Kept::new();
        let library = Library::load(wanted.library)?;
        let info = find(&library, wanted)?;
        let mut objects = Objects { library, info, all: Vec::new() };
        let (mut fabric, mut domain, mut table, mut queue, mut point) =
            (null_mut(), null_mut(), null_mut(), null_mut(), null_mut());
        // SAFETY: `info` and what it points to were made by the library; each object comes into a place of ours, and is used only when it was made.
        let ready = unsafe {
            let attributes = (*info).fabric;
            let check = |what, status| library.check(what, status);
            check("fi_fabric", (library.open)(attributes, &mut fabric, null_mut()))?;
            objects.all.push(fabric.cast());
            check("fi_domain", ((*(*fabric).calls).domain)(fabric, info, &mut domain, null_mut()))?;
            objects.all.push(domain.cast());
            let calls = &*(*domain).calls;
            let mut of_table: ffi::TableAttributes = std::mem::zeroed();
            of_table.kind = ffi::TABLE;
            check("fi_av_open", (calls.table)(domain, &mut of_table, &mut table, null_mut()))?;
            objects.all.push(table.cast());
            let mut of_queue: ffi::QueueAttributes = std::mem::zeroed();
            (of_queue.format, of_queue.wait) = (ffi::ENTRIES_OF_MESSAGES, ffi::DESCRIPTOR);
            let waits = (calls.queue)(domain, &mut of_queue, &mut queue, null_mut()) == 0;
            if !waits {
                of_queue.wait = ffi::NO_WAITING;
                check("fi_cq_open", (calls.queue)(domain, &mut of_queue, &mut queue, null_mut()))?;
            }
            objects.all.push(queue.cast());
            check("fi_endpoint", (calls.endpoint)(domain, info, &mut point, null_mut()))?;
            objects.all.push(point.cast());
            let of_point = &*(*point).object.calls;
            check("fi_ep_bind", (of_point.bind)(point.cast(), table.cast(), 0))?;
            check("fi_ep_bind", (of_point.bind)(point.cast(), queue.cast(), ffi::SENDS | ffi::RECEIVES))?;
            check("fi_enable", (of_point.control)(point.cast(), ffi::ENABLE, null_mut()))?;
            let mut descriptor: RawFd = -1;
            let got = waits
                && ((*(*queue).object.calls).control)(queue.cast(), ffi::GET_WAIT, (&raw mut descriptor).cast()) == 0;
            (got && descriptor >= 0).then_some(descriptor)
        };
        let address = name(&library, point)?;
        // SAFETY: both were made by the library, the text is terminated.
        let (format, provider) = unsafe {
            ((*info).address_format, CStr::from_ptr((*(*info).fabric).provider).to_string_lossy().into_owned())
        };
        let coming = vec![vec![0; wanted.longest]; wanted.buffers];
        let (free, next) = ((0..wanted.buffers).collect(), wanted.buffers + 1);
        let (known, going) = (HashMap::new(), HashMap::new());
        let mut endpoint = Endpoint {
            objects,
            fabric,
            table,
            queue,
            point,
            ready,
            format,
            address,
            provider,
            known,
            coming,
            free,
            going,
            next,
        };
        endpoint.give()?;
        Ok(endpoint)
    }

    /// What others need to know to send something here.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// The provider, with those that it is made of.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Can it wait without looking again and again?
    pub fn waits(&self) -> bool {
        self.ready.is_some()
    }

    /// Messages that the library has not done with.
    pub fn under_way(&self) -> usize {
        self.going.len()
    }

    /// Whoever has this address. The error is for people.
    pub fn peer(&mut self, address: &[u8]) -> Result<Peer, String> {
        if let Some(peer) = self.known.get(address) {
            return Ok(*peer);
        }
        if !is_address(self.format, &self.address, address) {
            return Err(format!("an address of {} bytes that is none of provider {}", address.len(), self.provider));
        }
        let mut number = ffi::ANYBODY;
        // SAFETY: the address has the length, or the end, that this provider's have; the number's place is ours.
        let put = unsafe {
            ((*(*self.table).calls).insert)(self.table, address.as_ptr().cast(), 1, &mut number, 0, null_mut())
        };
        if put != 1 || number == ffi::ANYBODY {
            return Err(self.objects.library.error("fi_av_insert", put.min(0) as isize));
        }
        self.known.insert(address.to_vec(), Peer(number));
        Ok(Peer(number))
    }

    /// Sends a message; an event with the token comes when the library is done with it.
    pub fn send(&mut self, to: Peer, message: Vec<u8>, token: u64) -> Result<(), Unsent> {
        let context = self.next;
        // SAFETY: the buffer is kept in `going` until the library is done with it, and a vector's bytes stay where they are when it is moved.
        let sent = unsafe {
            let send = (*(*self.point).messages).send;
            send(self.point, message.as_ptr().cast(), message.len(), null_mut(), to.0, context)
        };
        match sent {
            0 => {
                self.next += 1;
                self.going.insert(context, (message, token));
                Ok(())
            }
            ffi::AGAIN => Err(Unsent::Again(message)),
            error => Err(Unsent::Never(self.objects.library.error("fi_send", error))),
        }
    }

    /// Has the library go on, and says what has happened: how many. The error is for people, and the end of this endpoint.
    pub fn go_on(&mut self, mut on: impl FnMut(Event<'_>)) -> Result<usize, String> {
        let mut entries = [ffi::Entry { context: 0, flags: 0, length: 0 }; 32];
        let mut count = 0;
        // Not for as long as others send: what is to be sent waits meanwhile.
        for _ in 0..ROUNDS {
            // SAFETY: there is room for so many entries.
            let got = unsafe { ((*(*self.queue).calls).read)(self.queue, entries.as_mut_ptr(), entries.len()) };
            match usize::try_from(got) {
                Ok(got) => {
                    entries[..got.min(entries.len())].iter().for_each(|e| self.done(e, &mut on));
                    count += got;
                }
                Err(_) if got == ffi::AGAIN => break,
                Err(_) if got == ffi::FAILED_ONE => {
                    self.failed(&mut on);
                    count += 1;
                }
                Err(_) => return Err(self.objects.library.error("fi_cq_read", got)),
            }
            self.give()?;
        }
        self.give()?;
        Ok(count)
    }

    fn done(&mut self, entry: &ffi::Entry, on: &mut impl FnMut(Event<'_>)) {
        if let Some((_, token)) = self.going.remove(&entry.context) {
            return on(Event::Sent(token, Ok(())));
        }
        let index = entry.context.wrapping_sub(1);
        if let Some(buffer) = self.coming.get_mut(index) {
            let length = entry.length.min(buffer.len());
            on(Event::Came(&mut buffer[..length]));
            self.free.push(index);
        }
    }

    fn failed(&mut self, on: &mut impl FnMut(Event<'_>)) {
        // SAFETY: all-zero is a failure's value: numbers and null pointers.
        let mut failure: ffi::Failure = unsafe { std::mem::zeroed() };
        // SAFETY: the place is ours, and has no room for more than the entry.
        let got = unsafe { ((*(*self.queue).calls).read_failure)(self.queue, &mut failure, 0) };
        if got < 1 {
            return;
        }
        let why = self.objects.library.error("a message", failure.error as isize);
        if let Some((_, token)) = self.going.remove(&failure.context) {
            return on(Event::Sent(token, Err(why)));
        }
        let index = failure.context.wrapping_sub(1);
        if index < self.coming.len() {
            self.free.push(index);
        }
        on(Event::Spoiled(why));
    }

    /// Gives the library the buffers that it does not have, as long as it takes them.
    fn give(&mut self) -> Result<(), String> {
        while let Some(index) = self.free.pop() {
            let buffer = &mut self.coming[index];
            // SAFETY: the buffer stays where it is, and nobody looks into it before an entry with this context has come.
            let taken = unsafe {
                let receive = (*(*self.point).messages).receive;
                let (at, length) = (buffer.as_mut_ptr().cast(), buffer.len());
                receive(self.point, at, length, null_mut(), ffi::ANYBODY, index + 1)
            };
            match taken {
                0 => {}
                ffi::AGAIN => {
                    self.free.push(index);
                    return Ok(());
                }
                error => {
                    self.free.push(index);
                    return Err(self.objects.library.error("fi_recv", error));
                }
            }
        }
        Ok(())
    }

    /// Waits until there is something to do, `other` is readable, or so many microseconds are over (negative: for ever). For a provider that can't
    /// say when there is something to do the time should be short, or nothing be expected. Gives whether the library wants to go on.
    pub fn rest(&mut self, other: RawFd, timeout_us: i64) -> std::io::Result<bool> {
        let Some(ready) = self.ready else { return poll::wait(&[(other, false)], timeout_us).map(|_| false) };
        let mut objects = [self.queue.cast::<ffi::Object>()];
        // SAFETY: the list has one object, which lives.
        let may_wait = unsafe { ((*(*self.fabric).calls).try_wait)(self.fabric, objects.as_mut_ptr(), 1) } == 0;
        let said = poll::wait(&[(ready, false), (other, false)], if may_wait { timeout_us } else { 0 })?;
        Ok(!may_wait || said[0] != 0)
    }
}

/// The first thing that the library knows for this.
fn find(library: &Library, wanted: &Wanted) -> Result<*mut ffi::Info, String> {
    let provider = CString::new(wanted.provider).map_err(|e| e.to_string())?;
    let here = wanted.here.map(|at| CString::new(at.to_string())).transpose().map_err(|e| e.to_string())?;
    let node = here.as_ref().map_or(std::ptr::null(), |at| at.as_ptr());
    let flags = if here.is_some() { ffi::SOURCE } else { 0 };
    // SAFETY: a copy of nothing is an empty description with all its parts, made by the library, which also frees it; the provider's name is
    // freed with it, so it is from malloc.
    unsafe {
        let hints = (library.copy_info)(std::ptr::null());
        if hints.is_null() {
            return Err("libfabric: fi_allocinfo: no memory".into());
        }
        (*hints).caps = ffi::MSG;
        (*(*hints).endpoint).kind = ffi::RELIABLE_DATAGRAMS;
        (*(*hints).domain).threading = ffi::ONE_THREAD;
        (*(*hints).domain).resources = ffi::SENDERS_WAIT;
        (*(*hints).fabric).provider = libc::strdup(provider.as_ptr());
        let mut info = null_mut();
        let got = (library.get_info)(ffi::VERSION, node, std::ptr::null(), flags, hints, &mut info);
        (library.free_info)(hints);
        let what = format!("fi_getinfo: provider {} with reliable datagrams", wanted.provider);
        library.check(&what, got)?;
        if (*(*info).endpoint).longest_message < wanted.longest || (*(*info).endpoint).prefix > 0 {
            (library.free_info)(info);
            return Err(format!(
                "libfabric: provider {} takes no messages of {} bytes",
                wanted.provider, wanted.longest
            ));
        }
        Ok(info)
    }
}

/// An endpoint's address.
fn name(library: &Library, point: *mut Point) -> Result<Vec<u8>, String> {
    let mut address = vec![0u8; MOST_ADDRESS];
    let mut length = address.len();
    // SAFETY: the endpoint lives, there is room for `length` bytes.
    let got = unsafe { ((*(*point).names).name)(point.cast(), address.as_mut_ptr().cast::<c_void>(), &mut length) };
    library.check("fi_getname", got)?;
    address.truncate(length);
    Ok(address)
}

/// Is it an address as this provider has them? The library is not told how long it is, and reads as much as such a one has. `own`: the endpoint's.
fn is_address(format: u32, own: &[u8], other: &[u8]) -> bool {
    match format {
        ffi::TEXT => {
            let ends_once = other.iter().position(|b| *b == 0) == Some(other.len().wrapping_sub(1));
            ends_once && other.len() <= MOST_ADDRESS && other.starts_with(TEXT_BEGINS) && other.is_ascii()
        }
        // The same family.
        f if ffi::SOCKET_ADDRESSES.contains(&f) => other.len() == own.len() && own.len() >= 2 && other[..2] == own[..2],
        _ => other.len() == own.len(),
    }
}

#[cfg(test)]
mod tests;
