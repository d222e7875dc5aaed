//! The strobe on a real clock: a thread of its own sends the manager's beats, for no other task of the daemon may make them late; every node
//! counts what comes of them.

use super::life::Life;
use super::wire::VERSION;
use crate::daemon::Node;
use crate::gang;
use bytes::Bytes;
use pando_fabric::{Beat, Comparison, Op, Outcome, Pacemaker, Pulse};
use pando_wire::frame;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Its region, and its event.
const NAME: &str = "pando/strobe";
/// The variable that has its period, microseconds; 0 for none.
pub const PERIOD: &str = "pando/strobe_us";
/// And the one that has its parts: one more than there are micro-heartbeats between two heartbeats.
pub const PARTS: &str = "pando/strobe_parts";
/// The thread looks so often whether there is anything to do.
const LOOK: Duration = Duration::from_millis(200);

/// One that waits until its event has happened everywhere.
type Poster = oneshot::Sender<()>;

/// Of one life.
#[derive(Default)]
pub struct Strobe {
    pacemaker: Pacemaker,
    pub pulse: Pulse,
    /// For the next beats, and who wants them.
    events: Vec<String>,
    posters: Vec<Poster>,
    under_way: BTreeMap<u64, (Vec<String>, Vec<Poster>)>,
}

impl Strobe {
    /// The number of the last beat that this node has sent as the manager.
    pub fn last(&self) -> u64 {
        self.pacemaker.number()
    }

    /// Beats that this node should have sent as the manager, and did not.
    pub fn skipped(&self) -> u64 {
        self.pacemaker.skipped()
    }

    /// Another one orders from now on.
    pub fn other_manager(&mut self) {
        self.pulse.other_manager();
        // Whoever posted here is told that nobody orders here any more.
        (self.pacemaker, self.events, self.posters) = (Pacemaker::default(), Vec::new(), Vec::new());
        self.under_way.clear();
    }
}

impl Life {
    fn orders(&self) -> bool {
        self.is_live() && self.core.view().manager == self.me
    }

    /// An event is to happen at all members with one of the next beats. None: this node does not order, or there are no beats.
    pub fn post(&mut self, event: String) -> Option<oneshot::Receiver<()>> {
        if !self.orders() || self.core.memory().variable(PERIOD) <= 0 {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.strobe.events.push(event);
        self.strobe.posters.push(sender);
        Some(receiver)
    }

    /// Sends a beat if one is due; when to look again.
    fn strike(&mut self, node: &Arc<Node>) -> Duration {
        if !self.orders() {
            return LOOK;
        }
        let now = node.fabric.now_us();
        let period = u64::try_from(self.core.memory().variable(PERIOD)).unwrap_or(0);
        let parts = self.parts();
        let strobe = &mut self.strobe;
        strobe.pacemaker.set_period(now, period, parts);
        if let Some(beat) = strobe.pacemaker.beat(now, &mut strobe.events) {
            let posters = strobe.posters.drain(..beat.events.len()).collect();
            self.send_beat(node, beat, posters);
        }
        let due = self.strobe.pacemaker.due();
        due.map_or(LOOK, |due| Duration::from_micros(due.saturating_sub(node.fabric.now_us())).min(LOOK))
    }

    fn send_beat(&mut self, node: &Arc<Node>, beat: Beat, posters: Vec<Poster>) {
        let bytes = match frame::encode(VERSION, &beat) {
            Ok(bytes) => bytes,
            Err(e) => return tracing::error!("fabric: a beat that can't be sent: {e}"),
        };
        let set = self.core.view().members.clone();
        let op = Op::Put { set, region: NAME.into(), offset: 0, bytes, signal: Some(NAME.into()) };
        let (number, effects) = self.core.submit(op, Bytes::new());
        self.strobe.under_way.insert(number, (beat.events, posters));
        self.heed(node, effects);
    }

    /// One of this node's operations has ended: was it a beat?
    pub fn struck(&mut self, number: u64, outcome: &Outcome) {
        let strobe = &mut self.strobe;
        let Some((events, posters)) = strobe.under_way.remove(&number) else { return };
        strobe.pacemaker.ended();
        match outcome {
            Outcome::Transferred => posters.into_iter().for_each(|p| _ = p.send(())),
            // It came to nobody: the next one takes them.
            Outcome::Lost(_) => {
                strobe.events.splice(..0, events);
                strobe.posters.splice(..0, posters);
            }
            _ => {}
        }
    }

    /// An event was signalled here: is it a beat, and what does it bring?
    pub fn felt(&mut self, node: &Arc<Node>, event: &str, bytes: &[u8]) {
        if event == gang::TABLE {
            self.core.memory_mut().take_signal(gang::TABLE);
            return node.gangs.table(bytes);
        }
        if event != NAME {
            return;
        }
        self.core.memory_mut().take_signal(NAME);
        if let Ok(Some((beat, _))) = frame::decode::<Beat>(VERSION, bytes) {
            node.gangs.beat(&beat);
            self.strobe.pulse.beat(node.fabric.now_us(), &beat);
            beat.events.into_iter().for_each(|event| self.core.memory_mut().signal(&event));
        }
    }

    /// Sets the period and its parts at all members: those that have just come know of none.
    pub fn set_period(&mut self, node: &Arc<Node>, period_us: i64, parts: u16) -> oneshot::Receiver<Outcome> {
        drop(self.set_everywhere(node, PARTS, parts.into()));
        self.set_everywhere(node, PERIOD, period_us)
    }

    pub fn set_everywhere(&mut self, node: &Arc<Node>, variable: &str, value: i64) -> oneshot::Receiver<Outcome> {
        let set = self.core.view().members.clone();
        let (variable, comparison) = (variable.to_owned(), Comparison::AtLeast);
        let write = Some((variable.clone(), value));
        self.submit(node, Op::Compare { set, variable, comparison, value: i64::MIN, write }, Bytes::new())
    }

    /// Parts of the period, as this node knows them.
    pub fn parts(&self) -> u16 {
        u16::try_from(self.core.memory().variable(PARTS)).unwrap_or(1).max(1)
    }
}

/// Sends beats whenever this node orders, until the daemon ends.
pub fn start(node: Arc<Node>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Handle::current();
    let beat = move || {
        let _in = runtime.enter();
        loop {
            let pause = node.fabric.inner().life.as_mut().map_or(LOOK, |life| life.strike(&node));
            std::thread::sleep(pause);
        }
    };
    std::thread::Builder::new().name("strobe".into()).spawn(beat).map(drop)
}
