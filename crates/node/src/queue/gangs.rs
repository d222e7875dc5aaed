//! What the queue's rules say of a gang.

use pando_queue::{Id, Queue};
use serde::{Deserialize, Serialize};

/// How a gang takes turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnTerms {
    /// Those of a lower level stand still where it has CPUs of theirs.
    pub level: u8,
    /// How long its turns are to be, microseconds; 0: as is usual.
    pub turn_us: u64,
}

impl TurnTerms {
    /// Of this user's, with that quality of service, as a step of that batch job. One that is not his, or not there, says nothing about it.
    ///
    /// # Errors
    ///
    /// There is no such quality, or it is not for him.
    pub fn of(queue: &Queue, user: &str, quality: Option<&str>, job: Option<Id>) -> Result<TurnTerms, String> {
        let rules = queue.settings();
        let level = match quality {
            Some(name) => rules.quality_for(user, name)?.level,
            None => rules.quality(None).level,
        };
        let of = job.and_then(|id| queue.job(queue.named(id).job)).filter(|job| job.spec.user == user);
        Ok(TurnTerms { level, turn_us: of.map_or(0, |job| rules.turn_us(job.spec.request.partition.as_deref())) })
    }
}
