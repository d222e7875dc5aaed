//! The node that orders keeps the matrix: who has which CPUs in which row. It is nobody's state but the heads': a new node that orders is told by
//! them who has what.

use super::ask::{About, Ask, Came, Placed};
use super::seats::Published;
use super::{TABLE, lock};
use crate::daemon::Node;
use crate::fabric;
use crate::moves::Refused;
use crate::owner::Caller;
use crate::queue::errand::{Errand, send};
use crate::sys;
use crate::views::{self, GangStatus, Liveness};
use axum::Json;
use axum::extract::State;
use axum::extract::connect_info::ConnectInfo;
use pando_gang::{Desk, Effect, Gang, Input, Matrix, Pace, Place, Standing, Table, Tally};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Gangs at a time: their table goes to all nodes with one message.
pub const MOST: usize = 500;
/// And those that wait.
const MOST_WAITING: usize = 2000;
/// Who takes over from another node that ordered is told for so long who has what and who waits, milliseconds: heads ask each 300.
const LEARNS_MS: u64 = 1_500;
/// So many that have ended are remembered.
const REMEMBERED: usize = 2000;
/// Bytes of an errand.
const LONGEST: usize = 1 << 20;
/// The fabric's variable that has the length of a turn, microseconds; 0: as the configuration has it.
const QUANTUM: &str = "pando/gang_us";
/// And the one that has the strobe's period, microseconds and one more, from before somebody took turns; 0: nobody does.
pub const BEFORE: &str = "pando/gang_before";
/// Shorter ones are all switching.
const SHORTEST_US: u64 = 100;

/// See above.
pub struct Office {
    /// Which life of this node it belongs to.
    life: (u64, u64),
    /// Its clock.
    begun: Instant,
    desk: Desk,
    /// Of each gang, those that wait among them.
    heads: BTreeMap<u64, Head>,
    tally: Tally,
    /// The last beat before the table came, and what was told with it.
    after: u64,
    pace: Pace,
    /// These have ended: what was said of them before may come later.
    over: VecDeque<u64>,
}

/// The node of a gang's head, in one of its lives; none before that has been seen.
struct Head {
    node: String,
    life: Option<u64>,
    gang: Gang,
    about: About,
    /// None: it waits.
    places: Vec<Place>,
    /// The matrix has taken some of them away, for their node was away.
    lost: bool,
}

/// Who orders: its name, and what tells its lives apart.
pub fn manager(node: &Node) -> Option<(String, u64)> {
    fabric::manager(node)
}

/// Looks who is there.
pub fn look(node: &Arc<Node>) {
    let mut office = lock(&node.gangs.office);
    let Some(life) = fabric::ordering(node) else {
        *office = None;
        return;
    };
    if office.as_ref().is_none_or(|o| o.life != life) {
        *office = Some(Office::new(node, life));
    }
    if let Some(office) = office.as_mut() {
        office.look(node);
        let usual_us = usual_us(node);
        if office.desk.matrix().usual_us() != usual_us {
            office.handle(node, Input::Usual(usual_us));
        }
        office.set_pace(node);
    }
}

/// CPUs that a node has for gangs.
fn cpus(node: &views::Node) -> u16 {
    (node.cpus.max(1.0) as u64).min(u64::from(u16::MAX)) as u16
}

