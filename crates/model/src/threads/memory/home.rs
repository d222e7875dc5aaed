//! Home: threads that run natively, the deputies' calls, and home's helper with its one event loop.

use super::super::{Each, THREADS, Tid};
use super::program::{Mask, Op, PAGES, cells, contents, count, may_hold, page_mask, page_of};
use super::state::{CallRecord, Half, Msg, World, page_bytes};
use super::{Case, Moves, Mutant};

pub fn steps(moves: &mut Moves<'_>, w: &World) {
    for thread in 0..THREADS {
        match w.home.half[thread] {
            Half::Native(pc) => native(moves, w, thread, pc),
            Half::InCall => deputy(moves, w, thread),
            Half::Waiting => waiting(moves, w, thread),
            Half::Parked => {}
        }
    }
    if w.up {
        away(moves, w);
    }
}

/// A thread runs at home as any thread does.
fn native(moves: &mut Moves<'_>, w: &World, thread: Tid, pc: u8) {
    let case = moves.case;
    let Some(op) = case.op(thread, pc) else { return };
    if case.is(Mutant::ReturnWaitsForHeldPage) && w.home.held.iter().any(Option::is_some) {
        return;
    }
    match op {
        Op::See(cell, n) if count(w.home.memory[usize::from(cell)]) < n => return,
        _ if op.blocks() && w.input == 0 => return,
        _ => {}
    }
    moves.step("home: a thread goes on", thread, w, |w| {
        if op.touches().is_some_and(|page| !w.home.mapped[page]) {
            w.blame("a page of the program is gone at home");
        }
        let mut next = pc + 1;
        match op {
            Op::Read(cell) => {
                if !may_hold(case, thread, pc, cell.into(), w.home.memory[usize::from(cell)]) {
                    w.blame("the program reads stale memory at home");
                }
            }
            Op::Write(cell) => w.home.memory[usize::from(cell)] = contents(case, thread, next, cell.into()),
            Op::See(..) => {}
            Op::Call { .. } | Op::Renew(_) | Op::Unmap(_) | Op::Map(_) => next = perform(case, w, thread, pc),
        }
        w.home.half[thread] = Half::Native(next);
    });
}

/// A call has its effect, with home's copy of memory. Returns the instruction after it.
fn perform(case: &Case, w: &mut World, thread: Tid, pc: u8) -> u8 {
    let Some(op) = case.op(thread, pc) else { return pc };
    if cells(op.reads()).any(|c| !may_hold(case, thread, pc, c, w.home.memory[c])) {
        w.blame("a call reads stale memory");
    }
    if w.once[thread] & (1 << pc) != 0 {
        w.blame("a call is executed twice");
    }
    w.once[thread] |= 1 << pc;
    w.input -= u8::from(op.blocks());
    if let Op::Map(page) = op {
        if w.home.mapped[usize::from(page)] {
            return case.scripts[thread].len() as u8;
        }
        w.home.mapped[usize::from(page)] = true;
    }
    if let Op::Unmap(page) = op {
        w.home.mapped[usize::from(page)] = false;
    }
    for cell in cells(op.changes()) {
        w.home.memory[cell] = contents(case, thread, pc + 1, cell);
    }
    // What waits for the end of a call is of the old meaning. (Of a memory call that a thread makes natively, after the
    // return, the helper would know nothing. That is left out: the program would remap the buffer of a call in flight.)
    let forgets = !(w.up && case.is(Mutant::HeldSurvivesMemoryCall));
    if let Some(page) = op.remaps().filter(|_| forgets) {
        for cell in cells(page_mask(page)) {
            w.home.held[cell] = None;
        }
    }
    pc + 1
}

/// A memory call begins when the one before it has ended.
fn waiting(moves: &mut Moves<'_>, w: &World, thread: Tid) {
    if !memory_call_runs(moves.case, w) {
        moves.step("deputy: a memory call begins", thread, w, |w| w.home.half[thread] = Half::InCall);
    }
}

fn memory_call_runs(case: &Case, w: &World) -> bool {
    (0..THREADS).any(|t| w.home.half[t] == Half::InCall && call_of(case, w, t).remaps().is_some())
}

/// The instruction that the deputy has.
fn call_of(case: &Case, w: &World, thread: Tid) -> Op {
    let op = w.home.call[thread].and_then(|call| case.op(thread, call.pc));
    op.unwrap_or(Op::call(0, 0))
}

