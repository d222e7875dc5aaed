//! Who has an open file description: may its position be kept abroad? (docs/engine.md, Files; docs/decisions/0014 says what is not seen.)
//!
//! All descriptors of all processes are compared with it (kcmp(2)), twice, since one could be handed on behind our back. Whatever can't be looked at
//! counts as somebody else's.

use pando_kernel::{description, procfs};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The first pid namespace, whose processes are all there are (`PROC_PID_INIT_INO`).
const ALL_PROCESSES: &str = "pid:[4026531836]";
/// Most descriptors that are looked at in one pass.
const MOST: usize = 20_000;
/// For each part of its time spent with looking the helper does other things for so many.
const REST: u32 = 9;

/// Keeps looks rare, whatever is asked.
#[derive(Debug, Default)]
pub(super) struct Looks {
    not_before: Option<Instant>,
}

impl Looks {
    /// The numbers by which process `pid` has the description of `ours`, if nobody else has it. None: somebody has, or that can't be known.
    /// `whole`: the pid namespace that we are in is taken for the machine.
    pub fn numbers(&mut self, pid: i32, ours: &OwnedFd, whole: bool) -> Option<Vec<i32>> {
        let begin = Instant::now();
        if self.not_before.is_some_and(|t| begin < t) || !sees_all(whole) {
            return None;
        }
        let first = pass(pid, ours);
        let found = first.and_then(|first| (pass(pid, ours)? == first).then_some(first));
        self.not_before = Some(Instant::now() + begin.elapsed() * REST + Duration::from_millis(1));
        found
    }
}

/// Does `/proc` show every process?
fn sees_all(whole: bool) -> bool {
    let is = |name: &str, wanted: &str| fs::read_link(name).is_ok_and(|link| link.as_os_str() == wanted);
    (whole || is("/proc/self/ns/pid", ALL_PROCESSES)) && is("/proc/self", &std::process::id().to_string())
}

/// Once through all processes.
fn pass(pid: i32, ours: &OwnedFd) -> Option<Vec<i32>> {
    let own = std::process::id() as i32;
    let (mut numbers, mut seen, mut first) = (Vec::new(), 0, false);
    for process in procfs::processes().into_iter().filter(|p| *p != own) {
        // The first one is nobody's to hide: who may look into it may look into all.
        first |= process == 1;
        for thread in tables(process)? {
            let theirs = descriptors(thread)?;
            seen += theirs.len();
            if seen > MOST {
                return None;
            }
            for fd in theirs {
                match description::is_same(ours.as_raw_fd(), thread, fd) {
                    Ok(true) if thread == pid => numbers.push(fd),
                    Ok(false) if !may_carry(thread, fd)? => {}
                    Err(e) if is_gone(&e) => {}
                    _ => return None,
                }
            }
        }
    }
    numbers.sort_unstable();
    (first && !numbers.is_empty()).then_some(numbers)
}

/// A thread for each table of descriptors that the process has.
fn tables(process: i32) -> Option<Vec<i32>> {
    let mut threads = match procfs::threads(process) {
        Ok(threads) => threads,
        Err(e) if is_gone(&e) => return Some(Vec::new()),
        Err(_) => return None,
    };
    threads.retain(|&t| t == process || !description::same_table(process, t));
    Some(threads)
}

fn descriptors(thread: i32) -> Option<Vec<i32>> {
    let number = |e: io::Result<fs::DirEntry>| e.map(|e| e.file_name().to_str().and_then(|n| n.parse().ok()));
    let all =
        fs::read_dir(format!("/proc/{thread}/fd")).and_then(|dir| dir.map(number).collect::<io::Result<Vec<_>>>());
    match all {
        Ok(all) => all.into_iter().collect(),
        Err(e) if is_gone(&e) => Some(Vec::new()),
        Err(_) => None,
    }
}

/// Can there be descriptors in it that no table shows: in messages that wait in a socket, or registered with a ring (io_uring)?
fn may_carry(thread: i32, fd: i32) -> Option<bool> {
    let link = match fs::read_link(format!("/proc/{thread}/fd/{fd}")) {
        Ok(link) => link,
        Err(e) if is_gone(&e) => return Some(false),
        Err(_) => return None,
    };
    let (field, must) = match link.to_str() {
        Some(l) if l.starts_with("socket:[") => ("scm_fds:", false),
        Some("anon_inode:[io_uring]") => ("UserFiles:", true),
        _ => return Some(false),
    };
    let text = match fs::read_to_string(format!("/proc/{thread}/fdinfo/{fd}")) {
        Ok(text) => text,
        Err(e) if is_gone(&e) => return Some(false),
        Err(_) => return None,
    };
    // Sockets that carry none have no such line.
    let value = text.lines().find_map(|l| l.strip_prefix(field)).map(str::trim);
    Some(value.map_or(must, |v| v != "0"))
}

