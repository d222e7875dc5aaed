//! A move, as messages between three roles: *home* decides and keeps count, the *place* has the process, the *target* takes it. Two of
//! them may be one node, which then talks to itself.
//!
//! ```text
//! place  -> home    Order     the place found out that it should move
//! home   -> target  Ask       -> Answer: promised, or refused with a reason
//! home   -> place   Freeze    the copy goes out when the line is free; from then on the process stands still
//! place  -> target  Data      it takes its size over the bandwidth
//! target -> home    Ready
//! home   -> target  Go        from here on it is the target's; -> Arrived
//! home   -> place   Release   -> Freed
//! home   -> place   Thaw      instead, when it came to nothing before Go
//! ```
//!
//! Home repeats what is not answered. Each message names the attempt, so what comes late or twice changes nothing. The target never runs
//! it before Go, the place never again after home said Go, unless the target says that it has dropped the copy and never ran it. So
//! there is one place at any time, whatever gets lost.

use crate::machine::{Body, State};
use crate::queue::{MS, SECOND};
use crate::world::{Event, Message, World};
use pando_balance::{Asked, Move, Refusal, Why, admit};

/// Home repeats after this time.
const AGAIN: u64 = 400 * MS;
/// A target that says nothing is given up after this time.
const ASKING: u64 = 2 * SECOND;
/// A copy that has not come after this time.
const COPYING: u64 = 60 * SECOND;
/// A place that has told home to move a process says so again after this time at the earliest.
const ORDERED: u64 = 3 * SECOND;

/// What home knows of a process.
#[derive(Clone, Debug)]
pub struct Deputy {
    pub place: u32,
    pub place_life: u32,
    pub phase: Phase,
    pub attempt: u64,
    pub until_us: u64,
    pub heard_us: u64,
    pub why: Option<Why>,
}

/// What is being done with it.
#[derive(Clone, Debug)]
pub enum Phase {
    Still,
    Asking { to: u32, asked: Asked, forced: bool },
    Copying { to: u32, to_life: u32 },
    Going { to: u32, to_life: u32 },
    Releasing { from: u32, from_life: u32 },
    Thawing,
}

impl Deputy {
    /// At home.
    pub fn new(home: u32, life: u32, now: u64) -> Self {
        Deputy { place: home, place_life: life, phase: Phase::Still, attempt: 0, until_us: 0, heard_us: now, why: None }
    }

    pub fn still(&self) -> bool {
        matches!(self.phase, Phase::Still)
    }

    /// Has that node to do with it?
    pub fn concerns(&self, node: u32) -> bool {
        let other = match self.phase {
            Phase::Still | Phase::Thawing => None,
            Phase::Asking { to, .. } | Phase::Copying { to, .. } | Phase::Going { to, .. } => Some(to),
            Phase::Releasing { from, .. } => Some(from),
        };
        self.place == node || other == Some(node)
    }
}

/// A target's word.
#[derive(Clone, Debug)]
pub struct Promise {
    pub attempt: u64,
    pub home: u32,
    pub home_life: u32,
    pub bytes: u64,
    pub demand_milli: u32,
    pub heard_us: u64,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Step {
    pub task: u32,
    pub attempt: u64,
    pub what: What,
}

/// See the page's head.
#[derive(Clone, Debug)]
pub enum What {
    Order {
        to: u32,
        why: Why,
        asked: Asked,
    },
    Ask {
        asked: Asked,
        forced: bool,
    },
    Answer(Result<(), Refusal>),
    Freeze {
        to: u32,
    },
    Data(Box<Body>),
    Ready,
    Go,
    Arrived,
    Release,
    Thaw,
    Freed,
    /// The target has dropped it and never ran it.
    Dropped,
    /// Home has given up this attempt.
    Cancel,
    /// The process has ended.
    Ended,
    /// Home has heard it.
    Heard,
    /// That life of the node is over.
    Reset,
}

impl World {
    /// A decision of the balancer at `node`.
    pub(crate) fn decided(&mut self, node: u32, m: &Move) {
        let task = m.process.1;
        let Some(to) = crate::node::number(&m.to) else { return };
        let now = self.queue.now();
        let Some(body) = self.nodes[node as usize].machine.bodies.get_mut(&task) else { return };
        body.asked_until_us = now + ORDERED;
        let home = body.home;
        let wished = self.tasks[task as usize].wish.memory.unwrap_or(0);
        let asked =
            Asked { needs: body.resident().max(wished), demand_milli: 1000, has: Asked::has(&m.why), by_hand: false };
        self.step(node, home, task, 0, What::Order { to, why: m.why.clone(), asked });
    }

