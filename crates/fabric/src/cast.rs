//! A large transfer's bytes by multicast: its origin casts them in numbered pieces, whoever misses some asks its parent in the tree for them, and
//! whoever hears nothing of it asks for all. When a transfer is begun, ends, and is done stays as it is without: only the bytes take another way.
//!
//! What comes up the tree ([`Heard`]) paces the origin: it is no more than a window ahead of the slowest that hears, and the window
//! grows while nothing is lost, as in TCP.

use crate::set::{NodeId, Set};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Bytes of a piece at most: with what is around it, it fits into a datagram.
pub const LONGEST_PIECE: u32 = 60_000;
/// Ranges of pieces that one message asks for.
const MOST_RANGES: usize = 128;
/// And those that are kept for a child.
const MOST_KEPT: usize = 8 * MOST_RANGES;
/// A piece that so many later ones have overtaken is lost.
const SLACK: u32 = 8;
/// So long may what was cast still be on its way, or lie in a buffer, milliseconds.
const GRACE_MS: u64 = 20;
/// Who has heard nothing so long after there was something is deaf, and not just busy.
const DEAF_MS: u64 = 100;
/// Who misses more than it hears, and as many as these, is as good as deaf.
const HARD: u32 = 64;

/// What the datagrams of a transfer are sealed with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Key(pub [u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// How a transfer is cast: the links tell it to all that take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Cast {
    /// Which one: in each datagram.
    pub tag: u64,
    /// See there.
    pub key: Key,
    /// Bytes of every piece but the last.
    pub piece: u32,
    /// These hear nothing of it, as far as is known: they ask at once.
    pub deaf: Set,
}

impl Cast {
    /// Can it be what a node would do? So many bytes are cast.
    pub(crate) fn is_sound(&self, length: u64) -> bool {
        let piece = u64::from(self.piece);
        let sized = (1..=LONGEST_PIECE).contains(&self.piece) && length > 0 && length / piece < u64::from(u32::MAX);
        sized && self.deaf.is_sound()
    }

    /// How many pieces.
    fn count(&self, length: u64) -> u32 {
        length.div_ceil(u64::from(self.piece)) as u32
    }

    /// Where these are, bytes.
    fn bytes(&self, pieces: &Range<u32>, length: u64) -> Range<usize> {
        let at = |n: u32| (u64::from(n) * u64::from(self.piece)).min(length) as usize;
        at(pieces.start)..at(pieces.end)
    }
}

/// How far a node has come with a cast, and all below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(bolero::TypeGenerator))]
pub struct Heard {
    /// All that hear have so many bytes from the beginning on.
    pub got: u64,
    /// Pieces that the one with most of them had to ask for.
    pub lost: u32,
    /// These hear nothing.
    pub deaf: Set,
}

/// Which pieces are here.
#[derive(Debug)]
struct Pieces {
    bits: Vec<u64>,
    count: u32,
    here: u32,
    /// All before it are here.
    first: u32,
}

impl Pieces {
    fn new(count: u32) -> Pieces {
        Pieces { bits: vec![0; (count as usize).div_ceil(64)], count, here: 0, first: 0 }
    }

    fn has(&self, n: u32) -> bool {
        self.bits.get(n as usize / 64).is_some_and(|word| word >> (n % 64) & 1 == 1)
    }

    /// One comes; false: it is here already.
    fn take(&mut self, n: u32) -> bool {
        if n >= self.count || self.has(n) {
            return false;
        }
        self.bits[n as usize / 64] |= 1 << (n % 64);
        self.here += 1;
        while self.first < self.count && self.has(self.first) {
            self.first += 1;
        }
        true
    }
}

/// Any node but the origin.
#[derive(Debug)]
struct Catch {
    pieces: Pieces,
    /// Those before it that are not here do not come by themselves.
    due: u32,
    /// Those before it were asked for.
    asked: u32,
    /// So many of them have not come.
    open: u32,
    caught: u32,
    lost: u32,
    deaf: bool,
    /// So many were cast, and since when that is known; and more, as was said since.
    sent: Option<(u32, u64)>,
    later: u32,
}

