//! One node of the fabric.

mod casting;
mod operations;

pub use casting::Ways;

use crate::cast::Cast;
use crate::election::Election;
use crate::manager::Manager;
use crate::memory::Memory;
use crate::message::{Did, Message, Proposal, Roster, Said, View};
use crate::op::{Op, OpId, Outcome, PUT_WITHIN};
use crate::set::{NodeId, Set};
use crate::transfer::Staging;
use crate::tree::Tree;
use crate::wave::Wave;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Sizes in bytes, times in milliseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most children of a node in a tree.
    pub arity: usize,
    /// Most bytes that are sent on at once.
    pub chunk: usize,
    /// Nobody is sent more than this ahead of what it has.
    pub window: u64,
    /// As many bytes go with the operation itself; no more than [`MOST_AT_ONCE`](crate::MOST_AT_ONCE).
    pub at_once: usize,
    /// All regions of a node have no more bytes: a transfer beyond that is refused.
    pub most: u64,
    /// A try to make a new view is made again after this time when somebody else's was later, and comes to nothing.
    pub retry_ms: u64,
    /// Most messages of the next view that are kept until that has come; whoever hears more is left out.
    pub early: usize,
    /// Each so many times that [`Fabric::tick`] is called some member is asked whether there is a later view.
    pub ask_each: u64,
    /// Smaller transfers are not cast.
    pub cast_least: u64,
    /// A cast is no further ahead of those that hear it, at least and at most.
    pub cast_window: (u64, u64),
    /// This node can hear casts.
    pub hears: bool,
    /// Who heard nothing is taken to be deaf for so long.
    pub deaf_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            arity: 4,
            chunk: 64 << 10,
            window: 1 << 20,
            at_once: 4096,
            most: 1 << 30,
            retry_ms: 20,
            early: 2048,
            ask_each: 20,
            cast_least: 64 << 10,
            cast_window: (256 << 10, 1 << 20),
            hears: false,
            deaf_ms: 60_000,
        }
    }
}

/// What is to be done, or has become known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this to another node.
    Send(NodeId, Message),
    /// Send this piece of a cast to the group, sealed as the [`Cast`] with this tag says; and say when it has [gone](Fabric::went).
    Cast {
        /// Of the cast.
        tag: u64,
        /// Of the piece.
        number: u32,
        /// It.
        bytes: Bytes,
    },
    /// One of this node's operations has ended.
    Ended(u64, Outcome),
    /// An event was signalled here, with the bytes that came ([`Op::Put`]; of a larger transfer they are in its region).
    Signalled(String, Vec<u8>),
    /// There is a new view.
    View(View),
    /// This node is in no view any more: it can come back in another life.
    CutOff,
}

/// An operation of this node.
struct Own {
    op: Op,
    bytes: Bytes,
    cast: Option<Cast>,
}

/// The fabric as one node knows it. All that it does is in the effects; the time is an argument.
pub struct Fabric {
    me: NodeId,
    settings: Settings,
    memory: Memory,
    view: View,
    /// Who the members are.
    roster: Roster,
    /// How the view came to be, for those who have not heard of it.
    latest: Option<Proposal>,
    cut_off: bool,
    election: Election,
    next: u64,
    own: BTreeMap<u64, Own>,
    staging: BTreeMap<OpId, Staging>,
    casts: casting::Casts,
    /// As far as was said.
    now: u64,
    waves: BTreeMap<u64, Wave>,
    known: u64,
    manager: Option<Manager>,
    early: Vec<(NodeId, u64, Said)>,
    /// So many were asked whether there is a later view.
    asked: usize,
    ticks: u64,
    /// Somebody was told whom this node can't hear.
    complained: bool,
    /// What this node says to itself.
    inbox: VecDeque<Message>,
    out: Vec<Effect>,
}

impl Fabric {
    /// In a view that all its members begin with; or in none (epoch 0, nobody), and it waits until it is taken in.
    pub fn new(me: NodeId, view: View, roster: Roster, settings: Settings) -> Fabric {
        let manager = (view.manager == me && view.epoch > 0).then(|| Manager::new(view.members.clone()));
        let election = Election::new(me, settings.retry_ms);
        Fabric {
            me,
            settings,
            memory: Memory::default(),
            view,
            roster,
            latest: None,
            cut_off: false,
            election,
            next: 1,
            own: BTreeMap::new(),
            staging: BTreeMap::new(),
            casts: casting::Casts::default(),
            now: 0,
            waves: BTreeMap::new(),
            known: 0,
            manager,
            early: Vec::new(),
            asked: 0,
            ticks: 0,
            complained: false,
            inbox: VecDeque::new(),
            out: Vec::new(),
        }
    }

