//! What the kernel touches when a thread ends.
//!
//! It marks the robust futexes that the thread still holds and clears its id (exit_robust_list, mm_release). A thread that is ending waits
//! for no page (handle_userfault lets those with PF_EXITING go on with a fault), and then those who wait for the futex would wait for ever. So
//! the pages must be here before.

use super::Guest;
use pando_kernel::futex;

/// As many as the kernel walks (ROBUST_LIST_LIMIT).
const MOST: usize = 2048;
/// The head: next entry, distance from an entry to its futex, the one being locked or unlocked.
const WORDS: u64 = 3;

impl Guest {
    /// Addresses that the end of a thread touches, as far as they can be told, and whose pages are not here.
    pub(super) fn missing_at_end(&self, tid: i32) -> Vec<u64> {
        let thread = &self.threads[tid];
        let mut missing = match futex::robust_list(thread.tracee.tid) {
            Ok(head) if head != 0 => missing_of_list(head, |at| self.memory.word(at)),
            _ => Vec::new(),
        };
        if thread.tid_address != 0 && self.memory.word(thread.tid_address & !7).is_none() {
            missing.push(thread.tid_address);
        }
        missing
    }
}

/// Walks the list as the kernel does. `read` gives a word, or nothing where its page is not here.
fn missing_of_list(head: u64, read: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
    let here: Option<Vec<u64>> = (0..WORDS).map(|i| read(head.wrapping_add(8 * i))).collect();
    let Some([next, distance, pending]) = here.as_deref().and_then(|h| <[u64; 3]>::try_from(h).ok()) else {
        return vec![head, head.wrapping_add(8 * (WORDS - 1))];
    };
    // The lowest bit says that the futex inherits priority.
    let futex = |entry: u64| (entry & !1).wrapping_add(distance);
    let mut missing = Vec::new();
    let mut look = |at: u64| {
        let there = read(at & !7);
        if there.is_none() {
            missing.push(at);
        }
        there
    };
    if pending & !1 != 0 {
        look(futex(pending));
    }
    let mut entry = next;
    for _ in 0..MOST {
        if entry & !1 == head || entry == 0 {
            break;
        }
        look(futex(entry));
        match look(entry & !1) {
            Some(next) => entry = next,
            None => break,
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::missing_of_list;
    use std::collections::BTreeMap;

    const HEAD: u64 = 0x1000;

    fn missing(words: &[(u64, u64)]) -> Vec<u64> {
        let words: BTreeMap<u64, u64> = words.iter().copied().collect();
        missing_of_list(HEAD, |at| words.get(&at).copied())
    }

    fn head(next: u64, pending: u64) -> [(u64, u64); 3] {
        [(HEAD, next), (HEAD + 8, -32i64 as u64), (HEAD + 16, pending)]
    }

    #[test]
    fn all_that_the_kernel_will_touch_is_asked_for() {
        assert_eq!(missing(&[]), [HEAD, HEAD + 16]);
        assert!(missing(&head(HEAD, 0)).is_empty());
        // A futex that is here, one whose futex is on another page, and one that is nowhere: what follows that is not known yet.
        let mut words = head(0x2020, 0x5020).to_vec();
        words.extend([(0x2020, 0x3021), (0x2000, 7), (0x3020, 0x4020)]);
        assert_eq!(missing(&words), [0x5000, 0x3000, 0x4000, 0x4020]);
    }

    #[test]
    fn a_list_that_bites_its_tail_comes_to_an_end() {
        let mut words = head(0x2020, 0).to_vec();
        words.extend([(0x2020, 0x2020), (0x2000, 7)]);
        assert!(missing(&words).is_empty());
    }
}
