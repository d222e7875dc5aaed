//! Memory calls that are made abroad before home has heard of them: the design holds, and each of its mutants is caught.

use pando_model::deferred::{Deferred, Mutant};
use pando_model::{Verdict, explore};

const LIMIT: usize = 4_000_000;

#[test]
fn home_never_finds_undone_what_was_done() {
    let explored = explore(&Deferred(None), LIMIT).unwrap_or_else(|f| panic!("{f}"));
    assert!(explored.states > 1000, "{explored:?}");
}

#[test]
fn broken_rules_are_caught() {
    use Mutant::*;
    for mutant in
        [CallOvertakesMap, PagesOvertakeMap, PagesBeforeDone, OldPageComesBack, ChosenAtOnce, MappedBeforeDone]
    {
        let failure = explore(&Deferred(Some(mutant)), LIMIT).expect_err("something undone");
        assert!(matches!(failure.verdict, Verdict::Broken(_)), "{mutant:?}: {failure}");
    }
}
