//! What the outside world may do, at any moment.

use super::super::THREADS;
use super::state::{Guest, Half, Helper, World};
use super::{Case, Moves, Mutant};

pub fn steps(moves: &mut Moves<'_>, w: &World) {
    let case = moves.case;
    if w.left.inputs > 0 {
        moves.event("somebody feeds a call", 0, w, |w| {
            w.left.inputs -= 1;
            w.input += 1;
        });
    }
    for thread in (0..THREADS).filter(|&t| w.left.signals > 0 && w.lives(t)) {
        moves.event("a signal arrives", thread, w, |w| {
            w.left.signals -= 1;
            w.home.pending[thread] += 1;
            w.raised += 1;
        });
    }
    if w.home.helper == Helper::None && w.left.moves > 0 {
        // Connect and Prepare happen while the program runs; here the freeze begins.
        moves.event("a freeze for a move begins", 0, w, |w| {
            w.left.moves -= 1;
            w.hang_up();
            w.guest = Guest::ABSENT;
            w.up = true;
            w.home.helper = Helper::Freezing { listed: [w.lives(0), w.lives(1)] };
        });
    }
    if w.home.helper == Helper::None {
        return;
    }
    if w.left.recalls > 0 && !w.home.recall && w.home.helper != Helper::Merging {
        moves.event("come home is asked", 0, w, |w| {
            w.left.recalls -= 1;
            w.home.recall = true;
        });
    }
    if w.left.aborts > 0 && matches!(w.home.helper, Helper::Freezing { .. } | Helper::Awaiting) {
        moves.event("the move is called off", 0, w, |w| {
            w.left.aborts -= 1;
            w.hang_up();
            resume_at_home(case, w);
        });
    }
    if w.left.cuts > 0 && w.up {
        moves.event("the connection breaks", 0, w, |w| {
            w.left.cuts -= 1;
            w.hang_up();
        });
    }
    if w.left.kills > 0 {
        moves.event("home's helper is killed", 0, w, |w| {
            w.left.kills -= 1;
            w.hang_up();
            if w.home.exitkill { w.end() } else { resume_at_home(case, w) }
        });
    }
}

/// All threads go on where they were, with what home knows.
pub fn resume_at_home(case: &Case, w: &mut World) {
    let all = if case.is(Mutant::CallOffResumesOne) { 1 } else { THREADS };
    for half in w.home.half.iter_mut().take(all) {
        if matches!(half, Half::Stopped | Half::Parked) {
            *half = Half::Native;
        }
    }
    w.dismiss_helper();
}
