//! A write that a move has cut in two, and a guest that leaves again at the worst moment: what it has written is written once, and it ends
//! as it would have without any move.

mod liar;

use liar::target::Taken;
use liar::{Stage, until};
use pando_kernel::signal;
use pando_migrate::message::{Context, Down, Up};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What a pipe takes.
const PIPE: u64 = 65_536;
const ALL: u64 = 300_000;

/// A program that writes so much to a pipe that nobody reads, waits for that to end, and says how much it was.
fn writer(said: &str) -> Child {
    let program = format!(
        "import os, signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\n\
         n = os.write(1, b'x' * {ALL})\nwith open('{said}.part', 'w') as f: f.write(str(n))\nos.rename('{said}.part', '{said}')"
    );
    let child = Command::new("python3").args(["-SIc", &program]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let child = child.unwrap();
    let call = format!("/proc/{}/syscall", child.id());
    until("it waits in write", || std::fs::read_to_string(&call).is_ok_and(|s| s.starts_with("1 0x1 ")));
    child
}

/// Takes such a program away in the middle of its write.
fn taken(name: &str) -> Option<(Taken, PathBuf)> {
    if Command::new("python3").arg("-V").output().is_err() {
        eprintln!("SKIPPED {name}: there is no python3 to be moved");
        return None;
    }
    let stage = Stage::new();
    let said = stage.data().join("said");
    let victim = writer(said.to_str().unwrap());
    let taken = Taken::of(stage, victim);
    assert_eq!(taken.context.cut_short, Some(PIPE));
    Some((taken, said))
}

fn number(said: &PathBuf) -> u64 {
    until("it says how much it has written", || said.exists());
    std::fs::read_to_string(said).unwrap().parse().unwrap()
}

/// The context of one that has asked for call `seq` and has heard no answer.
fn waits_for(taken: &Taken, seq: u64) -> Context {
    Context { in_call: Some(seq), cut_short: None, ..taken.context.clone() }
}

#[test]
fn a_signal_ends_it_although_the_guest_left_before_it_heard_of_that() {
    let Some((mut t, said)) = taken("a_signal_ends_it_although_the_guest_left_before_it_heard_of_that") else { return };
    signal::kill(t.tid(), libc::SIGALRM).unwrap();
    t.wait_for(|down, _| matches!(down, Down::Signal(..)).then_some(()));
    let (seq, call) = t.resumed_call();
    t.say(&call, &[]);
    assert_eq!(t.answer_to(seq), PIPE as i64);
    let (context, xstate) = (waits_for(&t, seq), t.xstate.clone());
    t.freeze(context, &xstate);
    assert_eq!(number(&said), PIPE);
    until("it ends", || t.victim.try_wait().unwrap().is_some());
}

#[test]
fn the_rest_is_written_although_the_guest_left_before_that_could_begin() {
    let Some((mut t, said)) = taken("the_rest_is_written_although_the_guest_left_before_that_could_begin") else {
        return;
    };
    let call = format!("/proc/{}/syscall", t.victim.id());
    until("its body sleeps", || std::fs::read_to_string(&call).is_ok_and(|s| s.starts_with("34 ")));
    t.called_home();
    let (seq, call) = t.resumed_call();
    let (context, xstate, timers) = (waits_for(&t, seq), t.xstate.clone(), t.timers);
    // All at once: home has no time to begin.
    t.chan.send(&call, &[]).unwrap();
    t.chan.send(&Up::Thread(t.tid(), Box::new(context)), &[&xstate]).unwrap();
    t.say(&Up::Frozen { timers, cpu_ns: 1, brk: None }, &[]);
    let mut pipe = t.victim.stdout.take().unwrap();
    let mut written = Vec::new();
    pipe.read_to_end(&mut written).unwrap();
    assert_eq!((written.len() as u64, number(&said)), (ALL, ALL));
}
