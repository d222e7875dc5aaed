//! Waits with a limit end when they would have ended unmoved, however often their process moves (docs/decisions/0046).
//!
//! Such a call is made again at every move, natively or forwarded, with what is left of its limit. Where that is in memory that the kernel only
//! reads, the program must not see another value: forwarded it is read from our own page, and at home it stands in its place only until the
//! thread is asleep in its call.

use super::resume::is_about_to;
use super::{Deputy, HomeError, Result, at};
use crate::control::{KeptWait, Report};
use crate::layout::{LIMIT_PLACES, LIMITS};
use crate::restart;
use pando_calls::{Limit, limit};
use pando_kernel::inject::Call;
use pando_kernel::memory::ProcessMemory;
use pando_kernel::ptrace::{Registers, Stop, Tracee};
use pando_kernel::{asleep, clock, procfs};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000_000_000;
/// A stop at the begin or the end of a call (PTRACE_O_TRACESYSGOOD). A helper that ends leaves the number behind as a signal, which there is not:
/// without that option it would be SIGTRAP.
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// How long a thread may take to fall asleep in its call.
const FALLS_ASLEEP: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// A wait with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub nr: u64,
    pub args: [u64; 6],
    /// When the limit ends, nanoseconds of CLOCK_MONOTONIC.
    pub at: u64,
}

/// A wait of a thread that is not traced yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noticed {
    slept: u64,
    pub due: Due,
}

impl Noticed {
    /// Is the thread in it, without a break?
    pub fn still_sleeps(&self, tid: i32) -> bool {
        asleep::times(tid) == Some(self.slept)
    }
}

/// A thread that goes on at home with a limit that is not what it has in memory.
pub(super) struct Sleeper {
    pub tid: i32,
    due: Due,
    place: u64,
}

/// Nanoseconds of a limit as the program has it; `None` where the call fails.
fn length(memory: &ProcessMemory, limit: Limit, args: &[u64; 6]) -> Option<u64> {
    let pair = |i: usize, most: u64| {
        let (seconds, part) = (memory.word(args[i])?, memory.word(args[i].wrapping_add(8))?);
        (seconds <= i64::MAX as u64 && part < most).then(|| (seconds.saturating_mul(SECOND), part * (SECOND / most)))
    };
    let (seconds, part) = match limit {
        Limit::Argument(i) => (0, u64::from(args[i] as u32) * 1_000_000),
        Limit::Read(i) | Limit::Left(i) => pair(i, SECOND)?,
        Limit::LeftMicros(i) => pair(i, 1_000_000)?,
    };
    Some(seconds.saturating_add(part))
}

/// A timespec of `ns`, or a timeval.
fn in_bytes(ns: u64, micros: bool) -> [u8; 16] {
    let ns = if micros { ns.div_ceil(1000).saturating_mul(1000) } else { ns };
    let part = ns % SECOND / if micros { 1000 } else { 1 };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(ns / SECOND).to_le_bytes());
    bytes[8..].copy_from_slice(&part.to_le_bytes());
    bytes
}

/// Milliseconds, never too short.
fn in_ms(ns: u64) -> u64 {
    u64::from(u32::try_from(ns.div_ceil(1_000_000)).unwrap_or(u32::MAX).min(i32::MAX as u32))
}

fn left(due: u64) -> u64 {
    due.saturating_sub(clock::monotonic_ns())
}

impl Deputy {
    /// The waits of the process's threads, while it runs: when they began is known as long as nobody has stopped them.
    pub(super) fn find_waits(&self) -> BTreeMap<i32, Noticed> {
        let threads = procfs::threads(self.pid).unwrap_or_default();
        threads.into_iter().filter_map(|tid| Some((tid, self.wait_of(tid)?))).collect()
    }

