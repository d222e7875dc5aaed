//! Walks over the memory that a call names: once before it (the plan), once after it (the outputs), by the same description.

use crate::item::Item;
use crate::range::{MAX_RANGES, MAX_TOTAL, Range, TOP};
use crate::{Memory, Plan};

const PAGE: u64 = 4096;
/// More pages than this are never asked for at once.
const MAX_NEED: usize = 4096;

/// How a call is described.
pub(crate) enum Spec {
    /// By what each argument points to.
    Items(&'static [Item]),
    /// By a function, for what hangs together or is nested.
    Walk(fn(&mut Walk<'_>)),
    /// Not: it brings its process home, for this reason.
    Home(&'static str),
}

/// A list of ranges within its limits.
#[derive(Default)]
struct Ranges {
    list: Vec<Range>,
    total: u64,
}

impl Ranges {
    /// Adds one; `false` if that would be too much.
    fn push(&mut self, range: Range) -> bool {
        let total = self.total + range.len;
        let fits = self.list.len() < MAX_RANGES && total <= MAX_TOTAL;
        if fits {
            self.list.push(range);
            self.total = total;
        }
        fits
    }
}

/// One walk. Without `ret` it plans; with it, it says what was written.
pub(crate) struct Walk<'a> {
    args: &'a [u64; 6],
    ret: Option<i64>,
    mem: &'a mut dyn Memory,
    inputs: Ranges,
    outputs: Ranges,
    need: Vec<u64>,
    home: Option<&'static str>,
}

impl<'a> Walk<'a> {
    pub fn new(args: &'a [u64; 6], ret: Option<i64>, mem: &'a mut dyn Memory) -> Self {
        Walk { args, ret, mem, inputs: Ranges::default(), outputs: Ranges::default(), need: Vec::new(), home: None }
    }

    pub fn describe(&mut self, spec: Spec) {
        match spec {
            Spec::Items(items) => items.iter().for_each(|item| item.apply(self)),
            Spec::Walk(walk) => walk(self),
            Spec::Home(reason) => self.come_home(reason),
        }
    }

    pub fn into_plan(mut self) -> Plan {
        if let Some(reason) = self.home {
            return Plan::Home(reason);
        }
        if self.need.is_empty() {
            return Plan::Forward { inputs: self.inputs.list, outputs_max: self.outputs.list };
        }
        self.need.sort_unstable();
        self.need.dedup();
        Plan::NeedPages(self.need)
    }

    pub fn into_outputs(self) -> Vec<Range> {
        self.outputs.list
    }

    pub fn arg(&self, i: u8) -> u64 {
        self.args.get(usize::from(i)).copied().unwrap_or(0)
    }

    /// An argument that the kernel takes as `unsigned int`.
    pub fn uint(&self, i: u8) -> u64 {
        self.arg(i) & 0xffff_ffff
    }

    /// A length that the kernel takes as `int`; negative is 0, since no call accepts it.
    pub fn int(&self, i: u8) -> u64 {
        let n = self.uint(i);
        if n > 0x7fff_ffff { 0 } else { n }
    }

    /// Before the call.
    pub fn planning(&self) -> bool {
        self.ret.is_none()
    }

    /// It may succeed, or did.
    pub fn succeeds(&self) -> bool {
        self.ret.is_none_or(|r| !(-4095..0).contains(&r))
    }

    /// It may return more than 0, or did.
    pub fn positive(&self) -> bool {
        self.ret.is_none_or(|r| r > 0)
    }

    /// A signal may interrupt it, or did.
    pub fn interrupted(&self) -> bool {
        self.ret.is_none_or(|r| r == -i64::from(libc::EINTR) || (-516..=-512).contains(&r))
    }

    /// It found its arguments wrong, before it wrote anything.
    pub fn refused(&self) -> bool {
        self.ret == Some(-i64::from(libc::EINVAL))
    }

    /// How many of at most `max` things it may write, or did, when it returns their number.
    pub fn count(&self, max: u64) -> u64 {
        match self.ret {
            None => max,
            Some(r) => max.min(u64::try_from(r).unwrap_or(0)),
        }
    }

    /// It can't be forwarded after all.
    pub fn come_home(&mut self, reason: &'static str) {
        self.home.get_or_insert(reason);
    }

    /// The kernel may read this.
    pub fn input(&mut self, addr: u64, len: u64) {
        if self.planning() {
            self.push(addr, len, |w| &mut w.inputs);
        }
    }

    /// The kernel may write this, or did.
    pub fn output(&mut self, addr: u64, len: u64) {
        self.push(addr, len, |w| &mut w.outputs);
    }

    /// The kernel may read this, and may write any part of it, failing or not.
    pub fn inout(&mut self, addr: u64, len: u64) {
        self.input(addr, len);
        self.output(addr, len);
    }

    fn push(&mut self, addr: u64, len: u64, list: fn(&mut Self) -> &mut Ranges) {
        if let Some(range) = Range::bounded(addr, len)
            && !list(self).push(range)
        {
            self.come_home("it made a call with more or larger buffers than are allowed");
        }
    }

    /// Too much has been seen to go on.
    pub fn is_full(&self) -> bool {
        self.home.is_some() || self.need.len() >= MAX_NEED
    }

    /// A NUL-terminated string of at most `max` bytes. Pages that can't be read here are skipped, not trusted to end it.
    pub fn text(&mut self, addr: u64, max: u64) {
        if !self.planning() {
            return;
        }
        let Some(all) = Range::bounded(addr, max) else {
            return;
        };
        let mut at = all.addr;
        let mut buf = [0u8; 256];
        while at < all.end() {
            let page_end = (at | (PAGE - 1)) + 1;
            let want = (all.end().min(page_end) - at).min(buf.len() as u64) as usize;
            let got = self.mem.read(at, &mut buf[..want]).min(want);
            if got == 0 {
                at = page_end;
                continue;
            }
            if let Some(nul) = buf[..got].iter().position(|&b| b == 0) {
                return self.input(addr, at + nul as u64 + 1 - addr);
            }
            at += got as u64;
        }
        self.input(addr, all.len);
    }

    /// Reads what the kernel reads to find nested buffers; it is an input. `None` where the kernel would fail, and also where
    /// pages have to be pulled first.
    pub fn fetch(&mut self, addr: u64, len: u64) -> Option<Vec<u8>> {
        self.input(addr, len);
        self.peek(addr, len)
    }

    /// As `fetch`, for what is an input already.
    pub fn peek(&mut self, addr: u64, len: u64) -> Option<Vec<u8>> {
        if addr == 0 || addr >= TOP || len > TOP - addr {
            return None;
        }
        let mut bytes = vec![0u8; usize::try_from(len).ok()?];
        let mut missing = false;
        let mut done = 0;
        while done < bytes.len() {
            let at = addr + done as u64;
            let rest = &mut bytes[done..];
            let got = self.mem.read(at, rest).min(rest.len());
            done += got;
            if got == 0 {
                let page = at & !(PAGE - 1);
                if !self.planning() || self.need.len() >= MAX_NEED || !self.mem.can_pull(page) {
                    return None;
                }
                self.need.push(page);
                missing = true;
                done = usize::try_from(page + PAGE - addr).ok()?;
            }
        }
        (!missing).then_some(bytes)
    }

    /// A nested `u32`, already an input.
    pub fn peek_u32(&mut self, addr: u64) -> Option<u32> {
        self.peek(addr, 4).map(|b| u32_at(&b, 0))
    }

    /// Whether something can be read here at `addr`.
    pub fn is_readable(&mut self, addr: u64) -> bool {
        self.mem.read(addr, &mut [0]) > 0
    }
}

/// The `u32` at `at`; 0 past the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The `u64` at `at`; 0 past the end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}
