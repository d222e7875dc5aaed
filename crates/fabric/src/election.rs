//! Who is in the next view and who orders there: for each epoch the members of the one before agree once (Lamport's Paxos, 1998), and whoever
//! agrees to look for a new view does nothing more in the old one. So a manager that was cut off can do nothing that the others do not
//! know of, and what it has done somewhere is found and done everywhere (as Viewstamped Replication does, Oki and Liskov, 1988).

use crate::message::{Ballot, Did, Message, Proposal, Roster, View};
use crate::set::{NodeId, Set};
use std::collections::{BTreeMap, BTreeSet};

/// What one node has accepted for the next epoch, and what it has done in this one.
type Promised = (Option<(Ballot, Proposal)>, Vec<Did>);

/// A node's own try.
#[derive(Debug)]
struct Campaign {
    ballot: Ballot,
    /// All that are not suspected.
    asked: Set,
    promises: BTreeMap<NodeId, Promised>,
    proposal: Option<Proposal>,
    accepted: BTreeSet<NodeId>,
}

/// What one node knows of the choice of the next view.
#[derive(Debug)]
pub struct Election {
    me: NodeId,
    retry_ms: u64,
    promised: Option<Ballot>,
    accepted: Option<(Ballot, Proposal)>,
    campaign: Option<Campaign>,
    retry_at: Option<u64>,
    suspects: Set,
    wanted: Roster,
    /// Whom others can't hear.
    unheard: BTreeMap<NodeId, Set>,
}

type Said = Vec<(NodeId, Message)>;

impl Election {
    pub fn new(me: NodeId, retry_ms: u64) -> Election {
        let (suspects, wanted, unheard) = (Set::default(), Roster::new(), BTreeMap::new());
        let (promised, accepted, campaign, retry_at) = (None, None, None, None);
        Election { me, retry_ms, promised, accepted, campaign, retry_at, suspects, wanted, unheard }
    }

    /// Nothing more is done in the view.
    pub fn is_stopped(&self) -> bool {
        self.promised.is_some()
    }

    /// These can't be heard just now.
    pub fn suspect(&mut self, nodes: Set) {
        self.suspects = nodes;
    }

    /// These should be in, too.
    pub fn want(&mut self, nodes: Roster) {
        self.wanted = nodes;
    }

    /// `who` can't hear these.
    pub fn unheard(&mut self, who: NodeId, nodes: Set) {
        match nodes.is_empty() {
            true => _ = self.unheard.remove(&who),
            false => _ = self.unheard.insert(who, nodes),
        }
    }

    /// Members that the next view is to have, as far as this node knows.
    fn alive(&self, view: &View) -> Set {
        alive(self.me, view, &self.suspects, &self.unheard)
    }

    /// Are they enough to make the next view?
    pub fn can_go_on(&self, view: &View) -> bool {
        are_enough(self.alive(view).iter(), view)
    }

    /// Who makes the next view, and whom this node can't hear: that is to be told when this node can't do anything about it itself.
    pub fn complaint(&self, view: &View) -> Option<(NodeId, Set)> {
        let alive = view.members.without(&self.suspects);
        let lost = view.members.without(&alive);
        first(&alive, view).filter(|first| *first != self.me).map(|first| (first, lost))
    }

    /// A view has begun. Who is in it has come in: lost again, it comes back as another one.
    pub fn begun(&mut self, view: &View) {
        self.wanted.retain(|n, _| !view.members.has(*n));
        (self.promised, self.accepted, self.campaign, self.retry_at) = (None, None, None, None);
        self.unheard.clear();
    }

