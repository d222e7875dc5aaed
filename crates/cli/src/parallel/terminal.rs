//! `--pty`: the user's terminal becomes that of the first rank. Here keys are read and bytes are shown, and nothing is done to either.

use super::Line;
use pando_kernel::job::{self, Terminal};
use pando_kernel::pty;
use pando_launch::{Ask, Environment};
use serde_bytes::ByteBuf;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

/// Where nobody knows better.
const USUAL: pty::Size = (24, 80);

/// It is the rank's, unless we are stopped.
static OURS: AtomicBool = AtomicBool::new(false);
static RAW: AtomicBool = AtomicBool::new(false);

/// How large it is. The error is for people.
pub fn size() -> Result<pty::Size, String> {
    match io::stdin().is_terminal() {
        true => Ok(pty::size(&io::stdin()).unwrap_or(USUAL)),
        false => Err("--pty: standard input is no terminal".into()),
    }
}

/// What kind it is goes along, whatever else does.
pub fn with_kind(mut environment: Environment) -> Environment {
    let kind = std::env::var("TERM").ok().filter(|_| !environment.iter().any(|(name, _)| name.as_slice() == b"TERM"));
    environment.extend(kind.map(|kind| (ByteBuf::from("TERM"), ByteBuf::from(kind))));
    environment
}

/// The job has begun.
pub fn enter(line: &Line) -> io::Result<()> {
    OURS.store(true, Ordering::Relaxed);
    // In the background it is somebody else's.
    if Terminal::open().is_none_or(|terminal| terminal.foreground() == job::group(0)) {
        pty::raw(&io::stdin())?;
        RAW.store(true, Ordering::Relaxed);
    }
    tell_size(line);
    Ok(())
}

/// We go on after a stop.
pub fn again(line: &Line) {
    if OURS.load(Ordering::Relaxed) {
        let _ = enter(line);
    }
}

/// It is as it was before.
pub fn leave() {
    pty::restore();
    RAW.store(false, Ordering::Relaxed);
}

/// A new line is no more than that.
pub fn is_raw() -> bool {
    RAW.load(Ordering::Relaxed)
}

/// It may have another size now.
pub fn tell_size(line: &Line) {
    if let Some((rows, columns)) = pty::size(&io::stdin()) {
        line.ask(&Ask::Size(rows, columns));
    }
}
