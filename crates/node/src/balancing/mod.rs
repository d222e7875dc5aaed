//! Moves processes without being asked: looks at what runs here, asks the pure part (crates/balance) what to do, and has it done. A guest's moves are
//! made by its home, which has the last word.

mod advice;
mod bonds;
pub mod brakes;
pub mod facts;
mod groups;
mod present;
mod promises;
mod refusals;
mod relief;

use crate::daemon::Node;
use crate::engine::Engine;
use crate::moves;
use crate::owner::{Caller, Facts};
use crate::processes::Known;
use crate::questions::ask;
use crate::views::{Drain, Event, MoveRequest};
pub use advice::{Advice, advised};
use bonds::Bonds;
pub use bonds::bonds_of;
use brakes::Brakes;
use facts::{Key, Samples};
use pando_balance::{Asked, Move, Other, Process, Standing, Vector, Why};
use pando_kernel::procfs;
use pando_migrate::inspect::inspect;
use pando_wire::message::Question;
use present::Present;
use promises::Promises;
use refusals::Refusals;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// So long a process is not offered again to a node that did not want it.
const NOT_AGAIN: Duration = Duration::from_secs(15);
/// Of a crowd, one in so many may be on its way, where that is more than `at_once`.
const CROWD: usize = 4;
/// What was sent somewhere counts for this long: what is heard of that node may be older.
const COUNTS_FOR: Duration = Duration::from_millis(2500);
/// A node that is drained and moves nothing else by itself looks this often, milliseconds.
const DRAINING_MS: u64 = 1000;
/// How reasons of moves begin that bring a group together.
const TOGETHER: &str = "together";
/// With more of its memory free than this part a node leaves there what those have left that are away.
const PLENTY: (u64, u64) = (4, 10);
/// Decisions that are kept for those who ask.
const KEPT: usize = 64;

/// A decision, for people.
struct Note {
    when: Instant,
    key: Key,
    text: String,
}

impl Note {
    fn new(key: &Key, text: String) -> Note {
        Note { when: Instant::now(), key: key.clone(), text }
    }

    fn told(&self) -> Told {
        (self.key.clone(), self.text.clone(), self.when.elapsed())
    }
}

/// About whom, what, and how long ago.
pub type Told = (Key, String, Duration);

#[derive(Default)]
struct State {
    promises: Promises,
    /// What was last decided about each process.
    about: BTreeMap<Key, Note>,
    /// Moves that were begun, and how they ended, oldest first.
    done: Vec<Note>,
    /// Refused by their home, or by the engine.
    refused: Refusals,
    /// Not wanted at a target, and since when.
    unwanted: BTreeMap<(Key, String), Instant>,
    present: Present,
    /// On their way, and where to.
    going: BTreeMap<Key, String>,
    /// Sent a moment ago: when, where to, threads in thousandths, bytes.
    sent: Vec<(Instant, String, u32, u64)>,
    /// Processes that are away whose helpers have been asked for home's memory.
    released: BTreeMap<Key, relief::Asked>,
    /// What homes say of guests.
    bonds: Bonds,
    /// This node is being emptied.
    drained: Option<Drain>,
}

/// What is remembered from look to look.
#[derive(Default)]
pub struct Balancing {
    state: Mutex<State>,
    brakes: Mutex<Brakes>,
    /// Somebody waits to hear whether it is being emptied.
    drains: Notify,
}