    /// Is a new view to be made, and by this node?
    pub fn consider(&mut self, now: u64, view: &View) -> Said {
        let alive = self.alive(view);
        let joins = self.wanted.keys().any(|n| !view.members.has(*n) && !self.suspects.has(*n));
        let due = alive != view.members || joins || self.is_stopped();
        if first(&alive, view) != Some(self.me) || !due || !are_enough(alive.iter(), view) {
            self.campaign = None;
            return Vec::new();
        }
        let waits = self.retry_at.is_some_and(|at| now < at);
        let goes_on = |c: &Campaign| match c.proposal {
            None => c.asked == alive,
            // Enough have taken it, or still can.
            Some(_) => {
                let can = |n: &NodeId| alive.has(*n) || c.accepted.contains(n);
                are_enough(c.asked.iter().filter(can), view)
            }
        };
        if waits || self.campaign.as_ref().is_some_and(goes_on) {
            return Vec::new();
        }
        let round = self.promised.map_or(0, |b| b.round).max(self.campaign.as_ref().map_or(0, |c| c.ballot.round)) + 1;
        let ballot = Ballot { epoch: view.epoch + 1, round, by: self.me };
        let (promises, accepted) = (BTreeMap::new(), BTreeSet::new());
        let all = alive.iter().map(|node| (node, Message::Prepare(ballot))).collect();
        self.retry_at = None;
        self.campaign = Some(Campaign { ballot, asked: alive, promises, proposal: None, accepted });
        all
    }

    /// Whoever stands still because of a try that came to nothing says so to those that could try again.
    pub fn remind(&mut self, view: &View) -> Said {
        match (self.promised, first(&self.alive(view), view)) {
            (Some(promised), Some(first)) if self.campaign.is_none() => vec![(first, Message::Later(promised))],
            _ => Vec::new(),
        }
    }

    /// One could not answer because it had not come to this epoch.
    pub fn ask_again(&self, node: NodeId) -> Option<Message> {
        let waits = self.campaign.as_ref().filter(|c| c.asked.has(node) && !c.promises.contains_key(&node));
        waits.map(|c| Message::Prepare(c.ballot))
    }

    /// Somebody tries. `done`: what is to be said if that is all right.
    pub fn prepare(&mut self, ballot: Ballot, done: Vec<Did>) -> Message {
        match self.promised.filter(|p| *p > ballot) {
            Some(later) => Message::Later(later),
            None => {
                self.promised = Some(ballot);
                Message::Promise { ballot, accepted: self.accepted.clone(), done }
            }
        }
    }

    /// One has agreed to a try of ours.
    pub fn promise(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        accepted: Option<(Ballot, Proposal)>,
        done: Vec<Did>,
    ) -> Said {
        let wanted = self.wanted.iter().filter(|(n, _)| !self.suspects.has(**n));
        let joiners = |members: &Set| -> Roster {
            wanted.filter(|(n, _)| !members.has(**n)).map(|(n, who)| (*n, who.clone())).collect()
        };
        let Some(c) = self.campaign.as_mut().filter(|c| c.ballot == ballot && c.asked.has(from)) else {
            return Vec::new();
        };
        c.promises.insert(from, (accepted, done));
        if c.promises.len() < c.asked.len() || c.proposal.is_some() {
            return Vec::new();
        }
        let earlier =
            c.promises.values().filter_map(|(a, _)| a.as_ref()).max_by_key(|(b, _)| *b).map(|(_, p)| p.clone());
        let proposal = earlier.unwrap_or_else(|| {
            let joined = joiners(&c.asked);
            let members = c.asked.iter().chain(joined.keys().copied()).collect();
            let mut done: BTreeMap<u64, Did> = BTreeMap::new();
            for (_, some) in c.promises.values() {
                done.extend(some.iter().map(|d| (d.seq, d.clone())));
            }
            let view = View { epoch: ballot.epoch, manager: ballot.by, members };
            Proposal { view, done: done.into_values().collect(), joined }
        });
        c.proposal = Some(proposal.clone());
        c.asked.iter().map(|node| (node, Message::Accept(ballot, proposal.clone()))).collect()
    }

    /// Somebody proposes.
    pub fn accept(&mut self, ballot: Ballot, proposal: Proposal) -> Message {
        match self.promised.filter(|p| *p > ballot) {
            Some(later) => Message::Later(later),
            None => {
                self.promised = Some(ballot);
                self.accepted = Some((ballot, proposal));
                Message::Accepted(ballot)
            }
        }
    }

