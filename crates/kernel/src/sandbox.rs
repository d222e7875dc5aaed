//! The place where a guest runs: namespaces of its own, an empty root, an unprivileged uid, no descriptors but those that it is given.
//!
//! `spawn` makes two processes: an init (pid 1 of the new pid namespace, which only chooses thread ids) and the guest's body, which
//! has the same pid as its home process and waits to be traced and filled. All steps between clone and the wait are plain
//! system calls of a process with one thread.

use crate::{check, scm, uffd};
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The init does nothing but answer: if it takes longer than this something is wrong with this machine.
const INIT_ANSWERS: Duration = Duration::from_secs(5);

/// Bytes of what a sandbox that can't be made says about that.
const MAX_COMPLAINT: u64 = 1000;

/// What to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The pid the guest must have in its namespace.
    pub pid: i32,
    /// What `ps` and `top` are to call it.
    pub name: String,
    /// Unprivileged uid and gid (used when this process is root).
    pub uid: u32,
    /// Where the injected code and its table go: code at `hole`, table right behind it, then a scratch page.
    pub hole: u64,
    /// Monotonic clock offset, nanoseconds.
    pub monotonic_offset: i64,
    /// Boot clock offset, nanoseconds.
    pub boottime_offset: i64,
    /// (resource, soft, hard) of setrlimit.
    pub limits: Vec<(u32, u64, u64)>,
}

/// A body waiting to be filled.
#[derive(Debug)]
pub struct Body {
    /// The guest's pid as seen here.
    pub pid: i32,
    /// The init's pid as seen here; killing it ends everything in the sandbox.
    pub init: i32,
    /// Its userfaultfd.
    pub uffd: OwnedFd,
    /// Does the userfaultfd catch the kernel's own faults?
    pub full_uffd: bool,
    /// Held open while the body waits.
    _socket: UnixStream,
    /// The line to the init.
    control: UnixStream,
}

impl Body {
    /// Sees to it that the next thread or process made in the sandbox gets this id, if it is free. The caller must know that nobody
    /// else makes one.
    pub fn next_tid(&self, tid: i32) -> io::Result<()> {
        let mut answer = [0u8; 1];
        (&self.control).write_all(&tid.to_ne_bytes())?;
        (&self.control).read_exact(&mut answer)?;
        if answer[0] == 1 {
            Ok(())
        } else {
            Err(io::Error::other("this kernel lets nobody choose thread ids (ns_last_pid)"))
        }
    }
}

fn clone3(flags: u64, set_tid: Option<i32>) -> io::Result<i32> {
    let tid = [set_tid.unwrap_or(0)];
    let mut args = [0u64; 11];
    args[0] = flags;
    args[4] = libc::SIGCHLD as u64;
    if set_tid.is_some() {
        args[8] = tid.as_ptr() as u64;
        args[9] = 1;
    }
    // SAFETY: a fork (no CLONE_VM) of a single-threaded process; `args` is a struct clone_args of 88 bytes, `tid` outlives the call.
    Ok(check(unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) })? as i32)
}

