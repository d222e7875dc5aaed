//! Scratch directories of this node's jobs: where they are, and what earlier daemons have left of them.

use super::{Kept, ward};
use crate::daemon::Node;
use crate::queue::errand::Order;
use crate::scratch::{Place, Wanted, remove};
use pando_queue::gres::{Gres, SCRATCH};
use std::path::PathBuf;

/// Where this node has them.
pub fn place(node: &Node) -> Option<&Place> {
    ward(node).scratch.get()
}

/// Of what was given to a job at its first node.
fn asked(gres: &[Gres]) -> u64 {
    gres.iter().filter(|gres| gres.kind == SCRATCH).map(|gres| u64::from(gres.count)).sum()
}

/// That of a batch job whose first node this is. An error: it has asked for one, and there are none any more.
pub(super) fn wanted(node: &Node, order: &Order) -> Result<Option<Wanted>, String> {
    let limit = order.shares.first().map_or(0, |share| asked(&share.gres));
    let key = &order.key;
    match place(node) {
        None if limit > 0 => Err(format!("node {}: it has no scratch directories ([node] scratch)", node.name())),
        place => Ok(place.map(|place| place.wanted(&format!("{}.{}.{}", key.keeper, key.id, key.run), limit))),
    }
}

/// One whose helper has not done it. What can't be removed the next daemon tries again.
pub(super) fn clear(dir: Option<PathBuf>) {
    let Some(dir) = dir else { return };
    if let Err(e) = remove::remove(&dir) {
        tracing::warn!("the scratch directory {}: {e}", dir.display());
    }
}

/// Before anything begins here. What is there of jobs that nobody knows of goes.
pub(super) fn adopt(node: &Node, known: &[Kept]) {
    let about = &node.config.node;
    let Some(dir) = &about.scratch else { return };
    let kept: Vec<PathBuf> = known.iter().filter_map(|kept| kept.scratch.clone()).collect();
    let place = match Place::open(dir, &node.name(), about.scratch_mb) {
        Ok(place) => place,
        Err(e) => {
            let shown = dir.display();
            return tracing::error!("[node] scratch: {shown}: {e}: jobs that ask for some do not begin here");
        }
    };
    let left = place.others(&kept);
    let _ = ward(node).scratch.set(place);
    if !left.is_empty() {
        // There may be much in them.
        let begun = std::thread::Builder::new().name("pando-clears".into());
        let begun = begun.spawn(move || left.into_iter().for_each(|dir| clear(Some(dir))));
        begun.map(drop).unwrap_or_else(|e| tracing::warn!("scratch directories of earlier jobs: {e}"));
    }
}
