//! The helpers that are connected, and the requests that wait for what they do.

use crate::processes::Key;
use pando_kernel::procfs;
use pando_migrate::control::{Command, KeptWait, MoveRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Helpers at a time.
const MAX_HELPERS: usize = 4096;

/// How a move ended without a record.
#[derive(Debug)]
pub enum Failure {
    /// The engine says why.
    Said(String),
    /// The deputy went (its process came home) before it read the command: ask again.
    Left,
}

/// What the one who asked for a move gets.
pub type Outcome = Result<MoveRecord, Failure>;

struct Contact {
    role: String,
    key: Key,
    orders: mpsc::Sender<Command>,
}

/// What a request is after.
#[derive(Clone, Debug)]
pub struct Goal {
    /// Where to.
    pub to: String,
    /// Nobody waits for it but the part that sends families after each other, which tells of failures itself.
    pub follows: bool,
}

struct Pending {
    pid: u32,
    goal: Goal,
    done: oneshot::Sender<Outcome>,
}

/// Those connected, and the requests that wait for an answer.
pub struct Engine {
    contacts: Mutex<BTreeMap<u64, Contact>>,
    pending: Mutex<BTreeMap<u64, Pending>>,
    moving: Mutex<BTreeSet<u32>>,
    /// By process, with its start time.
    waits: Mutex<BTreeMap<u32, (u64, Vec<KeptWait>)>>,
    next: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, no other request moves the same process.
pub struct Moving<'a> {
    engine: &'a Engine,
    pid: u32,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        lock(&self.engine.moving).remove(&self.pid);
    }
}

impl Engine {
    /// Numbers begin at the time of start: an answer to the previous daemon's request is never taken for one to
    /// ours.
    pub fn new(started_ms: u64) -> Self {
        Engine {
            contacts: Mutex::default(),
            pending: Mutex::default(),
            moving: Mutex::default(),
            waits: Mutex::default(),
            next: AtomicU64::new(started_ms << 16),
        }
    }

    /// Takes the right to move `pid`.
    pub fn begin(&self, pid: u32) -> Option<Moving<'_>> {
        let first = lock(&self.moving).insert(pid);
        // Not `then_some`: the value that it drops would free what another request holds.
        first.then(|| Moving { engine: self, pid })
    }

    /// Whether a request moves `pid` just now.
    pub fn is_moving(&self, pid: u32) -> bool {
        lock(&self.moving).contains(&pid)
    }

    /// A process has come home in the middle of these waits.
    pub fn keep_waits(&self, pid: u32, start_time: u64, waits: Vec<KeptWait>) {
        let mut all = lock(&self.waits);
        all.retain(|pid, (start, _)| procfs::start_time(*pid as i32).is_ok_and(|s| s == *start));
        all.insert(pid, (start_time, waits));
    }

    /// They are for its next move only.
    pub fn take_waits(&self, pid: u32, start_time: u64) -> Vec<KeptWait> {
        let kept = lock(&self.waits).remove(&pid);
        kept.filter(|(start, _)| *start == start_time).map_or_else(Vec::new, |(_, waits)| waits)
    }

    /// A number for a request, and where its answer will come.
    pub fn expect(&self, pid: u32, goal: Goal) -> (u64, oneshot::Receiver<Outcome>) {
        let (done, answer) = oneshot::channel();
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.pending).insert(request, Pending { pid, goal, done });
        (request, answer)
    }

    /// What a request that is not answered yet is after.
    pub fn goal(&self, request: u64) -> Option<Goal> {
        lock(&self.pending).get(&request).map(|p| p.goal.clone())
    }

    /// Whoever waits for `request` gets this; false if nobody does.
    pub fn answer(&self, request: u64, result: Outcome) -> bool {
        let pending = lock(&self.pending).remove(&request);
        pending.is_some_and(|p| p.done.send(result).is_ok())
    }

    /// A helper is connected. None when there are too many.
    pub fn enter(&self, role: &str, key: &Key, orders: mpsc::Sender<Command>) -> Option<u64> {
        let mut contacts = lock(&self.contacts);
        if contacts.len() >= MAX_HELPERS {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        contacts.insert(id, Contact { role: role.into(), key: key.clone(), orders });
        Some(id)
    }

    /// It is gone; who waited for it learns so.
    pub fn leave(&self, id: u64) {
        let Some(contact) = lock(&self.contacts).remove(&id) else {
            return;
        };
        if contact.role != "deputy" {
            return;
        }
        let mut pending = lock(&self.pending);
        let of_it = |p: &Pending| p.pid == contact.key.1;
        let numbers: Vec<u64> = pending.iter().filter(|(_, p)| of_it(p)).map(|(n, _)| *n).collect();
        for number in numbers {
            if let Some(p) = pending.remove(&number) {
                let _ = p.done.send(Err(Failure::Left));
            }
        }
    }

    /// The deputy of a process, if it is connected.
    pub fn deputy(&self, key: &Key) -> Option<mpsc::Sender<Command>> {
        self.helper("deputy", key)
    }

    /// The helper of a guest here, if it is connected.
    pub fn guest(&self, key: &Key) -> Option<mpsc::Sender<Command>> {
        self.helper("guest", key)
    }

    fn helper(&self, role: &str, key: &Key) -> Option<mpsc::Sender<Command>> {
        let contacts = lock(&self.contacts);
        // The latest: an older one may not have noticed yet that it is gone.
        let found = contacts.values().rev().find(|c| c.role == role && c.key == *key);
        found.map(|c| c.orders.clone())
    }
}
