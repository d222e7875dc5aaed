//! Where everything may rest.

use super::program::{Op, count, page_of};
use super::state::{Half, Page, Run, World};
use super::{Case, THREADS};

pub fn may_rest(case: &Case, w: &World) -> Result<(), String> {
    if w.wrong.is_some() {
        return Ok(());
    }
    if w.up && w.home.recall {
        return Err("come home never happens".into());
    }
    for thread in 0..THREADS {
        let here = match (w.home.half[thread], w.guest.run[thread]) {
            (Half::Native(pc), _) => Some(pc),
            (Half::InCall, _) => w.home.call[thread].map(|call| call.pc),
            (Half::Parked, Run::Computing) => Some(w.guest.pc[thread]),
            _ => None,
        };
        let Some(pc) = here else {
            return Err("a thread never goes on".into());
        };
        let missing = (0..pc).find(|&at| {
            case.op(thread, at).is_some_and(Op::is_call) && w.once[thread] & (1 << at) == 0 && !skipped(case, w, thread)
        });
        if missing.is_some() {
            return Err("a call never had its effect".into());
        }
        let waits = match case.op(thread, pc) {
            None => true,
            Some(Op::See(cell, n)) => count(truth(w, cell.into())) < n,
            Some(op) => op.blocks() && w.input == 0,
        };
        if !waits {
            return Err("a thread never goes on".into());
        }
    }
    Ok(())
}

/// The thread ended early, because it did not get the page that it asked for.
fn skipped(case: &Case, w: &World, thread: usize) -> bool {
    let script = case.scripts[thread];
    let map = script.iter().position(|op| matches!(op, Op::Map(_)));
    map.is_some_and(|at| w.once[thread] >> at == 1)
}

/// What a cell holds, wherever that is.
fn truth(w: &World, cell: usize) -> u8 {
    let abroad = w.up && matches!(w.guest.pages[page_of(cell)], Page::Clean | Page::Written);
    if abroad { w.guest.memory[cell] } else { w.home.memory[cell] }
}
