//! The local API: HTTP and JSON on a Unix socket. The caller is who the kernel says, and sees and does what that
//! user may.

use crate::audit::Entry;
use crate::balancing::facts;
use crate::choice;
use crate::daemon::Node;
use crate::fabric::ask as fabric;
use crate::gang;
use crate::jobs::head;
use crate::metrics;
use crate::moves::{self, Refused, permitted};
use crate::naming::meant;
use crate::owner::{Caller, Facts, clean};
use crate::questions;
use crate::queue::office;
use crate::seats::Seats;
use crate::sys::{self, user_name};
use crate::views::{self, Drain};
use crate::whose;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use pando_wire::message::Question;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;

/// Longest body of a request.
const MAX_BODY: usize = 64 * 1024;
/// Longest of a submission: a script and an environment, and what JSON makes of them.
const MAX_SUBMISSION: usize = 64 << 20;
/// Longest that `GET /v1/events` waits for one.
const MAX_WAIT_S: u64 = 60;

type Answer<T> = Result<Json<T>, Refused>;
type Asked = (State<Arc<Node>>, ConnectInfo<Caller>);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self {
            Refused::Unknown(_) => StatusCode::NOT_FOUND,
            Refused::Forbidden(_) => StatusCode::FORBIDDEN,
            Refused::Conflict(_) => StatusCode::CONFLICT,
            Refused::Failed(_) => StatusCode::BAD_GATEWAY,
        };
        (status, Json(views::Refusal { error: self.text().to_owned() })).into_response()
    }
}

/// Serves until the daemon ends.
pub async fn serve(node: Arc<Node>, listener: UnixListener) {
    let listener = Seats::new(listener, node.config.connections.max_local_per_user);
    let most = usize::try_from(fabric::most(&node)).unwrap_or(usize::MAX);
    let app = Router::new()
        .route("/v1/info", get(info))
        .route("/v1/nodes", get(nodes))
        .route("/v1/processes", get(processes))
        .route("/v1/explain/{pid}", get(explain))
        .route("/v1/decisions", get(decisions))
        .route("/v1/drain", post(drain))
        .route("/v1/fabric", get(fabric::status))
        .route("/v1/fabric/found", post(fabric::found))
        .route("/v1/fabric/strobe", post(fabric::strobe))
        .route("/v1/fabric/compare", post(fabric::compare))
        .route("/v1/fabric/region/{name}", get(fabric::region))
        .route("/v1/fabric/variable/{name}", get(fabric::load).post(fabric::store))
        .route("/v1/fabric/event/{name}", post(fabric::test))
        .route("/v1/fabric/transfer", post(fabric::transfer).layer(DefaultBodyLimit::max(most)))
        .route("/v1/jobs", get(head::list).post(head::begin))
        .route("/v1/gangs", get(gang::show).post(gang::quantum))
        .route("/v1/queue", post(office::ask).layer(DefaultBodyLimit::max(MAX_SUBMISSION)))
        .route("/v1/events", get(events))
        .route("/v1/move", post(mv))
        .route("/metrics", get(|State(node): State<Arc<Node>>| async move { metrics::text(&node) }))
        .route("/v1/token", post(token))
        .route("/v1/register", post(register))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(node);
    if let Err(e) = axum::serve(listener, app.into_make_service_with_connect_info::<Caller>()).await {
        tracing::error!("the local API ended: {e}");
    }
}

async fn info(State(node): State<Arc<Node>>) -> Json<views::Info> {
    Json(views::Info {
        name: node.name(),
        cluster: node.identity.cluster.to_string(),
        mode: node.place.mode.as_str().into(),
        pid: std::process::id(),
        release: env!("CARGO_PKG_VERSION").into(),
        addr: node.cluster.me().addr,
        lacks: node.lacks.clone(),
    })
}

async fn nodes(State(node): State<Arc<Node>>) -> Json<Vec<views::Node>> {
    Json(node.cluster.nodes())
}

/// What `caller` may see of a process: of another user's, that it is there.
fn shown(view: &views::Process, caller: Caller) -> views::Process {
    let mut view = view.clone();
    view.user = user_name(view.uid);
    if caller.uid != 0 && caller.uid != view.uid {
        view.command = String::new();
        view.records.clear();
    }
    view
}

