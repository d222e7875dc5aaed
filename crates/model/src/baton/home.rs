//! Home: the program running natively, the deputy's calls, and home's helper with its one event loop.

use super::outside::resume_at_home;
use super::program::{CELLS, Mask, Op, PAGES, cells, expected, page_mask};
use super::state::{Body, CallRecord, Context, Helper, Msg, Owed, PageBytes, World, page_bytes, put_page};
use super::{Case, Moves, Mutant};

pub fn steps(moves: &mut Moves<'_>, w: &World) {
    if let Body::Native(context) = w.home.body {
        native(moves, w, context);
        if moves.case.is(Mutant::LateStartAccepted) && w.home.helper == Helper::None && w.to_home.first().is_some() {
            moves.step("home accepts a late start", 0, w, |w| {
                w.home.helper = Helper::Away;
                w.home.exitkill = true;
            });
        }
    }
    if w.home.body == Body::InCall {
        deputy(moves, w);
    }
    match w.home.helper {
        Helper::None => {}
        Helper::Frozen | Helper::Awaiting => before_commit(moves, w),
        Helper::Committing | Helper::Away => away(moves, w),
        Helper::Merging => merging(moves, w),
    }
}

/// The program runs at home as any program does.
fn native(moves: &mut Moves<'_>, w: &World, context: Context) {
    let case = moves.case;
    let Context { pc, handled } = context;
    if w.home.pending > 0 {
        moves.step("home: a handler runs", handled, w, |w| {
            w.home.pending -= 1;
            w.home.body = Body::Native(Context { pc, handled: handled + 1 });
        });
        return;
    }
    let op = case.script[usize::from(pc)];
    match op {
        Op::Await(n) if handled < n => return,
        _ if op.blocks() && w.input == 0 => return,
        _ => {}
    }
    moves.step("home: the program goes on", pc, w, |w| {
        match op {
            Op::Read(page) => {
                if cells(page_mask(page)).any(|c| w.home.memory[c] != expected(case.script, pc, c)) {
                    w.blame("the program reads stale memory at home");
                }
            }
            Op::Write(cell) => w.home.memory[usize::from(cell)] = expected(case.script, pc + 1, cell.into()),
            Op::Handled(n) if handled < n => w.blame("the signal of a call came after its result"),
            Op::Await(_) | Op::Handled(_) => {}
            Op::Call { .. } | Op::Renew(_) | Op::Exit => perform(case, w, pc),
        }
        w.home.body = if op == Op::Exit { Body::Exited } else { Body::Native(Context { pc: pc + 1, handled }) };
    });
}

/// A call has its effect, in the body at home, with home's copy of memory.
fn perform(case: &Case, w: &mut World, pc: u8) {
    let op = case.script[usize::from(pc)];
    if cells(op.reads()).any(|c| w.home.memory[c] != expected(case.script, pc, c)) {
        w.blame("a call reads stale memory");
    }
    let bit = 1u16 << pc;
    if w.once & bit != 0 {
        w.blame("a call is executed twice");
    }
    let earlier = case.script.iter().take(pc.into()).enumerate().filter(|(_, op)| op.is_call());
    if earlier.map(|(at, _)| 1u16 << at).any(|bit| w.once & bit == 0) {
        w.blame("a call is executed before an earlier one");
    }
    w.once |= bit;
    w.input -= u8::from(op.blocks());
    for cell in cells(op.changes()) {
        w.home.memory[cell] = expected(case.script, pc + 1, cell);
    }
    if op.raises() {
        w.home.pending += 1;
        w.raised += 1;
    }
}

/// The deputy is inside a forwarded call.
fn deputy(moves: &mut Moves<'_>, w: &World) {
    let case = moves.case;
    let Some(call) = w.home.call else { return };
    let op = case.script[usize::from(call.pc)];
    if !call.wrote {
        if !op.blocks() || w.input > 0 {
            moves.step("deputy: the call has its effect", call.seq, w, |w| {
                perform(case, w, call.pc);
                if let Some(call) = &mut w.home.call {
                    call.wrote = true;
                }
                if op == Op::Exit {
                    w.home.body = Body::Exited;
                    w.home.committed = false;
                    w.hang_up();
                    w.dismiss_helper();
                }
            });
        }
        return;
    }
    moves.step("deputy: the call returns", call.seq, w, |w| {
        if let Op::Renew(page) = op {
            w.home.pushed[usize::from(page)] = case.is(Mutant::PullIgnoredIfPushed);
        }
        w.home.body = Body::Parked;
        let results = w.home.memory;
        if let Some(call) = &mut w.home.call {
            call.done = true;
            call.results = results;
        }
        merge_held(w, not_from_abroad(case, op));
        if w.home.helper == Helper::Merging {
            w.home.context.pc += 1;
        } else {
            w.home.owed = Some(Owed::Reply);
        }
    });
}

