//! The prototype's hang is the first case that the checker must catch.

use pando_model::prototype::Design;
use pando_model::{Verdict, explore};

#[test]
fn the_prototype_hangs_when_a_blocked_process_is_called_home() {
    let failure = explore(&Design::AS_BUILT, 10_000).expect_err("the known hang");
    assert!(matches!(failure.verdict, Verdict::Hang(_)), "{failure}");
    let names: Vec<&str> = failure.trace.iter().map(|l| l.0).collect();
    for part in ["caller locks the pages and calls readv", "pusher wants the lock", "reader takes the wish and spins"] {
        assert!(names.contains(&part), "{failure}");
    }
    assert!(!names.contains(&"readv returns"), "{failure}");
}

#[test]
fn either_cure_alone_removes_the_hang() {
    for design in
        [Design { lock_across_call: false, reader_waits: true }, Design { lock_across_call: true, reader_waits: false }]
    {
        explore(&design, 10_000).unwrap_or_else(|f| panic!("{design:?}: {f}"));
    }
}
