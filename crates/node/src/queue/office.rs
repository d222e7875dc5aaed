//! Where users' questions about the queue go, and who may ask what.

use super::ask::{Ask, Done, Line, Over, Past, Sends, Shown, Whom};
use super::clerk::{self, Desk};
use super::errand::{self, Errand, Key};
use super::gangs::TurnTerms;
use super::journal::{Journal, Search};
use super::sqlite::Sqlite;
use super::terms::{SHARED, Terms};
use super::tied::{self, Ties};
use super::{campaign, deliver, has, keeper, logs, named, seen, shown, sofar, tell, usage};
use crate::audit::Entry;
use crate::config::Queue;
use crate::daemon::Node;
use crate::jobs::spare::Spares;
use crate::moves::Refused;
use crate::owner::Caller;
use crate::sys::{effective_uid, user_name};
use axum::body::Bytes as Body;
use axum::extract::State;
use axum::extract::connect_info::ConnectInfo;
use axum::response::{IntoResponse, Response};
use pando_queue::{Effect, How, Id, Input, Spec, State as Standing, Step, Update, Usage};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

/// Longest that a wait for a job takes; whoever waits longer asks again.
const LONGEST_WAIT_MS: u64 = 60_000;
/// A daemon that ends waits so long until it does not keep the queue any more.
const LEAVES: Duration = Duration::from_secs(3);
/// Rows of the history that are shown at once.
const MOST_PAST: u32 = 100_000;
/// The journal's file, in the node's state.
const JOURNAL: &str = "queue.db";

/// The queue at this node, if this node keeps it; otherwise who does.
#[derive(Default)]
pub struct Office {
    pub(super) desk: Mutex<Option<Desk>>,
    pub(super) keeper: Mutex<Option<String>>,
    pub(super) terms: Terms,
    pub(super) ward: super::batch::Ward,
    /// Links to other nodes on which an errand was done.
    pub(super) spares: Spares,
    pub(super) ties: Ties,
    pub(super) known: super::has::Known,
    /// Nodes that are there, and since when this one has seen that.
    pub(super) there: Mutex<BTreeMap<String, Instant>>,
    /// There is something to be told to users.
    pub(super) told: Notify,
    /// The daemon ends, and so another node is to keep the queue; and it does not keep it any more.
    pub(super) leaves: Notify,
    pub(super) left: Notify,
}

impl Office {
    fn here(&self) -> Option<Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|desk| !desk.is_closed())
    }
}

fn file(node: &Node) -> PathBuf {
    node.place.state.join(JOURNAL)
}

/// Does this node keep the cluster's queue? The one that is configured, the one that made the cluster, or the one of several whose turn it is.
pub fn keeps(node: &Node) -> bool {
    match &node.config.queue {
        rules if rules.is_shared() => node.queue.here().is_some(),
        Queue { node: Some(name), .. } => *name == node.name(),
        _ => node.identity.is_authority(),
    }
}

/// Says to another node whether this one keeps the queue, and since when: its term, if there are any.
pub fn says(node: &Node) -> Result<String, String> {
    match node.config.queue.is_shared() {
        true => node.queue.here().and_then(|desk| desk.term).map(|term| term.to_string()),
        false => keeps(node).then(String::new),
    }
    .ok_or_else(|| "another node keeps it".to_owned())
}

/// Begins at once where there is a journal: jobs wait in it.
pub fn open(node: &Arc<Node>) {
    campaign::start(node);
    if !node.config.queue.is_shared()
        && keeps(node)
        && file(node).exists()
        && let Err(why) = desk(node)
    {
        tracing::error!("queue: {why}");
    }
}

/// The daemon ends: where another node can keep the queue it does so at once.
pub async fn close(node: &Arc<Node>) {
    let left = node.queue.left.notified();
    if node.config.queue.is_shared() && keeps(node) {
        node.queue.leaves.notify_one();
        let _ = timeout(LEAVES, left).await;
    }
}

/// The queue here; it begins when it is first needed.
fn desk(node: &Arc<Node>) -> Result<Desk, String> {
    if node.config.queue.is_shared() {
        return node.queue.here().ok_or_else(|| errand::ELSEWHERE.to_owned());
    }
    let mut desk = node.queue.desk.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(desk) = &*desk {
        return Ok(desk.clone());
    }
    if !keeps(node) {
        return Err(format!("node {} does not keep the queue", node.name()));
    }
    let begun = begin(node, Journal::Disk(Sqlite::open(&file(node)).map_err(|e| e.to_string())?))?;
    *desk = Some(begun.clone());
    Ok(begun)
}

