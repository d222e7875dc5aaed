//! `POST /v1/jobs`: a user's command wants a job, and speaks with its head, which is here.

use super::group::{Groups, Heard};
use super::link::{End, Said, next, talk};
use super::member::DRAINED;
use super::part::{self, First};
use super::steps::{self, Lease, Tally};
use crate::audit::Entry as Audited;
use crate::daemon::Node;
use crate::gang::{self, About, Came};
use crate::link::broken;
use crate::moves::Refused;
use crate::owner::Caller;
use crate::sys::{effective_uid, user_name};
use crate::views::{self, Event};
use axum::Json;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Request as Asked, State};
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use pando_launch::{
    Act, Ask, Candidate, Frames, Head, Manager, Mpi, Order, Request, STEP, Share, Tell, Turns, Up, arity, plan,
};
use pando_queue::Id;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{Receiver, UnboundedSender, channel, unbounded_channel};
use tokio::time::{sleep_until, timeout};

/// What the connection becomes.
const PROTOCOL: &str = "pando-job";
/// Messages that have been read and not been heeded.
const WAITING: usize = 256;
/// Bytes of output of all nodes that are on their way, and the least and the most of one.
const WINDOWS: u32 = 64 << 20;
const WINDOW: (u32, u32) = (64 << 10, 1 << 20);
/// So often nodes are chosen anew, because one could not be reached.
const ATTEMPTS: u32 = 4;
/// Who waits for a place looks for one again after this.
const LOOKS_AGAIN: Duration = Duration::from_millis(300);
/// A request is read within this.
const PATIENCE: Duration = Duration::from_secs(10);

/// `GET /v1/jobs`: other users' commands are not shown.
pub async fn list(State(node): State<Arc<Node>>, ConnectInfo(caller): ConnectInfo<Caller>) -> Json<Vec<views::Job>> {
    let name = user_name(caller.uid);
    let mut all = node.jobs.list();
    for job in all.iter_mut().filter(|j| caller.uid != 0 && j.user != name) {
        (job.command, job.name) = Default::default();
    }
    Json(all)
}

/// The connection becomes frames: a [`Request`] first, then [`Ask`] and [`Tell`].
pub async fn begin(
    State(node): State<Arc<Node>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Asked,
) -> Response {
    if request.headers().get(UPGRADE).is_none_or(|to| to != PROTOCOL) {
        return Refused::Conflict(format!("a job's connection is upgraded to {PROTOCOL}")).into_response();
    }
    tokio::spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(stream) => {
                if let Err(e) = serve(&node, TokioIo::new(stream), caller).await {
                    tracing::debug!("jobs: a command of {caller}: {e}");
                }
            }
            Err(e) => tracing::debug!("jobs: a command of {caller}: {e}"),
        }
    });
    (StatusCode::SWITCHING_PROTOCOLS, [(UPGRADE, PROTOCOL), (CONNECTION, "upgrade")]).into_response()
}

async fn serve<S>(node: &Arc<Node>, mut stream: S, caller: Caller) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut frames = Frames::default();
    let request = timeout(PATIENCE, next::<_, Request>(&mut stream, &mut frames)).await;
    let request = request.map_err(|_| broken("no request in time"))??.ok_or_else(|| broken("it hung up"))?;
    let (tell, queue) = unbounded_channel::<Tell>();
    let (hear, heard) = channel::<Ask>(WAITING);
    let said = Said { queue, beat: Tell::StdinTaken(0), silence: None, end: End::Closes };
    // Not to hold what tells of the user's end.
    let also = hear.downgrade();
    let mut user = User { heard, early: VecDeque::new(), tell: Some(tell), sends: false };
    let heads = async {
        let mut without = Vec::new();
        let request = as_step(node, request);
        let _open = steps::open(node, &request, &user_name(caller.uid), &also);
        let (_lease, request) = match lease(node, request, &mut user).await {
            Ok(made) => made,
            Err(why) => return user.tell(Tell::No(why)),
        };
        for attempt in 1.. {
            let turns = match request.gang {
                Turns::No => Ok(None),
                _ => turns(node, &request, caller, &without, &mut user).await,
            };
            let made = turns.and_then(|turns| {
                // Two that begin at once see each other's ranks.
                let _alone = node.jobs.placing();
                let order = Arc::new(order(node, &request, caller, &without, turns.as_ref())?);
                Ok((part::first(node, &order)?, order, turns))
            });
            match made {
                Ok((tree, order, _turns)) => {
                    audit(node, &request, caller, Ok(order.job));
                    let last = attempt == ATTEMPTS || !request.among.is_empty();
                    match run(node, (order, tree), &request, &mut user, last).await {
                        Some(unreachable) => without.push(unreachable),
                        None => break,
                    }
                }
                Err(why) => {
                    audit(node, &request, caller, Err(&why));
                    user.tell(Tell::No(why));
                    break;
                }
            }
        }
        // What has been said goes out, then the connection closes.
        drop(user);
    };
    // The user's end may close before the job is over; the head ends it then.
    let speaks = async move {
        talk(stream, frames, said, hear, (|ask: Ask| ask, |_: &Ask| false)).await;
    };
    tokio::join!(speaks, heads);
    Ok(())
}