    /// The view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Who its members are.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// It stands still: a new view is being made, or can't be made.
    pub fn is_stopped(&self) -> bool {
        self.election.is_stopped()
    }

    /// Those that this node hears are enough to make the next view.
    pub fn can_go_on(&self) -> bool {
        !self.cut_off && self.election.can_go_on(&self.view)
    }

    /// It is in no view any more.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// This node's part of the global memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The same, to take signals and to store.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Asks for an operation; how it ends is told by its number. `bytes`: of a transfer, as many as it says.
    pub fn submit(&mut self, op: Op, bytes: Bytes) -> (u64, Vec<Effect>) {
        self.submit_by(op, bytes, None)
    }

    fn submit_by(&mut self, op: Op, bytes: Bytes, cast: Option<Cast>) -> (u64, Vec<Effect>) {
        let number = self.next;
        self.next += 1;
        let op = match op {
            Op::Transfer { set, region, offset, length, signal }
                if length == bytes.len() as u64
                    && length <= self.settings.at_once as u64
                    && offset.saturating_add(length) <= PUT_WITHIN =>
            {
                Op::Put { set, region, offset, bytes: bytes.to_vec(), signal }
            }
            other => other,
        };
        self.own.insert(number, Own { op, bytes, cast });
        self.start(number);
        (number, self.settle())
    }

    /// Another node says something.
    pub fn hear(&mut self, now: u64, from: NodeId, message: Message) -> Vec<Effect> {
        self.now = self.now.max(now);
        // What nobody of us would say is as good as nothing. A transfer that is too large here is refused, not unheard of.
        if !self.cut_off && from != self.me && message.is_sound(u64::MAX) {
            self.handle(now, from, message);
        }
        self.settle_at(now)
    }

    /// These can't be heard just now (all that are not named can).
    pub fn suspect(&mut self, now: u64, nodes: Set) -> Vec<Effect> {
        self.election.suspect(nodes);
        self.consider(now)
    }

    /// These should be members, too.
    pub fn want(&mut self, now: u64, nodes: Roster) -> Vec<Effect> {
        self.election.want(nodes);
        self.consider(now)
    }

    /// Others have a later view, without this node.
    pub fn left_out(&mut self) -> Vec<Effect> {
        if !self.cut_off {
            self.be_cut_off();
        }
        self.settle()
    }

    /// Time passes. To be called now and then, and after [`Settings::retry_ms`] when nothing else happens.
    pub fn tick(&mut self, now: u64) -> Vec<Effect> {
        let behind: std::collections::BTreeSet<NodeId> = self.early.iter().map(|(from, _, _)| *from).collect();
        for from in behind {
            self.send(from, Message::Behind(self.view.epoch));
        }
        self.complain();
        // Whoever waits may wait for nothing: the others may have gone on without it. One of them after the other is asked.
        self.ticks += 1;
        if self.election.is_stopped()
            || !self.own.is_empty()
            || self.ticks.is_multiple_of(self.settings.ask_each.max(1))
        {
            self.asked += 1;
            let some = self.view.members.at(self.asked % self.view.members.len().max(1));
            if let Some(node) = some.filter(|node| *node != self.me) {
                self.send(node, Message::Behind(self.view.epoch));
            }
        }
        for (to, message) in self.election.remind(&self.view) {
            self.send(to, message);
        }
        self.consider(now)
    }

    /// Tells whoever makes the next view, if that is another one, whom this node can't hear; and once that it hears all again.
    fn complain(&mut self) {
        if self.cut_off || !self.view.members.has(self.me) {
            return;
        }
        if let Some((first, lost)) =
            self.election.complaint(&self.view).filter(|(_, lost)| !lost.is_empty() || self.complained)
        {
            self.complained = !lost.is_empty();
            self.send(first, Message::Unheard(self.me, lost));
        }
    }

    fn consider(&mut self, now: u64) -> Vec<Effect> {
        if !self.cut_off && self.view.members.has(self.me) {
            for (to, message) in self.election.consider(now, &self.view) {
                self.send(to, message);
            }
        }
        self.settle_at(now)
    }