/// Keeps the queue that is in this journal.
pub fn begin(node: &Arc<Node>, journal: Journal) -> Result<Desk, String> {
    let theirs = node.clone();
    let rules = pando_queue::Settings { turns: node.config.queue.turns, ..node.config.queue.rules.clone() };
    let begun = clerk::start(journal, rules, move |desk| {
        Box::new(move |queue, effect, again| deliver::act(&theirs, &desk, queue, effect, again))
    })?;
    tokio::spawn(seen::keep(node.clone(), begun.clone()));
    tokio::spawn(tied::keep(node.clone(), begun.clone()));
    tokio::spawn(tell::keep(node.clone(), begun.clone()));
    Ok(begun)
}

/// `POST /v1/queue`: an [`Ask`].
pub async fn ask(State(node): State<Arc<Node>>, ConnectInfo(caller): ConnectInfo<Caller>, body: Body) -> Response {
    if effective_uid() != 0 && caller.uid != 0 && caller.uid != effective_uid() {
        let why = format!("this node runs in personal mode, for {}", user_name(effective_uid()));
        return Refused::Forbidden(why).into_response();
    }
    let user = user_name(caller.uid);
    match keeper::passed_on(&node, &user, body.to_vec()).await {
        Ok(text) => ([("content-type", "application/json")], text).into_response(),
        Err(why) => Refused::Conflict(why).into_response(),
    }
}

/// May this user see and change everybody's jobs? Root of another node only where that node's root may run programs here.
fn operates(node: &Node, user: &str, peer: &str) -> bool {
    let root = user == "root" && (peer == node.name() || node.config.jobs.root);
    let is = |entry: &String| match entry.strip_prefix('@') {
        Some(group) => is_in(node, user, group),
        None => entry == user,
    };
    root || node.config.queue.operators.iter().any(is)
}

/// Is that user in that group, as the node that keeps the queue knows them?
fn is_in(node: &Node, user: &str, group: &str) -> bool {
    let look = || {
        let group = pando_kernel::rank::group(group)?;
        let (_, main, groups) = node.jobs.user(user)?;
        Some(main == group || groups.contains(&group))
    };
    tokio::task::block_in_place(look).unwrap_or(false)
}

/// What a user of `peer` asks of the queue that this node keeps.
pub async fn answer(node: &Arc<Node>, user: &str, peer: &str, text: &[u8]) -> Result<Vec<u8>, String> {
    let mut ask: Ask = serde_json::from_slice(text).map_err(|e| format!("that is no question to a queue: {e}"))?;
    let (desk, may_come_twice) = (desk(node)?, ask.may_come_twice());
    let asker =
        Asker { node: node.clone(), desk: desk.clone(), user: user.into(), operator: operates(node, user, peer) };
    let answer = match named::all(&desk, ask.ids()).await {
        Ok(()) => asker.answer(ask, peer).await,
        Err(why) => Err(why),
    };
    match answer {
        // Some of it may be stored, some may not.
        _ if desk.term.is_some() && desk.is_closed() => match may_come_twice {
            true => Err(errand::ELSEWHERE.to_owned()),
            false => Err("another node keeps the queue since a moment ago, and nobody knows whether this was done: see `pando queue`".into()),
        },
        answer => answer,
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|e| e.to_string())
}

/// Who asks.
struct Asker {
    node: Arc<Node>,
    desk: Desk,
    user: String,
    operator: bool,
}

