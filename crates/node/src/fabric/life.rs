//! One life of this node in the fabric.

use super::cast;
use super::line::{self, Line, Way};
use super::strobe::{self, Strobe};
use super::wire::{Frame, VERSION};
use crate::daemon::Node;
use bytes::Bytes;
use pando_fabric::{Effect, Fabric, NodeId, Op, Outcome, Roster, Set, Settings, View, Who};
use pando_kernel::{cgroup, procfs};
use pando_wire::frame;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Bytes that are kept for a member that takes nothing, before it is given up.
const MOST_KEPT: usize = 256 << 20;
/// The next view is made within this, or something is wrong.
const STANDS_STILL: Duration = Duration::from_secs(5);
/// Gossip may not have heard yet that one that has just come is up again.
const JUST_COME: Duration = Duration::from_secs(5);
/// One that is to be taken in, and is not within this, has to ask again.
const WISH: Duration = Duration::from_secs(5);
/// Smaller transfers are not cast: all of it would be over before it is known who hears.
const LEAST: u64 = 64 << 10;

/// How a transfer is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By multicast where it is heard.
    Any,
    /// Down the tree.
    Tree,
}

/// See above.
pub struct Life {
    /// Which of this node's.
    pub number: u64,
    /// Which fabric: whoever founds one takes a number for it.
    pub founding: u64,
    pub me: NodeId,
    pub core: Fabric,
    pub lines: BTreeMap<Way, Line>,
    /// Of those that the view does not name (yet): who takes this one in, or is ahead of it.
    pub hints: BTreeMap<NodeId, Who>,
    /// All that are or were members, by name.
    members: BTreeMap<NodeId, (String, Instant)>,
    /// Their lives are over.
    pub over: BTreeSet<NodeId>,
    pub strobe: Strobe,
    pub probes: cast::Probes,
    waiting: BTreeMap<u64, oneshot::Sender<Outcome>>,
    wanted: BTreeMap<NodeId, (Who, Instant)>,
    /// So many numbers this one has given as the manager of an epoch.
    given: (u64, u64),
    /// Who orders.
    manager: NodeId,
    /// Since when the next view is being made.
    stopped: Option<Instant>,
    /// Since when there are not enough to go on.
    pub stuck: Option<Instant>,
    /// It is left out.
    pub ended: bool,
}

fn settings(node: &Node) -> Settings {
    let config = &node.config.fabric;
    let air = node.fabric.air();
    let of_casts = Settings { hears: air.is_some(), cast_window: cast::window(air), ..Settings::default() };
    Settings { arity: config.arity as usize, most: most(node), window: 4 << 20, ask_each: 25, ..of_casts }
}

/// Bytes of all regions here.
pub fn most(node: &Node) -> u64 {
    match node.config.fabric.regions_mb {
        0 => {
            let machine = procfs::machine_memory();
            cgroup::memory_limit().map_or(machine, |limit| limit.min(machine)) / 5
        }
        mb => mb.saturating_mul(1 << 20).min(1 << 50),
    }
}

impl Life {
    /// This node alone founds a fabric.
    pub fn found(node: &Node, number: u64, founding: u64) -> Life {
        let me = NodeId(0);
        let view = View { epoch: 1, manager: me, members: [me].into_iter().collect() };
        let roster = Roster::from([(me, Who { name: node.name(), life: number })]);
        let mut life = Life::new(number, founding, me, Fabric::new(me, view, roster, settings(node)));
        let period_us = node.config.fabric.strobe_ms.saturating_mul(1000).min(i64::MAX as u64) as i64;
        life.core.memory_mut().store(strobe::PERIOD.into(), period_us);
        life
    }

    /// It is to be taken in.
    pub fn guest(node: &Node, number: u64, founding: u64, me: NodeId) -> Life {
        let nobody = View { epoch: 0, manager: me, members: Set::default() };
        Life::new(number, founding, me, Fabric::new(me, nobody, Roster::new(), settings(node)))
    }

    fn new(number: u64, founding: u64, me: NodeId, core: Fabric) -> Life {
        Life {
            number,
            founding,
            me,
            core,
            lines: BTreeMap::new(),
            hints: BTreeMap::new(),
            members: BTreeMap::new(),
            over: BTreeSet::new(),
            strobe: Strobe::default(),
            probes: cast::Probes::default(),
            waiting: BTreeMap::new(),
            wanted: BTreeMap::new(),
            given: (0, 0),
            manager: me,
            stopped: None,
            stuck: None,
            ended: false,
        }
    }

