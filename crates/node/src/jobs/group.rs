//! Groups of ranks that a job's ranks have started (MPI_Comm_spawn): each has a tree over the job's nodes, whose head is here, beside the job's.

use super::head::{manager_of, note};
use super::{enter, part};
use crate::daemon::Node;
use pando_launch::{Act, Bid, Down, Head, Manager, Order, Tell, Up, Used, Word};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::time::sleep_until;

/// Messages that have been read and not been heeded.
const WAITING: usize = 256;

/// What comes from a group.
pub enum Heard {
    /// For the job's head.
    Word(Word),
    /// What its ranks have used, and at how many places.
    Used(Used),
}

/// Those of one job.
pub struct Groups {
    node: Arc<Node>,
    grace_ms: u64,
    heads: BTreeMap<u32, UnboundedSender<Bid>>,
    hear: UnboundedSender<(u32, Heard)>,
    heard: UnboundedReceiver<(u32, Heard)>,
}

impl Groups {
    /// None yet. `grace_ms`: between asking ranks to end and ending them.
    pub fn new(node: &Arc<Node>, grace_ms: u64) -> Groups {
        let (hear, heard) = unbounded_channel();
        Groups { node: node.clone(), grace_ms, heads: BTreeMap::new(), hear, heard }
    }

    /// What the next one says. For ever, if there is none.
    pub async fn hears(&mut self) -> (u32, Heard) {
        match self.heard.recv().await {
            Some(heard) => heard,
            // This keeps the other end.
            None => std::future::pending().await,
        }
    }

    /// A new one.
    pub fn begin(&mut self, group: u32, mut order: Order) {
        order.job = self.node.jobs.number();
        if matches!(order.manager, Manager::Pmix { .. }) {
            // Spaces of two have two names.
            order.manager = manager_of(&self.node, order.job);
        }
        let (bids, queue) = unbounded_channel();
        self.heads.insert(group, bids);
        let hear = self.hear.clone();
        let tell = move |heard| _ = hear.send((group, heard));
        match order.check() {
            Ok(()) => {
                let (node, grace_ms) = (self.node.clone(), self.grace_ms);
                tokio::spawn(async move { run(&node, Arc::new(order), grace_ms, queue, &tell).await });
            }
            Err(why) => [Tell::No(why), Tell::Over].into_iter().for_each(|said| tell(Heard::Word(Word::Tell(said)))),
        }
    }

    /// The job's head says something to one.
    pub fn bid(&mut self, group: u32, bid: Bid) {
        // One that is over heeds nothing.
        self.heads.retain(|_, head| !head.is_closed());
        let _ = self.heads.get(&group).map(|head| head.send(bid));
    }
}

/// Runs one to its end.
async fn run(
    node: &Arc<Node>,
    order: Arc<Order>,
    grace_ms: u64,
    mut bids: UnboundedReceiver<Bid>,
    tell: &(impl Fn(Heard) + Sync),
) {
    let word = |word| tell(Heard::Word(word));
    let Some(entry) = enter(node, &order, 0) else {
        let why = "this node has a job with that number".into();
        return [Tell::No(why), Tell::Over].into_iter().for_each(|said| word(Word::Tell(said)));
    };
    let (downs, from_head) = channel::<Down>(WAITING);
    let (ups, mut from_tree) = unbounded_channel::<Up>();
    let (mine, theirs) = (node.clone(), order.clone());
    let runs = tokio::spawn(async move { part::run(&mine, theirs, 0, entry, (from_head, ups)).await });
    let mut head = Head::new(order.clone(), false, grace_ms);
    let (begun, mut has_job) = (Instant::now(), true);
    let now = || begun.elapsed().as_millis() as u64;
    while !head.is_over() {
        let due = head.due().map(|at| begun + Duration::from_millis(at));
        let acts = tokio::select! {
            Some(up) = from_tree.recv() => {
                note(node, &order, &up);
                if let Up::Used(used) = &up {
                    tell(Heard::Used(*used));
                }
                head.up(up, now())
            }
            bid = bids.recv(), if has_job => match bid {
                Some(Bid::Ask(ask)) => head.ask(ask),
                Some(Bid::Granted { place, rank, granted }) => head.granted(place, rank, granted),
                None => {
                    has_job = false;
                    head.user_gone()
                }
            },
            () = sleep_until(due.unwrap_or(begun).into()), if due.is_some() => head.tick(now()),
        };
        for act in acts {
            match act {
                Act::Down(down) => _ = downs.send(down).await,
                Act::Tell(Tell::Over) => {}
                Act::Tell(said) => word(Word::Tell(said)),
                Act::Wish { place, rank, wish } => word(Word::Wish { place, rank, wish }),
                // Only a job has groups.
                Act::Begin(..) | Act::Group(..) => {}
            }
        }
    }
    let _ = runs.await;
    // Nothing of it is here when that is told.
    word(Word::Tell(Tell::Over));
}
