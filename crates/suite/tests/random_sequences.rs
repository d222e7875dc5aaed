//! Hundreds of random moves of several programs at once, of which each runs for seconds.

use pando_suite::random::Random;
use pando_suite::session::{Session, loudly};
use pando_suite::suite::Mode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Moves to make, all together.
const MOVES: usize = 500;
/// Programs at once.
const AT_ONCE: usize = 6;
/// How long each works.
const WORK_MS: u64 = 8_000;
/// No new round after this.
const LIMIT: Duration = Duration::from_secs(200);

#[test]
fn random_sequences() {
    let Some(session) = Session::open("random_sequences", true) else {
        return;
    };
    let mut random = Random::new(session.seed);
    let mut programs = session.programs();
    programs.retain(|p| p.may_stay.is_none() && p.known_limit.is_none() && !p.name.starts_with("exit-"));
    let started = Instant::now();
    let (mut reports, mut moves, mut round) = (Vec::new(), 0, 0);
    while moves < MOVES && started.elapsed() < LIMIT {
        round += 1;
        let chosen: Vec<_> =
            (0..AT_ONCE).map(|_| programs.remove(random.within(0, programs.len() as u64 - 1) as usize)).collect();
        let names: Vec<&str> = chosen.iter().map(|p| p.name.as_str()).collect();
        loudly(&format!("round {round}: {}", names.join(", ")));
        let of_round =
            session.run(&chosen.iter().map(Arc::clone).collect::<Vec<_>>(), Mode::PingPong, Some(WORK_MS), AT_ONCE);
        moves += of_round.iter().map(|r| r.tally.moves()).sum::<usize>();
        let failed = of_round.iter().any(|r| r.failed());
        reports.extend(of_round);
        if failed || programs.len() < AT_ONCE {
            break;
        }
    }
    session.judge("random_sequences", &reports, false);
    assert!(moves >= MOVES, "only {moves} moves in {:?}", started.elapsed());
}
