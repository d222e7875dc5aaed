//! Memory that is about to be free, because the processes that had it have left, or are leaving.

use super::facts::Key;
use crate::daemon::Node;
use pando_kernel::procfs;
use pando_migrate::control::Command;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What has been asked back is waited for so long. It may never come: a program all of whose threads wait in calls gives nothing back.
const COMES_WITHIN: Duration = Duration::from_secs(5);

/// A process that is away, and whose helper has been asked for home's memory.
pub struct Asked {
    /// Since when it is where it is: a new place, a new question.
    since: Instant,
    when: Instant,
}

/// Has the helpers of processes that are away give back home's copies of their memory.
pub fn give_back(node: &Node) {
    let me = node.name();
    let away: Vec<(Key, Instant)> = {
        let table = node.table();
        let mine = table.all().filter(|k| k.view.role == "home" && k.view.place != me && k.view.phase == "away");
        mine.map(|k| ((me.clone(), k.view.pid), k.since)).collect()
    };
    let mut state = node.balancing.state();
    state.released.retain(|key, _| away.iter().any(|(other, _)| other == key));
    for (key, since) in away {
        let Some(orders) = node.engine.deputy(&key) else { continue };
        if orders.try_send(Command::Release).is_ok() && state.released.get(&key).is_none_or(|a| a.since != since) {
            state.released.insert(key, Asked { since, when: Instant::now() });
        }
    }
}

/// Bytes of this node's memory that processes still have which have left or are leaving, and which it gets back.
pub fn coming(node: &Node) -> u64 {
    let me = node.name();
    let away: BTreeMap<u32, String> = {
        let table = node.table();
        let away = table.all().filter(|k| k.view.home == me && k.view.place != me);
        away.map(|k| (k.view.pid, k.view.place.clone())).collect()
    };
    let pids: BTreeSet<u32> = {
        let state = node.balancing.state();
        // Of one that goes from one other node to another memory comes here first.
        let leaves = |key: &Key, to: &str| key.0 == me && to != me && away.get(&key.1).is_none_or(|place| place == to);
        let stays = |key: &Key| state.going.get(key).is_none_or(|to| leaves(key, to));
        let asked = state.released.iter().filter(|(key, a)| a.when.elapsed() < COMES_WITHIN && stays(key));
        let going = state.going.iter().filter(|(key, to)| leaves(key, to)).map(|(key, _)| key);
        asked.map(|(key, _)| key).chain(going).map(|key| key.1).collect()
    };
    // What others share with it since a fork stays.
    let has = |pid: u32| procfs::proportional(pid as i32).or_else(|| Some(procfs::stat(pid as i32)?.resident));
    pids.into_iter().filter_map(has).sum()
}
