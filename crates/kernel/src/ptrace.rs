//! ptrace(2), the PTRACE_SEIZE way.

use crate::check;
use crate::signal::SigInfo;
use crate::xstate;
use std::io;
use std::time::{Duration, Instant};

/// General registers.
pub type Registers = libc::user_regs_struct;

/// `NT_X86_XSTATE` (elf.h).
const NT_X86_XSTATE: usize = 0x202;
/// The legacy area alone.
const NT_PRFPREG: usize = 2;
const GETSIGMASK: libc::c_uint = 0x420a;
const SETSIGMASK: libc::c_uint = 0x420b;
const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;

/// Registration of restartable sequences (`struct ptrace_rseq_configuration`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RseqConfig {
    /// Address of the area, 0 when not registered.
    pub pointer: u64,
    /// Bytes.
    pub size: u32,
    /// Signature before abort handlers.
    pub signature: u32,
    /// Registration flags.
    pub flags: u32,
    /// Unused.
    pub pad: u32,
}

/// What waitpid said about a tracee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// About to receive this signal.
    Signal(i32),
    /// PTRACE_EVENT_STOP with this signal: SIGTRAP for an interrupt, a stop signal for a group stop.
    Event(i32),
    /// Another ptrace event.
    Other(i32),
    /// The process is gone; the raw wait status.
    Gone(i32),
}

/// What took SIGCHLD away while it waited for one thread says it again at its end: another one may have changed, too.
struct Retold(bool);

impl Drop for Retold {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: plain value; SIGCHLD is blocked where it could be taken away, and ignored elsewhere.
            unsafe { libc::raise(libc::SIGCHLD) };
        }
    }
}

/// A thread traced by this one.
#[derive(Clone, Copy, Debug)]
pub struct Tracee {
    /// Its thread id.
    pub tid: i32,
}

impl Tracee {
    fn request(self, request: libc::c_uint, addr: usize, data: usize) -> io::Result<i64> {
        // SAFETY: every caller in this module passes as addr/data either plain values or pointers to memory that is
        // valid and large enough for this request for the duration of the call.
        check(unsafe { libc::ptrace(request, self.tid, addr, data) })
    }

    /// Starts tracing without stopping. `options` are PTRACE_O_ bits.
    pub fn seize(self, options: i32) -> io::Result<()> {
        self.request(libc::PTRACE_SEIZE, 0, options as usize).map(drop)
    }

    /// Changes the options; the tracee must be stopped.
    pub fn set_options(self, options: i32) -> io::Result<()> {
        self.request(libc::PTRACE_SETOPTIONS, 0, options as usize).map(drop)
    }

    /// Asks for a stop.
    pub fn interrupt(self) -> io::Result<()> {
        self.request(libc::PTRACE_INTERRUPT, 0, 0).map(drop)
    }

    /// Continues, delivering `signal` (0: none).
    pub fn cont(self, signal: i32) -> io::Result<()> {
        self.request(libc::PTRACE_CONT, 0, signal as usize).map(drop)
    }

    /// Runs one instruction, delivering `signal` first.
    pub fn step(self, signal: i32) -> io::Result<()> {
        self.request(libc::PTRACE_SINGLESTEP, 0, signal as usize).map(drop)
    }

    /// Continues to the next entry into or exit from a system call, delivering `signal` first (0: none).
    pub fn to_system_call(self, signal: i32) -> io::Result<()> {
        self.request(libc::PTRACE_SYSCALL, 0, signal as usize).map(drop)
    }

    /// Stays in a group stop but listens for its end.
    pub fn listen(self) -> io::Result<()> {
        self.request(libc::PTRACE_LISTEN, 0, 0).map(drop)
    }

    /// Lets go, delivering `signal`.
    pub fn detach(self, signal: i32) -> io::Result<()> {
        self.request(libc::PTRACE_DETACH, 0, signal as usize).map(drop)
    }

    /// General registers.
    pub fn registers(self) -> io::Result<Registers> {
        // SAFETY: all-zero is a valid user_regs_struct.
        let mut regs: Registers = unsafe { std::mem::zeroed() };
        self.request(libc::PTRACE_GETREGS, 0, &raw mut regs as usize)?;
        Ok(regs)
    }

