//! Home: threads that run natively, the deputies' calls, and home's helper with its one event loop.

use super::super::{THREADS, Tid};
use super::outside::resume_at_home;
use super::state::{CallRecord, Context, Half, Helper, Msg, Owed, Residual, World};
use super::{Case, Moves, Mutant, Op};

pub fn steps(moves: &mut Moves<'_>, w: &World) {
    for thread in 0..THREADS {
        match w.home.half[thread] {
            Half::Native => native(moves, w, thread),
            Half::InCall => deputy(moves, w, thread),
            _ => {}
        }
    }
    match w.home.helper {
        Helper::None => {}
        Helper::Freezing { listed } => freezing(moves, w, listed),
        Helper::Awaiting => awaiting(moves, w),
        Helper::Committing | Helper::Away => away(moves, w),
        Helper::Merging => merging(moves, w),
    }
}

/// A thread runs at home as any thread does.
fn native(moves: &mut Moves<'_>, w: &World, thread: Tid) {
    let case = moves.case;
    let Context { pc, handled } = w.home.context[thread];
    if w.home.pending[thread] > 0 {
        moves.step("home: a handler runs", thread, w, |w| {
            w.home.pending[thread] -= 1;
            w.home.context[thread].handled += 1;
        });
        return;
    }
    let Some(op) = case.op(thread, pc) else { return };
    if (op == Op::Join && !w.home.cleared) || (case.blocks(thread, pc) && w.input == 0) {
        return;
    }
    moves.step("home: a thread goes on", thread, w, |w| {
        w.home.context[thread].pc += 1;
        if op != Op::Join {
            perform(case, w, thread, Context { pc, handled });
        }
        if op == Op::Birth {
            w.home.half[1] = Half::Native;
        }
        w.home.cleared |= op == Op::Die;
    });
}

/// A call has its effect.
fn perform(case: &Case, w: &mut World, thread: Tid, context: Context) {
    let pc = context.pc;
    if w.once[thread] & (1 << pc) != 0 {
        w.blame("a call is executed twice");
    }
    let earlier = |at: u8| case.op(thread, at) != Some(Op::Join);
    if (0..pc).any(|at| earlier(at) && w.once[thread] & (1 << at) == 0) {
        w.blame("a call is executed before an earlier one");
    }
    w.once[thread] |= 1 << pc;
    match case.op(thread, pc) {
        Some(Op::Call { blocks: true }) => w.input -= 1,
        Some(Op::Birth) => w.home.half[1] = Half::Newborn,
        Some(Op::Die) => {
            w.home.half[thread] = Half::Exited;
            w.handled_by_dead += context.handled;
            // What it had not taken the kernel gives to another.
            w.home.pending[0] += w.home.pending[thread];
            w.home.pending[thread] = 0;
        }
        Some(Op::Probe) if w.lives(1) => w.blame("a thread that was joined is still there"),
        _ => {}
    }
}

/// A deputy is inside a forwarded call.
fn deputy(moves: &mut Moves<'_>, w: &World, thread: Tid) {
    let case = moves.case;
    let Some(call) = w.home.call[thread] else { return };
    if call.wrote {
        moves.step("deputy: a call returns", thread, w, |w| {
            w.home.half[thread] = Half::Parked;
            ended(w, thread);
        });
    } else if !case.blocks(thread, call.pc) || w.input > 0 {
        moves.step("deputy: a call has its effect", thread, w, |w| {
            if let Some(call) = &mut w.home.call[thread] {
                call.wrote = true;
            }
            let context = w.home.context[thread];
            perform(case, w, thread, context);
            // An exit does not return: its end is the answer.
            if w.home.half[thread] == Half::Exited {
                ended(w, thread);
            }
        });
    }
}

/// A call is over.
fn ended(w: &mut World, thread: Tid) {
    if let Some(call) = &mut w.home.call[thread] {
        call.done = true;
    }
    if w.home.helper != Helper::Merging {
        w.home.owed[thread] = Some(Owed::Reply);
    } else if w.home.half[thread] == Half::Exited {
        w.home.cleared = true;
    } else {
        w.home.context[thread].pc += 1;
        w.home.half[thread] = Half::Native;
    }
}

/// One thread after the other is stopped, those too that appear meanwhile. A signal that is pending comes first. A call
/// that a thread waits in is given up without an effect and made again.
fn freezing(moves: &mut Moves<'_>, w: &World, listed: [bool; THREADS]) {
    let case = moves.case;
    if !w.up {
        moves.step("home: lost before the commit", 0, w, |w| resume_at_home(case, w));
        return;
    }
    let known = |t: Tid| listed[t] || !case.is(Mutant::FreezeMissesNewThread);
    for thread in (0..THREADS).filter(|&t| known(t) && w.home.pending[t] == 0) {
        if w.home.half[thread] == Half::Native {
            moves.step("home: stops a thread", thread, w, |w| w.home.half[thread] = Half::Stopped);
        }
    }
    if (0..THREADS).any(|t| known(t) && w.home.half[t] == Half::Native) {
        return;
    }
    moves.step("home: sends the contexts", 0, w, |w| {
        let mut threads = [None; THREADS];
        for (thread, there) in threads.iter_mut().enumerate() {
            if w.home.half[thread] == Half::Stopped {
                w.home.half[thread] = Half::Parked;
                *there = Some(w.home.context[thread]);
            }
        }
        w.to_guest.send(Msg::Start { threads, cleared: w.home.cleared });
        w.home.helper = Helper::Awaiting;
    });
}