/// Makes a sandbox with a waiting body. The caller must have one thread.
pub fn spawn(plan: &Plan) -> io::Result<Body> {
    let (ours, theirs) = UnixStream::pair()?;
    let (control, inits) = UnixStream::pair()?;
    control.set_read_timeout(Some(INIT_ANSWERS))?;
    scm::want_credentials(&ours)?;
    let root = effective_uid() == 0;
    let spaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    let spaces = spaces as u64 | if root { 0 } else { libc::CLONE_NEWUSER as u64 };
    let outer = (effective_uid(), effective_gid());
    let init = clone3(spaces, None)?;
    if init == 0 {
        drop(ours);
        drop(control);
        let code = match init_main(plan, root, outer, &theirs, &inits) {
            Ok(()) => 0,
            Err((step, e)) => {
                let _ = (&inits).write_all(format!("{step}: {e}").as_bytes());
                1
            }
        };
        // SAFETY: ends this forked process without running the parent's destructors.
        unsafe { libc::_exit(code) };
    }
    drop(theirs);
    drop(inits);
    match scm::receive(ours.as_raw_fd()) {
        Ok((full, pid, Some(fd))) if pid > 0 => {
            Ok(Body { pid, init, uffd: fd, full_uffd: full == 1, _socket: ours, control })
        }
        other => {
            // What it said before it ended, if it did.
            let _ = crate::signal::kill(init, libc::SIGKILL);
            reap(init);
            let mut why = String::new();
            let _ = (&control).take(MAX_COMPLAINT).read_to_string(&mut why);
            let other = other.err().map_or_else(|| "a strange answer".into(), |e| e.to_string());
            Err(io::Error::other(if why.is_empty() { other } else { why }))
        }
    }
}

/// Waits for a child that is known to end.
pub fn reap(pid: i32) {
    // SAFETY: a null status pointer is allowed.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
}

fn effective_uid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

fn effective_gid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::getegid() }
}

