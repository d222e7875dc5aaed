//! Files that are read abroad (docs/engine.md, Files): liars at both ends.

mod liar;

use liar::home::{Visit, calling, can_run};
use liar::target::Taken;
use pando_migrate::message::{Down, File, MAX_FETCH, MAX_NUMBERS, MAX_WAY, Owners, Run, Shared, Up};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::channel;

const SIZE: usize = 300_000;

/// A file that the process may read, and its content.
struct Sample {
    path: PathBuf,
    content: Vec<u8>,
}

impl Sample {
    fn new(name: &str) -> Sample {
        // Where the tests are built, since /tmp may be of any kind.
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let content: Vec<u8> = (0..SIZE).map(|i| (i * 7 + i / 251) as u8).collect();
        fs::write(&path, &content).unwrap();
        Sample { path, content }
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn open(t: &mut Taken, path: &str, flags: i32) -> i32 {
    let (place, path) = (t.place(), format!("{path}\0"));
    let at = libc::AT_FDCWD as u64;
    let fd = t.call(libc::SYS_openat, &[at, place, flags as u64, 0o600], &[(place, path.as_bytes())]);
    assert!(fd >= 0, "{path}: {fd}");
    fd as i32
}

/// The answer to a question about a descriptor: id, size, position.
fn ask(t: &mut Taken, number: u64, fd: i32) -> Option<(u64, u64, u64)> {
    t.say(&Up::Ask(number, fd, Owners::Known), &[]);
    t.wait_for(|down, _| match down {
        Down::Granted(ask, file) if ask == number => {
            Some(Some((file.id, file.size, file.position.expect("it was asked for"))))
        }
        Down::Refused(ask) if ask == number => Some(None),
        _ => None,
    })
}

/// A target that has the sample, as file 1. None, loudly, where no file system grants that.
fn has_file(test: &str, sample: &Sample) -> Option<(Taken, i32)> {
    let mut t = Taken::new();
    let fd = open(&mut t, sample.path.to_str().unwrap(), libc::O_RDONLY);
    match ask(&mut t, 1, fd) {
        Some(granted) => {
            assert_eq!(granted, (1, SIZE as u64, 0));
            Some((t, fd))
        }
        None => {
            eprintln!("SKIPPED {test}: no lease is to be had for {}", sample.path.display());
            t.goes_on();
            None
        }
    }
}

#[test]
fn an_honest_reader_of_the_stage_gets_the_file() {
    let sample = Sample::new("honest");
    let Some((mut t, fd)) = has_file("an_honest_reader_of_the_stage_gets_the_file", &sample) else { return };
    t.say(&Up::Fetch(1, 1000, 290_000), &[]);
    let mut got = Vec::new();
    while got.len() < 290_000 {
        let next = 1000 + got.len() as u64;
        got.extend(t.wait_for(|down, body| match down {
            Down::FileData(id, offset) => {
                assert_eq!((id, offset), (1, next));
                Some(body)
            }
            _ => None,
        }));
    }
    assert_eq!(got, sample.content[1000..291_000]);
    t.say(&Up::Position(fd, 291_000), &[]);
    assert_eq!(t.call(libc::SYS_lseek, &[fd as u64, 0, 1], &[]), 291_000);
    t.say(&Up::Renew(5), &[]);
    t.wait_for(|down, _| (down == Down::Renewed(5)).then_some(()));
    t.say(&Up::Release(1), &[]);
    t.wait_for(|down, _| (down == Down::Forget(1)).then_some(()));
    t.goes_on();
}

#[test]
fn a_writer_does_not_wait_for_a_target_that_never_forgets() {
    let sample = Sample::new("never");
    let Some((mut t, fd)) = has_file("a_writer_does_not_wait_for_a_target_that_never_forgets", &sample) else { return };
    let (done, opened) = channel();
    let path = sample.path.clone();
    let writer = std::thread::spawn(move || {
        OpenOptions::new().write(true).open(path).unwrap();
        done.send(()).unwrap();
    });
    t.wait_for(|down, _| (down == Down::Forget(1)).then_some(()));
    // The kernel would let it wait 45 seconds: more patience than this test has.
    opened.recv_timeout(liar::PATIENCE).expect("the writer is let in");
    writer.join().unwrap();
    // Nothing more is sent of it or granted to one like this.
    t.say(&Up::Fetch(1, 0, 4096), &[]);
    let other = Sample::new("never-other");
    let other = open(&mut t, other.path.to_str().unwrap(), libc::O_RDONLY);
    assert_eq!(ask(&mut t, 2, other), None);
    t.say(&Up::Release(1), &[]);
    assert!(ask(&mut t, 3, other).is_some());
    assert!(ask(&mut t, 4, fd).is_some_and(|g| g.0 == 3), "a new name for what was given back");
    t.goes_on();
}

#[test]
fn a_target_that_lets_writers_wait_again_and_again_gets_no_more_files() {
    let test = "a_target_that_lets_writers_wait_again_and_again_gets_no_more_files";
    let sample = Sample::new("again");
    let Some((mut t, fd)) = has_file(test, &sample) else { return };
    for id in 1..=10 {
        let path = sample.path.clone();
        let writer = std::thread::spawn(move || drop(OpenOptions::new().write(true).open(path).unwrap()));
        t.wait_for(|down, _| (down == Down::Forget(id)).then_some(()));
        writer.join().unwrap();
        t.say(&Up::Release(id), &[]);
        assert_eq!(ask(&mut t, id + 1, fd).is_some(), id < 10, "after {id} times");
    }
    t.goes_on();
}

#[test]
fn what_has_not_changed_is_known_again() {
    let sample = Sample::new("known");
    // Of two changes within a clock tick the second could not be told from the first.
    let age = || fs::metadata(&sample.path).unwrap().modified().unwrap().elapsed().unwrap();
    liar::until("the file is older than a tick", || age().as_millis() > 200);
    let Some((mut t, fd)) = has_file("what_has_not_changed_is_known_again", &sample) else { return };
    let again = |t: &mut Taken, id: u64| {
        t.say(&Up::Release(id), &[]);
        t.wait_for(|down, _| (down == Down::Forget(id)).then_some(()));
        t.say(&Up::Ask(id + 1, fd, Owners::Any), &[]);
        t.wait_for(|down, _| match down {
            Down::Granted(_, file) => {
                assert_eq!((file.position, file.numbers), (None, Vec::new()), "nobody wanted to know");
                Some((file.id, file.same_as))
            }
            _ => None,
        })
    };
    assert_eq!(again(&mut t, 1), (2, Some(1)));
    assert_eq!(again(&mut t, 2), (3, Some(2)));
    t.say(&Up::Release(3), &[]);
    t.wait_for(|down, _| (down == Down::Forget(3)).then_some(()));
    fs::write(&sample.path, vec![9; SIZE]).unwrap();
    assert_eq!(ask(&mut t, 4, fd).map(|g| g.0), Some(4));
    t.goes_on();
}

#[test]
fn what_is_no_plain_file_is_not_granted() {
    let sample = Sample::new("plain");
    let Some((mut t, fd)) = has_file("what_is_no_plain_file_is_not_granted", &sample) else { return };
    // The same file once more, and one that someone else is writing.
    assert_eq!(ask(&mut t, 2, fd).map(|g| g.0), Some(1));
    let busy = Sample::new("plain-busy");
    let writer = OpenOptions::new().append(true).open(&busy.path).unwrap();
    let mut odd = vec![open(&mut t, busy.path.to_str().unwrap(), libc::O_RDONLY)];
    for (path, flags) in [
        ("/proc/self/status", libc::O_RDONLY),
        ("/sys/kernel/uevent_seqnum", libc::O_RDONLY),
        ("/dev/null", libc::O_RDONLY),
        ("/dev/zero", libc::O_RDWR),
        ("/", libc::O_RDONLY | libc::O_DIRECTORY),
        (sample.path.to_str().unwrap(), libc::O_PATH),
        (sample.path.to_str().unwrap(), libc::O_DIRECT),
    ] {
        odd.push(open(&mut t, path, flags));
    }
    odd.extend([-1, 99, i32::MAX, i32::MIN]);
    odd.push(t.call(libc::SYS_eventfd2, &[0, 0], &[]) as i32);
    odd.push(t.call(libc::SYS_socket, &[libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0], &[]) as i32);
    for (number, fd) in (10..).zip(odd) {
        assert_eq!(ask(&mut t, number, fd), None, "descriptor {fd}");
    }
    drop(writer);
    // Who watches files would see ours opened.
    assert!(t.call(libc::SYS_inotify_init1, &[0], &[]) >= 0);
    assert_eq!(ask(&mut t, 50, fd), None);
    t.goes_on();
}

#[test]
fn questions_that_make_no_sense() {
    let sample = Sample::new("no-sense");
    let size = SIZE as u64;
    let lies = [
        (Up::Fetch(2, 0, 10), "which it does not have"),
        (Up::Fetch(1, size, 1), "bytes of file 1"),
        (Up::Fetch(1, u64::MAX, u32::MAX), "bytes of file 1"),
        (Up::Fetch(1, 0, 0), "bytes of file 1"),
        (Up::Fetch(1, 0, u32::MAX), "bytes of file 1"),
        (Up::Release(2), "which it does not have"),
        (Up::Release(u64::MAX), "which it does not have"),
        (Up::NotShared(2), "which it does not have"),
        (Up::Position(-1, 0), "can't have"),
        (Up::Position(4000, 0), "can't have"),
    ];
    for (lie, why) in lies {
        let Some((mut t, _)) = has_file("questions_that_make_no_sense", &sample) else { return };
        t.say(&lie, &[]);
        t.ends_found_out(why);
    }
    let Some((mut t, fd)) = has_file("questions_that_make_no_sense", &sample) else { return };
    t.say(&Up::Position(fd, u64::MAX), &[]);
    t.ends_found_out("can't have");
    // Too much at once, and the same again and again.
    let Some((mut t, _)) = has_file("questions_that_make_no_sense", &sample) else { return };
    for _ in 0..=MAX_FETCH / size {
        let _ = t.chan.send(&Up::Fetch(1, 0, SIZE as u32), &[]);
    }
    for _ in 0..200 {
        let _ = t.chan.send(&Up::Fetch(1, 0, SIZE as u32), &[]);
    }
    t.ends_found_out("bytes of file 1");
}

/// A guest that reads descriptor 5 by offset, again and again, and has just asked whether it may have the file.
fn asking(test: &str) -> Option<Visit> {
    if !can_run(test) {
        return None;
    }
    let mut visit = Visit::running(&calling(libc::SYS_pread64, [5, liar::home::DATA, 4096]));
    for _ in 0..4 {
        let (seq, nr, args) = visit.call();
        assert_eq!((nr, args[0], args[3]), (libc::SYS_pread64 as u64, 5, 0x22));
        visit.reply(seq, 4096);
    }
    visit.wait_for(|up, _| (up == Up::Ask(1, 5, Owners::Any)).then_some(()));
    Some(visit)
}

fn granted(id: u64, size: u64) -> Down {
    Down::Granted(1, File { id, size, position: Some(0), numbers: Vec::new(), same_as: None })
}

/// The same; it has the file and has asked for its beginning.
fn fetching(test: &str) -> Option<Visit> {
    let mut visit = asking(test)?;
    visit.say(&granted(1, 1 << 20), &[]);
    visit.wait_for(|up, _| match up {
        Up::Fetch(1, 0, len) if len >= 4096 + 0x22 => Some(()),
        Up::Fetch(..) | Up::Call { .. } => panic!("{up:?}"),
        _ => None,
    });
    Some(visit)
}

#[test]
fn a_guest_serves_itself_as_long_as_home_keeps_its_word() {
    let Some(mut visit) = fetching("a_guest_serves_itself_as_long_as_home_keeps_its_word") else { return };
    visit.say(&Down::FileData(1, 0), &[7; 8192]);
    // It reads by itself, until it wants home's word: which does not come, and nothing else is heard.
    let number = loop {
        match visit.hear().unwrap().0 {
            Up::Pull(addr, _) => visit.say(&Down::Pages(vec![Run { addr, pages: 1, zero: true }]), &[]),
            Up::Renew(number) => break number,
            up => assert!(!matches!(up, Up::Call { .. }), "{up:?}"),
        }
    };
    visit.say(&Down::Renewed(number), &[]);
    visit.wait_for(|up, _| matches!(up, Up::Renew(_)).then_some(()));
    visit.say(&Down::Forget(1), &[]);
    visit.wait_for(|up, _| (up == Up::Release(1)).then_some(()));
    let (_, nr, _) = visit.call();
    assert_eq!(nr, libc::SYS_pread64 as u64);
    visit.ends_content();
}

/// Numbers of descriptors that the guest has, with the flags of their descriptions.
fn descriptors(visit: &Visit) -> Vec<(String, i32)> {
    let (_, body) = visit.sandbox();
    let all = fs::read_dir(format!("/proc/{body}/fd")).unwrap().flatten();
    let with_flags = all.map(|entry| {
        let number = entry.file_name().into_string().unwrap();
        let text = fs::read_to_string(format!("/proc/{body}/fdinfo/{number}")).unwrap();
        let flags = text.lines().find_map(|l| l.strip_prefix("flags:")).unwrap().trim();
        (number, i32::from_str_radix(flags, 8).unwrap())
    });
    with_flags.collect()
}

#[test]
fn what_a_guest_is_given_it_can_only_read() {
    let test = "what_a_guest_is_given_it_can_only_read";
    if !can_run(test) {
        return;
    }
    if let Err(e) = pando_kernel::sparse::Place::new() {
        eprintln!("SKIPPED {test}: {e}");
        return;
    }
    const PIECE: u64 = 256 << 10;
    let mut visit = Visit::running(&calling(libc::SYS_read, [5, liar::home::DATA, 4096]));
    let (seq, ..) = visit.call();
    visit.reply(seq, 4096);
    visit.wait_for(|up, _| (up == Up::Ask(1, 5, Owners::Unknown)).then_some(()));
    assert_eq!(descriptors(&visit), []);
    let file = File { id: 1, size: 1 << 20, position: Some(0), numbers: vec![5], same_as: None };
    visit.say(&Down::Granted(1, file), &[]);
    let len = visit.wait_for(|up, _| if let Up::Fetch(1, 0, len) = up { Some(u64::from(len)) } else { None });
    assert!(len >= PIECE, "{len}");
    visit.say(&Down::FileData(1, 0), &vec![7; PIECE as usize]);
    // Its own kernel reads all of that.
    let at = loop {
        match visit.hear().unwrap().0 {
            Up::Position(5, at) => break at,
            Up::Pull(addr, _) => visit.say(&Down::Pages(vec![Run { addr, pages: 1, zero: true }]), &[]),
            up => assert!(!matches!(up, Up::Call { .. }), "{up:?}"),
        }
    };
    assert!((4096..=PIECE).contains(&at) && at.is_multiple_of(4096), "{at}");
    let given = descriptors(&visit);
    assert!(given.len() == 1 && given[0].0 == "5", "{given:?}");
    assert_eq!(given[0].1 & (libc::O_ACCMODE | libc::O_PATH | libc::O_APPEND), libc::O_RDONLY);
    let (_, body) = visit.sandbox();
    let file = fs::metadata(format!("/proc/{body}/fd/5")).unwrap();
    assert_eq!((file.mode() & 0o7777, file.nlink()), (0o400, 0), "nobody else's, and nowhere to be found");
    // When home has taken it back nothing is read by it any more.
    visit.say(&Down::Forget(1), &[]);
    visit.wait_for(|up, _| (up == Up::Release(1)).then_some(()));
    let (_, nr, _) = visit.call();
    assert_eq!(nr, libc::SYS_read as u64);
    visit.ends_content();
}

#[test]
fn a_home_that_gives_what_nobody_asked_for() {
    let test = "a_home_that_gives_what_nobody_asked_for";
    let lies: [(Down, usize, &str); 9] = [
        (Down::FileData(1, 4096), 4096, "which nobody asked for"),
        (Down::FileData(2, 0), 4096, "which nobody asked for"),
        (Down::FileData(1, 0), 0, "which nobody asked for"),
        (Down::FileData(1, 0), 1 << 20, "which nobody asked for"),
        (Down::FileData(1, u64::MAX), 4096, "which nobody asked for"),
        (granted(1, 1 << 20), 0, "an answer to question 1"),
        (Down::Refused(7), 0, "an answer to question 7"),
        (Down::Forget(7), 0, "is to be forgotten"),
        (Down::Renewed(u64::MAX), 0, "an answer to renewal"),
    ];
    for (lie, len, why) in lies {
        let Some(mut visit) = fetching(test) else { return };
        visit.say(&lie, &vec![1; len]);
        visit.refuses(why);
    }
    for size in [u64::MAX, 1 << 63] {
        let Some(mut visit) = asking(test) else { return };
        visit.say(&granted(1, size), &[]);
        visit.refuses("file 1 of");
    }
    let Some(mut visit) = asking(test) else { return };
    let numbers = (0..=MAX_NUMBERS as i32).collect();
    visit.say(&Down::Granted(1, File { id: 1, size: 9, position: Some(0), numbers, same_as: None }), &[]);
    visit.refuses("file 1 with 65 descriptors");
    // Bytes that come after the end.
    let Some(mut visit) = fetching(test) else { return };
    visit.say(&Down::Forget(1), &[]);
    visit.say(&Down::FileData(1, 0), &[1; 4096]);
    visit.refuses("which nobody asked for");
}

/// What a liar who knows all about this file says of it.
fn described(way: &str, path: &std::path::Path) -> Shared {
    let m = fs::symlink_metadata(path).unwrap();
    let changed = (m.ctime(), m.ctime_nsec());
    let (below, path) = ("data".into(), way.into());
    Shared { id: 1, below, path, inode: m.ino(), size: m.size(), changed, position: Some(0), numbers: Vec::new() }
}

#[test]
fn a_home_that_speaks_of_files_that_are_not_the_programs() {
    let test = "a_home_that_speaks_of_files_that_are_not_the_programs";
    let Some(mut visit) = asking(test) else { return };
    let data = visit.stage.data();
    fs::set_permissions(data.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let place = |name: &str| data.join(name);
    for (name, mode) in [("file", 0o644), ("private", 0o600), ("of-a-group", 0o640), ("../secret", 0o644)] {
        fs::write(place(name), vec![9; 50_000]).unwrap();
        fs::set_permissions(place(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(place("closed")).unwrap();
    fs::write(place("closed/file"), vec![9; 50_000]).unwrap();
    fs::set_permissions(place("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink("../secret", place("link")).unwrap();
    std::os::unix::fs::symlink("..", place("up")).unwrap();
    std::os::unix::fs::symlink("file", place("inside")).unwrap();
    assert!(Command::new("mkfifo").arg(place("pipe")).status().unwrap().success());
    let secret = place("../secret");
    let absolute = fs::canonicalize(place("file")).unwrap();
    let proc = format!("/proc/{}/root{}", std::process::id(), absolute.display());
    let mut lies = vec![
        described("../secret", &secret),
        described("link", &secret),
        described("link", &place("link")),
        described("up/secret", &secret),
        described("inside", &place("file")),
        described("closed/../../secret", &secret),
        described(absolute.to_str().unwrap(), &absolute),
        described(&proc, &absolute),
        described("pipe", &place("pipe")),
        described(".", &data),
        described("", &data),
        described("missing", &place("file")),
        described("file\0", &place("file")),
        Shared { below: "other".into(), ..described("file", &place("file")) },
        Shared { size: 50_001, ..described("file", &place("file")) },
        Shared { inode: 1, ..described("file", &place("file")) },
        Shared { changed: (1, 1), ..described("file", &place("file")) },
    ];
    // Only root may be another one there: elsewhere the helper has the rights of the account, as the program has.
    lies.extend(["private", "of-a-group", "closed/file"].map(|name| described(name, &place(name))));
    let mut ask = 1;
    for (id, lie) in (1..).zip(lies) {
        visit.say(&Down::Shared(ask, Shared { id, ..lie.clone() }), &[]);
        visit.wait_for(|up, _| match up {
            Up::NotShared(said) => (said == id).then_some(()),
            Up::Served(_) => panic!("{lie:?} is read"),
            _ => None,
        });
        ask = visit.wait_for(|up, _| match up {
            Up::Ask(ask, 5, _) => Some(ask),
            up => panic!("{up:?} after {lie:?}"),
        });
    }
    // What it may read it reads, without a word.
    visit.say(&Down::Shared(ask, Shared { id: 99, ..described("file", &place("file")) }), &[]);
    let served = loop {
        match visit.hear().unwrap().0 {
            Up::Pull(addr, _) => visit.say(&Down::Pages(vec![Run { addr, pages: 1, zero: true }]), &[]),
            Up::Served(bytes) => break bytes,
            up => assert!(matches!(up, Up::Usage(..) | Up::Ping), "{up:?}"),
        }
    };
    assert!(served >= 4096);
    // Until the process writes itself; and nothing comes of what is not known.
    visit.say(&Down::Unshared(7), &[]);
    visit.say(&Down::Unshared(99), &[]);
    visit.wait_for(|up, _| matches!(up, Up::Ask(..)).then_some(()));
    visit.ends_content();
}

#[test]
fn shared_files_that_make_no_sense() {
    let test = "shared_files_that_make_no_sense";
    let shared = |path: String, numbers| {
        let (below, changed) = ("data".into(), (0, 0));
        Shared { id: 1, below, path, inode: 1, size: 1, changed, position: Some(0), numbers }
    };
    let lies = [
        (Down::Shared(9, shared("file".into(), Vec::new())), "an answer to question 9"),
        (Down::Shared(1, shared("x".repeat(MAX_WAY + 1), Vec::new())), "by a way that is too long"),
        (Down::Shared(1, shared("file".into(), vec![1; MAX_NUMBERS + 1])), "by a way that is too long"),
    ];
    for (lie, why) in lies {
        let Some(mut visit) = asking(test) else { return };
        visit.say(&lie, &[]);
        visit.refuses(why);
    }
}

#[test]
fn files_of_odd_sizes() {
    let Some(mut visit) = asking("files_of_odd_sizes") else { return };
    // Shorter than where it reads: nothing is to be fetched, and it goes on by itself.
    visit.say(&granted(1, 3), &[]);
    visit.wait_for(|up, _| match up {
        Up::Fetch(..) | Up::Call { .. } => panic!("{up:?}"),
        Up::Renew(_) => Some(()),
        _ => None,
    });
    visit.ends_content();
    let Some(mut visit) = asking("files_of_odd_sizes") else { return };
    // As large as can be, with the position where no file reaches.
    let (max, size) = (u64::MAX, i64::MAX as u64);
    let file = File { id: max, size, position: Some(max), numbers: vec![-1, 5, 5, i32::MAX], same_as: Some(max) };
    visit.say(&Down::Granted(1, file), &[]);
    visit.wait_for(|up, _| matches!(up, Up::Fetch(u64::MAX, 0, _)).then_some(()));
    visit.ends_content();
}
