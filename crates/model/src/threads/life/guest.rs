//! Abroad: the threads, the kernel under them, and the guest's helper with its one event loop.

use super::super::{THREADS, Tid};
use super::state::{Context, Guest, Msg, Residual, Run, World};
use super::{Case, Moves, Mutant, Op};

pub fn steps(moves: &mut Moves<'_>, w: &World) {
    let case = moves.case;
    if !w.up {
        if w.guest.there {
            moves.step("guest: ends with its connection", 0, w, |w| w.guest = Guest::ABSENT);
        }
        return;
    }
    if let Some(msg) = w.to_guest.first() {
        moves.step("guest: takes a message", number(&msg), w, |w| {
            w.to_guest.pop();
            receive(case, w, msg);
        });
    }
    if !w.guest.there {
        return;
    }
    let settled = !(0..THREADS).any(|t| changes_threads(case, &w.guest, t));
    for thread in 0..THREADS {
        let run = w.guest.run[thread];
        if run == Run::Computing {
            program(moves, w, thread);
        }
        let stoppable = matches!(run, Run::Computing | Run::Calling { .. });
        if w.guest.recall && !w.guest.starting && stoppable && settled {
            moves.step("guest: a thread is frozen", thread, w, |w| {
                w.guest.run[thread] = Run::Frozen { awaiting: run == Run::Calling { sent: true } };
            });
        }
    }
    if w.to_home.has_room(case.capacity) {
        send(moves, w);
    }
}

/// Between a birth or a death at home and the same here no thread is frozen: the two sides have different threads. Neither
/// call blocks.
fn changes_threads(case: &Case, guest: &Guest, thread: Tid) -> bool {
    guest.run[thread] == (Run::Calling { sent: true })
        && match case.op(thread, guest.context[thread].pc) {
            Some(Op::Birth) => !case.is(Mutant::FreezeDuringBirth),
            Some(Op::Die) => !case.is(Mutant::FreezeDuringDeath),
            _ => false,
        }
}

/// One instruction abroad.
fn program(moves: &mut Moves<'_>, w: &World, thread: Tid) {
    if w.guest.queued[thread] > 0 {
        moves.step("guest: a handler runs", thread, w, |w| {
            w.guest.queued[thread] -= 1;
            w.guest.context[thread].handled += 1;
        });
        return;
    }
    match moves.case.op(thread, w.guest.context[thread].pc) {
        Some(Op::Join) if w.guest.cleared => {
            moves.step("guest: a thread has joined the other", thread, w, |w| w.guest.context[thread].pc += 1);
        }
        None | Some(Op::Join) => {}
        Some(_) => moves.step("guest: a thread makes a call", thread, w, |w| {
            w.guest.run[thread] = Run::Calling { sent: false };
        }),
    }
}

/// What the guest's helper may send now.
fn send(moves: &mut Moves<'_>, w: &World) {
    let case = moves.case;
    if w.guest.starting {
        moves.step("guest: says that it started", 0, w, |w| {
            w.to_home.send(Msg::Started);
            w.guest.starting = false;
        });
    }
    for thread in 0..THREADS {
        if w.guest.run[thread] != (Run::Calling { sent: false }) {
            continue;
        }
        if w.guest.queued[thread] > 0 {
            moves.step("guest: puts off a call", thread, w, |w| w.guest.run[thread] = Run::Computing);
        } else {
            moves.step("guest: sends a call", thread, w, |w| send_call(case, w, thread));
        }
    }
    let still = w.guest.run.iter().all(|r| matches!(r, Run::Frozen { .. } | Run::None));
    if w.guest.recall && !w.guest.starting && still {
        moves.step("guest: sends the residual", 0, w, |w| {
            let guest = &w.guest;
            let there = |t: Tid| (guest.run[t] != Run::None).then_some(guest.context[t]);
            let rest = Residual {
                threads: [there(0), there(1)],
                awaiting: guest.run.map(|r| r == Run::Frozen { awaiting: true }),
                got: guest.got,
                queued: guest.queued,
                cleared: guest.cleared,
            };
            w.to_home.send(Msg::Residual(rest));
            w.guest = Guest::ABSENT;
        });
    }
}

fn send_call(case: &Case, w: &mut World, thread: Tid) {
    let context = w.guest.context[thread];
    let all = w.guest.got.iter().sum();
    let got = if case.is(Mutant::OneSignalCounter) { all } else { w.guest.got[thread] };
    w.guest.run[thread] = Run::Calling { sent: true };
    w.to_home.send(Msg::Call { thread, context, got });
    if case.is(Mutant::DeathAbroadFirst) && case.op(thread, context.pc) == Some(Op::Die) {
        dies(&mut w.guest, thread);
    }
}

/// The guest thread ends; the kernel here clears its word and wakes who waits for that.
fn dies(guest: &mut Guest, thread: Tid) {
    guest.run[thread] = Run::None;
    guest.cleared = true;
}

fn receive(case: &Case, w: &mut World, msg: Msg) {
    let guest = &mut w.guest;
    match msg {
        Msg::Start { threads, cleared } => {
            let run = threads.map(|t| if t.is_some() { Run::Computing } else { Run::None });
            let context = threads.map(Option::unwrap_or_default);
            *guest = Guest { there: true, run, context, cleared, starting: true, ..Guest::ABSENT };
        }
        _ if !guest.there => {}
        Msg::Recall => guest.recall = true,
        // Of a thread that there is not nothing can be queued.
        Msg::Signal(thread) if guest.run[thread] != Run::None => {
            guest.queued[thread] += 1;
            guest.got[thread] += 1;
        }
        Msg::Interrupted(thread) if guest.run[thread] == (Run::Calling { sent: true }) => {
            guest.run[thread] = Run::Computing;
        }
        Msg::Reply(thread) if guest.run[thread] == (Run::Calling { sent: true }) => {
            match case.op(thread, guest.context[thread].pc) {
                Some(Op::Die) => dies(guest, thread),
                Some(Op::Birth) => {
                    guest.run[1] = Run::Computing;
                    guest.context[1] = Context::default();
                }
                _ => {}
            }
            if guest.run[thread] != Run::None {
                guest.context[thread].pc += 1;
                guest.run[thread] = Run::Computing;
            }
        }
        _ => {}
    }
}

/// A number for a trace.
fn number(msg: &Msg) -> usize {
    match msg {
        Msg::Reply(thread) | Msg::Interrupted(thread) | Msg::Signal(thread) => *thread,
        _ => 9,
    }
}
