//! Programs of the suite that are held again and again, at home and abroad, as on a node that is nearly out of memory, while they are moved
//! to and fro: the same results.

use pando_suite::random::Random;
use pando_suite::session::Session;
use pando_suite::suite::Mode;

/// One in so many, others each time: all of them are a command (`pando-suite --mode pingpong --config FILE`).
const PART: u64 = 3;

#[test]
fn programs_still() {
    let Some(session) = Session::configured("programs_still", true, "[test]\nstill = true\n") else {
        return;
    };
    let mut random = Random::new(session.seed);
    let programs: Vec<_> = session.programs().into_iter().filter(|_| random.within(1, PART) == 1).collect();
    let reports = session.run(&programs, Mode::PingPong, Some(700), 3);
    session.judge("programs_still", &reports, false);
}
