//! The plain list of those that joined, with liveness. Pure: the clock is an argument.

use crate::config;
use crate::views::{Liveness, Node};
use pando_wire::NodeName;
use pando_wire::message::{Load, MAX_MEMBERS, Member};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

struct Entry {
    member: Member,
    load: Load,
    heard: Option<Instant>,
    links: u32,
    said: Liveness,
}

/// The list.
pub struct Roster {
    me: Member,
    my_load: Load,
    others: BTreeMap<String, Entry>,
    suspect_after: Duration,
    down_after: Duration,
}

impl Roster {
    /// With only this node in it.
    pub fn new(me: Member, limits: &config::Membership) -> Self {
        Roster {
            me,
            my_load: Load::default(),
            others: BTreeMap::new(),
            suspect_after: Duration::from_millis(limits.suspect_after_ms),
            down_after: Duration::from_millis(limits.down_after_ms),
        }
    }

    /// This node.
    pub fn me(&self) -> &Member {
        &self.me
    }

    /// Takes what another node knows: for each name the newest word wins. Says whether anything changed.
    pub fn merge(&mut self, list: impl IntoIterator<Item = Member>) -> bool {
        let mut changed = false;
        for member in list {
            let full = self.others.len() + 1 >= MAX_MEMBERS;
            if member.name == self.me.name || NodeName::parse(&member.name).is_err() {
                continue;
            }
            match self.others.get_mut(&member.name) {
                Some(entry) if entry.member.stamp >= member.stamp => {}
                Some(entry) => {
                    entry.member = member;
                    changed = true;
                }
                None if full => {}
                None => {
                    let name = member.name.clone();
                    let entry = Entry { member, load: Load::default(), heard: None, links: 0, said: Liveness::Down };
                    self.others.insert(name, entry);
                    changed = true;
                }
            }
        }
        changed
    }

    /// Everyone, this node first.
    pub fn members(&self) -> Vec<Member> {
        std::iter::once(self.me.clone()).chain(self.others.values().map(|e| e.member.clone())).collect()
    }

    /// This node's own load.
    pub fn set_load(&mut self, load: Load) {
        self.my_load = load;
    }

    /// A control connection to `name` stands.
    pub fn linked(&mut self, name: &str, now: Instant) {
        if let Some(entry) = self.others.get_mut(name) {
            entry.links += 1;
            entry.heard = Some(now);
        }
    }

    /// It is gone.
    pub fn unlinked(&mut self, name: &str) {
        if let Some(entry) = self.others.get_mut(name) {
            entry.links = entry.links.saturating_sub(1);
        }
    }

    /// Whether one stands.
    pub fn is_linked(&self, name: &str) -> bool {
        self.others.get(name).is_some_and(|e| e.links > 0)
    }

    /// A heartbeat came.
    pub fn heard(&mut self, name: &str, load: Load, now: Instant) {
        if let Some(entry) = self.others.get_mut(name) {
            entry.load = load;
            entry.heard = Some(now);
        }
    }

    /// Its machine answers that nobody listens there: no need to wait for silence.
    pub fn refused(&mut self, name: &str) {
        if let Some(entry) = self.others.get_mut(name).filter(|e| e.links == 0) {
            entry.heard = None;
        }
    }

    /// Those whose liveness changed since the last call.
    pub fn changes(&mut self, now: Instant) -> Vec<(String, Liveness)> {
        let (suspect, down) = (self.suspect_after, self.down_after);
        let mut out = Vec::new();
        for (name, entry) in &mut self.others {
            let is = entry.liveness(suspect, down, now);
            if is != entry.said {
                entry.said = is;
                out.push((name.clone(), is));
            }
        }
        out
    }

    /// All, for showing.
    pub fn nodes(&self, now: Instant) -> Vec<Node> {
        let me = node(&self.me, &self.my_load, Liveness::Up, Some(0), true);
        let others = self.others.values().map(|e| {
            let state = e.liveness(self.suspect_after, self.down_after, now);
            let heard = e.heard.map(|t| now.saturating_duration_since(t).as_millis() as u64);
            node(&e.member, &e.load, state, heard, false)
        });
        let mut all: Vec<Node> = std::iter::once(me).chain(others).collect();
        all.sort_by_key(|n| natural(&n.name));
        all
    }
}

impl Entry {
    fn liveness(&self, suspect: Duration, down: Duration, now: Instant) -> Liveness {
        let Some(heard) = self.heard else {
            return Liveness::Down;
        };
        let silence = now.saturating_duration_since(heard);
        if silence >= down {
            Liveness::Down
        } else if silence >= suspect || self.links == 0 {
            Liveness::Suspect
        } else {
            Liveness::Up
        }
    }
}

fn node(member: &Member, load: &Load, state: Liveness, heard_ms: Option<u64>, here: bool) -> Node {
    Node {
        name: member.name.clone(),
        addr: member.addr.clone(),
        state,
        here,
        heard_ms,
        cpus: load.cpus,
        runnable: f64::from(load.runnable_milli) / 1000.0,
        memory: load.memory,
        free: load.free,
        guests: load.guests,
    }
}

/// n10 after n9.
fn natural(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem.to_owned(), name[stem.len()..].parse().unwrap_or(0), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, addr: &str, stamp: u64) -> Member {
        Member { name: name.into(), addr: addr.into(), stamp }
    }

    fn roster() -> Roster {
        Roster::new(member("n1", "a", 1), &config::Membership::default())
    }

    fn state(roster: &Roster, now: Instant) -> Vec<Liveness> {
        roster.nodes(now).into_iter().map(|n| n.state).collect()
    }

    #[test]
    fn the_newest_word_about_a_member_wins() {
        let mut r = roster();
        assert!(r.merge([member("n2", "a", 5)]));
        assert!(!r.merge([member("n2", "old", 4), member("n1", "not me", 99), member("Bad name", "x", 1)]));
        assert!(r.merge([member("n2", "b", 6)]));
        assert_eq!(r.members(), [member("n1", "a", 1), member("n2", "b", 6)]);
        r.merge((0..5000).map(|i| member(&format!("m{i}"), "a", 1)));
        assert_eq!(r.members().len(), MAX_MEMBERS);
    }

    #[test]
    fn silence_makes_suspect_then_down_and_a_word_makes_up() {
        let mut r = roster();
        let t0 = Instant::now();
        let after = |ms| t0 + Duration::from_millis(ms);
        r.merge([member("n2", "a", 5)]);
        assert_eq!(state(&r, t0), [Liveness::Up, Liveness::Down]);
        r.linked("n2", t0);
        assert_eq!(r.changes(t0), [("n2".to_owned(), Liveness::Up)]);
        assert_eq!(r.changes(after(1999)), []);
        assert_eq!(r.changes(after(2000)), [("n2".to_owned(), Liveness::Suspect)]);
        assert_eq!(r.changes(after(6000)), [("n2".to_owned(), Liveness::Down)]);
        r.heard("n2", Load::default(), after(6001));
        assert_eq!(state(&r, after(6001)), [Liveness::Up, Liveness::Up]);
        r.unlinked("n2");
        assert_eq!(state(&r, after(6002)), [Liveness::Up, Liveness::Suspect]);
        r.refused("n2");
        assert_eq!(state(&r, after(6002)), [Liveness::Up, Liveness::Down]);
    }

    #[test]
    fn ten_comes_after_nine() {
        let mut r = roster();
        r.merge([member("n10", "a", 1), member("n9", "a", 1)]);
        let names: Vec<_> = r.nodes(Instant::now()).into_iter().map(|n| n.name).collect();
        assert_eq!(names, ["n1", "n9", "n10"]);
    }
}
