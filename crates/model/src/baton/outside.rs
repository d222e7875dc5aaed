//! What the outside world may do, at any moment.

use super::program::Op;
use super::state::{Body, Helper, World};
use super::{Moves, Mutant};

pub fn steps(moves: &mut Moves<'_>, w: &World) {
    let ended = matches!(w.home.body, Body::Exited | Body::Lost);
    if ended {
        return;
    }
    if w.left.inputs > 0 && moves.case.script.iter().any(|op: &Op| op.blocks()) {
        moves.event("somebody feeds the call", 0, w, |w| {
            w.left.inputs -= 1;
            w.input += 1;
        });
    }
    if w.left.signals > 0 {
        moves.event("a signal arrives", w.raised, w, |w| {
            w.left.signals -= 1;
            w.home.pending += 1;
            w.raised += 1;
        });
    }
    let may_freeze = w.home.pending == 0 || moves.case.is(Mutant::FrozenBeforeSignal);
    if let Body::Native(context) = w.home.body
        && w.home.helper == Helper::None
        && w.left.moves > 0
        && may_freeze
    {
        // A signal that is pending now would otherwise be overtaken by the program abroad: it is delivered first.
        // Connect and Prepare happen while the program runs; this is the freeze. A call that the program waits in is
        // given up without an effect and made again.
        moves.event("frozen for a move", context.pc, w, |w| {
            w.left.moves -= 1;
            w.hang_up();
            w.guest = super::state::Guest::ABSENT;
            w.up = true;
            w.home.body = Body::Parked;
            w.home.helper = Helper::Frozen;
            w.home.context = context;
        });
    }
    if w.home.helper != Helper::None {
        during_a_move(moves, w);
    }
}

/// What may happen to a process that is moving or away.
fn during_a_move(moves: &mut Moves<'_>, w: &World) {
    if w.left.recalls > 0 && !w.home.recall && w.home.helper != Helper::Merging {
        moves.event("come home is asked", 0, w, |w| {
            w.left.recalls -= 1;
            w.home.recall = true;
        });
    }
    if w.left.aborts > 0 && matches!(w.home.helper, Helper::Frozen | Helper::Awaiting) {
        let late = moves.case.is(Mutant::LateStartAccepted);
        moves.event("the move is called off", 0, w, |w| {
            w.left.aborts -= 1;
            resume_at_home(w);
            if !late {
                w.hang_up();
            }
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
            if w.home.exitkill {
                w.home.body = Body::Lost;
                w.home.committed = false;
                w.home.pending = 0;
                w.dismiss_helper();
            } else {
                resume_at_home(w);
            }
        });
    }
}

/// The body goes on where it was, with what home knows.
pub fn resume_at_home(w: &mut World) {
    w.home.body = Body::Native(w.home.context);
    w.dismiss_helper();
}