    fn settle(&mut self) -> Vec<Effect> {
        // Nothing that a node says to itself in an operation asks for the time.
        self.settle_at(0)
    }

    fn settle_at(&mut self, now: u64) -> Vec<Effect> {
        while let Some(message) = self.inbox.pop_front() {
            if !self.cut_off {
                self.handle(now, self.me, message);
            }
        }
        std::mem::take(&mut self.out)
    }

    fn send(&mut self, to: NodeId, message: Message) {
        match to == self.me {
            true => self.inbox.push_back(message),
            false => self.out.push(Effect::Send(to, message)),
        }
    }

    fn say(&mut self, to: NodeId, said: Said) {
        self.send(to, Message::In(self.view.epoch, said));
    }

    fn handle(&mut self, now: u64, from: NodeId, message: Message) {
        match message {
            Message::In(epoch, said) if epoch == self.view.epoch => {
                if !self.election.is_stopped() {
                    self.said(from, said);
                }
            }
            Message::In(epoch, said) => {
                if epoch > self.view.epoch {
                    self.early.push((from, epoch, said));
                }
                // It is too far behind to be one of them.
                if self.early.len() > self.settings.early {
                    self.be_cut_off();
                }
            }
            Message::Prepare(ballot) if ballot.epoch == self.view.epoch + 1 => {
                let done = self.done();
                let answer = self.election.prepare(ballot, done);
                self.send(from, answer);
            }
            Message::Prepare(ballot) if ballot.epoch > self.view.epoch => {
                self.send(from, Message::Behind(self.view.epoch));
            }
            Message::Accept(ballot, proposal) if ballot.epoch == self.view.epoch + 1 => {
                let answer = self.election.accept(ballot, proposal);
                self.send(from, answer);
            }
            Message::Prepare(_) | Message::Accept(..) => self.tell_latest(from),
            Message::Behind(epoch) if epoch < self.view.epoch => {
                self.tell_latest(from);
                if let Some(again) = self.election.ask_again(from) {
                    self.send(from, again);
                }
            }
            // It is this node that is behind.
            Message::Behind(epoch) if epoch > self.view.epoch => self.send(from, Message::Behind(self.view.epoch)),
            Message::Behind(_) => {}
            Message::Promise { ballot, accepted, done } => {
                for (to, message) in self.election.promise(from, ballot, accepted, done) {
                    self.send(to, message);
                }
            }
            Message::Accepted(ballot) => {
                if let Some(proposal) = self.election.accepted(from, ballot, &self.view) {
                    let me = self.me;
                    let mut all = self.roster.clone();
                    all.extend(proposal.joined.clone());
                    all.retain(|n, _| proposal.view.members.has(*n));
                    for node in proposal.view.members.iter().filter(|n| *n != me) {
                        let is_new = !self.view.members.has(node);
                        self.send(node, Message::Install(proposal.clone(), is_new.then(|| all.clone())));
                    }
                    self.install(now, proposal, None);
                }
            }
            Message::Later(ballot) => self.election.later(now, ballot, &self.view),
            Message::Install(proposal, all) => self.install(now, proposal, all),
            Message::Unheard(who, lost) => self.unheard(now, from, who, lost),
        }
    }

    fn tell_latest(&mut self, to: NodeId) {
        if let Some(latest) = self.latest.clone() {
            let all = self.roster.clone();
            self.send(to, Message::Install(latest, Some(all)));
        }
    }

    /// `who` can't hear these: that is for whoever makes the next view.
    fn unheard(&mut self, now: u64, from: NodeId, who: NodeId, lost: Set) {
        if !self.view.members.has(from) || !self.view.members.has(who) {
            return;
        }
        // It may be the one that can't be heard there.
        if let Some((first, _)) = self.election.complaint(&self.view).filter(|(first, _)| from == who && *first != who)
        {
            self.send(first, Message::Unheard(who, lost.clone()));
        }
        self.election.unheard(who, lost);
        for (to, message) in self.election.consider(now, &self.view) {
            self.send(to, message);
        }
    }

    /// What others may not know of.
    fn done(&self) -> Vec<Did> {
        let of = |(seq, wave): (&u64, &Wave)| {
            let did = || Did { seq: *seq, id: wave.id, op: wave.op.clone() };
            wave.committed.then(did)
        };
        self.waves.iter().filter_map(of).collect()
    }