fn awaiting(moves: &mut Moves<'_>, w: &World) {
    let case = moves.case;
    if !w.up {
        moves.step("home: lost before the commit", 0, w, |w| resume_at_home(case, w));
    } else if w.to_home.first().is_some() {
        moves.step("home: sets EXITKILL (the commit)", 0, w, |w| {
            w.home.exitkill = true;
            w.home.helper = Helper::Committing;
        });
    }
}

fn away(moves: &mut Moves<'_>, w: &World) {
    if !w.up {
        moves.step("home: lost after the commit", 0, w, World::end);
        return;
    }
    if let Some(msg) = w.to_home.first() {
        moves.step("home: takes a message", number(&msg), w, |w| {
            w.to_home.pop();
            w.home.helper = Helper::Away;
            receive(w, msg);
        });
    }
    if w.home.helper != Helper::Away || !w.to_guest.has_room(moves.case.capacity) {
        return;
    }
    for thread in 0..THREADS {
        forward(moves, w, thread);
        answer(moves, w, thread);
    }
    if w.home.recall && !w.home.recall_sent {
        moves.step("home: sends the recall", 0, w, |w| {
            w.to_guest.send(Msg::Recall);
            w.home.recall_sent = true;
        });
    }
}

/// A signal for a thread goes to that thread; to a new one not before the answer of the call that made it.
fn forward(moves: &mut Moves<'_>, w: &World, thread: Tid) {
    let returning = w.home.half[thread] == Half::InCall && w.home.call[thread].is_some_and(|call| call.wrote);
    let early = w.home.half[thread] == Half::Newborn && !moves.case.is(Mutant::SignalBeforeBirth);
    if w.home.pending[thread] == 0 || returning || early {
        return;
    }
    moves.step("home: forwards a signal", thread, w, |w| {
        w.to_guest.send(Msg::Signal(thread));
        w.home.pending[thread] -= 1;
        w.home.forwarded[thread] += 1;
        if w.home.half[thread] == Half::InCall {
            w.home.half[thread] = Half::Parked;
            w.home.owed[thread] = Some(Owed::Interrupted);
        }
    });
}

fn answer(moves: &mut Moves<'_>, w: &World, thread: Tid) {
    let case = moves.case;
    let (Some(owed), Some(call)) = (w.home.owed[thread], w.home.call[thread]) else { return };
    if w.home.pending[thread] > 0 {
        return;
    }
    moves.step("home: answers a call", thread, w, |w| {
        w.home.owed[thread] = None;
        w.to_guest.send(match owed {
            Owed::Interrupted => Msg::Interrupted(thread),
            Owed::Reply => Msg::Reply(thread),
        });
        if owed == Owed::Reply && case.op(thread, call.pc) == Some(Op::Birth) && w.home.half[1] == Half::Newborn {
            w.home.half[1] = Half::Parked;
        }
    });
}

fn receive(w: &mut World, msg: Msg) {
    match msg {
        Msg::Call { thread, context, got } => {
            if w.home.half[thread] != Half::Parked {
                w.blame("a call of a thread that is not parked");
            }
            w.home.context[thread] = context;
            w.home.call[thread] = Some(CallRecord { pc: context.pc, wrote: false, done: false });
            if got < w.home.forwarded[thread] {
                // A signal is on its way to the thread: it comes first, and the call is made again after it.
                w.home.owed[thread] = Some(Owed::Interrupted);
            } else {
                w.home.half[thread] = Half::InCall;
            }
        }
        Msg::Residual(rest) => all_is_home(w, &rest),
        Msg::Started => {}
        _ => w.blame("a message in the wrong direction"),
    }
}

/// The guest's threads are home. One whose call is done goes on after it; one whose call is in flight waits in it.
fn all_is_home(w: &mut World, rest: &Residual) {
    w.hang_up();
    w.home.helper = Helper::Merging;
    w.home.cleared = rest.cleared;
    w.home.owed = [None; THREADS];
    for thread in 0..THREADS {
        let Some(context) = rest.threads[thread] else { continue };
        // What had not come is delivered here, to the thread that it was for.
        w.home.pending[thread] += rest.queued[thread] + w.home.forwarded[thread].saturating_sub(rest.got[thread]);
        w.home.context[thread] = context;
        let record = w.home.call[thread].filter(|_| rest.awaiting[thread]);
        if record.is_some_and(|call| call.done) {
            w.home.context[thread].pc += 1;
        }
        if w.home.half[thread] != Half::InCall {
            w.home.half[thread] = Half::Native;
        }
    }
}

/// All is home. Calls in flight end or are interrupted natively; then the helper lets go.
fn merging(moves: &mut Moves<'_>, w: &World) {
    for thread in 0..THREADS {
        let begun = w.home.call[thread].is_some_and(|call| !call.wrote);
        if w.home.half[thread] == Half::InCall && w.home.pending[thread] > 0 && begun {
            moves.step("home: a signal ends the call in flight", thread, w, |w| w.home.half[thread] = Half::Native);
        }
    }
    if !w.home.half.contains(&Half::InCall) {
        moves.step("home: detaches", 0, w, World::dismiss_helper);
    }
}

/// A number for a trace.
fn number(msg: &Msg) -> usize {
    if let Msg::Call { thread, .. } = msg { *thread } else { 9 }
}
