//! What is said within an epoch: transfers on their way down their trees, and the manager's questions and orders on theirs.

use super::{Effect, Fabric};
use crate::cast::Cast;
use crate::manager::Step;
use crate::message::Said;
use crate::op::{Op, OpId, Outcome};
use crate::set::NodeId;
use crate::transfer::Staging;
use crate::tree::Tree;
use crate::wave::Wave;

impl Fabric {
    pub(super) fn said(&mut self, from: NodeId, said: Said) {
        match said {
            Said::Begin(id, op, cast) => self.begin(from, id, op, cast),
            Said::Sent(..) | Said::Heard(..) | Said::Lack(..) | Said::Patch(..) => self.said_of_cast(from, said),
            Said::Chunk(id, bytes) => {
                let mine = |s: &&mut Staging| s.parent == Some(from) && s.casting.is_none();
                let Some(staging) = self.staging.get_mut(&id).filter(mine) else { return };
                if staging.take(&bytes) {
                    let got = staging.bytes().len() as u64;
                    self.casts.ways.tree += bytes.len() as u64;
                    self.say(from, Said::Got(id, got));
                    self.pump(id);
                }
            }
            Said::Got(id, bytes) => {
                if self.staging.get_mut(&id).is_some_and(|s| s.got(from, bytes)) {
                    self.pump(id);
                }
            }
            Said::Staged(id, ok) => {
                if self.staging.get_mut(&id).is_some_and(|s| s.staged(from, ok)) {
                    self.pump(id);
                }
            }
            Said::Drop(id) => {
                if self.staging.get(&id).is_some_and(|s| s.parent == Some(from)) {
                    self.drop_staged(id);
                }
            }
            Said::Query { seq, known, id, op } => self.query(from, (seq, known), id, op),
            Said::Commit { seq, known, id, op } => self.commit(from, (seq, known), id, op),
            Said::Abort(seq) => self.abort(from, seq),
            Said::Answer(seq, holds) => {
                if self.waves.get_mut(&seq).is_some_and(|w| !w.committed && w.heard(from, holds)) {
                    self.answer(seq);
                }
            }
            Said::Done(seq) => {
                if self.waves.get_mut(&seq).is_some_and(|w| w.committed && w.heard(from, true)) {
                    self.answer(seq);
                }
            }
            Said::Ask(id, op) => {
                if id.origin == from
                    && let Some(manager) = self.manager.as_mut()
                {
                    let steps = manager.ask(id, op);
                    self.take(steps);
                }
            }
            Said::Outcome(id, outcome) => {
                if from == self.view.manager && id.origin == self.me {
                    if outcome != Outcome::Compared(false) {
                        self.say(from, Said::Seen(id));
                    }
                    self.ended(id.number, outcome);
                }
            }
            Said::Seen(id) => {
                if id.origin == from
                    && let Some(manager) = self.manager.as_mut()
                {
                    let steps = manager.seen(id);
                    self.take(steps);
                }
            }
        }
    }

    fn begin(&mut self, from: NodeId, id: OpId, op: Op, cast: Option<Cast>) {
        let Op::Transfer { set, .. } = &op else { return };
        let tree = Tree::new(id.origin, set, self.settings.arity);
        if tree.parent(self.me) != Some(from) || self.staging.contains_key(&id) {
            return;
        }
        if !op.is_sound(self.settings.most) || self.is_too_much(&op) {
            return self.say(from, Said::Staged(id, false));
        }
        let children = tree.children(self.me);
        for child in &children {
            self.say(*child, Said::Begin(id, op.clone(), cast.clone()));
        }
        let staging = Staging::coming(op, from, children);
        if let Some(cast) = cast {
            return self.take_part(id, cast, staging);
        }
        self.staging.insert(id, staging);
        self.pump(id);
    }

    /// Is there no room for it, with all that is here and on its way?
    pub(super) fn is_too_much(&self, op: &Op) -> bool {
        let Op::Transfer { region, offset, length, .. } = op else { return false };
        let more = offset.saturating_add(*length).saturating_sub(self.memory.region(region).len() as u64);
        let coming: u64 = self.staging.values().map(Staging::length).sum();
        self.memory.size().saturating_add(coming).saturating_add(more) > self.settings.most
    }

    /// Sends on what there is, and says so when all of it is here and below.
    pub(super) fn pump(&mut self, id: OpId) {
        let (chunk, window) = (self.settings.chunk, self.settings.window);
        self.pump_cast(id);
        let Some(staging) = self.staging.get_mut(&id) else { return };
        let due = if staging.casting.is_some() { Vec::new() } else { staging.pump(chunk, window) };
        let over = staging.is_over() && !staging.told;
        staging.told |= over;
        let (parent, ok, probe, op) = (staging.parent, staging.ok, staging.probe, over.then(|| staging.op.clone()));
        for (child, bytes) in due {
            self.say(child, Said::Chunk(id, bytes));
        }
        let Some(op) = op else { return };
        match parent {
            Some(parent) => self.say(parent, Said::Staged(id, ok)),
            None if probe => self.end_probe(id),
            None if ok => self.say(self.view.manager, Said::Ask(id, op)),
            None => {
                self.drop_staged(id);
                self.ended(id.number, Outcome::Refused);
            }
        }
    }

