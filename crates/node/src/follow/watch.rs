//! Looks at the families of placed processes and has those moved that are due.

use super::{Aim, Ended, Going, NEVER, Placed, Seen};
use crate::balancing::facts;
use crate::choice;
use crate::daemon::Node;
use crate::moves;
use crate::owner::{Caller, Facts, exists};
use crate::pace;
use crate::processes::Known;
use crate::sys;
use crate::views::{Event, MoveRequest};
use pando_balance::{Children, Other, Process};
use pando_kernel::procfs::{self, Stat};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(50);
/// The same while nobody is followed.
const SELDOM: Duration = Duration::from_millis(250);
/// Processes of one user that are looked at in one round.
const MAX_SEEN: usize = 16_384;

/// Looks until the daemon ends.
pub async fn keep(node: Arc<Node>) {
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut seldom = pace::every(SELDOM);
    loop {
        if node.follow().pids().is_empty() {
            // Whom a daemon before us placed comes by himself.
            tokio::select! {
                () = node.followed.notified() => {}
                _ = seldom.tick() => {}
            }
        } else {
            ticks.tick().await;
        }
        if node.config.follow.after_ms > 0 {
            adopt(&node);
        }
        let pids = node.follow().pids();
        if pids.is_empty() {
            continue;
        }
        let all = || pids.into_values().flat_map(|of_one_user| look(&node, of_one_user)).collect::<Vec<_>>();
        let seen = tokio::task::block_in_place(all);
        for going in node.follow().step(begun.elapsed().as_millis() as u64, &seen) {
            let node = node.clone();
            tokio::spawn(async move { go(&node, going).await });
        }
    }
}

/// Those that a daemon before us placed and wrote nothing down of, not even that they are there: they are away, and we know of no move.
fn adopt(node: &Node) {
    let me = node.name();
    let away: Vec<(u32, u64, String, bool)> = {
        let table = node.table();
        let unknown = |k: &&Known| k.view.role == "home" && k.view.moves == 0 && !k.recalled;
        let mine = table.all().filter(unknown).filter(|k| k.view.place != me && k.view.phase == "away");
        mine.map(|k| (k.view.pid, k.start_time, k.view.place.clone(), k.view.run)).collect()
    };
    for (pid, start_time, place, run) in away {
        let known = node.engine.is_moving(pid) || node.balancing.goes_to(&me, pid).is_some();
        if !known && !node.follow().knows(pid, start_time) {
            // That nothing was written down of a program that may be balanced means that it was on its way when the daemon crashed: most likely
            // that was no user's wish, and to nail it down there would be for ever.
            let aim = if run && node.config.balance.every_ms > 0 { Aim::Best } else { Aim::Node(place) };
            let family = aim != Aim::Best;
            placed(node, pid, start_time, aim, family);
        }
    }
}

/// Notes that a process was sent somewhere, with all that it has started (`family`) or with what it starts from now on.
pub fn placed(node: &Node, pid: u32, start_time: u64, aim: Aim, family: bool) {
    let (Some(stat), Ok(facts)) = (procfs::stat(pid as i32).filter(Stat::lives), Facts::read(pid)) else {
        return;
    };
    if stat.start_time == start_time {
        if family {
            let under: Vec<u32> = look(node, vec![pid]).iter().map(|s| s.pid).filter(|p| *p != pid).collect();
            node.follow().redirect(&under, &aim);
        }
        let cpu_ms = stat.cpu_ticks * sys::MS_A_TICK;
        let (uid, since) = (facts.uids[0], if family { 0 } else { sys::boot_ticks() });
        let after_ms = {
            let table = node.table();
            table.get(&table.local(pid)).and_then(|k| k.wish.children)
        };
        let after_ms = after_ms.map(|when| match when {
            Children::Never => NEVER,
            Children::After(ms) => ms,
        });
        node.follow().placed(Placed { pid, start_time, uid, aim, cpu_ms, after_ms, since });
        node.followed.notify_one();
    }
}

/// All of `pids` and their descendants, parents first.
fn look(node: &Node, pids: Vec<u32>) -> Vec<Seen> {
    let mut found: BTreeSet<u32> = pids.iter().copied().collect();
    let mut queue: VecDeque<u32> = pids.into();
    let mut seen = Vec::new();
    while let Some(pid) = queue.pop_front() {
        let Some(stat) = procfs::stat(pid as i32).filter(Stat::lives) else { continue };
        let known = node.follow().knows(pid, stat.start_time);
        let uid = if known { None } else { single_user(pid) };
        let (start_time, parent, cpu_ms) =
            (stat.start_time, stat.parent.unsigned_abs(), stat.cpu_ticks * sys::MS_A_TICK);
        let (calls, cpu_abroad_ms) = abroad(node, pid);
        let native = is_native(node, pid);
        seen.push(Seen { pid, start_time, parent, uid, cpu_ms, native, calls, cpu_abroad_ms });
        let children = procfs::children(pid as i32).into_iter().map(i32::unsigned_abs);
        queue.extend(children.filter(|c| found.len() < MAX_SEEN && found.insert(*c)));
    }
    seen
}

