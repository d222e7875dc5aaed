//! A request to move a process: who may, where to, who does it, how it ended.

use crate::audit::Entry;
use crate::balancing::facts::about;
use crate::choice;
use crate::daemon::Node;
use crate::engine::{Failure, Goal};
use crate::follow::{Aim, watch};
use crate::helper;
use crate::naming::meant;
use crate::owner::{Caller, Facts, lives};
use crate::sys;
use crate::views::{Event, Liveness, MoveAnswer, MoveRequest};
use crate::whose;
use pando_migrate::control::{Command, DeputyOrder, Destination, MoveRecord};
use std::sync::Arc;
use std::time::Duration;

/// After a helper ended, what it wrote to its socket is read within this.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why a request was not served.
#[derive(Debug)]
pub enum Refused {
    /// No such process or node.
    Unknown(String),
    /// Not allowed.
    Forbidden(String),
    /// Not now, not so.
    Conflict(String),
    /// It was tried and did not work.
    Failed(String),
}

impl Refused {
    /// The sentence.
    pub fn text(&self) -> &str {
        let (Refused::Unknown(t) | Refused::Forbidden(t) | Refused::Conflict(t) | Refused::Failed(t)) = self;
        t
    }
}

/// Checks that `caller` may do `what` to `pid`, and gives what is known of it. Writes the audit line if not.
pub fn permitted(node: &Node, caller: Caller, what: &str, pid: u32) -> Result<Facts, Refused> {
    let lost = || node.events.loss(&node.name(), pid, caller.uid);
    let facts = Facts::read(pid).map_err(|gone| Refused::Unknown(lost().unwrap_or(gone)))?;
    let me = sys::effective_uid();
    let belongs = facts.belongs(pid);
    let why = if !facts.permits(caller) {
        let who = if facts.owner().is_some() { "root and its owner" } else { "root" };
        format!("{belongs}: only {who} may {what} it")
    } else if me != 0 && facts.owner() != Some(me) {
        format!("{belongs}: a node in personal mode serves its own user only")
    } else {
        return Ok(facts);
    };
    let next = if me == 0 || facts.owner() == Some(me) { "" } else { " (a node that root runs can)" };
    let why = why + next;
    let who = caller.to_string();
    let text = format!("{who} may not {what} process {pid}");
    let (uid, reason) = (Some(caller.uid), Some(why.clone()));
    node.events.say(Event { uid, pid: Some(pid), home: Some(node.name()), reason, ..Event::new("refused", text) });
    node.audit.note(&Entry { who, what, on: format!("process {pid}"), allowed: false, why: why.clone() });
    Err(Refused::Forbidden(why))
}

/// Serves `POST /v1/move`: what the process starts goes there, too.
pub async fn serve(node: &Arc<Node>, caller: Caller, request: MoveRequest) -> Result<MoveAnswer, Refused> {
    let request = MoveRequest { pid: meant(caller, request.pid).map_err(Refused::Unknown)?, ..request };
    let start_time = Facts::read(request.pid).map_or(0, |f| f.start_time);
    let answer = perform(node, caller, &request).await?;
    let aim = match request.dest.as_str() {
        "best" => Aim::Best,
        _ if answer.place == node.name() => Aim::Home,
        _ => Aim::Node(answer.place.clone()),
    };
    watch::placed(node, request.pid, start_time, aim, request.family);
    sent(node, request.pid);
    if request.family {
        for pid in watch::away_under(node, request.pid) {
            let request = MoveRequest { pid, family: false, ..request.clone() };
            if let Err(refused) = perform(node, caller, &request).await {
                tracing::info!("process {pid} does not go with its family: {}", refused.text());
            }
        }
    }
    Ok(answer)
}

/// Notes that it was sent where it is now: the others of its group follow.
pub fn sent(node: &Node, pid: u32) {
    let mut table = node.table();
    let key = table.local(pid);
    table.sent(&key);
}

/// Moves a process, on behalf of `caller`.
pub async fn perform(node: &Arc<Node>, caller: Caller, request: &MoveRequest) -> Result<MoveAnswer, Refused> {
    let pid = request.pid;
    whose::is_no_guest(node, pid)?;
    let facts = permitted(node, caller, "move", pid)?;
    if facts.zombie {
        let ended = || format!("process {pid} has ended and waits for its parent");
        return Err(Refused::Unknown(node.events.loss(&node.name(), pid, caller.uid).unwrap_or_else(ended)));
    }
    whose::may_be_moved_here(node, pid)?;
    let Some(_moving) = node.engine.begin(pid) else {
        return Err(Refused::Conflict(format!("process {pid} is being moved just now: see `pando ps`")));
    };
    let key = (node.name(), pid);
    node.balancing.let_go(&key, &node.engine);
    // After that: where it is must not change meanwhile.
    let Some(dest) = destination(node, pid, &request.dest)? else {
        return Ok(MoveAnswer { place: node.place_of(pid), record: None });
    };
    let reason = crate::owner::clean(request.reason.as_deref().unwrap_or("user"));
    let on = format!("process {pid} ({}) to {}", facts.command, request.dest);
    node.audit.note(&Entry { who: caller.to_string(), what: "move", on, allowed: true, why: reason.clone() });
    node.table().register(pid, facts.uids[0], facts.command.clone(), facts.start_time, false);
    whose::inherits(node, pid);
    let wanted = Wanted { pid, start_time: facts.start_time, dest, caller, reason };
    let ended = match attempt(node, &wanted).await {
        // Its deputy was just leaving: the process is home, or has ended.
        Err(Failure::Left) if lives(pid, facts.start_time) => attempt(node, &wanted).await,
        other => other,
    };
    match ended {
        Ok(record) => Ok(MoveAnswer { place: record.to.clone(), record: Some(record) }),
        Err(failure) => {
            let mut table = node.table();
            let key = table.local(pid);
            table.failed(&key);
            drop(table);
            Err(refusal(node, &wanted, failure))
        }
    }
}