impl Balancing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that stand still. Whoever has these may ask for the state, and never the other way round.
    fn brakes(&self) -> MutexGuard<'_, Brakes> {
        self.brakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It does not stand still any more, because it is to move: nobody else can trace it before.
    pub fn let_go(&self, key: &Key, engine: &Engine) {
        let brake = self.brakes().let_go(key, engine);
        if let Some(brake) = brake {
            tokio::task::block_in_place(|| drop(brake));
        }
    }

    /// What was last decided about a process, and how long ago.
    pub fn about(&self, home: &str, pid: u32) -> Option<(String, Duration)> {
        let key = (home.to_owned(), pid);
        if let Some(since) = self.brakes().holds(&key) {
            return Some((
                "it stands still for a moment, because there is hardly any memory left and some is on its way back"
                    .into(),
                since,
            ));
        }
        let state = self.state();
        state.about.get(&key).map(|n| (n.text.clone(), n.when.elapsed()))
    }

    /// The latest moves that were tried, oldest first.
    pub fn latest(&self) -> Vec<Told> {
        self.state().done.iter().map(Note::told).collect()
    }

    /// What was last decided about those that stay.
    pub fn stays(&self) -> Vec<Told> {
        self.state().about.values().map(Note::told).collect()
    }

    /// Where to it is moved by this node just now, without having been asked.
    pub fn goes_to(&self, home: &str, pid: u32) -> Option<String> {
        self.state().going.get(&(home.to_owned(), pid)).cloned()
    }

    /// It goes there now; none if it is on its way already, wherever to.
    fn sets_out(self: &Arc<Self>, key: &Key, to: &str) -> Option<Journey> {
        match self.state().going.entry(key.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                place.insert(to.to_owned());
                Some(Journey { balancing: self.clone(), key: key.clone() })
            }
        }
    }

    /// A guest has arrived: what was promised to it is used.
    pub fn arrived(&self, key: &Key) {
        let mut state = self.state();
        if let Some(promised) = state.promises.kept(key) {
            state.present.came(promised.demand_milli);
        }
    }

    /// It will not come: what was promised to it is for others.
    pub fn comes_not(&self, key: &Key) {
        self.state().promises.kept(key);
    }

    /// A process has ended here, or is elsewhere now.
    pub fn left(&self, key: &Key) {
        self.state().present.left(key);
    }

    /// Threads, in thousandths, that have come and gone since the last time that this was asked.
    pub fn come_and_gone(&self) -> (i64, i64) {
        self.state().present.take()
    }

    /// The other nodes, as far as is known, with what was sent there a moment ago: it is there, whatever has been heard.
    pub fn others(&self, node: &Node) -> Vec<Other> {
        let mut others = node.cluster.others();
        let mut state = self.state();
        state.sent.retain(|(when, ..)| when.elapsed() < COUNTS_FOR);
        for (_, to, demand, bytes) in &state.sent {
            if let Some(other) = others.iter_mut().find(|o| o.name == *to) {
                other.load = other.load.with_demand(i64::from(*demand)).with_memory(*bytes as i64);
            }
        }
        others
    }

    /// A process goes there, and will need so many bytes.
    pub fn sent(&self, to: &str, process: &Process, bytes: u64) {
        self.state().sent.push((Instant::now(), to.to_owned(), process.demand_milli, bytes));
    }

    /// Is this node being emptied?
    pub fn is_drained(&self) -> bool {
        self.state().drained.is_some()
    }

    /// And why?
    pub fn drained(&self) -> Option<Drain> {
        self.state().drained.clone()
    }

    /// Until that changes.
    pub async fn drain_changed(&self) {
        self.drains.notified().await;
    }

    /// Somebody at `by` wants this node to be emptied, or used again.
    pub fn drain(&self, node: &Node, why: Option<Drain>, by: &str) {
        let on = why.is_some();
        // Who says again that he wants it says why.
        let before = std::mem::replace(&mut self.state().drained, why).is_some();
        self.drains.notify_one();
        if before == on {
            return;
        }
        let name = node.name();
        let text = match on {
            true => format!("node {name} is being drained (asked for {by}): its guests leave, and what may"),
            false => format!("node {name} takes guests again (asked for {by})"),
        };
        let reason = Some(if on { "drain" } else { "open" }.to_owned());
        node.events.say(Event { from: Some(name), reason, ..Event::new("node", text) });
    }

    fn note_done(&self, key: &Key, text: String) {
        let mut state = self.state();
        if state.done.len() >= KEPT {
            state.done.remove(0);
        }
        state.done.push(Note::new(key, text));
    }
}

/// Who was here when it was last looked and is no more has ended, or was called away.
pub fn miss(node: &Node) {
    let me = node.name();
    let visits = |k: &&Known| k.view.role == "guest";
    let guests: BTreeSet<Key> = node.table().all().filter(visits).map(|k| (k.view.home.clone(), k.view.pid)).collect();
    let is_there = |key: &Key| match key.0 == me {
        // Children, too, of which the table knows nothing.
        true => procfs::stat(key.1 as i32).is_some_and(|s| s.lives()),
        false => guests.contains(key),
    };
    let all = node.balancing.state().present.keys();
    all.iter().filter(|key| !is_there(key)).for_each(|key| node.balancing.left(key));
}

/// A process is on its way as long as this is held, whatever becomes of the task that moves it.
struct Journey {
    balancing: Arc<Balancing>,
    key: Key,
}

