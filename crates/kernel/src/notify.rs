//! seccomp user notifications and the filter that asks for them.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

const RECV: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const SET_FLAGS: u64 = 0x4008_2104;
const ADD_DESCRIPTOR: u64 = 0x4018_2103;
const CONTINUE: u32 = 1;
/// SECCOMP_ADDFD_FLAG_SETFD.
const AT_THIS_NUMBER: u32 = 1;
/// SECCOMP_SET_MODE_FILTER.
pub const SET_MODE_FILTER: u64 = 1;
/// NEW_LISTENER | WAIT_KILLABLE_RECV: the second is needed so that a signal never replays a call that
/// was already received (ENGINE.md, 12).
pub const FILTER_FLAGS: u64 = 1 << 3 | 1 << 5;

#[repr(C)]
#[derive(Default)]
struct RawNotification {
    id: u64,
    pid: u32,
    flags: u32,
    nr: i32,
    arch: u32,
    instruction_pointer: u64,
    args: [u64; 6],
}
#[repr(C)]
struct RawResponse {
    id: u64,
    val: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct RawDescriptor {
    id: u64,
    flags: u32,
    ours: u32,
    theirs: u32,
    their_flags: u32,
}

/// Marks the number of a call of the 32-bit kernel: no table of calls knows it then.
pub const OF_32_BITS: u64 = 1 << 32;

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Notification {
    /// Cookie for the answer.
    pub id: u64,
    /// Thread that made it, as this process sees it.
    pub tid: i32,
    /// System call number; with [`OF_32_BITS`] one of the 32-bit kernel (`int 0x80`), whose numbers mean other calls.
    pub nr: u64,
    /// Arguments.
    pub args: [u64; 6],
    /// Address behind the instruction that made it.
    pub ip: u64,
}

/// The listener of one guest.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

impl Listener {
    /// Takes over a listener descriptor.
    pub fn new(fd: OwnedFd) -> Self {
        // Wakes the answered thread on this CPU (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP): we are about to sleep. Optional.
        // SAFETY: the argument is a plain value.
        unsafe { libc::ioctl(fd.as_raw_fd(), SET_FLAGS, 1u64) };
        Listener { fd }
    }

    /// For poll.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Receives a call; None when it went away (a signal came first) or the guest has ended.
    pub fn receive(&self) -> Option<Notification> {
        let mut n = RawNotification::default();
        // SAFETY: SECCOMP_IOCTL_NOTIF_RECV writes a seccomp_notif, which RawNotification mirrors.
        check(unsafe { i64::from(libc::ioctl(self.fd.as_raw_fd(), RECV, &mut n)) }).ok()?;
        Some(Notification {
            id: n.id,
            tid: n.pid as i32,
            nr: u64::from(n.nr as u32) | if n.arch == AUDIT_ARCH_X86_64 { 0 } else { OF_32_BITS },
            args: n.args,
            ip: n.instruction_pointer,
        })
    }

    fn send(&self, response: &RawResponse) -> io::Result<()> {
        // SAFETY: SECCOMP_IOCTL_NOTIF_SEND reads a seccomp_notif_resp, which RawResponse mirrors.
        check(unsafe { i64::from(libc::ioctl(self.fd.as_raw_fd(), SEND, response)) })?;
        Ok(())
    }

    /// Answers with a result as the kernel returns it (-4095..-1 are errors; restart codes too).
    pub fn answer(&self, id: u64, result: i64) -> io::Result<()> {
        let failed = (-4095..0).contains(&result);
        self.send(&RawResponse {
            id,
            val: if failed { 0 } else { result },
            error: if failed { result as i32 } else { 0 },
            flags: 0,
        })
    }

    /// Gives the caller our open file description as descriptor `number`, in place of what it has there.
    pub fn give(&self, id: u64, ours: &impl AsRawFd, number: i32) -> io::Result<()> {
        let ours = ours.as_raw_fd() as u32;
        let raw = RawDescriptor { id, flags: AT_THIS_NUMBER, ours, theirs: number as u32, their_flags: 0 };
        // SAFETY: SECCOMP_IOCTL_NOTIF_ADDFD reads a seccomp_notif_addfd, which RawDescriptor mirrors.
        check(unsafe { i64::from(libc::ioctl(self.fd.as_raw_fd(), ADD_DESCRIPTOR, &raw)) }).map(drop)
    }