fn refusal(node: &Node, wanted: &Wanted, failure: Failure) -> Refused {
    let pid = wanted.pid;
    match failure {
        Failure::Said(why) => Refused::Failed(why),
        Failure::Left if lives(pid, wanted.start_time) => {
            let log = node.place.state.join("helpers.log");
            Refused::Failed(format!("the engine's helper of process {pid} ended early: see {}", log.display()))
        }
        Failure::Left => Refused::Failed(format!("process {pid} ended before it could be moved")),
    }
}

struct Wanted {
    pid: u32,
    start_time: u64,
    dest: Destination,
    caller: Caller,
    reason: String,
}

impl Wanted {
    fn goal(&self, me: &str) -> Goal {
        let to = match &self.dest {
            Destination::Home => me.to_owned(),
            Destination::Node { name, .. } => name.clone(),
        };
        // A caller has a pid; the daemon itself has none (follow/watch.rs).
        Goal { to, follows: self.caller.pid == 0 }
    }
}

async fn attempt(node: &Arc<Node>, wanted: &Wanted) -> Result<MoveRecord, Failure> {
    let (number, answer) = node.engine.expect(wanted.pid, wanted.goal(&node.name()));
    let key = node.table().local(wanted.pid);
    match node.engine.deputy(&key) {
        Some(orders) => {
            let (dest, reason) = (wanted.dest.clone(), wanted.reason.clone());
            if orders.send(Command::Move { request: number, dest, reason }).await.is_err() {
                node.engine.answer(number, Err(Failure::Left));
            }
        }
        None if wanted.dest == Destination::Home => {
            let text = format!("process {} is at home already", wanted.pid);
            node.engine.answer(number, Err(Failure::Said(text)));
        }
        None => start_deputy(node, wanted, number).await,
    }
    let patience = Duration::from_millis(node.config.moves.wait_ms);
    match tokio::time::timeout(patience, answer).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(Failure::Left),
        Err(_) => {
            node.engine.answer(number, Err(Failure::Left));
            let text = format!("no answer from the engine within {patience:?}; `pando ps` shows where it is");
            Err(Failure::Said(text))
        }
    }
}

async fn start_deputy(node: &Arc<Node>, wanted: &Wanted, request: u64) {
    let order = DeputyOrder {
        pid: wanted.pid,
        start_time: wanted.start_time,
        request,
        dest: wanted.dest.clone(),
        node: node.name(),
        identity_dir: node.place.identity().display().to_string(),
        engine_socket: node.engine_socket().display().to_string(),
        caller_uid: wanted.caller.uid,
        reason: wanted.reason.clone(),
        limits: node.config.limits.clone(),
        shared: node.config.files.shared_directories(),
        waits: node.engine.take_waits(wanted.pid, wanted.start_time),
        holds: node.holds(),
        release: node.config.test.release,
        whole_machine: node.config.test.whole_machine,
    };
    let mut child = match helper::spawn(node, "__deputy", &order, None).await {
        Ok(child) => child,
        Err(e) => {
            let text = format!("the engine's helper could not be started: {e}");
            node.engine.answer(request, Err(Failure::Said(text)));
            return;
        }
    };
    let (node, pid, uid) = (node.clone(), wanted.pid, wanted.caller.uid);
    tokio::spawn(async move {
        let ended = child.wait().await;
        tokio::time::sleep(LAST_WORDS).await;
        let status = ended.map_or_else(|e| e.to_string(), |s| s.to_string());
        let log = node.place.state.join("helpers.log");
        let text = format!("the engine's helper ended without an answer ({status}): see {}", log.display());
        let Some(goal) = node.engine.goal(request) else { return };
        if node.engine.answer(request, Err(Failure::Said(text.clone()))) && !goal.follows {
            let sentence = format!("process {pid} did not move: {text}");
            let (home, reason) = (Some(node.name()), Some(text));
            let (uid, pid, to) = (Some(uid), Some(pid), Some(goal.to));
            node.events.say(Event { uid, pid, from: home.clone(), home, to, reason, ..Event::new("failed", sentence) });
        }
    });
}

/// What the user's word means; none when the process is there already.
fn destination(node: &Node, pid: u32, word: &str) -> Result<Option<Destination>, Refused> {
    let me = node.name();
    let here = node.place_of(pid);
    let name = match word {
        "home" => me.clone(),
        "best" => choice::best(node, &here, &about(node, pid), true).map_err(Refused::Conflict)?.0,
        name => name.to_owned(),
    };
    if name == here {
        return Ok(None);
    }
    if name == me {
        return Ok(Some(Destination::Home));
    }
    let nodes = node.cluster.nodes();
    let Some(target) = nodes.iter().find(|n| n.name == name) else {
        let known: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
        let known = known.join(", ");
        return Err(Refused::Unknown(format!("there is no node {name}: `pando nodes` shows {known}")));
    };
    if target.state == Liveness::Down {
        let heard =
            target.heard_ms.map_or("not heard since this daemon started or it refuses connections".into(), |ms| {
                format!("last heard {} s ago", ms / 1000)
            });
        return Err(Refused::Conflict(format!("node {name} is down ({heard}): `pando nodes` shows which are up")));
    }
    Ok(Some(Destination::Node { name, addr: target.addr.clone() }))
}