    /// One has taken what we propose: what is chosen when most have.
    pub fn accepted(&mut self, from: NodeId, ballot: Ballot, view: &View) -> Option<Proposal> {
        let c = self.campaign.as_mut().filter(|c| c.ballot == ballot && view.members.has(from))?;
        c.accepted.insert(from);
        are_enough(c.accepted.iter().copied(), view).then(|| c.proposal.clone()).flatten()
    }

    /// There is a later try than ours, or one that came to nothing.
    pub fn later(&mut self, now: u64, ballot: Ballot, view: &View) {
        if ballot.epoch != view.epoch + 1 {
            return;
        }
        let beaten = self.campaign.as_ref().is_some_and(|c| c.ballot < ballot);
        if beaten || self.campaign.is_none() && self.promised.is_none_or(|p| p < ballot) {
            self.promised = self.promised.max(Some(ballot));
            self.campaign = None;
            let rank = view.members.rank(self.me).unwrap_or(0) as u64;
            self.retry_at = beaten.then(|| now + self.retry_ms * (1 + rank.min(10)));
        }
    }
}

/// Can these choose the next view? Most can, or half of them with the manager: any two such have a member in common (Jajodia and Mutchler's
/// linear voting, 1990), and of two nodes the manager goes on without the other.
fn are_enough(nodes: impl Iterator<Item = NodeId>, view: &View) -> bool {
    let (mut count, mut manages) = (0, false);
    for node in nodes {
        (count, manages) = (count + 1, manages || node == view.manager);
    }
    count * 2 > view.members.len() || manages && count * 2 == view.members.len()
}

/// Who makes the next view of these.
fn first(alive: &Set, view: &View) -> Option<NodeId> {
    if alive.has(view.manager) { Some(view.manager) } else { alive.at(0) }
}

