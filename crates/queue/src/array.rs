//! Sets of task numbers, and job arrays: `1-10:2%4`. A hundred thousand waiting tasks are a handful of ranges.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// Most tasks of an array.
pub const MOST_TASKS: u32 = 1_000_000;
/// Most parts of a list of task numbers, as it is written.
const MOST_PARTS: usize = 10_000;

/// Task numbers, as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub struct Tasks {
    /// First and last of each range; between two ranges at least one number is missing.
    ranges: BTreeMap<u32, u32>,
}

impl From<Vec<(u32, u32)>> for Tasks {
    fn from(ranges: Vec<(u32, u32)>) -> Tasks {
        let mut tasks = Tasks::default();
        ranges.into_iter().for_each(|(first, last)| tasks.insert_range(first, last));
        tasks
    }
}

impl From<Tasks> for Vec<(u32, u32)> {
    fn from(tasks: Tasks) -> Self {
        tasks.ranges.into_iter().collect()
    }
}

impl Tasks {
    /// One task.
    pub fn one(task: u32) -> Tasks {
        Tasks { ranges: BTreeMap::from([(task, task)]) }
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// So many.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// The smallest.
    pub fn first(&self) -> Option<u32> {
        self.ranges.keys().next().copied()
    }

    /// The largest.
    pub fn last(&self) -> Option<u32> {
        self.ranges.values().next_back().copied()
    }

    /// It is one of them.
    pub fn contains(&self, task: u32) -> bool {
        self.ranges.range(..=task).next_back().is_some_and(|(_, last)| *last >= task)
    }

    /// One more.
    pub fn insert(&mut self, task: u32) {
        self.insert_range(task, task);
    }

    /// All of a range.
    pub fn insert_range(&mut self, first: u32, last: u32) {
        if first > last {
            return;
        }
        let (mut first, mut last) = (first, last);
        // Those that touch it become one with it.
        while let Some((&f, &l)) = self.ranges.range(..=last.saturating_add(1)).next_back() {
            if l < first.saturating_sub(1) {
                break;
            }
            self.ranges.remove(&f);
            (first, last) = (first.min(f), last.max(l));
        }
        self.ranges.insert(first, last);
    }

    /// One less; it was there.
    pub fn remove(&mut self, task: u32) -> bool {
        let Some((&first, &last)) = self.ranges.range(..=task).next_back().filter(|(_, last)| **last >= task) else {
            return false;
        };
        self.ranges.remove(&first);
        if first < task {
            self.ranges.insert(first, task - 1);
        }
        if task < last {
            self.ranges.insert(task + 1, last);
        }
        true
    }

    /// Each of them, the smallest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Those that are in both.
    pub fn both(&self, other: &Tasks) -> Tasks {
        let mut both = Tasks::default();
        let (mut a, mut b) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        while let (Some((f1, l1)), Some((f2, l2))) = (a.peek(), b.peek()) {
            both.insert_range(**f1.max(f2), **l1.min(l2));
            if l1 <= l2 { _ = a.next() } else { _ = b.next() }
        }
        both
    }

    /// Those that are not in the other.
    pub fn without(&self, other: &Tasks) -> Tasks {
        let mut left = Tasks::default();
        for (&first, &last) in &self.ranges {
            let mut from = Some(first);
            let reaching = other.ranges.range(..=last).rev().take_while(|(_, l)| **l >= first);
            for (&f, &l) in reaching.collect::<Vec<_>>().into_iter().rev() {
                let Some(at) = from else { break };
                if f > at {
                    left.insert_range(at, f - 1);
                }
                from = l.checked_add(1).map(|next| next.max(at));
            }
            if let Some(at) = from {
                left.insert_range(at, last);
            }
        }
        left
    }

    /// How many of them are smaller; none if it is not one of them.
    pub fn position(&self, task: u32) -> Option<u64> {
        let mut before = 0;
        for (first, last) in &self.ranges {
            if task <= *last {
                return task.checked_sub(*first).map(|more| before + u64::from(more));
            }
            before += u64::from(last - first) + 1;
        }
        None
    }

    /// The one that so many are smaller than.
    pub fn nth(&self, position: u64) -> Option<u32> {
        let mut left = position;
        for (first, last) in &self.ranges {
            let all = u64::from(last - first) + 1;
            match u32::try_from(left) {
                Ok(more) if left < all => return Some(first + more),
                _ => left -= left.min(all),
            }
        }
        None
    }

    /// All of both.
    pub fn extend(&mut self, other: &Tasks) {
        other.ranges.iter().for_each(|(first, last)| self.insert_range(*first, *last));
    }
}

impl Display for Tasks {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// What `--array` says: which tasks, and how many of them may run at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// Their numbers.
    pub tasks: Tasks,
    /// `%4`: so many at a time.
    pub at_once: Option<u32>,
    /// Each task has a job's number of its own: the first one the array's, and so on upwards. The queue sets those numbers aside when it takes the
    /// array; those of earlier versions have none.
    #[serde(default)]
    pub numbered: bool,
}

impl Array {
    /// Reads `1-10:2%4`, `1,3,7-9`.
    pub fn read(text: &str) -> Result<Array, String> {
        let wrong = |why: &str| format!("`{text}` is not an array of tasks ({why}): say 0-9, 1-10:2%4 or 1,3,7");
        let (list, at_once) = match text.trim().split_once('%') {
            Some((list, most)) => {
                let most =
                    most.parse().ok().filter(|m| *m > 0).ok_or_else(|| wrong("a number of 1 or more follows %"))?;
                (list, Some(most))
            }
            None => (text.trim(), None),
        };
        let number = |t: &str| match t.bytes().all(|b| b.is_ascii_digit()) {
            true => {
                t.parse::<u32>().ok().filter(|n| *n < u32::MAX).ok_or_else(|| wrong("a number is missing or too large"))
            }
            false => Err(wrong("there is something that is no number")),
        };
        let (mut tasks, mut count) = (Tasks::default(), 0u64);
        for (i, part) in list.split(',').enumerate() {
            if i >= MOST_PARTS {
                return Err(wrong("too many parts"));
            }
            let (range, step) = part.split_once(':').map_or((part, Ok(1)), |(range, step)| (range, number(step)));
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(range)?, number(range)?),
            };
            let step = step?;
            if step == 0 || first > last {
                return Err(wrong("a range goes upwards, by 1 or more"));
            }
            count += u64::from((last - first) / step) + 1;
            if count > u64::from(MOST_TASKS) {
                return Err(wrong(&format!("an array has {MOST_TASKS} tasks at most")));
            }
            match step {
                1 => tasks.insert_range(first, last),
                _ => (first..=last).step_by(step as usize).for_each(|t| tasks.insert(t)),
            }
        }
        Ok(Array { tasks, at_once, numbered: false })
    }
}