impl Catch {
    fn new(count: u32, deaf: bool) -> Catch {
        let due = if deaf { count } else { 0 };
        let pieces = Pieces::new(count);
        Catch { pieces, due, asked: 0, open: 0, caught: 0, lost: 0, deaf, sent: None, later: 0 }
    }

    fn comes(&mut self, n: u32) -> bool {
        let new = self.pieces.take(n);
        if new && n < self.asked {
            self.open -= 1;
        }
        new
    }

    fn is_caught(&mut self, n: u32) {
        self.caught += 1;
        self.due = self.due.max(n.saturating_sub(SLACK));
    }

    fn sent(&mut self, now: u64, count: u32) {
        self.later = self.later.max(count.min(self.pieces.count));
        self.sent.get_or_insert((self.later, now));
    }

    /// What was cast so long ago and is not here is lost. True: that is news.
    fn expire(&mut self, now: u64) -> bool {
        let grace = if self.caught == 0 { DEAF_MS } else { GRACE_MS };
        let Some((count, _)) = self.sent.filter(|(_, since)| now >= since + grace) else { return false };
        self.due = self.due.max(count);
        self.sent = (self.later > count).then_some((self.later, now));
        if self.caught == 0 || self.lost > HARD.max(self.caught) {
            self.be_deaf();
        }
        true
    }

    fn be_deaf(&mut self) {
        self.deaf = true;
        self.due = self.pieces.count;
    }

    /// The next to ask for, while no more than `room` are open.
    fn ask(&mut self, room: u32) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        while self.asked < self.due && self.open < room {
            let n = self.asked;
            if !self.pieces.has(n) {
                let full = ranges.len() == MOST_RANGES;
                match ranges.last_mut() {
                    Some(last) if last.1 == n => last.1 = n + 1,
                    _ if full => break,
                    _ => ranges.push((n, n + 1)),
                }
                self.open += 1;
                self.lost += u32::from(!self.deaf);
            }
            self.asked = n + 1;
        }
        ranges
    }
}

/// How fast the origin casts.
#[derive(Debug)]
struct Pace {
    count: u32,
    /// The next piece.
    next: u32,
    /// So many have left this machine, and so many the others were told of.
    went: u32,
    said: u32,
    /// All wait for it.
    ready: bool,
    got: u64,
    lost: u32,
    window: u64,
    /// It is never smaller nor larger.
    limits: (u64, u64),
    /// Nothing was lost so far.
    young: bool,
    /// When it was last made smaller so many bytes had been cast: what is lost of these says nothing new.
    cut: u64,
}

impl Pace {
    fn new(cast: &Cast, length: u64, (least, most): (u64, u64)) -> Pace {
        let least = least.max(2 * u64::from(cast.piece));
        let limits = (least, most.max(least));
        let (count, window) = (cast.count(length), limits.0);
        Pace { count, next: 0, went: 0, said: 0, ready: false, got: 0, lost: 0, window, limits, young: true, cut: 0 }
    }

    fn heard(&mut self, heard: &Heard, piece: u64) {
        let more = heard.got.saturating_sub(self.got);
        self.got = self.got.max(heard.got);
        if heard.lost > self.lost {
            if self.got >= self.cut {
                self.window /= 2;
                self.cut = u64::from(self.next) * piece;
            }
            (self.lost, self.young) = (heard.lost, false);
        } else {
            // Twice as much with each window, later a piece or two more.
            self.window += if self.young { more } else { 2 * piece * more / self.window.max(1) };
        }
        self.window = self.window.clamp(self.limits.0, self.limits.1);
        self.ready = true;
    }

    fn due(&mut self, piece: u64) -> Range<u32> {
        let from = self.next;
        while self.ready && self.next < self.count && u64::from(self.next) * piece < self.got + self.window {
            self.next += 1;
        }
        from..self.next
    }
}

#[derive(Debug)]
enum Part {
    Origin(Pace),
    Other(Catch),
}

