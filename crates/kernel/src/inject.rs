//! Making a stopped tracee run system calls, by a page of code of ours in its memory.
//!
//! The code is `syscall; int3` for one call and a loop over a table for many. `int3` reports by a stop with
//! SIGTRAP, so a call that blocks, or is interrupted, looks exactly as if the program had made it.

use crate::memory::ProcessMemory;
use crate::ptrace::{Registers, Stop, Tracee};
use std::io;
use std::time::{Duration, Instant};

/// Signals blocked while injected code runs: all but SIGTRAP. A blocked trap would still be reported, but the kernel would
/// reset the program's handler for it on the way (`force_sig`).
pub const QUIET: u64 = !(1 << (libc::SIGTRAP - 1));

/// Machine code at the start of the hole.
pub const CODE: [u8; 80] = [
    0x0f, 0x05, // 0: syscall
    0xcc, // 2: int3
    0xcc, // 3: int3, for a process that was let go of here: it ends, whatever the registers hold
    // 4: one round of the table: rbx = entry, r12 = entries left
    0x48, 0x8b, 0x03, // mov rax,[rbx]
    0x48, 0x8b, 0x7b, 0x08, // mov rdi,[rbx+8]
    0x48, 0x8b, 0x73, 0x10, // mov rsi,[rbx+16]
    0x48, 0x8b, 0x53, 0x18, // mov rdx,[rbx+24]
    0x4c, 0x8b, 0x53, 0x20, // mov r10,[rbx+32]
    0x4c, 0x8b, 0x43, 0x28, // mov r8,[rbx+40]
    0x4c, 0x8b, 0x4b, 0x30, // mov r9,[rbx+48]
    0x0f, 0x05, // 31: syscall
    0x48, 0x89, 0x43, 0x38, // mov [rbx+56],rax
    0x48, 0x83, 0xc3, 0x40, // add rbx,64
    0x49, 0xff, 0xcc, // dec r12
    0x75, 0xd6, // jnz 4
    0xcc, // int3
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, // the same
    // 58: rbx = shapes of tiles
    0xc4, 0xe2, 0x78, 0x49, 0x03, // ldtilecfg [rbx]
    0xc4, 0xe2, 0x7b, 0x49, 0xc0, // tilezero tmm0
    0xc4, 0xe2, 0x78, 0x49, 0xc0, // tilerelease
    0xcc, // int3
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, // the same
];
/// Offset of the single call.
pub const SINGLE: u64 = 0;
/// Where a finished single call stops (one past the int3).
pub const SINGLE_DONE: u64 = 3;
/// Where the kernel returns to from the single call.
pub const SINGLE_RETURN: u64 = 2;
/// Offset of the table loop.
pub const TABLE: u64 = 4;
/// Where the kernel returns to from a call of the table: the address a seccomp filter sees.
pub const TABLE_RETURN: u64 = 33;
/// Where a finished table stops (one past its int3).
const TABLE_DONE: u64 = 47;
/// Offset of the code that uses AMX's tiles once, and where it stops when it has.
const TILES: u64 = 58;
const TILES_DONE: u64 = TILES + 16;
/// One tile of 16 rows of 64 bytes (SDM, LDTILECFG): palette, bytes of a row of each, rows of each.
const ONE_TILE: [(usize, u8); 3] = [(0, 1), (16, 64), (48, 16)];
/// Longest that injected calls may take: none of them waits. The code is in the program's memory, where others may have
/// changed it: then it may never come to its end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing is served that calls may wait for.
const WHILE_SERVING: Duration = Duration::from_micros(30);
/// Entries that fit the table.
pub const TABLE_ENTRIES: usize = 512;
/// Bytes of table.
pub const TABLE_BYTES: u64 = TABLE_ENTRIES as u64 * 64;

/// One system call to run.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Number.
    pub nr: u64,
    /// Arguments.
    pub args: [u64; 6],
}

