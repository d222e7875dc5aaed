//! A node's part in a job: what comes from above goes down, what comes from below goes up, added up where that can be done.

use crate::message::{Asker, Down, Modex, Said, Up, Used};
use crate::order::{Order, Stdin};
use std::sync::Arc;

/// Most bytes of what ranks tell each other at one barrier.
const MOST_SAID: usize = 4 << 20;

/// Whom a part speaks to below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// The process that starts this node's own ranks.
    Launcher,
    /// Another node.
    Place(u32),
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A child (by its index) says something.
    Up(usize, Up),
    /// The parent does.
    Down(Down),
    /// A child is not heard any more.
    ChildLost(usize, String),
    /// Nor is the parent: nobody will.
    ParentLost,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Say it to the parent.
    Up(Up),
    /// Say it to a child.
    Down(usize, Down),
}

struct Below {
    who: Child,
    ready: bool,
    gone: bool,
    fenced: bool,
    /// Bytes of standard input that it has taken; none if it gets none.
    taken: Option<u64>,
}

/// The part. Its children hear the order before anything else; that is the driver's.
pub struct Part {
    order: Arc<Order>,
    place: u32,
    below: Vec<Below>,
    said_ready: bool,
    said: Vec<Said>,
    bytes: usize,
    taken: u64,
    /// What ranks have used whose places are gone.
    used: Option<Used>,
    orphan: bool,
    killed: bool,
    over: bool,
}

impl Part {
    /// Of this place, which the order has.
    pub fn new(order: Arc<Order>, place: u32) -> Part {
        let wants = |who: Child| match (order.stdin, who) {
            (Stdin::None, _) => false,
            (Stdin::All, _) => true,
            (Stdin::Rank(rank), Child::Launcher) => order.place_of(rank) == Some(place),
            (Stdin::Rank(rank), Child::Place(child)) => {
                let to = order.place_of(rank);
                to == Some(child) || to.is_some_and(|to| order.towards(place, to) == Some(child))
            }
        };
        let own = (order.nodes[place as usize].ranks > 0).then_some(Child::Launcher);
        let all = own.into_iter().chain(order.children(place).into_iter().map(Child::Place));
        let below =
            all.map(|who| Below { who, ready: false, gone: false, fenced: false, taken: wants(who).then_some(0) });
        let below = below.collect();
        Part {
            order,
            place,
            below,
            said_ready: false,
            said: Vec::new(),
            bytes: 0,
            taken: 0,
            used: None,
            orphan: false,
            killed: false,
            over: false,
        }
    }

    /// Its children, in the order of their indices.
    pub fn children(&self) -> Vec<Child> {
        self.below.iter().map(|b| b.who).collect()
    }

    /// Nothing is left here or below.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// One step. An error: the child with this index does not keep to the rules; it is to be cut off, and told as lost.
    pub fn step(&mut self, event: Event) -> Result<Vec<Effect>, (usize, String)> {
        let mut out = Vec::new();
        match event {
            Event::Up(child, up) => self.up(child, up, &mut out).map_err(|why| (child, why))?,
            Event::Down(down) => self.down(down, &mut out),
            Event::ChildLost(child, why) => {
                if !self.below[child].gone {
                    let place = self.place_below(child);
                    self.gone(child, Some(Up::Lost { place, why }), &mut out);
                }
            }
            Event::ParentLost => {
                self.orphan = true;
                self.down(Down::Kill, &mut out);
            }
        }
        if self.orphan {
            out.retain(|e| !matches!(e, Effect::Up(_)));
        }
        Ok(out)
    }

    fn place_below(&self, child: usize) -> u32 {
        match self.below[child].who {
            Child::Launcher => self.place,
            Child::Place(place) => place,
        }
    }

    /// Is this place there, or below it? A node speaks for nobody else.
    fn speaks_for(&self, child: usize, place: u32) -> Result<(), String> {
        let sound = match self.below[child].who {
            Child::Launcher => place == self.place,
            Child::Place(at) => place == at || self.order.towards(at, place).is_some(),
        };
        if sound { Ok(()) } else { Err(format!("it speaks for place {place}")) }
    }

    fn runs(&self, place: u32, rank: u32) -> Result<(), String> {
        // Tasks run anywhere.
        match self.order.pool || self.order.place_of(rank) == Some(place) {
            true => Ok(()),
            false => Err(format!("it speaks for rank {rank}")),
        }
    }

