//! May this process move? Reads `/proc` only, never stops the process.

mod containers;
mod shared;

use pando_kernel::procfs::{self, Mapping, Status};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// One obstacle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// What is in the way, a sentence.
    pub why: String,
    /// What the user can do about it.
    pub advice: String,
}

/// The answer to "can it move?".
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Inspection {
    /// Empty when it can move now.
    pub obstacles: Vec<Obstacle>,
    /// Resident bytes.
    pub resident: u64,
    /// Threads.
    pub threads: u32,
    /// Memory of which only the kernel here knows what may be done with it: sealed (mseal(2)), or with guards in it (madvise(2)).
    #[serde(skip)]
    pub fixed: Vec<(u64, u64)>,
}

/// Inspects `pid`, which `helper` traces if it has been moved already. An error is a sentence (no such process, not permitted).
pub fn inspect(pid: u32, helper: Option<u32>) -> Result<Inspection, String> {
    let pid = pid as i32;
    let mut status = procfs::status(pid).map_err(|e| format!("there is no process {pid} to look at: {e}"))?;
    let (resident, threads) = (status.resident, status.threads);
    if let Some(all) = nothing_to_move(pid, &status) {
        return Ok(Inspection { obstacles: vec![all], resident, threads, fixed: Vec::new() });
    }
    let maps = match procfs::maps(pid) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            return Ok(Inspection { obstacles: vec![closed()], resident, threads, fixed: Vec::new() });
        }
        maps => maps.map_err(|e| format!("process {pid} can't be inspected: {e}"))?,
    };
    if helper.is_some_and(|h| h as i32 == status.tracer as i32) {
        (status.tracer, status.state) = (0, 'S');
    }
    let mut obstacles = of_status(pid, &status);
    if maps.is_empty() {
        obstacles.push(obstacle("it has no memory any more", "it has just ended; nothing to move"));
    }
    let flags = vm_flags(pid);
    obstacles.extend(of_flags(pid, &maps, &flags));
    let fixed = maps.iter().filter(|m| has_one_of(&flags, m, &["sl", "gu"])).map(|m| (m.start, m.end)).collect();
    Ok(Inspection { obstacles, resident, threads, fixed })
}

fn obstacle(why: impl Into<String>, advice: impl Into<String>) -> Obstacle {
    Obstacle { why: why.into(), advice: advice.into() }
}

/// One that its own user may not look into.
pub(crate) fn closed() -> Obstacle {
    obstacle(
        "it is closed even to its own user: it began with more rights (set-user-ID, or capabilities of its file), its file may be run but \
         not read, or it has asked for that (PR_SET_DUMPABLE)",
        "root can move it, at a node that root runs",
    )
}

/// One that may not get a page of code, of which its memory alone tells nothing. Has it forbidden that itself (PR_GET_MDWE)?
pub(crate) fn without_code(itself: bool, error: i32) -> Obstacle {
    let needs = "and Pando needs a page of code in a process that it moves";
    if itself {
        let why = format!("it has denied itself new code in its memory for ever (PR_SET_MDWE), {needs}");
        return obstacle(why, "start it without that (a systemd service: MemoryDenyWriteExecute=no)");
    }
    let cause = std::io::Error::from_raw_os_error(error);
    let why = format!("the kernel lets it have no new code in its memory ({cause}), {needs}");
    obstacle(why, "a security module (SELinux: execmem) may be in the way: ask your administrator")
}

/// Says that a process has the rights of several users: real, effective, saved and file-system uid.
pub fn of_several_users(pid: u32, uids: &[u32; 4]) -> String {
    let acts = uids.iter().find(|u| **u != uids[0]).unwrap_or(&uids[0]);
    format!("process {pid} of uid {} has rights of uid {acts}, too, as a set-user-ID program does", uids[0])
}

/// What leaves no more to be asked.
fn nothing_to_move(pid: i32, status: &Status) -> Option<Obstacle> {
    if procfs::is_kernel_thread(pid) {
        return Some(obstacle("it is a kernel thread: it belongs to the kernel of this machine", "only programs move"));
    }
    if pid == 1 {
        let why = "it is process 1, the init of this machine (or of the container that this node runs in)";
        return Some(obstacle(why, "it stays; move a process that it has started"));
    }
    match (status.state, status.threads) {
        ('Z', 2..) => {
            Some(obstacle("its first thread has ended, and others go on", "such a process stays where it is"))
        }
        ('Z' | 'X', _) => {
            let parent = procfs::parent(pid).map_or(String::new(), |p| format!(", process {p} ({})", procfs::name(p)));
            let advice = format!("its parent{parent}, has not collected it yet; nothing to move");
            Some(obstacle("it has ended (a zombie)", advice))
        }
        _ => None,
    }
}

