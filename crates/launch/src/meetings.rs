//! Barriers of some of a job's ranks, on several nodes (PMIx's fences of a part of a job, and its connect): the launchers of their nodes come, and when
//! the last of them is there all hear what each has said.

use crate::message::{Asker, Said};
use crate::order::Order;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};

/// Most barriers at once, and bytes of what is said at one, and at all.
const MOST: usize = 4096;
const MOST_SAID: usize = 4 << 20;
const MOST_ALL: usize = 16 << 20;

/// What came of it: who is told, and what each place has said. The error is for people.
pub type Come = Result<Option<(Vec<Asker>, Vec<Said>)>, String>;

#[derive(Debug, Default)]
struct Meeting {
    here: BTreeMap<u32, Asker>,
    said: Vec<Said>,
    bytes: usize,
}

/// See above.
#[derive(Debug, Default)]
pub struct Meetings(BTreeMap<Vec<u32>, Meeting>);

impl Meetings {
    /// Those of these ranks that run at the asker's place have come together. Nothing, as long as others are missing.
    pub fn come(&mut self, order: &Order, asker: Asker, mut ranks: Vec<u32>, said: ByteBuf) -> Come {
        ranks.sort_unstable();
        ranks.dedup();
        let places: Option<BTreeSet<u32>> = ranks.iter().map(|rank| order.place_of(*rank)).collect();
        let places = places.ok_or("a barrier of ranks that there are not")?;
        if !places.contains(&asker.place) {
            return Err("a barrier of others".into());
        }
        let bytes: usize = self.0.values().map(|meeting| meeting.bytes).sum();
        if self.0.len() >= MOST || bytes + said.len() > MOST_ALL {
            return Err("too many barriers at once".into());
        }
        let meeting = self.0.entry(ranks.clone()).or_default();
        if meeting.bytes + said.len() > MOST_SAID {
            return Err(format!("ranks say more than {} MB at a barrier", MOST_SAID >> 20));
        }
        // The first one of a place is told: it waits.
        if meeting.here.contains_key(&asker.place) {
            return Err("it came to a barrier twice".into());
        }
        meeting.here.insert(asker.place, asker);
        meeting.bytes += said.len();
        meeting.said.push((asker.place.to_string(), said));
        if meeting.here.len() < places.len() {
            return Ok(None);
        }
        let met = self.0.remove(&ranks).unwrap_or_default();
        Ok(Some((met.here.into_values().collect(), met.said)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::tests::order;
    use bolero::check;

    fn asker(place: u32, number: u64) -> Asker {
        Asker { place, rank: place * 2, number }
    }

    #[test]
    fn the_last_one_that_comes_ends_the_waiting() {
        let (order, mut meetings) = (order(4, 2, 2, true), Meetings::default());
        let said = |text: &str| ByteBuf::from(text);
        assert_eq!(meetings.come(&order, asker(1, 7), vec![2, 3, 6], said("a")), Ok(None));
        assert_eq!(meetings.come(&order, asker(1, 8), vec![3, 6], said("other")), Ok(None), "that is another one");
        assert!(meetings.come(&order, asker(1, 9), vec![2, 3, 6], said("b")).is_err());
        let Ok(Some((who, all))) = meetings.come(&order, asker(3, 1), vec![6, 3, 2, 2], said("c")) else { panic!() };
        assert_eq!(who.iter().map(|a| a.place).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(all, [("1".to_owned(), said("a")), ("3".to_owned(), said("c"))]);
        assert_eq!(meetings.0.len(), 1);
    }

    #[test]
    fn nobody_meets_for_others_or_with_nobody() {
        let (order, mut meetings) = (order(4, 2, 2, true), Meetings::default());
        for ranks in [vec![], vec![2], vec![0, 8]] {
            assert!(meetings.come(&order, asker(0, 1), ranks, ByteBuf::new()).is_err());
        }
        let large = ByteBuf::from(vec![0; MOST_SAID + 1]);
        assert!(meetings.come(&order, asker(0, 1), vec![0, 2], large).is_err());
    }

    #[test]
    fn whoever_is_told_had_come() {
        check!().with_type::<Vec<(u8, Vec<u8>)>>().for_each(|steps| {
            let (order, mut meetings) = (order(4, 2, 2, true), Meetings::default());
            let mut waits: BTreeSet<(u32, u64)> = BTreeSet::new();
            for (number, (place, ranks)) in steps.iter().enumerate() {
                let who = asker(u32::from(*place) % 4, number as u64);
                let ranks = ranks.iter().map(|rank| u32::from(*rank) % 9).collect();
                match meetings.come(&order, who, ranks, ByteBuf::new()) {
                    Ok(None) => _ = waits.insert((who.place, who.number)),
                    Ok(Some((told, said))) => {
                        assert_eq!(told.len(), said.len());
                        waits.insert((who.place, who.number));
                        told.iter().for_each(|a| assert!(waits.remove(&(a.place, a.number))));
                    }
                    Err(_) => {}
                }
            }
        });
    }
}
