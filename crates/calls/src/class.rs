//! Where a call runs.

use libc::c_long;

use crate::Memory;
use crate::family;
use crate::native::{is_native, needs_words};
use crate::walk::{Spec, u64_at};

/// Where a call runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The guest's kernel runs it alone.
    Native,
    /// Forwarded, then also run by the guest's kernel.
    Both,
    /// It changes the map: the engine does it on both sides.
    Memory,
    /// Forwarded; the engine adds the time spent abroad.
    CpuTime,
    /// A timer of CPU time: the guest's kernel runs it.
    CpuTimer,
    /// The guest's kernel runs it, once the pages of these words are there.
    Words([u64; 2]),
    /// It makes a thread or a process: the engine does it.
    Birth,
    /// Forwarded as the table says.
    Forward,
    /// It brings the process home, for this reason.
    Home(&'static str),
}

/// Where call `nr` runs.
pub fn class(nr: u64, args: &[u64; 6]) -> Class {
    if let Ok(n) = c_long::try_from(nr) {
        match n {
            libc::SYS_rt_sigaction | libc::SYS_rt_sigprocmask | libc::SYS_sigaltstack => {
                return Class::Both;
            }
            libc::SYS_mmap
            | libc::SYS_munmap
            | libc::SYS_mprotect
            | libc::SYS_mremap
            | libc::SYS_madvise
            | libc::SYS_brk => return memory(n, args),
            libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => return Class::Birth,
            libc::SYS_getrusage | libc::SYS_times => return Class::CpuTime,
            libc::SYS_clock_gettime if clock_owner(args[0]).is_some() => return Class::CpuTime,
            libc::SYS_setitimer | libc::SYS_getitimer if is_native(nr, args) => {
                return Class::CpuTimer;
            }
            _ => {}
        }
    }
    if is_native(nr, args) {
        return Class::Native;
    }
    if needs_words(nr, args) {
        // Only one of them has a second word.
        let second = if args[1] as i32 & 0x7f == libc::FUTEX_WAKE_OP { args[4] } else { args[0] };
        return Class::Words([args[0], second]);
    }
    match family::spec(nr, args) {
        Spec::Home(reason) => Class::Home(reason),
        Spec::Items(_) | Spec::Walk(_) => Class::Forward,
    }
}

/// What can be done on both sides, in the same place and to the same effect, and what only home can do.
fn memory(nr: c_long, args: &[u64; 6]) -> Class {
    let flags = args[3] as i32;
    let only_home = match nr {
        // Bits 0..3 are the type: 2 is private; droppable memory and the like can't be mirrored.
        libc::SYS_mmap => flags & 0xf != libc::MAP_PRIVATE || flags & (libc::MAP_GROWSDOWN | libc::MAP_HUGETLB) != 0,
        libc::SYS_mremap => flags & libc::MREMAP_DONTUNMAP != 0 || args[1] == 0,
        libc::SYS_madvise => args[2] as i32 == libc::MADV_REMOVE,
        _ => false,
    };
    match nr {
        libc::SYS_mmap if only_home => Class::Home("it called mmap in a way that only home can do"),
        libc::SYS_mremap if only_home => Class::Home("it called mremap in a way that only home can do"),
        _ if only_home => Class::Home("it called madvise in a way that only home can do"),
        _ => Class::Memory,
    }
}

/// Does the call decide which calls on memory the kernel refuses from then on: its limits, and what is locked?
pub fn limits_memory(nr: u64, args: &[u64; 6]) -> bool {
    let memory = |what: u64| [libc::RLIMIT_AS, libc::RLIMIT_DATA].contains(&(what as u32));
    match nr as c_long {
        libc::SYS_setrlimit => memory(args[0]),
        libc::SYS_prlimit64 => memory(args[1]) && args[2] != 0,
        libc::SYS_mlockall | libc::SYS_mlock | libc::SYS_mlock2 => true,
        libc::SYS_mmap => args[3] & libc::MAP_LOCKED as u64 != 0,
        _ => false,
    }
}

/// Whose CPU time the clock with this id measures: a process or thread id, 0 for the caller; `None` if it is no CPU clock.
pub fn clock_owner(id: u64) -> Option<u32> {
    cpu_clock(id).map(|(owner, _)| owner)
}

/// As [`clock_owner`], and whether it is a thread's clock rather than a process's.
pub fn cpu_clock(id: u64) -> Option<(u32, bool)> {
    match id as i32 {
        libc::CLOCK_PROCESS_CPUTIME_ID => Some((0, false)),
        libc::CLOCK_THREAD_CPUTIME_ID => Some((0, true)),
        // The two low bits say what is measured, 3 is a clock behind a file descriptor; the third says whose.
        id if id < 0 && id & 3 != 3 => Some((!(id >> 3) as u32, id & 4 != 0)),
        _ => None,
    }
}

/// Where the mask is that a call sets while it waits ([`temporary_mask`]); 0: it sets none. `None` if that can't be read.
pub fn mask_place(nr: u64, args: &[u64; 6], mem: &mut dyn Memory) -> Option<u64> {
    Some(match c_long::try_from(nr).ok()? {
        libc::SYS_rt_sigsuspend => args[0],
        libc::SYS_ppoll => args[3],
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => args[4],
        libc::SYS_pselect6 if args[5] != 0 => {
            let mut both = [0u8; 16];
            (mem.read(args[5], &mut both) == both.len()).then(|| u64_at(&both, 0))?
        }
        _ => 0,
    })
}

/// The mask that a call sets while it waits (`rt_sigsuspend`, `ppoll`, `pselect6`, `epoll_pwait`): handlers that interrupt it run
/// although the guest's own mask may block their signals. `None` if it sets none, or if its bytes can't be read.
pub fn temporary_mask(nr: u64, args: &[u64; 6], mem: &mut dyn Memory) -> Option<u64> {
    let at = mask_place(nr, args, mem).filter(|at| *at != 0)?;
    let mut mask = [0u8; 8];
    (mem.read(at, &mut mask) == mask.len()).then(|| u64_at(&mask, 0))
}
