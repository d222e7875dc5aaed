//! Terminals: a new pair, whose one end a program takes for its terminal; sizes; and the user's own terminal in raw mode, put back at any exit.

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};

/// Rows and columns.
pub type Size = (u16, u16);

/// A terminal's mode, as it was before somebody changed it.
#[derive(Clone, Copy)]
struct Mode(libc::termios);

/// Makes a terminal of this size: who reads what programs write there and types, and what the programs have. The latter belongs to `owner`, if
/// there is one.
pub fn open((rows, columns): Size, owner: Option<(u32, u32)>) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: plain values; each descriptor that comes back is new, and ours.
    let (ours, theirs) = unsafe {
        let ours = OwnedFd::from_raw_fd(check(i64::from(libc::posix_openpt(flags)))? as i32);
        check(i64::from(libc::unlockpt(ours.as_raw_fd())))?;
        // The other end without its name: that may be another one's in a container.
        let theirs = check(i64::from(libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTPEER, flags)))?;
        (ours, OwnedFd::from_raw_fd(theirs as i32))
    };
    if let Some((uid, gid)) = owner {
        // Programs open it by its name, too.
        std::os::unix::fs::fchown(&theirs, Some(uid), Some(gid))?;
    }
    set_size(&ours, (rows, columns))?;
    Ok((ours, theirs))
}

/// Gives it another size; programs there are told by a signal.
pub fn set_size(terminal: &impl AsFd, (rows, columns): Size) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointer is to a live object of ours.
    check(i64::from(unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &size) })).map(drop)
}

/// How large it is; none if it is no terminal, or does not know.
pub fn size(terminal: &impl AsFd) -> Option<Size> {
    // SAFETY: winsize is plain data; the pointer is to a live object of ours.
    let (done, size) = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &mut size), size)
    };
    (done == 0 && size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

/// Between fork and exec: standard input is the controlling terminal of this process, which leads a session.
pub(crate) fn control() -> io::Result<()> {
    // SAFETY: plain values; async-signal-safe.
    check(i64::from(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })).map(drop)
}

/// What is to be put back, and where.
static CHANGED: Mutex<Option<(OwnedFd, Mode)>> = Mutex::new(None);

/// Every key goes to whoever reads, and what is written is not touched, until [`restore`], or until this process exits: but for a signal that
/// ends it at once.
pub fn raw(terminal: &impl AsFd) -> io::Result<()> {
    let terminal = terminal.as_fd().try_clone_to_owned()?;
    let mut changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: termios is plain data; the pointers are to live objects of ours.
    let before = unsafe {
        let mut mode: libc::termios = std::mem::zeroed();
        check(i64::from(libc::tcgetattr(terminal.as_raw_fd(), &mut mode)))?;
        mode
    };
    let mut mode = before;
    // SAFETY: as above; cfmakeraw changes that object only.
    unsafe {
        libc::cfmakeraw(&mut mode);
        check(i64::from(libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &mode)))?;
    }
    changed.get_or_insert((terminal, Mode(before)));
    static AT_EXIT: Once = Once::new();
    // SAFETY: the function takes nothing and does not unwind.
    AT_EXIT.call_once(|| unsafe { _ = libc::atexit(at_exit) });
    Ok(())
}

extern "C" fn at_exit() {
    // Whoever holds it is putting it back, or is gone with this process.
    if let Ok(mut changed) = CHANGED.try_lock() {
        put_back(&mut changed);
    }
}

/// As it was before [`raw`]. True if it was raw.
pub fn restore() -> bool {
    put_back(&mut CHANGED.lock().unwrap_or_else(PoisonError::into_inner))
}

fn put_back(changed: &mut Option<(OwnedFd, Mode)>) -> bool {
    let Some((terminal, mode)) = changed.take() else { return false };
    // In the background it would stop us otherwise.
    crate::signal::block(&[libc::SIGTTOU]);
    // SAFETY: the pointer is to a live object of ours. At once: who reads that terminal may have stopped.
    unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &mode.0) };
    true
}

/// Reads or writes without waiting, from now on.
pub fn without_waiting(terminal: OwnedFd) -> io::Result<File> {
    let file = File::from(terminal);
    // SAFETY: plain values.
    unsafe {
        let flags = check(i64::from(libc::fcntl(file.as_raw_fd(), libc::F_GETFL)))? as i32;
        check(i64::from(libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn what_is_typed_is_echoed_and_raw_mode_comes_and_goes() {
        let (ours, theirs) = open((33, 77), None).unwrap();
        assert_eq!((size(&ours), size(&theirs)), (Some((33, 77)), Some((33, 77))));
        set_size(&ours, (10, 20)).unwrap();
        assert_eq!((size(&theirs), size(&File::open("/dev/null").unwrap())), (Some((10, 20)), None));
        let (mut ours, mut theirs) = (File::from(ours), File::from(theirs));
        let mut heard = [0; 16];
        ours.write_all(b"a\n").unwrap();
        let read = ours.read(&mut heard).unwrap();
        assert_eq!(&heard[..read], b"a\r\n");
        let read = theirs.read(&mut heard).unwrap();
        assert_eq!(&heard[..read], b"a\n");
        raw(&theirs).unwrap();
        // Not what it was, but what it was first is put back.
        raw(&theirs).unwrap();
        ours.write_all(b"\x03").unwrap();
        let read = theirs.read(&mut heard).unwrap();
        assert_eq!(&heard[..read], b"\x03");
        assert!(restore() && !restore());
        ours.write_all(b"b\n").unwrap();
        let read = ours.read(&mut heard).unwrap();
        assert_eq!(&heard[..read], b"b\r\n");
        drop(theirs);
        assert!(ours.read(&mut heard).is_err(), "nobody has it open");
    }
}