impl Drop for Journey {
    fn drop(&mut self) {
        self.balancing.state().going.remove(&self.key);
    }
}

/// Looks until the daemon ends.
pub async fn keep(node: Arc<Node>) {
    let settings = &node.config.balance;
    let off = settings.every_ms == 0;
    let every_ms = if off { DRAINING_MS } else { settings.every_ms };
    let mut samples = Samples::default();
    loop {
        // Nodes do not look all at the same time. Memory can be gone in a second.
        let next = Instant::now() + Duration::from_millis(every_ms / 2 + random() % every_ms);
        let is_short =
            || !off && (pando_balance::need(&node.vector(), settings) > 0 || node.balancing.brakes().are_on());
        while Instant::now() < next && !is_short() {
            let left = next.saturating_duration_since(Instant::now());
            tokio::time::sleep(left.min(Duration::from_millis(node.config.load.every_ms))).await;
        }
        // Whoever drains a node wants it empty, whatever it does by itself.
        if !off || node.balancing.is_drained() {
            tokio::task::block_in_place(|| once(&node, &mut samples));
        }
        // One that stays short is looked at often, but not all the time.
        tokio::time::sleep(Duration::from_millis(node.config.load.every_ms)).await;
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    pando_wire::token::random(&mut bytes);
    u64::from_be_bytes(bytes)
}

/// One look: begins moves, and stops those who take memory when it is nearly gone.
fn once(node: &Arc<Node>, samples: &mut Samples) {
    let here = node.vector();
    let processes = facts::look(node, samples);
    decide(node, &here, processes.clone());
    // Guests that leave; of this node's own only those count that are here.
    let me = node.name();
    let helped = relief::coming(node) > 0 || node.balancing.state().going.keys().any(|key| key.0 != me);
    brakes::work(node, &here, &processes, helped);
}

fn decide(node: &Arc<Node>, here: &Vector, mut processes: Vec<Process>) {
    let settings = &node.config.balance;
    let name = node.name();
    {
        let mut state = node.balancing.state();
        let State { present, going, .. } = &mut *state;
        let found = processes.iter().map(|p| ((p.home.clone(), p.pid), p.demand_milli));
        present.looked(found, |key| going.contains_key(key));
    }
    bonds::see(node, &mut processes);
    let members = facts::groups(node, &processes);
    groups::part(&mut processes, &members, &name);
    gather(node, &members);
    let mut processes = groups::join(processes, &members, &name, node.balancing.is_drained());
    {
        let mut state = node.balancing.state();
        let now = Instant::now();
        state.refused.prune(now);
        state.unwanted.retain(|_, when| when.elapsed() < NOT_AGAIN);
        // Those on their way are still counted in the load, but no longer to be decided about.
        processes.retain(|p| !state.going.contains_key(&(p.home.clone(), p.pid)));
        for p in &mut processes {
            p.obstacle = state.refused.holds(&(p.home.clone(), p.pid), now).map(str::to_owned);
            let no = state.unwanted.keys().filter(|((home, pid), _)| (home, *pid) == (&p.home, p.pid));
            p.not.extend(no.map(|(_, node)| node.clone()));
        }
        if state.going.len() >= settings.at_once.max(processes.len() / CROWD) {
            return;
        }
    }
    let mut others = node.balancing.others(node);
    let short = settings.every_ms > 0 && pando_balance::need(here, settings) > 0;
    // What left for speed has left its memory here, and those that are here may want it: that takes a moment, so it is not left to the last.
    if short || here.free < here.memory / PLENTY.1 * PLENTY.0 {
        relief::give_back(node);
    }
    let mut chosen = Vec::new();
    let mut rest = processes.clone();
    if short {
        // What those that have left will give back nobody else has to leave for.
        let coming = relief::coming(node);
        chosen = pando_balance::usher((&name, here), coming, &processes, &mut others, settings);
        rest.retain(|p| !chosen.iter().any(|m| m.process == (p.home.clone(), p.pid)));
    }
    let (sooner, stays) = pando_balance::spread((&name, here), &rest, &mut others, settings, random());
    chosen.extend(sooner);
    {
        let mut state = node.balancing.state();
        let note = |(i, why): (usize, pando_balance::Stays)| {
            let p: &Process = &rest[i];
            let key = (p.home.clone(), p.pid);
            (key.clone(), Note::new(&key, format!("it stays: {why}")))
        };
        state.about = stays.into_iter().map(note).collect();
    }
    for m in chosen {
        let Some(p) = processes.iter().find(|p| (&p.home, p.pid) == (&m.process.0, m.process.1)).cloned() else {
            continue;
        };
        // Its home may have sent it on since it was looked.
        let Some(journey) = node.balancing.sets_out(&m.process, &m.to) else { continue };
        node.balancing.sent(&m.to, &p, p.will_need(settings));
        let node = node.clone();
        tokio::spawn(async move { send(&node, &m, &p, journey).await });
    }
}

/// Has one of the chosen moves made, and notes how it ended.
async fn send(node: &Arc<Node>, m: &Move, p: &Process, _journey: Journey) {
    let key = m.process.clone();
    let ended = go(node, m, p).await;
    let text = match &ended {
        Ok(()) => format!("went to {}: {}", m.to, m.why),
        Err(No::Target(why) | No::Home(why)) => format!("did not go to {} ({}): {why}", m.to, m.why),
    };
    node.balancing.note_done(&key, text.clone());
    let mut state = node.balancing.state();
    match &ended {
        Ok(()) => state.refused.forget(&key),
        Err(no) => {
            tracing::info!("balance: process {} of {} {text}", key.1, key.0);
            match no {
                No::Target(_) => _ = state.unwanted.insert((key.clone(), m.to.clone()), Instant::now()),
                No::Home(why) => state.refused.add(&key, Instant::now(), why),
            }
        }
    }
    drop(state);
    if ended.is_ok() && matches!(m.why, Why::Memory { .. }) && p.home == node.name() {
        relief::give_back(node);
    }
}

/// Those that are to be together go where the one is that moved last.
fn gather(node: &Arc<Node>, members: &[groups::Member]) {
    let (me, emptied) = (node.name(), node.balancing.is_drained());
    for (key, to) in groups::gather(members, &me).into_iter().filter(|(_, to)| !emptied || *to != me) {
        if node.balancing.state().refused.holds(&key, Instant::now()).is_some() {
            continue;
        }
        let Some(journey) = node.balancing.sets_out(&key, &to) else { continue };
        let node = node.clone();
        tokio::spawn(async move {
            let _journey = journey;
            let dest = if to == node.name() { "home" } else { &to };
            let ended = perform(&node, key.1, dest, &format!("{TOGETHER}: with the others of its group")).await;
            node.balancing.note_done(
                &key,
                match &ended {
                    Ok(()) => format!("went to {to}, where its group is"),
                    Err(why) => format!("did not go to {to}, where its group is: {why}"),
                },
            );
            let mut state = node.balancing.state();
            match ended {
                Ok(()) => state.refused.forget(&key),
                Err(why) => state.refused.add(&key, Instant::now(), &why),
            }
        });
    }
}

/// Who said no.
enum No {
    /// The node where it should go.
    Target(String),
    /// Its home, or the engine.
    Home(String),
}

/// Asks the target, then has the move made.
async fn go(node: &Arc<Node>, m: &Move, p: &Process) -> Result<(), No> {
    let reason = format!("{}: {}", word(&m.why), m.why);
    node.balancing.let_go(&m.process, &node.engine);
    // What can't move costs nobody anything: the target would hold a place for it.
    if p.home == node.name()
        && let Some(why) = obstacles(node, p.pid).await
    {
        return Err(No::Home(why));
    }
    // Home takes back whoever must leave; who comes for speed or memory is no better than others.
    let asks = m.to != p.home || matches!(m.why, Why::Sooner { .. } | Why::Memory { .. });
    if asks && m.to != node.name() {
        let has_milli = Asked::has(&m.why).map(|has| (has * 1000.0) as u32);
        // Who must leave takes what there is, and may be sent on.
        let needs = has_milli.map_or_else(|| p.needs(), |_| p.will_need(&node.config.balance));
        let (home, pid, demand_milli) = (p.home.clone(), p.pid, p.demand_milli);
        let question = Question::Admit { home, pid, needs, demand_milli, has_milli };
        ask(node, &m.to, question).await.map_err(|why| No::Target(format!("{} said no: {why}", m.to)))?;
    }
    let (pid, to, must) = (p.pid, m.to.clone(), !matches!(m.why, Why::Sooner { .. }));
    let done = match p.home == node.name() {
        true => perform(node, pid, &to, &reason).await,
        false => {
            let advice = ask(node, &p.home, Question::Advise { pid, to, reason, must, bytes: p.resident }).await;
            advice.map(drop).map_err(|why| format!("its home {} said no: {why}", p.home))
        }
    };
    // Its home knows by itself.
    if done.is_err() && asks && m.to != p.home {
        let (node, to, home) = (node.clone(), m.to.clone(), p.home.clone());
        tokio::spawn(async move { ask(&node, &to, Question::ComesNot { home, pid }).await });
    }
    done.map_err(No::Home)
}

/// Why one whose home is here, and which is there, can't move, as far as can be seen while it runs.
pub(crate) async fn obstacles(node: &Node, pid: u32) -> Option<String> {
    let helper = {
        let table = node.table();
        table.get(&table.local(pid)).and_then(|k| k.view.helper)
    };
    let inspection = tokio::task::spawn_blocking(move || inspect(pid, helper)).await.ok()?.ok()?;
    let all: Vec<String> = inspection.obstacles.iter().map(|o| format!("{} ({})", o.why, o.advice)).collect();
    (!all.is_empty()).then(|| format!("process {pid} can't move: {}", all.join("; ")))
}

fn word(why: &Why) -> &'static str {
    match why {
        Why::Sooner { .. } => "balance",
        Why::Memory { .. } => "memory",
        Why::Owner => "owner",
        Why::Drained => "drain",
        Why::HomeOnly => "home",
        Why::Apart => "apart",
    }
}

