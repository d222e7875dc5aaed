//! What ranks want of their job through PMIx, and what has not been answered yet: names, and barriers of some of them.

use pando_kernel::pmix::{Answer, DUPLICATE, Done, ERROR, Finder, Found, NOT_FOUND};
use pando_launch::{Asker, Granted, Name, Named, Said, Up, Wish};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

/// Who waits for a barrier.
pub enum Waiter {
    /// And for what all have said.
    Bytes(Answer),
    /// And for nothing else.
    Done(Done),
}

impl Waiter {
    /// It waits no longer.
    pub fn end(self, how: Result<Vec<u8>, i32>) {
        match (self, how) {
            (Waiter::Bytes(answer), Ok(said)) => answer.give(said),
            (Waiter::Bytes(answer), Err(status)) => answer.fail(status),
            (Waiter::Done(done), Ok(_)) => drop(done),
            (Waiter::Done(done), Err(status)) => done.fail(status),
        }
    }
}

/// A call of a rank: of names it is several wishes, which are answered one by one.
enum Call {
    /// It publishes them, or takes them back.
    Change {
        publishes: bool,
        left: usize,
        status: Option<i32>,
        done: Done,
    },
    Find {
        left: usize,
        found: Vec<(String, Found)>,
        answer: Finder,
    },
    Meet(Waiter),
}

/// See above.
pub struct Wishes {
    place: u32,
    next: u64,
    calls: BTreeMap<u64, Call>,
    /// By their numbers: whose they are, of which call, and of which name.
    asked: BTreeMap<u64, (u32, u64, String)>,
    /// What each rank here has published.
    published: BTreeMap<u32, Vec<String>>,
}

impl Wishes {
    /// Of the ranks of a place.
    pub fn new(place: u32) -> Wishes {
        Wishes { place, next: 0, calls: BTreeMap::new(), asked: BTreeMap::new(), published: BTreeMap::new() }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn ask(&mut self, rank: u32, call: Call, wishes: Vec<(String, Wish)>) -> Vec<Up> {
        let number = self.number();
        self.calls.insert(number, call);
        let mut ups = Vec::new();
        for (name, wish) in wishes {
            let asker = Asker { place: self.place, rank, number: self.number() };
            self.asked.insert(asker.number, (rank, number, name));
            ups.push(Up::Wish { asker, wish });
        }
        ups
    }

    /// A rank publishes something. `once`: it is gone as soon as somebody has found it.
    pub fn publish(&mut self, rank: u32, published: Vec<(String, Found)>, once: bool, done: Done) -> Vec<Up> {
        let call = Call::Change { publishes: true, left: published.len(), status: None, done };
        let wish = |(name, found): (String, Found)| {
            let wish = Wish::Name(Name::Publish { name: name.clone(), port: written(&found), once });
            (name, wish)
        };
        self.ask(rank, call, published.into_iter().map(wish).collect())
    }

    /// A rank looks for names; perhaps it waits until they are there.
    pub fn lookup(&mut self, rank: u32, names: Vec<String>, waits: bool, answer: Finder) -> Vec<Up> {
        let call = Call::Find { left: names.len(), found: Vec::new(), answer };
        let wish = |name: String| match waits {
            true => (name.clone(), Wish::Await(name)),
            false => (name.clone(), Wish::Name(Name::Lookup(name))),
        };
        self.ask(rank, call, names.into_iter().map(wish).collect())
    }

    /// A rank takes these names back, or all that it has published.
    pub fn unpublish(&mut self, rank: u32, names: Option<Vec<String>>, done: Done) -> Vec<Up> {
        let names = names.unwrap_or_else(|| self.published.get(&rank).cloned().unwrap_or_default());
        if names.is_empty() {
            return Vec::new();
        }
        let call = Call::Change { publishes: false, left: names.len(), status: None, done };
        let wish = |name: String| (name.clone(), Wish::Name(Name::Unpublish(name)));
        self.ask(rank, call, names.into_iter().map(wish).collect())
    }

    /// Those of these ranks that are here have come together.
    pub fn meet(&mut self, rank: u32, ranks: Vec<u32>, said: Vec<u8>, waiter: Waiter) -> Vec<Up> {
        let wish = Wish::Meet { ranks, said: ByteBuf::from(said) };
        self.ask(rank, Call::Meet(waiter), vec![(String::new(), wish)])
    }

    /// What has come of one.
    pub fn granted(&mut self, number: u64, granted: Granted) {
        let Some((rank, call, name)) = self.asked.remove(&number) else { return };
        match granted {
            Granted::Named(answer) => self.named(rank, call, name, answer),
            Granted::Met(met) => {
                if let Some(Call::Meet(waiter)) = self.calls.remove(&call) {
                    waiter.end(met.map(joined).map_err(|_| ERROR));
                }
            }
            Granted::Spawned(_) => {}
        }
    }

    fn named(&mut self, rank: u32, number: u64, name: String, answer: Named) {
        let left = match (self.calls.get_mut(&number), &answer) {
            (Some(Call::Change { publishes, left, status, .. }), answer) => {
                let published = self.published.entry(rank).or_default();
                match answer {
                    Ok(_) if *publishes => published.push(name),
                    Ok(_) => published.retain(|other| *other != name),
                    Err(why) => _ = status.get_or_insert(if why.starts_with("dup") { DUPLICATE } else { NOT_FOUND }),
                }
                left
            }
            (Some(Call::Find { left, found, .. }), answer) => {
                let port = answer.as_ref().ok().and_then(|port| port.as_ref());
                found.extend(port.and_then(|port| read(port)).map(|one| (name, one)));
                left
            }
            _ => return,
        };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return;
        }
        match self.calls.remove(&number) {
            Some(Call::Change { status: Some(status), done, .. }) => done.fail(status),
            Some(Call::Find { found, answer, .. }) if found.is_empty() => answer.fail(NOT_FOUND),
            Some(Call::Find { found, answer, .. }) => answer.give(found),
            // It is told when it is dropped.
            _ => {}
        }
    }
}

