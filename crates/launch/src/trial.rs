//! Trees of parts with a head, under random schedules, losses and ranks that end as they like: whatever happens the job ends, everybody hears of it
//! or dies with his parent, and nothing that was said is lost or comes twice.

use crate::order::tests::order;
use crate::{
    Act, Ask, Child, Down, Effect, Ending, Event, Head, Order, Part, Program, Spawn, Stdin, Stream, Tell, Up, Wish,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub(super) struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit.max(1) as u64) as usize
    }
}

/// A launcher: ranks that say something, meet at barriers and end.
pub(super) struct Launcher {
    place: u32,
    begun: bool,
    /// For each rank: what it still does, and how it ends.
    ranks: Vec<(u32, u32, Ending, bool)>,
    barriers: u32,
    waits: bool,
    stdin: u64,
    /// Ranks that it still wants to be started, call by call, and those that it waits for.
    pub wishes: Vec<u32>,
    waits_for: u32,
    asked: u32,
    pub dead: bool,
    pub gone: bool,
}

impl Launcher {
    fn step(&mut self, chance: &mut Chance, log: &mut BTreeMap<u32, u32>) -> Option<Up> {
        if self.dead || self.gone || !self.begun || self.waits {
            return None;
        }
        if self.barriers > 0 && chance.below(2) == 0 {
            self.barriers -= 1;
            self.waits = true;
            return Some(Up::Fence(vec![(format!("{}", self.place), serde_bytes::ByteBuf::new())]));
        }
        let place = self.place;
        if let Some(ranks) = self.wishes.pop() {
            self.waits_for += 1;
            self.asked += 1;
            let program = Program { ranks, words: vec![serde_bytes::ByteBuf::from("a")], ..Program::default() };
            let wish = Wish::Spawn(Spawn { programs: vec![program], ..Spawn::default() });
            return Some(Up::Wish { place, rank: self.ranks[0].0, wish });
        }
        let living: Vec<usize> = (0..self.ranks.len()).filter(|i| !self.ranks[*i].3).collect();
        let Some(&i) = living.get(chance.below(living.len())) else {
            self.gone = true;
            return Some(Up::Gone);
        };
        let (rank, says, how, ended) = &mut self.ranks[i];
        if *says > 0 {
            *says -= 1;
            let count = log.entry(*rank).or_default();
            *count += 1;
            return Some(Up::Output { place, rank: *rank, stream: Stream::Out, bytes: count.to_le_bytes().into() });
        }
        if self.barriers > 0 || self.waits_for > 0 {
            return None;
        }
        *ended = true;
        (*how != Ending::Exit(0)).then_some(Up::Ended { place, rank: *rank, how: *how })
    }

    fn hear(&mut self, down: &Down) -> Option<Up> {
        match down {
            _ if self.dead || self.gone => return None,
            Down::Start => self.begun = true,
            Down::Fenced(_) => self.waits = false,
            Down::Granted { place, .. } => {
                assert!(*place == self.place && self.asked > 0, "nobody asked");
                self.asked -= 1;
                self.waits_for = self.waits_for.saturating_sub(1);
            }
            Down::Stdin(bytes) => {
                self.stdin += bytes.len() as u64;
                return Some(Up::StdinTaken(self.stdin));
            }
            Down::Kill => {
                self.gone = true;
                return Some(Up::Gone);
            }
            Down::Signal(15) => {
                (self.barriers, self.waits, self.waits_for) = (0, false, 0);
                self.wishes.clear();
            }
            _ => {}
        }
        None
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    Place(u32),
    Launcher(u32),
}

pub(super) struct World {
    pub order: Arc<Order>,
    pub head: Head,
    parts: Vec<Part>,
    /// Not killed.
    pub lives: Vec<bool>,
    pub launchers: BTreeMap<u32, Launcher>,
    ups: BTreeMap<(Who, u32), VecDeque<Up>>,
    pub downs: BTreeMap<(u32, Who), VecDeque<Down>>,
    pub told: Vec<Tell>,
    /// What is to be done that has nothing to do with its own tree.
    pub other: Vec<Act>,
    now: u64,
}

impl World {
    pub fn new(order: Order, head: Head, bad: &mut Chance) -> World {
        let order = Arc::new(order);
        let launcher = |place: u32| {
            let share = &order.nodes[place as usize];
            let how = |chance: &mut Chance| match chance.below(40) {
                0 => Ending::Exit(3),
                1 => Ending::Signal(9),
                _ => Ending::Exit(0),
            };
            let ranks = (share.first..share.first + share.ranks).map(|r| (r, bad.below(4) as u32, how(bad), false));
            let ranks = ranks.collect();
            Launcher {
                place,
                begun: false,
                ranks,
                barriers: 2,
                waits: false,
                stdin: 0,
                wishes: Vec::new(),
                waits_for: 0,
                asked: 0,
                dead: false,
                gone: false,
            }
        };
        let places = 0..order.nodes.len() as u32;
        let own: Vec<u32> = places.clone().filter(|p| order.nodes[*p as usize].ranks > 0).collect();
        World {
            head,
            parts: places.clone().map(|p| Part::new(order.clone(), p)).collect(),
            lives: places.map(|_| true).collect(),
            launchers: own.into_iter().map(launcher).map(|l| (l.place, l)).collect(),
            ups: BTreeMap::new(),
            downs: BTreeMap::new(),
            told: Vec::new(),
            other: Vec::new(),
            now: 0,
            order,
        }
    }

