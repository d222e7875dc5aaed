//! Abroad: the program, the kernel under it, and the guest's helper with its one event loop.

use super::program::{Cells, Op, PAGES, cells, expected, page_mask, page_of};
use super::state::{Context, Guest, Msg, Page, Run, World, page_bytes, put_page};
use super::{Case, Moves, Mutant};

pub fn steps(moves: &mut Moves<'_>, w: &World) {
    if !w.up {
        if w.guest.run != Run::None && !moves.case.is(Mutant::OrphanGuest) {
            moves.step("guest: ends with its connection", 0, w, |w| w.guest = Guest::ABSENT);
        }
        return;
    }
    if w.guest.run == Run::Computing {
        program(moves, w);
    }
    let room = w.to_home.len() < moves.case.capacity.into();
    if let Some(msg) = w.guest.stuck {
        if room {
            moves.step("guest: a blocked write goes through", 0, w, |w| {
                w.to_home.send(msg);
                w.guest.stuck = None;
            });
        }
        return;
    }
    if let Some(msg) = w.to_guest.first() {
        let case = moves.case;
        moves.step("guest: takes a message", 0, w, |w| {
            w.to_guest.pop();
            receive(case, w, msg);
        });
    }
    if room || moves.case.is(Mutant::BlockingWrites) {
        send(moves, w, room);
    }
    let stoppable = !waits_for_memory_call(moves.case, &w.guest)
        && matches!(w.guest.run, Run::Computing | Run::Faulting { .. } | Run::Calling { .. });
    if w.guest.recall && stoppable && !w.guest.starting {
        moves.step("guest: is frozen", w.guest.context.pc, w, |w| {
            w.guest.run = Run::Frozen { awaiting: in_flight(&w.guest) };
        });
    }
}

/// The call that home has and whose answer has not come.
fn in_flight(guest: &Guest) -> Option<u8> {
    match guest.run {
        Run::Calling { sent: true } => Some(guest.seq),
        Run::Frozen { awaiting } => awaiting,
        _ => None,
    }
}

/// A memory call changes what addresses mean at home before it does so here: until its answer no page goes home, and the
/// guest is not frozen. It does not block.
fn waits_for_memory_call(case: &Case, guest: &Guest) -> bool {
    let renews = matches!(case.script[usize::from(guest.context.pc)], Op::Renew(_));
    renews && guest.run == (Run::Calling { sent: true }) && !case.is(Mutant::PagesDuringMemoryCall)
}

/// One instruction abroad.
fn program(moves: &mut Moves<'_>, w: &World) {
    let case = moves.case;
    let Context { pc, handled } = w.guest.context;
    if w.guest.queued > 0 {
        moves.step("guest: a handler runs", handled, w, |w| {
            w.guest.queued -= 1;
            w.guest.context.handled += 1;
        });
        return;
    }
    let op = case.script[usize::from(pc)];
    let touched = match op {
        Op::Read(page) => Some(usize::from(page)),
        Op::Write(cell) => Some(page_of(cell.into())),
        Op::Await(n) if handled < n => return,
        _ => None,
    };
    if let Some(page) = touched.filter(|&p| w.guest.pages[p] == Page::Absent) {
        moves.step("guest: faults", page as u8, w, |w| {
            w.guest.run = Run::Faulting { page: page as u8, asked: false };
        });
        return;
    }
    moves.step("guest: the program goes on", pc, w, |w| {
        match op {
            Op::Read(page) => {
                if cells(page_mask(page)).any(|c| w.guest.memory[c] != expected(case.script, pc, c)) {
                    w.blame("the program reads stale memory abroad");
                }
            }
            Op::Write(cell) => {
                w.guest.memory[usize::from(cell)] = expected(case.script, pc + 1, cell.into());
                w.guest.pages[page_of(cell.into())] = Page::Written;
            }
            Op::Handled(n) if handled < n => w.blame("the signal of a call came after its result"),
            Op::Await(_) | Op::Handled(_) => {}
            Op::Call { .. } | Op::Renew(_) | Op::Exit => {
                w.guest.run = Run::Calling { sent: false };
                return;
            }
        }
        w.guest.context.pc += 1;
    });
}

/// What the guest's helper may send now.
fn send(moves: &mut Moves<'_>, w: &World, room: bool) {
    let case = moves.case;
    match w.guest.run {
        _ if w.guest.starting => moves.step("guest: says that it started", 0, w, |w| {
            put(w, room, Msg::Started);
            w.guest.starting = false;
        }),
        Run::Faulting { page, asked: false } => moves.step("guest: pulls a page", page, w, |w| {
            put(w, room, Msg::Pull(page));
            w.guest.run = Run::Faulting { page, asked: true };
        }),
        Run::Calling { sent: false } if w.guest.queued > 0 && !case.is(Mutant::CallOvertakesSignal) => {
            let pc = w.guest.context.pc;
            moves.step("guest: puts off a call", pc, w, |w| w.guest.run = Run::Computing);
        }
        Run::Calling { sent: false } => {
            moves.step("guest: sends a call", w.guest.context.pc, w, |w| send_call(case, w, room));
        }
        _ => {}
    }
    if !w.guest.starting {
        send_pages(moves, w, room);
    }
}

