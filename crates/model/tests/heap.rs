//! A break that nobody is told of: the design holds, and each rule that is broken is noticed.

use pando_model::heap::{Heap, Mutant};
use pando_model::{Verdict, explore};

const LIMIT: usize = 3_000_000;

#[test]
fn a_heap_comes_home_as_it_was() {
    let explored = explore(&Heap(None), LIMIT).unwrap_or_else(|f| panic!("{f}"));
    println!("{} states, {} transitions", explored.states, explored.transitions);
    assert!(explored.states > 1000);
}

#[test]
fn every_broken_rule_is_noticed() {
    for mutant in [Mutant::BreakNotSeen, Mutant::DipUnheard, Mutant::ZerosNotSent, Mutant::AbsentNotSent] {
        let failure = explore(&Heap(Some(mutant)), LIMIT).expect_err("something undone");
        assert!(matches!(failure.verdict, Verdict::Broken(_)), "{mutant:?}: {failure}");
    }
}
