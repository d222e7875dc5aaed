//! What `/proc/PID` says.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// Protection bits as in mmap(2).
pub const READ: u32 = 1;
/// Writable.
pub const WRITE: u32 = 2;
/// Executable.
pub const EXEC: u32 = 4;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// READ, WRITE, EXEC.
    pub prot: u32,
    /// MAP_SHARED.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Inode, 0 for anonymous memory.
    pub inode: u64,
    /// `[stack]`, `[vdso]`, a path, or empty.
    pub name: String,
}

fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut f = line.split_ascii_whitespace();
    let (range, perms, offset, _dev, inode) = (f.next()?, f.next()?, f.next()?, f.next()?, f.next()?);
    let (start, end) = range.split_once('-')?;
    let p = perms.as_bytes();
    let name = line.splitn(6, ' ').nth(5).unwrap_or("").trim_start().to_string();
    let bit = |i: usize, c: u8, v: u32| if p.get(i) == Some(&c) { v } else { 0 };
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        prot: bit(0, b'r', READ) | bit(1, b'w', WRITE) | bit(2, b'x', EXEC),
        shared: p.get(3) == Some(&b's'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        inode: inode.parse().ok()?,
        name,
    })
}

/// The mappings of `pid` without `[vsyscall]` (which every x86-64 process has).
pub fn maps(pid: i32) -> io::Result<Vec<Mapping>> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(text.lines().filter_map(parse_mapping).filter(|m| m.name != "[vsyscall]").collect())
}

/// What we need of `/proc/PID/status`.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// State letter.
    pub state: char,
    /// Thread group id.
    pub tgid: i32,
    /// Real, effective, saved, file-system uid.
    pub uids: [u32; 4],
    /// Threads.
    pub threads: u32,
    /// Who traces it, 0: nobody.
    pub tracer: i32,
    /// Seccomp mode.
    pub seccomp: u32,
    /// Pending signals: thread | process.
    pub pending: u64,
    /// Blocked signals.
    pub blocked: u64,
    /// Ignored signals.
    pub ignored: u64,
    /// Caught signals.
    pub caught: u64,
    /// Resident bytes.
    pub resident: u64,
}

/// Bytes of memory that a process takes: what is resident or swapped out, and its page tables. 0 when it has ended.
pub fn footprint(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parts = ["VmRSS:", "VmPTE:", "VmSwap:"];
    let lines = text.lines().filter_map(|l| parts.iter().find_map(|p| l.strip_prefix(p)));
    lines.filter_map(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok()).sum::<u64>() * 1024
}

/// Resident bytes of a process, of pages that others have, too (since a fork, say) its part. None if that can't be known. The kernel looks at each page.
pub fn proportional(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kb = text.lines().find_map(|l| l.strip_prefix("Pss:"))?.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
    Some(kb * 1024)
}

/// Bytes of a process that are locked in memory.
pub fn locked_memory(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmLck:"));
    line.and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Bytes of memory of this machine.
pub fn machine_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    total.and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Does this machine use transparent huge pages? (The kernel's own switch does not bind MADV_COLLAPSE.)
pub fn huge_pages_wanted() -> bool {
    fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").is_ok_and(|text| !text.contains("[never]"))
}

/// Reads `/proc/PID/status`.
pub fn status(pid: i32) -> io::Result<Status> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mut s = Status::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        let word = value.split_ascii_whitespace().next().unwrap_or("");
        let hex = || u64::from_str_radix(value, 16).unwrap_or(0);
        match key {
            "State" => s.state = value.chars().next().unwrap_or('?'),
            "Tgid" => s.tgid = word.parse().unwrap_or(0),
            "Uid" => {
                for (slot, v) in s.uids.iter_mut().zip(value.split_ascii_whitespace()) {
                    *slot = v.parse().unwrap_or(u32::MAX);
                }
            }
            "Threads" => s.threads = word.parse().unwrap_or(0),
            "TracerPid" => s.tracer = word.parse().unwrap_or(0),
            "Seccomp" => s.seccomp = word.parse().unwrap_or(0),
            "SigPnd" | "ShdPnd" => s.pending |= hex(),
            "SigBlk" => s.blocked = hex(),
            "SigIgn" => s.ignored = hex(),
            "SigCgt" => s.caught = hex(),
            "VmRSS" => s.resident = word.parse::<u64>().unwrap_or(0) * 1024,
            _ => {}
        }
    }
    Ok(s)
}

