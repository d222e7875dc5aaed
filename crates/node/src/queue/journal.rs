//! What the queue knows for good: in a file of this machine ([`sqlite`](super::sqlite)), or in etcd ([`store`](super::store)), which outlives it. What
//! [`Journal::write`] has taken is there after a crash.

use super::sqlite::Sqlite;
use super::store::Store;
use super::tell::Notice;
use pando_queue::{Outcome, Record};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What users are to be told and were not yet: so much, and no more.
pub const MOST_NOTICES: usize = 10_000;

/// What can't be read or written, with the file's name.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// SQLite says so.
    #[error("the queue's journal: {0}")]
    Store(#[from] rusqlite::Error),
    /// Its file can't be made, or kept from others.
    #[error("the queue's journal: its file: {0}")]
    File(#[source] std::io::Error),
    /// A record that is none.
    #[error("the queue's journal has a record that can't be read (number {number}): {why}")]
    Record {
        /// Its number.
        number: i64,
        /// Why.
        why: String,
    },
    /// The store has said no.
    #[error("the queue's journal: {0}")]
    Refused(String),
    /// This node keeps the queue no longer, or can't know: it decides nothing more.
    #[error("this node keeps the queue no longer: {0}")]
    Lost(String),
    /// A later version has written it.
    #[error("the queue's journal is of a later version of Pando ({found}; this one knows {known}): start that one")]
    Later {
        /// The version found.
        found: i64,
        /// The latest that is known here.
        known: i64,
    },
}

/// An old task, as `pando history` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Old {
    /// What it was called.
    pub name: String,
    /// Whose it was.
    pub user: String,
    /// Whose share it was taken from.
    pub account: String,
    /// The rest.
    pub outcome: Outcome,
}

/// What is looked for in the history.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Of this user only.
    pub user: Option<String>,
    /// Of this job only.
    pub job: Option<u64>,
    /// Of this task of it only.
    pub task: Option<u32>,
    /// That ended then or later, milliseconds since 1970.
    pub since: u64,
    /// So many, the newest.
    pub most: u32,
}

/// See above.
pub enum Journal {
    /// On this machine's disk.
    Disk(Sqlite),
    /// In etcd.
    Shared(Box<Store>),
}

impl Journal {
    /// May this node decide anything?
    pub fn holds(&self) -> bool {
        match self {
            Journal::Disk(_) => true,
            Journal::Shared(store) => store.tenure().holds(),
        }
    }

    /// The number of its time as the queue's keeper; none: nobody else can be.
    pub fn term(&self) -> Option<u64> {
        match self {
            Journal::Disk(_) => None,
            Journal::Shared(store) => Some(store.tenure().term),
        }
    }

    /// All records, in their order.
    pub fn records(&self) -> Result<Vec<Record>, Broken> {
        match self {
            Journal::Disk(file) => file.records(),
            Journal::Shared(store) => store.records(),
        }
    }

    /// Stores records, tasks that have ended, and what users are to be told, all or none.
    pub fn write(&mut self, records: &[Record], old: &[Old], notices: &[Notice]) -> Result<(), Broken> {
        match self {
            Journal::Disk(file) => file.write(records, old, notices),
            Journal::Shared(store) => store.write(records, old, notices),
        }
    }

    /// These in the place of all that there are, which say the same in more words.
    pub fn shorten(&mut self, records: &[Record]) -> Result<(), Broken> {
        match self {
            Journal::Disk(file) => file.shorten(records),
            Journal::Shared(store) => store.shorten(records),
        }
    }

    /// Notices that were not told yet, of larger numbers than this, the oldest first.
    pub fn notices(&self, after: i64) -> Result<Vec<(i64, Notice)>, Broken> {
        match self {
            Journal::Disk(file) => file.notices(after),
            Journal::Shared(store) => Ok(store.notices(after)),
        }
    }

    /// It has been told.
    pub fn strike(&self, number: i64) -> Result<(), Broken> {
        match self {
            Journal::Disk(file) => file.strike(number),
            Journal::Shared(store) => store.strike(number),
        }
    }

    /// The file of the history, for those who read it beside the queue; none: it is that of the node.
    pub fn history_file(&self) -> Option<PathBuf> {
        match self {
            Journal::Disk(_) => None,
            Journal::Shared(store) => Some(store.file().to_owned()),
        }
    }

    /// The largest number of a job up to this one that the history knows.
    pub fn upto(&self, job: u64) -> Result<Option<u64>, Broken> {
        match self {
            Journal::Disk(file) => file.upto(job),
            Journal::Shared(store) => store.past().upto(job),
        }
    }

    /// Tasks that have ended, the newest last.
    pub fn history(&self, search: &Search) -> Result<Vec<Old>, Broken> {
        match self {
            Journal::Disk(file) => file.history(search),
            Journal::Shared(store) => store.past().history(search),
        }
    }
}
