//! Ranks that start others, which start others (MPI_Comm_spawn), under random schedules, refusals, losses and ends: the job ends with all of them, every
//! call is answered once, and the user hears each rank under a number of its own.

use crate::order::tests::order;
use crate::trial::{Chance, World};
use crate::{Act, Bid, Head, Order, Stdin, Tell, Word};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Calls of one job.
const CALLS: usize = 8;

struct Job {
    root: World,
    groups: BTreeMap<u32, World>,
    /// On their way between the heads.
    bids: BTreeMap<u32, VecDeque<Bid>>,
    words: BTreeMap<u32, VecDeque<Word>>,
    calls: usize,
    logs: BTreeMap<Option<u32>, BTreeMap<u32, u32>>,
    now: u64,
}

impl Job {
    fn begin(&mut self, group: u32, mut order: Order, chance: &mut Chance) {
        order.job = u64::from(group) + 2;
        assert_eq!(order.check(), Ok(()));
        let head = Head::new(Arc::new(order.clone()), false, 50);
        let mut world = World::new(order, head, chance);
        wish(&mut self.calls, &mut world, chance);
        world.become_ready(chance);
        assert!(self.groups.insert(group, world).is_none());
    }

    /// What heads want of each other.
    fn carry(&mut self, chance: &mut Chance) {
        for act in std::mem::take(&mut self.root.other) {
            match act {
                Act::Begin(group, order) => self.begin(group, *order, chance),
                Act::Group(group, bid) => self.bids.entry(group).or_default().push_back(bid),
                other => panic!("{other:?}"),
            }
        }
        for (group, world) in &mut self.groups {
            let queue = self.words.entry(*group).or_default();
            for act in world.other.drain(..) {
                let Act::Wish { place, rank, wish } = act else { panic!("{act:?}") };
                queue.push_back(Word::Wish { place, rank, wish });
            }
            queue.extend(world.told.drain(..).map(Word::Tell));
        }
    }

    fn step(&mut self, chance: &mut Chance) {
        self.now += 1;
        let pick = chance.below(2 + 2 * self.groups.len());
        let groups: Vec<u32> = self.groups.keys().copied().collect();
        if pick < 2 {
            self.root.step(chance, self.logs.entry(None).or_default());
        } else {
            let group = groups[(pick - 2) / 2];
            let world = self.groups.get_mut(&group).unwrap();
            match chance.below(3) {
                0 => {
                    if let Some(bid) = self.bids.get_mut(&group).and_then(VecDeque::pop_front) {
                        let acts = match bid {
                            Bid::Ask(ask) => world.head.ask(ask),
                            Bid::Granted { place, rank, granted } => world.head.granted(place, rank, granted),
                        };
                        world.act(acts);
                    }
                }
                1 => {
                    if let Some(word) = self.words.get_mut(&group).and_then(VecDeque::pop_front) {
                        let acts = self.root.head.group(group, word, self.now);
                        self.root.act(acts);
                    }
                }
                _ => _ = world.step(chance, self.logs.entry(Some(group)).or_default()),
            }
        }
        self.carry(chance);
    }

    /// A node dies for all that run there.
    fn kill(&mut self, node: &str) {
        for world in self.groups.values_mut().chain([&mut self.root]) {
            let place = world.order.nodes.iter().position(|share| share.node == node);
            if let Some(place) = place.filter(|place| *place > 0 && world.lives[*place]) {
                world.kill(place as u32);
            }
        }
    }
}

/// Some of its launchers have something to ask for.
fn wish(calls: &mut usize, world: &mut World, chance: &mut Chance) {
    for launcher in world.launchers.values_mut() {
        while *calls < CALLS && chance.below(3) == 0 {
            *calls += 1;
            launcher.wishes.push(chance.below(5) as u32);
        }
    }
}

fn trial(seed: u64) -> usize {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5A5A);
    let (nodes, ranks) = (1 + chance.below(5) as u32, 1 + chance.below(3) as u32);
    let mut order = order(nodes, ranks, 1 + chance.below(3) as u8, nodes == 1 || chance.below(2) == 0);
    order.stdin = Stdin::None;
    let head = Head::new(Arc::new(order.clone()), true, 50);
    let mut root = World::new(order, head, &mut chance);
    let mut calls = 0;
    wish(&mut calls, &mut root, &mut chance);
    root.become_ready(&mut chance);
    let (groups, bids, words, logs) = Default::default();
    let mut job = Job { root, groups, bids, words, calls, logs, now: 0 };
    let (loses, mut steps) = (chance.below(3) == 0, 0);
    while !job.root.head.is_over() && steps < 400_000 {
        steps += 1;
        if loses && chance.below(300) == 0 {
            job.kill(&format!("n{}", chance.below(nodes as usize)));
        }
        if chance.below(6000) == 0 {
            let acts = job.root.head.user_gone();
            job.root.act(acts);
        }
        job.step(&mut chance);
    }
    check(&mut job, seed, &mut chance)
}

/// Gives how many groups there were.
fn check(job: &mut Job, seed: u64, chance: &mut Chance) -> usize {
    assert!(job.root.head.is_over(), "seed {seed}: it hangs");
    assert!(job.root.told.iter().filter(|t| **t == Tell::Over).count() <= 1, "seed {seed}");
    // Those whose parents have died hear of it and end.
    for _ in 0..20_000 {
        job.step(chance);
    }
    for (group, world) in job.groups.iter().map(|(g, w)| (Some(g), w)).chain([(None, &job.root)]) {
        for (place, launcher) in &world.launchers {
            assert!(launcher.gone || launcher.dead, "seed {seed}: ranks of {group:?}, place {place} are left");
        }
        assert!(world.head.is_over(), "seed {seed}: the head of {group:?} is left");
    }
    // Each rank has a number of its own, and says what it says in order.
    let (mut heard, mut numbers) = (BTreeMap::new(), BTreeSet::new());
    for tell in &job.root.told {
        match tell {
            Tell::Begun { nodes, .. } | Tell::More(nodes) => {
                let all = nodes.iter().flat_map(|share| share.first..share.first + share.ranks);
                all.for_each(|rank| assert!(numbers.insert(rank), "seed {seed}: rank {rank} twice"));
            }
            Tell::Output { rank, bytes, .. } => {
                let count = u32::from_le_bytes(bytes[..].try_into().unwrap());
                assert!(numbers.contains(rank), "seed {seed}: rank {rank} speaks before it began");
                assert_eq!(heard.insert(*rank, count).unwrap_or(0) + 1, count, "seed {seed}: rank {rank}");
            }
            _ => {}
        }
    }
    let well = job.root.told.iter().all(|t| !matches!(t, Tell::No(_) | Tell::Lost { .. } | Tell::Ended { .. }));
    if well && job.root.told.contains(&Tell::Over) {
        let all: u32 = job.logs.values().flat_map(BTreeMap::values).sum();
        assert_eq!(heard.values().sum::<u32>(), all, "seed {seed}: something is lost");
    }
    job.groups.len()
}

/// As many as the other trial (`LAUNCH_SEEDS`, `LAUNCH_SEED`).
#[test]
fn whoever_starts_others_ends_with_them() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds = match number("LAUNCH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LAUNCH_SEEDS").unwrap_or(1000),
    };
    let (count, groups) = (seeds.end - seeds.start, seeds.map(trial).sum::<usize>() as u64);
    assert!(count < 100 || groups > count, "hardly anybody starts others: {groups} groups in {count} trials");
}
