//! Abroad: two threads, the kernel under them, and the guest's helper with its one event loop.

use super::super::{THREADS, Tid};
use super::home::whole_pages;
use super::program::{Mask, Op, PAGES, cells, contents, count, may_hold, page_mask, page_of};
use super::state::{Guest, Msg, Page, Run, World, page_bytes};
use super::{Case, Moves, Mutant};

pub fn steps(moves: &mut Moves<'_>, w: &World) {
    let case = moves.case;
    if !w.up {
        return;
    }
    for thread in 0..THREADS {
        match w.guest.run[thread] {
            Run::Computing => program(moves, w, thread),
            Run::Mirroring { next } => moves.step("guest: mirrors, late", thread, w, |w| {
                mirror(case, w, thread, next);
                go_on(&mut w.guest, thread, next);
            }),
            _ => {}
        }
    }
    if let Some(msg) = w.to_guest.first() {
        moves.step("guest: takes a message", number(&msg), w, |w| {
            w.to_guest.pop();
            receive(case, w, msg);
        });
    }
    if w.to_home.has_room(case.capacity) {
        send(moves, w);
    }
    for thread in 0..THREADS {
        let run = w.guest.run[thread];
        let stoppable = matches!(run, Run::Computing | Run::Faulting { .. } | Run::Calling { .. });
        if w.guest.recall && stoppable && !waits_for_memory_call(case, &w.guest) {
            moves.step("guest: a thread is frozen", thread, w, |w| {
                w.guest.run[thread] = Run::Frozen { awaiting: run == Run::Calling { sent: true } };
            });
        }
    }
}

/// A memory call changes what addresses mean at home before it does so here: until it is mirrored no page goes home, and
/// nothing is frozen. It does not block.
fn waits_for_memory_call(case: &Case, guest: &Guest) -> bool {
    !case.is(Mutant::PagesDuringMemoryCall)
        && (0..THREADS).any(|t| match guest.run[t] {
            Run::Calling { sent: true } => remaps(case, guest, t),
            Run::Mirroring { .. } => true,
            _ => false,
        })
}

/// Is the thread at a memory call?
fn remaps(case: &Case, guest: &Guest, thread: Tid) -> bool {
    case.op(thread, guest.pc[thread]).is_some_and(|op| op.remaps().is_some())
}

/// One instruction abroad.
fn program(moves: &mut Moves<'_>, w: &World, thread: Tid) {
    let case = moves.case;
    let pc = w.guest.pc[thread];
    let Some(op) = case.op(thread, pc) else { return };
    if let Some(page) = op.touches() {
        match w.guest.pages[page] {
            Page::Absent => {
                moves.step("guest: a thread faults", thread, w, |w| {
                    w.guest.run[thread] = Run::Faulting { page, asked: false };
                });
                return;
            }
            Page::Unmapped => {
                moves.step("guest: a thread dies", thread, w, |w| w.blame("a page of the program is gone abroad"));
                return;
            }
            Page::Clean | Page::Written => {}
        }
    }
    if let Op::See(cell, n) = op
        && count(w.guest.memory[usize::from(cell)]) < n
    {
        return;
    }
    moves.step("guest: a thread goes on", thread, w, |w| {
        match op {
            Op::Read(cell) => {
                if !may_hold(case, thread, pc, cell.into(), w.guest.memory[usize::from(cell)]) {
                    w.blame("the program reads stale memory abroad");
                }
            }
            Op::Write(cell) => {
                w.guest.memory[usize::from(cell)] = contents(case, thread, pc + 1, cell.into());
                w.guest.pages[page_of(cell.into())] = Page::Written;
            }
            Op::See(..) => {}
            Op::Call { .. } | Op::Renew(_) | Op::Unmap(_) | Op::Map(_) => {
                w.guest.run[thread] = Run::Calling { sent: false };
                return;
            }
        }
        w.guest.pc[thread] += 1;
    });
}

/// What the guest's helper may send now.
fn send(moves: &mut Moves<'_>, w: &World) {
    let case = moves.case;
    let freezing = w.guest.run.iter().any(|r| matches!(r, Run::Frozen { .. }));
    for thread in 0..THREADS {
        match w.guest.run[thread] {
            Run::Faulting { page, asked: false } => moves.step("guest: pulls a page", thread, w, |w| {
                w.to_home.send(Msg::Pull(page));
                w.guest.run[thread] = Run::Faulting { page, asked: true };
            }),
            // While all is being stopped a new memory call waits: it is made at home.
            Run::Calling { sent: false } if !(freezing && remaps(case, &w.guest, thread)) => {
                moves.step("guest: sends a call", thread, w, |w| {
                    let pc = w.guest.pc[thread];
                    let set = inputs(case, &w.guest, thread);
                    w.guest.run[thread] = Run::Calling { sent: true };
                    w.to_home.send(Msg::Call { thread, pc, set, bytes: w.guest.memory });
                });
            }
            _ => {}
        }
    }
    if !waits_for_memory_call(case, &w.guest) {
        send_pages(moves, w);
    }
}