/// A child.
#[derive(Debug, Default)]
struct Below {
    heard: Option<Heard>,
    /// Pieces that it has asked for and that are not sent yet.
    lacks: VecDeque<Range<u32>>,
}

/// A cast at one node.
#[derive(Debug)]
pub struct Casting {
    pub cast: Cast,
    length: u64,
    part: Part,
    children: BTreeMap<NodeId, Below>,
    told: Option<Heard>,
    me: NodeId,
}

impl Casting {
    pub fn of_origin(me: NodeId, cast: Cast, length: u64, children: &[NodeId], window: (u64, u64)) -> Casting {
        let pace = Pace::new(&cast, length, window);
        Casting::new(me, cast, length, children, Part::Origin(pace))
    }

    /// `hears`: it can, as far as it knows.
    pub fn of_other(me: NodeId, cast: Cast, length: u64, children: &[NodeId], hears: bool) -> Casting {
        let catch = Catch::new(cast.count(length), !hears || cast.deaf.has(me));
        Casting::new(me, cast, length, children, Part::Other(catch))
    }

    fn new(me: NodeId, cast: Cast, length: u64, children: &[NodeId], part: Part) -> Casting {
        let children = children.iter().map(|n| (*n, Below::default())).collect();
        Casting { cast, length, part, children, told: None, me }
    }

    /// All of it is here.
    pub fn is_whole(&self) -> bool {
        match &self.part {
            Part::Origin(_) => true,
            Part::Other(catch) => catch.pieces.here == catch.pieces.count,
        }
    }

    /// These pieces come; where each of them belongs, if it is new. None: they can't be.
    pub fn comes(&mut self, first: u32, bytes: usize, by_datagram: bool) -> Option<Vec<Range<usize>>> {
        let Part::Other(catch) = &mut self.part else { return None };
        let last = first.checked_add(u32::try_from(bytes.div_ceil(self.cast.piece as usize)).ok()?)?;
        let all = self.cast.bytes(&(first..last), self.length);
        if bytes == 0 || last > catch.pieces.count || all.len() != bytes || by_datagram && last - first != 1 {
            return None;
        }
        let new: Vec<u32> = (first..last).filter(|n| catch.comes(*n)).collect();
        if by_datagram && !new.is_empty() {
            catch.is_caught(first);
        }
        Some(new.into_iter().map(|n| self.cast.bytes(&(n..n + 1), self.length)).collect())
    }

    /// The origin has cast so many pieces.
    pub fn sent(&mut self, now: u64, count: u32) {
        if let Part::Other(catch) = &mut self.part {
            catch.sent(now, count);
        }
    }

    /// Time passes. True: something is to be asked or said.
    pub fn expire(&mut self, now: u64) -> bool {
        match &mut self.part {
            Part::Origin(_) => false,
            Part::Other(catch) => catch.expire(now),
        }
    }

    /// A child tells how far it is. False: that can't be.
    pub fn heard(&mut self, node: NodeId, heard: Heard) -> bool {
        let Some(child) = self.children.get_mut(&node).filter(|_| heard.got <= self.length) else { return false };
        child.heard = Some(heard);
        let sum = self.sum();
        if let (Part::Origin(pace), Some(sum)) = (&mut self.part, sum) {
            pace.heard(&sum, u64::from(self.cast.piece));
        }
        true
    }

    /// A child asks for these. False: nobody would.
    pub fn lacks(&mut self, node: NodeId, ranges: &[(u32, u32)]) -> bool {
        let count = self.cast.count(self.length);
        let sound = ranges.len() <= MOST_RANGES && ranges.iter().all(|(from, to)| from < to && *to <= count);
        let child = self.children.get_mut(&node).filter(|c| sound && c.lacks.len() + ranges.len() <= MOST_KEPT);
        child.map(|c| c.lacks.extend(ranges.iter().map(|(from, to)| *from..*to))).is_some()
    }

