//! What must hold in every state, and where everything may rest.

use super::Case;
use super::program::Op;
use super::state::{Body, Helper, Msg, Run, World};

pub fn check(case: &Case, w: &World) -> Result<(), String> {
    if let Some(wrong) = w.wrong {
        return Err(wrong.into());
    }
    let holders = batons(w);
    if holders > 1 {
        return Err(format!("{holders} batons"));
    }
    if matches!(w.home.body, Body::Native(_)) && (w.home.committed || w.home.helper == Helper::Away) {
        return Err("the program runs at home while its memory is abroad".into());
    }
    if let Body::Native(context) = w.home.body
        && context.handled > w.raised
    {
        return Err("a signal is delivered twice at home".into());
    }
    if w.guest.context.handled > w.raised {
        return Err("a signal is delivered twice abroad".into());
    }
    let broke = w.left.cuts < case.cuts || w.left.kills < case.kills;
    if w.home.body == Body::Lost && !broke {
        return Err("the program is ended though nothing broke".into());
    }
    Ok(())
}

/// Who may change the program's memory and registers, with effect. A guest whose connection is gone computes
/// without effect.
fn batons(w: &World) -> usize {
    let body = match w.home.body {
        Body::Native(_) | Body::InCall => 1,
        _ => usize::from(w.home.owed.is_some()),
    };
    let listened_to = w.up && w.home.helper != Helper::None;
    let guest = match w.guest.run {
        Run::Computing | Run::Faulting { .. } | Run::Calling { sent: false } => 1,
        Run::Frozen { awaiting: None } => 1,
        _ => 0,
    };
    let on_the_way = w.to_guest.iter().filter(|m| matches!(m, Msg::Reply { .. } | Msg::Interrupted { .. })).count()
        + w.to_home.iter().filter(|m| matches!(m, Msg::Call { .. })).count();
    body + if listened_to { guest + on_the_way } else { 0 }
}

pub fn may_rest(case: &Case, w: &World) -> Result<(), String> {
    if w.wrong.is_some() {
        return Ok(());
    }
    match w.home.body {
        Body::Exited | Body::Lost if w.guest.run == Run::None => Ok(()),
        Body::Exited | Body::Lost => Err("the guest outlives the program".into()),
        _ if w.home.pending > 0 || w.guest.queued > 0 => Err("a signal is never delivered".into()),
        Body::Native(context) => waits(case, w, context.pc, context.handled),
        _ if w.home.recall && w.home.helper != Helper::Merging => Err("come home never happens".into()),
        Body::InCall => waits(case, w, w.home.call.map_or(0, |c| c.pc), w.raised),
        Body::Parked => match w.guest.run {
            Run::Computing => waits(case, w, w.guest.context.pc, w.guest.context.handled),
            _ => Err("the program never goes on".into()),
        },
    }
}

/// The program itself waits for something that has not come.
fn waits(case: &Case, w: &World, pc: u8, handled: u8) -> Result<(), String> {
    if handled != w.raised {
        return Err("a signal is lost".into());
    }
    match case.script[usize::from(pc)] {
        Op::Await(n) if handled < n => Ok(()),
        op if op.blocks() && w.input == 0 => Ok(()),
        _ => Err("the program never goes on".into()),
    }
}