    fn install(&mut self, now: u64, proposal: Proposal, all: Option<Roster>) {
        if proposal.view.epoch <= self.view.epoch {
            return;
        }
        if !proposal.view.members.has(self.me) {
            if self.view.members.has(self.me) {
                self.be_cut_off();
            }
            return;
        }
        if all.is_none() && proposal.view.epoch > self.view.epoch + 1 {
            // Who they all are is not known here.
            return self.send(proposal.view.manager, Message::Behind(self.view.epoch));
        }
        let was_member = self.view.members.has(self.me);
        for did in proposal.done.iter().filter(|_| was_member) {
            let here = self.waves.get(&did.seq).is_some_and(|wave| wave.committed) || did.seq < self.known;
            if !here {
                self.apply(did.id, &did.op);
            }
            if did.id.origin == self.me {
                self.ended(did.id.number, outcome(&did.op));
            }
        }
        self.memory.unlock_all();
        self.staging.clear();
        self.waves.clear();
        self.known = 0;
        self.view = proposal.view.clone();
        match all {
            Some(all) => self.roster = all,
            None => self.roster.extend(proposal.joined.clone()),
        }
        let members = &self.view.members;
        self.roster.retain(|n, _| members.has(*n));
        self.complained = false;
        self.manager = (self.view.manager == self.me).then(|| Manager::new(self.view.members.clone()));
        self.latest = Some(proposal);
        self.election.begun(&self.view);
        self.out.push(Effect::View(self.view.clone()));
        for number in self.own.keys().copied().collect::<Vec<_>>() {
            self.start(number);
        }
        let epoch = self.view.epoch;
        for (from, of, said) in std::mem::take(&mut self.early) {
            match of == epoch {
                true => self.said(from, said),
                false if of > epoch => self.early.push((from, of, said)),
                false => {}
            }
        }
        // It may have changed again meanwhile.
        for (to, message) in self.election.consider(now, &self.view) {
            self.send(to, message);
        }
    }

    fn be_cut_off(&mut self) {
        self.cut_off = true;
        for number in self.own.keys().copied().collect::<Vec<_>>() {
            self.ended(number, Outcome::CutOff);
        }
        self.manager = None;
        self.out.push(Effect::CutOff);
    }

    /// Of a put nobody is asked: where it is begun there must be room.
    fn is_full(&self, op: &Op) -> bool {
        matches!(op, Op::Put { bytes, .. } if !bytes.is_empty()) && self.memory.size() > self.settings.most
    }

    fn ended(&mut self, number: u64, outcome: Outcome) {
        if self.own.remove(&number).is_some() {
            self.out.push(Effect::Ended(number, outcome));
        }
    }

    /// Begins one of this node's operations in the view that there is.
    fn start(&mut self, number: u64) {
        let Some(own) = self.own.get(&number) else { return };
        if self.cut_off {
            return self.ended(number, Outcome::CutOff);
        }
        if self.election.is_stopped() || self.view.epoch == 0 {
            return;
        }
        let (op, bytes, id) = (own.op.clone(), own.bytes.clone(), OpId { origin: self.me, number });
        let cast = self.is_to_be_cast(own);
        let is_here = op.set().has(self.me);
        if !op.is_sound(self.settings.most) || is_here && self.is_too_much(&op) || self.is_full(&op) {
            return self.ended(number, Outcome::Refused);
        }
        if !op.set().is_within(&self.view.members) {
            return self.ended(number, Outcome::Lost(op.set().without(&self.view.members)));
        }
        match &op {
            Op::Compare { .. } | Op::Put { .. } => self.say(self.view.manager, Said::Ask(id, op)),
            Op::Transfer { length, .. } if *length != bytes.len() as u64 => self.ended(number, Outcome::Refused),
            Op::Transfer { set, .. } => {
                if let Some(cast) = cast {
                    return self.begin_cast(id, op, bytes, cast, false);
                }
                let children = Tree::new(self.me, set, self.settings.arity).children(self.me);
                for child in &children {
                    self.say(*child, Said::Begin(id, op.clone(), None));
                }
                self.staging.insert(id, Staging::of_origin(op, bytes, children));
                self.pump(id);
            }
        }
    }
}

/// Of an operation that was done.
fn outcome(op: &Op) -> Outcome {
    match op {
        Op::Transfer { .. } | Op::Put { .. } => Outcome::Transferred,
        Op::Compare { .. } => Outcome::Compared(true),
    }
}