fn audit(node: &Node, request: &Request, caller: Caller, made: Result<u64, &String>) {
    let words: Vec<_> = request.task.words.iter().map(|w| String::from_utf8_lossy(w)).collect();
    let words = crate::owner::clean(&words.join(" "));
    let (allowed, on, why) = match made {
        Ok(job) => (true, format!("job {job}: {words}"), "its user asked for it".to_owned()),
        Err(why) => (false, words, why.clone()),
    };
    node.audit.note(&Audited { who: caller.to_string(), what: "run", on, allowed, why });
}

/// A place among the gangs, as soon as there is one.
async fn turns(
    node: &Arc<Node>,
    request: &Request,
    caller: Caller,
    without: &[String],
    user: &mut User,
) -> Result<Option<gang::Lease>, String> {
    let (job, user_of) = (node.jobs.number(), user_name(caller.uid));
    let batch = batch_of(&request.task).and_then(|id| Id::read(std::str::from_utf8(id).ok()?).ok());
    let terms = match gang::terms(node, &user_of, request.quality.as_deref(), batch).await {
        // Nobody has asked for turns.
        Err(_) if request.gang == Turns::IfItFits => gang::terms(node, &user_of, None, batch).await?,
        terms => terms?,
    };
    let about = About { job, name: request.name.clone(), user: user_of };
    // Nobody sits before a step of a batch job.
    let mut lease = gang::Lease::wanted(node, about, terms, batch_of(&request.task).is_none());
    let mut told = false;
    loop {
        match lease.ask(request, without).await {
            Came::Placed => return Ok(Some(lease)),
            Came::Never(_) if request.gang == Turns::IfItFits => return Ok(None),
            Came::Never(why) => return Err(why),
            Came::NotNow(why) if !told => user.tell(Tell::Waits(why)),
            Came::NotNow(_) => {}
        }
        told = true;
        user.pause().await?;
    }
}

/// CPUs of its own, for a step that wants that, as soon as its batch job has some that no other such step has.
async fn lease(node: &Arc<Node>, mut request: Request, user: &mut User) -> Result<(Option<Lease>, Request), String> {
    if request.exclusive.is_empty() {
        return Ok((None, request));
    }
    let mut told = false;
    loop {
        if let Some(lease) = steps::lease(node, &request)? {
            let ranks = lease.seats.iter().map(|(_, ranks)| ranks).sum();
            (request.slots, request.ranks, request.among) = (lease.seats.clone(), Some(ranks), Vec::new());
            (request.nodes, request.per_node) = (None, None);
            request.cpus = Some(request.cpus.unwrap_or(1).max(1));
            return Ok((Some(lease), request));
        }
        if !std::mem::replace(&mut told, true) {
            user.tell(Tell::Waits("other steps of its job have the CPUs (--exclusive)".into()));
        }
        user.pause().await?;
    }
}

/// The user's command, as long as it is there.
struct User {
    heard: Receiver<Ask>,
    /// What it said while it waited.
    early: VecDeque<Ask>,
    tell: Option<UnboundedSender<Tell>>,
    /// It has been asked for pieces of a file.
    sends: bool,
}

impl User {
    /// It waits a while. An error: its user does not want it any more.
    async fn pause(&mut self) -> Result<(), String> {
        let until = tokio::time::Instant::now() + LOOKS_AGAIN;
        loop {
            tokio::select! {
                ask = self.heard.recv() => match ask {
                    Some(Ask::Kill | Ask::Signal(_)) | None => return Err("it was called off while it waited".into()),
                    Some(ask) => self.early.push_back(ask),
                },
                () = sleep_until(until) => return Ok(()),
            }
            if self.early.len() > WAITING {
                // It says more than anybody needs before its job begins.
                sleep_until(until).await;
                return Ok(());
            }
        }
    }

    async fn asks(&mut self) -> Option<Ask> {
        match self.early.pop_front() {
            Some(ask) => Some(ask),
            None => self.heard.recv().await,
        }
    }

    fn tell(&mut self, tell: Tell) {
        self.sends |= matches!(tell, Tell::Want { .. });
        let _ = self.tell.as_ref().map(|to| to.send(tell));
    }
}

