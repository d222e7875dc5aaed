//! Parallel jobs: this node's part in each ([`part`]), as one of its nodes ([`member`]) or as the one that the user's command speaks to ([`head`]).
//! What is decided is in crates/launch; here are its links, processes and clocks.

mod cache;
mod goods;
pub mod head;
mod link;
pub mod member;
mod part;
mod sweep;

use self::cache::Cache;
use crate::daemon::Node;
use crate::events::now_ms;
use crate::place::replace_file;
use crate::views;
use crate::writer::Writer;
use pando_launch::Order;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Numbers are set aside on disk in blocks: no job has the number of an earlier one, even after a crash.
const BLOCK: u64 = 1000;

/// The jobs that this node has a part in.
pub struct Jobs {
    inner: Mutex<Inner>,
    file: PathBuf,
    writer: Arc<Writer>,
    /// Programs that came with jobs.
    cache: Arc<Cache>,
}

struct Inner {
    next: u64,
    set_aside: u64,
    /// By the head's name and the job's number.
    all: BTreeMap<(String, u64), views::Job>,
}

/// A job is known as long as this lives.
pub struct Entry {
    node: Arc<Node>,
    key: (String, u64),
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.node.jobs.inner().all.remove(&self.key);
    }
}

impl Jobs {
    /// With the numbers that were set aside in this file, and the programs in that directory.
    pub fn open(file: PathBuf, programs: PathBuf, cache_mb: u64, writer: Arc<Writer>) -> io::Result<Jobs> {
        let next = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1);
        let set_aside = next + BLOCK;
        replace_file(&file, set_aside.to_string().as_bytes())?;
        let cache = Arc::new(Cache::open(programs, cache_mb << 20));
        Ok(Jobs { inner: Mutex::new(Inner { next, set_aside, all: BTreeMap::new() }), file, writer, cache })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no job of this node has had.
    fn number(&self) -> u64 {
        let mut inner = self.inner();
        inner.next += 1;
        if inner.next + BLOCK / 2 > inner.set_aside {
            inner.set_aside += BLOCK;
            self.writer.write(&self.file, inner.set_aside.to_string().into_bytes());
        }
        inner.next - 1
    }

    /// What runs, in the order of heads and numbers.
    pub fn list(&self) -> Vec<views::Job> {
        self.inner().all.values().cloned().collect()
    }
}

/// Notes that this node has a part in it. None if it has one already.
fn enter(node: &Arc<Node>, order: &Order) -> Option<Entry> {
    let key = (order.nodes[0].node.clone(), order.job);
    let words = order.task.words.iter().map(|w| String::from_utf8_lossy(w).into_owned());
    let nodes = order.nodes.iter().filter(|s| s.ranks > 0).map(|s| s.node.clone()).collect();
    let mut job = views::Job {
        job: order.job,
        head: key.0.clone(),
        user: order.user.clone(),
        ranks: order.size(),
        nodes,
        command: crate::owner::clean(&words.collect::<Vec<_>>().join(" ")),
        since_ms: now_ms(),
    };
    job.command.truncate(job.command.floor_char_boundary(200));
    let mut inner = node.jobs.inner();
    if inner.all.contains_key(&key) {
        return None;
    }
    inner.all.insert(key.clone(), job);
    drop(inner);
    Some(Entry { node: node.clone(), key })
}