impl Office {
    fn new(node: &Arc<Node>, life: (u64, u64)) -> Office {
        // Where there are gangs already another one has ordered until now.
        let learns_ms = if lock(&node.gangs.seats).knows_of_any() { LEARNS_MS } else { 0 };
        Office {
            life,
            begun: Instant::now(),
            desk: Desk::new(Matrix::new(node.config.gang.rules), learns_ms),
            heads: BTreeMap::new(),
            tally: Tally::default(),
            after: fabric::last_beat(node),
            pace: pace(node, &Table::default()),
            over: VecDeque::new(),
        }
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn look(&mut self, node: &Arc<Node>) {
        let members = fabric::members(node);
        let here = |n: &views::Node| n.state != Liveness::Down && members.contains_key(&n.name);
        let there: Vec<views::Node> = node.cluster.nodes().into_iter().filter(here).collect();
        let all: BTreeMap<String, u16> = there.iter().map(|n| (n.name.clone(), cpus(n))).collect();
        let known = self.desk.matrix().nodes().clone();
        let gone: Vec<String> = known.keys().filter(|n| !all.contains_key(*n)).cloned().collect();
        let mut inputs: Vec<Input> = gone.into_iter().map(Input::NodeGone).collect();
        let new = all.into_iter().filter(|(name, cpus)| known.get(name) != Some(cpus));
        inputs.extend(new.map(|(name, cpus)| Input::Node { name, cpus }));
        if !inputs.is_empty() {
            // Who has just come knows of no variables, and may be the next one who orders.
            for name in [BEFORE, QUANTUM] {
                Some(fabric::variable(node, name)).filter(|v| *v != 0).inspect(|v| fabric::store(node, name, *v));
            }
        }
        // Whose head is gone is ended by its nodes.
        let lives = |head: &mut Head| {
            let now = members.get(&head.node).copied();
            now.is_some() && *head.life.get_or_insert(now.unwrap_or(0)) == now.unwrap_or(0)
        };
        // Who waits and is silent has gone, too.
        let now_ms = self.now_ms();
        self.desk.expire(now_ms);
        let line: BTreeSet<u64> = self.desk.line(now_ms).map(|(number, _)| number).collect();
        let mut headless = Vec::new();
        for (number, head) in &mut self.heads {
            if !lives(head) || head.places.is_empty() && !line.contains(number) {
                headless.push(*number);
            }
        }
        self.heads.retain(|number, _| !headless.contains(number));
        inputs.extend(headless.into_iter().map(Input::Ended));
        for input in inputs {
            self.handle(node, input);
        }
        for n in there {
            // Nothing follows of it.
            self.desk.handle(Input::Busy { name: n.name, milli: (n.runnable * 1000.0) as u32 });
        }
        // Who was away for a moment has not ended what runs there.
        let here = self.desk.matrix().nodes();
        let whole = |head: &Head| head.places.iter().all(|p| here.contains_key(&p.node));
        let back = self.heads.values().filter(|head| head.lost && whole(head));
        let back: Vec<(Gang, Vec<Place>)> = back.map(|head| (head.gang.clone(), head.places.clone())).collect();
        for (gang, places) in back {
            let number = gang.job;
            self.handle(node, Input::Ended(number));
            let said = self.handle(node, Input::Adopt(gang, places));
            if let Some(head) = self.heads.get_mut(&number).filter(|_| matches!(said, Some(Came::Placed(_)))) {
                head.lost = false;
            }
        }
    }

    /// Tells the matrix, and all nodes what follows. Gives what it says of this job.
    fn handle(&mut self, node: &Arc<Node>, input: Input) -> Option<Came> {
        let before = self.desk.matrix().table().clone();
        let effects = self.desk.handle(input);
        self.heed(node, &before, effects)
    }

    /// What is said of this job.
    fn heed(&mut self, node: &Arc<Node>, before: &Table, effects: Vec<Effect>) -> Option<Came> {
        let mut said = None;
        for effect in effects {
            match effect {
                Effect::Placed { row, places, .. } => said = Some(Came::Placed(Placed { row, places })),
                Effect::Refused { why, ever: false, .. } => said = Some(Came::Full(why)),
                Effect::Refused { why, .. } => said = Some(Came::Never(why)),
                Effect::Table(table) => self.publish(node, before, table),
                // Its head ends it, unless the node is soon back.
                Effect::Lost { job, node } => {
                    tracing::info!("gangs: gang {job:x} has lost node {node}");
                    if let Some(head) = self.heads.get_mut(&job) {
                        head.lost = true;
                    }
                }
            }
        }
        said
    }

    fn publish(&mut self, node: &Arc<Node>, before: &Table, table: Table) {
        let after = fabric::last_beat(node);
        self.tally.passed(before, self.ago_us(after), self.pace.turn_us);
        (self.after, self.pace) = (after, pace(node, &table));
        let bytes = match (Published { table, after, pace: self.pace }).in_one_message() {
            Ok(bytes) => bytes,
            Err(e) => return tracing::error!("gangs: a table that can't be sent: {e}"),
        };
        if let Err(why) = fabric::put_everywhere(node, TABLE, bytes) {
            tracing::warn!("gangs: a table that could not be sent: {why}");
        }
        self.set_pace(node);
    }

    /// The strobe beats for each turn, or for several short ones, while somebody takes turns, and as before when nobody does.
    fn set_pace(&mut self, node: &Arc<Node>) {
        let period = fabric::period(node);
        let wanted = match self.desk.matrix().table().rows > 1 {
            true => {
                if fabric::variable(node, BEFORE) == 0 {
                    fabric::store(node, BEFORE, period + 1);
                }
                let table = self.desk.matrix().table();
                if self.pace != pace(node, table) {
                    let table = table.clone();
                    // It comes here again, with the pace that is told now.
                    return self.publish(node, &table.clone(), table);
                }
                self.pace.period_us as i64
            }
            // Who ordered when they began may be gone.
            false => match fabric::variable(node, BEFORE) {
                0 => return,
                before => {
                    fabric::store(node, BEFORE, 0);
                    before - 1
                }
            },
        };
        if wanted != period {
            fabric::set_period(node, wanted);
        }
    }

    /// From when the table counts until that beat, microseconds.
    fn ago_us(&self, beat: u64) -> u64 {
        beat.saturating_sub(self.after).saturating_mul(self.pace.period_us)
    }

    fn status(&self, node: &Node) -> GangStatus {
        let matrix = self.desk.matrix();
        let (table, mut tally) = (matrix.table(), self.tally.clone());
        tally.passed(table, self.ago_us(fabric::last_beat(node)), self.pace.turn_us);
        let line = |seen: pando_gang::Seen<'_>| {
            let head = self.heads.get(&seen.job);
            views::GangJob {
                rows: seen.rows.to_vec(),
                nodes: seen.places.iter().map(|p| (p.node.clone(), p.cpus.clone())).collect(),
                level: seen.level,
                standing: standing(seen.standing).into(),
                slots: tally.of(seen.job),
                turn_us: if table.rows > 1 { table.turn_us(seen.job, self.pace.turn_us) } else { 0 },
                ..head.map(|head| of_head(seen.job, head)).unwrap_or_default()
            }
        };
        let waits = |(number, waited_ms): (u64, u64)| {
            let head = self.heads.get(&number)?;
            Some(views::GangJob { standing: "waits".into(), waited_ms, ..of_head(number, head) })
        };
        GangStatus {
            manager: node.name(),
            quantum_us: quantum_us(node) as u64,
            rows: table.rows,
            gangs: matrix.jobs().map(line).collect(),
            waiting: self.desk.line(self.now_ms()).filter_map(waits).collect(),
            cpus: matrix.nodes().clone(),
        }
    }
}

