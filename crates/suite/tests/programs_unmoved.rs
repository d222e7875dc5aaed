//! Every program of the suite does here what it should, and the same each time.

use pando_suite::session::Session;
use pando_suite::suite::Mode;

#[test]
fn programs_unmoved() {
    let Some(session) = Session::open("programs_unmoved", false) else {
        return;
    };
    let programs = session.programs();
    assert!(programs.len() >= 50, "{} programs", programs.len());
    let reports = session.run(&programs, Mode::Unmoved, Some(250), 4);
    session.judge("programs_unmoved", &reports, false);
}