/// A deputy is inside a forwarded call.
fn deputy(moves: &mut Moves<'_>, w: &World, thread: Tid) {
    let case = moves.case;
    let Some(call) = w.home.call[thread] else { return };
    let op = call_of(case, w, thread);
    if call.wrote {
        moves.step("deputy: a call returns", thread, w, |w| returns(case, w, thread, op));
    } else if !op.blocks() || w.input > 0 {
        moves.step("deputy: a call has its effect", thread, w, |w| {
            let next = perform(case, w, thread, call.pc);
            if let Some(call) = &mut w.home.call[thread] {
                call.wrote = true;
                call.next = next;
            }
        });
    }
}

fn returns(case: &Case, w: &mut World, thread: Tid, op: Op) {
    if let Some(page) = op.remaps() {
        w.home.pushed[page] = false;
    }
    let results = w.home.memory;
    let Some(call) = &mut w.home.call[thread] else { return };
    call.done = true;
    call.results = results;
    let next = call.next;
    w.home.half[thread] = if w.up { Half::Parked } else { Half::Native(next) };
    if case.holds_whole_pages() {
        release_whole_pages(case, w, op);
    } else {
        // The kernel knows better than what came home, but only where it wrote.
        let ends = if case.is(Mutant::HeldReleasedByAnyCall) { whole_pages(op.buffer()) } else { op.buffer() };
        let wrote = if case.is(Mutant::ResultNotPutOverHeldPage) { 0 } else { op.results() };
        for cell in cells(ends) {
            if let Some(byte) = w.home.held[cell].take()
                && wrote & (1 << cell) == 0
            {
                w.home.memory[cell] = byte;
            }
        }
    }
    if w.up {
        let at = w.home.owed.iter().flatten().count();
        w.home.owed[at] = Some(thread);
    }
}

/// A mutant's: a page waits until no call claims any of it.
fn release_whole_pages(case: &Case, w: &mut World, op: Op) {
    for cell in cells(op.results()) {
        w.home.held[cell] = w.home.held[cell].map(|_| w.home.memory[cell]);
    }
    let claimed = claims(case, w);
    for page in (0..PAGES).filter(|&p| claimed & page_mask(p) == 0) {
        for cell in cells(page_mask(page)) {
            if let Some(byte) = w.home.held[cell].take()
                && op.results() & (1 << cell) == 0
            {
                w.home.memory[cell] = byte;
            }
        }
    }
}

/// Cells that the kernel may be writing just now.
fn claims(case: &Case, w: &World) -> Mask {
    let in_call = (0..THREADS).filter(|&t| w.home.half[t] == Half::InCall);
    in_call.fold(0, |set, t| set | call_of(case, w, t).buffer())
}

fn away(moves: &mut Moves<'_>, w: &World) {
    let case = moves.case;
    if let Some(msg) = w.to_home.first() {
        moves.step("home: takes a message", number(&msg), w, |w| {
            w.to_home.pop();
            receive(case, w, msg);
        });
    }
    if !w.to_guest.has_room(case.capacity) {
        return;
    }
    for page in 0..PAGES {
        if w.home.wanted[page] {
            moves.step("home: answers a pull", page, w, |w| send_page(w, page));
        } else if !w.home.pushed[page] && w.home.mapped[page] && touched(case, page) {
            moves.step("home: pushes a page", page, w, |w| send_page(w, page));
        }
    }
    if let Some(thread) = w.home.owed[0] {
        moves.step("home: answers a call", thread, w, |w| answer(case, w, thread));
    }
    if w.home.recall && !w.home.recall_sent {
        moves.step("home: sends the recall", 0, w, |w| {
            w.to_guest.send(Msg::Recall);
            w.home.recall_sent = true;
        });
    }
}

/// Pages that no script names only make more states.
fn touched(case: &Case, page: usize) -> bool {
    let ops = || case.scripts.iter().flat_map(|s| s.iter());
    ops().any(|op| op.touches() == Some(page) || (op.changes() | op.reads()) & page_mask(page) != 0)
}

fn send_page(w: &mut World, page: usize) {
    w.to_guest.send(Msg::Page { page, bytes: page_bytes(&w.home.memory, page) });
    w.home.wanted[page] = false;
    w.home.pushed[page] = true;
}

