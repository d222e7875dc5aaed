//! Who is in the next view and who orders there: for each epoch the members of the one before agree once (Lamport's Paxos, 1998), and whoever
//! agrees to look for a new view does nothing more in the old one. So a manager that was cut off can do nothing that the others do not
//! know of, and what it has done somewhere is found and done everywhere (as Viewstamped Replication does, Oki and Liskov, 1988).

use crate::message::{Ballot, Did, Message, Proposal, View};
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
    wanted: Set,
}

type Said = Vec<(NodeId, Message)>;

impl Election {
    pub fn new(me: NodeId, retry_ms: u64) -> Election {
        let (suspects, wanted) = (Set::default(), Set::default());
        Election { me, retry_ms, promised: None, accepted: None, campaign: None, retry_at: None, suspects, wanted }
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
    pub fn want(&mut self, nodes: Set) {
        self.wanted = nodes;
    }

    /// A view has begun.
    pub fn begun(&mut self) {
        (self.promised, self.accepted, self.campaign, self.retry_at) = (None, None, None, None);
    }

    /// Is a new view to be made, and by this node?
    pub fn consider(&mut self, now: u64, view: &View) -> Said {
        let alive = view.members.without(&self.suspects);
        let first = if alive.has(view.manager) { Some(view.manager) } else { alive.at(0) };
        let joins = !self.wanted.without(&view.members).without(&self.suspects).is_empty();
        let due = alive != view.members || joins || self.is_stopped();
        let most = alive.len() * 2 > view.members.len();
        if first != Some(self.me) || !due || !most {
            self.campaign = None;
            return Vec::new();
        }
        let waits = self.retry_at.is_some_and(|at| now < at);
        let goes_on = |c: &Campaign| match c.proposal {
            None => c.asked == alive,
            // Enough have taken it, or still can.
            Some(_) => {
                let can = |n: &NodeId| alive.has(*n) || c.accepted.contains(n);
                c.asked.iter().filter(can).count() * 2 > view.members.len()
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
        let alive = view.members.without(&self.suspects);
        let first = if alive.has(view.manager) { Some(view.manager) } else { alive.at(0) };
        match (self.promised, first) {
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
        let joiners = |members: &Set| self.wanted.without(members).without(&self.suspects);
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
            let members = c.asked.iter().chain(joiners(&c.asked).iter()).collect();
            let mut done: BTreeMap<u64, Did> = BTreeMap::new();
            for (_, some) in c.promises.values() {
                done.extend(some.iter().map(|d| (d.seq, d.clone())));
            }
            let view = View { epoch: ballot.epoch, manager: ballot.by, members };
            Proposal { view, done: done.into_values().collect() }
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
        (c.accepted.len() * 2 > view.members.len()).then(|| c.proposal.clone()).flatten()
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
        let set = |nodes: &[u32]| nodes.iter().map(|n| NodeId(*n)).collect::<Set>();
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
            proposals = nodes[3].promise(NodeId(n as u32), low, accepted, done);
        }
        assert_eq!(proposals, [1, 2, 3].map(|n| (NodeId(n), Message::Accept(low, chosen.clone()))));
        // What comes late from the first is refused.
        assert_eq!(nodes[2].accept(first, chosen), Message::Later(low));
    }

    #[test]
    fn without_most_of_them_nothing_is_tried() {
        let view = View { epoch: 1, manager: NodeId(0), members: (0..4).map(NodeId).collect() };
        let mut e = Election::new(NodeId(0), 20);
        e.suspect([NodeId(2), NodeId(3)].into_iter().collect());
        assert!(e.consider(0, &view).is_empty());
        e.suspect([NodeId(3)].into_iter().collect());
        assert_eq!(e.consider(0, &view).len(), 3);
    }
}
