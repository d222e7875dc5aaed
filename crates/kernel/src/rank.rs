//! What a rank of a parallel job is given before exec: its user's rights, limits, CPUs, and an end when its launcher ends.

use crate::check;
use crate::usage::Used;
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Most groups of one user (NGROUPS_MAX).
const MOST_GROUPS: usize = 65536;

/// A user as this machine knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Number.
    pub uid: u32,
    /// Main group.
    pub gid: u32,
    /// All groups.
    pub groups: Vec<u32>,
}

/// Looks a user up.
pub fn user(name: &str) -> Option<User> {
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0u8; 64 << 10];
    // SAFETY: passwd is plain data for which all zeroes is a valid value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    let (text, length) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: all pointers are to live objects of ours, and the length is the buffer's.
    let code = unsafe { libc::getpwnam_r(name.as_ptr(), &mut entry, text, length, &mut found) };
    if code != 0 || found.is_null() {
        return None;
    }
    let (uid, gid) = (entry.pw_uid, entry.pw_gid);
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: `groups` has room for `count` numbers; the name is terminated.
        let done = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        if done >= 0 {
            groups.truncate(done as usize);
            return Some(User { uid, gid, groups });
        }
        if groups.len() >= MOST_GROUPS {
            return None;
        }
        groups.resize(groups.len() * 4, 0);
    }
}

/// The number of a group.
pub fn group(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0u8; 64 << 10];
    let mut found = std::ptr::null_mut();
    // A group has all its members in the buffer.
    while buffer.len() <= 16 << 20 {
        // SAFETY: group is plain data for which all zeroes is a valid value.
        let mut entry: libc::group = unsafe { std::mem::zeroed() };
        let (text, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: all pointers are to live objects of ours, and the length is the buffer's.
        let code = unsafe { libc::getgrnam_r(name.as_ptr(), &mut entry, text, length, &mut found) };
        match code {
            0 if !found.is_null() => return Some(entry.gr_gid),
            libc::ERANGE => buffer.resize(buffer.len() * 4, 0),
            _ => return None,
        }
    }
    None
}

/// Does something with files as that user may: what root could see besides is not for him. For this thread only, which keeps root's groups.
pub fn as_user<T>(user: Option<(u32, u32)>, act: impl FnOnce() -> T) -> T {
    struct Back(Option<(libc::c_int, libc::c_int)>);
    impl Drop for Back {
        fn drop(&mut self) {
            if let Some((uid, gid)) = self.0 {
                // SAFETY: the calls touch no memory; root may be anybody again.
                unsafe {
                    libc::setfsuid(uid as libc::uid_t);
                    libc::setfsgid(gid as libc::gid_t);
                }
            }
        }
    }
    // SAFETY: the calls touch no memory; they give what was before.
    let _back = Back(user.map(|(uid, gid)| unsafe {
        let group = libc::setfsgid(gid);
        (libc::setfsuid(uid), group)
    }));
    act()
}

/// The same with that user's groups as well, in a thread of its own that ends with it. None: with our own rights.
pub fn as_whole_user<T: Send>(user: Option<&User>, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(user) = user else { return act() };
    let work = || {
        let groups = &user.groups;
        // SAFETY: the pointer is to as many numbers as are said. Not glibc's setgroups, which changes every thread's.
        check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
        as_user(Some((user.uid, user.gid)), || {
            // SAFETY: a number that is no user changes nothing, and gives what there is.
            match unsafe { libc::setfsuid(libc::uid_t::MAX) } as u32 == user.uid {
                true => act(),
                false => Err(io::ErrorKind::PermissionDenied.into()),
            }
        })
    };
    std::thread::scope(|scope| scope.spawn(work).join()).map_err(|_| io::Error::other("a thread has broken off"))?
}

/// These groups in the place of this process's own, for a process that serves one user: [`as_user`] leaves groups as they are. Only root may.
pub fn take_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the pointer is to as many numbers as are said.
    check(i64::from(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })).map(|_| ())
}

/// See above.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Whose rights it gets; none: those of the launcher, who has no others.
    pub user: Option<User>,
    /// The mask of new files' modes.
    pub umask: u32,
    /// Resource, soft and hard limit.
    pub limits: Vec<(u32, u64, u64)>,
    /// The CPUs that it may use; none: all.
    pub cpus: Vec<u16>,
    /// The working directory.
    pub directory: CString,
    /// Descriptors that it keeps.
    pub keep: Vec<RawFd>,
    /// What it reads is its controlling terminal.
    pub terminal: bool,
    /// Of control groups that it is to be in: descriptors of their lists of processes.
    pub doors: Vec<RawFd>,
    /// Signals that this process ignores ([`ignored`]) and that it is not to ignore.
    pub ignored: Vec<i32>,
}

