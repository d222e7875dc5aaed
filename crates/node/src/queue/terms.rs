//! Who keeps a queue whose journal is in etcd, as a node hears it: each keeper's orders come with the number of its term, and who had one before gives none any more.

use crate::daemon::Node;
use std::sync::{Mutex, PoisonError};

/// What the jobs of such a queue have in the place of their keeper's name: no node has this one.
pub const SHARED: &str = "@etcd";

/// The latest keeper that was heard of.
#[derive(Default)]
pub struct Terms(Mutex<Option<(u64, String)>>);

impl Terms {
    /// A node says that it has that term. The error is for people.
    pub fn hear(&self, term: u64, who: &str) -> Result<(), String> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some((known, keeper)) if term < *known || (term == *known && keeper != who) => {
                Err(format!("node {who} keeps the queue no longer: node {keeper} does"))
            }
            _ => {
                *latest = Some((term, who.to_owned()));
                Ok(())
            }
        }
    }

    /// The latest one, and its term.
    pub fn latest(&self) -> Option<(u64, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// May this node order here? The error is for people.
pub fn obeys(node: &Node, term: u64, peer: &str) -> Result<(), String> {
    let rules = &node.config.queue;
    if !rules.is_shared() {
        return Err(format!("node {} knows of no queue that several nodes may keep ([queue] nodes)", node.name()));
    }
    if !rules.nodes.is_empty() && !rules.nodes.iter().any(|name| name == peer) {
        return Err(format!("node {peer} may not keep the queue ([queue] nodes of node {})", node.name()));
    }
    node.queue.terms.hear(term, peer)?;
    *node.queue.keeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(peer.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_had_a_term_before_is_not_heard() {
        let terms = Terms::default();
        assert!(terms.hear(5, "n1").is_ok() && terms.hear(5, "n1").is_ok());
        assert!(terms.hear(5, "n2").is_err(), "a term is one node's");
        assert!(terms.hear(7, "n2").is_ok());
        assert!(terms.hear(5, "n1").unwrap_err().contains("n2"));
        assert_eq!(terms.latest(), Some((7, "n2".into())));
    }
}
