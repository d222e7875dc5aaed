//! `sim launch`: a parallel job on thousands of nodes, with the daemon's own parts and head (crates/launch). Simulated are links, CPUs and ranks.
//!
//! Each node has one CPU for all that the launch costs there, and one line. What things cost was measured with `pando bench launch`; it is in
//! [`Costs`], and can be said otherwise.

use crate::queue::{MS, Queue, SECOND};
use pando_launch::{Act, Child, Down, Effect, Event, Head, Manager, Order, Part, Share, Spread, Stdin, Task, Up};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;

/// Microseconds, and bytes a second.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A message on its way; as much again at most, by chance.
    pub link_us: u64,
    /// To heed or to send one.
    pub message_us: u64,
    /// To make a connection, at each end.
    pub connect_us: u64,
    /// Until a launcher is ready.
    pub launcher_us: u64,
    /// To start a rank, and to take in its end.
    pub rank_us: u64,
    /// To pass a piece of the program on to one node; and to take one in: to check and to keep it.
    pub piece_us: [u64; 2],
    /// Of each node's line.
    pub bandwidth: u64,
}

impl Default for Costs {
    fn default() -> Self {
        let (link_us, message_us, connect_us) = (100, 40, 900);
        let (launcher_us, rank_us, piece_us) = (1500, 1500, [PASS_US, TAKE_US]);
        Costs { link_us, message_us, connect_us, launcher_us, rank_us, piece_us, bandwidth: 120 << 20 }
    }
}

/// See [`Costs::piece_us`]: 64 nodes of one machine take 0.49 ms of CPU time for a piece that one gives another, both ends together.
const PASS_US: u64 = 150;
const TAKE_US: u64 = 340;
/// Bytes of a piece, and how many are on their way to one node at most, as the daemon has it.
const PIECE: u64 = 256 << 10;
const WINDOW: u32 = 16;

/// The job.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Nodes, with a rank each.
    pub nodes: u32,
    /// Children of a node in its tree at most; fewer, where the program is large.
    pub arity: u8,
    /// Bytes of the program that goes along; 0: each node has it. The first node has it in any case.
    pub program: u64,
}

/// How it went; milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Went {
    /// All ranks were told to begin at their nodes.
    pub begun: f64,
    /// The user's command ended.
    pub over: f64,
    /// From a node's death to the end of the command, and to the end of the last rank anywhere.
    pub after: Option<(f64, f64)>,
    /// Messages that the head got, and the most that a node got.
    pub messages: (u64, u64),
    /// What must not be.
    pub wrong: Option<String>,
}

enum Happens {
    /// A child may get pieces of the program below this one.
    Wants(u32, usize, u32),
    /// A piece comes.
    Piece(u32, u32),
    /// A child's connection is there, with the order.
    Begins(u32),
    Up(u32, usize, Up),
    Down(u32, Down),
    Ready(u32),
    Ended(u32),
    Dies(u32),
    ChildLost(u32, usize),
    ParentLost(u32),
}

struct Place {
    part: Part,
    /// Its CPU and its line have something to do until then.
    busy: u64,
    line: u64,
    /// When the last message on the link to its parent is there: down, up.
    last: [u64; 2],
    lives: bool,
    begun: bool,
    got: u64,
    /// Its launcher: not there, there, gone.
    launcher: Option<bool>,
    /// Of the program.
    spread: Spread,
}

struct World {
    order: Arc<Order>,
    costs: Costs,
    places: Vec<Place>,
    queue: Queue<Happens>,
    random: StdRng,
    head: Head,
    begun_at: u64,
    over_at: Option<u64>,
    last_end: u64,
    order_bytes: u64,
}