/// The descendants of a process that are away.
pub fn away_under(node: &Node, pid: u32) -> Vec<u32> {
    let me = node.name();
    let is_away = |pid: &u32| node.place_of(*pid) != me;
    look(node, vec![pid]).iter().map(|s| s.pid).filter(|p| *p != pid).filter(is_away).collect()
}

/// Calls that home answered and CPU time used elsewhere.
fn abroad(node: &Node, pid: u32) -> (u64, u64) {
    let table = node.table();
    table.get(&table.local(pid)).map_or((0, 0), |k| (k.view.calls, k.view.cpu_abroad_ms))
}

fn is_native(node: &Node, pid: u32) -> bool {
    let table = node.table();
    let at_home = table.get(&table.local(pid)).is_none_or(|k| k.view.phase == "home");
    at_home && !node.engine.is_moving(pid)
}

fn single_user(pid: u32) -> Option<u32> {
    let uids = Facts::read(pid).ok()?.uids;
    uids.iter().all(|u| *u == uids[0]).then_some(uids[0])
}

async fn go(node: &Arc<Node>, going: Going) {
    let process = facts::about(node, going.pid);
    let dest = match &going.aim {
        Aim::Home => going.returns.then(|| node.name()),
        // Its user wants it there, but whoever has that node does not just now, or it has no memory for it.
        Aim::Node(name) if going.back => {
            Some(name.clone()).filter(|name| is_open(node, name) && has_memory(node, name, &process))
        }
        Aim::Node(name) => Some(name.clone()),
        // Wherever it was: others may have gone there meanwhile, and home may be as good.
        Aim::Best => choice::better(node, &process),
    };
    let Some(dest) = dest else {
        return node.follow().ended(going.pid, Ended::NotNow);
    };
    if !node.follow().still_goes(&going) {
        return;
    }
    let caller = Caller { uid: going.uid, pid: 0 };
    if Facts::read(going.pid).is_ok_and(|f| !f.permits(caller)) {
        // It has become another user's since: nobody has asked for anything that needs a refusal in the audit log.
        return node.follow().forget(going.pid);
    }
    let request = MoveRequest { pid: going.pid, dest, reason: Some(going.why.clone()), family: false };
    let result = moves::perform(node, caller, &request).await;
    if let Err(refused) = &result {
        tell(node, &going, &request.dest, refused.text());
    }
    let how = if result.is_ok() { Ended::Went } else { Ended::Failed };
    node.follow().ended(going.pid, how);
}

fn is_open(node: &Node, name: &str) -> bool {
    node.cluster.nodes().iter().any(|n| n.name == *name && !["drained", "owner"].contains(&n.standing.as_str()))
}

/// What is not known is tried.
fn has_memory(node: &Node, name: &str, process: &Process) -> bool {
    let others = node.balancing.others(node);
    let less = i64::try_from(process.needs()).unwrap_or(i64::MAX);
    let is_short = |o: &Other| pando_balance::need(&o.load.with_memory(-less), &node.config.balance) > 0;
    !others.iter().any(|o| o.name == name && is_short(o))
}

/// That it did not go, unless as much has been said of its family often enough.
fn tell(node: &Node, going: &Going, dest: &str, why: &str) {
    let count = node.follow().refused(going.family, why);
    if !exists(going.pid) || !is_round(count) {
        return;
    }
    let (pid, home) = (going.pid, node.name());
    let so_often = if count > 1 { format!(", number {count} of this family with this reason") } else { String::new() };
    let text = format!("process {pid} did not move to {dest} ({}){so_often}: {why}", going.why);
    let (to, reason) = (Some(dest.to_owned()), Some(why.to_owned()));
    let (uid, pid, from) = (Some(going.uid), Some(pid), Some(home.clone()));
    node.events.say(Event { uid, pid, home: Some(home), from, to, reason, ..Event::new("failed", text) });
}

/// 1, 10, 100, ...: what is said again and again is noise, but how often it happens is worth a word.
fn is_round(count: u64) -> bool {
    count.checked_ilog10().is_some_and(|digits| 10u64.pow(digits) == count)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_refusal_is_told_ever_more_seldom() {
        let told: Vec<u64> = (0..2000).filter(|n| super::is_round(*n)).collect();
        assert_eq!(told, [1, 10, 100, 1000]);
    }
}