/// The process or its descriptor is not there any more.
fn is_gone(e: &io::Error) -> bool {
    [Some(libc::ENOENT), Some(libc::ESRCH), Some(libc::EBADF)].contains(&e.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command, Stdio};

    struct Holder(Child);

    impl Holder {
        /// Another process, since ours is passed over, that has this as its input; with a shell's words before it goes to sleep.
        fn new(input: impl AsFd, words: &str) -> Holder {
            let input = input.as_fd().try_clone_to_owned().expect("a duplicate");
            let script = format!("{words} echo; exec sleep 1000 >&-");
            let mut shell = Command::new("sh");
            let mut child = shell.args(["-c", &script]).stdin(input).stdout(Stdio::piped()).spawn().expect("a shell");
            let mut ready = child.stdout.take().expect("its output");
            io::Read::read_to_end(&mut ready, &mut Vec::new()).expect("it sleeps");
            Holder(child)
        }

        fn pid(&self) -> i32 {
            self.0.id() as i32
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            let _ = self.0.kill().and_then(|()| self.0.wait());
        }
    }

    /// The first process of the pid namespace that this one is in has begun the test.
    const ALONE: &str = "PANDO_TEST_ALONE";

    /// Runs the test once more where all processes can be seen: a pid namespace of its own. True: that is where we are.
    fn is_alone(test: &str) -> bool {
        if std::env::var_os(ALONE).is_some() {
            return true;
        }
        let (exe, script) = (std::env::current_exe().expect("this program"), "\"$@\"; exit $?");
        let mut again = Command::new("unshare");
        again.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script, "sh"]).arg(exe);
        let done = again.args([test, "--exact"]).env(ALONE, "1").output().expect("unshare");
        let text = String::from_utf8_lossy(&done.stdout);
        match String::from_utf8_lossy(&done.stderr) {
            why if why.contains("unshare: ") => eprintln!("SKIPPED {test}: {why}"),
            why => assert!(done.status.success() && text.contains("1 passed"), "{text}{why}"),
        }
        false
    }

    fn look(pid: i32, file: &fs::File) -> Option<Vec<i32>> {
        Looks::default().numbers(pid, &file.as_fd().try_clone_to_owned().expect("a duplicate"), true)
    }

    #[test]
    fn every_owner_is_found() {
        if !is_alone("home::owners::tests::every_owner_is_found") {
            return;
        }
        let path = std::env::temp_dir().join(format!("pando-owners-{}", std::process::id()));
        fs::write(&path, "text").expect("a file");
        let (file, again) = (fs::File::open(&path).expect("open"), fs::File::open(&path).expect("open"));
        fs::remove_file(&path).expect("remove");
        let one = Holder::new(&file, "exec 5<&0;");
        let other_description = Holder::new(&again, "");
        assert_eq!(look(one.pid(), &file).as_deref(), Some([0, 5].as_slice()));
        let two = Holder::new(&file, "");
        assert_eq!((look(one.pid(), &file), look(two.pid(), &file)), (None, None));
        drop(two);
        assert_eq!(look(one.pid(), &file).as_deref(), Some([0, 5].as_slice()));
        // In a message that nobody has received: it could be any file.
        let (here, there) = UnixStream::pair().expect("sockets");
        pando_kernel::scm::send(here.as_raw_fd(), 1, again.as_raw_fd()).expect("send");
        let receiver = Holder::new(&there, "");
        assert_eq!(look(one.pid(), &file), None);
        drop((receiver, there));
        assert_eq!(look(other_description.pid(), &again).as_deref(), Some([0].as_slice()));
    }

    #[test]
    fn looks_are_rare() {
        let file = fs::File::open("/proc/self/exe").expect("ourselves");
        let ours = file.as_fd().try_clone_to_owned().expect("a duplicate");
        let mut looks = Looks { not_before: Some(Instant::now() + Duration::from_secs(1000)) };
        assert_eq!(looks.numbers(std::process::id() as i32, &ours, true), None);
    }
}
