//! Processes of other nodes that come here: each is a `pando __guest` with a slot number that no other has. How
//! many there may be, and how many that have not proved who they are.

use crate::config;
use crate::daemon::Node;
use crate::helper;
use crate::owner::{Facts, lives};
use crate::views::Event;
use crate::writer::Writer;
use pando_migrate::control::GuestOrder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;

/// Who sits in a slot. Kept in a file, so that a daemon that starts anew does not give a number away twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Seat {
    helper: u32,
    start_time: u64,
    proved: bool,
}

/// The slots.
pub struct Slots {
    seats: Mutex<BTreeMap<u32, Seat>>,
    file: PathBuf,
    writer: Arc<Writer>,
}

impl Slots {
    /// Reads who was here when the daemon stopped, and forgets those that are gone.
    pub fn open(file: PathBuf, writer: Arc<Writer>) -> Self {
        let read = std::fs::read(&file).ok().and_then(|b| serde_json::from_slice(&b).ok());
        let mut seats: BTreeMap<u32, Seat> = read.unwrap_or_default();
        // Taken when the daemon before us ended, and no helper was there yet: nobody will leave it.
        seats.retain(|_, s| s.helper != 0);
        let slots = Slots { seats: Mutex::new(seats), file, writer };
        slots.prune();
        slots
    }

    fn seats(&self) -> MutexGuard<'_, BTreeMap<u32, Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn save(&self, seats: &BTreeMap<u32, Seat>) {
        self.writer.write(&self.file, serde_json::to_vec(seats).unwrap_or_default());
    }

    /// Frees the slots of helpers that are gone.
    pub fn prune(&self) {
        let mut seats = self.seats();
        let before = seats.len();
        seats.retain(|_, s| s.helper == 0 || lives(s.helper, s.start_time));
        if seats.len() != before {
            self.save(&seats);
        }
    }

    /// The smallest free number, taken; or none when too many have not proved themselves.
    fn take(&self, limits: &config::Guests) -> Option<(u32, Option<String>)> {
        let mut seats = self.seats();
        let unproved = seats.values().filter(|s| !s.proved).count() as u32;
        if unproved >= limits.max_unproved {
            return None;
        }
        let full = seats.len() as u32 - unproved >= limits.max;
        let slot = (0..).find(|n| !seats.contains_key(n))?;
        seats.insert(slot, Seat { helper: 0, start_time: 0, proved: false });
        let reason = format!("it has {} guests, and its limit ([guests] max) is that", limits.max);
        Some((slot, full.then_some(reason)))
    }

    fn seat(&self, slot: u32, helper: u32) {
        let start_time = Facts::read(helper).map_or(0, |f| f.start_time);
        let mut seats = self.seats();
        let proved = seats.get(&slot).is_some_and(|s| s.proved);
        seats.insert(slot, Seat { helper, start_time, proved });
        self.save(&seats);
    }

    fn leave(&self, slot: u32) {
        let mut seats = self.seats();
        seats.remove(&slot);
        self.save(&seats);
    }

    /// A guest helper said hello: it has seen a member's certificate.
    pub fn proved(&self, helper: u32) {
        let mut seats = self.seats();
        if let Some(seat) = seats.values_mut().find(|s| s.helper == helper) {
            seat.proved = true;
        }
        self.save(&seats);
    }

    fn has_proved(&self, slot: u32) -> bool {
        self.seats().get(&slot).is_some_and(|s| s.proved)
    }
}

/// Hands a connection that said `move.pando` to a helper and stays until that ends, so that it leaves no zombie.
pub async fn receive(node: Arc<Node>, stream: TcpStream, from: SocketAddr) {
    let Some((slot, refuse)) = node.slots.take(&node.config.guests) else {
        let text = format!("a moving process from {from}: too many others that have not proved who they are");
        node.events.say(Event { from: Some(from.to_string()), ..Event::new("refused", text) });
        return;
    };
    let drained =
        node.balancing.is_drained().then(|| "it is being drained (`pando drain --undo` ends that)".to_owned());
    let order = GuestOrder {
        node: node.name(),
        identity_dir: node.place.identity().display().to_string(),
        engine_socket: node.engine_socket().display().to_string(),
        slot,
        limits: node.config.limits.clone(),
        refuse: drained.or(refuse),
        from: node.config.guests.from.clone(),
        shared: node.config.files.shared_directories(),
        kin: node.table().kin(),
        holds: node.holds(),
    };
    let blocking = stream.into_std().and_then(|s| s.set_nonblocking(false).map(|()| s));
    let child = match blocking {
        Ok(s) => helper::spawn(&node, "__guest", &order, Some(s.into())).await,
        Err(e) => Err(e),
    };
    match child {
        Ok(child) => accompany(&node, child, slot, from).await,
        Err(e) => tracing::error!("a helper for a process from {from} could not be started: {e}"),
    }
    node.slots.leave(slot);
}

async fn accompany(node: &Node, mut child: tokio::process::Child, slot: u32, from: SocketAddr) {
    node.slots.seat(slot, child.id().unwrap_or(0));
    let patience = Duration::from_millis(node.config.guests.prove_within_ms);
    if tokio::time::timeout(patience, child.wait()).await.is_err() && !node.slots.has_proved(slot) {
        let text = format!("a moving process from {from}: no proof of who it is within {patience:?}");
        node.events.say(Event { from: Some(from.to_string()), ..Event::new("refused", text) });
        let _ = child.start_kill();
    }
    if let Err(e) = child.wait().await {
        tracing::error!("waiting for a guest helper: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_nobody_came_to_is_free_again_after_a_crash() {
        let file = std::env::temp_dir().join(format!("pando-slots-{}.json", std::process::id()));
        let limits = config::Guests { max_unproved: 2, ..config::Guests::default() };
        let writer = Writer::start().unwrap();
        let slots = Slots::open(file.clone(), writer.clone());
        assert_eq!(slots.take(&limits), Some((0, None)));
        assert_eq!(slots.take(&limits), Some((1, None)));
        // One has its helper, which is written down with the other one; then the daemon crashes.
        slots.seat(1, std::process::id());
        assert_eq!(slots.take(&limits), None, "two have not proved who they are");
        writer.finish();
        let after = Slots::open(file.clone(), Writer::start().unwrap());
        assert_eq!(after.take(&limits), Some((0, None)));
        std::fs::remove_file(file).unwrap();
    }
}
