//! What a guest's home says of where it may go, and what keeps it here: this node knows nothing of what its user wants, and home has the last word.
//! Without this a guest's reasons would be about places where it can't be.

use super::advice::keeps;
use super::facts::{self, Key};
use super::groups;
use crate::daemon::Node;
use crate::questions::ask;
use pando_balance::{Process, Wish};
use pando_wire::message::Question;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// It is asked again after this: wishes change, and others of its group move.
const HOLDS: Duration = Duration::from_secs(8);
/// Most homes that are asked in one look, and most names in an answer.
const MOST: (usize, usize) = (16, 1024);

/// What home says of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Bond {
    /// Only there, and at home; none: everywhere.
    nodes: Option<Vec<String>>,
    /// Bytes that it will need.
    memory: Option<u64>,
    /// Not there.
    not: Vec<String>,
    /// Where it was before, and how long ago it left there, milliseconds.
    left: Option<(String, u64)>,
    /// Why it is to stay where it is.
    keeps: Option<String>,
}

impl Bond {
    /// As another node may say it.
    fn is_sound(&self) -> bool {
        let wish = Wish { nodes: self.nodes.clone(), ..Wish::default() };
        wish.check().is_ok() && self.not.len() <= MOST.1
    }

    fn hold(&self, p: &mut Process, said: Instant) {
        (p.wish.nodes, p.wish.memory, p.kept) = (self.nodes.clone(), self.memory, self.keeps.clone());
        p.not.extend(self.not.iter().cloned());
        let age = said.elapsed().as_millis() as u64;
        p.left = self.left.as_ref().map(|(node, ago)| (node.clone(), ago.saturating_add(age)));
    }
}

/// Of all guests.
#[derive(Default)]
pub(super) struct Bonds {
    /// None: it has been asked, and has not answered.
    all: BTreeMap<Key, (Instant, Option<Bond>)>,
}

impl Bonds {
    /// Notes what is known of these guests. Whose homes are to be asked now.
    fn hold(&mut self, guests: &mut [&mut Process]) -> Vec<Key> {
        let key = |p: &Process| (p.home.clone(), p.pid);
        let there: BTreeSet<Key> = guests.iter().map(|p| key(p)).collect();
        self.all.retain(|key, _| there.contains(key));
        let mut asked = Vec::new();
        for p in guests {
            let known = self.all.get(&key(p));
            if let Some((said, Some(bond))) = known {
                bond.hold(p, *said);
            }
            if known.is_none_or(|(when, _)| when.elapsed() >= HOLDS) && asked.len() < MOST.0 {
                let last = known.and_then(|(_, bond)| bond.clone());
                self.all.insert(key(p), (Instant::now(), last));
                asked.push(key(p));
            }
        }
        asked
    }
}

/// Notes in each guest what its home says of it, and asks homes that have not said it of late.
pub(super) fn see(node: &Arc<Node>, processes: &mut [Process]) {
    let me = node.name();
    let mut guests: Vec<&mut Process> = processes.iter_mut().filter(|p| p.home != me).collect();
    let asked = node.balancing.state().bonds.hold(&mut guests);
    for key in asked {
        let node = node.clone();
        tokio::spawn(async move {
            let Ok(text) = ask(&node, &key.0, Question::Keeps(key.1)).await else { return };
            let bond = serde_json::from_str::<Bond>(&text).ok().filter(Bond::is_sound);
            if let (Some(mut bond), Some(there)) = (bond, node.balancing.state().bonds.all.get_mut(&key)) {
                bond.keeps = bond.keeps.map(|why| crate::owner::clean(&why));
                *there = (Instant::now(), Some(bond));
            }
        });
    }
}

/// The other side: what is so of a process of ours that is at `peer`, as text.
pub fn bonds_of(node: &Node, peer: &str, pid: u32) -> Result<String, String> {
    let (start_time, wish, moves, left) = {
        let table = node.table();
        let known = table.get(&table.local(pid)).filter(|k| k.view.place == peer);
        let known = known.ok_or_else(|| format!("process {pid} is not at {peer}"))?;
        let ago = known.since.elapsed().as_millis() as u64;
        let left = known.view.records.last().map(|r| (r.from.clone(), ago));
        (known.start_time, known.wish.clone(), known.view.moves, left)
    };
    let members = facts::groups(node, &[]);
    let not = groups::beside(&members, pid, &wish).into_iter().filter(|place| *place != node.name()).take(MOST.1);
    let aim = node.follow().aim(pid, start_time);
    let bond = Bond {
        not: not.collect(),
        left,
        keeps: keeps((&wish, moves), groups::companions(&members, &wish), aim, peer),
        nodes: wish.nodes,
        memory: wish.memory,
    };
    serde_json::to_string(&bond).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_bound_as_its_home_says_and_home_is_asked_now_and_then() {
        let (mut bonds, guest) = (Bonds::default(), Process { home: "n1".into(), pid: 7, ..Process::default() });
        let key = ("n1".to_owned(), 7);
        let mut one = guest.clone();
        assert_eq!(bonds.hold(&mut [&mut one]).as_slice(), std::slice::from_ref(&key));
        assert!(bonds.hold(&mut [&mut one]).is_empty() && one == guest, "it has been asked and knows nothing yet");
        let bond = Bond {
            nodes: Some(vec!["n2".into()]),
            left: Some(("n1".into(), 5)),
            keeps: Some("so".into()),
            ..Bond::default()
        };
        bonds.all.insert(key.clone(), (Instant::now(), Some(bond)));
        assert!(bonds.hold(&mut [&mut one]).is_empty());
        assert!(one.wish.nodes == Some(vec!["n2".into()]) && one.kept == Some("so".into()));
        assert!(one.left.as_ref().is_some_and(|(node, ago)| node == "n1" && *ago >= 5));
        assert!(bonds.hold(&mut []).is_empty() && bonds.all.is_empty(), "it has gone");
        let long = Bond { nodes: Some(vec!["n".repeat(64)]), ..Bond::default() };
        assert!(!long.is_sound() && Bond::default().is_sound());
    }
}