const IO_URING_ADVICE: &str = "most programs have an option to do without (mariadbd: innodb-use-native-aio=0)";

/// What `/proc/PID/status` speaks against.
pub(crate) fn of_status(pid: i32, status: &Status) -> Vec<Obstacle> {
    let mut out = Vec::new();
    if let Some(all) = nothing_to_move(pid, status) {
        return vec![all];
    }
    if status.tgid != pid {
        out.push(obstacle(format!("{pid} is a thread of process {}", status.tgid), "name the process"));
    }
    if status.tracer != 0 {
        out.push(traced_by(status.tracer));
    }
    out.extend(containers::obstacles(pid, status));
    if status.state == 'T' || (status.state == 't' && status.tracer == 0) {
        out.push(obstacle("it is stopped", format!("let it go on first: fg in its shell, or kill -CONT {pid}")));
    }
    if fs::read_link(format!("/proc/{pid}/exe")).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied) {
        out.push(closed());
    }
    if procfs::has_cpu_timers(pid) {
        out.push(obstacle(
            "it has a timer that counts its CPU time (timer_create)",
            "such a timer would stand still at home; move it when the timer is gone",
        ));
    }
    if let Some(path) = looks_at_memory(pid) {
        out.push(obstacle(format!("it has {path} open, which would show old memory"), "move it when that is closed"));
    }
    if open_files(pid).iter().any(|(link, _)| link == "anon_inode:[io_uring]") {
        // Its rings may be in memory of the program's own, which no mapping shows.
        out.push(obstacle("it uses io_uring", IO_URING_ADVICE));
    }
    if is_32bit(pid) {
        out.push(obstacle("it is a 32-bit program", "use a 64-bit build"));
    }
    out
}

fn traced_by(tracer: i32) -> Obstacle {
    let command = procfs::command(tracer);
    if command.split(' ').any(|word| word == "__deputy") {
        // A child that still borrows the memory of a parent that is away, or a process that is being moved.
        return obstacle(
            format!(
                "Pando has it in hand (its helper is process {tracer}): it is being moved, has just been made by a process that is \
                 away, or was moved by another node on this machine"
            ),
            "try again in a moment, or ask that node",
        );
    }
    let name = procfs::name(tracer);
    if command.split(' ').any(|word| word == "__guest") {
        let why = format!("it is a guest here, of another node on this machine (its helper is process {tracer})");
        return obstacle(why, "move it at its home");
    }
    obstacle(
        format!("process {tracer} ({name}) traces it, as a debugger or strace does"),
        format!("have it let go (detach), or end process {tracer} first"),
    )
}

/// An open descriptor of `/proc` through which the process (or another one) sees memory. In a container `/proc` may be elsewhere, and the
/// process has another number there.
fn looks_at_memory(pid: i32) -> Option<String> {
    let inner = procfs::innermost_tid(pid).unwrap_or(pid);
    // Files of /proc say that they are empty.
    let empty = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == 0);
    let open = open_files(pid).into_iter();
    open.filter(|(link, path)| shows_memory(link, [pid, inner]) && empty(path)).map(|(link, _)| link).next()
}

/// What its descriptors are open on, as `/proc` names it, and where `/proc` has it.
fn open_files(pid: i32) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let named = entries.filter_map(|e| Some((fs::read_link(e.path()).ok()?, e.path())));
    named.map(|(link, path)| (link.to_string_lossy().into_owned(), path)).collect()
}

/// Is this the path of a file of /proc that shows the memory of one of these?
fn shows_memory(path: &str, of: [i32; 2]) -> bool {
    let parts: Vec<&str> = path.rsplit('/').collect();
    let name = ["mem", "pagemap", "smaps", "cmdline", "environ"].contains(&parts[0]);
    let owner = if parts.get(2) == Some(&"task") { parts.get(3) } else { parts.get(1) };
    name && owner.and_then(|p| p.parse().ok()).is_some_and(|owner: i32| of.contains(&owner))
}

fn is_32bit(pid: i32) -> bool {
    use std::io::Read;
    let mut head = [0u8; 5];
    let read = fs::File::open(format!("/proc/{pid}/exe")).and_then(|mut f| f.read_exact(&mut head));
    read.is_ok() && head[..4] == *b"\x7fELF" && head[4] == 1
}