    /// It is in a view, and others with it are enough to go on.
    pub fn is_live(&self) -> bool {
        !self.ended && self.core.view().epoch > 0 && self.stuck.is_none()
    }

    /// It was a member, and is none any more.
    pub fn is_gone(&self, node: NodeId) -> bool {
        self.members.contains_key(&node) && !self.core.view().members.has(node)
    }

    /// Who a number is.
    pub fn who(&self, node: NodeId) -> Option<&Who> {
        self.core.roster().get(&node).or_else(|| self.hints.get(&node))
    }

    /// The members with these names; all if none are named.
    pub fn set(&self, names: Option<&[String]>) -> Result<Set, String> {
        let Some(names) = names else { return Ok(self.core.view().members.clone()) };
        if names.is_empty() {
            return Err("no node is named".into());
        }
        let all = self.core.roster();
        let of = |name: &String| {
            let found = all.iter().find(|(_, who)| who.name == *name).map(|(n, _)| *n);
            found.ok_or_else(|| {
                format!("{} is no member of the fabric: `pando fabric` shows who is", crate::owner::clean(name))
            })
        };
        names.iter().map(of).collect()
    }

    /// The names of these.
    pub fn names(&self, set: &Set) -> Vec<String> {
        let was = |n: NodeId| self.members.get(&n).map_or_else(String::new, |(name, _)| name.clone());
        set.iter().map(|n| self.who(n).map_or_else(|| was(n), |who| who.name.clone())).collect()
    }

    /// Begins an operation.
    pub fn submit(&mut self, node: &Arc<Node>, op: Op, bytes: Bytes) -> oneshot::Receiver<Outcome> {
        self.submit_by(node, op, bytes, By::Any)
    }