impl Asker {
    async fn answer(&self, ask: Ask, peer: &str) -> Result<Vec<u8>, String> {
        let (node, asker) = (&self.node, self);
        match ask {
            Ask::Named(ids) => json(&ids),
            Ask::Submit(spec) => json(&asker.submit(*spec, peer).await?),
            Ask::List => json(&asker.list().await?),
            Ask::Cancel { ids, user, signal, whom } => json(&asker.cancel(ids, user, signal, whom).await?),
            Ask::CancelSteps { steps, signal } => json(&asker.cancel_steps(steps, signal).await?),
            Ask::Hold(ids) => {
                let operator = asker.operator;
                json(&asker.each(ids, "hold", |id| Input::Hold { id, operator }).await?)
            }
            Ask::Release(ids) => {
                let operator = asker.operator;
                json(&asker.each(ids, "release", |id| Input::Release { id, operator }).await?)
            }
            Ask::Requeue { ids, hold } => json(&asker.each(ids, "requeue", |id| Input::Requeue { id, hold }).await?),
            Ask::Update(job, update) => json(&asker.update(job, update).await?),
            Ask::Park { ids, still } => json(&asker.park(ids, still).await?),
            Ask::Cluster => {
                let keeper = node.name();
                let mut all = asker.desk.look(move |queue, _| shown::cluster(queue, keeper)).await?;
                all.drains = has::drains(node);
                json(&all)
            }
            Ask::Show(id) => json(&asker.show(id).await?),
            Ask::History { user, job, since, most } => {
                json(&asker.history(Search { user, job, since, most: most.min(MOST_PAST), task: None }).await?)
            }
            Ask::Wait { id, patience_ms } => json(&asker.wait(id, patience_ms.min(LONGEST_WAIT_MS)).await?),
            Ask::Read { id, error, from, patience_ms } => json(&asker.read(id, (error, from, patience_ms)).await?),
            Ask::Tie { job, known, patience_ms } => {
                asker.may(Id::of(job)).await?;
                json(&tied::tie(node, &asker.desk, job, known, patience_ms).await?)
            }
            Ask::GiveBack(job) => json(&asker.each(vec![Id::of(job)], "give back", |_| Input::GiveBack(job)).await?),
            Ask::Reserve(reservation) => json(&asker.rule(Input::Reserve(reservation)).await?),
            Ask::Unreserve(name) => json(&asker.rule(Input::Unreserve(name)).await?),
            Ask::Usage { user, since } => {
                let file = asker.desk.look(|_, journal| journal.history_file()).await?.unwrap_or_else(|| file(node));
                json(&tokio::task::block_in_place(|| usage::sums(&file, user.as_deref(), since))?)
            }
            Ask::Sends => {
                let rules = &node.config.queue;
                json(&Sends { mail: rules.mailer.is_some(), webhooks: rules.webhooks })
            }
            Ask::Turns { quality, job } => {
                let user = asker.user.clone();
                json(&asker.desk.look(move |queue, _| TurnTerms::of(queue, &user, quality.as_deref(), job)).await??)
            }
            Ask::Nodes => json(&asker.desk.look(|queue, _| queue.nodes().cloned().collect::<Vec<_>>()).await?),
            Ask::Used(ids) => json(&sofar::used(node, &asker.desk, ids).await?),
            Ask::Reservations => {
                json(&asker.desk.look(|queue, _| queue.reservations().cloned().collect::<Vec<_>>()).await?)
            }
        }
    }

    fn audit(&self, what: &'static str, on: String, answer: &Result<(), String>) {
        let (allowed, why) = match answer {
            Ok(()) => (true, if self.operator { "an operator" } else { "its user" }.to_owned()),
            Err(why) => (false, why.clone()),
        };
        self.node.audit.note(&Entry { who: crate::owner::clean(&self.user), what, on, allowed, why });
    }

    async fn submit(&self, mut spec: Spec, peer: &str) -> Result<u64, String> {
        spec.user.clone_from(&self.user);
        let (name, tied) = (crate::owner::clean(&spec.name), spec.tied);
        let told = tell::check(&self.node, &spec.tell);
        let allowed = match () {
            () if told.is_err() => told,
            () if self.user == "root" && peer != self.node.name() && !self.node.config.jobs.root => {
                Err(format!("node {} takes no jobs of another node's root ([jobs] root)", self.node.name()))
            }
            () if spec.nice < 0 && !self.operator => Err("only operators may ask for --nice below 0".to_owned()),
            () => Ok(()),
        };
        let allowed = match allowed {
            Ok(()) => named::dependency(&self.desk, &mut spec).await,
            Err(why) => Err(why),
        };
        let taken = match allowed {
            Ok(()) => self.desk.take(Input::Submit(Box::new(spec))).await.and_then(|effects| accepted(&effects)),
            Err(why) => Err(why),
        };
        let number = taken.as_ref().ok().filter(|_| tied);
        number.into_iter().for_each(|number| self.node.queue.ties.touch(*number));
        let on = taken.as_ref().map_or(name.clone(), |number| format!("job {number}: {name}"));
        self.audit("submit", on, &taken.as_ref().map(|_| ()).map_err(String::clone));
        taken
    }

