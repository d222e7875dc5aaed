//! What happened, for people and programs: each event is one line of the log and one of the last thousand that
//! `pando events` shows, those of the daemon's earlier lives included.

mod journal;

use crate::owner::clean;
use crate::sys;
use crate::views::Event;
use journal::Journal;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

const KEPT: usize = 1000;

struct Kept {
    ring: VecDeque<Event>,
    journal: Journal,
}

/// The events of this node.
pub struct Events {
    kept: Mutex<Kept>,
    latest: watch::Sender<u64>,
}

impl Events {
    /// With those that an earlier daemon over this state directory has written down.
    pub fn open(state: &Path) -> Self {
        let (journal, earlier) = Journal::open(state);
        let ring: VecDeque<Event> = earlier.into();
        let latest = ring.back().map_or(0, |e| e.seq);
        Events { kept: Mutex::new(Kept { ring, journal }), latest: watch::channel(latest).0 }
    }

    /// It happened. Number and time are put in here; everything that others may have written is made fit for a terminal.
    pub fn say(&self, mut event: Event) {
        event.text = clean(&event.text);
        for field in [&mut event.home, &mut event.from, &mut event.to, &mut event.reason].into_iter().flatten() {
            *field = clean(field);
        }
        match event.kind.as_str() {
            "refused" | "lost" => tracing::warn!("{}: {}", event.kind, event.text),
            _ => tracing::info!("{}: {}", event.kind, event.text),
        }
        event.time_ms = now_ms();
        event.time = sys::utc_text(event.time_ms);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        event.seq = kept.ring.back().map_or(1, |e| e.seq + 1);
        kept.journal.add(&event);
        if kept.ring.len() == KEPT {
            kept.ring.pop_front();
        }
        let seq = event.seq;
        kept.ring.push_back(event);
        drop(kept);
        self.latest.send_replace(seq);
    }

    /// Those after `since` that `uid` may see.
    pub fn since(&self, since: u64, uid: u32) -> Vec<Event> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let visible = |e: &&Event| e.seq > since && (uid == 0 || e.uid.is_none_or(|u| u == uid));
        kept.ring.iter().filter(visible).cloned().collect()
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
