//! Scratch directories of parallel jobs: one at each of a job's nodes, for as long as the job is there. A step of a batch job has that one's at the first
//! node, and elsewhere one of its own.

use super::Entry;
use crate::queue::batch;
use crate::scratch::{Scratch, TEMPORARY, VARIABLE, VARIABLE_MB};
use pando_launch::{Identity, Order};
use serde_bytes::ByteBuf;

/// Where there is no other one.
const USUAL: &str = "/tmp";

impl Entry {
    /// Makes it, and says so to the ranks; where there is none they are not told of one that is at another node.
    pub(super) fn furnish(&mut self, order: &Order, place: u32, user: Option<&Identity>) {
        let ranks = order.nodes.get(place as usize).map_or(0, |share| share.ranks);
        if self.at_home || ranks == 0 {
            return;
        }
        let given = |name: &str| {
            let found = order.task.environment.iter().find(|(n, _)| n.as_slice() == name.as_bytes());
            found.and_then(|(_, value)| std::str::from_utf8(value).ok())
        };
        let limit = given(VARIABLE_MB).and_then(|mb| mb.parse().ok()).unwrap_or(0);
        let wanted = batch::scratch::place(&self.node)
            .map(|there| there.wanted(&format!("job-{}.{}", self.key.0, self.key.1), limit));
        let who = user.filter(|_| crate::sys::effective_uid() == 0).map(|user| (user.0, user.1));
        // Nobody waits for a disk where there is none to be had.
        let made = wanted.map(|wanted| tokio::task::block_in_place(|| Scratch::make(&wanted, who))).transpose();
        let made = made.unwrap_or_else(|e| {
            tracing::warn!("job {} of {}: its scratch directory: {e}; it has none", self.key.1, self.key.0);
            None
        });
        let bytes = |text: &str| ByteBuf::from(text.as_bytes());
        let variables = match (&made, given(VARIABLE)) {
            (Some(made), _) => made.variables(),
            (None, Some(elsewhere)) if !elsewhere.is_empty() => {
                let was_there = given(TEMPORARY) == Some(elsewhere);
                let usual = was_there.then(|| (TEMPORARY, USUAL.to_owned()));
                usual.into_iter().chain([(VARIABLE, String::new())]).collect()
            }
            (None, _) => Vec::new(),
        };
        self.variables.extend(variables.into_iter().map(|(name, value)| (bytes(name), bytes(&value))));
        self.scratch = made;
    }
}

/// It goes, which may take its time.
pub(super) fn leave(scratch: Option<Scratch>) {
    let Some(scratch) = scratch else { return };
    // Where no thread can be made it goes at once.
    let _ = std::thread::Builder::new().name("pando-clears".into()).spawn(move || drop(scratch));
}
