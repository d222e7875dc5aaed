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

    /// How the process that was `pid` of `home` was lost, if it was, and `uid` may know.
    pub fn loss(&self, home: &str, pid: u32, uid: u32) -> Option<String> {
        let all = self.since(0, uid);
        let lost =
            all.iter().rev().find(|e| e.kind == "lost" && e.pid == Some(pid) && e.home.as_deref() == Some(home))?;
        let reason = lost.reason.as_deref().unwrap_or(&lost.text);
        let ago = ago(now_ms().saturating_sub(lost.time_ms) / 1000);
        let at = lost.from.as_ref().map_or(String::new(), |node| format!(" at {node}"));
        Some(format!("process {pid} was lost{at} {ago} ago: {reason} (`pando events` has what happened before)"))
    }

    /// Tells the number of the latest.
    pub fn latest(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }
}

/// A time in the largest unit of which it has two.
fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}