    fn step(&mut self, from: u32, to: u32, task: u32, attempt: u64, what: What) {
        self.send(from, to, None, Message::Step(Step { task, attempt, what }));
    }

    /// Something has come to a node that is up.
    pub(crate) fn stepped(&mut self, me: u32, from: u32, from_life: u32, step: Step) {
        let Step { task, attempt, what } = step;
        match what {
            What::Order { to, why, asked } => self.begin(me, task, from, to, why, asked),
            What::Ask { asked, forced } => self.asked(me, (from, from_life), task, attempt, &asked, forced),
            What::Freeze { to } => self.freeze(me, from, task, attempt, to),
            What::Data(body) => self.data(me, from, task, attempt, *body),
            What::Go => self.go(me, from, task, attempt),
            What::Release | What::Thaw => {
                self.unfreeze(me, task, attempt, matches!(what, What::Thaw));
                self.step(me, from, task, attempt, What::Freed);
            }
            What::Cancel => self.cancelled(me, task, attempt),
            What::Ended => {
                self.step(me, from, task, attempt, What::Heard);
                self.nodes[me as usize].deputies.remove(&task);
            }
            What::Heard => {
                self.nodes[me as usize].ended.remove(&task);
            }
            What::Answer(_) | What::Ready | What::Arrived | What::Freed | What::Dropped | What::Reset => {
                self.reported(me, (from, from_life), task, attempt, what);
            }
        }
    }

    /// Home begins an attempt.
    fn begin(&mut self, home: u32, task: u32, from: u32, to: u32, why: Why, asked: Asked) {
        let now = self.queue.now();
        let node = &mut self.nodes[home as usize];
        let Some(deputy) = node.deputies.get_mut(&task) else { return };
        if !deputy.still() || deputy.place != from || to == from {
            return;
        }
        node.attempts += 1;
        deputy.attempt = u64::from(node.life) << 32 | node.attempts;
        // Home takes its own back, when they must leave.
        let forced = to == home && !matches!(why, Why::Sooner { .. } | Why::Memory { .. });
        deputy.phase = Phase::Asking { to, asked, forced };
        deputy.until_us = now + ASKING;
        deputy.why = Some(why);
        self.tally.asked += 1;
        self.again(home, task);
    }

    /// Home says what the phase is about, and again later if that is not answered.
    pub(crate) fn again(&mut self, home: u32, task: u32) {
        let now = self.queue.now();
        let life = self.nodes[home as usize].life;
        let Some(deputy) = self.nodes[home as usize].deputies.get(&task) else { return };
        let (attempt, place) = (deputy.attempt, deputy.place);
        let late = now >= deputy.until_us;
        let (whom, what) = match &deputy.phase {
            Phase::Still => return,
            Phase::Asking { to, .. } if late => return self.give_up(home, task, *to, Phase::Still),
            Phase::Copying { to, .. } if late => return self.give_up(home, task, *to, Phase::Thawing),
            Phase::Going { .. } if late => return self.lose(home, task, "its target was not heard any more"),
            Phase::Releasing { .. } if late => return self.settle(home, task),
            Phase::Asking { to, asked, forced } => (*to, What::Ask { asked: asked.clone(), forced: *forced }),
            Phase::Copying { to, .. } => (place, What::Freeze { to: *to }),
            Phase::Going { to, .. } => (*to, What::Go),
            Phase::Releasing { from, .. } => (*from, What::Release),
            Phase::Thawing => (place, What::Thaw),
        };
        let whose = match &deputy.phase {
            Phase::Going { to_life, .. } => Some(*to_life),
            Phase::Releasing { from_life, .. } => Some(*from_life),
            Phase::Copying { .. } | Phase::Thawing => Some(deputy.place_life),
            Phase::Still | Phase::Asking { .. } => None,
        };
        self.send(home, whom, whose, Message::Step(Step { task, attempt, what }));
        self.queue.after(AGAIN, Event::Retry { home, life, task, attempt });
    }

    fn give_up(&mut self, home: u32, task: u32, to: u32, then: Phase) {
        let now = self.queue.now();
        let Some(deputy) = self.nodes[home as usize].deputies.get_mut(&task) else { return };
        let attempt = deputy.attempt;
        deputy.phase = then;
        deputy.until_us = now + COPYING;
        self.tally.failed += 1;
        self.step(home, to, task, attempt, What::Cancel);
        self.again(home, task);
    }

    fn settle(&mut self, home: u32, task: u32) {
        if let Some(deputy) = self.nodes[home as usize].deputies.get_mut(&task) {
            deputy.phase = Phase::Still;
        }
    }

