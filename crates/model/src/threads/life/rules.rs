//! What must hold in every state, and where everything may rest.

use super::super::THREADS;
use super::state::{Context, Half, Helper, Run, World};
use super::{Case, Op};

pub fn check(case: &Case, w: &World) -> Result<(), String> {
    if let Some(wrong) = w.wrong {
        return Err(wrong.into());
    }
    let abroad = matches!(w.home.helper, Helper::Committing | Helper::Away);
    if abroad && w.home.half.contains(&Half::Native) {
        return Err("a thread runs at home while the process is abroad".into());
    }
    let died = case.scripts[1].iter().position(|op| *op == Op::Die).is_some_and(|at| w.once[1] & (1 << at) != 0);
    if died && w.lives(1) {
        return Err("a thread that has ended is there again".into());
    }
    let handled = |contexts: &[Context]| contexts.iter().map(|c| c.handled).sum::<u8>();
    if handled(&w.home.context).max(handled(&w.guest.context)) > w.raised {
        return Err("a signal is delivered twice".into());
    }
    let broke = w.left.cuts < case.cuts || w.left.kills < case.kills;
    if w.home.ended && !broke {
        return Err("the process is ended though nothing broke".into());
    }
    Ok(())
}

pub fn may_rest(case: &Case, w: &World) -> Result<(), String> {
    if w.wrong.is_some() {
        return Ok(());
    }
    if w.home.ended || w.home.helper == Helper::None {
        if w.guest.there {
            return Err("the guest outlives the process, or its stay".into());
        }
        if w.home.ended {
            return Ok(());
        }
    }
    if w.home.recall && w.home.helper == Helper::Away {
        return Err("come home never happens".into());
    }
    let mut handled = w.handled_by_dead;
    for thread in 0..THREADS {
        if w.home.pending[thread] > 0 || w.guest.queued[thread] > 0 {
            return Err("a signal is never delivered".into());
        }
        let away = w.home.helper == Helper::Away;
        if away && w.lives(thread) != (w.guest.run[thread] != Run::None) {
            return Err("a thread is on one side only".into());
        }
        let context = match (w.home.half[thread], w.guest.run[thread]) {
            (Half::Unborn | Half::Exited, _) => continue,
            (Half::Native, _) => w.home.context[thread],
            (Half::InCall, _) => w.home.context[thread],
            (Half::Parked, Run::Computing) => w.guest.context[thread],
            _ => return Err("a thread never goes on".into()),
        };
        handled += context.handled;
        let waits = match case.op(thread, context.pc) {
            None => true,
            Some(Op::Join) => w.lives(1),
            Some(_) => case.blocks(thread, context.pc) && w.input == 0,
        };
        if !waits {
            return Err("a thread never goes on".into());
        }
    }
    if handled != w.raised {
        return Err("a signal is lost".into());
    }
    Ok(())
}
