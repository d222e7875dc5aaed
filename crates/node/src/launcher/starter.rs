//! The starter: a small process that the daemon keeps, which becomes the launcher of each parallel job, and the helper of each batch job, by fork. To
//! load this whole program anew takes longer than to start a rank. It ends with the daemon, or when nobody has needed it for long; what it has become goes on.

use crate::batch_job;
use pando_kernel::{poll, rank, scm};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// With a connection on which a job comes: become its launcher.
pub const LAUNCH: u8 = b'L';
/// With a connection on which a batch job comes: become its helper.
pub const BATCH: u8 = b'B';
/// Nobody needs it for so long.
const IDLE_US: i64 = 600_000_000;
/// What a launcher is called, as a process.
pub const LAUNCHER: &str = "pando-launcher";
/// And as long as it has no job.
pub const SPARE: &str = "pando-spare";

/// `pando __starter`: the daemon is on standard input.
pub fn starter_main() -> i32 {
    let daemon: RawFd = 0;
    rank::leave_no_zombies();
    loop {
        match poll::wait(&[(daemon, false)], IDLE_US) {
            Ok(ready) if ready.first().is_some_and(|r| *r != 0) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            _ => return 0,
        }
        match scm::receive(daemon) {
            Ok((LAUNCH, _, Some(connection))) => match rank::fork() {
                Ok(true) => return become_one(LAUNCHER, || super::launcher_main(connection)),
                Ok(false) => {}
                // The daemon finds that the connection has ended.
                Err(e) => eprintln!("pando: a launcher can't be started: {e}"),
            },
            Ok((BATCH, _, Some(connection))) => match rank::fork() {
                Ok(true) => return become_one(batch_job::NAME, || batch_job::serve(connection)),
                Ok(false) => {}
                Err(e) => eprintln!("pando: the helper of a batch job can't be started: {e}"),
            },
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return 0,
        }
    }
}

/// The copy: it keeps nothing of the starter's connection.
fn become_one(name: &str, live: impl FnOnce() -> i32) -> i32 {
    let _ = std::fs::write("/proc/self/comm", name);
    let nowhere = File::open("/dev/null");
    match nowhere.and_then(|nowhere| rank::become_session(nowhere.as_raw_fd())) {
        Ok(()) => live(),
        Err(e) => {
            eprintln!("pando: {name}: {e}");
            1
        }
    }
}