/// The nodes that take ranks just now.
fn candidates(node: &Node) -> Vec<Candidate> {
    let me = node.name();
    let open = |n: &views::Node| n.state == views::Liveness::Up && ["open", "full", ""].contains(&n.standing.as_str());
    let nodes = node.cluster.nodes();
    let all = nodes.into_iter().filter(|n| open(n));
    let mut ranks = node.jobs.ranks();
    // A batch job that waits for something just now wants its CPUs back. Of those of other nodes only what they run is known.
    *ranks.entry(me.clone()).or_default() += crate::queue::batch::cpus(node);
    all.map(|n| Candidate {
        is_here: n.name == me,
        cpus_milli: (n.cpus * 1000.0) as u32,
        // Ranks that sleep just now, or have only begun, count as well.
        // A CPU of gangs is not idle when none of them runs.
        runnable_milli: (((n.runnable + n.held) * 1000.0) as u32)
            .max(ranks.get(&n.name).map_or(0, |r| r.saturating_mul(1000))),
        node: n.name,
    })
    .collect()
}

/// The batch job that it is a step of.
fn batch_of(task: &pando_launch::Task) -> Option<&[u8]> {
    let found = task.environment.iter().find(|(name, _)| name.as_slice() == b"PANDO_BATCH_JOB");
    found.map(|(_, id)| id.as_slice())
}

/// A step of a batch job gets its number.
fn as_step(node: &Node, mut request: Request) -> Request {
    if let Some(job) = batch_of(&request.task).map(|job| String::from_utf8_lossy(job).into_owned()) {
        let step = node.jobs.step(job).to_string();
        let all = &mut request.task.environment;
        all.retain(|(name, _)| name.as_slice() != STEP.as_bytes());
        all.push((STEP.as_bytes().to_vec().into(), step.into_bytes().into()));
    }
    request
}

fn order(
    node: &Node,
    request: &Request,
    caller: Caller,
    without: &[String],
    turns: Option<&gang::Lease>,
) -> Result<Order, String> {
    if effective_uid() != 0 && caller.uid != 0 && caller.uid != effective_uid() {
        return Err(format!("this node runs in personal mode, for {}", user_name(effective_uid())));
    }
    let known: Vec<String> = node.cluster.nodes().into_iter().map(|n| n.name).collect();
    if let Some(stranger) = request.exclude.iter().find(|n| !known.contains(n)) {
        return Err(format!("--exclude: there is no node {stranger}: see `pando nodes`"));
    }
    let mut all = candidates(node);
    if batch_of(&request.task).is_some() {
        // Its CPUs there are its own: only what it runs itself counts.
        let ranks = node.jobs.ranks();
        let own = |name: &str| ranks.get(name).map_or(0, |r| r.saturating_mul(1000));
        all.iter_mut().for_each(|c| c.runnable_milli = own(&c.node));
    }
    all.retain(|c| !without.contains(&c.node));
    // A gang has its place already.
    let placed = turns.map(|turns| turns.placed(request));
    let nodes = plan(placed.as_ref().unwrap_or(request), &all, &node.name()).map_err(|why| match without {
        [] => why,
        gone => format!("{why} ({} could not be reached)", gone.join(", ")),
    })?;
    let window = (WINDOWS / nodes.len() as u32).clamp(WINDOW.0, WINDOW.1);
    let job = turns.map_or_else(|| node.jobs.number(), gang::Lease::job);
    let gang = turns.map(|turns| turns.gang(&nodes, request.cpus.unwrap_or(1)));
    let order = Order {
        job,
        name: request.name.clone(),
        user: user_name(caller.uid),
        nodes,
        arity: arity(node.config.jobs.arity, request.files.iter().map(|f| f.size).fold(0, u64::saturating_add)),
        task: request.task.clone(),
        cpus: request.cpus,
        stdin: request.stdin,
        terminal: request.terminal,
        window,
        hold: request.hold,
        pool: request.pool,
        task_ms: request.time_ms.filter(|_| request.pool),
        files: request.files.clone(),
        needs: request.needs.clone(),
        manager: manager(node, job, request.mpi),
        gang,
        exclusive: !request.exclusive.is_empty(),
        memory_mb: request.memory_mb,
        room: Vec::new(),
        group: None,
    };
    let room = order.nodes.iter().map(|share| room(share, &order, &all)).collect();
    let order = Order { room, ..order };
    order.check()?;
    Ok(order)
}