    fn wait_of(&self, tid: i32) -> Option<Noticed> {
        let (nr, args) = procfs::system_call(tid)?;
        let limit = limit(nr, &args)?;
        let slept = asleep::times(tid)?;
        let known = self.order.waits.iter().find(|w| (w.tid, w.slept, w.nr) == (tid, slept, nr));
        let due = match known {
            Some(wait) => wait.due,
            None => {
                // The clock after that: to find out takes its time, too.
                let slept = asleep::for_how_long(tid)?.as_nanos() as u64;
                let began = clock::monotonic_ns().saturating_sub(slept);
                began.saturating_add(length(&self.memory, limit, &args)?)
            }
        };
        Some(Noticed { slept, due: Due { nr, args, at: due } })
    }

    /// When the wait of a thread is due that the freeze has just broken off.
    pub(super) fn due_of_broken_off(&self, tid: i32, r: &Registers) -> Option<Due> {
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        let limit = limit(r.orig_rax, &args).filter(|_| restart::CODES.contains(&(r.rax as i64)))?;
        let noticed = self.threads[tid].due.filter(|d| (d.nr, d.args) == (r.orig_rax, args));
        // What is left stands in memory, or nobody can say when it began.
        if noticed.is_some() && matches!(limit, Limit::Argument(_) | Limit::Read(_)) {
            return noticed;
        }
        let at = clock::monotonic_ns().saturating_add(length(&self.memory, limit, &args)?);
        Some(Due { nr: r.orig_rax, args, at })
    }

    /// When a call from the guest is due, and whether it has been waited for before.
    pub(super) fn due_of_call(&mut self, tid: i32, nr: u64, args: &[u64; 6], resumes: bool) -> (Option<u64>, bool) {
        let before = self.threads[tid].due.take().filter(|d| resumes && (d.nr, d.args) == (nr, *args));
        if let Some(due) = before {
            return (Some(due.at), true);
        }
        let length = limit(nr, args).and_then(|limit| length(&self.memory, limit, args));
        (length.map(|ns| clock::monotonic_ns().saturating_add(ns)), false)
    }

    /// The call of a thread as it is to be made: what has been waited for before does not count again.
    pub(super) fn with_what_is_left(&mut self, tid: i32, mut wanted: Call) -> Call {
        let taken: Vec<u64> = self.threads.iter().filter_map(|t| t.flight.as_ref()?.place).collect();
        let Some(flight) = self.threads[tid].flight.as_mut().filter(|f| f.again) else { return wanted };
        let (Some(due), Some(limit)) = (flight.due, limit(wanted.nr, &wanted.args)) else { return wanted };
        let own = flight.place.or_else(|| (0..LIMITS).find(|place| !taken.contains(place)));
        match limit {
            Limit::Argument(i) => wanted.args[i] = in_ms(left(due)),
            Limit::Read(i) => {
                flight.place = own;
                if let Some(place) = own {
                    wanted.args[i] = self.hole + LIMIT_PLACES + 16 * place;
                    self.memory.write(wanted.args[i], &in_bytes(left(due), false));
                }
            }
            Limit::Left(_) | Limit::LeftMicros(_) => self.write_left(limit, &wanted.args, due),
        }
        wanted
    }

    /// As the kernel does it when such a call is broken off.
    fn write_left(&self, limit: Limit, args: &[u64; 6], due: u64) {
        if let Limit::Left(i) | Limit::LeftMicros(i) = limit {
            self.memory.write(args[i], &in_bytes(left(due), matches!(limit, Limit::LeftMicros(_))));
        }
    }

    /// The call that a thread is about to make again, natively, has been waited for before.
    pub(super) fn shorten_wait(&mut self, tid: i32, r: &mut Registers) -> Option<Sleeper> {
        let due = self.threads[tid].due.take().filter(|d| is_about_to(r, d.nr, &d.args))?;
        match limit(due.nr, &due.args)? {
            Limit::Argument(_) => r.r10 = in_ms(left(due.at)),
            limit @ (Limit::Left(_) | Limit::LeftMicros(_)) => self.write_left(limit, &due.args, due.at),
            Limit::Read(i) => return Some(Sleeper { tid, due, place: due.args[i] }),
        }
        None
    }