/// As the job's head keeps it: whose it is, and a text, or bytes as hexadecimal digits.
fn written(found: &Found) -> String {
    match &found.bytes {
        None => format!("{}:text:{}", found.rank, found.text),
        Some(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}:bytes:{digits}", found.rank)
        }
    }
}

/// The other way; nothing, if it is no such thing.
fn read(port: &str) -> Option<Found> {
    let (rank, rest) = port.split_once(':')?;
    let rank = rank.parse().ok()?;
    match rest.split_once(':')? {
        ("text", text) => Some(Found { rank, text: text.to_owned(), bytes: None }),
        ("bytes", digits) => {
            let pair = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
            let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(pair).collect();
            Some(Found { rank, text: String::new(), bytes: Some(bytes?) })
        }
        _ => None,
    }
}

/// As the library wants it: what all have said, by their places.
fn joined(mut said: Vec<Said>) -> Vec<u8> {
    said.sort_by_key(|(place, _)| place.parse::<u32>().unwrap_or(u32::MAX));
    said.into_iter().flat_map(|(_, bytes)| bytes.into_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn what_is_published_is_found_as_it_was() {
        check!().with_type::<(u32, String, Option<Vec<u8>>)>().for_each(|(rank, text, bytes)| {
            let text = if bytes.is_some() { String::new() } else { text.clone() };
            let found = Found { rank: *rank, text, bytes: bytes.clone() };
            assert_eq!(read(&written(&found)), Some(found));
        });
    }

    #[test]
    fn what_nobody_has_written_is_nothing() {
        check!().with_type::<String>().for_each(|text| {
            for port in [text.clone(), format!("1:{text}"), format!("1:bytes:{text}")] {
                read(&port);
            }
        });
        assert_eq!((read("1:bytes:0"), read("1:bytes:zz"), read("x:text:a")), (None, None, None));
    }
}