/// Fields of `/proc/PID/stat` after the command, so that index 0 is the state (field 3 of proc(5)).
fn stat_fields(pid: i32) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let tail = text.rsplit_once(')').map_or("", |(_, t)| t);
    Ok(tail.split_ascii_whitespace().map(str::to_string).collect())
}

/// What `/proc/PID/stat` says of a process with all its threads (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// As in `ps`: R, S, D, T, t, Z, X.
    pub state: char,
    /// Its parent.
    pub parent: i32,
    /// CPU time used, as a user and in the kernel, clock ticks.
    pub cpu_ticks: u64,
    /// In clock ticks since boot: with the pid it names a process for ever.
    pub start_time: u64,
    /// Resident bytes.
    pub resident: u64,
}

impl Stat {
    /// One that has ended may still be there for its parent.
    pub fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

/// None when there is no such process.
pub fn stat(pid: i32) -> Option<Stat> {
    let fields = stat_fields(pid).ok()?;
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        cpu_ticks: number(11)? + number(12)?,
        start_time: number(19)?,
        resident: number(21)? * crate::PAGE,
    })
}

/// CPU time that a process has used, milliseconds; 0 when it has ended.
pub fn cpu_ms(pid: i32) -> u64 {
    stat(pid).map_or(0, |stat| stat.cpu_ticks.saturating_mul(1000) / crate::power::ticks_per_second())
}

/// Bytes that it has read from disks and written to them, as far as its kernel says so.
pub fn disk_bytes(pid: i32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let of = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0);
    (of("read_bytes:"), of("write_bytes:"))
}

/// The call that a thread waits in (`/proc/PID/syscall`); none if it runs, or stands still outside of calls.
pub fn system_call(tid: i32) -> Option<(u64, [u64; 6])> {
    let text = fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?;
    let mut words = text.split_ascii_whitespace();
    let nr = words.next()?.parse().ok()?;
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((nr, args))
}

/// The CPU on which a thread ran last.
pub fn last_cpu(tid: i32) -> Option<usize> {
    stat_fields(tid).ok()?.get(36)?.parse().ok()
}

/// [`Stat::start_time`].
pub fn start_time(pid: i32) -> io::Result<u64> {
    Ok(stat_fields(pid)?.get(19).and_then(|s| s.parse().ok()).unwrap_or(0))
}

/// Where its heap begins: the break never goes below.
pub fn heap_start(pid: i32) -> Option<u64> {
    stat_fields(pid).ok()?.get(44)?.parse().ok()
}

/// All processes that can be seen.
pub fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Its name, at most 15 characters; empty when it has ended.
pub fn name(pid: i32) -> String {
    // Processes name themselves.
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().replace(|c: char| c.is_control(), "?")
}

/// Command line, spaces between the arguments; `[name]` when it has none.
pub fn command(pid: i32) -> String {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&raw).trim_end_matches('\0').replace('\0', " ");
    if text.is_empty() {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        return format!("[{}]", comm.trim());
    }
    text
}

/// A variable of the environment that a program began with.
pub fn variable(pid: i32, name: &str) -> Option<String> {
    let raw = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = raw.split(|b| *b == 0).find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// The number of the thread that asks.
pub fn own_thread() -> Option<i32> {
    std::fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok()
}

/// Its parent; none when it has ended.
pub fn parent(pid: i32) -> Option<i32> {
    stat_fields(pid).ok()?.get(1)?.parse().ok()
}

/// Is it a thread of the kernel (PF_KTHREAD among the flags, field 9)?
pub fn is_kernel_thread(pid: i32) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let flags = stat_fields(pid).ok().and_then(|f| f.get(6)?.parse::<u64>().ok());
    flags.is_some_and(|f| f & PF_KTHREAD != 0)
}