/// What is to be listed besides.
#[derive(serde::Deserialize)]
struct Listed {
    /// Those at home, too, that the listed ones have started.
    #[serde(default)]
    children: bool,
}

async fn processes(
    (State(node), ConnectInfo(caller)): Asked,
    Query(listed): Query<Listed>,
) -> Json<Vec<views::Process>> {
    node.prune();
    tokio::task::block_in_place(|| node.table().refresh(|pid| Facts::read(pid).ok()));
    let mut all: Vec<views::Process> = node.table().views().cloned().collect();
    tokio::task::block_in_place(|| {
        if listed.children {
            whose::with_children(&mut all, &node.name());
        }
        whose::place_under(&mut all);
    });
    Json(all.iter().map(|v| shown(v, caller)).collect())
}

async fn explain((State(node), ConnectInfo(caller)): Asked, Path(pid): Path<u32>) -> Answer<views::Explanation> {
    let pid = meant(caller, pid).map_err(Refused::Unknown)?;
    whose::is_no_guest(&node, pid)?;
    let facts = permitted(&node, caller, "explain", pid)?;
    whose::may_be_moved_here(&node, pid)?;
    let me = node.name();
    let key = node.table().local(pid);
    let known = node.table().get(&key).map(|k| k.view.clone());
    let mut view = known.unwrap_or_else(|| views::Process {
        pid,
        uid: facts.uids[0],
        home: me.clone(),
        place: me,
        phase: "home".into(),
        role: "home".into(),
        ..views::Process::default()
    });
    view.command = facts.command;
    view.stopped = if view.helper.is_some() { view.stopped } else { facts.stopped };
    let nodes = node.cluster.nodes();
    let process = facts::about(&node, pid);
    let best = choice::best(&node, &view.place, &process, false);
    let helper = view.helper.filter(|_| view.role == "home");
    let inspection = tokio::task::spawn_blocking(move || pando_migrate::inspect::inspect(pid, helper)).await;
    let inspection = inspection.unwrap_or_else(|e| Err(e.to_string()));
    let follows = node.follow().explain(pid, facts.start_time);
    let process = shown(&view, caller);
    let balance = decided(&node, &process.place, pid).await;
    let wish = {
        let table = node.table();
        table.get(&key).map(|k| k.wish.clone()).unwrap_or_default()
    };
    Ok(Json(views::Explanation { process, permitted: Ok(()), inspection, wish, best, follows, balance, nodes }))
}

/// What was last decided about a process of this node, where it is.
async fn decided(node: &Arc<Node>, place: &str, pid: u32) -> Option<String> {
    let home = node.name();
    let (text, age_s, by) = if place == home {
        let (text, ago) = node.balancing.about(&home, pid)?;
        (text, ago.as_secs_f64(), String::new())
    } else {
        let all = questions::ask(node, place, Question::Decisions).await.ok()?;
        let all: views::Decisions = serde_json::from_str(&all).ok()?;
        let of_it =
            all.stays.into_iter().chain(all.moves.into_iter().rev()).find(|d| d.pid == pid && d.home == home)?;
        (crate::owner::clean(&of_it.text), of_it.age_ms as f64 / 1000.0, format!("{place}: "))
    };
    Some(format!("{by}{text} (decided {age_s:.1} s ago)"))
}

#[derive(Deserialize)]
struct Whose {
    node: Option<String>,
}

async fn decisions((State(node), ConnectInfo(caller)): Asked, Query(whose): Query<Whose>) -> Answer<views::Decisions> {
    let Some(which) = whose.node.filter(|which| *which != node.name()) else {
        let all = questions::decisions(&node, |uid| caller.uid == 0 || uid == Some(caller.uid));
        return Ok(Json(all));
    };
    if caller.uid != 0 && caller.uid != sys::effective_uid() {
        let text = "only root and the node's own user may ask another node what it decided: ask there";
        return Err(Refused::Forbidden(text.into()));
    }
    let text = questions::ask(&node, &which, Question::Decisions).await.map_err(Refused::Conflict)?;
    let broken = |e: serde_json::Error| Refused::Failed(format!("node {which} answered something else: {e}"));
    questions::told(&text).map(Json).map_err(broken)
}

