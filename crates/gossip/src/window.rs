//! A bounded window of the newest that is known of others, with ages.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What somebody says about a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct News<K, V> {
    /// Of whom.
    pub who: K,
    /// Which life of that node: a later one has a higher number.
    pub life: u64,
    /// Counts up in a life.
    pub number: u64,
    /// How old it was when it was sent, milliseconds.
    pub age_ms: u64,
    /// Its load.
    pub load: V,
}

/// An entry of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<V> {
    life: u64,
    number: u64,
    /// When it was true, by the clock here, which may have begun later.
    born_ms: i64,
    /// What was said.
    pub load: V,
}

impl<V> Entry<V> {
    /// Milliseconds since it was true.
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        u64::try_from((now_ms as i64).saturating_sub(self.born_ms)).unwrap_or(0)
    }
}

/// The window.
#[derive(Debug)]
pub struct Window<K, V> {
    room: usize,
    entries: BTreeMap<K, Entry<V>>,
}

impl<K: Ord + Clone, V: Clone> Window<K, V> {
    /// For at most so many.
    pub fn new(room: usize) -> Self {
        Window { room, entries: BTreeMap::new() }
    }

    /// Takes what was said if it is newer than what is known; the oldest entry goes when there is no room. Says whether it stays.
    pub fn hear(&mut self, now_ms: u64, news: News<K, V>) -> bool {
        let new = Entry {
            life: news.life,
            number: news.number,
            born_ms: (now_ms as i64).saturating_sub_unsigned(news.age_ms),
            load: news.load,
        };
        match self.entries.get_mut(&news.who) {
            Some(old) if (old.life, old.number) >= (new.life, new.number) => return false,
            Some(old) => *old = new,
            None => {
                self.entries.insert(news.who.clone(), new);
            }
        }
        if self.entries.len() > self.room
            && let Some(oldest) = self.entries.iter().min_by_key(|(_, e)| e.born_ms).map(|(who, _)| who.clone())
        {
            self.entries.remove(&oldest);
            return oldest != news.who;
        }
        true
    }

    /// Newest first; of one age by name.
    fn by_age(&self) -> Vec<(&K, &Entry<V>)> {
        let mut all: Vec<(&K, &Entry<V>)> = self.entries.iter().collect();
        all.sort_by(|a, b| b.1.born_ms.cmp(&a.1.born_ms).then_with(|| a.0.cmp(b.0)));
        all
    }

    /// The newest entries, as they are told to others.
    pub fn newest(&self, now_ms: u64, most: usize) -> Vec<News<K, V>> {
        let news = |(who, e): (&K, &Entry<V>)| News {
            who: who.clone(),
            life: e.life,
            number: e.number,
            age_ms: e.age_ms(now_ms),
            load: e.load.clone(),
        };
        self.by_age().into_iter().take(most).map(news).collect()
    }

    /// What is known of one.
    pub fn get(&self, who: &K) -> Option<&Entry<V>> {
        self.entries.get(who)
    }

    /// The same, to note there what was done about it meanwhile.
    pub fn get_mut(&mut self, who: &K) -> Option<&mut Entry<V>> {
        self.entries.get_mut(who)
    }

    /// It is gone.
    pub fn forget(&mut self, who: &K) {
        self.entries.remove(who);
    }

    /// Forgets what is older than that.
    pub fn age(&mut self, now_ms: u64, oldest_ms: u64) {
        self.entries.retain(|_, e| e.age_ms(now_ms) <= oldest_ms);
    }

    /// All, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Entry<V>)> {
        self.entries.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::{TypeGenerator, check};

    fn news(who: u8, life: u64, number: u64, age_ms: u64) -> News<u8, u64> {
        News { who, life, number, age_ms, load: number }
    }

    #[test]
    fn the_newest_word_wins_and_the_oldest_entry_goes() {
        let mut w = Window::new(2);
        assert!(w.hear(100, news(1, 1, 5, 10)));
        assert!(!w.hear(100, news(1, 1, 5, 0)), "the same again");
        assert!(!w.hear(100, news(1, 1, 4, 0)));
        assert!(w.hear(100, news(1, 2, 1, 20)), "a later life");
        assert!(w.hear(100, news(2, 1, 1, 50)));
        assert!(w.hear(100, news(3, 1, 1, 30)));
        assert_eq!(w.iter().map(|(k, e)| (*k, e.age_ms(100))).collect::<Vec<_>>(), [(1, 20), (3, 30)]);
        assert!(!w.hear(100, news(4, 1, 1, 90)), "older than all there are");
        let mut young = Window::new(2);
        young.hear(100, news(1, 1, 1, 5_000));
        assert_eq!(young.get(&1).map(|e| e.age_ms(100)), Some(5_000), "older than the clock here");
        w.age(150, 75);
        assert_eq!(w.iter().map(|(k, _)| *k).collect::<Vec<_>>(), [1]);
    }

    #[derive(Debug, TypeGenerator)]
    struct Heard {
        at: u8,
        who: u8,
        life: u8,
        number: u8,
        age: u64,
    }

    /// Whatever comes: never more than there is room for, never an older word after a newer one, newest first.
    #[test]
    fn any_news() {
        check!().with_type::<Vec<Heard>>().for_each(|all| {
            let (mut w, mut now) = (Window::new(4), 0);
            for h in all {
                now += u64::from(h.at);
                let (who, life, number) = (h.who % 8, u64::from(h.life % 3), u64::from(h.number));
                let before = w.get(&who).map(|e| (e.life, e.number));
                w.hear(now, news(who, life, number, h.age));
                if let (Some(before), Some(after)) = (before, w.get(&who)) {
                    assert!(before <= (after.life, after.number));
                }
                assert!(w.len() <= 4);
                let told = w.newest(now, 3);
                assert!(told.windows(2).all(|p| p[0].age_ms <= p[1].age_ms));
            }
        });
    }
}
