//! A batch job whose processes compute at another node, because the queue has its CPUs for others
//! (docs/decisions/0042-a-job-that-gives-way-is-moved.md). All of them are moved as `pando move` does it, or none; what they begin follows them.

use super::{Here, Inner, file, mark, may_come_back, ward};
use crate::audit::Entry;
use crate::balancing;
use crate::batch_job::{self, Told};
use crate::daemon::Node;
use crate::follow::{Aim, watch};
use crate::launcher::MARK;
use crate::owner::Facts;
use crate::queue::errand::Key;
use pando_kernel::job_group::JobGroup;
use pando_kernel::procfs::{self, Stat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

/// What was begun meanwhile is looked for so often.
const ROUNDS: usize = 8;
/// Moves at a time: a node takes only so many that have not proved who they are.
const AT_ONCE: usize = 2;
/// What fails is tried so often: a connection may be refused, and who follows its family may be on its way just now.
const TRIES: usize = 3;
/// Between two tries, and between two looks whether all are home.
const SOON: Duration = Duration::from_millis(150);
/// Who can't come home is tried again for so long before the queue asks again.
const COMES_WITHIN: Duration = Duration::from_secs(30);
/// The helpers of processes that are away say how these ended within this.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Between two looks for processes that began without one above them that is away.
const LOOK: Duration = Duration::from_millis(500);

/// The answer to [`Errand::Place`](crate::queue::errand::Errand).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placing {
    /// All of it is there.
    Done,
    /// All of it is where it was, and why.
    Not(String),
    /// Nobody knows yet: ask again.
    Later,
    /// There is no such run here.
    Unknown,
}

/// What is to be known of one that is away, or was.
#[derive(Default)]
pub(super) struct Abroad {
    /// Somebody sees to it just now.
    busy: bool,
    /// Its processes that were away, and CPU milliseconds that each has used there.
    used: BTreeMap<u32, u64>,
    /// A process of it was lost, with this node.
    lost: Option<String>,
    /// Its end is known: nothing more is written of it.
    over: bool,
}

impl Abroad {
    /// What its processes have used elsewhere until now, as far as has been said: milliseconds of CPU time.
    pub(super) fn cpu_ms(&self) -> u64 {
        self.used.values().sum()
    }
}

/// No second one sees to the same run as long as this is held.
struct Busy {
    node: Arc<Node>,
    key: Key,
}

impl Drop for Busy {
    fn drop(&mut self) {
        with(&self.node, &self.key, |here| here.abroad.busy = false);
    }
}

fn with<T>(node: &Node, key: &Key, what: impl FnOnce(&mut Here) -> T) -> Option<T> {
    ward(node).inner().all.get_mut(key).map(what)
}

/// Where its processes are to be, if not here.
fn place_of(node: &Node, key: &Key) -> Option<String> {
    with(node, key, |here| here.kept.away.clone()).flatten()
}

/// Has all processes of a run at this node, or brings them home if it is this one.
pub async fn place(node: &Arc<Node>, key: Key, to: String) -> Placing {
    if may_come_back(node).is_err() {
        // Which of its processes are away their helpers have yet to say.
        return Placing::Later;
    }
    match with(node, &key, |here| std::mem::replace(&mut here.abroad.busy, true)) {
        None => return Placing::Unknown,
        Some(true) => return Placing::Later,
        Some(false) => {}
    }
    let busy = Busy { node: node.clone(), key };
    // Who has asked may go away; what was begun is done to its end.
    let work = tokio::spawn(async move {
        let Busy { node, key } = &busy;
        let done = if to == node.name() { home(node, key).await } else { away(node, key, &to).await };
        let (allowed, why) = match &done {
            Placing::Not(why) => (false, why.clone()),
            _ => (true, "the queue has its CPUs for another one, or has them back".into()),
        };
        let (who, on) = (format!("the queue of {}", key.keeper), format!("batch job {} to {to}", key.id));
        node.audit.note(&Entry { who, what: "place", on, allowed, why });
        done
    });
    work.await.unwrap_or(Placing::Later)
}

