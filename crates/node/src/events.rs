//! What happened, for people: each event is one line of the log and one of the last thousand that
//! `pando events` shows.

use crate::views::Event;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

const KEPT: usize = 1000;

/// The events of this daemon's life.
pub struct Events {
    ring: Mutex<VecDeque<Event>>,
    latest: watch::Sender<u64>,
}

impl Events {
    /// None yet.
    pub fn new() -> Self {
        Events { ring: Mutex::new(VecDeque::new()), latest: watch::channel(0).0 }
    }

    /// It happened.
    pub fn say(&self, kind: &str, uid: Option<u32>, text: String) {
        match kind {
            "refused" | "lost" => tracing::warn!("{kind}: {text}"),
            _ => tracing::info!("{kind}: {text}"),
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let seq = ring.back().map_or(1, |e| e.seq + 1);
        if ring.len() == KEPT {
            ring.pop_front();
        }
        ring.push_back(Event { seq, time_ms: now_ms(), kind: kind.into(), text, uid });
        drop(ring);
        self.latest.send_replace(seq);
    }

    /// Those after `since` that `uid` may see.
    pub fn since(&self, since: u64, uid: u32) -> Vec<Event> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let visible = |e: &&Event| e.seq > since && (uid == 0 || e.uid.is_none_or(|u| u == uid));
        ring.iter().filter(visible).cloned().collect()
    }

    /// Tells the number of the latest.
    pub fn latest(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}