    /// What is here of what children have asked for: who, the first piece, and where, in chunks of about so many bytes.
    pub fn patches(&mut self, chunk: usize) -> Vec<(NodeId, u32, Range<usize>)> {
        let mut due = Vec::new();
        let most = (chunk / self.cast.piece as usize).max(1) as u32;
        let part = &self.part;
        let has = |n: u32| match part {
            Part::Origin(_) => true,
            Part::Other(catch) => catch.pieces.has(n),
        };
        for (node, child) in &mut self.children {
            let mut left = VecDeque::new();
            for range in child.lacks.drain(..) {
                let mut at = range.start;
                while at < range.end {
                    let run = (at..range.end).take(most as usize).take_while(|n| has(*n)).count() as u32;
                    if run == 0 {
                        break;
                    }
                    due.push((*node, at, self.cast.bytes(&(at..at + run), self.length)));
                    at += run;
                }
                if at < range.end {
                    left.push_back(at..range.end);
                }
            }
            child.lacks = left;
        }
        due
    }

    /// What is to be asked of the parent now, with at most `window` bytes on their way.
    pub fn ask(&mut self, window: u64) -> Vec<(u32, u32)> {
        let room = (window / u64::from(self.cast.piece)).clamp(1, u64::from(u32::MAX)) as u32;
        match &mut self.part {
            Part::Origin(_) => Vec::new(),
            Part::Other(catch) => catch.ask(room),
        }
    }

    /// The pieces that the origin casts now, and where each is.
    pub fn due(&mut self) -> Vec<(u32, Range<usize>)> {
        let Part::Origin(pace) = &mut self.part else { return Vec::new() };
        let pieces = pace.due(u64::from(self.cast.piece));
        pieces.map(|n| (n, self.cast.bytes(&(n..n + 1), self.length))).collect()
    }

    /// So many of them have left this machine.
    pub fn went(&mut self, count: u32) {
        if let Part::Origin(pace) = &mut self.part {
            pace.went = pace.went.max(count.min(pace.next));
        }
    }

    /// How many have, if the others are to be told: when all of it has been cast, or (`waits`) some time has passed.
    pub fn tail(&mut self, waits: bool) -> Option<u32> {
        let Part::Origin(pace) = &mut self.part else { return None };
        let due = pace.went > pace.said && (waits || pace.went == pace.count);
        if due {
            pace.said = pace.went;
        }
        due.then_some(pace.went)
    }

    /// Nobody hears it: it goes on without datagrams.
    pub fn give_up(&mut self) {
        if let Part::Origin(pace) = &mut self.part {
            pace.count = pace.next;
        }
    }

    /// How far this node is, and all below; none: somebody there has said nothing yet.
    pub fn sum(&self) -> Option<Heard> {
        let mut sum = match &self.part {
            Part::Other(catch) if !catch.deaf => {
                let got = self.cast.bytes(&(0..catch.pieces.first), self.length).end as u64;
                Heard { got, lost: catch.lost, deaf: Set::default() }
            }
            Part::Other(_) => Heard { got: self.length, lost: 0, deaf: [self.me].into_iter().collect() },
            Part::Origin(_) => Heard { got: self.length, ..Heard::default() },
        };
        for child in self.children.values() {
            let heard = child.heard.as_ref()?;
            sum.got = sum.got.min(heard.got);
            sum.lost = sum.lost.max(heard.lost);
            if !heard.deaf.is_within(&sum.deaf) {
                sum.deaf = sum.deaf.iter().chain(heard.deaf.iter()).collect();
            }
        }
        Some(sum)
    }

