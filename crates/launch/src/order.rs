//! What is to be run, and where: the same for all of a job's nodes.

use crate::message::Said;
use crate::parcel::{Need, Parcel, check};
use crate::spawn::{Program, Spawn};
use serde::{Deserialize, Serialize};

/// Most programs of a job, and ranks from which on it is another one (`several.rs` of the command allows half of that).
const MOST_PARTS: u32 = 1 << 17;
/// Most nodes of a job, most of its ranks, and bytes of a node's name.
const MOST_NODES: usize = 1 << 15;
const MOST_RANKS: u64 = 1 << 20;
const LONGEST_NAME: usize = 63;
/// Longest name of a job, bytes.
pub const LONGEST_JOB_NAME: usize = 128;
/// Longest name of a job for PMIx, which allows 255 bytes.
const LONGEST_SPACE: usize = 200;
/// Bounds of how many children a node has, and of the window.
const ARITIES: std::ops::RangeInclusive<u8> = 1..=64;
const LARGEST_WINDOW: u32 = 16 << 20;

/// A node, and the ranks that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The node's name.
    pub node: String,
    /// Its first rank.
    pub first: u32,
    /// How many. Only the head may have none.
    pub ranks: u32,
}

/// Name and value of a variable.
pub type Environment = Vec<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)>;

/// A program, and what its user's shell would give it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The program as it was called, and its arguments.
    pub words: Vec<serde_bytes::ByteBuf>,
    /// The environment.
    pub environment: Environment,
    /// The working directory.
    pub directory: serde_bytes::ByteBuf,
    /// The mask of new files' modes.
    pub umask: u32,
    /// Resource limits: number (as the kernel has it), soft and hard.
    pub limits: Vec<(u32, u64, u64)>,
    /// Its ranks become several programs: from which rank on they are which one. Empty: all are one. MPI's programs are told of it (MPI_APPNUM).
    pub parts: Vec<(u32, u32)>,
}

/// Who gets standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    /// Nobody.
    None,
    /// Everybody the same.
    All,
    /// One rank.
    Rank(u32),
}

/// Whom a job's ranks find each other through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Manager {
    /// Nobody.
    None,
    /// A server of PMI-1, as MPICH's programs want it.
    Pmi1,
    /// A server of PMIx, as Open MPI's want it.
    Pmix {
        /// The job's name there. Whoever on a node knows it may speak for a rank.
        space: String,
    },
}

/// The order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The job's number; its head's name makes it unique.
    pub job: u64,
    /// What its user calls it.
    pub name: String,
    /// Whose programs these are, by name: numbers may differ between nodes.
    pub user: String,
    /// The nodes. A node's *place* is its index; 0 is the head, which the user's command speaks to.
    pub nodes: Vec<Share>,
    /// How many children a node of the tree has at most.
    pub arity: u8,
    /// What runs.
    pub task: Task,
    /// CPUs of each rank, if they are to be its own.
    pub cpus: Option<u16>,
    /// Who gets standard input.
    pub stdin: Stdin,
    /// The first rank has a terminal of this size (rows, columns) of its own.
    pub terminal: Option<(u16, u16)>,
    /// Most bytes of output of one place that are on their way.
    pub window: u32,
    /// Ranks are stopped before they begin.
    pub hold: bool,
    /// It has no ranks: its numbers of them are slots, in which tasks run one after the other.
    pub pool: bool,
    /// Milliseconds that each task may run.
    pub task_ms: Option<u64>,
    /// Files that go along to those who want them.
    pub files: Vec<Parcel>,
    /// What each node is to have itself.
    pub needs: Vec<Need>,
    /// Whom ranks find each other through.
    pub manager: Manager,
    /// Its CPUs are shared with other gangs, by turns.
    pub gang: Option<Gang>,
    /// A step of a batch job whose CPUs no other such step of it has.
    pub exclusive: bool,
    /// Megabytes that its ranks may have at each node; 0: as the node has it.
    pub memory_mb: u64,
    /// Ranks that each place has CPUs for; empty: as many as it runs. MPI's programs are told of it (MPI_UNIVERSE_SIZE).
    pub room: Vec<u32>,
    /// It is no job of its own, but ranks that a job's ranks have started.
    pub group: Option<Group>,
}

/// What such ranks have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The job's number.
    pub of: u64,
    /// What they run, those of the first ranks first.
    pub programs: Vec<Program>,
    /// Names that their space has from the beginning.
    pub preput: Vec<Said>,
}

/// What a job that takes turns has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// Its number in the matrix (crates/gang).
    pub number: u64,
    /// The CPUs of each place by number (0 is the node's first one for gangs), those of its first rank first.
    pub cpus: Vec<Vec<u16>>,
}

/// A variable of the environment of a batch job's steps: the number that this one has there.
pub const STEP: &str = "PANDO_BATCH_STEP";

impl Order {
    /// Its number, if it is a step of a batch job.
    pub fn step(&self) -> Option<u32> {
        let found = self.task.environment.iter().find(|(name, _)| name.as_slice() == STEP.as_bytes())?;
        std::str::from_utf8(&found.1).ok()?.parse().ok()
    }

