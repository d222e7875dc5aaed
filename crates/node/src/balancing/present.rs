//! Who runs here, and how many threads of theirs want to: whoever comes or goes changes the load at once, and not only when that is measured.

use super::facts::Key;
use std::collections::BTreeMap;

/// What is known since the last look, and what has come and gone since the load was measured. Threads are in thousandths.
#[derive(Debug, Default)]
pub struct Present {
    all: BTreeMap<Key, u32>,
    come: i64,
    gone: i64,
}

impl Present {
    /// It was looked who is here. Those on their way are not found, and are here until they have left.
    pub fn looked(&mut self, found: impl Iterator<Item = (Key, u32)>, on_their_way: impl Fn(&Key) -> bool) {
        self.all.retain(|key, _| on_their_way(key));
        self.all.extend(found);
    }

    /// So much has come.
    pub fn came(&mut self, milli: u32) {
        self.come += i64::from(milli);
    }

    /// It has ended, or is elsewhere now. Said twice it counts once.
    pub fn left(&mut self, key: &Key) {
        self.gone += self.all.remove(key).map_or(0, i64::from);
    }

    /// All of them.
    pub fn keys(&self) -> Vec<Key> {
        self.all.keys().cloned().collect()
    }

    /// What has come, and what has gone, since the last time that this was asked.
    pub fn take(&mut self) -> (i64, i64) {
        (std::mem::take(&mut self.come), std::mem::take(&mut self.gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pid: u32) -> Key {
        ("n1".into(), pid)
    }

    #[test]
    fn who_leaves_counts_once_however_long_it_takes() {
        let mut present = Present::default();
        present.looked([(key(1), 1000), (key(2), 500), (key(3), 2000)].into_iter(), |_| false);
        // The first one is on its way while it is looked again; the third one has not been found and is not.
        present.looked([(key(2), 700)].into_iter(), |k| *k == key(1));
        assert_eq!(present.keys(), [key(1), key(2)]);
        present.left(&key(1));
        present.left(&key(1));
        present.left(&key(3));
        assert_eq!((present.take(), present.take()), ((0, 1000), (0, 0)));
        present.came(300);
        present.left(&key(2));
        assert_eq!(present.take(), (300, 700));
    }
}
