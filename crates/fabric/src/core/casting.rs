//! Casts: who hears, what is cast, what comes, and what is asked for.

use super::{Effect, Fabric, Own};
use crate::cast::{Cast, Casting, Heard};
use crate::message::Said;
use crate::op::{Op, OpId};
use crate::set::{NodeId, Set};
use crate::transfer::Staging;
use crate::tree::Tree;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Bytes of transfers that have come to this node, by which way; and bytes that it has cast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Down the tree, of transfers that are not cast.
    pub tree: u64,
    /// By datagrams.
    pub caught: u64,
    /// Down the tree, because they were lost on their way or this node is deaf.
    pub mended: u64,
    /// Datagrams with what was here already, or what can't be.
    pub useless: u64,
    /// Cast.
    pub cast: u64,
}

/// What is known of casts.
#[derive(Default)]
pub(super) struct Casts {
    tags: BTreeMap<u64, OpId>,
    /// Until when they are taken to be deaf.
    deaf: BTreeMap<NodeId, u64>,
    pub(super) ways: Ways,
    /// Those that are there to hear the last probe, and how many of them did.
    probed: Option<(usize, usize)>,
}

impl Casts {
    fn know(&mut self, tag: u64, id: OpId, staging: &BTreeMap<OpId, Staging>) {
        if self.tags.len() > 2 * staging.len() + 16 {
            self.tags.retain(|_, id| staging.get(id).is_some_and(|s| s.casting.is_some()));
        }
        self.tags.insert(tag, id);
    }
}

impl Fabric {
    /// As [`submit`](Fabric::submit); a transfer may be cast in this way if somebody hears. `cast.deaf` is found here.
    pub fn submit_cast(&mut self, now: u64, op: Op, bytes: Bytes, cast: Cast) -> (u64, Vec<Effect>) {
        self.now = self.now.max(now);
        self.submit_by(op, bytes, Some(cast))
    }

    /// Finds out who of the members hears this one.
    pub fn probe(&mut self, now: u64, bytes: Bytes, cast: Cast) -> Vec<Effect> {
        self.now = self.now.max(now);
        let set = self.view.members.clone();
        if self.cut_off || self.election.is_stopped() || !set.has(self.me) || set.len() < 2 {
            return self.settle();
        }
        let id = OpId { origin: self.me, number: self.next };
        self.next += 1;
        let length = bytes.len() as u64;
        let op = Op::Transfer { set, region: String::new(), offset: 0, length, signal: None };
        if cast.is_sound(length) {
            self.begin_cast(id, op, bytes, cast, true);
        }
        self.settle()
    }

    /// Members that hear nothing, as far as is known here.
    pub fn deaf(&self) -> Set {
        self.casts.deaf.iter().filter(|(_, until)| **until > self.now).map(|(n, _)| *n).collect()
    }

    /// Of the last probe: who could have heard it, and who did.
    pub fn probed(&self) -> Option<(usize, usize)> {
        self.casts.probed
    }

    /// By which way bytes have come.
    pub fn ways(&self) -> Ways {
        self.casts.ways
    }

    /// Something is being cast: [`beat`](Fabric::beat) is to be called each few milliseconds.
    pub fn is_casting(&self) -> bool {
        self.staging.values().any(|s| s.casting.is_some())
    }

    /// How the datagrams with this tag are sealed; none: they are nothing to this node.
    pub fn cast(&self, tag: u64) -> Option<&Cast> {
        let casting = self.casting(*self.casts.tags.get(&tag)?)?;
        (casting.cast.tag == tag).then_some(&casting.cast)
    }

    /// This node casts it: it hears nothing new.
    pub fn is_own_cast(&self, tag: u64) -> bool {
        self.casts.tags.get(&tag).is_some_and(|id| id.origin == self.me)
    }

    /// A datagram has come, and its seal is good.
    pub fn caught(&mut self, now: u64, tag: u64, number: u32, bytes: &[u8]) -> Vec<Effect> {
        self.now = self.now.max(now);
        if self.cast(tag).is_some() && !self.is_own_cast(tag) && !self.stands_still() {
            let id = self.casts.tags[&tag];
            match self.comes(id, number, bytes, true) {
                Some(new) if new > 0 => self.casts.ways.caught += new,
                _ => self.casts.ways.useless += 1,
            }
            self.pump(id);
        }
        self.settle()
    }

