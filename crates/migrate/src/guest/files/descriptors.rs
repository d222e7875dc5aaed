//! The program's descriptors, by the open file descriptions that they stand for. Pure.
//!
//! A position is in one place at a time: at home, or here while reads are answered here. It goes home before anyone there could look. It is here
//! only while all who could move it are descriptors of this process, and known: those that it opened or duplicated here, or that home has found.

pub(crate) use super::description::{Choice, Description, Place};
use super::effect::Effect;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Most descriptors that are followed.
const MOST: usize = 4096;
/// Most numbers that are remembered of calls that came between.
const REMEMBERED: usize = 256;
/// Every number there is.
const ALL: RangeInclusive<i32> = i32::MIN..=i32::MAX;

/// Numbers that a call names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    numbers: RangeInclusive<i32>,
    /// They may mean another description after it, or have more owners.
    changes: bool,
}

impl Named {
    fn new(numbers: RangeInclusive<i32>, changes: bool) -> Self {
        Named { numbers, changes }
    }
}

/// What a call names.
fn names(effect: &Effect) -> Vec<Named> {
    match effect {
        Effect::None | Effect::LetGo | Effect::Opens(_) => Vec::new(),
        Effect::Uses(fds) => fds.iter().map(|&fd| Named::new(fd..=fd, false)).collect(),
        Effect::Dup(from, None) => vec![Named::new(*from..=*from, false)],
        Effect::Dup(from, Some(to)) => vec![Named::new(*from..=*from, false), Named::new(*to..=*to, true)],
        Effect::SharesAll => vec![Named::new(ALL, true)],
        Effect::Ends(fds) => vec![Named::new(fds.clone(), true)],
        Effect::Changes(fd) => vec![Named::new(*fd..=*fd, true)],
    }
}

/// A call at home.
#[derive(Debug)]
struct Flight {
    names: Vec<Named>,
    /// Descriptions that it uses; of a dup the one that gets a further descriptor.
    uses: Vec<u64>,
    /// What was named by others that were at home at some time since it went, and are not any more.
    crossed: Vec<Named>,
}