/// The parent, unless that is the first process of all, and the children.
pub fn family(pid: i32) -> Vec<i32> {
    parent(pid).filter(|p| *p > 1).into_iter().chain(children(pid)).collect()
}

/// The children of all threads.
pub fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|t| fs::read_to_string(t.path().join("children")).ok());
    lists.flat_map(|l| l.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect::<Vec<_>>()).collect()
}

/// An open descriptor, as `/proc` tells without asking its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Open for writing, too.
    pub writes: bool,
    /// Inode number of its file.
    pub inode: u64,
}

/// See there.
pub fn descriptor(pid: i32, fd: i32) -> Option<Descriptor> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let flags = i32::from_str_radix(field("flags:")?, 8).ok()?;
    Some(Descriptor { writes: flags & libc::O_ACCMODE != libc::O_RDONLY, inode: field("ino:")?.parse().ok()? })
}

/// `O_` flags of an open descriptor.
pub fn descriptor_flags(pid: i32, fd: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("flags:"))?;
    i32::from_str_radix(line.trim(), 8).ok()
}

/// CPU flags of this machine, from `/proc/cpuinfo`, sorted.
pub fn cpu_flags() -> Vec<String> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("flags")).and_then(|l| l.split_once(':'));
    let mut flags: Vec<String> =
        line.map_or(Vec::new(), |(_, f)| f.split_ascii_whitespace().map(str::to_string).collect());
    flags.sort();
    flags
}

/// Longest that a thread may need to fall asleep in a call: it may have to wait for a CPU first.
const FALLS_ASLEEP: Duration = Duration::from_secs(5);
/// Between two looks at it.
const NAP: Duration = Duration::from_micros(50);

/// Stack pointer of a thread that is held in a system call by its filter (`/proc/PID/syscall`, which knows it only of threads that sleep).
///
/// The kernel tells the listener of the call before the thread falls asleep (`seccomp_do_user_notification`), so it may run a moment longer. One that
/// still runs after five seconds is not held: that is an error.
pub fn stack_pointer(pid: i32) -> io::Result<u64> {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(format!("/proc/{pid}/syscall"))?;
        let word = text.split_ascii_whitespace().rev().nth(1).and_then(|w| w.strip_prefix("0x"));
        match word.and_then(|w| u64::from_str_radix(w, 16).ok()) {
            Some(stack) => return Ok(stack),
            None if begun.elapsed() >= FALLS_ASLEEP => return Err(io::Error::other("it runs")),
            None => std::thread::sleep(NAP),
        }
    }
}

/// Does the process have POSIX timers that count CPU time (`/proc/PID/timers`)?
pub fn has_cpu_timers(pid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/timers")).unwrap_or_default();
    let clocks = text.lines().filter_map(|l| l.strip_prefix("ClockID:"));
    clocks.filter_map(|c| c.trim().parse::<i64>().ok()).any(|c| c < 0 || c == 2 || c == 3)
}

/// The threads of `pid`, in ascending order.
pub fn threads(pid: i32) -> io::Result<Vec<i32>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        all.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    all.sort_unstable();
    Ok(all)
}

/// The id of thread `tid` in the innermost namespace that it is in.
pub fn innermost_tid(tid: i32) -> io::Result<i32> {
    let text = fs::read_to_string(format!("/proc/{tid}/status"))?;
    let ids = text.lines().find_map(|l| l.strip_prefix("NSpid:"));
    let last = ids.and_then(|ids| ids.split_ascii_whitespace().next_back());
    last.and_then(|id| id.parse().ok()).ok_or_else(|| io::Error::other("this kernel does not tell namespace ids"))
}

/// CPU time of one thread, nanoseconds; 0 when it has ended.
pub fn thread_cpu_ns(tid: i32) -> u64 {
    // The first number (scheduler statistics; always built on the kernels we run on).
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|w| w.parse().ok()).unwrap_or(0)
}