    /// So many pieces of what this node casts have left it.
    pub fn went(&mut self, now: u64, tag: u64, count: u32) -> Vec<Effect> {
        self.now = self.now.max(now);
        if let Some(id) = self.casts.tags.get(&tag).copied().filter(|_| !self.stands_still()) {
            self.casting_mut(id).into_iter().for_each(|c| c.went(count));
            self.tell_sent(id, false);
        }
        self.settle()
    }

    /// Some milliseconds have passed.
    pub fn beat(&mut self, now: u64) -> Vec<Effect> {
        self.now = self.now.max(now);
        let all: Vec<OpId> = match self.stands_still() {
            true => Vec::new(),
            false => self.staging.iter().filter(|(_, s)| s.casting.is_some()).map(|(id, _)| *id).collect(),
        };
        for id in all {
            self.tell_sent(id, true);
            if self.casting_mut(id).is_some_and(|c| c.expire(now)) {
                self.pump(id);
            }
            // What is less than a step further might never be said otherwise.
            self.tell_heard(id, true);
        }
        self.settle()
    }

    fn stands_still(&self) -> bool {
        self.cut_off || self.election.is_stopped()
    }

    fn casting(&self, id: OpId) -> Option<&Casting> {
        self.staging.get(&id)?.casting.as_ref()
    }

    fn casting_mut(&mut self, id: OpId) -> Option<&mut Casting> {
        self.staging.get_mut(&id)?.casting.as_mut()
    }

    /// Is it worth it? Two that hear are.
    pub(super) fn is_to_be_cast(&self, own: &Own) -> Option<Cast> {
        let Op::Transfer { set, length, .. } = &own.op else { return None };
        let cast = own.cast.clone().filter(|cast| cast.is_sound(*length) && *length >= self.settings.cast_least)?;
        let deaf = self.deaf();
        let hear = set.iter().filter(|n| *n != self.me && !deaf.has(*n)).count();
        (hear > 1).then(|| Cast { deaf: set.iter().filter(|n| deaf.has(*n)).collect(), ..cast })
    }

    /// At the origin.
    pub(super) fn begin_cast(&mut self, id: OpId, op: Op, bytes: Bytes, cast: Cast, probe: bool) {
        let children = Tree::new(self.me, op.set(), self.settings.arity).children(self.me);
        for child in &children {
            self.say(*child, Said::Begin(id, op.clone(), Some(cast.clone())));
        }
        let (tag, length) = (cast.tag, bytes.len() as u64);
        let casting = Casting::of_origin(self.me, cast, length, &children, self.settings.cast_window);
        let mut staging = Staging::of_origin(op, bytes, children);
        (staging.casting, staging.probe) = (Some(casting), probe);
        self.staging.insert(id, staging);
        self.casts.know(tag, id, &self.staging);
        self.pump(id);
    }

    /// At another node: `staging` is what there is of it.
    pub(super) fn take_part(&mut self, id: OpId, cast: Cast, mut staging: Staging) {
        let tag = cast.tag;
        let (length, children) = (staging.length(), staging.children());
        staging.casting = Some(Casting::of_other(self.me, cast, length, &children, self.settings.hears));
        self.staging.insert(id, staging);
        self.casts.know(tag, id, &self.staging);
        self.pump(id);
    }

    /// Pieces are here; so many bytes of them are new.
    fn comes(&mut self, id: OpId, first: u32, bytes: &[u8], by_datagram: bool) -> Option<u64> {
        let staging = self.staging.get_mut(&id)?;
        let places = staging.casting.as_mut()?.comes(first, bytes.len(), by_datagram)?;
        let base = first as usize * staging.casting.as_ref()?.cast.piece as usize;
        let mut new = 0;
        for at in places {
            new += at.len() as u64;
            staging.place(at.clone(), &bytes[at.start - base..at.end - base]);
        }
        Some(new)
    }