/// Written pages go home: some ahead, while the program runs; the rest, and then the residual, when all are frozen.
fn send_pages(moves: &mut Moves<'_>, w: &World) {
    let frozen = w.guest.run.iter().all(|r| matches!(r, Run::Frozen { .. }));
    let gone = w.guest.run.contains(&Run::Gone);
    let written: Vec<usize> = (0..PAGES).filter(|&p| w.guest.pages[p] == Page::Written).collect();
    if gone || !w.guest.recall {
        return;
    }
    for &page in written.iter().filter(|_| frozen || w.guest.presync > 0) {
        moves.step("guest: sends a page home", page, w, |w| {
            w.to_home.send(Msg::Page { page, bytes: page_bytes(&w.guest.memory, page) });
            w.guest.pages[page] = Page::Clean;
            w.guest.presync -= u8::from(!frozen);
        });
    }
    if frozen && written.is_empty() {
        moves.step("guest: sends the residual", 0, w, |w| {
            let awaiting = w.guest.run.map(|r| r == Run::Frozen { awaiting: true });
            w.to_home.send(Msg::Residual { pc: w.guest.pc, awaiting });
            w.guest.run = [Run::Gone; THREADS];
        });
    }
}

/// The cells that go home with a call: those that it reads, where home's copy is not the truth.
fn inputs(case: &Case, guest: &Guest, thread: Tid) -> Mask {
    let reads = case.op(thread, guest.pc[thread]).map_or(0, Op::reads);
    let set = match case.mutant {
        Mutant::InputsNotSent => 0,
        Mutant::InputsCarryPage => whole_pages(reads),
        _ => reads,
    };
    cells(set).filter(|&c| guest.pages[page_of(c)] == Page::Written).fold(0, |set, c| set | 1 << c)
}

fn receive(case: &Case, w: &mut World, msg: Msg) {
    let guest = &mut w.guest;
    match msg {
        _ if guest.run.contains(&Run::Gone) => {}
        Msg::Page { page, bytes } => {
            if guest.pages[page] == Page::Absent {
                guest.memory[2 * page] = bytes[0];
                guest.memory[2 * page + 1] = bytes[1];
                guest.pages[page] = Page::Clean;
            }
            for run in &mut guest.run {
                if matches!(run, Run::Faulting { page: wanted, .. } if *wanted == page) {
                    *run = Run::Computing;
                }
            }
        }
        Msg::Recall => guest.recall = true,
        Msg::Reply { thread, pc, next, set, bytes } => {
            // A frozen thread ignores it: home knows what the call did.
            if guest.run[thread] == (Run::Calling { sent: true }) && guest.pc[thread] == pc {
                for cell in cells(set) {
                    put(case, guest, cell, bytes[cell]);
                }
                if case.is(Mutant::MirrorsSwapped) && remaps(case, guest, thread) {
                    guest.run[thread] = Run::Mirroring { next };
                } else {
                    mirror(case, w, thread, next);
                    go_on(&mut w.guest, thread, next);
                }
            }
        }
        Msg::Pull(_) | Msg::Call { .. } | Msg::Residual { .. } => w.blame("a message in the wrong direction"),
    }
}

/// A byte of a reply. The kernel sees the page written: so it goes home again, and over a copy that was on its way.
fn put(case: &Case, guest: &mut Guest, cell: usize, byte: u8) {
    let page = &mut guest.pages[page_of(cell)];
    if matches!(page, Page::Clean | Page::Written) {
        guest.memory[cell] = byte;
        if !case.is(Mutant::ReplyLeavesClean) {
            *page = Page::Written;
        }
    }
}

/// The memory call does here what it did at home.
fn mirror(case: &Case, w: &mut World, thread: Tid, next: u8) {
    let pc = w.guest.pc[thread];
    match case.op(thread, pc) {
        Some(Op::Renew(page)) => w.guest.pages[usize::from(page)] = Page::Absent,
        Some(Op::Unmap(page)) => w.guest.pages[usize::from(page)] = Page::Unmapped,
        // New memory begins here as it does at home, and counts as written.
        Some(Op::Map(page)) if next == pc + 1 => {
            for cell in cells(page_mask(page.into())) {
                w.guest.memory[cell] = contents(case, thread, next, cell);
            }
            w.guest.pages[usize::from(page)] = Page::Written;
        }
        _ => {}
    }
}

fn go_on(guest: &mut Guest, thread: Tid, next: u8) {
    guest.pc[thread] = next;
    guest.run[thread] = Run::Computing;
}

/// A number for a trace.
fn number(msg: &Msg) -> usize {
    match msg {
        Msg::Reply { thread, .. } => *thread,
        Msg::Page { page, .. } => *page,
        _ => 9,
    }
}