/// Shorthand.
pub fn call(nr: i64, args: &[u64]) -> Call {
    let mut a = [0; 6];
    a[..args.len()].copy_from_slice(args);
    Call { nr: nr as u64, args: a }
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// ptrace failed.
    #[error("tracing failed: {0}")]
    Trace(#[from] io::Error),
    /// The tracee ended; raw wait status.
    #[error("the process ended (wait status {0:#x})")]
    Gone(i32),
    /// Something else stopped the tracee.
    #[error("the process stopped unexpectedly ({0:?})")]
    Unexpected(Stop),
    /// Somebody changed the code, or the process is not allowed to run.
    #[error("calls that were injected did not end within {} ms", PATIENCE.as_millis())]
    Stuck,
}

/// Registers that make `call` run at `ip`, other registers from `base`.
pub fn registers_for(base: &Registers, ip: u64, call: &Call) -> Registers {
    let mut r = *base;
    r.rip = ip;
    r.rax = call.nr;
    r.orig_rax = u64::MAX;
    r.rdi = call.args[0];
    r.rsi = call.args[1];
    r.rdx = call.args[2];
    r.r10 = call.args[3];
    r.r8 = call.args[4];
    r.r9 = call.args[5];
    r
}

/// Waits for the trap at `done`, the end of injected code. Other stops that do not matter are continued. Returns the thread that the
/// code has made, if it has.
fn wait_trap(
    tracee: Tracee,
    step: bool,
    done: u64,
    serve: &mut dyn FnMut() -> Duration,
) -> Result<Option<Tracee>, InjectError> {
    let (begun, mut stopped, mut trapped, mut born) = (Instant::now(), false, false, None);
    loop {
        let look_again = serve();
        match tracee.wait_within(look_again.min(PATIENCE.saturating_sub(begun.elapsed())))? {
            Some(Stop::Signal(libc::SIGTRAP)) if tracee.registers()?.rip == done => {
                let again = [(stopped, libc::SIGSTOP), (trapped, libc::SIGTRAP)];
                for (_, signal) in again.iter().filter(|a| a.0) {
                    crate::signal::kill(tracee.tid, *signal)?;
                }
                return Ok(born);
            }
            _ if begun.elapsed() >= PATIENCE => return Err(InjectError::Stuck),
            Some(Stop::Signal(libc::SIGTRAP)) => {
                // Not ours: somebody sent it. The only other one that is not blocked; put off in the same way as SIGSTOP.
                trapped |= !step;
                if step { tracee.step(0)? } else { tracee.cont(0)? }
            }
            // Also a group stop: it lasts, and shows again when the tracee is let go.
            Some(Stop::Event(_)) if step => tracee.step(0)?,
            Some(Stop::Event(_)) => tracee.cont(0)?,
            Some(Stop::Signal(libc::SIGSTOP)) => {
                // Can't be blocked. It is put off: sent again, it waits for the next time the tracee runs.
                stopped = true;
                if step { tracee.step(0)? } else { tracee.cont(0)? }
            }
            Some(Stop::Gone(status)) => return Err(InjectError::Gone(status)),
            // A thread that injected code has made (see [`clone_thread`]).
            Some(Stop::Other(libc::PTRACE_EVENT_CLONE)) => {
                // Its id as this process sees it; the result of the call is the one in its own namespace.
                born = Some(Tracee { tid: tracee.event_message()? as i32 });
                tracee.cont(0)?;
            }
            Some(other) => return Err(InjectError::Unexpected(other)),
            None => {}
        }
    }
}

/// What a thread shares with the one that makes it: the flags of the clone(2) that [`clone_thread`] injects.
pub const THREAD_FLAGS: u32 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM) as u32;

/// Makes a thread beside `tracee`, which is stopped with all signals blocked and has PTRACE_O_TRACECLONE set. The new thread is
/// traced, with the same options and blocked signals, and stands still before its first instruction in user mode. Returns it, or the
/// error number as the kernel gives it (negative). The registers of `tracee` are left changed.
pub fn clone_thread(
    tracee: Tracee,
    memory: &ProcessMemory,
    base: &Registers,
    code: u64,
    table: u64,
) -> Result<Result<Tracee, i64>, InjectError> {
    let made = call(libc::SYS_clone, &[u64::from(THREAD_FLAGS), 0, 0, 0, 0]);
    let (results, born) = run_table(tracee, memory, base, (code, table), &[made], &mut || PATIENCE)?;
    let Some(born) = born else { return Ok(Err(results.first().copied().unwrap_or(-1))) };
    match born.wait_within(PATIENCE)? {
        Some(Stop::Event(_)) => Ok(Ok(born)),
        Some(Stop::Gone(status)) => Err(InjectError::Gone(status)),
        Some(other) => Err(InjectError::Unexpected(other)),
        None => Err(InjectError::Stuck),
    }
}

