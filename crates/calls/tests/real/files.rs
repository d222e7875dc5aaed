//! Files, directories, pipes, attributes, terminals.

use libc as n;

use crate::arena::{Arena, Call, Case, must};

const HERE: u64 = n::AT_FDCWD as u64;

pub const CASES: &[Case] = &[
    ("read, short", |a| {
        let fd = a.pipe_with(b"hello");
        Call::new(n::SYS_read, &[fd, a.room(100), 100])
    }),
    ("read, nothing there", |a| {
        let fd = a.pipe().0;
        Call::new(n::SYS_read, &[fd, a.room(100), 100])
    }),
    ("pread64", |a| {
        let fd = a.file_with(b"0123456789");
        Call::new(n::SYS_pread64, &[fd, a.room(100), 100, 3])
    }),
    ("readv, into the second", |a| {
        let fd = a.pipe_with(b"hello, world");
        Call::new(n::SYS_readv, &[fd, a.vectors(&[5, 0, 50, 20]), 4])
    }),
    ("readv, too many", |a| Call::new(n::SYS_readv, &[0, a.vectors(&[5, 5]), 1025])),
    ("preadv", |a| {
        let fd = a.file_with(b"0123456789");
        Call::new(n::SYS_preadv, &[fd, a.vectors(&[2, 3, 100]), 3, 1])
    }),
    ("preadv2", |a| {
        let fd = a.file_with(b"0123456789");
        Call::new(n::SYS_preadv2, &[fd, a.vectors(&[2, 3, 1]), 3, 1, 0, 0])
    }),
    ("write", |a| {
        let (read, write) = a.pipe();
        Call::new(n::SYS_write, &[write, a.put(b"hello"), 5]).then_read(read)
    }),
    ("writev", |a| {
        let (read, write) = a.pipe();
        Call::new(n::SYS_writev, &[write, a.filled(&[b"he", b"", b"llo"]), 3]).then_read(read)
    }),
    ("pwritev2", |a| {
        let fd = a.file_with(b"0123456789");
        Call::new(n::SYS_pwritev2, &[fd, a.filled(&[b"he", b"llo"]), 2, 3, 0, 0]).then_read(fd)
    }),
    ("pipe2", |a| Call::new(n::SYS_pipe2, &[a.room(8), 0])),
    ("pipe2, wrong", |a| Call::new(n::SYS_pipe2, &[a.room(8), u64::MAX])),
    ("sendfile with offset", |a| {
        let (fd, (read, write)) = (a.file_with(b"0123456789"), a.pipe());
        Call::new(n::SYS_sendfile, &[write, fd, a.words(&[2]), 5]).then_read(read)
    }),
    ("splice with offset", |a| {
        let (fd, (read, write)) = (a.file_with(b"0123456789"), a.pipe());
        Call::new(n::SYS_splice, &[fd, a.words(&[2]), write, 0, 5, 0]).then_read(read)
    }),
    ("copy_file_range", |a| {
        let (from, to) = (a.file_with(b"0123456789"), a.file_with(b""));
        Call::new(n::SYS_copy_file_range, &[from, a.words(&[2]), to, a.words(&[1]), 5, 0]).then_read(to)
    }),
    ("getdents64", |a| {
        let fd = must(n::SYS_open, &[a.text("/proc/self"), (n::O_RDONLY | n::O_DIRECTORY) as u64]);
        Call::new(n::SYS_getdents64, &[fd, a.room(2000), 2000]).unstable()
    }),
    ("getdents64, too small", |a| {
        let fd = must(n::SYS_open, &[a.text("/"), (n::O_RDONLY | n::O_DIRECTORY) as u64]);
        Call::new(n::SYS_getdents64, &[fd, a.room(10), 10])
    }),
    ("open", |a| Call::new(n::SYS_open, &[a.text("/dev/null"), 0])),
    ("openat, not there", |a| Call::new(n::SYS_openat, &[HERE, a.text("/not/there"), 0])),
    ("openat2", |a| Call::new(n::SYS_openat2, &[HERE, a.text("/dev/null"), a.words(&[0, 0, 0]), 24])),
    ("stat", |a| Call::new(n::SYS_stat, &[a.text("/"), a.room(144)])),
    ("stat, not there", |a| Call::new(n::SYS_stat, &[a.text("/not/there"), a.room(144)])),
    ("fstat", |a| Call::new(n::SYS_fstat, &[a.pipe().0, a.room(144)]).unstable()),
    ("newfstatat", |a| Call::new(n::SYS_newfstatat, &[HERE, a.text("/dev/null"), a.room(144), 0]).unstable()),
    ("statx", |a| Call::new(n::SYS_statx, &[HERE, a.text("/"), 0, 0xfff, a.room(256)])),
    ("statfs", |a| Call::new(n::SYS_statfs, &[a.text("/proc"), a.room(120)])),
    ("fstatfs", |a| Call::new(n::SYS_fstatfs, &[a.file_with(b""), a.room(120)]).unstable()),
    ("readlink", |a| Call::new(n::SYS_readlink, &[a.text("/proc/self/cwd"), a.room(500), 500])),
    ("readlinkat, cut", |a| Call::new(n::SYS_readlinkat, &[HERE, a.text("/proc/self/exe"), a.room(5), 5])),
    ("getcwd", |a| Call::new(n::SYS_getcwd, &[a.room(500), 500])),
    ("getcwd, too small", |a| Call::new(n::SYS_getcwd, &[a.room(1), 1])),
    ("futimens", |a| {
        let fd = a.file_with(b"x");
        Call::new(n::SYS_utimensat, &[fd, 0, a.words(&[1000, 5, 2000, 6]), 0]).probe(move || {
            let mut stat = vec![0u8; 144];
            must(n::SYS_fstat, &[fd, stat.as_mut_ptr() as u64]);
            stat[72..104].to_vec()
        })
    }),
    ("fgetxattr", |a| {
        let fd = a.file_with(b"x");
        crate::arena::sys(n::SYS_fsetxattr, &[fd, a.text("user.pando"), a.put(b"value"), 5, 0]);
        Call::new(n::SYS_fgetxattr, &[fd, a.text("user.pando"), a.room(50), 50])
    }),
    ("fsetxattr and its size", |a| {
        let fd = a.file_with(b"x");
        crate::arena::sys(n::SYS_fsetxattr, &[fd, a.text("user.pando"), a.put(b"value"), 5, 0]);
        Call::new(n::SYS_fgetxattr, &[fd, a.text("user.pando"), a.room(50), 0])
    }),
    ("flistxattr", |a| Call::new(n::SYS_flistxattr, &[a.file_with(b"x"), a.room(50), 50])),
    ("memfd_create", |a| Call::new(n::SYS_memfd_create, &[a.text("name"), 0])),
    ("fcntl F_GETLK", |a| {
        let fd = a.file_with(b"x");
        Call::new(n::SYS_fcntl, &[fd, n::F_GETLK as u64, a.words(&[0x1_0000_0001, 0, 10, 0])])
    }),
    ("fcntl F_OFD_GETLK, held", |a| {
        let fd = a.file_with(b"x");
        let lock = a.words(&[1, 0, 10, 0]);
        must(n::SYS_fcntl, &[fd, n::F_SETLK as u64, lock]);
        Call::new(n::SYS_fcntl, &[fd, n::F_OFD_GETLK as u64, a.words(&[1, 0, 10, 0])])
    }),
    ("fcntl F_GETOWN_EX", |a| Call::new(n::SYS_fcntl, &[a.pipe().0, 16, a.room(8)])),
    ("fcntl F_GET_RW_HINT", |a| Call::new(n::SYS_fcntl, &[a.file_with(b""), 1035, a.room(8)])),
    ("ioctl FIONREAD", |a| Call::new(n::SYS_ioctl, &[a.pipe_with(b"hello"), n::FIONREAD, a.room(4)])),
    ("ioctl FIONBIO", |a| Call::new(n::SYS_ioctl, &[a.pipe().0, n::FIONBIO, a.ints(&[1])])),
    ("ioctl TCGETS", |a| terminal(a, n::TCGETS, 36)),
    ("ioctl TCGETA", |a| terminal(a, 0x5405, 18)),
    ("ioctl TCGETS2", |a| terminal(a, 0x802c_542a, 44)),
    ("ioctl TIOCGWINSZ", |a| terminal(a, n::TIOCGWINSZ, 8)),
    ("ioctl TIOCGPTN", |a| terminal(a, 0x8004_5430, 4)),
    ("ioctl TIOCGPTLCK", |a| terminal(a, 0x8004_5439, 4)),
    ("ioctl TIOCGETD", |a| terminal(a, 0x5424, 4)),
    ("ioctl TIOCGPGRP, no terminal", |a| Call::new(n::SYS_ioctl, &[a.pipe().0, n::TIOCGPGRP, a.room(4)])),
    ("ioctl TIOCSWINSZ", |a| {
        let fd = must(n::SYS_open, &[a.text("/dev/ptmx"), (n::O_RDWR | n::O_NOCTTY) as u64]);
        Call::new(n::SYS_ioctl, &[fd, n::TIOCSWINSZ, a.put(&[1, 2, 3, 4, 5, 6, 7, 8])]).probe(move || {
            let mut size = vec![0u8; 8];
            must(n::SYS_ioctl, &[fd, n::TIOCGWINSZ, size.as_mut_ptr() as u64]);
            size
        })
    }),
    ("ioctl FS_IOC_GETFLAGS", |a| {
        let fd = must(n::SYS_open, &[a.text("/tmp"), 0]);
        Call::new(n::SYS_ioctl, &[fd, 0x8008_6601, a.room(8)])
    }),
    ("ioctl FIGETBSZ", |a| Call::new(n::SYS_ioctl, &[a.file_with(b"x"), 2, a.room(4)])),
    ("ioctl PIDFD_GET_INFO", |a| {
        let fd = must(n::SYS_pidfd_open, &[u64::from(std::process::id()), 0]);
        Call::new(n::SYS_ioctl, &[fd, 0xc040_ff0b, a.words(&[7, 0, 0, 0, 0, 0, 0, 0])])
    }),
    ("inotify read", |a| {
        let fd = must(n::SYS_inotify_init1, &[n::O_NONBLOCK as u64]);
        must(n::SYS_inotify_add_watch, &[fd, a.text("/dev"), u64::from(n::IN_OPEN)]);
        must(n::SYS_open, &[a.text("/dev/null"), 0]);
        Call::new(n::SYS_read, &[fd, a.room(200), 200]).unstable()
    }),
    ("cachestat", |a| Call::new(451, &[a.file_with(b"x"), a.words(&[0, 0]), a.room(40), 0]).unstable()),
    ("file_getattr", |a| Call::new(468, &[HERE, a.text("/tmp"), a.room(24), 24, 0])),
];

fn terminal(a: &mut Arena, request: u64, size: usize) -> Call {
    let fd = must(n::SYS_open, &[a.text("/dev/ptmx"), (n::O_RDWR | n::O_NOCTTY) as u64]);
    Call::new(n::SYS_ioctl, &[fd, request, a.room(size)]).unstable()
}