async fn away(node: &Arc<Node>, key: &Key, to: &str) -> Placing {
    // Before the first one goes: if this daemon dies now, the next one has to know that they are no user's doing.
    let before = with(node, key, |here| here.kept.away.replace(to.to_owned())).flatten();
    write(node, key);
    if before.is_none() {
        tokio::spawn(accompany(node.clone(), key.clone()));
    }
    let reason = format!("queue: batch job {} gives way to another one", key.id);
    for round in 0..ROUNDS {
        let rest: Vec<u32> =
            block_in_place(|| processes(node, key)).into_iter().filter(|pid| node.place_of(*pid) != to).collect();
        if rest.is_empty() {
            break;
        }
        let why = match round {
            0 => obstacle(node, &rest).await,
            _ => None,
        };
        let why = match why {
            Some(why) => Some(why),
            None => all(node, key, &rest, to, &reason).await,
        };
        if let Some(why) = why {
            return match home(node, key).await {
                Placing::Done => Placing::Not(why),
                other => other,
            };
        }
    }
    Placing::Done
}

/// What keeps one of them here, as far as can be seen while it runs.
async fn obstacle(node: &Arc<Node>, all: &[u32]) -> Option<String> {
    for pid in all {
        if let Some(why) = balancing::obstacles(node, *pid).await.filter(|_| lives(*pid)) {
            return Some(why);
        }
    }
    None
}

/// Moves them; why one of them could not be.
async fn all(node: &Arc<Node>, key: &Key, pids: &[u32], to: &str, reason: &str) -> Option<String> {
    let mut rest: Vec<(u32, String)> = pids.iter().map(|pid| (*pid, String::new())).collect();
    for attempt in 0..TRIES {
        if attempt > 0 {
            sleep(SOON).await;
        }
        let mut failed = Vec::new();
        for some in rest.chunks(AT_ONCE) {
            let mut moves = JoinSet::new();
            for (pid, _) in some {
                with(node, key, |here| _ = here.abroad.used.entry(*pid).or_default());
                moves.spawn(send(node.clone(), *pid, to.to_owned(), reason.to_owned()));
            }
            while let Some(done) = moves.join_next().await {
                failed.extend(done.ok().flatten());
            }
        }
        rest = failed;
        if rest.is_empty() {
            return None;
        }
    }
    rest.pop().map(|(_, why)| why)
}

/// One of them; if it could not be moved and lives, why.
async fn send(node: Arc<Node>, pid: u32, to: String, reason: String) -> Option<(u32, String)> {
    let start_time = procfs::start_time(pid as i32).unwrap_or(0);
    match balancing::perform(&node, pid, &to, &reason).await {
        Ok(()) => {
            block_in_place(|| watch::placed(&node, pid, start_time, Aim::Node(to), true));
            None
        }
        Err(why) => Some((pid, why)).filter(|_| lives(pid)),
    }
}

/// All that are away come home, and nobody follows any more.
async fn home(node: &Arc<Node>, key: &Key) -> Placing {
    let until = Instant::now() + COMES_WITHIN;
    let mut clean = 0;
    // Who set out after his family just before that was called off is seen at the second look.
    while clean < 2 {
        let all_home = come(node, key).await;
        clean = if all_home { clean + 1 } else { 0 };
        if with(node, key, |_| ()).is_none() {
            return Placing::Unknown;
        }
        if !all_home && Instant::now() > until {
            return Placing::Later;
        }
        sleep(SOON).await;
    }
    with(node, key, |here| here.kept.away = None);
    write(node, key);
    Placing::Done
}

/// Has them come; whether all were home.
async fn come(node: &Arc<Node>, key: &Key) -> bool {
    let me = node.name();
    let reason = format!("queue: batch job {} comes home", key.id);
    let there = block_in_place(|| processes(node, key));
    node.follow().redirect(&there, &Aim::Home);
    let mut all_home = true;
    for pid in there {
        let is_moving = node.engine.is_moving(pid);
        all_home &= !is_moving;
        if is_moving || node.place_of(pid) == me {
            continue;
        }
        all_home = false;
        let start_time = procfs::start_time(pid as i32).unwrap_or(0);
        match balancing::perform(node, pid, "home", &reason).await {
            Ok(()) => block_in_place(|| watch::placed(node, pid, start_time, Aim::Home, true)),
            Err(why) if lives(pid) => {
                tracing::info!("queue: process {pid} of batch job {} does not come home yet: {why}", key.id);
            }
            Err(_) => {}
        }
    }
    all_home
}

/// As long as it is away: who began under nobody that is (a rank of a step, whose launcher stays) goes there, too, when it computes.
pub(in crate::queue) async fn accompany(node: Arc<Node>, key: Key) {
    while let Some(to) = place_of(&node, &key) {
        block_in_place(|| {
            for pid in processes(&node, &key) {
                with(&node, &key, |here| _ = here.abroad.used.entry(pid).or_default());
                let Some(stat) = procfs::stat(pid as i32).filter(Stat::lives) else { continue };
                // Of one that is being moved just now its mover says where it is to be.
                let known = node.follow().knows(pid, stat.start_time) || node.engine.is_moving(pid);
                let stays = |here: &mut Here| !here.abroad.busy && here.kept.away.as_ref() == Some(&to);
                if !known && with(&node, &key, stays) == Some(true) {
                    watch::placed(&node, pid, stat.start_time, Aim::Node(to.clone()), true);
                }
            }
        });
        sleep(LOOK).await;
    }
}

