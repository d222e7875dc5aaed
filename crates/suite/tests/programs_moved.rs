//! Every program of the suite, moved once at a random point and moved to and fro: the same results.

use pando_suite::session::Session;
use pando_suite::suite::{Mode, ONCE_MS};

#[test]
fn programs_moved() {
    let Some(session) = Session::open("programs_moved", true) else {
        return;
    };
    let programs = session.programs();
    let mut reports = session.run(&programs, Mode::Once, Some(ONCE_MS), 3);
    // One random point may be one at which a program is refused: that it never moves shows below.
    let refused = reports.iter().filter(|r| r.stayed_without_reason()).count();
    println!("moved once: {refused} of {} were refused at their point", reports.len());
    let moving = session.run(&programs, Mode::PingPong, Some(700), 3);
    let stayed: Vec<_> = moving.iter().filter(|r| r.stayed_without_reason()).map(|r| r.name.clone()).collect();
    reports.extend(moving);
    session.judge("programs_moved", &reports, false);
    assert!(stayed.is_empty(), "never moved in spite of many attempts: {}", stayed.join(", "));
}