/// Into the connection; a mutant begins to write where there is no room, and is stuck.
fn put(w: &mut World, room: bool, msg: Msg) {
    if room {
        w.to_home.send(msg);
    } else {
        w.guest.stuck = Some(msg);
    }
}

fn send_call(case: &Case, w: &mut World, room: bool) {
    let (set, bytes) = inputs(case, &w.guest);
    w.guest.seq += 1;
    w.guest.run = Run::Calling { sent: true };
    let Guest { seq, got, context, .. } = w.guest;
    let pc = context.pc;
    put(w, room, Msg::Call { seq, pc, got, set, bytes });
}

fn send_page(w: &mut World, room: bool, page: u8) {
    let bytes = page_bytes(&w.guest.memory, page);
    w.guest.pages[usize::from(page)] = Page::Clean;
    put(w, room, Msg::Page { page, bytes });
}

/// Written pages go home: some ahead, while the program runs; the rest, and then the residual, when it is frozen.
fn send_pages(moves: &mut Moves<'_>, w: &World, room: bool) {
    let written = (0..PAGES as u8).filter(|&p| w.guest.pages[usize::from(p)] == Page::Written);
    if waits_for_memory_call(moves.case, &w.guest) {
        return;
    }
    match w.guest.run {
        Run::Frozen { .. } => {
            for page in written {
                moves.step("guest: sends a page of the rest", page, w, |w| send_page(w, room, page));
            }
        }
        Run::HandedOver => {}
        _ if w.guest.recall && w.guest.presync > 0 => {
            for page in written {
                moves.step("guest: sends a page ahead", page, w, |w| {
                    send_page(w, room, page);
                    w.guest.presync -= 1;
                });
            }
        }
        _ => {}
    }
    if let Run::Frozen { awaiting } = w.guest.run
        && w.guest.pages.iter().all(|p| *p != Page::Written)
    {
        moves.step("guest: sends the residual", 0, w, |w| send_residual(w, room, awaiting));
    }
}

fn send_residual(w: &mut World, room: bool, awaiting: Option<u8>) {
    let Guest { context, got, queued, .. } = w.guest;
    w.guest = Guest { run: Run::HandedOver, ..Guest::ABSENT };
    put(w, room, Msg::Residual { context, awaiting, got, queued });
}

/// The bytes that a call reads, where home's copy is not the truth.
fn inputs(case: &Case, guest: &Guest) -> (u8, Cells) {
    let reads = case.script[usize::from(guest.context.pc)].reads();
    let mut bytes = Cells::default();
    let mut set = 0;
    for cell in cells(reads).filter(|&c| guest.pages[page_of(c)] == Page::Written) {
        if !case.is(Mutant::InputsNotSent) {
            set |= 1 << cell;
            bytes[cell] = guest.memory[cell];
        }
    }
    (set, bytes)
}

fn receive(case: &Case, w: &mut World, msg: Msg) {
    let guest = &mut w.guest;
    match msg {
        Msg::Start(context) => {
            *guest = Guest { run: Run::Computing, context, starting: true, presync: case.presync, ..Guest::ABSENT };
        }
        _ if guest.run == Run::HandedOver => {}
        Msg::Page { page, bytes, .. } => {
            if guest.pages[usize::from(page)] == Page::Absent {
                put_page(&mut guest.memory, page, bytes, 0);
                guest.pages[usize::from(page)] = Page::Clean;
            }
            if matches!(guest.run, Run::Faulting { page: wanted, .. } if wanted == page) {
                guest.run = Run::Computing;
            }
        }
        Msg::Signal => {
            guest.queued += 1;
            guest.got += 1;
        }
        Msg::Recall => guest.recall = true,
        Msg::Interrupted { seq } if in_flight(guest) == Some(seq) => {
            if guest.run == (Run::Calling { sent: true }) {
                guest.run = Run::Computing;
            }
        }
        Msg::Reply { seq, set, bytes } if in_flight(guest) == Some(seq) => {
            // A frozen guest ignores it: home knows what the call did, and lays it over what comes home.
            if guest.run == (Run::Calling { sent: true }) {
                reply(case, guest, set, &bytes);
            }
        }
        _ => w.blame("an answer to no call"),
    }
}

fn reply(case: &Case, guest: &mut Guest, set: u8, bytes: &Cells) {
    for cell in cells(set) {
        let page = &mut guest.pages[page_of(cell)];
        if *page != Page::Absent {
            guest.memory[cell] = bytes[cell];
            // The kernel sees it written. So it goes home again, and over a copy that was on its way meanwhile.
            if !case.is(Mutant::ReplyLeavesClean) {
                *page = Page::Written;
            }
        }
    }
    if let Op::Renew(page) = case.script[usize::from(guest.context.pc)] {
        guest.pages[usize::from(page)] = Page::Absent;
    }
    guest.context.pc += 1;
    guest.run = Run::Computing;
}