    /// Can it be what a head would send? What comes from another machine may not. The error is for people.
    pub fn check(&self) -> Result<(), String> {
        let all = |ok: bool, what: &str| if ok { Ok(()) } else { Err(format!("its order is no good: {what}")) };
        all((1..=MOST_NODES).contains(&self.nodes.len()), "number of nodes")?;
        let plain = self.name.len() <= LONGEST_JOB_NAME && !self.name.chars().any(char::is_control);
        all(plain, "the job's name")?;
        all(ARITIES.contains(&self.arity), "arity of the tree")?;
        all((1..=LARGEST_WINDOW).contains(&self.window), "window")?;
        all(self.task.words.first().is_some_and(|w| !w.is_empty()), "no program")?;
        all(self.nodes.iter().all(|s| !s.node.is_empty() && s.node.len() <= LONGEST_NAME), "a node's name")?;
        all(self.nodes[1..].iter().all(|s| s.ranks > 0), "a node without ranks")?;
        let mut shares: Vec<&Share> = self.nodes.iter().filter(|s| s.ranks > 0).collect();
        shares.sort_by_key(|s| s.first);
        let mut next = 0;
        for share in shares {
            all(u64::from(share.first) == next, "ranks that overlap, or are missing")?;
            next += u64::from(share.ranks);
        }
        all((1..=MOST_RANKS).contains(&next), "number of ranks")?;
        if let Some(gang) = &self.gang {
            let each = u64::from(self.cpus.unwrap_or(1));
            let fits = |(share, cpus): (&Share, &Vec<u16>)| cpus.len() as u64 == u64::from(share.ranks) * each;
            let whole = gang.cpus.len() == self.nodes.len() && self.nodes.iter().zip(&gang.cpus).all(fits);
            all(whole && !self.pool, "CPUs of a gang")?;
        }
        all(!matches!(self.stdin, Stdin::Rank(r) if u64::from(r) >= next), "rank that gets standard input")?;
        let speaks = self.stdin == Stdin::Rank(0) && !self.pool;
        all(self.terminal.is_none() || speaks, "a terminal at which nobody types")?;
        check(&self.files, &self.needs).map_err(|why| format!("its order is no good: {why}"))?;
        if let Manager::Pmix { space } = &self.manager {
            let plain = space.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
            all((1..=LONGEST_SPACE).contains(&space.len()) && plain, "name for PMIx")?;
        }
        let parts = &self.task.parts;
        let ascend = parts.is_sorted_by(|a, b| a.0 < b.0) && parts.iter().all(|(_, program)| *program < MOST_PARTS);
        all(ascend && parts.len() <= MOST_PARTS as usize, "what its ranks become")?;
        all(self.room.is_empty() || self.room.len() == self.nodes.len(), "room for ranks")?;
        if let Some(group) = &self.group {
            let spawn = Spawn { programs: group.programs.clone(), preput: group.preput.clone(), hosts: Vec::new() };
            spawn.check().map_err(|why| format!("its order is no good: {why}"))?;
            all(u64::from(spawn.ranks()) == next && !self.pool, "programs of ranks")?;
        }
        let sound = |bytes: &[u8]| !bytes.contains(&0);
        let variables = self.task.environment.iter();
        let named = variables.clone().all(|(name, _)| !name.is_empty() && !name.contains(&b'='));
        let strings = variables.flat_map(|(name, value)| [name, value]).chain(&self.task.words);
        all(named && strings.chain([&self.task.directory]).all(|b| sound(b)), "a zero byte, or a nameless variable")
    }

    /// Ranks in all.
    pub fn size(&self) -> u32 {
        self.nodes.iter().map(|s| s.ranks).sum()
    }

    /// Which of its programs a rank runs.
    pub fn program_of(&self, rank: u32) -> usize {
        let Some(group) = &self.group else {
            let parts = &self.task.parts;
            let at = parts.partition_point(|(first, _)| *first <= rank).checked_sub(1);
            return at.map_or(0, |at| parts[at].1 as usize);
        };
        let mut after = 0_u32;
        let ends = group.programs.iter().map(|program| {
            after = after.saturating_add(program.ranks);
            after
        });
        ends.take_while(|end| *end <= rank).count()
    }

    /// What a rank is called with.
    pub fn words_of(&self, rank: u32) -> &[serde_bytes::ByteBuf] {
        let program = self.group.as_ref().and_then(|group| group.programs.get(self.program_of(rank)));
        program.map_or(&self.task.words, |program| &program.words)
    }

    /// Ranks that it has CPUs for.
    pub fn universe(&self) -> u32 {
        let places = self.nodes.iter().enumerate().filter(|(_, share)| share.ranks > 0);
        let room = |(at, share): (usize, &Share)| self.room.get(at).copied().unwrap_or(0).max(share.ranks);
        places.map(room).fold(0, u32::saturating_add)
    }

    /// The children of a place, as in a heap.
    pub fn children(&self, place: u32) -> Vec<u32> {
        let first = u64::from(place) * u64::from(self.arity) + 1;
        (first..first + u64::from(self.arity)).take_while(|p| *p < self.nodes.len() as u64).map(|p| p as u32).collect()
    }