    /// The target's decision.
    fn asked(&mut self, me: u32, from: (u32, u32), task: u32, attempt: u64, asked: &Asked, forced: bool) {
        self.fresh(me);
        let now = self.queue.now();
        let node = &mut self.nodes[me as usize];
        let (home, home_life) = from;
        let known = node.promises.get(&task).is_some_and(|p| p.attempt == attempt)
            || node.machine.bodies.get(&task).is_some_and(|b| b.came_by == attempt);
        let answer = match known {
            true => Ok(()),
            // What is left of it here has to go first.
            false if node.machine.bodies.contains_key(&task) => Err(Refusal::Memory(0)),
            false if forced => Ok(()),
            false => admit(&node.measured(), &node.promised(), asked, &self.settings.balance),
        };
        if answer.is_ok() && !known {
            let after = node.machine.used() + node.promised().bytes + asked.needs;
            let (bytes, demand_milli) = (asked.needs, asked.demand_milli);
            let promise = Promise { attempt, home, home_life, bytes, demand_milli, heard_us: now };
            node.promises.insert(task, promise);
            let memory = node.machine.size.memory;
            if after > memory && !forced {
                self.broken(format!("node {me} accepted process {task} beyond its memory: {after} of {memory} bytes"));
            }
        }
        self.step(me, home, task, attempt, What::Answer(answer));
    }

    /// The place: the copy goes out when the line is free.
    fn freeze(&mut self, me: u32, home: u32, task: u32, attempt: u64, to: u32) {
        let now = self.queue.now();
        let node = &mut self.nodes[me as usize];
        let Some(body) = node.machine.bodies.get_mut(&task) else { return };
        let first = body.going != Some((attempt, to));
        let again = !body.runs() && now >= body.sent_us + SECOND;
        let waits = matches!(body.state, State::Waits { .. });
        if body.home != home || attempt <= body.over || waits || !(first || again) {
            return;
        }
        body.going = Some((attempt, to));
        body.sent_us = u64::MAX - SECOND;
        node.line.push_back((task, attempt));
        self.next_copy(me);
    }

    /// The next one whose turn it is stands still and is sent; others that come to the same target at a time share its line.
    pub(crate) fn next_copy(&mut self, me: u32) {
        let now = self.queue.now();
        if self.nodes[me as usize].sends_until_us > now {
            return;
        }
        let (fixed, bandwidth) = (self.settings.move_us, self.net.shape.bandwidth as f64);
        let node = &mut self.nodes[me as usize];
        let bodies = &mut node.machine.bodies;
        let next = std::iter::from_fn(|| node.line.pop_front()).find_map(|(task, attempt)| {
            let body = bodies.get(&task)?;
            let (going, to) = body.going?;
            (going == attempt).then_some((task, attempt, to, body.resident()))
        });
        let Some((task, attempt, to, size)) = next else { return };
        let life = node.life;
        let coming = &mut self.nodes[to as usize].coming_until_us;
        coming.retain(|until| *until > now);
        let free = now + (size as f64 / bandwidth * 1e6 * (coming.len() + 1) as f64) as u64;
        coming.push(free);
        let end = free + fixed;
        self.set_state(me, task, State::Frozen { attempt });
        let node = &mut self.nodes[me as usize];
        node.sends_until_us = free;
        if let Some(body) = node.machine.bodies.get_mut(&task) {
            body.sent_us = end;
        }
        self.queue.at(end, Event::Copy { node: me, life, task, attempt });
        self.queue.at(free, Event::Line { node: me, life });
    }

    /// The copy has gone out.
    pub(crate) fn copy(&mut self, me: u32, task: u32, attempt: u64) {
        let body = self.nodes[me as usize].machine.bodies.get(&task);
        if let Some(body) = body.filter(|b| b.state == (State::Frozen { attempt }))
            && let Some((_, to)) = body.going
        {
            let copy = Box::new(body.clone());
            self.send(me, to, None, Message::Step(Step { task, attempt, what: What::Data(copy) }));
        }
    }

    /// The target has it.
    fn data(&mut self, me: u32, from: u32, task: u32, attempt: u64, body: Body) {
        let now = self.queue.now();
        let home = body.home;
        let node = &mut self.nodes[me as usize];
        let waits = node.machine.bodies.get(&task).is_some_and(|b| b.came_by == attempt);
        if !waits {
            if node.promises.get(&task).is_none_or(|p| p.attempt != attempt) {
                return self.step(me, home, task, attempt, What::Dropped);
            }
            node.promises.remove(&task);
            let body = Body {
                state: State::Waits { attempt },
                left: Some((from, now)),
                since_us: now,
                moves: body.moves + 1,
                came_by: attempt,
                asked_until_us: 0,
                heard_us: now,
                sent_us: 0,
                going: None,
                part: self.settings.part(me, home, &body.needs),
                ..body
            };
            self.nodes[me as usize].machine.pass(now);
            self.nodes[me as usize].machine.bodies.insert(task, body);
            self.plan(me);
        }
        self.step(me, home, task, attempt, What::Ready);
    }

