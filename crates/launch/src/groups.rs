//! Groups of ranks that a job's ranks have started (MPI_Comm_spawn): each has a tree, a space and a head of its own, which is told what to do by the
//! job's head and tells it all. For the user they are ranks of the job: their numbers go on where those of the others end.

use crate::message::{Ask, Granted, Tell, Wish};
use crate::order::{Group, Manager, Order, Share, Stdin, Task};
use crate::spawn::Spawn;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Most groups of a job at once.
const MOST_GROUPS: usize = 256;
/// More of them are a mistake, as when a job begins.
const RANKS_PER_CPU: u64 = 256;

/// From a group's head to its job's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// What it would tell its user.
    Tell(Tell),
    /// A rank wants something of the job.
    Wish {
        /// Its place in the group.
        place: u32,
        /// The rank in the group.
        rank: u32,
        /// What.
        wish: Wish,
    },
}

/// From a job's head to that of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bid {
    /// As its user would ask.
    Ask(Ask),
    /// What has come of a rank's wish.
    Granted {
        /// Its place in the group.
        place: u32,
        /// The rank in the group.
        rank: u32,
        /// The answer.
        granted: Granted,
    },
}

/// A rank that wants something: of a group, or of the job itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its group.
    pub group: Option<u32>,
    /// Its place there.
    pub place: u32,
    /// Its number there.
    pub rank: u32,
}

/// One that is not over.
#[derive(Debug)]
struct Living {
    nodes: Vec<Share>,
    /// What its first rank and its first place are called in the job.
    first_rank: u32,
    first_place: u32,
    /// Who waits for it to begin.
    asker: Option<Asker>,
}

/// See above.
#[derive(Debug, Default)]
pub struct Groups {
    all: BTreeMap<u32, Living>,
    next: u32,
    /// Numbers that have been used.
    ranks: u32,
    places: u32,
}

impl Groups {
    /// Of a job that has none.
    pub fn new(order: &Order) -> Groups {
        Groups { ranks: order.size(), places: order.nodes.len() as u32, ..Groups::default() }
    }

    /// All are over.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that are not.
    pub fn numbers(&self) -> Vec<u32> {
        self.all.keys().copied().collect()
    }

    /// Those whose ranks run.
    pub fn begun(&self) -> Vec<u32> {
        self.all.iter().filter(|(_, group)| group.asker.is_none()).map(|(number, _)| *number).collect()
    }

    /// A new one, with its order; the number of a job it does not have yet. The error is for people.
    pub fn plan(&mut self, order: &Order, spawn: Spawn, asker: Asker) -> Result<(u32, Order), String> {
        spawn.check()?;
        if order.gang.is_some() {
            return Err("a job that takes turns with others (--gang) starts no more ranks".into());
        }
        if order.manager != Manager::Pmi1 {
            return Err("only programs that speak PMI-1 can do that".into());
        }
        if self.all.len() >= MOST_GROUPS {
            return Err(format!("{MOST_GROUPS} groups of ranks have been started, and none of them is over"));
        }
        let nodes = self.place(order, &spawn)?;
        let places = nodes.len() as u32;
        let (Some(ranks), Some(after)) = (self.ranks.checked_add(spawn.ranks()), self.places.checked_add(places))
        else {
            return Err("this job has started as many ranks as can be counted".into());
        };
        let (number, first_rank, first_place) = (self.next, self.ranks, self.places);
        (self.next, self.ranks, self.places) = (number.wrapping_add(1), ranks, after);
        self.all.insert(number, Living { nodes: nodes.clone(), first_rank, first_place, asker: Some(asker) });
        Ok((number, group_order(order, nodes, spawn)))
    }

    /// Ranks go where the fewest are for the CPUs that there are.
    fn place(&self, order: &Order, spawn: &Spawn) -> Result<Vec<Share>, String> {
        let mut running: BTreeMap<&str, u64> = BTreeMap::new();
        for share in order.nodes.iter().chain(self.all.values().flat_map(|group| &group.nodes)) {
            *running.entry(&share.node).or_default() += u64::from(share.ranks);
        }
        let room = |at: usize| u64::from(order.room.get(at).copied().unwrap_or(order.nodes[at].ranks).max(1));
        let mut mine: Vec<usize> = (0..order.nodes.len()).filter(|at| order.nodes[*at].ranks > 0).collect();
        mine.sort_by_key(|at| order.nodes[*at].first);
        if let Some(stranger) = spawn.hosts.iter().find(|host| !mine.iter().any(|at| order.nodes[*at].node == **host)) {
            return Err(format!("this job has no ranks at {stranger}"));
        }
        mine.retain(|at| spawn.hosts.is_empty() || spawn.hosts.contains(&order.nodes[*at].node));
        let there = |at: usize| running.get(order.nodes[at].node.as_str()).copied().unwrap_or(0);
        let most: u64 = mine.iter().map(|at| room(*at) * RANKS_PER_CPU).sum();
        let all = mine.iter().map(|at| there(*at)).sum::<u64>() + u64::from(spawn.ranks());
        if all > most {
            return Err(format!("its nodes would have {all} ranks, and may have {most}"));
        }
        // Thousandths of what there is room for, with the one that would come.
        let full = |at: usize, ranks: u64| (ranks + 1) * 1000 / room(at);
        let mut next: BinaryHeap<_> =
            mine.iter().enumerate().map(|(i, at)| Reverse((full(*at, there(*at)), i))).collect();
        let mut given = vec![0_u32; mine.len()];
        for _ in 0..spawn.ranks() {
            let Some(Reverse((_, i))) = next.pop() else { return Err("this job has no ranks".into()) };
            given[i] += 1;
            next.push(Reverse((full(mine[i], there(mine[i]) + u64::from(given[i])), i)));
        }
        let (mut shares, mut first) = (vec![Share { node: order.nodes[0].node.clone(), first: 0, ranks: 0 }], 0);
        for (at, ranks) in mine.into_iter().zip(given).filter(|(_, ranks)| *ranks > 0) {
            let share = Share { node: order.nodes[at].node.clone(), first, ranks };
            first += ranks;
            if at == 0 { shares[0] = share } else { shares.push(share) }
        }
        Ok(shares)
    }

