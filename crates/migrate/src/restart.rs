//! What becomes of a system call that a stop of ours has broken off.

use pando_kernel::memory::ProcessMemory;
use pando_kernel::procfs;
use pando_kernel::ptrace::Registers;
use std::os::unix::fs::MetadataExt;

/// ERESTARTSYS: made again, unless a handler without SA_RESTART runs.
pub const SYS: i64 = -512;
/// ERESTARTNOINTR: made again after whatever handler runs.
pub const NOINTR: i64 = -513;
/// ERESTARTNOHAND: made again only if no handler runs.
pub const NOHAND: i64 = -514;
/// ERESTART_RESTARTBLOCK: as NOHAND, but by restart_syscall(2) in the same thread.
pub const BLOCK: i64 = -516;
/// All of them.
pub const CODES: [i64; 4] = [SYS, NOINTR, NOHAND, BLOCK];

/// A futex wait of at most this, nanoseconds, begins anew when it was broken off.
const SHORT_WAIT: u64 = 100_000_000;
/// FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME.
const FUTEX_FLAGS: u64 = 128 | 256;

/// Numbers of `/dev/zero`, `/dev/random` and `/dev/urandom`, which look for signals after each page.
const ENDLESS: [u64; 3] = [libc::makedev(1, 5), libc::makedev(1, 8), libc::makedev(1, 9)];

/// `r` are those of a thread that was stopped on its way out of a call: it shall go on as if it had not been stopped.
pub fn make_good(memory: &ProcessMemory, r: &mut Registers) {
    let result = r.rax as i64;
    if result == -i64::from(libc::EINTR) && pando_calls::gives_eintr_by_itself(r.orig_rax) {
        // EINTR it is if a handler runs, under the call's own mask too; else the stop was the cause.
        r.rax = NOHAND as u64;
    }
    if result == BLOCK && r.orig_rax == libc::SYS_futex as u64 {
        let relative = r.rsi & !FUTEX_FLAGS & 0x7f == libc::FUTEX_WAIT as u64;
        let seconds = memory.word(r.r10).unwrap_or(u64::MAX);
        let limit =
            memory.word(r.r10.wrapping_add(8)).unwrap_or(0).saturating_add(seconds.saturating_mul(1_000_000_000));
        if relative && limit > SHORT_WAIT {
            // How much of it is left only the kernel knows that it waited in; begun anew at each of many moves it would never end. futex(2)
            // may wake at any time, and its callers look at the clock themselves.
            (r.rax, r.orig_rax) = (0, u64::MAX);
        } else {
            r.rax = NOINTR as u64;
        }
    }
}

/// Has a stop made a transfer of `pid` short that blocks until all is through?
pub(crate) fn is_cut_short(pid: i32, nr: u64, args: &[u64; 6], result: i64) -> bool {
    let transfers = [libc::SYS_write, libc::SYS_sendto, libc::SYS_recvfrom].contains(&(nr as i64));
    let waits_for_all = nr as i64 != libc::SYS_recvfrom || args[3] as i32 & libc::MSG_WAITALL != 0;
    transfers && waits_for_all && (result as u64) < args[2] && blocks(pid, args[0] as i32)
}

fn blocks(pid: i32, fd: i32) -> bool {
    procfs::descriptor_flags(pid, fd).is_some_and(|f| f & libc::O_NONBLOCK == 0)
}

/// Has a stop made a read of `pid` short that can be made again, whole, since nothing was taken from anywhere?
pub(crate) fn gives_the_same_again(pid: i32, nr: u64, args: &[u64; 6], result: i64) -> bool {
    let endless = |fd: u64| {
        let file = std::fs::metadata(format!("/proc/{pid}/fd/{}", fd as i32));
        file.is_ok_and(|m| ENDLESS.contains(&m.rdev()))
    };
    match nr as i64 {
        libc::SYS_getrandom => (result as u64) < args[1],
        libc::SYS_read | libc::SYS_pread64 => (result as u64) < args[2] && endless(args[0]),
        _ => false,
    }
}

/// Has this result to do with a handler that is about to run? The restart code then: some calls say EINTR at once, which is what
/// ERESTARTNOHAND becomes when the handler has run.
pub fn broke_off(nr: u64, result: i64) -> Option<i64> {
    let at_once = result == -i64::from(libc::EINTR) && pando_calls::gives_eintr_by_itself(nr);
    if at_once { Some(NOHAND) } else { CODES.contains(&result).then_some(result) }
}

/// A restartable sequence that is interrupted goes to its abort handler, as the kernel would have it (rseq(2)). `area`: where the
/// thread has registered, 0 for nowhere.
pub fn leave_rseq(memory: &ProcessMemory, area: u64, r: &mut Registers) {
    let section = (area != 0).then(|| memory.word(area.wrapping_add(8))).flatten();
    let Some(section) = section.filter(|&p| p != 0) else { return };
    let field = |at: u64| memory.word(section.wrapping_add(at));
    if let (Some(start), Some(length), Some(abort)) = (field(8), field(16), field(24))
        && r.rip.wrapping_sub(start) < length
    {
        r.rip = abort;
    }
}