/// The cells for which home knows better than a page that was sent home during the call: those that the
/// kernel wrote.
fn not_from_abroad(case: &Case, op: Op) -> Mask {
    match case.mutant {
        Mutant::ReturnOverwritesCall => 0,
        Mutant::MergedByPromise => op.buffer(),
        _ => op.changes(),
    }
}

fn merge_held(w: &mut World, except: Mask) {
    for page in 0..PAGES {
        if let Some(bytes) = w.home.held[page].take() {
            put_page(&mut w.home.memory, page as u8, bytes, except);
        }
    }
}

fn before_commit(moves: &mut Moves<'_>, w: &World) {
    if !w.up {
        moves.step("home: lost before the commit", 0, w, resume_at_home);
        return;
    }
    if w.home.helper == Helper::Frozen {
        moves.step("home: sends the context", 0, w, |w| {
            w.to_guest.send(Msg::Start(w.home.context));
            w.home.helper = Helper::Awaiting;
        });
    } else if w.to_home.first().is_some() {
        if moves.case.is(Mutant::CommitBeforeExitkill) {
            moves.step("home: accepts without EXITKILL", 0, w, |w| {
                w.home.helper = Helper::Away;
                w.home.committed = true;
            });
        } else {
            moves.step("home: sets EXITKILL (the commit)", 0, w, |w| {
                w.home.exitkill = true;
                w.home.committed = true;
                w.home.helper = Helper::Committing;
            });
        }
    }
}

fn away(moves: &mut Moves<'_>, w: &World) {
    if !w.up {
        moves.step("home: lost after the commit", 0, w, |w| {
            w.home.body = Body::Lost;
            w.home.committed = false;
            w.home.pending = 0;
            w.dismiss_helper();
        });
        return;
    }
    if w.home.helper == Helper::Away && !w.home.exitkill && moves.case.is(Mutant::CommitBeforeExitkill) {
        moves.step("home: sets EXITKILL, late", 0, w, |w| w.home.exitkill = true);
    }
    let room = w.to_guest.len() < moves.case.capacity.into();
    if let Some(msg) = w.home.stuck {
        if room {
            moves.step("home: a blocked write goes through", 0, w, |w| {
                w.to_guest.send(msg);
                w.home.stuck = None;
            });
        }
        return;
    }
    if let Some(msg) = w.to_home.first() {
        let case = moves.case;
        moves.step("home: takes a message", name(&msg), w, |w| {
            w.to_home.pop();
            w.home.helper = Helper::Away;
            receive(case, w, msg);
        });
    }
    if w.home.helper != Helper::Away {
        return;
    }
    pages(moves, w, room);
    if room {
        replies_and_signals(moves, w);
        if w.home.recall && !w.home.recall_sent {
            let early = moves.case.is(Mutant::ExitkillDroppedEarly);
            moves.step("home: sends the recall", 0, w, |w| {
                w.to_guest.send(Msg::Recall);
                w.home.recall_sent = true;
                w.home.exitkill &= !early;
            });
        }
    }
}

/// Pulls are answered and the rest is pushed. Neither waits for anything but room.
fn pages(moves: &mut Moves<'_>, w: &World, room: bool) {
    let page_msg = |page| Msg::Page { page, bytes: page_bytes(&w.home.memory, page) };
    let blocking = moves.case.is(Mutant::BlockingWrites);
    let send = |w: &mut World, msg| {
        if room { w.to_guest.send(msg) } else { w.home.stuck = Some(msg) }
    };
    if !room && !blocking {
        return;
    }
    if let Some(page) = w.home.wanted {
        moves.step("home: answers a pull", page, w, |w| {
            send(w, page_msg(page));
            w.home.wanted = None;
            w.home.pushed[usize::from(page)] = true;
        });
    }
    if let Some((page, bytes)) = w.home.late_push {
        moves.step("home: sends a page read earlier", page, w, |w| {
            send(w, Msg::Page { page, bytes });
            w.home.late_push = None;
        });
    }
    for page in (0..PAGES as u8).filter(|&p| !w.home.pushed[usize::from(p)]) {
        if !moves.case.is(Mutant::PushSentLate) {
            moves.step("home: pushes a page", page, w, |w| {
                send(w, page_msg(page));
                w.home.pushed[usize::from(page)] = true;
            });
        } else if w.home.late_push.is_none() {
            moves.step("home: reads a page to push", page, w, |w| {
                w.home.late_push = Some((page, page_bytes(&w.home.memory, page)));
                w.home.pushed[usize::from(page)] = true;
            });
        }
    }
}