    /// Who waits for it to begin; it does so no more.
    pub fn asker(&mut self, group: u32) -> Option<Asker> {
        self.all.get_mut(&group)?.asker.take()
    }

    /// As the user is told it: numbers of ranks and places are those of the job.
    pub fn told(&self, group: u32, tell: Tell) -> Option<Tell> {
        let of = self.all.get(&group)?;
        let shared = |share: &Share| Share { first: share.first + of.first_rank, ..share.clone() };
        Some(match tell {
            Tell::Begun { nodes, .. } => Tell::More(nodes.iter().map(shared).collect()),
            Tell::Output { place, rank, stream, bytes } => {
                Tell::Output { place: place + of.first_place, rank: rank + of.first_rank, stream, bytes }
            }
            Tell::Ended { node, rank, how, fatal } => Tell::Ended { node, rank: rank + of.first_rank, how, fatal },
            Tell::Abort { rank, status } => Tell::Abort { rank: rank + of.first_rank, status },
            other => other,
        })
    }

    /// Whose place that is, and what it is called there.
    pub fn place_of(&self, place: u32) -> Option<(u32, u32)> {
        let has = |of: &Living| place >= of.first_place && place - of.first_place < of.nodes.len() as u32;
        self.all.iter().find(|(_, of)| has(of)).map(|(number, of)| (*number, place - of.first_place))
    }

    /// Nothing is left of it.
    pub fn over(&mut self, group: u32) {
        self.all.remove(&group);
    }
}

/// As the job's, but for what only the first ranks have.
fn group_order(order: &Order, nodes: Vec<Share>, spawn: Spawn) -> Order {
    let words = spawn.programs.first().map(|p| p.words.clone()).unwrap_or_default();
    let room = |share: &Share| {
        let at = order.nodes.iter().position(|s| s.node == share.node);
        at.and_then(|at| order.room.get(at).copied()).unwrap_or(share.ranks)
    };
    Order {
        job: 0,
        room: nodes.iter().map(room).collect(),
        nodes,
        task: Task { words, ..order.task.clone() },
        stdin: Stdin::None,
        terminal: None,
        hold: false,
        pool: false,
        task_ms: None,
        files: Vec::new(),
        needs: Vec::new(),
        gang: None,
        exclusive: false,
        group: Some(Group { of: order.job, programs: spawn.programs, preput: spawn.preput }),
        ..order.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::tests::order;
    use crate::spawn::Program;
    use serde_bytes::ByteBuf;

    fn wish(ranks: u32) -> Spawn {
        let program = Program { ranks, words: vec![ByteBuf::from("a")], ..Program::default() };
        Spawn { programs: vec![program], ..Spawn::default() }
    }

    fn shown(order: &Order) -> String {
        order.nodes.iter().map(|s| format!("{}:{}+{}", s.node, s.first, s.ranks)).collect::<Vec<_>>().join(" ")
    }

    const ASKER: Asker = Asker { group: None, place: 1, rank: 0 };

    #[test]
    fn ranks_go_where_the_fewest_are() {
        let mut job = order(4, 2, 2, false);
        job.room = vec![4, 4, 8, 4];
        let mut groups = Groups::new(&job);
        let (number, first) = groups.plan(&job, wish(5), ASKER).unwrap();
        assert_eq!((number, shown(&first).as_str(), first.check()), (0, "n0:0+0 n1:0+1 n2:1+4", Ok(())));
        let (number, second) = groups.plan(&job, wish(3), ASKER).unwrap();
        assert_eq!((number, shown(&second).as_str()), (1, "n0:0+0 n1:0+1 n2:1+1 n3:2+1"));
        assert_eq!(
            (groups.place_of(4), groups.place_of(7), groups.place_of(10)),
            (Some((0, 0)), Some((1, 0)), Some((1, 3)))
        );
        assert_eq!((groups.place_of(3), groups.place_of(11)), (None, None));
        let told = groups.told(1, Tell::Abort { rank: 2, status: 3 });
        assert_eq!(told, Some(Tell::Abort { rank: 6 + 5 + 2, status: 3 }));
        assert_eq!((groups.asker(1), groups.asker(1)), (Some(ASKER), None));
        groups.over(1);
        assert_eq!(groups.told(1, Tell::Over), None);
        let only = Spawn { hosts: vec!["n3".into()], ..wish(2) };
        assert_eq!(shown(&groups.plan(&job, only, ASKER).unwrap().1), "n0:0+0 n3:0+2");
    }

    #[test]
    fn what_can_not_be_is_refused() {
        let job = order(2, 1, 2, true);
        let mut groups = Groups::new(&job);
        let why = |groups: &mut Groups, wish| groups.plan(&job, wish, ASKER).unwrap_err();
        assert!(why(&mut groups, wish(0)).contains("1 to"));
        assert!(why(&mut groups, Spawn { hosts: vec!["n9".into()], ..wish(1) }).contains("no ranks at n9"));
        assert!(why(&mut groups, wish(511)).contains("513 ranks, and may have 512"));
        for _ in 0..MOST_GROUPS {
            groups.plan(&job, wish(1), ASKER).unwrap();
        }
        assert!(why(&mut groups, wish(1)).contains("256 groups"));
    }
}