fn of_head(number: u64, head: &Head) -> views::GangJob {
    let About { job, name, user } = head.about.clone();
    views::GangJob { number, job, name, user, head: head.node.clone(), level: head.gang.level, ..Default::default() }
}

fn standing(of: Standing) -> &'static str {
    match of {
        Standing::Runs => "runs",
        Standing::Suspended => "suspended",
        Standing::Outranked => "outranked",
        Standing::Lost => "lost",
    }
}

/// As it is to be told to all.
fn pace(node: &Node, table: &Table) -> Pace {
    let usual_us = usual_us(node);
    Pace::of(usual_us, table.shortest_us(usual_us))
}

fn usual_us(node: &Node) -> u64 {
    u64::try_from(quantum_us(node)).unwrap_or(1).max(1)
}

/// The length of a turn.
fn quantum_us(node: &Node) -> i64 {
    let told = fabric::variable(node, QUANTUM);
    let configured = (node.config.gang.quantum_ms * 1000.0) as i64;
    if told > 0 { told } else { configured }
}

/// What another node asks of this one.
pub fn answer(node: &Arc<Node>, peer: &str, text: &[u8]) -> Result<Vec<u8>, String> {
    if text.len() > LONGEST {
        return Err("that is too much to ask of gangs".into());
    }
    let ask: Ask = serde_json::from_slice(text).map_err(|e| format!("about gangs, what makes no sense: {e}"))?;
    let mut office = lock(&node.gangs.office);
    let office = office.as_mut().ok_or_else(|| format!("node {} does not order in the fabric", node.name()))?;
    let said = match ask {
        Ask::Arrive(gang, about, waited_ms) => {
            about.check()?;
            serde_json::to_vec(&office.arrive(node, peer, gang, about, waited_ms)?)
        }
        Ask::Adopt(gang, about, places) => {
            about.check()?;
            serde_json::to_vec(&office.adopt(node, peer, gang, about, places)?)
        }
        Ask::Ended(number) => {
            // Only its head can say that.
            match office.heads.get(&number).map(|head| head.node == peer) {
                Some(true) => office.ended(node, number),
                Some(false) => {}
                // What was asked for may still be on its way.
                None => office.remember(number),
            }
            Ok(b"null".to_vec())
        }
        Ask::Show => serde_json::to_vec(&office.status(node)),
    };
    said.map_err(|e| e.to_string())
}

