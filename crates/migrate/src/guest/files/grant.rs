//! How long home's word is good. Pure: times are nanoseconds of a clock that goes on during sleep.
//!
//! What home confirmed was true when it answered, which is after we asked: so its word is counted from the asking. Home keeps a file as
//! it is for longer than that after it has said `Forget`.

use crate::message::GRANT_MS;

const GRANT: u64 = GRANT_MS * 1_000_000;
/// It is asked for anew when less than this is left.
const LOW: u64 = GRANT * 3 / 5;

/// Home's word.
#[derive(Debug, Default)]
pub(crate) struct Grant {
    until: u64,
    /// A question on its way: its number and when it was sent.
    asked: Option<(u64, u64)>,
    last: u64,
    /// Until then nothing is asked: answers take longer than they are good.
    pause: u64,
}

/// After an answer that was too old nothing is answered here for so long.
const PAUSE: u64 = 10_000_000_000;

impl Grant {
    /// Home has confirmed what we asked at `sent`.
    pub fn confirm(&mut self, sent: u64) {
        self.until = self.until.max(sent.saturating_add(GRANT));
    }

    /// Is home so far away that its word is too old when it comes?
    pub fn is_slow(&self, now: u64) -> bool {
        now < self.pause
    }

    /// May something be answered now?
    pub fn is_good(&self, now: u64) -> bool {
        now < self.until
    }

    /// The number of the question that is to be sent now, if it is time.
    pub fn question(&mut self, now: u64) -> Option<u64> {
        if self.asked.is_some() || self.until.saturating_sub(now) > LOW {
            return None;
        }
        self.last += 1;
        self.asked = Some((self.last, now));
        Some(self.last)
    }

    /// Home has answered question `number`. False: that was not asked.
    pub fn answered(&mut self, number: u64, now: u64) -> bool {
        let Some((_, sent)) = self.asked.take_if(|a| a.0 == number) else { return false };
        self.confirm(sent);
        if !self.is_good(now) {
            self.pause = now.saturating_add(PAUSE);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_from_the_question() {
        let mut grant = Grant::default();
        let number = grant.question(1000).expect("nothing is granted");
        assert_eq!(grant.question(2000), None, "one at a time");
        assert!(!grant.answered(number + 1, 2000) && !grant.is_good(1000));
        assert!(grant.answered(number, 2000) && !grant.answered(number, 2000) && !grant.is_slow(2000));
        assert!(grant.is_good(999 + GRANT) && !grant.is_good(1000 + GRANT));
        assert_eq!(grant.question(1000 + GRANT - LOW - 1), None);
        assert!(grant.question(1000 + GRANT - LOW).is_some());
        grant.confirm(500);
        assert!(grant.is_good(999 + GRANT), "an older word takes nothing away");
    }

    #[test]
    fn a_word_that_is_old_when_it_comes_is_no_use() {
        let mut grant = Grant::default();
        let number = grant.question(0).expect("nothing is granted");
        assert!(grant.answered(number, GRANT) && !grant.is_good(GRANT));
        assert!(grant.is_slow(GRANT) && !grant.is_slow(GRANT + PAUSE));
    }
}
