//! Memory of another process.
//!
//! `/proc/PID/mem` never blocks on a page that userfaultfd holds back (it fails with EIO, measured), so it is the
//! only way to touch pages that may be absent. `process_vm_readv` is faster but blocks there.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Most parts of one transfer (UIO_MAXIOV).
const IOV_MAX: usize = 1024;

/// An open `/proc/PID/mem`. Belongs to the address space the process had when it was opened.
#[derive(Debug)]
pub struct ProcessMemory {
    file: File,
    pid: i32,
}

impl ProcessMemory {
    /// Opens the memory of `pid`.
    pub fn open(pid: i32) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        Ok(ProcessMemory { file, pid })
    }

    /// Reads as much as is readable from `addr`; 0 when the first page is absent or unmapped.
    pub fn read(&self, addr: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], addr + done as u64) {
                Ok(0) | Err(_) => break,
                Ok(n) => done += n,
            }
        }
        done
    }

    /// Reads exactly `buf.len()` bytes.
    pub fn read_all(&self, addr: u64, buf: &mut [u8]) -> bool {
        self.read(addr, buf) == buf.len()
    }

    /// A little-endian word.
    pub fn word(&self, addr: u64) -> Option<u64> {
        let mut b = [0; 8];
        self.read_all(addr, &mut b).then(|| u64::from_le_bytes(b))
    }

    /// Writes as much as can be written; ignores page protections (as a debugger does).
    pub fn write(&self, addr: u64, buf: &[u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            match self.file.write_at(&buf[done..], addr + done as u64) {
                Ok(0) | Err(_) => break,
                Ok(n) => done += n,
            }
        }
        done
    }

    /// Fast read of pages that are known to be present (falls back to `read` where the protection forbids it). Pages that are shared since a
    /// fork become the process's own by that: the kernel pins them (gup_must_unshare in mm/internal.h).
    pub fn read_present(&self, addr: u64, buf: &mut [u8]) -> usize {
        let local = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
        let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: buf.len() };
        // SAFETY: `local` describes `buf`, which lives through the call; the remote range is checked by the kernel.
        let n = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        if n == buf.len() as isize { buf.len() } else { self.read(addr, buf) }
    }

    /// Fast write where the protection allows it, else as `write`.
    pub fn write_fast(&self, addr: u64, buf: &[u8]) -> usize {
        let local = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
        let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: buf.len() };
        // SAFETY: `local` describes `buf`, which the kernel only reads; the remote range is checked by the kernel.
        let n = unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) };
        if n == buf.len() as isize { buf.len() } else { self.write(addr, buf) }
    }

    /// Writes parts that lie one after the other from `addr`, where the protection allows it. A page that userfaultfd holds back must not be
    /// among them: it would be waited for. False: not all could be written.
    pub fn write_parts(&self, addr: u64, parts: &[&[u8]]) -> bool {
        let mut at = addr;
        for some in parts.chunks(IOV_MAX) {
            let local: Vec<libc::iovec> =
                some.iter().map(|p| libc::iovec { iov_base: p.as_ptr().cast_mut().cast(), iov_len: p.len() }).collect();
            let len: usize = some.iter().map(|p| p.len()).sum();
            let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
            // SAFETY: `local` describes `some`, which the kernel only reads; the remote range is checked by the kernel.
            let n = unsafe { libc::process_vm_writev(self.pid, local.as_ptr(), local.len() as u64, &remote, 1, 0) };
            if n != len as isize {
                return false;
            }
            at += len as u64;
        }
        true
    }
}