impl Office {
    fn arrive(
        &mut self,
        node: &Arc<Node>,
        head: &str,
        gang: Gang,
        about: About,
        waited_ms: u64,
    ) -> Result<Came, String> {
        if let Some(no) = self.refuses(head, gang.job) {
            return Ok(no);
        }
        let number = self.comes(node, head, &gang, about);
        let before = self.desk.matrix().table().clone();
        let effects = self.desk.ask(gang, waited_ms, self.now_ms());
        let said = self.heed(node, &before, effects).ok_or("the matrix says nothing")?;
        Ok(self.noted(number, said))
    }

    fn adopt(
        &mut self,
        node: &Arc<Node>,
        head: &str,
        gang: Gang,
        about: About,
        places: Vec<Place>,
    ) -> Result<Came, String> {
        if let Some(no) = self.refuses(head, gang.job) {
            return Ok(no);
        }
        let number = self.comes(node, head, &gang, about);
        let said = self.handle(node, Input::Adopt(gang, places)).ok_or("the matrix says nothing")?;
        Ok(self.noted(number, said))
    }

    fn refuses(&self, head: &str, number: u64) -> Option<Came> {
        let waiting = self.desk.line(0).count();
        match self.heads.get(&number) {
            _ if self.over.contains(&number) => Some(Came::Never("it has ended".into())),
            Some(other) if other.node != head => Some(Came::Never("another gang has that number".into())),
            None if self.heads.len() - waiting.min(self.heads.len()) >= MOST => {
                Some(Came::Full(format!("there are {MOST} gangs, and no more can be")))
            }
            None if waiting >= MOST_WAITING => Some(Came::Full(format!("{MOST_WAITING} gangs wait already"))),
            _ => None,
        }
    }

    /// It is known from now on, without a place.
    fn comes(&mut self, node: &Arc<Node>, head: &str, gang: &Gang, about: About) -> u64 {
        // Who has just come may not have been seen yet.
        self.look(node);
        let life = fabric::members(node).get(head).copied();
        let (node, gang, places) = (head.to_owned(), gang.clone(), Vec::new());
        let number = gang.job;
        self.heads.insert(number, Head { node, life, gang, about, places, lost: false });
        number
    }

    /// What came of it. Who waits is known as long as he does.
    fn noted(&mut self, number: u64, said: Came) -> Came {
        match (&said, self.heads.get_mut(&number)) {
            (Came::Placed(placed), Some(head)) => head.places.clone_from(&placed.places),
            _ if self.desk.waits(number) => {}
            _ => _ = self.heads.remove(&number),
        }
        said
    }

    fn ended(&mut self, node: &Arc<Node>, number: u64) {
        self.heads.remove(&number);
        self.remember(number);
        self.handle(node, Input::Ended(number));
    }

    fn remember(&mut self, number: u64) {
        self.over.push_back(number);
        if self.over.len() > REMEMBERED {
            self.over.pop_front();
        }
    }
}

/// `GET /v1/gangs`.
pub async fn show(
    State(node): State<Arc<Node>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
) -> Result<Json<GangStatus>, Refused> {
    let (manager, _) = manager(&node).ok_or_else(|| Refused::Conflict("this node is not in the fabric yet".into()))?;
    let text = serde_json::to_vec(&Ask::Show).map_err(|e| Refused::Conflict(e.to_string()))?;
    let answer = send(&node, &manager, &Errand::Gang(text)).await.map_err(|f| Refused::Conflict(f.why))?;
    let status = serde_json::from_slice(&answer).map_err(|e| Refused::Conflict(format!("node {manager}: {e}")));
    let mut status: GangStatus = status?;
    // Other users' names of their jobs are not shown.
    let name = sys::user_name(caller.uid);
    let all = status.gangs.iter_mut().chain(&mut status.waiting);
    all.filter(|gang| caller.uid != 0 && gang.user != name).for_each(|gang| gang.name.clear());
    Ok(Json(status))
}

/// `POST /v1/gangs`: another length of turns.
pub async fn quantum(
    State(node): State<Arc<Node>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Json(wish): Json<views::GangQuantum>,
) -> Result<Json<()>, Refused> {
    if caller.uid != 0 && caller.uid != sys::effective_uid() {
        return Err(Refused::Forbidden("only root and the node's own user may set how long turns are".into()));
    }
    if wish.quantum_us != 0 && !(SHORTEST_US..=3_600_000_000).contains(&wish.quantum_us) {
        return Err(Refused::Conflict(format!("a turn is {SHORTEST_US} µs at least, and an hour at most")));
    }
    fabric::set_variable(&node, QUANTUM, wish.quantum_us as i64).await?;
    // Who orders sees it at its next look.
    Ok(Json(()))
}