/// Has a thread that may use AMX's tiles use one: only then the kernel makes room for them and takes a state that has some
/// (Documentation/arch/x86/xstate.rst). The tracee must be stopped with all signals blocked; its registers are left changed.
pub fn use_tiles(
    tracee: Tracee,
    memory: &ProcessMemory,
    base: &Registers,
    (code, scratch): (u64, u64),
) -> Result<(), InjectError> {
    let mut shapes = [0; 64];
    ONE_TILE.iter().for_each(|(at, value)| shapes[*at] = *value);
    if memory.write(scratch, &shapes) != shapes.len() {
        return Err(InjectError::Trace(io::Error::other("cannot write the shapes of tiles")));
    }
    tracee.set_registers(&Registers { rip: code + TILES, orig_rax: u64::MAX, rbx: scratch, ..*base })?;
    tracee.cont(0)?;
    wait_trap(tracee, false, code + TILES_DONE, &mut || PATIENCE).map(drop)
}

/// Runs one call at a `syscall` instruction that the tracee already has, by a single step. The tracee must be
/// stopped with all signals blocked; its registers are left changed.
pub fn step_call(tracee: Tracee, base: &Registers, syscall_ip: u64, call: &Call) -> Result<i64, InjectError> {
    tracee.set_registers(&registers_for(base, syscall_ip, call))?;
    tracee.step(0)?;
    wait_trap(tracee, true, syscall_ip + 2, &mut || PATIENCE)?;
    Ok(tracee.registers()?.rax as i64)
}

/// Runs `calls` by the table at `table` with the code at `code`; returns their results. The tracee must be stopped
/// with all signals blocked; its registers are left changed.
pub fn table_calls(
    tracee: Tracee,
    memory: &ProcessMemory,
    base: &Registers,
    code: u64,
    table: u64,
    calls: &[Call],
) -> Result<Vec<i64>, InjectError> {
    Ok(run_table(tracee, memory, base, (code, table), calls, &mut || PATIENCE)?.0)
}

/// As [`table_calls`], for calls that wait for something: `serve` is called again and again until they have ended.
pub fn table_calls_served(
    tracee: Tracee,
    memory: &ProcessMemory,
    base: &Registers,
    places: (u64, u64),
    calls: &[Call],
    serve: &mut dyn FnMut(),
) -> Result<Vec<i64>, InjectError> {
    Ok(run_table(tracee, memory, base, places, calls, &mut || {
        serve();
        WHILE_SERVING
    })?
    .0)
}

/// Returns the last thread that was made, too.
fn run_table(
    tracee: Tracee,
    memory: &ProcessMemory,
    base: &Registers,
    (code, table): (u64, u64),
    calls: &[Call],
    serve: &mut dyn FnMut() -> Duration,
) -> Result<(Vec<i64>, Option<Tracee>), InjectError> {
    let mut born = None;
    let mut results = Vec::with_capacity(calls.len());
    for chunk in calls.chunks(TABLE_ENTRIES) {
        let mut bytes = Vec::with_capacity(chunk.len() * 64);
        for c in chunk {
            bytes.extend_from_slice(&c.nr.to_le_bytes());
            for a in c.args {
                bytes.extend_from_slice(&a.to_le_bytes());
            }
            bytes.extend_from_slice(&0u64.to_le_bytes());
        }
        if memory.write(table, &bytes) != bytes.len() {
            return Err(InjectError::Trace(io::Error::other("cannot write the call table")));
        }
        let mut r = *base;
        r.rip = code + TABLE;
        r.orig_rax = u64::MAX;
        r.rbx = table;
        r.r12 = chunk.len() as u64;
        tracee.set_registers(&r)?;
        tracee.cont(0)?;
        born = wait_trap(tracee, false, code + TABLE_DONE, serve)?.or(born);
        if !memory.read_all(table, &mut bytes) {
            return Err(InjectError::Trace(io::Error::other("cannot read the call table")));
        }
        for entry in bytes.chunks_exact(64) {
            let mut v = [0; 8];
            v.copy_from_slice(&entry[56..]);
            results.push(i64::from_le_bytes(v));
        }
    }
    Ok((results, born))
}
