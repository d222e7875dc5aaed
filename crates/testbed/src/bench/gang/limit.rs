//! What turns cost at least: somebody who sees the processes of both nodes stops those of one job and continues those of the other, by signals. Nothing is
//! cheaper or sharper (docs/decisions/0038), but programs notice: so it is no way to do it, and a limit to hold it against.

use super::super::launch::command::timed_within;
use super::{Bed, PATIENCE, command};
use crate::error::{Error, Result};
use pando_kernel::{precedence, procfs, signal};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks whether all ranks are there.
const LOOK: Duration = Duration::from_millis(2);

/// And whether one has ended.
const LOOKS: Duration = Duration::from_millis(20);

/// Two copies at once that are no gangs: from the start of the first to the end of the last, seconds.
pub fn stopped(bed: &Bed, ranks: usize, words: &[String], quantum_ms: f64) -> Result<f64> {
    let commands = [command(bed, ranks, words, false)?, command(bed, ranks, words, false)?];
    let program = Path::new(&words[0]);
    let turn = Duration::from_secs_f64(quantum_ms / 1000.0);
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let ended: Vec<Result<_>> = std::thread::scope(|scope| {
        let run = |command| scope.spawn(move || timed_within(PATIENCE, command, "pando run"));
        let all = commands.map(run);
        scope.spawn(|| take_turns(program, ranks, turn, &over));
        let ended =
            all.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(Error::Other("a thread ended".into()))));
        let ended = ended.collect();
        over.store(true, Ordering::Relaxed);
        ended
    });
    ended.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Those that run this program, by job.
fn jobs(program: &Path) -> BTreeMap<String, Vec<i32>> {
    let mut all: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    let runs = |pid: &i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    for pid in procfs::processes().into_iter().filter(runs) {
        if let Some(job) = procfs::variable(pid, "PANDO_JOB_ID") {
            all.entry(job).or_default().push(pid);
        }
    }
    all
}

/// Until a process of one of the two jobs has ended.
fn take_turns(program: &Path, ranks: usize, turn: Duration, over: &AtomicBool) {
    // Where that is not allowed its turns are as late as any thread's.
    let _ = precedence::set(0, true);
    let both: Vec<Vec<i32>> = loop {
        let all = jobs(program);
        if all.len() == 2 && all.values().all(|pids| pids.len() == ranks) {
            break all.into_values().collect();
        }
        if over.load(Ordering::Relaxed) {
            return;
        }
        sleep(LOOK);
    };
    let send = |pids: &[i32], number| pids.iter().all(|pid| signal::kill(*pid, number).is_ok());
    let (mut runs, mut next, mut looked) = (0, Instant::now() + turn, Instant::now());
    while send(&both[runs], libc::SIGCONT) && send(&both[1 - runs], libc::SIGSTOP) && !over.load(Ordering::Relaxed) {
        // Not each time: to ask takes as long as to switch.
        if looked.elapsed() > LOOKS {
            looked = Instant::now();
            if !both.iter().flatten().all(|pid| lives(*pid)) {
                break;
            }
        }
        sleep(next.saturating_duration_since(Instant::now()));
        (runs, next) = (1 - runs, next + turn);
    }
    both.iter().flatten().for_each(|pid| _ = signal::kill(*pid, libc::SIGCONT));
}

/// Who has ended is there until his launcher has heard of it.
fn lives(pid: i32) -> bool {
    procfs::stat(pid).is_some_and(|stat| stat.lives())
}