    fn who(&self, place: u32, child: usize) -> Who {
        match self.parts[place as usize].children()[child] {
            Child::Launcher => Who::Launcher(place),
            Child::Place(p) => Who::Place(p),
        }
    }

    fn feed(&mut self, place: u32, event: Event) {
        let done = self.parts[place as usize].step(event).unwrap_or_else(|e| panic!("place {place}: {e:?}"));
        for effect in done {
            match effect {
                Effect::Up(up) if place == 0 => {
                    let acts = self.head.up(up, self.now);
                    self.act(acts);
                }
                Effect::Up(up) => {
                    let parent = self.order.parent(place).unwrap();
                    self.ups.entry((Who::Place(place), parent)).or_default().push_back(up);
                }
                Effect::Down(child, down) => {
                    let to = self.who(place, child);
                    self.downs.entry((place, to)).or_default().push_back(down);
                }
            }
        }
    }

    pub fn act(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Tell(tell) => self.told.push(tell),
                Act::Down(down) => self.feed(0, Event::Down(down)),
                other => self.other.push(other),
            }
        }
    }

    fn index(&self, parent: u32, child: Who) -> usize {
        (0..).find(|i| self.who(parent, *i) == child).unwrap()
    }

    pub fn kill(&mut self, place: u32) {
        self.lives[place as usize] = false;
        // Its own ranks die with it.
        if let Some(launcher) = self.launchers.get_mut(&place) {
            launcher.dead = true;
        }
        let parent = self.order.parent(place).unwrap();
        if self.lives[parent as usize] {
            // What it has said and nobody has read is lost with it.
            self.ups.remove(&(Who::Place(place), parent));
            let child = self.index(parent, Who::Place(place));
            self.feed(parent, Event::ChildLost(child, "killed".into()));
        }
        for child in self.order.children(place) {
            if self.lives[child as usize] {
                self.downs.remove(&(place, Who::Place(child)));
                self.feed(child, Event::ParentLost);
            }
        }
    }

    /// Ready as they come, but for some that refuse.
    pub fn become_ready(&mut self, chance: &mut Chance) {
        for (place, launcher) in &mut self.launchers {
            let (place, refuses) = (*place, chance.below(60) == 0);
            let up = if refuses { Up::Refused { place, why: "no".into() } } else { Up::Ready };
            let queue = self.ups.entry((Who::Launcher(place), place)).or_default();
            queue.push_back(up);
            if refuses {
                queue.push_back(Up::Gone);
                launcher.gone = true;
            }
        }
    }

    /// One random step; false when there is nothing left to do.
    pub fn step(&mut self, chance: &mut Chance, log: &mut BTreeMap<u32, u32>) -> bool {
        let ups: Vec<(Who, u32)> =
            self.ups.iter().filter(|(k, q)| !q.is_empty() && self.lives[k.1 as usize]).map(|(k, _)| *k).collect();
        let downs: Vec<(u32, Who)> = self.downs.iter().filter(|(_, q)| !q.is_empty()).map(|(k, _)| *k).collect();
        let launchers: Vec<u32> = self.launchers.keys().copied().collect();
        let pick = chance.below(ups.len() + downs.len() + launchers.len());
        if let Some(key) = ups.get(pick) {
            let up = self.ups.get_mut(key).unwrap().pop_front().unwrap();
            let child = self.index(key.1, key.0);
            self.feed(key.1, Event::Up(child, up));
        } else if let Some((from, to)) = downs.get(pick.wrapping_sub(ups.len())).copied() {
            let down = self.downs.get_mut(&(from, to)).unwrap().pop_front().unwrap();
            match to {
                Who::Place(place) if self.lives[place as usize] => self.feed(place, Event::Down(down)),
                Who::Place(_) => {}
                Who::Launcher(place) => {
                    if let Some(up) = self.launchers.get_mut(&place).unwrap().hear(&down) {
                        self.ups.entry((to, place)).or_default().push_back(up);
                    }
                }
            }
        } else {
            let place = launchers[pick - ups.len() - downs.len()];
            if let Some(up) = self.launchers.get_mut(&place).unwrap().step(chance, log) {
                self.ups.entry((Who::Launcher(place), place)).or_default().push_back(up);
            } else if ups.is_empty() && downs.is_empty() {
                self.now += 1;
                let acts = self.head.tick(self.now);
                self.act(acts);
                return self.now < 10_000;
            }
        }
        true
    }
}