fn remember(all: &mut Vec<Named>, more: &[Named]) {
    match all.len() + more.len() > REMEMBERED {
        true => *all = vec![Named::new(ALL, true)],
        false => all.extend_from_slice(more),
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    all: BTreeMap<i32, u64>,
    descriptions: BTreeMap<u64, Description>,
    /// By the numbers of their calls.
    flights: BTreeMap<u64, Flight>,
    births: u64,
    questions: u64,
    /// What calls have named since the oldest question that is on its way.
    since: Vec<Named>,
}

impl Descriptors {
    /// A description for a number that had none.
    fn add(&mut self, fd: i32, ours: bool) {
        let gone = self.end(fd..=fd);
        debug_assert!(gone.is_empty(), "what has a number is ended first");
        if self.all.len() < MOST && fd >= 0 {
            self.births += 1;
            self.descriptions.insert(self.births, Description::new(ours));
            self.point(fd, self.births);
        }
    }

    /// `fd` means this description from now on. It meant none.
    fn point(&mut self, fd: i32, description: u64) {
        if let Some(d) = self.descriptions.get_mut(&description) {
            d.numbers += 1;
            self.all.insert(fd, description);
        }
    }

    pub fn get(&self, fd: i32) -> Option<&Description> {
        self.descriptions.get(self.all.get(&fd)?)
    }

    pub fn get_mut(&mut self, fd: i32) -> Option<&mut Description> {
        self.descriptions.get_mut(self.all.get(&fd)?)
    }

    /// The description that this number means: no other one ever has that name.
    pub fn key(&self, fd: i32) -> Option<u64> {
        self.all.get(&fd).copied()
    }

    /// Is this description known?
    pub fn has(&self, description: u64) -> bool {
        self.descriptions.contains_key(&description)
    }

    /// Is some descriptor of this file left?
    pub fn has_file(&self, id: u64) -> bool {
        self.descriptions.values().any(|d| d.file == Some(id))
    }

    /// What becomes of a read of `fd`, at `offset` or where it stands.
    pub fn read(&mut self, fd: i32, offset: Option<u64>, now: u64) -> Choice {
        if !self.all.contains_key(&fd) {
            self.add(fd, false);
        }
        let question = self.questions + 1;
        let Some(d) = self.get_mut(fd) else { return Choice::Forward };
        let choice = d.read(offset, now, question);
        if let Choice::Ask(..) = choice {
            if self.nothing_asked(question) {
                self.since.clear();
            }
            self.questions = question;
        }
        choice
    }

    /// Is no other question on its way than this one?
    fn nothing_asked(&self, but: u64) -> bool {
        self.descriptions.values().all(|d| d.asked.is_none_or(|a| a == but))
    }

    /// Home has answered a question. False: to a question that nobody asks any more. `numbers`: home has looked, and no other process has it; these
    /// of ours are all that mean it.
    pub fn granted(&mut self, ask: u64, id: u64, position: Option<u64>, numbers: &[i32], now: u64) -> bool {
        let Some((&key, d)) = self.descriptions.iter_mut().find(|(_, d)| d.asked == Some(ask)) else { return false };
        d.granted(id);
        let sure = !d.doubt && d.place == Place::Home;
        if std::mem::take(&mut d.looking) && !(sure && position.is_some() && self.adopt(key, numbers)) {
            self.descriptions.get_mut(&key).into_iter().for_each(|d| d.others_found(now));
        }
        if let (Some(at), Some(d)) = (position.filter(|_| sure), self.descriptions.get_mut(&key).filter(|d| d.ours)) {
            d.place = Place::Here { at, told: true };
        }
        true
    }

    /// These numbers, and no others, mean this description, as home has found; if that can have changed meanwhile it is no use.
    fn adopt(&mut self, key: u64, numbers: &[i32]) -> bool {
        let flights = self.flights.values().flat_map(|f| &f.names);
        let changing = |fd: &i32| flights.clone().chain(&self.since).any(|n| n.numbers.contains(fd));
        let held = |fd: &i32| self.get(*fd).is_some_and(|d| d.place != Place::Home);
        let missed = self.all.iter().any(|(fd, d)| *d == key && !numbers.contains(fd));
        let room = self.all.len() + numbers.len() <= MOST;
        if numbers.is_empty() || !room || missed || numbers.iter().any(|fd| *fd < 0 || changing(fd) || held(fd)) {
            return false;
        }
        for &fd in numbers {
            if self.all.get(&fd) != Some(&key) {
                // What the number had of its own is of the same file.
                self.end(fd..=fd);
                self.point(fd, key);
            }
        }
        self.descriptions.get_mut(&key).into_iter().for_each(|d| d.ours = true);
        true
    }

    pub fn refused(&mut self, ask: u64, now: u64) {
        let asked = |d: &&mut Description| d.asked == Some(ask);
        self.descriptions.values_mut().find(asked).into_iter().for_each(|d| d.refused(now));
    }

    /// The question has come to nothing: it may be asked again at once.
    pub fn unanswered(&mut self, ask: u64) {
        let asked = |d: &&mut Description| d.asked == Some(ask);
        self.descriptions.values_mut().find(asked).into_iter().for_each(|d| d.asked = None);
    }

    /// The file is not ours any more: it is asked for again after a while.
    pub fn forget(&mut self, id: u64, now: u64) {
        self.descriptions.values_mut().filter(|d| d.file == Some(id)).for_each(|d| d.forget(now));
    }

    /// The same without fault of the file's.
    pub fn let_go(&mut self, id: u64) {
        for d in self.descriptions.values_mut().filter(|d| d.file == Some(id)) {
            d.file = None;
            d.bring_home();
        }
    }

    /// Positions that home has not heard of, each by one of its descriptors. It will have.
    pub fn untold(&mut self) -> Vec<(i32, u64)> {
        let mut out = Vec::new();
        for (fd, key) in &self.all {
            if let Some(Description { place: Place::Here { at, told: told @ false }, .. }) =
                self.descriptions.get_mut(key)
            {
                *told = true;
                out.push((*fd, *at));
            }
        }
        out
    }

    /// Call `seq` goes home. All positions have been told. Gives the files that no descriptor needs any more.
    pub fn call_goes(&mut self, seq: u64, effect: &Effect, now: u64) -> Vec<u64> {
        if matches!(effect, Effect::None | Effect::LetGo) {
            return Vec::new();
        }
        let names = names(effect);
        let mut flight = Flight { names, uses: Vec::new(), crossed: Vec::new() };
        remember(&mut self.since, &flight.names);
        let mut gone = Vec::new();
        match effect {
            Effect::Uses(fds) => flight.uses = self.used(fds),
            Effect::Dup(from, to) => {
                // Another thread may read the duplicate before we know of it, or what the number meant until then.
                flight.uses = self.used(&[Some(*from), *to].into_iter().flatten().collect::<Vec<i32>>());
                gone = to.map_or_else(Vec::new, |to| self.end(to..=to));
            }
            Effect::SharesAll => self.all_shared(now),
            Effect::Ends(fds) => {
                // What has other numbers, too, may be read by this one until it has ended.
                let numbers: Vec<i32> = self.range(fds).map(|(fd, _)| *fd).collect();
                flight.uses = self.used(&numbers);
                gone = self.end(fds.clone());
            }
            Effect::Changes(fd) => gone = self.end_description(*fd),
            Effect::None | Effect::LetGo | Effect::Opens(_) => {}
        }
        self.flights.insert(seq, flight);
        gone
    }

    fn used(&mut self, fds: &[i32]) -> Vec<u64> {
        let keys: Vec<u64> = fds.iter().filter_map(|fd| self.all.get(fd).copied()).collect();
        for key in &keys {
            self.descriptions.get_mut(key).into_iter().for_each(Description::used);
        }
        keys
    }

    fn all_shared(&mut self, now: u64) {
        self.descriptions.values_mut().for_each(|d| d.shared(now));
    }

    fn range(&self, fds: &RangeInclusive<i32>) -> impl Iterator<Item = (&i32, &u64)> {
        let fds = if fds.is_empty() { 0..0 } else { *fds.start()..fds.end().saturating_add(1) };
        self.all.range(fds)
    }

    /// The numbers mean nothing any more.
    fn end(&mut self, fds: RangeInclusive<i32>) -> Vec<u64> {
        let gone: Vec<(i32, u64)> = self.range(&fds).map(|(fd, d)| (*fd, *d)).collect();
        let mut files = Vec::new();
        for (fd, key) in gone {
            self.all.remove(&fd);
            let Some(d) = self.descriptions.get_mut(&key) else { continue };
            d.numbers -= 1;
            if d.numbers == 0 {
                files.extend(self.descriptions.remove(&key).and_then(|d| d.file));
            }
        }
        files.sort_unstable();
        files.dedup();
        files.retain(|&id| !self.has_file(id));
        files
    }

    /// Nothing is known any more of what this one means, by whatever number.
    fn end_description(&mut self, fd: i32) -> Vec<u64> {
        let Some(&key) = self.all.get(&fd) else { return Vec::new() };
        let numbers: Vec<i32> = self.all.iter().filter(|(_, d)| **d == key).map(|(fd, _)| *fd).collect();
        numbers.into_iter().flat_map(|fd| self.end(fd..=fd)).collect()
    }

    /// Call `seq` has been answered. `new`: a descriptor that it made. `full`: it was a read that got all it asked for.
    pub fn call_returns(&mut self, seq: u64, effect: &Effect, new: Option<i32>, full: bool, now: u64) -> Vec<u64> {
        let Some(flight) = self.flights.remove(&seq) else { return Vec::new() };
        for other in self.flights.values_mut() {
            remember(&mut other.crossed, &flight.names);
        }
        remember(&mut self.since, &flight.names);
        new.into_iter().for_each(|fd| remember(&mut self.since, &[Named::new(fd..=fd, true)]));
        for key in &flight.uses {
            self.descriptions.get_mut(key).into_iter().for_each(|d| d.answered(full));
        }
        match effect {
            // A number that another thread got meanwhile, from an open that came first.
            Effect::Ends(fds) => self.end(fds.clone()),
            Effect::Changes(fd) => self.end_description(*fd),
            Effect::Opens(followed) => new.map_or_else(Vec::new, |fd| {
                let gone = self.end(fd..=fd);
                // A call that names this number may have been made before or after.
                let ours = !self.is_crossed(&flight, fd, false);
                followed.then(|| self.add(fd, ours));
                gone
            }),
            Effect::Dup(from, to) => self.duplicated(&flight, *from, to.or(new), new, now),
            _ => Vec::new(),
        }
    }

    /// Has another call that was at home meanwhile named this number? `changes`: so that it means something else.
    fn is_crossed(&self, flight: &Flight, fd: i32, changes: bool) -> bool {
        let now = self.flights.values().flat_map(|f| &f.names);
        now.chain(&flight.crossed).any(|n| n.numbers.contains(&fd) && (n.changes || !changes))
    }

    /// `to` has been made a duplicate of `from`, if `made` says so.
    fn duplicated(&mut self, flight: &Flight, from: i32, to: Option<i32>, made: Option<i32>, now: u64) -> Vec<u64> {
        let gone = to.map_or_else(Vec::new, |to| self.end(to..=to));
        let Some(made) = made else {
            // It may still mean what it did.
            to.into_iter().for_each(|_| self.all_shared(now));
            return gone;
        };
        let key = flight.uses.first().copied();
        let crossed = self.is_crossed(flight, from, true) || self.is_crossed(flight, made, false);
        if crossed || self.all.get(&from).copied() != key {
            // Which description it is depends on what came first.
            self.all_shared(now);
        } else if let Some(key) = key {
            match self.all.len() < MOST && made >= 0 {
                true => self.point(made, key),
                false => self.descriptions.get_mut(&key).into_iter().for_each(|d| d.shared(now)),
            }
        }
        gone
    }

    /// A read by offset was forwarded and got all it asked for.
    pub fn read_elsewhere(&mut self, fd: i32) {
        self.get_mut(fd).into_iter().for_each(|d| d.reads = d.reads.saturating_add(1));
    }
}

#[cfg(test)]
#[path = "descriptors_tests.rs"]
mod tests;
