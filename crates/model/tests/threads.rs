//! Decision 12, threads, explored completely on small cases, and its mutants, each of which must be caught.

use pando_model::threads::life::{self, Op as Act};
use pando_model::threads::memory::{self, Op, mask};
use pando_model::{Model, Verdict, explore};

const LIMIT: usize = 3_000_000;

/// A read that may block for ever, into a buffer larger than what comes.
const fn read_into(buffer: &[u8], writes: &[u8]) -> Op {
    Op::Call { reads: 0, buffer: mask(buffer), writes: mask(writes), blocks: true }
}

/// A write that may block for ever, from there.
const fn write_from(reads: &[u8]) -> Op {
    Op::Call { reads: mask(reads), buffer: 0, writes: 0, blocks: true }
}

/// One thread computes on cell 0 and has it written out; the other's calls write cell 1, beside it.
const BESIDE: memory::Case = memory::Case::new([
    &[Op::Write(0), Op::Read(0), Op::call(mask(&[0]), 0), Op::Write(0), Op::Read(0)],
    &[read_into(&[1], &[1]), Op::Read(1), Op::call(mask(&[1]), mask(&[1])), Op::Read(1)],
]);

/// Both threads' calls write to the same page, at the same time.
const BOTH: memory::Case = memory::Case::new([
    &[Op::Write(0), read_into(&[0], &[0]), Op::Read(0), write_from(&[0])],
    &[read_into(&[1], &[1]), Op::Read(1), Op::Write(1), Op::call(mask(&[1]), 0)],
]);

/// What one thread's call read is seen by the other, which has it written out.
const SEEN: memory::Case = memory::Case::new([
    &[Op::Write(0), Op::See(1, 1), Op::call(mask(&[1]), 0), Op::Write(0), Op::Read(1)],
    &[read_into(&[1], &[1]), Op::Write(1), Op::See(0, 2), Op::call(mask(&[0, 1]), 0)],
]);

/// A page thrown away by one thread while the other has a call that might write there, and doesn't.
const THROWN_AWAY: memory::Case = memory::Case::new([
    &[Op::Write(0), Op::Renew(0), Op::Read(0), Op::Read(1), Op::Write(0), Op::call(mask(&[0]), 0)],
    &[read_into(&[1], &[]), Op::Write(2), Op::Read(2)],
]);

/// A page given back by one thread, while the other gets one, which may be the same.
const GIVEN_BACK: memory::Case = memory::Case::new([
    &[Op::Write(0), Op::Unmap(0), Op::Write(2), Op::Renew(1), Op::Read(2)],
    &[Op::Map(0), Op::Write(0), Op::Read(0), Op::call(mask(&[0]), mask(&[1])), Op::Read(1)],
]);

fn holds<M: Model>(name: &str, case: &M) {
    match explore(case, LIMIT) {
        Ok(seen) => println!("{name}: {} states, {} transitions", seen.states, seen.transitions),
        Err(failure) => panic!("{name}: {failure}"),
    }
}

#[test]
fn memory_of_two_threads_is_never_stale() {
    holds("beside", &BESIDE);
    holds("both", &BOTH);
    holds("seen", &SEEN);
    holds("beside, narrow", &memory::Case { capacity: 1, ..BESIDE });
}

#[test]
fn memory_calls_of_two_threads_keep_their_order() {
    holds("thrown away", &THROWN_AWAY);
    holds("given back", &GIVEN_BACK);
}

/// The broken case must be caught, in this way.
fn caught<M: Model>(name: &str, case: &M, words: &str) {
    let failure = explore(case, LIMIT).err().unwrap_or_else(|| panic!("{name} is not caught"));
    let text = match &failure.verdict {
        Verdict::Broken(text) | Verdict::Hang(text) => text.clone(),
        other => format!("{other:?}"),
    };
    println!("{name}: {text}, in {} steps", failure.trace.len());
    assert!(text.contains(words), "{name} was caught for another reason: {failure}");
}

fn memory_caught(mutant: memory::Mutant, case: memory::Case, words: &str) {
    caught(&format!("{mutant:?}"), &case.broken(mutant), words);
}

