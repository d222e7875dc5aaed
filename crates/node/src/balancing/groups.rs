//! Processes that their user wants apart, or together. Their home, which knows where they all are, sees to it. Pure.

use super::facts::Key;
use pando_balance::{Process, Wish};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// A process whose home is here, and where it is.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its pid.
    pub pid: u32,
    /// What its user wants.
    pub wish: Wish,
    /// The node.
    pub place: String,
    /// Since when, if somebody or balancing sent it there.
    pub since: Option<Instant>,
    /// It has been there for a while, and has computed: it is worth a move.
    pub rested: bool,
}

/// Where the others are from which this one is to be apart.
pub fn beside(members: &[Member], pid: u32, wish: &Wish) -> Vec<String> {
    let same = |m: &&Member| wish.apart.is_some() && m.wish.apart == wish.apart && m.pid != pid;
    members.iter().filter(same).map(|m| m.place.clone()).collect()
}

/// Of how many is this one's group that is to be together, itself included?
pub fn companions(members: &[Member], wish: &Wish) -> usize {
    members.iter().filter(|m| wish.together.is_some() && m.wish.together == wish.together).count()
}

/// Notes who can't go where, and who has to leave. Of those that are here and are to be apart the one with the lowest number stays.
pub fn part(processes: &mut [Process], members: &[Member], me: &str) {
    for p in processes.iter_mut().filter(|p| p.home == me && p.wish.apart.is_some()) {
        p.not.extend(beside(members, p.pid, &p.wish).into_iter().filter(|place| place != me));
        let here = |m: &Member| m.wish.apart == p.wish.apart && m.place == me && m.pid < p.pid;
        p.crowded = members.iter().any(here);
    }
}

/// Makes one process of those that are to be together and are all here: what it would be to move them. Those whose others are elsewhere are
/// left out: they are gathered first. Not at a node that is to be `emptied`: there those that are here go, and are gathered where they went.
pub fn join(processes: Vec<Process>, members: &[Member], me: &str, emptied: bool) -> Vec<Process> {
    let mut places: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for m in members {
        if let Some(word) = &m.wish.together {
            places.entry(word).or_default().insert(&m.place);
        }
    }
    let mut joined: Vec<Process> = Vec::new();
    for p in processes {
        let word = p.wish.together.as_deref().filter(|_| p.home == me);
        if !emptied && word.is_some_and(|w| places.get(w).is_some_and(|all| all.len() > 1)) {
            continue;
        }
        match joined.iter_mut().find(|j| word.is_some() && j.home == me && j.wish.together.as_deref() == word) {
            Some(j) => {
                // What users say they need has no limit.
                j.demand_milli = j.demand_milli.saturating_add(p.demand_milli);
                j.resident = j.resident.saturating_add(p.resident);
                j.calls = j.calls.saturating_add(p.calls);
                j.cpu_ms = j.cpu_ms.max(p.cpu_ms);
                j.wish.memory = match (j.wish.memory, p.wish.memory) {
                    (None, None) => None,
                    (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
                };
                j.crowded |= p.crowded;
                j.not.extend(p.not);
                j.obstacle = j.obstacle.take().or(p.obstacle);
            }
            None => joined.push(p),
        }
    }
    joined
}

/// Who has to go where the one of its group is that was sent somewhere last. Who came home by itself, for exec or a call, leads nobody; who is not
/// to be moved stays, and so does for a while who has just come, perhaps by itself.
pub fn gather(members: &[Member], me: &str) -> Vec<(Key, String)> {
    let mut groups: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
    for m in members {
        if let Some(word) = &m.wish.together {
            groups.entry(word).or_default().push(m);
        }
    }
    let mut due = Vec::new();
    for group in groups.values() {
        let Some(last) = group.iter().filter(|m| m.since.is_some()).max_by_key(|m| m.since) else { continue };
        let stays = |m: &Member| m.wish.no_move || m.wish.home_only;
        let elsewhere = group.iter().filter(|m| m.place != last.place && m.rested && !stays(m));
        due.extend(elsewhere.map(|m| ((me.to_owned(), m.pid), last.place.clone())));
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn member(pid: u32, word: &str, place: &str) -> Member {
        let wish = Wish { apart: Some(word.into()), together: Some(word.into()), ..Wish::default() };
        Member { pid, wish, place: place.into(), since: None, rested: true }
    }

    fn process(m: &Member) -> Process {
        let wish = m.wish.clone();
        Process { home: "a".into(), pid: m.pid, demand_milli: 1000, resident: 5, wish, ..Process::default() }
    }

    #[test]
    fn who_is_to_be_apart_knows_where_the_others_are_and_all_but_one_leave() {
        let members = [member(1, "x", "a"), member(2, "x", "a"), member(3, "x", "b"), member(4, "y", "c")];
        let mut all: Vec<Process> = members.iter().filter(|m| m.place == "a").map(process).collect();
        part(&mut all, &members, "a");
        assert_eq!((&all[0].not, all[0].crowded), (&vec!["b".to_owned()], false));
        assert_eq!((&all[1].not, all[1].crowded), (&vec!["b".to_owned()], true));
    }

    #[test]
    fn who_is_to_be_together_counts_as_one_and_follows_the_last_that_moved() {
        let mut members = vec![member(1, "x", "a"), member(2, "x", "a"), member(3, "y", "a"), member(4, "y", "b")];
        let all: Vec<Process> = members.iter().filter(|m| m.place == "a").map(process).collect();
        let emptied: Vec<u32> = join(all.clone(), &members, "a", true).iter().map(|p| p.pid).collect();
        assert_eq!(emptied, [1, 3], "from a node that is emptied all go");
        let joined = join(all, &members, "a", false);
        assert_eq!(joined.len(), 1, "the other group is gathered first: {joined:?}");
        assert_eq!((joined[0].pid, joined[0].demand_milli, joined[0].resident), (1, 2000, 10));
        let greedy = |m: &Member| {
            let mut p = process(m);
            p.wish.memory = Some(u64::MAX);
            p
        };
        let all: Vec<Process> =
            members.iter().filter(|m| m.wish.together.as_deref() == Some("x")).map(greedy).collect();
        assert_eq!(join(all, &members, "a", false)[0].wish.memory, Some(u64::MAX));
        let now = Instant::now();
        members[3].since = Some(now);
        assert_eq!(gather(&members, "a"), [(("a".to_owned(), 3), "b".to_owned())]);
        members[2].since = Some(now + Duration::from_secs(1));
        assert_eq!(gather(&members, "a"), [(("a".to_owned(), 4), "a".to_owned())]);
        members[3].rested = false;
        assert_eq!(gather(&members, "a"), [], "it has just come there");
        assert_eq!(companions(&members, &members[0].wish), 2);
        assert_eq!(companions(&members, &Wish::default()), 0);
    }
}
