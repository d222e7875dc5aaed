//! Starts a program without a copy of this process: the child has its memory until exec, and this thread stands still meanwhile, as posix_spawn(3) does it
//! (clone3 with CLONE_VM and CLONE_VFORK). To copy page tables for a child that leaves them at once takes longer than to load a small program.

use crate::rank::{Setup, begin};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::Arc;

/// Bytes of the child's stack: it makes system calls, and little else.
const STACK: usize = 64 << 10;
/// linux/sched.h, since Linux 5.5.
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// As execvp(3) has it, where PATH is not set.
const USUAL_PATH: &[u8] = b"/bin:/usr/bin";
/// Runs what has no `#!`, as execvp(3) has it.
const SHELL: &CStr = c"/bin/sh";

/// What is to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it may be, in this order.
    places: Arc<[CString]>,
    arguments: Vec<CString>,
    /// What many have, and what this one has besides.
    environment: Arc<[CString]>,
    /// See there.
    own: Vec<CString>,
}

impl Program {
    /// A program by its name, which is looked for in the environment's PATH if there is no `/` in it; its arguments with its own name before them; and its
    /// environment. Of two variables of one name the later one counts. An error if there is a zero byte in any of them.
    pub fn new<S: AsRef<OsStr>>(name: &OsStr, arguments: &[S], environment: &[(S, S)]) -> io::Result<Program> {
        let arguments = arguments.iter().map(|word| text(&[word.as_ref().as_bytes()]));
        let mut last = std::collections::HashMap::new();
        environment.iter().enumerate().for_each(|(at, (name, _))| _ = last.insert(name.as_ref(), at));
        let counts = |(at, (name, _)): &(usize, &(S, S))| last.get(name.as_ref()) == Some(at);
        let variables = environment.iter().enumerate().filter(counts);
        let variables = variables.map(|(_, (n, v))| text(&[n.as_ref().as_bytes(), b"=", v.as_ref().as_bytes()]));
        let path = last.get(OsStr::new("PATH")).map_or(USUAL_PATH, |at| environment[*at].1.as_ref().as_bytes());
        Ok(Program {
            places: places(name.as_bytes(), path)?.into(),
            arguments: arguments.collect::<io::Result<_>>()?,
            environment: variables.collect::<io::Result<_>>()?,
            own: Vec::new(),
        })
    }

    /// The same program with other arguments, and one variable besides, of which it has none with that name.
    pub fn again(&self, arguments: &[&[u8]], (name, value): (&str, &str)) -> io::Result<Program> {
        let arguments = arguments.iter().map(|word| text(&[word])).collect::<io::Result<_>>()?;
        let own = vec![text(&[name.as_bytes(), b"=", value.as_bytes()])?];
        Ok(Program { places: self.places.clone(), arguments, environment: self.environment.clone(), own })
    }
}

fn text(parts: &[&[u8]]) -> io::Result<CString> {
    CString::new(parts.concat()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "there is a zero byte in it"))
}

fn places(name: &[u8], path: &[u8]) -> io::Result<Vec<CString>> {
    if name.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    if name.contains(&b'/') {
        return Ok(vec![text(&[name])?]);
    }
    let of = |dir: &[u8]| if dir.is_empty() { text(&[name]) } else { text(&[dir, b"/", name]) };
    path.split(|b| *b == b':').map(of).collect()
}

/// What the child reads, and where it says why it could not begin.
struct Child<'a> {
    setup: &'a Setup,
    parent: i32,
    stdio: [RawFd; 3],
    places: &'a [CString],
    /// With a null at the end, as exec wants them.
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    /// For the shell: a place follows.
    of_shell: Vec<*const libc::c_char>,
    error: i32,
    /// Handlers of signals are the parent's, and are to go.
    handlers: bool,
}

fn pointers<'a>(all: impl IntoIterator<Item = &'a CString>) -> Vec<*const libc::c_char> {
    all.into_iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect()
}

/// Starts it with these descriptors, none of which may be one of the first three, as its standard input, output and error. Gives the child's number; its
/// end is for the caller to collect.
pub fn spawn(program: &Program, setup: &Setup, stdio: [RawFd; 3]) -> io::Result<i32> {
    spawn_by(newest, program, setup, stdio)
}