#[test]
fn broken_page_rules_are_caught() {
    use memory::Mutant;
    memory_caught(Mutant::ReplyCarriesPage, BESIDE, "stale memory abroad");
    memory_caught(Mutant::InputsCarryPage, BESIDE, "stale memory");
    memory_caught(Mutant::InputsNotSent, BESIDE, "a call reads stale memory");
    memory_caught(Mutant::ReplyLeavesClean, SEEN, "stale memory");
    memory_caught(Mutant::HeldPageAppliedEarly, BOTH, "stale memory");
    memory_caught(Mutant::PageHeldWhole, BESIDE, "a call reads stale memory");
    memory_caught(Mutant::ResultNotPutOverHeldPage, BOTH, "stale memory");
    memory_caught(Mutant::HeldReleasedByAnyCall, BOTH, "stale memory");
    memory_caught(Mutant::ReturnWaitsForHeldPage, BOTH, "never goes on");
}

#[test]
fn broken_memory_call_rules_are_caught() {
    use memory::Mutant;
    memory_caught(Mutant::HeldSurvivesMemoryCall, THROWN_AWAY, "stale memory");
    memory_caught(Mutant::PagesDuringMemoryCall, GIVEN_BACK, "no place");
    memory_caught(Mutant::PagesDuringMemoryCall, THROWN_AWAY, "stale memory");
    memory_caught(Mutant::MemoryCallsAtOnce, GIVEN_BACK, "gone abroad");
    memory_caught(Mutant::MirrorsSwapped, GIVEN_BACK, "gone abroad");
}

#[test]
fn one_record_for_all_threads_is_caught() {
    memory_caught(memory::Mutant::OneRecordForAll, BESIDE, "executed twice");
}

const BLOCKS: Act = Act::Call { blocks: true };
const CALL: Act = Act::Call { blocks: false };

/// A thread is made, waits in a call, ends, and is joined.
const JOINED: life::Case = life::Case::new([&[Act::Birth, Act::Join, Act::Probe], &[BLOCKS, Act::Die]]);

/// Both threads have calls, and signals come for either.
const SIGNALLED: life::Case =
    life::Case { signals: 2, ..life::Case::new([&[Act::Birth, BLOCKS, CALL], &[BLOCKS, Act::Die]]) };

/// A move that may be called off, cut, or lose its helper, at any moment.
const TROUBLED: life::Case = life::Case { moves: 2, aborts: 1, cuts: 1, kills: 1, ..JOINED };

#[test]
fn threads_are_born_and_die_on_both_sides() {
    holds("joined", &JOINED);
    holds("joined, twice away", &life::Case { moves: 2, recalls: 2, ..JOINED });
    holds("joined, narrow", &life::Case { capacity: 1, signals: 1, ..JOINED });
}

#[test]
fn signals_of_two_threads_are_never_lost() {
    holds("signalled", &SIGNALLED);
    holds("signalled, joined", &life::Case { signals: 2, ..JOINED });
}

#[test]
fn failures_end_well_for_all_threads() {
    holds("troubled", &TROUBLED);
    holds("troubled, signalled", &life::Case { aborts: 1, cuts: 1, kills: 1, signals: 1, ..JOINED });
}

fn life_caught(mutant: life::Mutant, case: life::Case, words: &str) {
    caught(&format!("{mutant:?}"), &case.broken(mutant), words);
}

#[test]
fn broken_birth_and_death_rules_are_caught() {
    use life::Mutant;
    life_caught(Mutant::FreezeMissesNewThread, JOINED, "while the process is abroad");
    life_caught(Mutant::CallOffResumesOne, TROUBLED, "never goes on");
    life_caught(Mutant::FreezeDuringBirth, JOINED, "never goes on");
    life_caught(Mutant::FreezeDuringDeath, JOINED, "is there again");
    life_caught(Mutant::DeathAbroadFirst, JOINED, "still there");
}

#[test]
fn broken_signal_rules_of_threads_are_caught() {
    use life::Mutant;
    life_caught(Mutant::SignalBeforeBirth, SIGNALLED, "Endless");
    life_caught(Mutant::OneSignalCounter, SIGNALLED, "never delivered");
}