/// Has a process whose home is here moved, as its user could have it.
pub(crate) async fn perform(node: &Arc<Node>, pid: u32, to: &str, reason: &str) -> Result<(), String> {
    let facts = Facts::read(pid)?;
    let uid = facts.uids[0];
    let request = MoveRequest { pid, dest: to.to_owned(), reason: Some(reason.to_owned()), family: false };
    let moved = moves::perform(node, Caller { uid, pid: 0 }, &request).await;
    let answer = moved.map_err(|refused| refused.text().to_owned())?;
    if !reason.starts_with(TOGETHER) {
        moves::sent(node, pid);
    }
    if answer.place == node.name() {
        node.follow().settle(pid);
    }
    Ok(())
}

/// May this process come here? What is promised counts until it is here.
pub fn admit(node: &Node, key: Key, needs: u64, demand_milli: u32, has_milli: Option<u32>) -> Result<(), String> {
    let from = &node.config.guests.from;
    if key.0 != node.name() && !from.is_empty() && !from.contains(&key.0) {
        return Err(format!("it takes no processes of {} ([guests] from)", key.0));
    }
    let asked = Asked { needs, demand_milli, has: has_milli.map(|m| f64::from(m) / 1000.0), by_hand: false };
    let mut here = node.vector();
    if key.0 == node.name() && here.standing != Standing::Drained {
        // Whose home this is, is no guest.
        here.standing = Standing::Open;
    }
    let guests = node.table().guests() as usize;
    let mut state = node.balancing.state();
    let promised = state.promises.sum();
    // Many may ask before the first one is here.
    if key.0 != node.name() && guests + state.promises.to_others(&key) >= node.config.guests.max as usize {
        return Err("it takes no more guests ([guests] max)".into());
    }
    let answer = pando_balance::admit(&here, &promised, &asked, &node.config.balance);
    answer.map(|()| state.promises.add(key, needs, demand_milli)).map_err(|refusal| refusal.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_promised_is_free_again_when_it_does_not_come() {
        let (balancing, key) = (Arc::new(Balancing::default()), ("n1".to_owned(), 7));
        let promise = || balancing.state().promises.add(key.clone(), 5, 1000);
        promise();
        balancing.comes_not(&key);
        assert_eq!(balancing.state().promises.sum(), pando_balance::Promised::default());
        assert_eq!(balancing.come_and_gone(), (0, 0), "nobody has come");
        promise();
        balancing.arrived(&key);
        assert_eq!(balancing.state().promises.sum(), pando_balance::Promised::default());
        assert_eq!(balancing.come_and_gone(), (1000, 0));
    }

    #[test]
    fn who_is_on_its_way_is_not_sent_elsewhere() {
        let (balancing, key) = (Arc::new(Balancing::default()), ("n1".to_owned(), 7));
        let journey = balancing.sets_out(&key, "n2");
        assert!(journey.is_some() && balancing.sets_out(&key, "n3").is_none());
        assert_eq!(balancing.goes_to("n1", 7).as_deref(), Some("n2"));
        drop(journey);
        assert!(balancing.sets_out(&key, "n3").is_some(), "it has arrived, or its task has failed");
    }
}