type Clone = unsafe fn(&mut Child<'_>, &mut Vec<MaybeUninit<u128>>) -> io::Result<i32>;

fn spawn_by(way: Clone, program: &Program, setup: &Setup, stdio: [RawFd; 3]) -> io::Result<i32> {
    if stdio.iter().any(|fd| *fd < 3) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a standard stream in the place of another one"));
    }
    let mut of_shell = vec![SHELL.as_ptr(), ptr::null()];
    of_shell.extend(pointers(program.arguments.get(1..).unwrap_or(&[])));
    let mut child = Child {
        setup,
        // SAFETY: getpid has no preconditions.
        parent: unsafe { libc::getpid() },
        stdio,
        places: &program.places,
        arguments: pointers(&program.arguments),
        environment: pointers(program.environment.iter().chain(&program.own)),
        of_shell,
        error: 0,
        handlers: false,
    };
    // Nobody reads of it what was not written before: it is not filled with zeros.
    let mut stack = Vec::with_capacity(STACK / size_of::<u128>());
    // SAFETY: the child uses `stack` and `child` only until it execs or ends, and this thread stands still until then (CLONE_VFORK), so both live, and
    // nobody else touches them. No signal comes while all are blocked, and before they come in the child no handler of ours is left in it.
    let pid = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let pid = way(&mut child, &mut stack);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        pid?
    };
    match child.error {
        0 => Ok(pid),
        error => {
            // SAFETY: a child of ours that nobody else has heard of.
            unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// The first way that this machine knows: containers refuse clone3 whose filter can't look into what it is given.
///
/// # Safety
///
/// As [`clone3`].
unsafe fn newest(child: &mut Child<'_>, stack: &mut Vec<MaybeUninit<u128>>) -> io::Result<i32> {
    // SAFETY: as the caller says; who was refused has made no child.
    unsafe {
        match clone3(child, stack) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => clone(child, stack),
            done => done,
        }
    }
}

/// A child in this process's memory that lives ([`live`]) on this stack, while this thread stands still until it execs or ends. It has a table of signal
/// handlers of its own, in which there are none: what is ignored here is ignored there, and all else has its default. (Neither the C library's clone(2)
/// knows that flag, nor does its syscall(2) bear that the child goes on where the stack is another one.)
///
/// # Safety
///
/// All signals are blocked, and nobody else uses the two.
unsafe fn clone3(child: &mut Child<'_>, stack: &mut Vec<MaybeUninit<u128>>) -> io::Result<i32> {
    // SAFETY: clone_args is plain data for which all zeroes is a valid value.
    let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
    how.flags = (libc::CLONE_VM | libc::CLONE_VFORK) as u64 | CLONE_CLEAR_SIGHAND;
    how.exit_signal = libc::SIGCHLD as u64;
    how.stack = stack.as_mut_ptr() as u64;
    how.stack_size = (stack.capacity() * size_of::<u128>()) as u64;
    let pid: i64;
    // SAFETY: the kernel reads `how`. In this thread only rax, rcx and r11 change. The child begins on the stack that is named, which lives until this
    // thread goes on and is aligned as a call needs it; it touches no other one, for `live` never comes back. That neither allocates nor takes locks.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => pid,
            in("rdi") &raw const how,
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") &raw mut *child,
            in("r13") live as extern "C" fn(*mut libc::c_void) -> !,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if pid < 0 { Err(io::Error::from_raw_os_error(-pid as i32)) } else { Ok(pid as i32) }
}

/// The same by the older call, which leaves handlers to be taken away by the child.
///
/// # Safety
///
/// As [`clone3`].
unsafe fn clone(child: &mut Child<'_>, stack: &mut Vec<MaybeUninit<u128>>) -> io::Result<i32> {
    extern "C" fn lives(child: *mut libc::c_void) -> libc::c_int {
        live(child)
    }
    child.handlers = true;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the top of `stack` is one past its last byte; for the rest see there. The child's table of handlers is its own (no CLONE_SIGHAND).
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.capacity()).cast();
        crate::check(libc::clone(lives, top, flags, (&raw mut *child).cast()).into())
    };
    pid.map(|pid| pid as i32)
}

extern "C" fn live(child: *mut libc::c_void) -> ! {
    // SAFETY: `spawn` gives a live `Child` that nobody else uses now. All calls are async-signal-safe.
    unsafe {
        let child = &mut *child.cast::<Child<'_>>();
        child.error = match become_it(child) {
            Ok(never) => match never {},
            Err(e) => e.raw_os_error().filter(|code| *code != 0).unwrap_or(libc::EINVAL),
        };
        libc::_exit(127)
    }
}