fn answer(case: &Case, w: &mut World, thread: Tid) {
    w.home.owed.rotate_left(1);
    w.home.owed[THREADS - 1] = None;
    let Some(CallRecord { pc, next, results, .. }) = w.home.call[thread] else {
        return;
    };
    let wrote = call_of(case, w, thread).results();
    let set = if case.is(Mutant::ReplyCarriesPage) { whole_pages(wrote) } else { wrote };
    w.to_guest.send(Msg::Reply { thread, pc, next, set, bytes: results });
}

/// All cells of the pages of these.
pub fn whole_pages(set: Mask) -> Mask {
    cells(set).fold(0, |all, cell| all | page_mask(page_of(cell)))
}

fn receive(case: &Case, w: &mut World, msg: Msg) {
    match msg {
        Msg::Pull(page) => w.home.wanted[page] = true,
        Msg::Call { thread, pc, set, bytes } => {
            if w.home.half[thread] != Half::Parked {
                w.blame("a call while the deputy is not parked");
            }
            for cell in cells(set) {
                w.home.memory[cell] = bytes[cell];
            }
            if case.is(Mutant::OneRecordForAll) {
                forget_others(w, thread);
            }
            let memory = case.op(thread, pc).is_some_and(|op| op.remaps().is_some());
            let waits = memory && memory_call_runs(case, w) && !case.is(Mutant::MemoryCallsAtOnce);
            w.home.call[thread] = Some(CallRecord { pc, wrote: false, done: false, next: pc, results: bytes });
            w.home.half[thread] = if waits { Half::Waiting } else { Half::InCall };
        }
        Msg::Page { page, bytes } => page_home(case, w, page, bytes),
        Msg::Residual { pc, awaiting } => all_is_home(case, w, pc, awaiting),
        Msg::Reply { .. } | Msg::Recall => w.blame("a message in the wrong direction"),
    }
}

/// A mutant's: what the other threads' calls did is forgotten as soon as it is answered.
fn forget_others(w: &mut World, thread: Tid) {
    let answered = |w: &World, t: Tid| w.home.call[t].is_some_and(|c| c.done) && !w.home.owed.contains(&Some(t));
    for other in (0..THREADS).filter(|&t| t != thread) {
        if answered(w, other) {
            w.home.call[other] = None;
        }
    }
}

/// A page that was written abroad. Where a call in flight may be writing just now its bytes wait for the end of that call;
/// the others count at once, because a call of another thread may read them.
fn page_home(case: &Case, w: &mut World, page: usize, bytes: [u8; 2]) {
    if !w.home.mapped[page] {
        w.blame("a page comes home that has no place there");
    }
    let waits = match claims(case, w) {
        _ if case.is(Mutant::HeldPageAppliedEarly) => 0,
        claimed if case.holds_whole_pages() => whole_pages(claimed),
        claimed => claimed,
    };
    for cell in cells(page_mask(page)) {
        if waits & (1 << cell) != 0 {
            w.home.held[cell] = Some(bytes[cell % 2]);
        } else {
            w.home.memory[cell] = bytes[cell % 2];
        }
    }
}

/// The guest's threads are home. One whose call is done takes its results from the record, because its answer crossed
/// the return; one whose call is in flight waits in it; the others go on.
fn all_is_home(case: &Case, w: &mut World, pc: Each<u8>, awaiting: Each<bool>) {
    w.up = false;
    w.to_guest = super::super::Line::EMPTY;
    w.home.owed = [None; THREADS];
    w.home.wanted = [false; PAGES];
    w.home.pushed = [true; PAGES];
    for thread in 0..THREADS {
        let record = w.home.call[thread].filter(|call| awaiting[thread] && call.pc == pc[thread]);
        match record {
            Some(call) if call.done => {
                for cell in cells(call_of(case, w, thread).results()) {
                    w.home.memory[cell] = call.results[cell];
                }
                w.home.half[thread] = Half::Native(call.next);
            }
            Some(_) => {}
            None => w.home.half[thread] = Half::Native(pc[thread]),
        }
    }
}

/// A number for a trace.
fn number(msg: &Msg) -> usize {
    match msg {
        Msg::Call { thread, .. } => *thread,
        Msg::Page { page, .. } | Msg::Pull(page) => *page,
        _ => 9,
    }
}
