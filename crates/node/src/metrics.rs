//! Figures for Prometheus: `GET /metrics` on the local socket, and where `[metrics] listen` says.

use crate::daemon::Node;
use crate::views::{Liveness, Node as View};
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;

type Labels = Vec<(String, String)>;
type Level = Gauge<f64, AtomicU64>;

/// What only counts up.
#[derive(Default)]
pub struct Counts {
    /// By what the reason is about, and whether it worked.
    moves: Mutex<BTreeMap<(String, bool), u64>>,
    /// Of membership and loads, sent to other nodes.
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Counts {
    /// A move ended.
    pub fn moved(&self, reason: &str, worked: bool) {
        let word = match reason.split([':', ' ']).next().unwrap_or_default() {
            "follows" => "family",
            "goes" => "return",
            // What it did only home can do.
            "it" => "program",
            word @ ("user" | "run" | "balance" | "memory" | "drain" | "owner" | "home" | "queue" | "together") => word,
            // Reasons are ours or a user's: their number has a limit.
            _ => "other",
        };
        *self.moves.lock().unwrap_or_else(PoisonError::into_inner).entry((word.to_owned(), worked)).or_default() += 1;
    }

    /// So many bytes of gossip were sent.
    pub fn gossiped(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// All figures, as Prometheus reads them.
pub fn text(node: &Node) -> String {
    let mut all = Registry::with_prefix("pando");
    of_nodes(&mut all, &node.cluster.nodes());
    of_processes(&mut all, node);
    of_counts(&mut all, &node.counts);
    let jobs: Level = Gauge::default();
    jobs.set(node.jobs.list().len() as f64);
    all.register("jobs", "Parallel jobs that this node has a part in", jobs);
    let gangs: Level = Gauge::default();
    let (here, rows) = node.gangs.counts();
    gangs.set(here as f64);
    all.register("gangs", "Gangs with ranks on this node", gangs);
    let level: Level = Gauge::default();
    level.set(f64::from(rows));
    all.register("gang_rows", "Rows of gangs that take turns; with one nobody does", level);
    let cpu: Level = Gauge::default();
    cpu.set(pando_kernel::clock::process_cpu_ns(std::process::id() as i32) as f64 / 1e9);
    all.register_with_unit("daemon_cpu", "CPU time of this daemon", Unit::Seconds, cpu);
    let memory: Level = Gauge::default();
    memory.set(pando_kernel::procfs::status(std::process::id() as i32).map_or(0, |s| s.resident) as f64);
    all.register_with_unit("daemon_resident", "Memory of this daemon", Unit::Bytes, memory);
    let mut out = String::new();
    if let Err(e) = encode(&mut out, &all) {
        tracing::error!("metrics: {e}");
    }
    out
}

fn of_nodes(all: &mut Registry, nodes: &[View]) {
    let mut level = |name: &str, help: &str, unit: Option<Unit>, value: &dyn Fn(&View) -> f64| {
        let family: Family<Labels, Level> = Family::default();
        for n in nodes {
            family.get_or_create(&vec![("node".into(), n.name.clone())]).set(value(n));
        }
        match unit {
            Some(unit) => all.register_with_unit(name, help, unit, family),
            None => all.register(name, help, family),
        }
    };
    level("node_up", "1 if it lives, 0.5 if it is suspect", None, &|n| match n.state {
        Liveness::Up => 1.0,
        Liveness::Suspect => 0.5,
        Liveness::Down => 0.0,
    });
    level("node_open", "1 if it takes guests", None, &|n| f64::from(u8::from(n.standing == "open")));
    level("node_cpus", "CPUs that may be used", None, &|n| n.cpus);
    level("node_speed", "Speed of one CPU; 1 is usual", None, &|n| n.speed);
    level("node_runnable", "Threads that want to run, smoothed", None, &|n| n.runnable);
    level("node_gang_cpus", "CPUs that gangs hold", None, &|n| n.held);
    level("node_memory", "Memory that may be used", Some(Unit::Bytes), &|n| n.memory as f64);
    level("node_free", "Memory that can be had without swapping", Some(Unit::Bytes), &|n| n.free as f64);
    level("node_paging", "Major page faults a second", None, &|n| f64::from(n.paging));
    level("node_guests", "Processes of other nodes there", None, &|n| f64::from(n.guests));
    let age = |n: &View| n.heard_ms.map_or(f64::NAN, |ms| ms as f64 / 1000.0);
    level("node_heard", "How old what is known of its load is", Some(Unit::Seconds), &age);
}

fn of_processes(all: &mut Registry, node: &Node) {
    let family: Family<Labels, Level> = Family::default();
    for p in node.table().views() {
        let labels = vec![("role".into(), p.role.clone()), ("phase".into(), p.phase.clone())];
        family.get_or_create(&labels).inc();
    }
    all.register("processes", "Processes that this node knows, by role (home, guest) and phase", family);
}

fn of_counts(all: &mut Registry, counts: &Counts) {
    let family: Family<Labels, Counter> = Family::default();
    for ((reason, worked), count) in counts.moves.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let result = if *worked { "done" } else { "failed" };
        let labels = vec![("reason".into(), reason.clone()), ("result".into(), result.into())];
        family.get_or_create(&labels).inc_by(*count);
    }
    all.register("moves", "Moves of processes whose home is here", family);
    let counter = |value: &AtomicU64| {
        let counter: Counter = Counter::default();
        counter.inc_by(value.load(Ordering::Relaxed));
        counter
    };
    all.register("gossip_messages", "Messages of membership and load sent", counter(&counts.messages));
    all.register("gossip_sent_bytes", "Bytes of these", counter(&counts.bytes));
}

/// Serves `/metrics` to the network, if it is configured.
pub async fn serve(node: Arc<Node>, listener: TcpListener) {
    let app = Router::new().route("/metrics", get(|State(node): State<Arc<Node>>| async move { text(&node) }));
    if let Err(e) = axum::serve(listener, app.with_state(node)).await {
        tracing::error!("metrics: {e}");
    }
}