    fn up(&mut self, child: usize, up: Up, out: &mut Vec<Effect>) -> Result<(), String> {
        if self.below[child].gone {
            return Ok(());
        }
        match up {
            Up::Ready => {
                self.below[child].ready = true;
                self.ready(out);
            }
            Up::Refused { place, .. } | Up::Lost { place, .. } => {
                self.speaks_for(child, place)?;
                out.push(Effect::Up(up));
            }
            Up::Output { place, rank, .. }
            | Up::Ended { place, rank, .. }
            | Up::Wish { asker: Asker { place, rank, .. }, .. } => {
                self.speaks_for(child, place)?;
                self.runs(place, rank)?;
                out.push(Effect::Up(up));
            }
            Up::Done { place, .. } | Up::Returned { place, .. } => {
                self.speaks_for(child, place)?;
                out.push(Effect::Up(up));
            }
            Up::Abort { rank, .. } => {
                let place = self.order.place_of(rank).ok_or_else(|| format!("it speaks for rank {rank}"))?;
                self.speaks_for(child, place)?;
                out.push(Effect::Up(up));
            }
            Up::StdinTaken(bytes) => {
                if let Some(taken) = &mut self.below[child].taken {
                    *taken = bytes.max(*taken);
                    self.stdin(out);
                }
            }
            Up::Fence(said) => {
                if std::mem::replace(&mut self.below[child].fenced, true) {
                    return Err("it came to a barrier twice".into());
                }
                self.bytes += said.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
                if self.bytes > MOST_SAID {
                    return Err(format!("its ranks say more than {} MB at a barrier", MOST_SAID >> 20));
                }
                self.said.extend(said);
                self.fence(out);
            }
            Up::Modex(modex) => {
                self.may_say(child, &modex)?;
                self.carry(modex, out);
            }
            Up::Used(used) => {
                let before = self.used.take().unwrap_or_default();
                self.used = Some(before.and(used));
            }
            Up::Gone => self.gone(child, None, out),
            // Pieces go from link to link, and that is the driver's.
            Up::Launcher(_) | Up::Beat | Up::Want { .. } => {}
        }
        Ok(())
    }

    fn ready(&mut self, out: &mut Vec<Effect>) {
        let all = self.below.iter().all(|b| b.ready && !b.gone);
        if all && !self.said_ready && !self.killed {
            self.said_ready = true;
            out.push(Effect::Up(Up::Ready));
        }
    }

    /// Who is gone takes all there is.
    fn stdin(&mut self, out: &mut Vec<Effect>) {
        let takers = self.below.iter().filter(|b| !b.gone).filter_map(|b| b.taken);
        let least = takers.min().unwrap_or(u64::MAX);
        if least > self.taken {
            self.taken = least;
            out.push(Effect::Up(Up::StdinTaken(least)));
        }
    }

    fn fence(&mut self, out: &mut Vec<Effect>) {
        let mut here = self.below.iter().filter(|b| !b.gone).peekable();
        if here.peek().is_some() && here.all(|b| b.fenced) {
            self.below.iter_mut().for_each(|b| b.fenced = false);
            self.bytes = 0;
            out.push(Effect::Up(Up::Fence(std::mem::take(&mut self.said))));
        }
    }

    fn gone(&mut self, child: usize, last: Option<Up>, out: &mut Vec<Effect>) {
        self.below[child].gone = true;
        out.extend(last.map(Effect::Up));
        if self.below.iter().any(|b| b.taken.is_some()) {
            self.stdin(out);
        }
        if self.below.iter().all(|b| b.gone) {
            self.over = true;
            out.extend(self.used.take().map(|used| Effect::Up(Up::Used(used))));
            out.push(Effect::Up(Up::Gone));
        } else {
            self.fence(out);
        }
    }

    /// A place asks for itself and answers for its ranks.
    fn may_say(&self, child: usize, modex: &Modex) -> Result<(), String> {
        let (Modex::Wanted { place, rank, .. } | Modex::Found { place, rank, .. }) = modex;
        let runs = self.order.place_of(*rank).ok_or_else(|| format!("it speaks of rank {rank}"))?;
        if *place as usize >= self.order.nodes.len() {
            return Err(format!("it speaks of place {place}"));
        }
        match modex {
            Modex::Wanted { .. } => self.speaks_for(child, *place),
            Modex::Found { .. } => self.speaks_for(child, runs),
        }
    }

    /// On its way to whom it is for, up or down; who is gone says nothing any more, and that is answered here.
    fn carry(&mut self, modex: Modex, out: &mut Vec<Effect>) {
        let to = match &modex {
            Modex::Wanted { rank, .. } => self.order.place_of(*rank),
            Modex::Found { place, .. } => Some(*place),
        };
        let Some(to) = to else { return };
        let next = match to == self.place {
            true => Some(Child::Launcher),
            false => self.order.towards(self.place, to).map(Child::Place),
        };
        let Some(next) = next else { return out.push(Effect::Up(Up::Modex(modex))) };
        match self.below.iter().position(|b| b.who == next && !b.gone) {
            Some(child) => out.push(Effect::Down(child, Down::Modex(modex))),
            None => {
                if let Modex::Wanted { place, number, rank } = modex {
                    self.carry(Modex::Found { place, number, rank, said: None }, out);
                }
            }
        }
    }

