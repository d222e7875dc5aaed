//! The engine's design, explored completely on small cases, and its mutants, each of which must be caught.

use pando_model::baton::{Case, Mutant, Op, mask};
use pando_model::{Verdict, explore};

const LIMIT: usize = 3_000_000;

/// A read that may block for ever, into a buffer larger than what comes.
const fn read_into(buffer: &[u8], writes: &[u8]) -> Op {
    Op::Call { reads: 0, buffer: mask(buffer), writes: mask(writes), blocks: true, raises: false }
}

const KILL_SELF: Op = Op::Call { reads: 0, buffer: 0, writes: 0, blocks: false, raises: true };

/// Writes, a call that reads what was written, a blocking read into both pages, and a look at all of it.
const MEMORY: &[Op] =
    &[Op::Write(0), Op::call(mask(&[0]), mask(&[1])), read_into(&[1, 2, 3], &[2]), Op::Read(0), Op::Read(1), Op::Exit];

/// A buffer abroad that was written before the call, and a read that fills only part of it.
const BUFFER: &[Op] =
    &[Op::Write(0), Op::Write(2), read_into(&[0, 1], &[1]), Op::Read(0), Op::Write(1), Op::Read(1), Op::Exit];

/// A page that is written, thrown away, and used again.
const RENEWED: &[Op] = &[Op::Write(0), Op::Renew(0), Op::Read(0), Op::Write(1), Op::call(mask(&[1]), 0), Op::Exit];

/// Signals: waits for one by computing, sends itself one, and has a blocking call for one to interrupt.
const SIGNALS: &[Op] = &[read_into(&[0], &[0]), KILL_SELF, Op::Handled(1), Op::Await(2), Op::Read(0), Op::Exit];

/// Two pages to write, with calls between: both directions are busy.
const BUSY: &[Op] =
    &[Op::Write(0), Op::Write(2), Op::call(mask(&[0, 2]), mask(&[1])), Op::Write(0), Op::Write(2), Op::Exit];

const MEMORY_CASE: Case = Case { presync: 2, ..Case::new(MEMORY) };
const BUFFER_CASE: Case = Case { presync: 2, ..Case::new(BUFFER) };
const RENEWED_CASE: Case = Case { presync: 2, ..Case::new(RENEWED) };
const SIGNAL_CASE: Case = Case { signals: 1, ..Case::new(SIGNALS) };
const FAILURE_CASE: Case = Case { aborts: 1, cuts: 1, kills: 1, moves: 2, ..Case::new(MEMORY) };
const NARROW_CASE: Case = Case { capacity: 1, presync: 2, ..Case::new(BUSY) };

fn holds(name: &str, case: Case) {
    match explore(&case, LIMIT) {
        Ok(seen) => println!("{name}: {} states, {} transitions", seen.states, seen.transitions),
        Err(failure) => panic!("{name}: {failure}"),
    }
}

#[test]
fn memory_is_never_stale() {
    holds("memory", MEMORY_CASE);
    holds("buffer", BUFFER_CASE);
    holds("renewed", RENEWED_CASE);
}

#[test]
fn signals_are_never_lost() {
    holds("signals", SIGNAL_CASE);
    holds("signals never fed", Case { inputs: 0, signals: 2, ..SIGNAL_CASE });
}

#[test]
fn failures_end_well() {
    holds("failures", FAILURE_CASE);
    holds("failures with signals", Case { cuts: 1, kills: 1, aborts: 1, ..SIGNAL_CASE });
}

#[test]
fn going_away_and_home_again_and_again() {
    holds("twice", Case { moves: 2, recalls: 2, ..Case::new(MEMORY) });
    holds("twice, renewed", Case { moves: 2, recalls: 2, ..Case::new(RENEWED) });
}

#[test]
fn a_narrow_connection_is_enough() {
    holds("narrow", NARROW_CASE);
    holds("narrow, with signals", Case { capacity: 1, ..SIGNAL_CASE });
}

/// Long enough to have a bit of everything: memory, signals, a renewed page, two trips, and trouble.
const EVERYTHING: &[Op] = &[
    Op::Write(0),
    read_into(&[0, 1], &[1]),
    KILL_SELF,
    Op::Handled(1),
    Op::Renew(0),
    Op::Write(1),
    Op::call(mask(&[1]), mask(&[2])),
    Op::Read(0),
    Op::Read(1),
    Op::Exit,
];

#[test]
fn everything_at_once() {
    holds("everything", Case { moves: 2, recalls: 2, signals: 1, cuts: 1, ..Case::new(EVERYTHING) });
}

/// The mutant must be caught in this case, in this way.
fn caught(mutant: Mutant, case: Case, words: &str) {
    let failure = explore(&case.broken(mutant), LIMIT).expect_err("a broken rule must be caught");
    let text = match &failure.verdict {
        Verdict::Broken(text) | Verdict::Hang(text) => text.clone(),
        other => format!("{other:?}"),
    };
    println!("{mutant:?}: {text}, in {} steps", failure.trace.len());
    assert!(text.contains(words), "{mutant:?} was caught for another reason: {failure}");
}

#[test]
fn broken_memory_rules_are_caught() {
    caught(Mutant::PushSentLate, MEMORY_CASE, "stale memory abroad");
    caught(Mutant::ReturnOverwritesCall, BUFFER_CASE, "stale memory");
    caught(Mutant::MergedByPromise, BUFFER_CASE, "stale memory");
    caught(Mutant::ReplyCarriesBuffer, BUFFER_CASE, "stale memory abroad");
    caught(Mutant::InputsNotSent, MEMORY_CASE, "a call reads stale memory");
    caught(Mutant::PagesDuringMemoryCall, RENEWED_CASE, "stale memory");
    caught(Mutant::ReplyLeavesClean, BUFFER_CASE, "stale memory");
    caught(Mutant::PullIgnoredIfPushed, RENEWED_CASE, "never goes on");
}

#[test]
fn broken_call_rules_are_caught() {
    caught(Mutant::ReplyForgotten, MEMORY_CASE, "executed twice");
    caught(Mutant::InterruptedAfterDone, SIGNAL_CASE, "executed twice");
}

#[test]
fn broken_signal_rules_are_caught() {
    caught(Mutant::SignalForgotten, SIGNAL_CASE, "signal");
    caught(Mutant::SignalAfterReply, SIGNAL_CASE, "came after its result");
    caught(Mutant::FrozenBeforeSignal, SIGNAL_CASE, "came after its result");
    caught(Mutant::CallMissesSignal, SIGNAL_CASE, "never delivered");
    caught(Mutant::CallOvertakesSignal, SIGNAL_CASE, "never delivered");
    caught(Mutant::DeafDeputy, SIGNAL_CASE, "never delivered");
}

#[test]
fn broken_commit_rules_are_caught() {
    caught(Mutant::CommitBeforeExitkill, FAILURE_CASE, "while its memory is abroad");
    caught(Mutant::ExitkillDroppedEarly, FAILURE_CASE, "while its memory is abroad");
    caught(Mutant::LateStartAccepted, FAILURE_CASE, "2 batons");
    caught(Mutant::OrphanGuest, FAILURE_CASE, "outlives");
}

#[test]
fn writers_that_do_not_read_are_caught() {
    caught(Mutant::BlockingWrites, NARROW_CASE, "never");
}