    /// Some of what a task has written, for its user and for operators.
    async fn read(&self, id: Id, ask: (bool, super::ask::From, u64)) -> Result<super::ask::Piece, String> {
        let keeper = deliver::keeper(&self.node, &self.desk);
        let (owner, found) = self.desk.look(move |queue, journal| logs::find(queue, journal, keeper, id)).await??;
        let allowed = match owner == self.user || self.operator {
            true => Ok(()),
            false => Err(format!("job {id} is {owner}'s, and not yours")),
        };
        if owner != self.user {
            self.audit("read", format!("job {id}"), &allowed);
        }
        allowed?;
        logs::fetch(&self.node, &self.desk, found, ask).await
    }

    async fn list(&self) -> Result<Vec<Line>, String> {
        let mut all = self.desk.look(|queue, _| shown::lines(queue, crate::events::now_ms())).await?;
        // What others note is theirs.
        all.iter_mut().filter(|line| line.user != self.user && !self.operator).for_each(|line| line.comment.clear());
        Ok(all)
    }

    /// The job's user, if this one may change it.
    async fn may(&self, id: Id) -> Result<(), String> {
        let (user, operator) = (self.user.clone(), self.operator);
        let owner = self.desk.look(move |queue, _| queue.job(id.job).map(|job| job.spec.user.clone())).await?;
        match owner {
            Some(owner) if owner == user || operator => Ok(()),
            Some(owner) => Err(format!("job {id} is {owner}'s, and not yours")),
            None => Err(format!("there is no job {id} in the queue: `pando history` shows old ones")),
        }
    }

    async fn each(&self, ids: Vec<Id>, what: &'static str, input: impl Fn(Id) -> Input) -> Result<Done, String> {
        let mut done = Done::default();
        for id in ids {
            let answer = match self.may(id).await {
                Ok(()) => self.desk.take(input(id)).await.and_then(|effects| refused(&effects)),
                Err(why) => Err(why),
            };
            self.audit(what, format!("job {id}"), &answer);
            done.refused.extend(answer.err());
        }
        Ok(done)
    }

    async fn update(&self, job: u64, update: Update) -> Result<Done, String> {
        let id = Id::of(job);
        let allowed = match self.may_be_so(job, &update).await {
            Ok(()) => self.may(id).await,
            Err(why) => Err(why),
        };
        let answer = match allowed {
            Ok(()) => self.desk.take(Input::Update(job, update.clone())).await.and_then(|effects| refused(&effects)),
            Err(why) => Err(why),
        };
        self.audit("update", crate::owner::clean(&format!("job {id}: {update:?}")), &answer);
        Ok(Done { refused: answer.err().into_iter().collect() })
    }

    /// What only operators do to a job, even to their own.
    async fn may_be_so(&self, job: u64, update: &Update) -> Result<(), String> {
        let limit = self.desk.look(move |queue, _| queue.job(job).map(|job| job.spec.limit_ms)).await?.flatten();
        match update {
            _ if self.operator => Ok(()),
            Update::Nice(nice) if *nice < 0 => Err("only operators may ask for a nice below 0".into()),
            Update::Limit(ms) if limit.is_some_and(|limit| *ms > limit) => {
                Err(format!("only operators make the time of job {job} longer"))
            }
            _ => Ok(()),
        }
    }

    async fn park(&self, ids: Vec<Id>, still: bool) -> Result<Done, String> {
        match self.operator {
            true => self.each(ids, if still { "suspend" } else { "resume" }, |id| Input::Park { id, still }).await,
            false => {
                let no =
                    Err("only operators suspend jobs and have them go on: root, and who is named in [queue] operators"
                        .to_owned());
                ids.iter().for_each(|id| self.audit("suspend", format!("job {id}"), &no));
                no.map(|()| Done::default())
            }
        }
    }

    async fn cancel(
        &self,
        mut ids: Vec<Id>,
        user: Option<String>,
        signal: Option<i32>,
        whom: Whom,
    ) -> Result<Done, String> {
        if let Some(of) = user {
            let theirs = move |queue: &pando_queue::Queue| -> Vec<Id> {
                queue.jobs().filter(|job| job.spec.user == of && !job.is_over()).map(|job| Id::of(job.id)).collect()
            };
            ids.extend(self.desk.look(move |queue, _| theirs(queue)).await?);
        }
        let by = self.user.clone();
        match signal {
            None => self.each(ids, "cancel", |id| Input::Cancel { id, by: by.clone() }).await,
            Some(number) => self.signal(ids, number, whom).await,
        }
    }