impl Display for Array {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tasks)?;
        self.at_once.map_or(Ok(()), |most| write!(f, "%{most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;
    use std::collections::BTreeSet;

    #[test]
    fn as_slurm_writes_them() {
        let all = |text: &str| Array::read(text).unwrap().tasks.iter().collect::<Vec<_>>();
        assert_eq!(all("1-10:2%4"), [1, 3, 5, 7, 9]);
        assert_eq!(all("1,3,7-9"), [1, 3, 7, 8, 9]);
        assert_eq!(Array::read("1-10:2%4").unwrap().at_once, Some(4));
        assert_eq!(Array::read("0-99999").unwrap().tasks.len(), 100_000);
        assert_eq!(Array::read("5,0-3%2").unwrap().to_string(), "0-3,5%2");
        for wrong in ["", "a", "3-1", "1-5:0", "1-5%0", "1,,2", "-3", "0-4294967294", "4294967295", "1-", "+1", "1%"] {
            assert!(Array::read(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn sets_are_as_sets_of_numbers() {
        check!().with_type::<(Vec<(u8, u8)>, Vec<(u8, u8)>)>().for_each(|(a, b)| {
            let made = |of: &Vec<(u8, u8)>| {
                let (mut tasks, mut plain) = (Tasks::default(), BTreeSet::new());
                for (x, y) in of {
                    let (first, last) = (u32::from(*x), u32::from(*x) + u32::from(*y % 16));
                    if y & 128 == 0 {
                        tasks.insert_range(first, last);
                        plain.extend(first..=last);
                    } else {
                        assert_eq!(tasks.remove(first), plain.remove(&first));
                    }
                }
                (tasks, plain)
            };
            let ((a, plain_a), (b, plain_b)) = (made(a), made(b));
            assert_eq!(a.iter().collect::<Vec<_>>(), plain_a.iter().copied().collect::<Vec<_>>());
            assert_eq!(a.len(), plain_a.len() as u64);
            for (at, task) in plain_a.iter().enumerate() {
                assert_eq!((a.nth(at as u64), a.position(*task)), (Some(*task), Some(at as u64)));
            }
            assert_eq!(a.nth(plain_a.len() as u64), None);
            assert!((0..300).all(|t| a.position(t).is_some() == plain_a.contains(&t)));
            assert!((0..300).all(|t| a.contains(t) == plain_a.contains(&t)));
            assert_eq!(a.both(&b).iter().collect::<BTreeSet<_>>(), &plain_a & &plain_b);
            assert_eq!(a.without(&b).iter().collect::<BTreeSet<_>>(), &plain_a - &plain_b);
            let mut all = a.clone();
            all.extend(&b);
            assert_eq!(all.iter().collect::<BTreeSet<_>>(), &plain_a | &plain_b);
            assert_eq!(all, Tasks::from(all.iter().map(|t| (t, t)).collect::<Vec<_>>()), "one form only");
            if !all.is_empty() {
                assert_eq!(Array::read(&all.to_string()).unwrap().tasks, all);
            }
            assert_eq!(postcard::from_bytes::<Tasks>(&postcard::to_stdvec(&all).unwrap()).unwrap(), all);
        });
        check!().with_type::<String>().for_each(|text| _ = Array::read(text));
    }
}