    fn down(&mut self, down: Down, out: &mut Vec<Effect>) {
        match down {
            Down::Modex(modex) => return self.carry(modex, out),
            // It says something of the link.
            Down::End => return,
            _ => {}
        }
        let to = |b: &Below| match &down {
            Down::Stdin(_) | Down::StdinEnds => b.taken.is_some(),
            Down::Taken { place, .. }
            | Down::Task { place, .. }
            | Down::Recall(place)
            | Down::Granted { asker: Asker { place, .. }, .. } => match b.who {
                Child::Launcher => *place == self.place,
                Child::Place(at) => *place == at || self.order.towards(at, *place).is_some(),
            },
            Down::Beat | Down::Piece { .. } => false,
            _ => true,
        };
        self.killed |= down == Down::Kill;
        let meant = self.below.iter().enumerate().filter(|(_, b)| !b.gone && to(b));
        out.extend(meant.map(|(i, _)| Effect::Down(i, down.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::tests::order;
    use serde_bytes::ByteBuf;

    /// Six nodes with two ranks each, in a tree of arity 2: 1 and 2 are below 0, 3 and 4 below 1, 5 below 2.
    fn parts() -> Vec<Part> {
        let order = Arc::new(order(6, 2, 2, true));
        (0..6).map(|place| Part::new(order.clone(), place)).collect()
    }

    /// Lets a launcher say something, carries it, and gives the launcher that hears it and the places on the way.
    fn carried(parts: &mut [Part], from: u32, modex: Modex) -> (u32, Modex, Vec<u32>) {
        let (mut at, mut event, mut way) = (from, Event::Up(0, Up::Modex(modex)), Vec::new());
        loop {
            way.push(at);
            let part = &mut parts[at as usize];
            let mut effects = part.step(event).unwrap();
            assert_eq!(effects.len(), 1, "{effects:?}");
            match effects.remove(0) {
                Effect::Up(up) => {
                    let parent = part.order.parent(at).unwrap();
                    let child = parts[parent as usize].children().iter().position(|c| *c == Child::Place(at)).unwrap();
                    (at, event) = (parent, Event::Up(child, up));
                }
                Effect::Down(child, down) => match (part.children()[child], down) {
                    (Child::Launcher, Down::Modex(modex)) => return (at, modex, way),
                    (Child::Place(place), down) => (at, event) = (place, Event::Down(down)),
                    other => panic!("{other:?}"),
                },
            }
        }
    }

    #[test]
    fn a_question_finds_its_rank_and_the_answer_comes_back() {
        let mut parts = parts();
        for (from, rank, to, way) in [(3, 8, 4, &[3, 1, 4][..]), (3, 11, 5, &[3, 1, 0, 2, 5]), (0, 6, 3, &[0, 1, 3])] {
            let wanted = Modex::Wanted { place: from, number: 7, rank };
            assert_eq!(carried(&mut parts, from, wanted.clone()), (to, wanted, way.to_vec()));
            let found = Modex::Found { place: from, number: 7, rank, said: Some(ByteBuf::from("card")) };
            let back = way.iter().rev().copied().collect();
            assert_eq!(carried(&mut parts, to, found.clone()), (from, found, back));
        }
    }

    #[test]
    fn who_is_gone_is_answered_for() {
        let mut parts = parts();
        parts[1].step(Event::ChildLost(2, "killed".into())).unwrap();
        let wanted = Modex::Wanted { place: 3, number: 1, rank: 8 };
        let found = Modex::Found { place: 3, number: 1, rank: 8, said: None };
        assert_eq!(carried(&mut parts, 3, wanted), (3, found, vec![3, 1, 3]));
    }

    #[test]
    fn nobody_asks_or_answers_for_others() {
        let mut parts = parts();
        let liar = |part: &mut Part, modex| assert!(part.step(Event::Up(0, Up::Modex(modex))).is_err());
        liar(&mut parts[3], Modex::Wanted { place: 4, number: 1, rank: 0 });
        liar(&mut parts[3], Modex::Wanted { place: 3, number: 1, rank: 12 });
        liar(&mut parts[3], Modex::Found { place: 9, number: 1, rank: 6, said: None });
        liar(&mut parts[3], Modex::Found { place: 0, number: 1, rank: 8, said: None });
    }
}