    pub(super) fn drop_staged(&mut self, id: OpId) {
        for child in self.staging.remove(&id).map_or_else(Vec::new, |s| s.children()) {
            self.say(child, Said::Drop(id));
        }
    }

    fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Query { seq, known, id, op } => self.say(self.me, Said::Query { seq, known, id, op }),
                Step::Commit { seq, known, id, op } => self.say(self.me, Said::Commit { seq, known, id, op }),
                Step::Abort { seq } => self.say(self.me, Said::Abort(seq)),
                Step::Tell(id, outcome) => self.say(id.origin, Said::Outcome(id, outcome)),
            }
        }
    }

    /// Who told it in the manager's tree (the manager itself: its own state machine) and whom it tells; none: that can't be.
    fn way(&self, from: NodeId, op: &Op) -> Option<(Option<NodeId>, Vec<NodeId>)> {
        let tree = Tree::new(self.view.manager, op.set(), self.settings.arity);
        let parent = tree.parent(self.me);
        (parent.unwrap_or(self.view.manager) == from).then(|| (parent, tree.children(self.me)))
    }

    /// Operations with lower numbers are known everywhere.
    fn forget(&mut self, known: u64) {
        self.known = self.known.max(known);
        self.waves.retain(|seq, _| *seq >= known);
    }

    fn query(&mut self, from: NodeId, (seq, known): (u64, u64), id: OpId, op: Op) {
        let Some((parent, children)) = self.way(from, &op) else { return };
        let Op::Compare { set, variable, comparison, value, write } = &op else { return };
        if known > seq {
            return;
        }
        self.forget(known);
        let here = set.has(self.me);
        let holds = !here || self.memory.compare(variable, *comparison, *value);
        if here {
            self.memory.lock(variable, id);
            write.iter().for_each(|(name, _)| self.memory.lock(name, id));
        }
        for child in &children {
            self.say(*child, Said::Query { seq, known, id, op: op.clone() });
        }
        self.waves.insert(seq, Wave::asked(id, op, parent, children, holds));
        self.answer(seq);
    }

    fn commit(&mut self, from: NodeId, (seq, known): (u64, u64), id: OpId, op: Op) {
        let Some((parent, children)) = self.way(from, &op).filter(|_| known <= seq) else { return };
        self.forget(known);
        self.apply(id, &op);
        for child in &children {
            self.say(*child, Said::Commit { seq, known, id, op: op.clone() });
        }
        self.waves.insert(seq, Wave::committed(id, op, parent, children));
        self.answer(seq);
    }

    fn abort(&mut self, from: NodeId, seq: u64) {
        let Some(wave) = self.waves.get(&seq).filter(|w| !w.committed) else { return };
        let Some((_, children)) = self.way(from, &wave.op) else { return };
        self.memory.unlock(wave.id);
        self.waves.remove(&seq);
        for child in children {
            self.say(child, Said::Abort(seq));
        }
    }

    /// When all below have answered, so does this node.
    fn answer(&mut self, seq: u64) {
        let Some(wave) = self.waves.get(&seq).filter(|w| w.is_over()) else { return };
        let (parent, committed, holds) = (wave.parent, wave.committed, wave.holds);
        match (parent, self.manager.as_mut()) {
            (Some(parent), _) if committed => self.say(parent, Said::Done(seq)),
            (Some(parent), _) => self.say(parent, Said::Answer(seq, holds)),
            (None, Some(manager)) => {
                let steps = if committed { manager.done(seq) } else { manager.answered(seq, holds) };
                self.take(steps);
            }
            (None, None) => {}
        }
    }

    fn signal(&mut self, event: Option<&str>, bytes: Vec<u8>) {
        if let Some(event) = event {
            self.memory.signal(event);
            self.out.push(Effect::Signalled(event.to_owned(), bytes));
        }
    }

    /// Does what an operation is about, as far as it is about this node.
    pub(super) fn apply(&mut self, id: OpId, op: &Op) {
        // What is said of it now is what was staged.
        let staged = self.staging.remove(&id).filter(|staged| staged.op == *op);
        if op.set().has(self.me) {
            match op {
                Op::Transfer { region, offset, signal, .. } => {
                    match staged {
                        Some(staged) if *offset == 0 => self.memory.put_all(region, staged.into_bytes()),
                        Some(staged) => self.memory.put(region, *offset, staged.bytes()),
                        None => {}
                    }
                    self.signal(signal.as_deref(), Vec::new());
                }
                Op::Put { region, offset, bytes, signal, .. } => {
                    self.memory.put(region, *offset, bytes);
                    self.signal(signal.as_deref(), bytes.clone());
                }
                Op::Compare { write, .. } => write.iter().for_each(|(name, value)| self.memory.write(name, *value)),
            }
        }
        self.memory.unlock(id);
    }
}