/// Ranks that a node has CPUs for. A batch job's are those of the node where it began.
fn room(share: &Share, order: &Order, all: &[Candidate]) -> u32 {
    let variable = |name: &[u8]| {
        let found = order.task.environment.iter().find(|(n, _)| n.as_slice() == name)?;
        std::str::from_utf8(&found.1).ok()?.parse::<u32>().ok()
    };
    let cpus = match batch_of(&order.task) {
        Some(_) => variable(b"SLURM_CPUS_ON_NODE"),
        None => all.iter().find(|c| c.node == share.node).map(|c| c.cpus_milli / 1000),
    };
    (cpus.unwrap_or(0) / u32::from(order.cpus.unwrap_or(1)).max(1)).max(share.ranks)
}

/// Whom ranks find each other through: all nodes do as it is decided here.
fn manager(node: &Node, job: u64, wish: Mpi) -> Manager {
    match wish {
        Mpi::None => Manager::None,
        // The user's command has looked at the program, and has not seen that it wants anything else.
        Mpi::Auto | Mpi::Pmi1 => Manager::Pmi1,
        Mpi::Pmix => manager_of(node, job),
    }
}

/// One of PMIx's, for a job with this number.
pub fn manager_of(node: &Node, job: u64) -> Manager {
    // The library believes who knows this name, on the node where it runs.
    let mut secret = [0; 16];
    pando_wire::token::random(&mut secret);
    let secret: String = secret.iter().map(|b| format!("{b:02x}")).collect();
    Manager::Pmix { space: format!("pando-{}-{job}-{secret}", node.name()) }
}

/// Runs it to its end. A node that could not be reached, if all can begin anew without it.
async fn run(
    node: &Arc<Node>,
    (order, mut tree): (Arc<Order>, First),
    request: &Request,
    user: &mut User,
    last: bool,
) -> Option<String> {
    let mut head = Head::new(order.clone(), request.kill_on_bad, request.grace_ms)
        .limited(request.time_ms.filter(|_| !request.pool));
    let mut groups = Groups::new(node, request.grace_ms);
    let mut tally = Tally::of(node, &order);
    let (begun, mut unreachable, mut early) = (Instant::now(), None, true);
    let now = || begun.elapsed().as_millis() as u64;
    while !head.is_over() {
        let due = head.due().map(|at| begun + Duration::from_millis(at));
        let acts = tokio::select! {
            Some(up) = tree.ups.recv() => {
                note(node, &order, &up);
                tally.as_mut().into_iter().for_each(|tally| tally.up(&order, &up));
                if let Some(place) = not_there(&up).filter(|_| early && !last && !user.sends && user.tell.is_some()) {
                    unreachable = order.nodes.get(place as usize).map(|s| s.node.clone());
                }
                early &= up != Up::Ready;
                head.up(up, now())
            }
            (group, heard) = groups.hears() => {
                tally.as_mut().into_iter().for_each(|tally| tally.group(&heard));
                if let Heard::Word(word) = heard { head.group(group, word, now()) } else { Vec::new() }
            },
            ask = user.asks(), if user.tell.is_some() => match ask {
                Some(ask) => {
                    unreachable = unreachable.filter(|_| !matches!(ask, Ask::Kill | Ask::Signal(_)));
                    head.ask(ask)
                }
                None => {
                    (user.tell, unreachable) = (None, None);
                    head.user_gone()
                }
            },
            () = sleep_until(due.unwrap_or(begun).into()), if due.is_some() => head.tick(now()),
        };
        for act in acts {
            match act {
                Act::Down(down) => _ = tree.downs.send(down).await,
                Act::Tell(Tell::No(_) | Tell::Over) if unreachable.is_some() => {}
                Act::Tell(said) => {
                    if said == Tell::Over
                        && !early
                        && let Some(tally) = tally.take()
                    {
                        // Its accounts are whole when its user hears that it is over.
                        tally.over().await;
                    }
                    user.tell(said);
                }
                Act::Begin(group, order) => groups.begin(group, *order),
                Act::Group(group, bid) => groups.bid(group, bid),
                // It is no group.
                Act::Wish(..) => {}
            }
        }
    }
    let _ = tree.runs.await;
    unreachable
}

/// A place at which nothing can begin just now, and others could do it.
fn not_there(up: &Up) -> Option<u32> {
    match up {
        // It has gone a moment ago, and nobody knows yet.
        Up::Lost { place, .. } => Some(*place),
        Up::Refused { place, why } if why == DRAINED => Some(*place),
        _ => None,
    }
}

/// What administrators may want to know later.
pub fn note(node: &Node, order: &Order, up: &Up) {
    let name = |place: u32| order.nodes.get(place as usize).map_or("", |s| s.node.as_str()).to_owned();
    if let Up::Lost { place, why } = up {
        let text = format!("job {} lost node {}: {why}", order.job, name(*place));
        node.events.say(Event { from: Some(name(*place)), reason: Some(why.clone()), ..Event::new("job", text) });
    }
}