async fn drain(
    State(node): State<Arc<Node>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Json(request): Json<views::DrainRequest>,
) -> Answer<views::DrainRequest> {
    let which = request.node.clone().unwrap_or_else(|| node.name());
    let allowed = caller.uid == 0 || caller.uid == sys::effective_uid();
    let why = if request.on { "empty it" } else { "use it again" }.to_owned();
    let on = format!("node {which}");
    node.audit.note(&Entry { who: caller.to_string(), what: "drain", on, allowed, why });
    if !allowed {
        return Err(Refused::Forbidden("only root and the node's own user may drain a node".into()));
    }
    request.check().map_err(Refused::Conflict)?;
    let (reason, by) = (clean(&request.reason), sys::user_name(caller.uid));
    let drain = Drain { reason, by, at: crate::events::now_ms() };
    let done = match which == node.name() {
        true => {
            node.balancing.drain(&node, request.on.then_some(drain), "here");
            Ok(())
        }
        false => {
            let Drain { reason, by, .. } = drain;
            questions::ask(&node, &which, Question::Drain { on: request.on, reason, by }).await.map(drop)
        }
    };
    done.map_err(Refused::Conflict)?;
    Ok(Json(views::DrainRequest { node: Some(which), ..request }))
}

#[derive(Deserialize)]
struct Since {
    #[serde(default)]
    since: u64,
    #[serde(default)]
    wait: u64,
}

async fn events(
    State(node): State<Arc<Node>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Query(query): Query<Since>,
) -> Json<Vec<views::Event>> {
    let mut latest = node.events.latest();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(query.wait.min(MAX_WAIT_S));
    loop {
        latest.mark_unchanged();
        let mut found = node.events.since(query.since, caller.uid);
        found.iter_mut().for_each(|e| e.user = e.uid.map(user_name));
        if !found.is_empty() || tokio::time::timeout_at(deadline, latest.changed()).await.is_err() {
            return Json(found);
        }
    }
}

async fn mv(
    State(node): State<Arc<Node>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Json(request): Json<views::MoveRequest>,
) -> Answer<views::MoveAnswer> {
    // A task of its own: a caller that hangs up does not stop a move halfway through its bookkeeping.
    let task = tokio::spawn(async move { moves::serve(&node, caller, request).await });
    task.await.map_err(|e| Refused::Failed(format!("the request ended early: {e}")))?.map(Json)
}

async fn register(
    State(node): State<Arc<Node>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Json(request): Json<views::RegisterRequest>,
) -> Answer<views::Process> {
    let pid = meant(caller, request.pid).map_err(Refused::Unknown)?;
    let facts = permitted(&node, caller, "register", pid)?;
    request.wish.check().map_err(Refused::Conflict)?;
    let mut table = node.table();
    table.register(pid, facts.uids[0], facts.command, facts.start_time, true);
    let key = table.local(pid);
    table.wishes(&key, request.wish);
    let known = table.get(&key).ok_or_else(|| Refused::Conflict("too many processes are known".into()))?;
    Ok(Json(shown(&known.view, caller)))
}

#[derive(Deserialize)]
struct TokenRequest {
    valid_s: Option<u64>,
}

async fn token(
    State(node): State<Arc<Node>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Json(request): Json<TokenRequest>,
) -> Answer<views::TokenAnswer> {
    let me = sys::effective_uid();
    let limits = &node.config.tokens;
    let valid_s = request.valid_s.unwrap_or(limits.valid_s);
    let made = if caller.uid != 0 && caller.uid != me {
        Err(Refused::Forbidden("only root and the node's own user may let machines in".into()))
    } else if !node.identity.is_authority() {
        let text =
            format!("node {} does not hold the cluster's key: ask the node where `pando init` was run", node.name());
        Err(Refused::Conflict(text))
    } else {
        let addr = node.cluster.me().addr;
        node.tokens.create(addr, node.identity.fingerprint(), limits, valid_s).map_err(Refused::Conflict)
    };
    let (allowed, on, why) = match &made {
        Ok(token) => (true, format!("token {}", token.id_text()), format!("valid for {valid_s} s")),
        Err(refused) => (false, String::new(), refused.text().to_owned()),
    };
    node.audit.note(&Entry { who: caller.to_string(), what: "token", on, allowed, why });
    Ok(Json(views::TokenAnswer { token: made?.to_word(), valid_s }))
}