    /// Sets the general registers.
    pub fn set_registers(self, regs: &Registers) -> io::Result<()> {
        self.request(libc::PTRACE_SETREGS, 0, std::ptr::from_ref(regs) as usize).map(drop)
    }

    /// Extended state (x87, SSE, AVX, AVX-512, AMX), packed ([`xstate`]).
    pub fn xstate(self) -> io::Result<Vec<u8>> {
        let packed = xstate::pack(&self.raw_xstate()?, &xstate::layout());
        packed.ok_or_else(|| io::Error::other("the kernel's extended state can't be understood"))
    }

    fn raw_xstate(self) -> io::Result<Vec<u8>> {
        match self.register_set(NT_X86_XSTATE) {
            // A CPU without xsave has the legacy area only.
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(xstate::from_legacy(self.register_set(NT_PRFPREG)?)),
            other => other,
        }
    }

    fn register_set(self, which: usize) -> io::Result<Vec<u8>> {
        let mut buf = vec![0u8; 65536];
        let mut iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
        self.request(libc::PTRACE_GETREGSET, which, &raw mut iov as usize)?;
        buf.truncate(iov.iov_len);
        Ok(buf)
    }

    fn set_register_set(self, which: usize, bytes: &mut [u8]) -> io::Result<()> {
        let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        self.request(libc::PTRACE_SETREGSET, which, &raw mut iov as usize).map(drop)
    }

    /// Sets the extended state, packed.
    pub fn set_xstate(self, packed: &[u8]) -> io::Result<()> {
        let mut state = self.raw_xstate()?;
        xstate::unpack(packed, &xstate::layout(), &mut state).map_err(io::Error::other)?;
        match self.set_register_set(NT_X86_XSTATE, &mut state) {
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {
                self.set_register_set(NT_PRFPREG, &mut state[..xstate::LEGACY])
            }
            other => other,
        }
    }

    /// Blocked signals.
    pub fn signal_mask(self) -> io::Result<u64> {
        let mut mask = 0u64;
        self.request(GETSIGMASK, 8, &raw mut mask as usize)?;
        Ok(mask)
    }

    /// Sets the blocked signals.
    pub fn set_signal_mask(self, mask: u64) -> io::Result<()> {
        self.request(SETSIGMASK, 8, &raw const mask as usize).map(drop)
    }

    /// The siginfo of the signal-delivery stop.
    pub fn siginfo(self) -> io::Result<SigInfo> {
        let mut info = [0u8; 128];
        self.request(libc::PTRACE_GETSIGINFO, 0, info.as_mut_ptr() as usize)?;
        Ok(info)
    }

    /// Replaces the siginfo of the signal about to be delivered.
    pub fn set_siginfo(self, info: &SigInfo) -> io::Result<()> {
        self.request(libc::PTRACE_SETSIGINFO, 0, info.as_ptr() as usize).map(drop)
    }

    /// Restartable-sequence registration; none on kernels without it.
    pub fn rseq(self) -> RseqConfig {
        let mut cfg = RseqConfig::default();
        let size = size_of::<RseqConfig>();
        match self.request(GET_RSEQ_CONFIGURATION, size, &raw mut cfg as usize) {
            Ok(_) => cfg,
            Err(_) => RseqConfig::default(),
        }
    }

    /// Queued signals with their siginfo; `shared` is the process-wide queue.
    pub fn pending(self, shared: bool) -> Vec<SigInfo> {
        #[repr(C)]
        struct Args {
            off: u64,
            flags: u32,
            nr: i32,
        }
        const AT_ONCE: usize = 256;
        let mut out: Vec<SigInfo> = Vec::new();
        loop {
            let mut part = vec![[0u8; 128]; AT_ONCE];
            let args = Args { off: out.len() as u64, flags: u32::from(shared), nr: AT_ONCE as i32 };
            let got = self.request(libc::PTRACE_PEEKSIGINFO, &raw const args as usize, part.as_mut_ptr() as usize);
            let got = got.unwrap_or(0) as usize;
            out.extend_from_slice(&part[..got]);
            if got < AT_ONCE {
                return out;
            }
        }
    }

