//! The design of files that are read abroad holds, and each of its mutants is caught.

use pando_model::lease::{Leases, Mutant};
use pando_model::{Verdict, explore};

const LIMIT: usize = 2_000_000;

#[test]
fn nobody_reads_what_is_gone_and_the_writer_gets_in() {
    let explored = explore(&Leases(None), LIMIT).unwrap_or_else(|f| panic!("{f}"));
    assert!(explored.states > 1000, "{explored:?}");
}

#[test]
fn broken_rules_are_caught() {
    let stale = [
        Mutant::WordFromArrival,
        Mutant::LeaseEndsAtOnce,
        Mutant::NoDrift,
        Mutant::RenewedUnseen,
        Mutant::AnswersAfterForget,
    ];
    for mutant in stale {
        let failure = explore(&Leases(Some(mutant)), LIMIT).expect_err("a stale read");
        assert!(matches!(failure.verdict, Verdict::Broken(_)), "{mutant:?}: {failure}");
    }
    let failure = explore(&Leases(Some(Mutant::WaitsForRelease)), LIMIT).expect_err("a writer that waits");
    assert!(matches!(failure.verdict, Verdict::Hang(_)), "{failure}");
}