/// # Safety
///
/// In a child of [`spawn`].
unsafe fn become_it(child: &mut Child<'_>) -> io::Result<std::convert::Infallible> {
    for (at, fd) in child.stdio.iter().enumerate() {
        // SAFETY: it is a number below three, which is the child's own copy.
        crate::check(unsafe { libc::dup2(*fd, at as RawFd) }.into())?;
    }
    for signal in (1..32).filter(|_| child.handlers) {
        // SAFETY: the default of a signal has no preconditions.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    begin(child.setup, child.parent)?;
    let mut denied = None;
    for place in child.places {
        // SAFETY: all lists end with a null, and what they point to lives; it comes back only with an error.
        let e = unsafe {
            libc::execve(place.as_ptr(), child.arguments.as_ptr(), child.environment.as_ptr());
            if io::Error::last_os_error().raw_os_error() == Some(libc::ENOEXEC) {
                child.of_shell[1] = place.as_ptr();
                libc::execve(SHELL.as_ptr(), child.of_shell.as_ptr(), child.environment.as_ptr());
            }
            io::Error::last_os_error()
        };
        match e.raw_os_error() {
            // Perhaps it is elsewhere.
            Some(libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT) => {}
            Some(libc::EACCES) => denied = Some(e),
            _ => return Err(e),
        }
    }
    Err(denied.unwrap_or(io::Error::from_raw_os_error(libc::ENOENT)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn setup(directory: &Path) -> Setup {
        let directory = text(&[directory.as_os_str().as_bytes()]).unwrap();
        let (limits, cpus, keep, doors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let ignored = crate::rank::ignored();
        Setup { user: None, umask: 0o027, limits, cpus, directory, keep, terminal: false, doors, ignored }
    }

    /// What it says, and how it ends. The second error is that it can't be started.
    fn run_by(way: Clone, words: &[&str], path: &str, directory: &Path) -> io::Result<(String, i32)> {
        let environment = [("PATH", "/nowhere"), ("A", "b c"), ("PATH", path)];
        let program = Program::new(OsStr::new(words[0]), words, &environment.map(|(n, v)| (n, v)))?;
        let (mut from, to) = io::pipe()?;
        let nothing = File::open("/dev/null")?;
        let stdio = [nothing.as_raw_fd(), to.as_raw_fd(), to.as_raw_fd()];
        let pid = spawn_by(way, &program, &setup(directory), stdio)?;
        drop(to);
        let mut said = String::new();
        from.read_to_string(&mut said)?;
        let mut status = 0;
        // SAFETY: the pointer is to a live object of ours.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        Ok((said, libc::WEXITSTATUS(status)))
    }

    #[test]
    fn programs_are_found_and_have_what_they_are_given() {
        found_and_given(clone3, "new");
        found_and_given(clone, "old");
    }

    fn found_and_given(way: Clone, name: &str) {
        let run = |words: &[&str], path: &str, directory: &Path| run_by(way, words, path, directory);
        let dir = std::env::temp_dir().join(format!("pando-spawn-{name}-{}", std::process::id()));
        fs::create_dir_all(dir.join("empty")).unwrap();
        let usual = "/usr/local/bin:/usr/bin:/bin";
        let script = "echo $A; umask; pwd; ps -o pid=,sid= -p $$ | awk '{print $1 == $2}'; exit 7";
        let here = dir.display();
        assert_eq!(run(&["sh", "-c", script], usual, &dir).unwrap(), (format!("b c\n0027\n{here}\n1\n"), 7));
        // None of the usual signals is ignored or blocked, though this process ignores some.
        let signals = run(&["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"], usual, &dir).unwrap().0;
        let usual_ones = |line: &str| u64::from_str_radix(line.split('\t').nth(1).unwrap(), 16).unwrap() & 0x7fff_ffff;
        assert!(signals.lines().count() == 2 && signals.lines().all(|line| usual_ones(line) == 0), "{signals}");
        // One without `#!`, in the working directory, by an empty place of the path.
        fs::write(dir.join("own"), "echo $0 $1\n").unwrap();
        let mode = |mode| fs::set_permissions(dir.join("own"), fs::Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        assert_eq!(run(&["own", "x"], "/nowhere:", &dir).unwrap(), ("own x\n".to_owned(), 0));
        mode(0o644);
        let kind = |words: &[&str], path: &str| run(words, path, &dir).unwrap_err().kind();
        // Even root executes no file that nobody may.
        assert_eq!(kind(&["own"], &format!("{here}:{here}/empty")), io::ErrorKind::PermissionDenied);
        assert_eq!(kind(&["own"], "/nowhere"), io::ErrorKind::NotFound);
        assert_eq!(kind(&["./none"], usual), io::ErrorKind::NotFound);
        assert_eq!(kind(&[""], usual), io::ErrorKind::NotFound);
        assert_eq!(kind(&["a\0b"], usual), io::ErrorKind::InvalidInput);
        assert_eq!(run(&["true"], usual, Path::new("/nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(&dir).unwrap();
    }
}