    /// Waits for a change, at most `limit`.
    pub fn wait_within(self, limit: Duration) -> io::Result<Option<Stop>> {
        /// Most changes come within microseconds.
        const LOOKS: u32 = 100;
        let (begun, mut looks) = (Instant::now(), 0);
        let mut taken = Retold(false);
        loop {
            if let Some(stop) = self.wait(false)? {
                return Ok(Some(stop));
            }
            if begun.elapsed() >= limit {
                return Ok(None);
            }
            looks += 1;
            if looks < LOOKS {
                std::thread::yield_now();
            } else if crate::signal::wait_for_child(Duration::from_millis(10).min(limit)) {
                taken.0 = true;
            } else if self.is_dead() {
                return Ok(Some(self.wait(false)?.unwrap_or(Stop::Gone(libc::SIGKILL))));
            }
        }
    }

    /// Waits for a change. `block` false: returns None when there is none now.
    pub fn wait(self, block: bool) -> io::Result<Option<Stop>> {
        if !block {
            return Ok(wait_for(self.tid, false)?.map(|(_, stop)| stop));
        }
        loop {
            let stop = self.wait_within(Duration::from_secs(3600))?;
            if stop.is_some() {
                return Ok(stop);
            }
        }
    }

    /// A stop, if there is one now; never an end: that is left to whoever is the parent, which may be another part of this very program.
    pub fn stopped(self) -> io::Result<Option<Stop>> {
        // SAFETY: all-zero is a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
        // SAFETY: `info` is a valid siginfo_t.
        check(i64::from(unsafe { libc::waitid(libc::P_PID, self.tid as u32, &raw mut info, flags) }))?;
        // SAFETY: waitid fills in a child's siginfo; where nothing has changed pid and status stay 0.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        Ok((pid != 0).then(|| decode(status << 8 | 0x7f)))
    }

    /// A first thread that has been killed says so only after all others have been waited for, which whoever waits for it does not do.
    fn is_dead(self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.tid)).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
    }

    /// What belongs to a stop at a ptrace event: the id of the new thread or process at PTRACE_EVENT_CLONE and its like.
    pub fn event_message(self) -> io::Result<u64> {
        let mut message = 0u64;
        self.request(libc::PTRACE_GETEVENTMSG, 0, &raw mut message as usize)?;
        Ok(message)
    }
}

/// A change of any thread that this one traces, or of a child. None when there is none now; an error (ECHILD) when there are neither.
pub fn wait_any(block: bool) -> io::Result<Option<(i32, Stop)>> {
    wait_for(-1, block)
}

fn wait_for(tid: i32, block: bool) -> io::Result<Option<(i32, Stop)>> {
    let mut status = 0;
    loop {
        let flags = libc::__WALL | if block { 0 } else { libc::WNOHANG };
        // SAFETY: `status` is a valid int.
        let got = unsafe { libc::waitpid(tid, &mut status, flags) };
        if got > 0 {
            return Ok(Some((got, decode(status))));
        }
        if got == 0 {
            return Ok(None);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn decode(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Gone(status);
    }
    match (status >> 16, libc::WSTOPSIG(status)) {
        (0, signal) => Stop::Signal(signal),
        (128, signal) => Stop::Event(signal),
        (event, _) => Stop::Other(event),
    }
}

/// Words in `Registers`.
pub const REGISTER_WORDS: usize = size_of::<Registers>() / 8;

/// The registers as plain words, in the order of `user_regs_struct`.
pub fn to_words(regs: &Registers) -> Vec<u64> {
    // SAFETY: user_regs_struct is REGISTER_WORDS u64 fields without padding.
    let words: [u64; REGISTER_WORDS] = unsafe { std::mem::transmute_copy(regs) };
    words.to_vec()
}

/// The inverse of `to_words`; None when the count is wrong.
pub fn from_words(words: &[u64]) -> Option<Registers> {
    let words: [u64; REGISTER_WORDS] = words.try_into().ok()?;
    // SAFETY: as in `to_words`; every bit pattern is valid.
    Some(unsafe { std::mem::transmute_copy(&words) })
}