    /// Of what is said of casts.
    pub(super) fn said_of_cast(&mut self, from: NodeId, said: Said) {
        let now = self.now;
        let is_parent = |fabric: &Fabric, id| fabric.staging.get(&id).is_some_and(|s: &Staging| s.parent == Some(from));
        match said {
            Said::Sent(id, count) if is_parent(self, id) => {
                let Some(staging) = self.staging.get_mut(&id) else { return };
                let children = staging.children();
                let Some(casting) = staging.casting.as_mut() else { return };
                casting.sent(now, count);
                children.into_iter().for_each(|child| self.say(child, Said::Sent(id, count)));
                self.tell_heard(id, true);
            }
            Said::Patch(id, first, bytes) if is_parent(self, id) => {
                self.casts.ways.mended += self.comes(id, first, &bytes, false).unwrap_or(0);
                self.pump(id);
            }
            Said::Heard(id, heard) => self.heard(id, from, heard),
            Said::Lack(id, ranges) if self.casting_mut(id).is_some_and(|c| c.lacks(from, &ranges)) => self.pump(id),
            _ => {}
        }
    }

    fn heard(&mut self, id: OpId, from: NodeId, heard: Heard) {
        let until = self.now + self.settings.deaf_ms;
        let Some(staging) = self.staging.get_mut(&id) else { return };
        let is_origin = staging.parent.is_none();
        let Some(casting) = staging.casting.as_mut() else { return };
        if !heard.deaf.is_within(staging.op.set()) || !casting.heard(from, heard) {
            return;
        }
        if is_origin && let Some(sum) = casting.sum() {
            self.casts.deaf.extend(sum.deaf.iter().map(|n| (n, until)));
            let others = staging.op.set().iter().filter(|n| *n != id.origin);
            if others.filter(|n| !sum.deaf.has(*n)).count() == 0 {
                casting.give_up();
            }
        }
        self.pump(id);
    }

    /// What is due for a cast: datagrams, repairs, questions for them, and how far it is.
    pub(super) fn pump_cast(&mut self, id: OpId) {
        let (chunk, window) = (self.settings.chunk, self.settings.window);
        let Some(staging) = self.staging.get_mut(&id) else { return };
        let parent = staging.parent;
        let Some(casting) = staging.casting.as_mut() else { return };
        let (tag, patches, lacks, due) = (casting.cast.tag, casting.patches(chunk), casting.ask(window), casting.due());
        let patches: Vec<_> = patches.into_iter().map(|(to, first, at)| (to, first, staging.part(at))).collect();
        for (number, at) in due {
            let bytes = staging.part(at);
            self.casts.ways.cast += bytes.len() as u64;
            self.out.push(Effect::Cast { tag, number, bytes });
        }
        for (child, first, bytes) in patches {
            self.say(child, Said::Patch(id, first, bytes.to_vec()));
        }
        if let Some(parent) = parent.filter(|_| !lacks.is_empty()) {
            self.say(parent, Said::Lack(id, lacks));
        }
        self.tell_heard(id, false);
    }

    fn tell_heard(&mut self, id: OpId, now: bool) {
        let step = self.settings.chunk as u64;
        let Some(staging) = self.staging.get_mut(&id) else { return };
        let Some(parent) = staging.parent else { return };
        if let Some(heard) = staging.casting.as_mut().and_then(|c| c.tell(step, now)) {
            self.say(parent, Said::Heard(id, heard));
        }
    }

    fn tell_sent(&mut self, id: OpId, waits: bool) {
        let Some(staging) = self.staging.get_mut(&id) else { return };
        let children = staging.children();
        if let Some(count) = staging.casting.as_mut().and_then(|c| c.tail(waits)) {
            children.into_iter().for_each(|child| self.say(child, Said::Sent(id, count)));
        }
    }

    /// All have answered a probe: the others hear.
    pub(super) fn end_probe(&mut self, id: OpId) {
        let until = self.now + self.settings.deaf_ms;
        if let Some(staging) = self.staging.get(&id)
            && let Some(sum) = staging.casting.as_ref().and_then(Casting::sum)
        {
            let others = staging.op.set().len() - 1;
            self.casts.deaf = sum.deaf.iter().map(|n| (n, until)).collect();
            self.casts.probed = Some((others, others - sum.deaf.len()));
        }
        self.drop_staged(id);
    }
}
