//! Groups of ranks that a job's ranks have started (MPI_Comm_spawn): each has a tree over the job's nodes, whose head is here, beside the job's.

use super::head::{manager_of, note};
use super::part;
use crate::daemon::Node;
use pando_launch::{Act, Bid, Head, Manager, Order, Tell, Up, Used, Word};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep_until;

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
    let mut tree = match part::first(node, &order) {
        Ok(tree) => tree,
        Err(why) => return [Tell::No(why), Tell::Over].into_iter().for_each(|said| word(Word::Tell(said))),
    };
    let mut head = Head::new(order.clone(), false, grace_ms);
    let (begun, mut has_job) = (Instant::now(), true);
    let now = || begun.elapsed().as_millis() as u64;
    while !head.is_over() {
        let due = head.due().map(|at| begun + Duration::from_millis(at));
        let acts = tokio::select! {
            Some(up) = tree.ups.recv() => {
                note(node, &order, &up);
                if let Up::Used(used) = &up {
                    tell(Heard::Used(used.clone()));
                }
                head.up(up, now())
            }
            bid = bids.recv(), if has_job => match bid {
                Some(Bid::Ask(ask)) => head.ask(ask),
                Some(Bid::Granted(asker, granted)) => head.granted(asker, granted),
                None => {
                    has_job = false;
                    head.user_gone()
                }
            },
            () = sleep_until(due.unwrap_or(begun).into()), if due.is_some() => head.tick(now()),
        };
        for act in acts {
            match act {
                Act::Down(down) => _ = tree.downs.send(down).await,
                Act::Tell(Tell::Over) => {}
                Act::Tell(said) => word(Word::Tell(said)),
                Act::Wish(asker, wish) => word(Word::Wish(asker, wish)),
                // Only a job has groups.
                Act::Begin(..) | Act::Group(..) => {}
            }
        }
    }
    let _ = tree.runs.await;
    // Nothing of it is here when that is told.
    word(Word::Tell(Tell::Over));
}