    async fn signal(&self, ids: Vec<Id>, number: i32, whom: Whom) -> Result<Done, String> {
        let mut done = Done::default();
        for id in ids {
            let answer = match self.may(id).await {
                Ok(()) => self.signal_one(id, number, whom).await,
                Err(why) => Err(why),
            };
            self.audit("signal", format!("job {id}, signal {number}"), &answer);
            done.refused.extend(answer.err());
        }
        Ok(done)
    }

    async fn cancel_steps(&self, steps: Vec<(Id, u32)>, signal: Option<i32>) -> Result<Done, String> {
        let mut done = Done::default();
        for (id, number) in steps {
            let answer = match self.may(id).await {
                Ok(()) => self.cancel_step(id, number, signal).await,
                Err(why) => Err(why),
            };
            self.audit("cancel", format!("step {id}.{number}"), &answer);
            done.refused.extend(answer.err());
        }
        Ok(done)
    }

    async fn cancel_step(&self, id: Id, number: u32, signal: Option<i32>) -> Result<(), String> {
        let keeper = deliver::keeper(&self.node, &self.desk);
        let look = self.desk.look(move |queue, _| {
            let job = queue.job(id.job)?;
            let run = job.running.get(&id.task.unwrap_or(0))?;
            let step = run.steps.all.iter().rev().find(|step| step.number == number && step.end.is_none())?;
            let key = Key { keeper, id, run: run.run };
            Some((step.head.clone(), Errand::EndStep { key, user: job.spec.user.clone(), number, signal }))
        });
        let found = look.await?;
        let (head, errand) = found.ok_or_else(|| format!("there is no step {id}.{number}, or it is over"))?;
        deliver::order(&self.node, &self.desk, &head, &errand).await.map(drop).map_err(|failure| failure.why)
    }

    async fn signal_one(&self, id: Id, number: i32, whom: Whom) -> Result<(), String> {
        let me = deliver::keeper(&self.node, &self.desk);
        let running = self.desk.look(move |queue, _| {
            let Some(job) = queue.job(id.job) else { return Vec::new() };
            let meant = job.running.iter().filter(|(task, _)| id.task.is_none_or(|t| job.is_array() && t == **task));
            let place = |(task, run): (&u32, &pando_queue::Run)| {
                let key = Key { keeper: me.clone(), id: job.name_of(*task), run: run.run };
                run.shares.first().map(|share| (share.node.clone(), key))
            };
            meant.filter_map(place).collect()
        });
        let running = running.await?;
        if running.is_empty() {
            return Err(format!("nothing of job {id} runs"));
        }
        for (to, key) in running {
            let errand = match whom {
                Whom::All => Errand::Signal(key, number),
                Whom::Script | Whom::Steps => Errand::Warn(key, number, whom == Whom::Script),
            };
            deliver::order(&self.node, &self.desk, &to, &errand).await.map_err(|failure| failure.why)?;
        }
        Ok(())
    }

    async fn show(&self, id: Id) -> Result<Shown, String> {
        let (user, operator, keeper) = (self.user.clone(), self.operator, self.node.name());
        // To see what is in the way of one of thousands takes longer than the queue may stand still: that is done with a copy.
        let look =
            move |queue: &pando_queue::Queue, journal: &Journal| (queue.clone(), shown::last_failure(journal, id));
        let (copy, last_failure) = self.desk.look(look).await?;
        let found = tokio::task::block_in_place(|| shown::all(&copy, id, keeper));
        let mut all =
            found.ok_or_else(|| format!("there is no job {id} in the queue: `pando history` shows old ones"))?;
        if all.job.spec.user != user && !operator {
            let spec = &mut all.job.spec;
            (spec.work, spec.environment, spec.comment, spec.tell) = Default::default();
        }
        all.last_failure = last_failure;
        Ok(all)
    }

    async fn history(&self, search: Search) -> Result<Vec<Past>, String> {
        let found = self.desk.look(move |_, journal| journal.history(&search)).await?.map_err(|e| e.to_string())?;
        let past = |old: super::journal::Old| Past {
            name: old.name,
            user: old.user,
            account: old.account,
            outcome: old.outcome,
        };
        Ok(found.into_iter().map(past).collect())
    }