fn replies_and_signals(moves: &mut Moves<'_>, w: &World) {
    let case = moves.case;
    let deaf = case.is(Mutant::DeafDeputy) && w.home.body == Body::Parked && w.home.owed.is_none();
    let returning = w.home.body == Body::InCall && w.home.call.is_some_and(|call| call.wrote);
    if w.home.pending > 0 && !deaf && !returning {
        moves.step("home: forwards a signal", w.home.forwarded, w, |w| {
            w.to_guest.send(Msg::Signal);
            w.home.pending -= 1;
            w.home.forwarded += 1;
            if w.home.body == Body::InCall {
                w.home.body = Body::Parked;
                w.home.owed = Some(Owed::Interrupted);
                merge_held(w, 0);
            } else if w.home.owed.is_some() && case.is(Mutant::InterruptedAfterDone) {
                w.home.owed = Some(Owed::Interrupted);
            }
        });
    }
    let (Some(owed), Some(call)) = (w.home.owed, w.home.call) else {
        return;
    };
    if w.home.pending > 0 && !case.is(Mutant::SignalAfterReply) {
        return;
    }
    moves.step("home: answers a call", call.seq, w, |w| {
        w.home.owed = None;
        w.to_guest.send(match owed {
            Owed::Interrupted => Msg::Interrupted { seq: call.seq },
            Owed::Reply => {
                let op = case.script[usize::from(call.pc)];
                let set = match op {
                    Op::Renew(_) => 0,
                    _ if case.is(Mutant::ReplyCarriesBuffer) => op.buffer(),
                    _ => op.changes(),
                };
                Msg::Reply { seq: call.seq, set, bytes: call.results }
            }
        });
        if case.is(Mutant::ReplyForgotten) {
            w.home.call = None;
        }
    });
}

fn receive(case: &Case, w: &mut World, msg: Msg) {
    match msg {
        Msg::Pull(page) => {
            let ignored = case.is(Mutant::PullIgnoredIfPushed) && w.home.pushed[usize::from(page)];
            w.home.wanted = Some(page).filter(|_| !ignored);
        }
        Msg::Call { seq, pc, got, set, bytes } => {
            if w.home.body != Body::Parked {
                w.blame("a call while the body is not parked");
            }
            for cell in cells(set) {
                w.home.memory[cell] = bytes[cell];
            }
            w.home.call = Some(CallRecord { seq, pc, wrote: false, done: false, results: [0; CELLS] });
            if got < w.home.forwarded && !case.is(Mutant::CallMissesSignal) {
                // A signal is on its way to the program: it comes first, and the call is made again after it.
                w.home.owed = Some(Owed::Interrupted);
            } else {
                w.home.body = Body::InCall;
            }
        }
        Msg::Page { page, bytes } => page_home(case, w, page, bytes),
        Msg::Residual { context, awaiting, got, queued } => {
            w.hang_up();
            let home = &mut w.home;
            home.helper = Helper::Merging;
            home.context = context;
            home.owed = None;
            home.wanted = None;
            home.late_push = None;
            home.pending += queued;
            if !case.is(Mutant::SignalForgotten) {
                home.pending += home.forwarded - got;
            }
            settle(case, w, awaiting);
        }
        _ => {}
    }
}

/// A page that was written abroad. One that the call in flight may be writing just now waits for its end.
fn page_home(case: &Case, w: &mut World, page: u8, bytes: PageBytes) {
    let op = w.home.call.map(|call| case.script[usize::from(call.pc)]);
    let claimed = match op {
        Some(op @ Op::Call { .. }) if w.home.body == Body::InCall => op.buffer(),
        _ => 0,
    };
    if claimed & page_mask(page) != 0 && !case.is(Mutant::ReturnOverwritesCall) {
        w.home.held[usize::from(page)] = Some(bytes);
    } else {
        put_page(&mut w.home.memory, page, bytes, 0);
    }
}

/// The guest froze while it waited for a call that is done: its result was on the way. The kernel's bytes go over
/// the pages that came meanwhile.
fn settle(case: &Case, w: &mut World, awaiting: Option<u8>) {
    let Some(call) = w.home.call.filter(|call| Some(call.seq) == awaiting && call.done) else {
        return;
    };
    let op = case.script[usize::from(call.pc)];
    if let Op::Call { writes, .. } = op {
        for cell in cells(writes) {
            w.home.memory[cell] = call.results[cell];
        }
    }
    w.home.context.pc += 1;
}

/// All is home. The call in flight, if any, ends or is interrupted natively; then the program goes on.
fn merging(moves: &mut Moves<'_>, w: &World) {
    if w.home.body != Body::InCall {
        moves.step("home: detaches", w.home.context.pc, w, |w| {
            w.home.committed = false;
            resume_at_home(w);
        });
    } else if w.home.pending > 0 && w.home.call.is_some_and(|call| !call.wrote) {
        moves.step("home: a signal ends the call in flight", 0, w, |w| {
            merge_held(w, 0);
            w.home.body = Body::Parked;
        });
    }
}

/// A number for a trace.
fn name(msg: &Msg) -> u8 {
    match msg {
        Msg::Call { seq, .. } => *seq,
        Msg::Page { page, .. } | Msg::Pull(page) => *page,
        _ => CELLS as u8,
    }
}