    /// Who a place hears from; none for the head.
    pub fn parent(&self, place: u32) -> Option<u32> {
        place.checked_sub(1).map(|p| p / u32::from(self.arity))
    }

    /// The child of `above` on the way down to `place`.
    pub fn towards(&self, above: u32, place: u32) -> Option<u32> {
        let mut at = place;
        while let Some(parent) = self.parent(at) {
            if parent == above {
                return Some(at);
            }
            at = parent;
        }
        None
    }

    /// All places below this one.
    pub fn below(&self, place: u32) -> Vec<u32> {
        let mut all = self.children(place);
        let mut next = 0;
        while let Some(child) = all.get(next).copied() {
            all.extend(self.children(child));
            next += 1;
        }
        all
    }

    /// The place that runs a rank.
    pub fn place_of(&self, rank: u32) -> Option<u32> {
        let runs = |s: &Share| rank >= s.first && rank - s.first < s.ranks;
        self.nodes.iter().position(runs).map(|p| p as u32)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// So many nodes with so many ranks each; the head has none unless `head`.
    pub fn order(nodes: u32, ranks: u32, arity: u8, head: bool) -> Order {
        let mut first = 0;
        let mut share = |place: u32| {
            let ranks = if place == 0 && !head { 0 } else { ranks };
            first += ranks;
            Share { node: format!("n{place}"), first: first - ranks, ranks }
        };
        Order {
            job: 1,
            name: "true".into(),
            user: "u".into(),
            nodes: (0..nodes).map(&mut share).collect(),
            arity,
            task: Task { words: vec![serde_bytes::ByteBuf::from("true")], ..Task::default() },
            cpus: None,
            stdin: Stdin::Rank(0),
            terminal: None,
            window: 1 << 16,
            hold: false,
            pool: false,
            task_ms: None,
            files: Vec::new(),
            needs: Vec::new(),
            manager: Manager::Pmi1,
            gang: None,
            exclusive: false,
            memory_mb: 0,
            room: Vec::new(),
            group: None,
        }
    }

    #[test]
    fn everybody_is_below_the_head_once() {
        for (nodes, arity) in [(1, 1), (2, 1), (7, 2), (64, 8), (100, 3), (1000, 16)] {
            let order = order(nodes, 1, arity, true);
            assert_eq!(order.check(), Ok(()));
            let (mut found, mut queue) = (BTreeSet::from([0]), vec![0]);
            while let Some(place) = queue.pop() {
                for child in order.children(place) {
                    assert!(found.insert(child), "{child} twice");
                    assert_eq!((order.parent(child), order.towards(place, child)), (Some(place), Some(child)));
                    queue.push(child);
                }
            }
            assert_eq!(found.len(), nodes as usize);
            let last = nodes - 1;
            let mut at = 0;
            while at != last {
                at = order.towards(at, last).unwrap();
            }
        }
    }

    #[test]
    fn orders_that_make_no_sense_are_refused() {
        let good = order(3, 2, 2, false);
        assert_eq!((good.check(), good.size(), good.place_of(2)), (Ok(()), 4, Some(2)));
        let bad = |change: &dyn Fn(&mut Order)| {
            let mut order = good.clone();
            change(&mut order);
            assert!(order.check().is_err(), "{order:?}");
        };
        bad(&|o| o.nodes.clear());
        bad(&|o| o.arity = 0);
        bad(&|o| o.window = 0);
        bad(&|o| o.name = "x".repeat(LONGEST_JOB_NAME + 1));
        bad(&|o| o.name = "a\nb".into());
        bad(&|o| o.task.words.clear());
        bad(&|o| o.nodes[1].ranks = 0);
        bad(&|o| o.nodes[2].first = 1);
        bad(&|o| o.nodes[2].ranks = u32::MAX);
        bad(&|o| o.nodes[1].node = "x".repeat(64));
        bad(&|o| o.stdin = Stdin::Rank(4));
        bad(&|o| (o.stdin, o.terminal) = (Stdin::All, Some((24, 80))));
        bad(&|o| (o.pool, o.terminal) = (true, Some((24, 80))));
        bad(&|o| o.manager = Manager::Pmix { space: "a/b".into() });
        bad(&|o| o.manager = Manager::Pmix { space: String::new() });
        bad(&|o| o.room = vec![1]);
        let program = |ranks| Program { ranks, words: vec![serde_bytes::ByteBuf::from("a")], ..Program::default() };
        bad(&|o| o.group = Some(Group { programs: vec![program(1), program(2)], ..Group::default() }));
        let group = Some(Group { programs: vec![program(1), program(3)], ..Group::default() });
        let group = Order { group, ..good.clone() };
        assert_eq!((group.check(), group.program_of(0), group.program_of(1), group.program_of(3)), (Ok(()), 0, 1, 1));
        bad(&|o| o.task.words[0] = serde_bytes::ByteBuf::from("a\0b"));
        bad(&|o| o.task.environment = vec![(serde_bytes::ByteBuf::from("A=B"), serde_bytes::ByteBuf::new())]);
    }
}