/// Without those that can't be heard here, and without one of each two that can't hear each other: those first that most others miss, then
/// those that came last.
fn alive(me: NodeId, view: &View, suspects: &Set, unheard: &BTreeMap<NodeId, Set>) -> Set {
    let mut left = view.members.without(suspects);
    let pair = |a: NodeId, b: NodeId| (a.min(b), a.max(b));
    let mut apart: BTreeSet<(NodeId, NodeId)> = BTreeSet::new();
    for (who, nodes) in unheard.iter().filter(|(who, _)| left.has(**who)) {
        apart.extend(nodes.iter().filter(|n| n != who && left.has(*n)).map(|n| pair(*who, n)));
    }
    while !apart.is_empty() {
        let mut missed: BTreeMap<NodeId, usize> = BTreeMap::new();
        apart.iter().flat_map(|(a, b)| [a, b]).for_each(|n| *missed.entry(*n).or_default() += 1);
        // This node hears all that are left, so it stays.
        missed.remove(&me);
        let Some((worst, _)) = missed.iter().max_by_key(|(n, count)| (**count, **n != view.manager, **n)) else {
            break;
        };
        let worst = *worst;
        apart.retain(|(a, b)| *a != worst && *b != worst);
        left = left.iter().filter(|n| *n != worst).collect();
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(e: &mut Election, ballot: Ballot) -> Promised {
        match e.prepare(ballot, Vec::new()) {
            Message::Promise { accepted, done, .. } => (accepted, done),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_may_have_been_chosen_is_proposed_again() {
        let view = View { epoch: 1, manager: NodeId(3), members: (0..4).map(NodeId).collect() };
        let mut nodes: Vec<Election> = (0..4).map(|n| Election::new(NodeId(n), 20)).collect();
        let set = |nodes: &[u64]| nodes.iter().map(|n| NodeId(*n)).collect::<Set>();
        // Node 0 makes a view without 3, the manager that was; all take it, and node 0 is not heard any more.
        nodes[0].suspect(set(&[3]));
        let asked = nodes[0].consider(0, &view);
        let first = Ballot { epoch: 2, round: 1, by: NodeId(0) };
        assert_eq!(asked, [0, 1, 2].map(|n| (NodeId(n), Message::Prepare(first))));
        let mut proposals = Vec::new();
        for n in 0..3 {
            let (accepted, done) = prepared(&mut nodes[n as usize], first);
            proposals = nodes[0].promise(NodeId(n), first, accepted, done);
        }
        let Message::Accept(_, chosen) = proposals[0].1.clone() else { panic!("{proposals:?}") };
        assert_eq!(chosen.view.members, set(&[0, 1, 2]));
        for e in &mut nodes[..3] {
            assert_eq!(e.accept(first, chosen.clone()), Message::Accepted(first));
        }
        // Node 1 tries with whom it hears: 3 is back for it, and the view is the one that was chosen nevertheless.
        nodes[1].suspect(set(&[0]));
        assert!(nodes[1].consider(0, &view).is_empty(), "the manager that was is heard: that one would do it");
        nodes[3].suspect(set(&[0]));
        let asked = nodes[3].consider(0, &view);
        let low = Ballot { epoch: 2, round: 1, by: NodeId(3) };
        assert_eq!(asked, [1, 2, 3].map(|n| (NodeId(n), Message::Prepare(low))));
        let mut proposals = Vec::new();
        for n in [1, 2, 3] {
            let (accepted, done) = prepared(&mut nodes[n], low);
            proposals = nodes[3].promise(NodeId(n as u64), low, accepted, done);
        }
        assert_eq!(proposals, [1, 2, 3].map(|n| (NodeId(n), Message::Accept(low, chosen.clone()))));
        // What comes late from the first is refused.
        assert_eq!(nodes[2].accept(first, chosen), Message::Later(low));
    }

    #[test]
    fn without_most_of_them_nothing_is_tried() {
        let view = View { epoch: 1, manager: NodeId(3), members: (0..4).map(NodeId).collect() };
        let mut e = Election::new(NodeId(0), 20);
        e.suspect([NodeId(2), NodeId(3)].into_iter().collect());
        assert!(e.consider(0, &view).is_empty());
        e.suspect([NodeId(3)].into_iter().collect());
        assert_eq!(e.consider(0, &view).len(), 3);
    }

    #[test]
    fn half_of_them_are_enough_with_the_manager() {
        let view = View { epoch: 1, manager: NodeId(1), members: (0..2).map(NodeId).collect() };
        let tries = |me: u64, lost: u64| {
            let mut e = Election::new(NodeId(me), 20);
            e.suspect([NodeId(lost)].into_iter().collect());
            !e.consider(0, &view).is_empty()
        };
        assert!(tries(1, 0) && !tries(0, 1));
    }

    #[test]
    fn of_two_that_do_not_hear_each_other_one_goes() {
        let view = View { epoch: 1, manager: NodeId(2), members: (0..5).map(NodeId).collect() };
        let set = |nodes: &[u64]| nodes.iter().map(|n| NodeId(*n)).collect::<Set>();
        let left = |me: u64, unheard: &[(u64, &[u64])]| {
            let unheard = unheard.iter().map(|(who, nodes)| (NodeId(*who), set(nodes))).collect();
            alive(NodeId(me), &view, &Set::default(), &unheard)
        };
        assert_eq!(left(2, &[(0, &[1])]), set(&[0, 2, 3, 4]), "the one that came later");
        assert_eq!(left(2, &[(0, &[1]), (3, &[0])]), set(&[1, 2, 3, 4]), "the one that two miss");
        assert_eq!(left(2, &[(0, &[2])]), set(&[1, 2, 3, 4]), "the manager hears all that are left");
        assert_eq!(left(1, &[(0, &[2])]), set(&[1, 2, 3, 4]), "the manager stays");
        assert_eq!(left(2, &[(0, &[0]), (7, &[1])]), set(&[0, 1, 2, 3, 4]), "nonsense");
    }
}
