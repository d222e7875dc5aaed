//! What another node sends may be anything.

use crate::{Gossip, Identity, News, Said, Settings};
use bolero::check;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Peer(String, u64);

impl Identity for Peer {
    type Addr = String;

    fn renew(&self) -> Option<Self> {
        Some(Peer(self.0.clone(), self.1 + 1))
    }

    fn addr(&self) -> String {
        self.0.clone()
    }

    fn win_addr_conflict(&self, other: &Self) -> bool {
        self.1 > other.1
    }
}

fn peer(name: &str) -> Peer {
    Peer(name.into(), 1)
}

fn gossip(name: &str) -> Gossip<Peer, u32> {
    Gossip::new(peer(name), 1, Settings { members: 8, ..Settings::default() }, 7, 0)
}

/// No bytes make it panic, speak for another one, or remember more than it may.
#[test]
fn any_packet() {
    check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(first, second)| {
        let mut g = gossip("a");
        for (at, bytes) in [(10, first), (2000, second)] {
            let _ = g.receive(at, &"b".to_owned(), Said::Swim(bytes.clone()));
            g.tick(at + 500);
        }
        assert!(g.members().len() <= 8);
    });
}

/// The same for packets that made sense before a byte of them changed.
#[test]
fn nearly_good_packets() {
    let mut b = gossip("b");
    let mut packets = Vec::new();
    b.know(0, vec![peer("a"), peer("c"), peer("d")]);
    for at in 0..40 {
        for effect in b.tick(at * 100) {
            if let crate::Effect::Send(_, Said::Swim(bytes)) = effect {
                packets.push(bytes);
            }
        }
    }
    assert!(packets.len() > 10);
    check!().with_type::<Vec<(u8, u16, u8)>>().for_each(|changes| {
        let mut g = gossip("a");
        for (i, (which, at, to)) in (0..).zip(changes) {
            let mut bytes = packets[usize::from(*which) % packets.len()].clone();
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *to;
            let _ = g.receive(i * 100, &"b".to_owned(), Said::Swim(bytes));
            g.tick(i * 100 + 50);
            assert!(g.members().len() <= 8);
        }
    });
}

#[test]
fn nobody_speaks_for_another_one_and_nobody_floods() {
    let mut b = gossip("b");
    let said = b.join(0, vec![peer("a")]).into_iter().find_map(|e| match e {
        crate::Effect::Send(_, said) => Some(said),
        _ => None,
    });
    let said = said.unwrap();
    assert!(gossip("a").receive(1, &"c".to_owned(), said.clone()).is_err());
    assert!(gossip("a").receive(1, &"b".to_owned(), said).is_ok());
    let news = |who: usize| News { who: who.to_string(), life: 1, number: 1, age_ms: 0, load: 1 };
    assert!(gossip("a").receive(1, &"b".to_owned(), Said::Loads((0..1000).map(news).collect())).is_err());
    let mut a = gossip("a");
    let old = News { age_ms: u64::MAX, ..news(3) };
    a.receive(1, &"b".to_owned(), Said::Loads(vec![old, news(4), news(5)])).unwrap();
    assert_eq!(a.window().len(), 2);
}

/// Gossip among some, without loss.
fn gossip_among(
    all: &mut [Gossip<Peer, u32>],
    from_ms: u64,
    to_ms: u64,
    mut on_the_way: Vec<(String, crate::Effect<Peer, String, u32>)>,
) {
    for at in (from_ms..to_ms).step_by(10) {
        for g in all.iter_mut() {
            let me = g.me().0.clone();
            on_the_way.extend(g.tick(at).into_iter().map(|e| (me.clone(), e)));
        }
        while let Some((from, effect)) = on_the_way.pop() {
            let crate::Effect::Send(to, said) = effect else { continue };
            assert_ne!(from, to.0, "a word to oneself");
            if let Some(g) = all.iter_mut().find(|g| g.me().0 == to.0) {
                let effects = g.receive(at, &from, said).unwrap();
                on_the_way.extend(effects.into_iter().map(|e| (to.0.clone(), e)));
            }
        }
    }
}

/// All take each other for dead at a time and come back under new names, which nobody knows.
#[test]
fn all_who_come_back_at_a_time_find_each_other() {
    let mut all: Vec<_> = ["a", "b", "c"].map(gossip).into();
    for g in &mut all {
        g.know(0, ["a", "b", "c"].iter().filter(|n| **n != g.me().0).map(|n| peer(n)).collect());
    }
    gossip_among(&mut all, 0, 5_000, Vec::new());
    let mut first = Vec::new();
    // Each hears that it is dead, and knows the others by the names that these have just given up.
    for g in &mut all {
        let me = g.me().clone();
        let them: Vec<Peer> = ["a", "b", "c"].iter().filter(|n| **n != me.0).map(|n| peer(n)).collect();
        let mut other =
            Gossip::<Peer, u32>::new(them[0].clone(), 1, Settings { members: 8, ..Settings::default() }, 9, 5_000);
        other.know(5_000, vec![me.clone()]);
        let mut said = Vec::new();
        for at in (5_000..60_000).step_by(100) {
            said.extend(other.tick(at));
        }
        // The last word to one that is taken for dead.
        let last = said.into_iter().rev().find_map(|e| match e {
            crate::Effect::Send(to, said @ Said::Swim(_)) if to == me => Some(said),
            _ => None,
        });
        let effects = g.receive(5_000, &them[0].0, last.unwrap()).unwrap();
        assert!(effects.iter().any(|e| matches!(e, crate::Effect::Rejoined(_))), "{effects:?}");
        first.extend(effects.into_iter().map(|e| (me.0.clone(), e)));
    }
    gossip_among(&mut all, 5_010, 60_000, first);
    let names: Vec<Peer> = all.iter().map(|g| g.me().clone()).collect();
    assert!(names.iter().all(|n| n.1 > 1), "{names:?}");
    for g in &all {
        let live: Vec<_> = g.members().filter(|m| m.1 != crate::State::Down).map(|m| m.0.clone()).collect();
        assert!(names.iter().all(|n| n == g.me() || live.contains(n)), "{:?} knows {live:?}", g.me());
    }
}