/// An order for so many nodes with a rank each.
fn order(nodes: u32, arity: u8) -> Order {
    let share = |place: u32| Share { node: format!("n{place}"), first: place, ranks: 1 };
    Order {
        job: 1,
        name: "true".into(),
        user: "user".into(),
        nodes: (0..nodes).map(share).collect(),
        arity,
        task: Task { words: vec![b"true".to_vec().into()], ..Task::default() },
        cpus: None,
        stdin: Stdin::None,
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

/// One job. `dies`: a node that dies, milliseconds after the start.
pub fn launch(job: Job, costs: Costs, dies: Option<(u32, u64)>, seed: u64) -> Went {
    let nodes = job.nodes;
    let order = Arc::new(order(nodes, pando_launch::arity(job.arity, job.program)));
    let pieces = job.program.div_ceil(PIECE) as u32;
    // A sum of 32 bytes for each piece.
    let program_bytes = u64::from(pieces) * 32;
    let order_bytes = order.nodes.iter().map(|s| s.node.len() as u64 + 4).sum::<u64>() + 4096 + program_bytes;
    let part = |p: u32| Part::new(order.clone(), p);
    let place = |p: u32| Place {
        spread: Spread::new(pieces, p == 0 || pieces == 0, part(p).children().len(), WINDOW),
        part: part(p),
        busy: 0,
        line: 0,
        last: [0; 2],
        lives: true,
        begun: p == 0,
        got: 0,
        launcher: None,
    };
    let mut world = World {
        places: (0..nodes).map(place).collect(),
        head: Head::new(order.clone(), true, 2000),
        queue: Queue::default(),
        random: StdRng::seed_from_u64(seed),
        begun_at: 0,
        over_at: None,
        last_end: 0,
        order,
        costs,
        order_bytes,
    };
    world.begin(0);
    if let Some((place, ms)) = dies {
        world.queue.at(ms * MS, Happens::Dies(place));
    }
    while let Some(event) = world.queue.next(600 * SECOND) {
        world.happens(event);
    }
    let ms = |us: u64| us as f64 / 1000.0;
    let over = world.over_at.unwrap_or(u64::MAX);
    let left = world.places.iter().filter(|p| p.lives && p.launcher == Some(true)).count();
    let wrong = match (world.over_at, left) {
        (None, _) => Some("the command does not end".to_owned()),
        (_, 0) => None,
        (_, left) => Some(format!("ranks are left on {left} nodes")),
    };
    let after = dies.map(|(_, at)| (ms(over.saturating_sub(at * MS)), ms(world.last_end.saturating_sub(at * MS))));
    let most = world.places.iter().map(|p| p.got).max().unwrap_or(0);
    Went { begun: ms(world.begun_at), over: ms(over), after, messages: (world.places[0].got, most), wrong }
}

impl World {
    /// A node's CPU has so much more to do; when that is done.
    fn work(&mut self, place: u32, us: u64) -> u64 {
        let now = self.queue.now();
        let place = &mut self.places[place as usize];
        place.busy = place.busy.max(now) + us;
        place.busy
    }

    /// When something of this size that is sent then is there. `below`: the lower end of the link, which keeps order both ways.
    fn sent(&mut self, place: u32, at: u64, bytes: u64, below: u32) -> u64 {
        let on_line = bytes * SECOND / self.costs.bandwidth;
        let jitter = self.random.random_range(0..=self.costs.link_us);
        let from = &mut self.places[place as usize];
        from.line = from.line.max(at) + on_line;
        let there = from.line + self.costs.link_us + jitter;
        let last = &mut self.places[below as usize].last[usize::from(place == below)];
        *last = there.max(*last + 1);
        *last
    }

    /// It has the order: connections to those below, and its launcher.
    fn begin(&mut self, place: u32) {
        self.places[place as usize].begun = true;
        for child in self.places[place as usize].part.children() {
            match child {
                Child::Launcher if self.places[place as usize].spread.is_here() => self.launches(place),
                Child::Launcher => {
                    let ask = self.places[place as usize].spread.want();
                    self.asks(place, ask);
                }
                Child::Place(to) => {
                    let at = self.work(place, self.costs.connect_us);
                    let there = self.sent(place, at, self.order_bytes, to);
                    self.queue.at(there, Happens::Begins(to));
                }
            }
        }
    }

    fn launches(&mut self, place: u32) {
        if self.places[place as usize].launcher.is_none() {
            let at = self.work(place, self.costs.launcher_us);
            self.places[place as usize].launcher = Some(true);
            self.queue.at(at, Happens::Ready(place));
        }
    }

    /// The node above may send pieces of the program below this one.
    fn asks(&mut self, place: u32, upto: Option<u32>) {
        let (Some(upto), Some(parent)) = (upto, self.order.parent(place)) else { return };
        let at = self.work(place, self.costs.message_us);
        let there = self.sent(place, at, 64, place);
        let child = self.index(parent, Child::Place(place));
        self.queue.at(there, Happens::Wants(parent, child, upto));
    }

    fn wanted(&mut self, place: u32, child: usize, upto: u32) {
        self.work(place, self.costs.message_us);
        let ask = self.places[place as usize].spread.receiver(child, upto);
        self.asks(place, ask);
        self.pump(place);
    }

    fn came(&mut self, place: u32, piece: u32) {
        self.work(place, self.costs.piece_us[1]);
        let ask = self.places[place as usize].spread.came(piece).flatten();
        self.asks(place, ask);
        if self.places[place as usize].spread.is_here() {
            self.launches(place);
        }
        self.pump(place);
    }

    /// What can be passed on is.
    fn pump(&mut self, place: u32) {
        while let Some((child, piece)) = self.places[place as usize].spread.send_next() {
            let at = self.work(place, self.costs.piece_us[0]);
            if let Some(Child::Place(to)) = self.places[place as usize].part.children().get(child).copied() {
                let there = self.sent(place, at, PIECE, to);
                self.queue.at(there, Happens::Piece(to, piece));
            }
        }
    }

    fn takes_part(&self, place: u32) -> bool {
        let place = &self.places[place as usize];
        place.lives && place.begun
    }

    fn index(&self, parent: u32, child: Child) -> usize {
        self.places[parent as usize].part.children().iter().position(|c| *c == child).unwrap_or(0)
    }

    fn happens(&mut self, event: Happens) {
        match event {
            Happens::Begins(place) if self.places[place as usize].lives => {
                self.work(place, self.costs.connect_us);
                self.begin(place);
                let parent = self.order.parent(place).unwrap_or(0);
                if !self.places[parent as usize].lives {
                    self.feed(place, Event::ParentLost);
                }
            }
            Happens::Begins(place) => {
                let parent = self.order.parent(place).unwrap_or(0);
                let child = self.index(parent, Child::Place(place));
                let at = self.queue.now() + self.costs.link_us;
                self.queue.at(at, Happens::ChildLost(parent, child));
            }
            Happens::Wants(place, child, upto) if self.takes_part(place) => self.wanted(place, child, upto),
            Happens::Piece(place, piece) if self.takes_part(place) => self.came(place, piece),
            // It is dead.
            Happens::Wants(..) | Happens::Piece(..) => {}
            Happens::Ready(place) => self.launcher_says(place, Up::Ready),
            Happens::Ended(place) => self.launcher_says(place, Up::Gone),
            Happens::Up(place, child, up) => self.feed(place, Event::Up(child, up)),
            Happens::Down(place, down) => self.feed(place, Event::Down(down)),
            Happens::ChildLost(place, child) => self.feed(place, Event::ChildLost(child, "it died".into())),
            Happens::ParentLost(place) => self.feed(place, Event::ParentLost),
            Happens::Dies(place) => self.dies(place),
        }
    }

    fn launcher_says(&mut self, place: u32, up: Up) {
        if self.places[place as usize].launcher != Some(true) {
            return;
        }
        if up == Up::Gone {
            self.places[place as usize].launcher = Some(false);
            self.last_end = self.last_end.max(self.queue.now());
        }
        self.feed(place, Event::Up(0, up));
    }

    fn dies(&mut self, place: u32) {
        self.places[place as usize].lives = false;
        self.places[place as usize].launcher = None;
        let at = self.queue.now() + self.costs.link_us;
        if let Some(parent) = self.order.parent(place).filter(|_| self.places[place as usize].begun) {
            let child = self.index(parent, Child::Place(place));
            self.queue.at(at, Happens::ChildLost(parent, child));
        }
        for child in self.order.children(place) {
            if self.places[child as usize].begun {
                self.queue.at(at, Happens::ParentLost(child));
            }
        }
    }

    fn feed(&mut self, place: u32, event: Event) {
        if !self.takes_part(place) {
            return;
        }
        self.places[place as usize].got += 1;
        let mut at = self.work(place, self.costs.message_us);
        // What a child says that does not keep to the rules cuts it off; these do.
        let effects = self.places[place as usize].part.step(event).unwrap_or_default();
        for effect in effects {
            match effect {
                Effect::Up(up) if place == 0 => self.decide(up),
                Effect::Up(up) => {
                    let parent = self.order.parent(place).unwrap_or(0);
                    let child = self.index(parent, Child::Place(place));
                    let there = self.sent(place, at, 64, place);
                    self.queue.at(there, Happens::Up(parent, child, up));
                }
                Effect::Down(child, down) => match self.places[place as usize].part.children()[child] {
                    Child::Launcher => self.launcher_hears(place, &down),
                    Child::Place(to) => {
                        at = self.work(place, self.costs.message_us);
                        let there = self.sent(place, at, 64, to);
                        self.queue.at(there, Happens::Down(to, down));
                    }
                },
            }
        }
    }

    fn launcher_hears(&mut self, place: u32, down: &Down) {
        match down {
            Down::Start => {
                let at = self.work(place, self.costs.rank_us);
                self.begun_at = self.begun_at.max(at);
                self.queue.at(at, Happens::Ended(place));
            }
            Down::Kill => {
                // One that waits for its program never begins, and that is told as its end is.
                self.places[place as usize].launcher.get_or_insert(true);
                let at = self.work(place, self.costs.rank_us);
                self.queue.at(at, Happens::Ended(place));
            }
            _ => {}
        }
    }

    fn decide(&mut self, up: Up) {
        let now = self.queue.now();
        for act in self.head.up(up, now / MS) {
            match act {
                Act::Down(down) => self.queue.at(now, Happens::Down(0, down)),
                Act::Tell(_) | Act::Wish(..) | Act::Begin(..) | Act::Group(..) => {}
            }
        }
        if self.head.is_over() {
            self.over_at.get_or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(nodes: u32, program: u64) -> Job {
        Job { nodes, arity: 8, program }
    }

    #[test]
    fn a_job_on_many_nodes_ends_whoever_dies_and_nothing_is_left() {
        let well = launch(job(512, 0), Costs::default(), None, 1);
        assert!(well.wrong.is_none() && well.over < 1000.0, "{well:?}");
        assert_eq!(well, launch(job(512, 0), Costs::default(), None, 1), "one seed, one history");
        for seed in 0..60 {
            let (place, ms) = (1 + (seed * 37 % 511) as u32, seed);
            let went = launch(job(512, 0), Costs::default(), Some((place, ms)), seed);
            assert_eq!(went.wrong, None, "node {place} dies after {ms} ms, seed {seed}");
        }
    }

    #[test]
    fn a_program_goes_along_at_the_speed_of_the_lines_and_whoever_dies_the_job_ends() {
        let went = |program, dies, seed| launch(job(100, program), Costs::default(), dies, seed);
        let (without, with) = (went(0, None, 1), went(12 << 20, None, 1));
        // The first line carries it three times; the others carry it at the same time, but for what is on its way.
        let line = 3.0 * 12.0 / 120.0 * 1000.0;
        let more = with.begun - without.begun;
        assert!(with.wrong.is_none() && more > line && more < line * 1.3, "{more} ms for {line}");
        for seed in 0..40 {
            let (place, ms) = (1 + (seed * 37 % 99) as u32, seed * 23);
            let died = went(12 << 20, Some((place, ms)), seed);
            assert_eq!(died.wrong, None, "node {place} dies after {ms} ms, seed {seed}");
        }
    }

    #[test]
    fn no_node_gets_more_than_its_children_say() {
        let went = launch(job(4096, 0), Costs::default(), None, 1);
        assert!(went.messages.1 <= 4 * 9 + 4, "{went:?}");
    }
}
