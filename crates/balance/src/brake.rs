//! Who takes memory fastest stands still for a moment when a node is nearly out of it and help is on its way. A program can take memory
//! faster than another one can leave with its own: without this the kernel would swap, or kill one of them, a second too early.

use crate::{Settings, Vector};

/// When help may have come, parts of a second.
const AHEAD: u64 = 2;
/// What must be free then, parts of what is to be kept: below the first somebody is held, above the second all go on.
const OUT: u64 = 4;
const ENOUGH: u64 = 2;
/// The others may take this part of what is free in a second.
const REST: u64 = 4;
/// Nobody stands still for longer than this, and then not again for as long, milliseconds: help that does not come is none.
const LONGEST_MS: u64 = 10_000;
/// Who takes less than this is not what it is about, bytes a second.
const LEAST: u64 = 1 << 20;

/// A process here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taker {
    /// Bytes that it takes in a second, or took when it was last seen running.
    pub takes: u64,
    /// For so long it has stood still, milliseconds; none: it runs.
    pub still_ms: Option<u64>,
    /// Since it last stood still, milliseconds, if it did.
    pub rested_ms: Option<u64>,
}

/// Who is to stand still until this is asked again, as places in `takers`. `helped`: memory is about to be free, because something is on
/// its way out. Without that nobody waits for anything.
pub fn brake(here: &Vector, takers: &[Taker], helped: bool, settings: &Settings) -> Vec<usize> {
    let is_on = takers.iter().any(|t| t.still_ms.is_some());
    let parts = if is_on { ENOUGH } else { OUT };
    let then = here.free.saturating_sub(here.falling / AHEAD);
    if !helped || then >= settings.to_keep(here) / parts {
        return Vec::new();
    }
    let may = |t: &Taker| match t.still_ms {
        Some(ms) => ms < LONGEST_MS,
        None => t.takes >= LEAST && t.rested_ms.is_none_or(|ms| ms >= LONGEST_MS),
    };
    let mut fastest: Vec<usize> = (0..takers.len()).collect();
    fastest.sort_by_key(|&i| (takers[i].still_ms.is_none(), std::cmp::Reverse(takers[i].takes)));
    let mut goes_on: u64 = takers.iter().map(|t| t.takes).sum();
    let mut held = Vec::new();
    for i in fastest {
        let t = &takers[i];
        if may(t) && (t.still_ms.is_some() || goes_on > here.free / REST) {
            held.push(i);
            goes_on = goes_on.saturating_sub(t.takes);
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::{TypeGenerator, check};

    const MB: u64 = 1 << 20;

    /// 100 MB are to be kept.
    fn node(free: u64, falling: u64) -> Vector {
        Vector { memory: 1000 * MB, free: free * MB, falling: falling * MB, ..Vector::default() }
    }

    fn takes(megabytes: u64) -> Taker {
        Taker { takes: megabytes * MB, ..Taker::default() }
    }

    fn held(here: Vector, takers: &[Taker]) -> Vec<usize> {
        brake(&here, takers, true, &Settings { free_least: 0, ..Settings::default() })
    }

    #[test]
    fn the_fastest_wait_when_it_is_nearly_gone() {
        let all = [takes(2), takes(200), takes(100)];
        assert_eq!(held(node(180, 302), &all), [], "there is time");
        assert_eq!(held(node(175, 302), &all), [1, 2]);
        assert_eq!(held(node(175, 102), &[takes(2), takes(100)]), [], "125 MB in half a second");
        assert_eq!(held(node(20, 0), &[takes(2), takes(2)]), [], "what they take lasts for five seconds");
        assert_eq!(
            brake(&node(20, 300), &all, false, &Settings::default()),
            [],
            "nothing leaves: waiting would not help"
        );
    }

    #[test]
    fn who_waits_goes_on_when_there_is_memory_again_or_help_does_not_come() {
        let still = |ms| Taker { still_ms: Some(ms), ..takes(200) };
        assert_eq!(held(node(40, 0), &[still(500), takes(1)]), [0], "not enough yet");
        assert_eq!(held(node(50, 0), &[still(500), takes(1)]), []);
        assert_eq!(held(node(40, 0), &[still(LONGEST_MS)]), []);
        let rested = |ms| Taker { rested_ms: Some(ms), ..takes(200) };
        assert_eq!(
            (held(node(20, 0), &[rested(LONGEST_MS - 1)]), held(node(20, 0), &[rested(LONGEST_MS)])),
            (vec![], vec![0])
        );
    }

    #[derive(Debug, TypeGenerator)]
    struct Any {
        free: u16,
        falling: u16,
        helped: bool,
        takers: Vec<(u16, Option<u16>, Option<u16>)>,
    }

    #[test]
    fn nobody_waits_in_vain_and_what_goes_on_takes_little() {
        check!().with_type::<Any>().for_each(|any| {
            let ms = |ms: Option<u16>| ms.map(u64::from);
            let taker = |&(rate, still, rested): &(u16, Option<u16>, Option<u16>)| Taker {
                still_ms: ms(still),
                rested_ms: ms(rested),
                ..takes(rate.into())
            };
            let all: Vec<Taker> = any.takers.iter().map(taker).collect();
            let here = node(any.free.into(), any.falling.into());
            let held = brake(&here, &all, any.helped, &Settings::default());
            assert!(any.helped || held.is_empty());
            assert!(held.iter().all(|&i| all[i].still_ms.is_none_or(|ms| ms < LONGEST_MS)), "{held:?}");
            // Whoever may be held and takes much is, or what all the others take lasts.
            let free = |i: &usize| all[*i].still_ms.is_none() && all[*i].rested_ms.is_none() && all[*i].takes >= LEAST;
            let runs = || (0..all.len()).filter(|i| !held.contains(i));
            let rest: u64 = runs().map(|i| all[i].takes).sum();
            assert!(held.is_empty() || rest <= here.free / REST || !runs().any(|i| free(&i)), "{held:?}");
        });
    }
}