    /// The same, by the way that is wanted.
    pub fn submit_by(&mut self, node: &Arc<Node>, op: Op, bytes: Bytes, by: By) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        let large = matches!(op, Op::Transfer { .. }) && bytes.len() as u64 >= LEAST && by == By::Any;
        // Who has an interconnect uses it.
        let large = large && !node.fabric.rail().is_some_and(|rail| rail.goes_on());
        let (number, effects) = match Life::may_cast(node).filter(|_| large) {
            Some(cast) => self.core.submit_cast(node.fabric.now(), op, bytes, cast),
            None => self.core.submit(op, bytes),
        };
        self.waiting.insert(number, sender);
        self.heed(node, effects);
        receiver
    }

    /// Does what the core wants.
    pub fn heed(&mut self, node: &Arc<Node>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Cast { tag, number, bytes } => self.cast(node, tag, number, bytes),
                Effect::Send(to, message) => self.send(node, to, message),
                Effect::Ended(number, outcome) => {
                    self.struck(number, &outcome);
                    if let Some(waits) = self.waiting.remove(&number) {
                        let _ = waits.send(outcome);
                    }
                }
                Effect::Signalled(event, bytes) => {
                    self.felt(node, &event, &bytes);
                    node.fabric.changed.notify_waiters();
                }
                Effect::View(view) => self.begun(node, &view),
                Effect::CutOff => self.ended = true,
            }
        }
        if self.core.is_casting() {
            node.fabric.casting.notify_one();
        }
    }

    fn send(&mut self, node: &Arc<Node>, to: NodeId, message: pando_fabric::Message) {
        let way = Way { peer: to, bulk: message.is_bulk() };
        let bytes = match frame::encode(VERSION, &Frame::Said(message)) {
            Ok(bytes) => bytes,
            Err(e) => return tracing::error!("fabric: a message that can't be sent: {e}"),
        };
        self.lines.entry(way).or_default().put(Arc::new(bytes));
        line::connect(node, self, way);
    }

    /// Of one that does not become a member nothing is kept.
    fn forget(&mut self, n: NodeId) {
        self.hints.remove(&n);
        self.lines.retain(|way, _| way.peer != n);
    }

    fn begun(&mut self, node: &Arc<Node>, view: &View) {
        let names = self.names(&view.members);
        let manager = self.names(&[view.manager].into_iter().collect()).pop().unwrap_or_default();
        tracing::info!("fabric: view {} of {} nodes, ordered by {manager}", view.epoch, names.len());
        for (n, who) in self.core.roster() {
            self.members.entry(*n).or_insert_with(|| (who.name.clone(), Instant::now()));
        }
        let gone = |n: NodeId| self.members.contains_key(&n) && !view.members.has(n);
        self.lines.retain(|way, _| !gone(way.peer));
        self.over.retain(|n| !gone(*n));
        self.hints.retain(|n, _| !self.members.contains_key(n));
        // Whoever was to be taken in long ago is not.
        let stale = |n: &&NodeId| n.epoch() + 2 < view.epoch && !self.wanted.contains_key(n);
        let stale: Vec<NodeId> = self.hints.keys().filter(stale).copied().collect();
        stale.into_iter().for_each(|n| self.forget(n));
        self.wanted.retain(|n, _| !view.members.has(*n));
        if std::mem::replace(&mut self.manager, view.manager) != view.manager {
            self.strobe.other_manager();
        }
        let period = self.core.memory().variable(strobe::PERIOD);
        if view.manager == self.me && period > 0 {
            // Nobody waits for it; who joins next is told again.
            let parts = self.parts();
            drop(self.set_period(node, period, parts));
        }
        node.fabric.changed.notify_waiters();
    }

    /// Members that can't be heard: gossip says so, or their lives are over, or nothing has reached them for long.
    fn lost(&self, node: &Node) -> Set {
        let after = Duration::from_millis(node.config.fabric.lost_after_ms);
        let down = node.cluster.down();
        let silent = |n: NodeId| {
            let mut lines = [false, true].iter().filter_map(|bulk| self.lines.get(&Way { peer: n, bulk: *bulk }));
            lines.any(|l| l.is_down_for(after) || l.session.bytes() > MOST_KEPT)
        };
        let new = |n: NodeId| self.members.get(&n).is_none_or(|(_, since)| since.elapsed() < JUST_COME);
        let lost = |n: NodeId, who: &Who| down.contains(&who.name) && !new(n) || self.over.contains(&n) || silent(n);
        let wanted = self.wanted.iter().map(|(n, (who, _))| (n, who));
        let all = self.core.roster().iter().chain(wanted);
        all.filter(|(n, who)| **n != self.me && lost(**n, who)).map(|(n, _)| *n).collect()
    }

    /// Looks who is lost, and who is to be taken in.
    pub fn look(&mut self, node: &Arc<Node>) {
        let (now, lost) = (node.fabric.now(), self.lost(node));
        let effects = self.core.suspect(now, lost);
        self.heed(node, effects);
        let expired = |(n, (_, since)): (&NodeId, &(Who, Instant))| (since.elapsed() >= WISH).then_some(*n);
        for n in self.wanted.iter().filter_map(expired).collect::<Vec<_>>() {
            self.wanted.remove(&n);
            self.forget(n);
        }
        let wanted = self.wanted.iter().map(|(n, (who, _))| (*n, who.clone())).collect();
        let effects = self.core.want(now, wanted);
        self.heed(node, effects);
        let effects = self.core.tick(now);
        self.heed(node, effects);
        let idle: Vec<Way> =
            self.lines.iter().filter(|(_, line)| line.lacks_connection()).map(|(way, _)| *way).collect();
        idle.into_iter().for_each(|way| line::connect(node, self, way));
        match self.core.is_stopped() {
            true => _ = self.stopped.get_or_insert_with(Instant::now),
            false => self.stopped = None,
        }
        let stands_still = self.stopped.is_some_and(|since| since.elapsed() > STANDS_STILL);
        let member = self.core.view().epoch > 0;
        match member && (stands_still || !self.core.can_go_on()) {
            true => _ = self.stuck.get_or_insert_with(Instant::now),
            false => self.stuck = None,
        }
    }

    /// One asks to be taken in; the number that it gets. None: this one does not manage.
    pub fn take_in(&mut self, who: Who) -> Option<NodeId> {
        let view = self.core.view();
        if view.manager != self.me || !self.is_live() {
            return None;
        }
        if self.given.0 != view.epoch {
            self.given = (view.epoch, 0);
        }
        let number = NodeId::given(view.epoch, self.given.1)?;
        self.given.1 += 1;
        // It has another life now.
        let same = |(n, other): (&NodeId, &Who)| (other.name == who.name && other.life != who.life).then_some(*n);
        self.over.extend(self.core.roster().iter().filter_map(same));
        self.wanted.retain(|_, (other, _)| other.name != who.name);
        self.wanted.insert(number, (who.clone(), Instant::now()));
        self.hints.insert(number, who);
        Some(number)
    }
}
