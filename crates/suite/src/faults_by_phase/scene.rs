//! One fault in one phase, from the start of the programs to the last look at the nodes.

use super::cast::{self, Actor, until};
use super::{Fate, Fault, Phase, fate};
use crate::aftermath::{guests, left_behind, logs, tells};
use crate::api;
use crate::evidence;
use crate::mover::{Moved, Mover};
use crate::processes::{self, Process};
use crate::testbed::{NodeInfo, Testbed};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a node is cut off: longer than a heartbeat, shorter than `lost_after`, and than TCP's first second.
const CUT: Duration = Duration::from_millis(800);
/// How long one is stalled.
const STALL: Duration = Duration::from_millis(1200);
/// The same, so that it is taken for a loss whatever the phase.
const LONG: Duration = Duration::from_millis(3500);
/// Longest wait for anything that must come.
const PATIENCE: Duration = Duration::from_secs(15);
/// What is left after a fault must be gone within this.
const GONE_WITHIN: Duration = Duration::from_secs(8);

/// Gives what was wrong.
pub(super) fn play(phase: Phase, fault: Fault, testbed: &mut Testbed) -> Result<Vec<String>, String> {
    cast::references();
    let mut actors = cast::start(testbed)?;
    let pids: Vec<u32> = actors.iter().map(|a| a.pid).collect();
    let (first, then) = phase.journey();
    if let Some(first) = first {
        go_to(testbed, &pids, first)?;
    }
    let holds = holds(phase, testbed, &pids)?;
    let (socket, shared) = (testbed.nodes[0].socket.clone(), &*testbed);
    let mut met = BTreeSet::new();
    let struck = std::thread::scope(|scope| {
        let ask = |pid: u32| {
            let socket = &socket;
            scope.spawn(move || api::move_to(socket, pid, then, PATIENCE))
        };
        let moves: Vec<_> = pids.iter().map(|pid| ask(*pid)).collect();
        let mut struck = wait_held(&holds);
        if struck.is_ok() && phase == Phase::Away {
            struck = until(PATIENCE, || moves.iter().all(|m| m.is_finished()).then_some(()))
                .ok_or("it did not get away".to_string());
        }
        met = guests(&evidence::helpers(&shared.nodes));
        let struck = struck.and_then(|()| strike(phase, fault, shared, &pids, &holds));
        release(&holds);
        let answers: Vec<_> = moves.into_iter().map(|m| m.join()).collect();
        let silent =
            |a: &Result<api::Answer, String>| a.as_ref().err().filter(|e| e.contains("no answer within")).cloned();
        match answers.iter().flatten().find_map(silent) {
            Some(silence) if struck.is_ok() => Err(format!("who asked for the move: {silence}")),
            _ => struck,
        }
    });
    let mut wrong: Vec<String> = struck.err().into_iter().collect();
    if wrong.is_empty() {
        for actor in &mut actors {
            let found = outcome(fate(phase, fault), actor, testbed);
            let seen = if found.is_empty() { String::new() } else { testbed.evidence(actor.pid) };
            wrong.extend(found.into_iter().map(|f| format!("{}: {f}\n{seen}", actor.name)));
        }
    } else {
        wrong.push(testbed.evidence(pids[0]));
    }
    mend(fault, phase, testbed)?;
    testbed.look()?;
    drop(actors);
    wrong.extend(left_behind(testbed, &met, GONE_WITHIN));
    Ok(wrong)
}

fn go_to(testbed: &Testbed, pids: &[u32], node: &str) -> Result<(), String> {
    for &pid in pids {
        match testbed.move_to(pid, node, PATIENCE) {
            Moved::To(..) => {}
            other => return Err(format!("the first move, to {node}: {other:?}\n{}", testbed.evidence(pid))),
        }
    }
    Ok(())
}

fn node<'a>(testbed: &'a Testbed, name: &str) -> Result<&'a NodeInfo, String> {
    testbed.nodes.iter().find(|n| n.name == name).ok_or(format!("no node {name}"))
}

/// Says where the helpers are to stand still; gives the files that will be there when they do.
fn holds(phase: Phase, testbed: &Testbed, pids: &[u32]) -> Result<Vec<PathBuf>, String> {
    let Some(place) = phase.place() else { return Ok(Vec::new()) };
    let dir = node(testbed, place.node)?.log.with_file_name("state").join("holds");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let wish = |pid: &u32| {
        let file = dir.join(format!("{}-{}-{pid}", place.side, place.phase));
        std::fs::write(&file, "").map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(file.with_extension("held"))
    };
    pids.iter().map(wish).collect()
}

fn wait_held(holds: &[PathBuf]) -> Result<(), String> {
    match until(PATIENCE, || holds.iter().all(|h| h.exists()).then_some(())) {
        Some(()) => Ok(()),
        None => Err("it did not come to that phase".into()),
    }
}

fn release(holds: &[PathBuf]) {
    for held in holds {
        let _ = std::fs::remove_file(held);
        let _ = std::fs::remove_file(held.with_extension(""));
    }
}

/// The helpers of a role at a node.
fn helpers(testbed: &Testbed, role: &str, node: &str) -> Vec<Process> {
    let mut found = evidence::helpers(&testbed.nodes);
    found.retain(|h| h.args.iter().any(|a| a == role) && processes::has(h.pid, "PANDO_TESTBED_NODE", node));
    found
}

