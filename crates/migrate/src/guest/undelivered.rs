//! Signals on their way to a guest thread. There may be a hundred thousand, so nothing that happens at each signal or call looks through them.

use pando_kernel::signal::{self, SigInfo};
use std::collections::{BTreeMap, VecDeque};

/// How many there are of each number.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    of: [u32; 65],
    /// The numbers of which there are any, as a mask.
    mask: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Counts { of: [0; 65], mask: 0 }
    }
}

impl Counts {
    /// One more.
    pub fn add(&mut self, number: i32) {
        self.of[number as usize] += 1;
        self.mask |= signal::bit(number);
    }

    /// One less.
    pub fn remove(&mut self, number: i32) {
        let count = &mut self.of[number as usize];
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.mask &= !signal::bit(number);
        }
    }

    /// The numbers of which there are any, as a mask.
    pub fn numbers(&self) -> u64 {
        self.mask
    }

    /// The lowest number there is: what the kernel would deliver first.
    pub fn lowest(&self) -> Option<i32> {
        (self.mask != 0).then(|| self.mask.trailing_zeros() as i32 + 1)
    }
}

/// Signals with their siginfo, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undelivered {
    queue: VecDeque<SigInfo>,
    counts: Counts,
    /// Timers whose signal waits here, with how often they have expired since beyond what that signal says.
    timers: BTreeMap<(i32, i32), u32>,
}

impl Undelivered {
    /// One more. Its number must be a signal's.
    pub fn push(&mut self, info: SigInfo) {
        self.counts.add(signal::number(&info));
        if let Some((timer, _)) = signal::of_timer(&info) {
            self.timers.entry((signal::number(&info), timer)).or_default();
        }
        self.queue.push_back(info);
    }

    /// A timer has one signal that waits, however often it expires; the others are that one's overrun (timer_getoverrun(2)). Home's
    /// kernel, which has handed the first one over, makes another. True: it is counted with the one that waits here.
    pub fn overruns(&mut self, info: &SigInfo) -> bool {
        let Some((timer, missed)) = signal::of_timer(info) else { return false };
        let Some(more) = self.timers.get_mut(&(signal::number(info), timer)) else { return false };
        *more = more.saturating_add(missed).saturating_add(1);
        true
    }

    /// The oldest of this number.
    pub fn take(&mut self, number: i32) -> Option<SigInfo> {
        if !self.has(number) {
            return None;
        }
        let at = self.queue.iter().position(|i| signal::number(i) == number)?;
        self.counts.remove(number);
        let mut info = self.queue.remove(at)?;
        if let Some((timer, missed)) = signal::of_timer(&info)
            && let Some(more) = self.timers.remove(&(number, timer))
        {
            signal::set_overrun(&mut info, missed.saturating_add(more));
        }
        Some(info)
    }

    /// Is there one of this number?
    pub fn has(&self, number: i32) -> bool {
        self.counts.numbers() & signal::bit(number) != 0
    }

    /// The numbers of which there are any, as a mask.
    pub fn numbers(&self) -> u64 {
        self.counts.numbers()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &SigInfo> {
        self.queue.iter()
    }

    /// Forgets those whose numbers are not in the mask.
    pub fn keep(&mut self, numbers: u64) {
        if self.numbers() & !numbers == 0 {
            return;
        }
        self.queue.retain(|i| signal::bit(signal::number(i)) & numbers != 0);
        self.timers.retain(|(number, _), _| signal::bit(*number) & numbers != 0);
        self.counts = Counts::default();
        for info in &self.queue {
            self.counts.add(signal::number(info));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(number: i32, value: u8) -> SigInfo {
        let mut info = [0; 128];
        info[..4].copy_from_slice(&number.to_ne_bytes());
        info[24] = value;
        info
    }

    #[test]
    fn the_oldest_of_a_number_comes_first_and_masks_are_true() {
        let mut all = Undelivered::default();
        for (number, value) in [(34, 1), (10, 2), (34, 3)] {
            all.push(info(number, value));
        }
        assert_eq!(all.numbers(), signal::bit(34) | signal::bit(10));
        assert_eq!(all.take(34).map(|i| i[24]), Some(1));
        assert!(all.has(34) && all.len() == 2);
        assert_eq!(all.take(34).map(|i| i[24]), Some(3));
        assert_eq!((all.take(34), all.numbers()), (None, signal::bit(10)));
        all.push(info(64, 4));
        all.keep(signal::bit(64));
        assert_eq!((all.numbers(), all.iter().count()), (signal::bit(64), 1));
    }

    fn expired(number: i32, timer: i32, missed: u32) -> SigInfo {
        let mut info = info(number, 0);
        info[8..12].copy_from_slice(&(-2i32).to_ne_bytes());
        info[16..20].copy_from_slice(&timer.to_ne_bytes());
        info[20..24].copy_from_slice(&missed.to_ne_bytes());
        info
    }

    #[test]
    fn a_timer_has_one_signal_that_waits() {
        let mut all = Undelivered::default();
        assert!(!all.overruns(&expired(34, 1, 0)));
        all.push(expired(34, 1, 2));
        assert!(!all.overruns(&expired(34, 2, 0)) && !all.overruns(&expired(35, 1, 0)) && !all.overruns(&info(34, 1)));
        assert!(all.overruns(&expired(34, 1, 0)) && all.overruns(&expired(34, 1, 4)));
        assert_eq!((all.len(), all.take(34)), (1, Some(expired(34, 1, 8))));
        assert!(!all.overruns(&expired(34, 1, 0)));
        all.push(expired(34, 1, 0));
        all.keep(0);
        assert!(!all.overruns(&expired(34, 1, 0)));
    }

    #[test]
    fn the_lowest_is_first() {
        let mut counts = Counts::default();
        assert_eq!(counts.lowest(), None);
        for number in [64, 35, 35] {
            counts.add(number);
        }
        counts.remove(35);
        assert_eq!(counts.lowest(), Some(35));
        counts.remove(35);
        assert_eq!((counts.lowest(), counts.numbers()), (Some(64), signal::bit(64)));
    }
}
