//! Who moves where: the first, simple rule. Pure, so that it can be tested and watched.
//!
//! The most loaded home's process that has moved least, the longest-running of these, goes to the node with the fewest processes, as long as that
//! makes the two more equal.

use std::cmp::Reverse;
use std::time::Duration;

/// A running process, as the rule sees it. Nodes are numbers from 0.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which one.
    pub id: usize,
    /// Where it started.
    pub home: usize,
    /// Where it is.
    pub place: usize,
    /// How long it has been running.
    pub age: Duration,
    /// How long it has been where it is.
    pub stay: Duration,
    /// How often it has moved: who has not yet goes first, so that each is seen to.
    pub moves: usize,
    /// It cannot move now: it is moving, or it was refused.
    pub fixed: bool,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Which task.
    pub id: usize,
    /// From where.
    pub from: usize,
    /// To where.
    pub to: usize,
}

/// A process must have run this long before it is worth a move, and stay this long where it came to.
pub const SETTLE: Duration = Duration::from_millis(300);

/// The next move, or none when all is well. Equal nodes are taken from `first` on, in a circle, so that a second
/// round does not go the way of the first.
pub fn next(nodes: usize, tasks: &[Task], first: usize) -> Option<Decision> {
    let load = |node: usize| tasks.iter().filter(|t| t.place == node).count();
    let circle = (0..nodes).map(|i| (first + i) % nodes);
    let to = circle.min_by_key(|n| load(*n))?;
    let movable = |t: &&Task| !t.fixed && t.place == t.home && t.age >= SETTLE && t.stay >= SETTLE;
    // The lowest number wins among equals: max_by_key takes the last of them, so the order is reversed.
    let from = (0..nodes).rev().filter(|n| tasks.iter().any(|t| t.home == *n && movable(&t)));
    let from = from.max_by_key(|n| load(*n))?;
    if load(from) < load(to) + 2 {
        return None;
    }
    let oldest =
        tasks.iter().rev().filter(movable).filter(|t| t.home == from).max_by_key(|t| (Reverse(t.moves), t.age))?;
    Some(Decision { id: oldest.id, from, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(places: &[usize]) -> Vec<Task> {
        let task = |(id, place): (usize, &usize)| Task {
            id,
            home: 0,
            place: *place,
            age: Duration::from_secs(10 - id as u64),
            stay: Duration::from_secs(1),
            moves: 0,
            fixed: false,
        };
        places.iter().enumerate().map(task).collect()
    }

    #[test]
    fn the_oldest_goes_to_the_emptiest() {
        assert_eq!(next(3, &tasks(&[0, 0, 0, 1]), 0), Some(Decision { id: 0, from: 0, to: 2 }));
    }

    #[test]
    fn it_ends_and_ends_even() {
        let mut all = tasks(&[0; 8]);
        let mut moves = 0;
        while let Some(step) = next(4, &all, 0) {
            all[step.id].place = step.to;
            moves += 1;
            assert!(moves < 20, "it must come to an end");
        }
        for node in 0..4 {
            assert_eq!(all.iter().filter(|t| t.place == node).count(), 2);
        }
    }

    #[test]
    fn who_has_not_moved_yet_goes_first() {
        let mut all = tasks(&[0, 0, 0]);
        (all[0].moves, all[1].moves) = (2, 1);
        assert_eq!(next(2, &all, 0).map(|d| d.id), Some(2));
    }

    #[test]
    fn nobody_moves_for_nothing() {
        assert_eq!(next(2, &tasks(&[0, 1]), 0), None);
        assert_eq!(next(2, &tasks(&[0]), 0), None);
        assert_eq!(next(2, &tasks(&[0, 0, 1]), 0), None);
        assert_eq!(next(2, &[], 0), None);
    }

    #[test]
    fn the_young_the_settling_and_the_fixed_stay() {
        let mut all = tasks(&[0, 0, 0]);
        all[0].fixed = true;
        all[1].stay = Duration::ZERO;
        assert_eq!(next(2, &all, 0).map(|d| d.id), Some(2));
        all[2].age = Duration::ZERO;
        assert_eq!(next(2, &all, 0), None);
    }

    #[test]
    fn a_second_round_takes_another_way() {
        assert_eq!(next(4, &tasks(&[0; 4]), 2).map(|d| d.to), Some(2));
        assert_eq!(next(4, &tasks(&[0; 4]), 0).map(|d| d.to), Some(1));
    }
}
