//! Memory in which the buffers of one call lie, apart from each other, amid a pattern.

use pando_calls::Memory;

const LEN: usize = 1 << 18;
/// Bytes left alone between two buffers.
const GAP: usize = 192;
pub const PATTERN: u8 = 0xa5;

pub struct Arena {
    base: *mut u8,
    used: usize,
}

/// A call, and how to see what it did other than in memory.
pub struct Call {
    pub nr: i64,
    pub args: [u64; 6],
    pub probe: Option<Box<dyn FnOnce() -> Vec<u8>>>,
    /// It gives the same each time.
    pub stable: bool,
}

pub type Case = (&'static str, fn(&mut Arena) -> Call);

impl Call {
    pub fn new(nr: i64, args: &[u64]) -> Call {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        Call { nr, args: all, probe: None, stable: true }
    }

    /// It tells of times, counts or new numbers.
    pub fn unstable(mut self) -> Call {
        self.stable = false;
        self
    }

    pub fn probe(mut self, probe: impl FnOnce() -> Vec<u8> + 'static) -> Call {
        self.probe = Some(Box::new(probe));
        self
    }

    /// What is then read from `fd`.
    pub fn then_read(self, fd: u64) -> Call {
        self.probe(move || drain(fd))
    }
}

/// What can be read from `fd` at once.
pub fn drain(fd: u64) -> Vec<u8> {
    let mut buf = vec![0u8; 4096];
    let n = sys(libc::SYS_read, &[fd, buf.as_mut_ptr() as u64, 4096]);
    buf.truncate(usize::try_from(n).unwrap_or(0));
    buf.push(n as u8);
    buf
}

/// A system call; failure is `-errno`.
pub fn sys(nr: i64, args: &[u64]) -> i64 {
    let mut a = [0; 6];
    a[..args.len()].copy_from_slice(args);
    // SAFETY: the tests give each call buffers of the size that it expects, in the arena or in a vector that outlives it.
    let ret = unsafe { libc::syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if ret == -1 { -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { ret }
}

/// A system call that gives something, such as a descriptor.
pub fn must(nr: i64, args: &[u64]) -> u64 {
    let ret = sys(nr, args);
    u64::try_from(ret).unwrap_or_else(|_| panic!("{}: {ret}", pando_calls::name(nr as u64)))
}

impl Arena {
    pub fn new() -> Arena {
        // SAFETY: a new area, owned by the arena.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        Arena { base: base.cast(), used: 0 }
    }

    pub fn reset(&mut self) {
        self.bytes_mut().fill(PATTERN);
        self.used = 0;
    }

    pub fn start(&self) -> u64 {
        self.base as u64
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the area is LEN bytes long and lives as long as the arena.
        unsafe { std::slice::from_raw_parts(self.base, LEN) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the arena is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base, LEN) }
    }

    /// A buffer that holds the pattern.
    pub fn room(&mut self, len: usize) -> u64 {
        let at = (self.used + GAP).next_multiple_of(16);
        self.used = at + len;
        assert!(self.used + GAP < LEN);
        self.start() + at as u64
    }

    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        let addr = self.room(bytes.len());
        self.set(addr, bytes);
        addr
    }

    pub fn set(&mut self, addr: u64, bytes: &[u8]) {
        let at = (addr - self.start()) as usize;
        self.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn words(&mut self, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put(&bytes)
    }

    pub fn ints(&mut self, ints: &[i32]) -> u64 {
        let bytes: Vec<u8> = ints.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put(&bytes)
    }

    pub fn text(&mut self, text: &str) -> u64 {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.put(&bytes)
    }

    /// The two ints at `addr`, as descriptors.
    pub fn pair(&self, addr: u64) -> (u64, u64) {
        let at = (addr - self.start()) as usize;
        let int = |i: usize| i32::from_le_bytes(self.bytes()[at + i..at + i + 4].try_into().unwrap()) as u64;
        (int(0), int(4))
    }

    /// An `iovec` array with buffers of these sizes.
    pub fn vectors(&mut self, sizes: &[usize]) -> u64 {
        let words: Vec<u64> = sizes.iter().flat_map(|&n| [self.room(n), n as u64]).collect();
        self.words(&words)
    }

    /// An `iovec` array with these buffers.
    pub fn filled(&mut self, buffers: &[&[u8]]) -> u64 {
        let words: Vec<u64> = buffers.iter().flat_map(|b| [self.put(b), b.len() as u64]).collect();
        self.words(&words)
    }

    /// A pipe: the end to read from and the end to write to.
    pub fn pipe(&mut self) -> (u64, u64) {
        let at = self.room(8);
        must(libc::SYS_pipe2, &[at, libc::O_NONBLOCK as u64]);
        self.pair(at)
    }

    /// A pipe from which `bytes` can be read.
    pub fn pipe_with(&mut self, bytes: &[u8]) -> u64 {
        let (read, write) = self.pipe();
        must(libc::SYS_write, &[write, bytes.as_ptr() as u64, bytes.len() as u64]);
        read
    }

    /// A file with this in it.
    pub fn file_with(&mut self, bytes: &[u8]) -> u64 {
        let name = self.text("file");
        let fd = must(libc::SYS_memfd_create, &[name, 0]);
        must(libc::SYS_pwrite64, &[fd, bytes.as_ptr() as u64, bytes.len() as u64, 0]);
        fd
    }
}

impl Memory for Arena {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> usize {
        let Some(at) = addr.checked_sub(self.start()).filter(|&at| at < LEN as u64) else {
            return 0;
        };
        let at = at as usize;
        let n = buf.len().min(LEN - at);
        buf[..n].copy_from_slice(&self.bytes()[at..at + n]);
        n
    }

    fn can_pull(&mut self, _page: u64) -> bool {
        false
    }
}