    /// The same, if the parent is to know: it is new, and more than `step` bytes further unless `now`.
    pub fn tell(&mut self, step: u64, now: bool) -> Option<Heard> {
        let sum = self.sum()?;
        let news = self.told.as_ref().is_none_or(|told| {
            let far = sum.got >= told.got + step || sum.got == self.length;
            *told != sum && (now || far || told.lost != sum.lost || told.deaf != sum.deaf)
        });
        news.then(|| self.told.insert(sum).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast() -> Cast {
        Cast { tag: 1, key: Key([0; 32]), piece: 10, deaf: Set::default() }
    }

    fn other(length: u64) -> Casting {
        Casting::of_other(NodeId(2), cast(), length, &[], true)
    }

    fn new(at: Range<usize>) -> Option<Vec<Range<usize>>> {
        Some(std::iter::once(at).collect())
    }

    #[test]
    fn what_later_ones_have_overtaken_is_asked_for_once() {
        let mut casting = other(1000);
        assert_eq!(casting.comes(0, 10, true), new(0..10));
        assert_eq!(casting.comes(0, 10, true), Some(Vec::new()), "it is here");
        assert_eq!((casting.comes(1, 9, true), casting.comes(99, 11, true)), (None, None), "a piece has its length");
        assert_eq!(casting.comes(3 + SLACK, 10, true), new(30 + 80..40 + 80));
        assert_eq!(casting.ask(1000), [(1, 3)]);
        assert!(casting.ask(1000).is_empty());
        // A patch brings both, and one that was late comes as well.
        assert_eq!(casting.comes(2, 10, true), new(20..30));
        assert_eq!(casting.comes(1, 20, false), new(10..20));
        assert_eq!(casting.sum(), Some(Heard { got: 30, lost: 2, deaf: Set::default() }));
    }

    #[test]
    fn who_hears_nothing_asks_for_all_no_further_ahead_than_its_window() {
        let mut casting = other(1000);
        casting.sent(5, 40);
        assert!(!casting.expire(5 + DEAF_MS - 1) && casting.expire(5 + DEAF_MS));
        assert_eq!(casting.sum().unwrap().deaf, [NodeId(2)].into_iter().collect());
        assert_eq!(casting.ask(200), [(0, 20)]);
        assert_eq!(casting.comes(0, 100, false).unwrap().len(), 10);
        assert_eq!(casting.ask(200), [(20, 30)]);
    }

    #[test]
    fn who_hears_misses_the_end_soon_and_the_rest_not_yet() {
        let mut casting = other(1000);
        casting.comes(0, 10, true);
        casting.sent(5, 4);
        casting.sent(15, 6);
        assert!(!casting.expire(4 + GRACE_MS) && casting.expire(5 + GRACE_MS));
        assert_eq!(casting.ask(1000), [(1, 4)]);
        assert!(casting.expire(5 + 2 * GRACE_MS));
        assert_eq!(casting.ask(1000), [(4, 6)]);
    }

    #[test]
    fn the_origin_waits_for_all_then_runs_ahead_and_slows_down_where_some_is_lost() {
        let child = NodeId(3);
        let mut casting = Casting::of_origin(NodeId(1), cast(), 10_000, &[child], (100, 400));
        assert!(casting.due().is_empty(), "nobody waits for it yet");
        let mut heard = |got, lost| {
            assert!(casting.heard(child, Heard { got, lost, deaf: Set::default() }));
            casting.due().len()
        };
        assert_eq!([heard(0, 0), heard(100, 0), heard(300, 0), heard(400, 1), heard(400, 2)], [10, 20, 40, 0, 0]);
        assert!(!casting.heard(NodeId(9), Heard::default()), "a stranger");
        casting.went(50);
        assert_eq!((casting.tail(false), casting.tail(true), casting.tail(true)), (None, Some(50), None));
    }

    #[test]
    fn a_parent_sends_what_it_has_of_what_is_asked() {
        let child = NodeId(3);
        let mut casting = Casting::of_other(NodeId(2), cast(), 95, &[child], true);
        assert!(casting.lacks(child, &[(0, 2), (8, 10)]));
        assert!(
            !casting.lacks(child, &[(3, 3)]) && !casting.lacks(child, &[(8, 11)]) && !casting.lacks(NodeId(9), &[])
        );
        assert!(casting.patches(30).is_empty());
        casting.comes(9, 5, true);
        casting.comes(8, 10, true);
        casting.comes(0, 10, false);
        assert_eq!(casting.patches(30), [(child, 0, 0..10), (child, 8, 80..95)]);
        assert!(casting.patches(30).is_empty());
    }
}