    /// Lets halted threads of a process that is home go, and tells the daemon of those that sleep.
    pub(super) fn put_to_sleep(&mut self, sleepers: Vec<Sleeper>) -> Result<()> {
        let mut waits = Vec::new();
        for Sleeper { tid, due, place } in sleepers {
            let tracee = self.threads[tid].tracee;
            self.threads.remove(tid);
            let mut own = [0; 16];
            let changed = self.memory.read_all(place, &mut own)
                && self.memory.write(place, &in_bytes(left(due.at), false)) == own.len();
            let fate = if changed { falls_asleep(tracee) } else { Ok(Fate::Stopped(0)) };
            self.memory.write(place, &own);
            match fate {
                Ok(Fate::Sleeps(slept)) => waits.push(KeptWait { tid, slept, nr: due.nr, due: due.at }),
                Ok(Fate::Stopped(signal)) => at_home(tracee.detach(signal))?,
                Ok(Fate::Gone(status)) if tid == self.pid => return Err(HomeError::Ended(status)),
                Ok(Fate::Gone(_)) => {}
                Err(e) => at_home(Err(e))?,
            }
        }
        if !waits.is_empty() {
            self.link.report(Report::Waits { pid: self.order.pid, waits });
        }
        Ok(())
    }
}

/// Another thread that runs already may have ended the process.
fn at_home(result: std::io::Result<()>) -> Result<()> {
    match result {
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => at("let it go", other),
    }
}

/// What became of a thread that was to fall asleep.
enum Fate {
    /// It has gone to sleep so many times. It is still traced: only the end of the tracer lets a sleeper go without waking it.
    Sleeps(u64),
    /// It is stopped, with this signal or none.
    Stopped(i32),
    Gone(i32),
}

/// Lets a halted thread make its call. It sees no code of the program's before it is let go.
fn falls_asleep(tracee: Tracee) -> std::io::Result<Fate> {
    // Whatever becomes of us it lives on by itself.
    tracee.set_options(libc::PTRACE_O_TRACESYSGOOD)?;
    tracee.to_system_call(0)?;
    let (begun, mut before) = (Instant::now(), None);
    let mut interrupted = false;
    loop {
        match tracee.wait(false)? {
            Some(Stop::Signal(CALL_STOP)) if before.is_none() && !interrupted => {
                // With its registers it is certain that it has come to rest.
                tracee.registers()?;
                before = asleep::times(tracee.tid);
                tracee.to_system_call(0)?;
            }
            Some(Stop::Signal(CALL_STOP)) => return Ok(Fate::Stopped(0)),
            Some(Stop::Signal(signal)) => return Ok(Fate::Stopped(signal)),
            Some(Stop::Event(libc::SIGTRAP)) if !interrupted => tracee.to_system_call(0)?,
            Some(Stop::Event(_) | Stop::Other(_)) => return Ok(Fate::Stopped(0)),
            Some(Stop::Gone(status)) => return Ok(Fate::Gone(status)),
            None => {
                let slept = asleep::times(tracee.tid);
                let sleeps = || procfs::status(tracee.tid).is_ok_and(|s| s.state == 'S');
                if let (Some(slept), Some(before)) = (slept, before)
                    && slept > before
                    && sleeps()
                {
                    return Ok(Fate::Sleeps(slept));
                }
                if begun.elapsed() > FALLS_ASLEEP && !interrupted {
                    interrupted = true;
                    tracee.interrupt()?;
                }
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_gets_shorter_than_what_is_left() {
        let words = |b: [u8; 16]| [0, 8].map(|i| u64::from_le_bytes(b[i..i + 8].try_into().expect("eight bytes")));
        assert_eq!(words(in_bytes(2 * SECOND + 7, false)), [2, 7]);
        assert_eq!(words(in_bytes(SECOND - 1, true)), [1, 0]);
        assert_eq!(words(in_bytes(1, true)), [0, 1]);
        assert_eq!((in_ms(0), in_ms(1), in_ms(1_000_000), in_ms(u64::MAX)), (0, 1, 1, i32::MAX as u64));
    }
}