type Step = (&'static str, io::Error);

fn at<T>(step: &'static str, result: io::Result<T>) -> Result<T, Step> {
    result.map_err(|e| (step, e))
}

fn die_with_parent() -> io::Result<()> {
    // SAFETY: plain values.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }))?;
    Ok(())
}

fn init_main(
    plan: &Plan,
    root: bool,
    outer: (u32, u32),
    socket: &UnixStream,
    control: &UnixStream,
) -> Result<(), Step> {
    at("die with the helper", die_with_parent())?;
    // Where memory runs out, guests are ended before what belongs to this machine.
    at("oom_score_adj", std::fs::write("/proc/self/oom_score_adj", "1000"))?;
    if !root {
        at("setgroups", std::fs::write("/proc/self/setgroups", "deny"))?;
        at("uid_map", std::fs::write("/proc/self/uid_map", format!("{} {} 1", outer.0, outer.0)))?;
        at("gid_map", std::fs::write("/proc/self/gid_map", format!("{} {} 1", outer.1, outer.1)))?;
    }
    // What is written is added to the machine's clocks; the plan says what is added to ours.
    let ours = crate::clock::offsets("self");
    // SAFETY: plain value.
    at("time namespace", check(i64::from(unsafe { libc::unshare(libc::CLONE_NEWTIME) })).map(drop))?;
    let offset =
        |name: &str, ns: i64| format!("{name} {} {}\n", ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let offsets = offset("monotonic", plan.monotonic_offset.saturating_add(ours.0))
        + &offset("boottime", plan.boottime_offset.saturating_add(ours.1));
    at("time offsets", std::fs::write("/proc/self/timens_offsets", offsets))?;
    // The kernel asks at each write whose namespace it is: it will be this one.
    let last_pid = std::fs::OpenOptions::new().write(true).open("/proc/sys/kernel/ns_last_pid").ok();
    at("empty root", empty_root())?;
    let body = at("clone with the home pid", clone3(0, Some(plan.pid)))?;
    if body == 0 {
        if let Err(e) = body_main(plan, root, socket) {
            let mut control = control;
            let _ = control.write_all(format!("the body: {e}").as_bytes());
        }
        // SAFETY: ends this forked process.
        unsafe { libc::_exit(1) };
    }
    let mut keep = vec![control.as_raw_fd()];
    keep.extend(last_pid.as_ref().map(AsRawFd::as_raw_fd));
    close_all(&mut keep);
    // The kernel reaps those whose parents ignore their end.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let mut tid = [0u8; 4];
    // Ends with the helper, and the sandbox with it.
    while (&*control).read_exact(&mut tid).is_ok() {
        let before = format!("{}", i32::from_ne_bytes(tid) - 1);
        let done = last_pid.as_ref().is_some_and(|file| file.write_at(before.as_bytes(), 0).is_ok());
        if (&*control).write_all(&[u8::from(done)]).is_err() {
            break;
        }
    }
    Ok(())
}

fn empty_root() -> io::Result<()> {
    let none = CString::default();
    let (proc, tmpfs, options, dot) = (c"/proc", c"tmpfs", c"size=4k,nr_inodes=2,mode=555", c".");
    let slash = c"/";
    // SAFETY: all strings are NUL-terminated and live through the calls.
    unsafe {
        check(i64::from(libc::mount(
            none.as_ptr(),
            slash.as_ptr(),
            none.as_ptr(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        )))?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
        check(i64::from(libc::mount(tmpfs.as_ptr(), proc.as_ptr(), tmpfs.as_ptr(), flags, options.as_ptr().cast())))?;
        check(i64::from(libc::chdir(proc.as_ptr())))?;
        if libc::syscall(libc::SYS_pivot_root, dot.as_ptr(), dot.as_ptr()) == 0 {
            check(i64::from(libc::umount2(dot.as_ptr(), libc::MNT_DETACH)))?;
        } else {
            // A machine that runs from its initial file system has a root that can't be exchanged (pivot_root(2)), only covered.
            check(i64::from(libc::mount(
                dot.as_ptr(),
                slash.as_ptr(),
                none.as_ptr(),
                libc::MS_MOVE,
                std::ptr::null(),
            )))?;
            check(i64::from(libc::chroot(dot.as_ptr())))?;
        }
        check(i64::from(libc::chdir(slash.as_ptr())))?;
    }
    Ok(())
}

/// Closes all descriptors but these.
fn close_all(keep: &mut [RawFd]) {
    keep.sort_unstable();
    let mut first = 0;
    for &mut fd in keep {
        if fd > first {
            // SAFETY: plain values; nothing that is closed is used afterwards in this process.
            unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
        }
        first = fd + 1;
    }
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}

fn body_main(plan: &Plan, root: bool, socket: &UnixStream) -> io::Result<()> {
    crate::naming::call_this(&plan.name);
    let (uffd, full) = uffd::create()?;
    let (code, table) = (plan.hole as *mut libc::c_void, (plan.hole + crate::PAGE) as *mut libc::c_void);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: fixed mappings that replace nothing (NOREPLACE) in this process, which has nothing else to do.
    unsafe {
        let rx = libc::PROT_READ | libc::PROT_EXEC;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        if libc::mmap(code, crate::PAGE as usize, rx, flags, -1, 0) == libc::MAP_FAILED
            || libc::mmap(table, (crate::inject::TABLE_BYTES + crate::PAGE) as usize, rw, flags, -1, 0)
                == libc::MAP_FAILED
        {
            return Err(io::Error::last_os_error());
        }
        for &(resource, soft, hard) in &plan.limits {
            libc::setrlimit64(resource as _, &libc::rlimit64 { rlim_cur: soft, rlim_max: hard });
        }
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        if root {
            check(i64::from(libc::setgroups(0, std::ptr::null())))?;
            check(i64::from(libc::setresgid(plan.uid, plan.uid, plan.uid)))?;
            check(i64::from(libc::setresuid(plan.uid, plan.uid, plan.uid)))?;
        } else {
            drop_capabilities()?;
        }
        check(i64::from(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))?;
    }
    die_with_parent()?;
    scm::send(socket.as_raw_fd(), u8::from(full), uffd.as_raw_fd())?;
    drop(uffd);
    close_all(&mut [socket.as_raw_fd()]);
    let mut byte = [0u8; 1];
    // Never answered: the helper traces this process and replaces everything in it.
    let _ = (&*socket).read(&mut byte);
    Ok(())
}

fn drop_capabilities() -> io::Result<()> {
    let header: [u32; 2] = [0x2008_0522, 0];
    let data = [0u32; 6];
    // SAFETY: capset reads a version-3 header and two data records.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) })?;
    Ok(())
}