    /// Home's word: it runs here.
    fn go(&mut self, me: u32, home: u32, task: u32, attempt: u64) {
        let node = &self.nodes[me as usize];
        match node.machine.bodies.get(&task) {
            Some(b) if b.state == (State::Waits { attempt }) => {
                self.set_state(me, task, State::Runs);
                self.arrived(me, task);
                self.step(me, home, task, attempt, What::Arrived);
            }
            Some(b) if b.came_by == attempt => self.step(me, home, task, attempt, What::Arrived),
            _ if node.ended.contains_key(&task) => self.step(me, home, task, attempt, What::Ended),
            _ => self.step(me, home, task, attempt, What::Dropped),
        }
    }

    /// The place lets it go, or on.
    fn unfreeze(&mut self, me: u32, task: u32, attempt: u64, thaw: bool) {
        let Some(body) = self.nodes[me as usize].machine.bodies.get_mut(&task) else { return };
        if body.going.is_none_or(|(going, _)| going != attempt) {
            body.over = body.over.max(attempt);
            return;
        }
        match (thaw, body.state) {
            (true, state) => {
                body.going = None;
                body.over = attempt;
                if state == (State::Frozen { attempt }) {
                    self.set_state(me, task, State::Runs);
                }
            }
            (false, _) => self.remove(me, task),
        }
    }

    /// Home does not want it here any more.
    fn cancelled(&mut self, me: u32, task: u32, attempt: u64) {
        let node = &mut self.nodes[me as usize];
        if node.promises.get(&task).is_some_and(|p| p.attempt == attempt) {
            node.promises.remove(&task);
        }
        if node.machine.bodies.get(&task).is_some_and(|b| b.state == (State::Waits { attempt })) {
            self.remove(me, task);
        }
    }

    /// Home hears how an attempt goes on.
    fn reported(&mut self, home: u32, from: (u32, u32), task: u32, attempt: u64, what: What) {
        let now = self.queue.now();
        let lost_after = self.settings.lost_after_us;
        let Some(deputy) = self.nodes[home as usize].deputies.get_mut(&task) else {
            // Whatever it is, it is over.
            return self.step(home, from.0, task, attempt, What::Cancel);
        };
        if deputy.attempt != attempt {
            return self.step(home, from.0, task, attempt, What::Cancel);
        }
        let (place, place_life) = (deputy.place, deputy.place_life);
        match (&deputy.phase, what) {
            (Phase::Asking { to, .. }, What::Answer(Ok(()))) => {
                deputy.phase = Phase::Copying { to: *to, to_life: from.1 };
                deputy.until_us = now + COPYING;
                self.again(home, task);
            }
            (Phase::Asking { .. }, What::Answer(Err(_)) | What::Reset) => {
                deputy.phase = Phase::Still;
                self.tally.refused += 1;
            }
            (Phase::Copying { to, to_life }, What::Ready) if from.1 == *to_life => {
                deputy.phase = Phase::Going { to: *to, to_life: *to_life };
                deputy.until_us = now + lost_after;
                self.again(home, task);
            }
            (Phase::Copying { to, .. }, What::Dropped) => {
                let to = *to;
                self.give_up(home, task, to, Phase::Thawing);
            }
            (Phase::Going { to, to_life }, What::Arrived) => {
                (deputy.place, deputy.place_life, deputy.heard_us) = (*to, *to_life, now);
                deputy.phase = Phase::Releasing { from: place, from_life: place_life };
                deputy.until_us = now + lost_after;
                self.again(home, task);
            }
            (Phase::Going { to, .. }, What::Dropped) => {
                let to = *to;
                self.give_up(home, task, to, Phase::Thawing);
            }
            (Phase::Going { to, .. }, What::Reset) if from.0 == *to => {
                self.lose(home, task, "its target began a new life");
            }
            (Phase::Copying { .. } | Phase::Thawing, What::Reset) if from.0 == place => {
                self.lose(home, task, "the node where it was began a new life");
            }
            (Phase::Releasing { .. }, What::Freed | What::Reset) | (Phase::Thawing, What::Freed) => {
                self.settle(home, task);
            }
            _ => {}
        }
    }

    /// Home gives a process up: its memory is gone.
    pub(crate) fn lose(&mut self, home: u32, task: u32, why: &'static str) {
        self.nodes[home as usize].deputies.remove(&task);
        self.lost(task, why);
    }
}
