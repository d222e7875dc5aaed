//! Real, unmodified programs, moved to and fro.

use pando_suite::real;
use pando_suite::session::{Session, loudly};
use pando_suite::suite::Mode;
use std::sync::Arc;

#[test]
fn real_programs() {
    let Some(session) = Session::open("real_programs", true) else {
        return;
    };
    let found = real::tasks(&session.suite.scratch().join("inputs")).unwrap_or_else(|e| panic!("inputs: {e}"));
    for missing in &found.missing {
        loudly(&format!("SKIPPED {missing}"));
    }
    assert!(!found.tasks.is_empty());
    let tasks: Vec<_> = found.tasks.into_iter().map(Arc::new).collect();
    let reports = session.run(&tasks, Mode::PingPong, None, 2);
    session.judge("real_programs", &reports, true);
}