    async fn wait(&self, id: Id, patience_ms: u64) -> Result<Over, String> {
        let until = Instant::now() + Duration::from_millis(patience_ms);
        let mut changed = self.desk.changed.clone();
        loop {
            changed.mark_unchanged();
            let end = self.desk.look(move |queue, journal| shown::end(queue, journal, id)).await??;
            if end.is_some() || timeout_at(until, changed.changed()).await.is_err() {
                return Ok(Over { end });
            }
        }
    }

    /// What only operators do.
    async fn rule(&self, input: Input) -> Result<Done, String> {
        let (what, on) = match &input {
            Input::Reserve(reservation) => ("reserve", crate::owner::clean(&reservation.name)),
            Input::Unreserve(name) => ("unreserve", crate::owner::clean(name)),
            _ => ("reserve", String::new()),
        };
        let answer = match self.operator {
            true => self.desk.take(input).await.and_then(|effects| refused(&effects)),
            false => Err("only operators do that: root, and who is named in [queue] operators".into()),
        };
        self.audit(what, on, &answer);
        answer.map(|()| Done::default())
    }
}

fn accepted(effects: &[Effect]) -> Result<u64, String> {
    let number = effects.iter().find_map(|e| if let Effect::Accepted(number) = e { Some(*number) } else { None });
    refused(effects)?;
    number.ok_or_else(|| "the queue says nothing to it".into())
}

fn refused(effects: &[Effect]) -> Result<(), String> {
    let why = effects.iter().find_map(|e| if let Effect::Refused(why) = e { Some(why.clone()) } else { None });
    why.map_or(Ok(()), Err)
}

fn of(node: &Node, key: &Key) -> Result<(), String> {
    let own = if node.config.queue.is_shared() { SHARED.to_owned() } else { node.name() };
    match key.keeper == own {
        true => Ok(()),
        false => Err(format!("that is a job of node {}'s queue", key.keeper)),
    }
}

/// A node says that a task has begun. When this returns it is stored: it is not said again.
pub async fn began(node: &Arc<Node>, key: &Key, peer: &str) -> Result<(), String> {
    of(node, key)?;
    let effects = desk(node)?.take_of(peer, Input::Began(key.id, key.run)).await?;
    refused(&effects)
}

/// A node says that nothing is left of a task. When this returns it is stored.
pub async fn ended(node: &Arc<Node>, key: &Key, how: How, usage: Usage, peer: &str) -> Result<(), String> {
    of(node, key)?;
    let desk = desk(node)?;
    let effects = desk.take_of(peer, Input::Ended(key.id, key.run, how, usage)).await?;
    refused(&effects)
}

/// A node's daemon has begun so long ago, milliseconds, and finds that jobs of an earlier one are lost: if nobody has seen that it was away, they were then.
pub async fn back(node: &Arc<Node>, peer: &str, ms: u64) -> Result<(), String> {
    let began = Instant::now().checked_sub(Duration::from_millis(ms));
    let since = node.queue.there.lock().unwrap_or_else(PoisonError::into_inner).get(peer).copied();
    let is_unseen = peer == node.name() || since.zip(began).is_some_and(|(since, began)| since < began);
    match is_unseen {
        true => desk(node)?.take(Input::NodeHeard(peer.to_owned(), ms)).await.map(drop),
        false => Ok(()),
    }
}

/// The head of a user's step says that it has begun, or is over. When this returns it is stored.
pub async fn step(node: &Arc<Node>, user: String, id: Id, run: Option<u32>, step: Box<Step>) -> Result<(), String> {
    desk(node)?.take(Input::Step { id, run, user, step }).await.and_then(|effects| refused(&effects))
}

/// How a shell knows the end of a job.
pub(super) fn status(state: Standing, how: Option<&How>) -> i32 {
    match how {
        // As `pando run --time` has it, so that a script can tell it from its own.
        _ if state == Standing::Timeout => 124,
        _ if state == Standing::OutOfMemory => 137,
        Some(how) => status_of(how),
        _ if state == Standing::Completed => 0,
        _ => 1,
    }
}

/// The same, of processes.
pub(crate) fn status_of(how: &How) -> i32 {
    match how {
        How::Exit(status) => *status,
        How::Signal(number) => 128 + number,
        How::OutOfMemory => 137,
        How::NodeLost(_) | How::NotBegun(_) | How::CantBegin(_) => 1,
    }
}