/// Its processes that may be moved: neither Pando's own, nor those that have ended.
fn processes(node: &Node, key: &Key) -> Vec<u32> {
    let Some(groups) = with(node, key, |here| here.kept.groups.clone()) else { return Vec::new() };
    let mut all = JobGroup::again(groups).pids();
    if all.is_empty() {
        let (mark, run) = (mark(node), batch_job::name_of(key));
        let is = |pid: i32, name: &str, value: &str| procfs::variable(pid, name).is_some_and(|v| v == value);
        let is_of_it = |pid: &i32| is(*pid, MARK, &mark) && is(*pid, batch_job::RUN, &run);
        all = procfs::processes().into_iter().filter(is_of_it).collect();
    }
    let program = |who: &str| fs::metadata(format!("/proc/{who}/exe")).map(|m| (m.dev(), m.ino())).ok();
    let ours = program("self");
    all.retain(|pid| ours.is_none() || program(&pid.to_string()) != ours);
    all.into_iter().map(i32::unsigned_abs).filter(|pid| lives(*pid)).collect()
}

fn lives(pid: u32) -> bool {
    Facts::read(pid).is_ok_and(|facts| !facts.zombie)
}

/// Puts down where it is: the next daemon reads it.
fn write(node: &Node, key: &Key) {
    let name = file(node, key);
    let new: PathBuf = node.place.state.join(format!("batch.{}.{}.new", key.id, key.run));
    let inner = ward(node).inner();
    let Some(here) = inner.all.get(key).filter(|here| !here.abroad.over && name.exists()) else { return };
    let text = serde_json::to_vec(&here.kept).unwrap_or_default();
    if let Err(e) = fs::write(&new, text).and_then(|()| fs::rename(&new, &name)) {
        tracing::error!("queue: where batch job {} computes can't be written down: {e}", key.id);
    }
}

fn of_process(inner: &mut Inner, pid: u32) -> Option<(&Key, &mut Here)> {
    inner.all.iter_mut().find(|(_, here)| here.abroad.used.contains_key(&pid))
}

/// A process whose home is here has used so much CPU time elsewhere.
pub fn counts(node: &Node, pid: u32, cpu_ms: u64) {
    let mut inner = ward(node).inner();
    if let Some(used) = of_process(&mut inner, pid).and_then(|(_, here)| here.abroad.used.get_mut(&pid)) {
        *used = cpu_ms.max(*used);
    }
}

/// A process whose home is here was lost at another node: if it is a batch job's, all of that is.
pub fn lost(node: &Node, pid: u32, at: &str) {
    let mut inner = ward(node).inner();
    let Some((_, here)) = of_process(&mut inner, pid) else { return };
    if here.kept.away.is_some() && here.abroad.lost.replace(at.to_owned()).is_none() {
        let told = Told::End(format!("process {pid} of it was lost at node {at}"));
        match &here.tell {
            Some(tell) => _ = tell.send(told),
            None => here.waits.push(told),
        }
    }
}

/// Does the queue say where this process is? Which batch job it is of.
pub fn decides(node: &Node, pid: u32) -> Option<String> {
    let mut inner = ward(node).inner();
    of_process(&mut inner, pid).filter(|(_, here)| here.kept.away.is_some()).map(|(key, _)| key.id.to_string())
}

/// At its end: with which node it was lost, if it was, and the CPU milliseconds that it has used elsewhere.
pub(super) async fn sum(node: &Node, key: &Key) -> (Option<String>, u64) {
    let until = Instant::now() + LAST_WORDS;
    loop {
        let all = with(node, key, |here| {
            here.abroad.over = true;
            (here.abroad.lost.clone(), here.abroad.used.clone())
        });
        let Some((lost, used)) = all else { return (None, 0) };
        let unsaid = {
            let table = node.table();
            used.keys().any(|pid| table.get(&table.local(*pid)).is_some_and(|known| known.connected))
        };
        if !unsaid || Instant::now() > until {
            return (lost, used.values().sum());
        }
        sleep(Duration::from_millis(10)).await;
    }
}