    /// Lets the guest's own kernel run the call.
    pub fn run_natively(&self, id: u64) -> io::Result<()> {
        self.send(&RawResponse { id, val: 0, error: 0, flags: CONTINUE })
    }
}

/// One classic BPF instruction (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

const LD_ABS: u16 = 0x20;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const AND: u16 = 0x54;
const RET: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const USER_NOTIF: u32 = 0x7fc0_0000;
const KILL: u32 = 0x8000_0000;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// The flags of mmap(2) that say what kind of memory it is: its type, whether there is a file, huge pages.
const MEMORY_KINDS: u32 = (0xf | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_LOCKED) as u32;

/// A call that the guest's kernel may run by itself, optionally only when one argument has one of these values.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// System call number.
    pub nr: u32,
    /// Argument index and its allowed values (low 32 bits).
    pub only: Option<(u8, Vec<u32>)>,
}

fn ins(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// A call that the guest's kernel may run by itself when its first argument is 0 or between these, both included.
#[derive(Clone, Copy, Debug)]
pub struct Between {
    /// System call number.
    pub nr: u32,
    /// The least argument but 0.
    pub low: u64,
    /// The greatest.
    pub high: u64,
}

/// The part of the filter for such a call. Another one falls through, with its number where it was.
fn between(b: &Between) -> [Instruction; 17] {
    const LOW: u32 = 16;
    const HIGH: u32 = 20;
    let high_half = |v: u64| (v >> 32) as u32;
    [
        ins(JEQ, 0, 16, b.nr),
        ins(LD_ABS, 0, 0, HIGH),
        ins(JEQ, 0, 2, 0),
        ins(LD_ABS, 0, 0, LOW),
        ins(JEQ, 11, 0, 0),
        // Above the greatest?
        ins(LD_ABS, 0, 0, HIGH),
        ins(JGT, 8, 0, high_half(b.high)),
        ins(JEQ, 0, 2, high_half(b.high)),
        ins(LD_ABS, 0, 0, LOW),
        ins(JGT, 5, 0, b.high as u32),
        // Below the least?
        ins(LD_ABS, 0, 0, HIGH),
        ins(JGT, 4, 0, high_half(b.low)),
        ins(JEQ, 0, 2, high_half(b.low)),
        ins(LD_ABS, 0, 0, LOW),
        ins(JGE, 1, 0, b.low as u32),
        ins(RET, 0, 0, USER_NOTIF),
        ins(RET, 0, 0, ALLOW),
    ]
}

/// Builds the guest's filter: `native` calls run in the guest's kernel, `helper_calls` only when made at the
/// address `helper_ip` (the return address of the injected code), as is the making of a thread and of private memory. Whoever makes
/// other calls there is killed; elsewhere all others but `free` ask the supervisor, those of the 32-bit kernel, too.
pub fn filter(native: &[Allowed], free: Option<&Between>, helper_calls: &[u32], helper_ip: u64) -> Vec<Instruction> {
    let mut f = vec![ins(LD_ABS, 0, 0, 4), ins(JEQ, 1, 0, AUDIT_ARCH_X86_64), ins(RET, 0, 0, USER_NOTIF)];
    // Calls of the injected code: instruction_pointer is at offset 8 (low) and 12 (high).
    let n = helper_calls.len() as u8;
    f.push(ins(LD_ABS, 0, 0, 8));
    f.push(ins(JEQ, 0, n + 12, helper_ip as u32));
    f.push(ins(LD_ABS, 0, 0, 12));
    f.push(ins(JEQ, 0, n + 10, (helper_ip >> 32) as u32));
    f.push(ins(LD_ABS, 0, 0, 0));
    for (i, &nr) in helper_calls.iter().enumerate() {
        f.push(ins(JEQ, n - i as u8 + 7, 0, nr));
    }
    // Only a thread like the others: no namespace, no process, no stack or address of its own choice.
    f.push(ins(JEQ, 0, 2, libc::SYS_clone as u32));
    f.push(ins(LD_ABS, 0, 0, 16));
    f.push(ins(JEQ, 5, 4, crate::inject::THREAD_FLAGS));
    // Only memory that is this process's own, and is seen when it is counted: shared memory outlives its pages here.
    f.push(ins(JEQ, 0, 3, libc::SYS_mmap as u32));
    f.push(ins(LD_ABS, 0, 0, 16 + 8 * 3));
    f.push(ins(AND, 0, 0, MEMORY_KINDS));
    f.push(ins(JEQ, 1, 0, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u32));
    f.push(ins(RET, 0, 0, KILL));
    f.push(ins(RET, 0, 0, ALLOW));
    f.push(ins(LD_ABS, 0, 0, 0));
    f.extend(free.iter().flat_map(|b| between(b)));
    for a in native {
        match &a.only {
            None => f.extend([ins(JEQ, 0, 1, a.nr), ins(RET, 0, 0, ALLOW)]),
            Some((index, values)) => {
                let m = values.len() as u8;
                // not this call: skip load, tests, notify, allow and reload nothing
                f.push(ins(JEQ, 0, m + 3, a.nr));
                f.push(ins(LD_ABS, 0, 0, 16 + 8 * u32::from(*index)));
                for (i, &v) in values.iter().enumerate() {
                    f.push(ins(JEQ, m - i as u8, 0, v));
                }
                f.push(ins(RET, 0, 0, USER_NOTIF));
                f.push(ins(RET, 0, 0, ALLOW));
            }
        }
    }
    f.push(ins(RET, 0, 0, USER_NOTIF));
    f
}

/// The filter as bytes, for the memory of the guest.
pub fn filter_bytes(filter: &[Instruction]) -> Vec<u8> {
    let mut out = Vec::with_capacity(filter.len() * 8);
    for i in filter {
        out.extend_from_slice(&i.code.to_le_bytes());
        out.extend_from_slice(&[i.jt, i.jf]);
        out.extend_from_slice(&i.k.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel looks at: number, architecture, instruction pointer, arguments (`struct seccomp_data`).
    #[derive(Clone, Copy)]
    struct Data {
        nr: u32,
        arch: u32,
        ip: u64,
        args: [u64; 6],
    }

    const HERE: Data = Data { nr: 0, arch: AUDIT_ARCH_X86_64, ip: 0x1000, args: [0; 6] };
    const ENGINE: u64 = 0x1234_5678_9021;
    const HELPERS: [u32; 2] = [libc::SYS_munmap as u32, libc::SYS_close as u32];

    /// The filter's answer, as the kernel's interpreter gives it.
    fn answer(filter: &[Instruction], data: Data) -> u32 {
        let mut words = vec![data.nr, data.arch, data.ip as u32, (data.ip >> 32) as u32];
        words.extend(data.args.iter().flat_map(|a| [*a as u32, (a >> 32) as u32]));
        let (mut at, mut acc) = (0, 0);
        loop {
            let i = filter[at];
            at += 1;
            match i.code {
                LD_ABS => acc = words[i.k as usize / 4],
                AND => acc &= i.k,
                JEQ => at += usize::from(if acc == i.k { i.jt } else { i.jf }),
                JGT => at += usize::from(if acc > i.k { i.jt } else { i.jf }),
                JGE => at += usize::from(if acc >= i.k { i.jt } else { i.jf }),
                RET => return i.k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn ours() -> Vec<Instruction> {
        let native = [Allowed { nr: 39, only: None }, Allowed { nr: 202, only: Some((1, vec![0, 1, 128])) }];
        filter(&native, None, &HELPERS, ENGINE)
    }

    #[test]
    fn an_argument_between_two_numbers_is_allowed() {
        let asked = |b: &Between, arg: u64| {
            let data = Data { nr: 12, args: [arg, 1, 2, 3, 4, 5], ..HERE };
            answer(&filter(&[Allowed { nr: 39, only: None }], Some(b), &HELPERS, ENGINE), data) == ALLOW
        };
        let ends = [1, 4096, 0xffff_ffff, 0x1_0000_0000, 0x1_0000_1000, 0x5555_ffff_f000, 0x5556_0000_0000, u64::MAX];
        for low in ends {
            for high in ends {
                let b = Between { nr: 12, low, high };
                let near = |v: u64| [v.wrapping_sub(1), v, v.wrapping_add(1), v ^ 1 << 32];
                for arg in ends.into_iter().chain([0]).flat_map(near) {
                    assert_eq!(asked(&b, arg), arg == 0 || (low..=high).contains(&arg), "{low:x}..={high:x}: {arg:x}");
                }
                let other =
                    |nr| answer(&filter(&[Allowed { nr: 39, only: None }], Some(&b), &[], ENGINE), Data { nr, ..HERE });
                assert_eq!((other(39), other(11), other(13)), (ALLOW, USER_NOTIF, USER_NOTIF));
            }
        }
    }

    #[test]
    fn a_program_runs_nothing_but_what_is_allowed() {
        let filter = ours();
        for nr in (0..5_000).chain((0..5_000).map(|nr| nr | 0x4000_0000)).chain([u32::MAX, 1 << 31]) {
            for arg in [0, 1, 2, 128, u64::MAX] {
                let data = Data { nr, args: [arg; 6], ..HERE };
                let allowed = nr == 39 || nr == 202 && [0, 1, 128].contains(&(arg as u32));
                assert_eq!(answer(&filter, data), if allowed { ALLOW } else { USER_NOTIF }, "{nr} {arg}");
                for arch in [0x4000_0003, 0, u32::MAX] {
                    let by_the_engine = Data { arch, ip: ENGINE, ..data };
                    assert_eq!(answer(&filter, by_the_engine), USER_NOTIF, "{nr} of another kernel interface");
                }
            }
            for ip in [ENGINE ^ 1, ENGINE ^ 1 << 32, ENGINE & 0xffff_ffff, ENGINE >> 32] {
                let data = Data { nr, ip, ..HERE };
                assert_eq!(answer(&filter, data), if nr == 39 || nr == 202 { ALLOW } else { USER_NOTIF });
            }
        }
    }

    #[test]
    fn at_the_engines_address_only_the_engines_calls_are_made() {
        let filter = ours();
        for nr in (0..5_000).chain([0x4000_0000, 0x4000_0009, 0x4000_0038, u32::MAX]) {
            for arg in [0, 1, 2, 0x22, u64::from(crate::inject::THREAD_FLAGS), u64::MAX] {
                let data = Data { nr, ip: ENGINE, args: [arg; 6], ..HERE };
                let thread = nr == libc::SYS_clone as u32 && arg == u64::from(crate::inject::THREAD_FLAGS);
                let memory = nr == libc::SYS_mmap as u32 && arg == 0x22;
                let allowed = HELPERS.contains(&nr) || thread || memory;
                assert_eq!(answer(&filter, data), if allowed { ALLOW } else { KILL }, "{nr} {arg:#x}");
            }
        }
    }

    #[test]
    fn the_engine_maps_private_memory_only() {
        let filter = ours();
        let mmap = |flags: i32| {
            let args = [0, 4096, 3, flags as u64, u64::MAX, 0];
            answer(&filter, Data { nr: libc::SYS_mmap as u32, ip: ENGINE, args, ..HERE })
        };
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        assert_eq!(mmap(private | libc::MAP_FIXED | libc::MAP_NORESERVE), ALLOW);
        for bad in [libc::MAP_SHARED, libc::MAP_HUGETLB, libc::MAP_LOCKED, 8] {
            assert_eq!(mmap(private | bad), KILL, "{bad:#x}");
        }
        assert_eq!(mmap(libc::MAP_PRIVATE), KILL, "of a file");
        assert_eq!(mmap(libc::MAP_SHARED | libc::MAP_ANONYMOUS), KILL);
    }
}
