//! Who is in the cluster and how they are: the one face that the rest of the daemon sees, so that gossip can
//! take the place of the plain list.

use crate::config;
use crate::events::Events;
use crate::place::replace_file;
use crate::roster::Roster;
use crate::views::{Event, Liveness, Node};
use pando_wire::message::{Load, Member};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// What the daemon asks of membership, however it is kept.
pub trait Membership: Send + Sync {
    /// This node.
    fn me(&self) -> Member;
    /// All nodes with state and load, in natural order.
    fn nodes(&self) -> Vec<Node>;
    /// One of them.
    fn find(&self, name: &str) -> Option<Node> {
        self.nodes().into_iter().find(|n| n.name == name)
    }
    /// All members, as told to others.
    fn members(&self) -> Vec<Member>;
    /// Takes in members: one that joined, or what another node knows.
    fn admit(&self, list: Vec<Member>);
    /// Announces this node's load.
    fn set_load(&self, load: Load);
}

/// The plain list.
pub struct PlainList {
    roster: Mutex<Roster>,
    file: PathBuf,
    changed: watch::Sender<u64>,
}

impl PlainList {
    /// Reads the list in `file`, if there is one.
    pub fn open(me: Member, limits: &config::Membership, file: PathBuf) -> std::io::Result<Self> {
        let mut roster = Roster::new(me, limits);
        match std::fs::read(&file) {
            Ok(bytes) => {
                let list: Vec<Member> = serde_json::from_slice(&bytes)
                    .map_err(|e| std::io::Error::other(format!("{} is damaged: {e}", file.display())))?;
                roster.merge(list);
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        Ok(PlainList { roster: Mutex::new(roster), file, changed: watch::channel(0).0 })
    }

    /// The list itself. Never held across an await.
    pub fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells when members were added or moved.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Says what changed in liveness since the last call.
    pub fn announce(&self, events: &Events) {
        let changes = self.roster().changes(Instant::now());
        for (name, state) in changes {
            let text = match state {
                Liveness::Up => format!("node {name} is up"),
                Liveness::Suspect => format!("node {name} is suspect: no word from it"),
                Liveness::Down => format!("node {name} is down"),
            };
            let reason = Some(state.as_str().to_owned());
            events.say(Event { from: Some(name), reason, ..Event::new("node", text) });
        }
    }
}

impl Membership for PlainList {
    fn me(&self) -> Member {
        self.roster().me().clone()
    }

    fn nodes(&self) -> Vec<Node> {
        self.roster().nodes(Instant::now())
    }

    fn members(&self) -> Vec<Member> {
        self.roster().members()
    }

    fn admit(&self, list: Vec<Member>) {
        let all = {
            let mut roster = self.roster();
            if !roster.merge(list) {
                return;
            }
            roster.members()
        };
        let saved = serde_json::to_vec_pretty(&all).map_err(std::io::Error::other);
        if let Err(e) = saved.and_then(|bytes| replace_file(&self.file, &bytes)) {
            tracing::error!("the list of members could not be kept in {}: {e}", self.file.display());
        }
        self.changed.send_modify(|n| *n += 1);
    }

    fn set_load(&self, load: Load) {
        self.roster().set_load(load);
    }
}