fn trial(seed: u64) {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xA5A5);
    let (nodes, ranks) = (1 + chance.below(12) as u32, 1 + chance.below(3) as u32);
    let head = nodes == 1 || chance.below(2) == 0;
    let mut order = order(nodes, ranks, 1 + chance.below(4) as u8, head);
    order.stdin = [Stdin::None, Stdin::All, Stdin::Rank(chance.below(order.size() as usize) as u32)][chance.below(3)];
    let head = Head::new(Arc::new(order.clone()), true, 50);
    let mut world = World::new(order, head, &mut chance);
    world.become_ready(&mut chance);
    let mut log = BTreeMap::new();
    let (loses, mut steps) = (chance.below(3) == 0, 0);
    while !world.head.is_over() && steps < 200_000 {
        steps += 1;
        if loses && nodes > 1 && chance.below(80) == 0 {
            let place = 1 + chance.below(nodes as usize - 1) as u32;
            if world.lives[place as usize] {
                world.kill(place);
            }
        }
        if chance.below(50) == 0 {
            let asks = [Ask::Stdin(vec![0; 3]), Ask::Signal(10), Ask::Taken { place: nodes - 1, bytes: 1 }];
            let acts = world.head.ask(asks[chance.below(3)].clone());
            world.act(acts);
        }
        if chance.below(4000) == 0 {
            let acts = world.head.user_gone();
            world.act(acts);
        }
        if !world.step(&mut chance, &mut log) {
            break;
        }
    }
    assert!(world.head.is_over(), "seed {seed}: it hangs");
    assert!(world.told.iter().filter(|t| **t == Tell::Over).count() <= 1, "seed {seed}");
    // Those whose parents have died hear of it and end.
    while world.downs.values().any(|q| !q.is_empty()) && steps < 400_000 {
        steps += 1;
        world.step(&mut chance, &mut log);
    }
    for (place, launcher) in &world.launchers {
        assert!(launcher.gone || launcher.dead, "seed {seed}: ranks of place {place} are left");
    }
    // What a rank says comes in order; all of it, where nobody died and nobody was killed.
    let mut heard: BTreeMap<u32, u32> = BTreeMap::new();
    for tell in &world.told {
        if let Tell::Output { rank, bytes, .. } = tell {
            let count = u32::from_le_bytes(bytes[..].try_into().unwrap());
            assert_eq!(heard.insert(*rank, count).unwrap_or(0) + 1, count, "seed {seed}: rank {rank}");
        }
    }
    let well = world.told.iter().all(|t| !matches!(t, Tell::No(_) | Tell::Lost { .. } | Tell::Ended { .. }));
    if well && world.told.contains(&Tell::Over) {
        assert_eq!(heard, log, "seed {seed}");
    }
}

/// `LAUNCH_SEEDS=100000 cargo test -p pando-launch trial` is the long one; `LAUNCH_SEED=N` repeats one.
#[test]
fn whatever_happens_a_job_ends_and_nothing_is_left() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds = match number("LAUNCH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LAUNCH_SEEDS").unwrap_or(3000),
    };
    seeds.for_each(trial);
}