/// Strikes, and lets the helpers go on: after a kill, during a pause.
fn strike(phase: Phase, fault: Fault, testbed: &Testbed, pids: &[u32], holds: &[PathBuf]) -> Result<(), String> {
    let target = phase.target();
    let of_role = |role: &str, node: &str| helpers(testbed, role, node).iter().map(|h| h.pid).collect();
    let all_guests = || guests(&helpers(testbed, "__guest", target));
    match fault {
        Fault::KillTargetDaemon => testbed.pando(&["testbed", "kill", "--daemon", target]).map(drop),
        Fault::KillHomeDaemon => testbed.pando(&["testbed", "kill", "--daemon", "n1"]).map(drop),
        Fault::KillGuestHelper => kill(of_role("__guest", target)),
        Fault::KillGuest => kill(all_guests()),
        Fault::KillDeputy => kill(of_role("__deputy", "n1")),
        Fault::KillFormerHelper => kill(of_role("__guest", "n2")),
        Fault::KillProcess => kill(pids.iter().copied().collect()),
        Fault::CutForLong => testbed.pando(&["testbed", "cut", target]).map(drop),
        Fault::CutAndHeal => pause(testbed, "cut", target, holds, CUT),
        Fault::StallTarget => pause(testbed, "stall", target, holds, STALL),
        Fault::StallHome => pause(testbed, "stall", "n1", holds, STALL),
        Fault::StallTargetForLong => pause(testbed, "stall", target, holds, LONG),
        Fault::StallHomeForLong => pause(testbed, "stall", "n1", holds, LONG),
    }
}

/// The fault lasts, and the helpers meet it where they stand.
fn pause(testbed: &Testbed, verb: &str, node: &str, holds: &[PathBuf], long: Duration) -> Result<(), String> {
    testbed.pando(&["testbed", verb, node])?;
    release(holds);
    std::thread::sleep(long);
    testbed.pando(&["testbed", "heal", node]).map(drop)
}

/// kill -9 of all; waits until they are gone, so that the fault comes before what follows.
fn kill(victims: BTreeSet<u32>) -> Result<(), String> {
    if victims.is_empty() {
        return Err("there was nothing to kill".into());
    }
    for &pid in &victims {
        processes::signal(pid, "KILL");
    }
    let gone = |pid: &u32| processes::read(*pid).is_none_or(|p| p.state == 'Z');
    until(PATIENCE, || victims.iter().all(gone).then_some(())).ok_or(format!("{victims:?} do not die"))
}

fn mend(fault: Fault, phase: Phase, testbed: &Testbed) -> Result<(), String> {
    match fault {
        Fault::KillTargetDaemon => testbed.pando(&["testbed", "start", phase.target()]).map(drop),
        Fault::KillHomeDaemon => testbed.pando(&["testbed", "start", "n1"]).map(drop),
        Fault::CutForLong => testbed.pando(&["testbed", "heal", phase.target()]).map(drop),
        _ => Ok(()),
    }
}

/// Whether its home says that a process is there.
fn is_home(testbed: &Testbed, pid: u32) -> bool {
    let known = api::processes(&testbed.nodes[0].socket).unwrap_or_default();
    let ours = known.as_array().into_iter().flatten().find(|p| p["pid"] == pid);
    ours.is_some_and(|p| p["place"] == "n1" && p["phase"] == "home")
}

/// What is wrong with what came of a program.
fn outcome(fate: Fate, actor: &mut Actor, testbed: &Testbed) -> Vec<String> {
    match fate {
        Fate::Exact => {}
        Fate::Home | Fate::HomeWithPage => {
            let page = fate == Fate::HomeWithPage;
            if until(PATIENCE, || actor.not_by_itself(page).is_none().then_some(())).is_none() {
                return actor.not_by_itself(page).into_iter().collect();
            }
        }
        Fate::Ended | Fate::Killed => return ended(fate, actor, testbed),
        Fate::ExactOrEnded => {
            until(PATIENCE, || (!actor.lives() || is_home(testbed, actor.pid)).then_some(()));
            if !actor.lives() {
                return ended(fate, actor, testbed);
            }
        }
    }
    let mut found = Vec::new();
    if let Some(how) = actor.how_it_ended() {
        found.push(format!("it ended too early: {how}"));
    }
    actor.may_end();
    let outcome = actor.end(PATIENCE);
    found.extend(outcome.hang.as_ref().map(|h| format!("it hangs: {h}")));
    found.extend(actor.differences(&outcome));
    found
}

fn ended(fate: Fate, actor: &mut Actor, testbed: &Testbed) -> Vec<String> {
    let outcome = actor.end(PATIENCE);
    if outcome.hang.is_some() || outcome.ended != "signal 9" {
        let how = outcome.hang.unwrap_or(outcome.ended);
        return vec![format!("it must have ended with signal 9: {how}")];
    }
    let began = Instant::now();
    let told = || logs(testbed).lines().any(|l| tells(l, actor.pid)).then_some(());
    if fate != Fate::Killed && until(Duration::from_secs(5), told).is_none() {
        return vec![format!("it ended, and no log says why within {:?}", began.elapsed())];
    }
    Vec::new()
}