/// What its memory speaks against.
pub(crate) fn of_memory(pid: i32, maps: &[Mapping]) -> Vec<Obstacle> {
    of_flags(pid, maps, &vm_flags(pid))
}

fn has_one_of(flags: &HashMap<u64, String>, m: &Mapping, wanted: &[&str]) -> bool {
    flags.get(&m.start).is_some_and(|f| f.split(' ').any(|w| wanted.contains(&w)))
}

fn of_flags(pid: i32, maps: &[Mapping], flags: &HashMap<u64, String>) -> Vec<Obstacle> {
    let (mut out, mut shared) = (Vec::new(), Vec::new());
    for m in maps.iter().filter(|m| !pando_kernel::vdso::is_special(m)) {
        let has = |flag: &str| has_one_of(flags, m, &[flag]);
        let name = if m.name.is_empty() { "anonymous memory" } else { &m.name };
        let at = format!("{:x}-{:x} ({name})", m.start, m.end);
        if m.name.starts_with("[aio]") {
            out.push(obstacle(
                format!("it does asynchronous I/O in the kernel (io_setup): {at}"),
                "stop that I/O first",
            ));
        } else if m.name.contains("[io_uring]") {
            out.push(obstacle(format!("it uses io_uring: {at}"), IO_URING_ADVICE));
        } else if has("io") || has("pf") {
            out.push(obstacle(format!("it maps a device: {at}"), "a process that drives a device (GPU) stays with it"));
        } else if has("ht") {
            out.push(obstacle(format!("it uses hugetlb pages: {at}"), "transparent huge pages can move"));
        } else if has("ss") {
            out.push(obstacle(
                format!("it uses a shadow stack: {at}"),
                "start it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off",
            ));
        } else if m.shared && (m.prot & procfs::WRITE != 0 || has("mw")) {
            shared.push(m);
        } else if let Some(why) = m.shared.then(|| not_at_rest(pid, m)).flatten() {
            out.push(obstacle(format!("{why}: {at}"), "try again when the writer is done, or as root"));
        }
    }
    // One of a kind is enough: what maps a device maps it many times.
    let mut said = HashSet::new();
    out.retain(|o: &Obstacle| said.insert(o.advice.clone()));
    out.extend(shared::of(pid, &shared));
    out
}

/// `VmFlags` by start address.
fn vm_flags(pid: i32) -> HashMap<u64, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let mut out = HashMap::new();
    let mut start = 0;
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags: ") {
            out.insert(start, flags.trim().to_string());
        } else if let Some(s) = line.split_once('-').and_then(|(s, _)| u64::from_str_radix(s, 16).ok()) {
            start = s;
        }
    }
    out
}

/// A file that nobody can write just now can be copied. A read lease is only granted then (fcntl(2)). Where that may not be asked,
/// only the system's own files count as at rest. Gives the reason if it is not.
fn not_at_rest(pid: i32, m: &Mapping) -> Option<&'static str> {
    let file = fs::File::open(format!("/proc/{pid}/map_files/{:x}-{:x}", m.start, m.end));
    if file.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        // Mapped no longer, or by a process that has ended meanwhile.
        return None;
    }
    match file.ok().and_then(|file| pando_kernel::lease::nobody_writes(&file)) {
        Some(true) => None,
        Some(false) => Some("it maps a file that someone is writing"),
        None if is_the_systems(pid, m) => None,
        None => Some("it maps a file that others may write, and only root may look whether someone does"),
    }
}

/// A file (a cache of the C library, say) that its owner alone may write, and we may not: such are replaced, not written.
fn is_the_systems(pid: i32, m: &Mapping) -> bool {
    let path = format!("/proc/{pid}/root{}", m.name);
    let known = fs::metadata(&path);
    known.is_ok_and(|file| file.ino() == m.inode && file.is_file() && file.mode() & 0o022 == 0)
        && fs::OpenOptions::new().write(true).open(&path).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::shows_memory;

    #[test]
    fn files_that_show_memory_are_known_wherever_proc_is() {
        for path in ["/proc/7/mem", "/proc/900/environ", "/7/task/9/smaps", "/box/proc/7/pagemap"] {
            assert!(shows_memory(path, [900, 7]), "{path}");
        }
        for path in ["/proc/8/mem", "/proc/7/status", "/proc/7/task/9/status", "mem", "/mem", "pipe:[7]", ""] {
            assert!(!shows_memory(path, [900, 7]), "{path}");
        }
    }
}