/// In the child: async-signal-safe calls only, which allocate nothing, for its memory is the parent's ([`crate::spawn`]).
pub(crate) fn begin(setup: &Setup, launcher: i32) -> io::Result<()> {
    let done = |code: libc::c_int| check(i64::from(code)).map(|_| ());
    // SAFETY: plain system calls; pointers are to live objects of ours. The numbers of signals are valid ones.
    unsafe {
        done(libc::setsid())?;
        if setup.terminal {
            crate::pty::control()?;
        }
        // Before the change of user, who may not. A group that is gone, or full, is done without.
        for door in &setup.doors {
            libc::write(*door, c"0".as_ptr().cast(), 1);
        }
        libc::umask(setup.umask);
        if !setup.cpus.is_empty() {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            let known = setup.cpus.iter().filter(|cpu| usize::from(**cpu) < libc::CPU_SETSIZE as usize);
            known.for_each(|cpu| libc::CPU_SET(usize::from(*cpu), &mut set));
            done(libc::sched_setaffinity(0, size_of_val(&set), &set))?;
        }
        if let Some(user) = &setup.user {
            // Not the C library's calls, which would have all threads of its process do the same, and its data may be the parent's.
            check(libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()))?;
            check(libc::syscall(libc::SYS_setgid, user.gid))?;
            check(libc::syscall(libc::SYS_setuid, user.uid))?;
        }
        // With the user's rights: nobody gets more than this machine gives him.
        setup.limits.iter().for_each(|l| limit(l));
        done(libc::chdir(setup.directory.as_ptr()))?;
        for fd in &setup.keep {
            done(libc::fcntl(*fd, libc::F_SETFD, 0))?;
        }
        // No handler is left in the child; what is ignored would be in the program, too.
        for signal in &setup.ignored {
            libc::signal(*signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        done(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()))?;
        // After the change of user, which takes it away.
        done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        if libc::getppid() != launcher {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    Ok(())
}

/// As its user has it, as far as this machine allows: a hard limit is only raised by root.
///
/// # Safety
///
/// None of its own: it makes plain system calls.
unsafe fn limit((resource, soft, hard): &(u32, u64, u64)) {
    // SAFETY: the pointers are to live objects of ours; an unknown resource is an error.
    unsafe {
        let wanted = libc::rlimit { rlim_cur: *soft, rlim_max: *hard };
        if libc::setrlimit(*resource as _, &wanted) < 0 {
            let mut now: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(*resource as _, &mut now) == 0 {
                let hard = now.rlim_max.min(*hard);
                let less = libc::rlimit { rlim_cur: hard.min(*soft), rlim_max: hard };
                libc::setrlimit(*resource as _, &less);
            }
        }
    }
}

/// Children that end are gone: nobody asks how.
pub fn leave_no_zombies() {
    // SAFETY: ignoring a signal has no preconditions.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Makes a copy of this process, which must have one thread only: true in the copy. Its children are its own to ask after.
pub fn fork() -> io::Result<bool> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("a process with {threads} threads can't be copied")));
    }
    // SAFETY: there is no other thread that could hold a lock, so the copy is as sound as this one.
    let pid = check(i64::from(unsafe { libc::fork() }))?;
    if pid == 0 {
        // SAFETY: the default of a signal has no preconditions.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    Ok(pid == 0)
}

/// Leads a session of its own, and reads from `input` instead of what it read from before.
pub fn become_session(input: RawFd) -> io::Result<()> {
    // SAFETY: plain system calls on numbers; nobody here uses descriptor 0 by another name.
    unsafe {
        check(i64::from(libc::setsid()))?;
        check(i64::from(libc::dup2(input, 0)))?;
    }
    Ok(())
}

/// What descendants leave when their parents end comes to this process, and not to init: it can find them.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: prctl with numbers touches no memory.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) })).map(|_| ())
}

/// A child that has ended, and how; nothing is left of it. None when there is none for now.
pub fn collect() -> Option<(i32, ExitStatus)> {
    collect_measured().map(|(pid, status, _)| (pid, status))
}

/// The same, with what it has used, and those of its children that it has waited for.
pub fn collect_measured() -> Option<(i32, ExitStatus, Used)> {
    let mut status = 0;
    // SAFETY: rusage is plain data for which all zeroes is a valid value; the pointers are to live objects of ours.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage), usage)
    };
    (pid > 0).then(|| (pid, ExitStatus::from_raw(status), Used::from(usage)))
}

/// Has this process children, or has had some whom it has not collected?
pub fn has_children() -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: siginfo_t is plain data for which all zeroes is a valid value; the pointer is to a live object of ours.
    let done = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &mut info, flags | libc::__WALL)
    };
    done == 0
}

/// Signals that this process ignores: a Rust program does so with SIGPIPE.
pub fn ignored() -> Vec<i32> {
    (1..32).filter(|signal| crate::signal::is_ignored(*signal)).collect()
}

/// This process's resource limits: number, soft, hard.
pub fn limits() -> Vec<(u32, u64, u64)> {
    let one = |resource: u32| {
        // SAFETY: rlimit is plain data; the pointer is to a live object of ours.
        unsafe {
            let mut now: libc::rlimit = std::mem::zeroed();
            (libc::getrlimit(resource as _, &mut now) == 0).then_some((resource, now.rlim_cur, now.rlim_max))
        }
    };
    (0..16).filter_map(one).collect()
}

/// This process's mask of new files' modes. It is changed for an instant: before there are threads.
pub fn umask() -> u32 {
    // SAFETY: umask cannot fail and touches no memory.
    unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        mask
    }
}

/// Stops this process until it is told to go on.
pub fn stop_here() {
    // SAFETY: raise has no preconditions.
    unsafe { libc::raise(libc::SIGSTOP) };
}
