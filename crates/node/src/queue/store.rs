//! The journal in etcd. What is stored together is a batch with a number; the key `bounds` says which batches count, from the first to the last. A batch is cut into
//! pieces that fit etcd's limits (128 operations and 1.5 MB in a transaction): all but the last transaction only bring pieces of a batch that does not count
//! yet, and the last one makes it count. Each of them is void unless the leader's key is still the one of this keeper and the bounds are those that it knows, so
//! one that was overtaken writes nothing, and what nobody knows the fate of can be sent again.
//!
//! Below the prefix, numbers in hexadecimal:
//! - `leader`: the name of the node that keeps the queue, with its lease; `bounds`: [`Bounds`];
//! - `r/BATCH/PIECE`: records, as JSON; `n/NUMBER`: what users are to be told, its number being BATCH << 16 and more;
//! - `h/BATCH/ROWS/PIECE`: tasks that have ended, as JSON: the newest [`MOST_PAST`] rows. All of it is at each node that may keep the queue, copied into a file.

use super::etcd::answer::{Pair, Txn};
use super::etcd::{Etcd, Wrong, delete, end_of, get, has_value, made_at, put};
use super::journal::{Broken, MOST_NOTICES, Old};
use super::sqlite::Sqlite;
use super::tell::Notice;
use super::tenure::Tenure;
use pando_queue::Record;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Bytes of a value.
const PIECE: usize = 64 << 10;
/// Operations and bytes of a transaction.
const AT_ONCE: (usize, usize) = (100, 1 << 20);
/// Keys that are read at a time: with their values as base64 they are less than a client of ours reads.
const PAGE: usize = 256;
/// Rows of the history in etcd; so many more before the oldest of them go.
const MOST_PAST: u64 = 20_000;
const SOME_MORE: u64 = 2_000;
/// A thousand batches a second for a thousand years; numbers of notices are made of them.
const MOST_BATCHES: u64 = 1 << 45;
/// One request takes no longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Of which nobody knows what became is sent again after this.
const AGAIN: Duration = Duration::from_millis(50);

/// Which batches count, and of which journal: the value of `bounds`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// A journal that is made anew in the same place is another one.
    pub id: String,
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
    /// Whose term it was.
    pub term: u64,
}

/// Where it is.
pub struct Place {
    /// The way there.
    pub etcd: Arc<Etcd>,
    /// What all keys begin with.
    pub prefix: String,
    /// Where copies of the history go.
    pub state: PathBuf,
}

impl Place {
    fn key(&self, name: &str) -> Vec<u8> {
        format!("{}/{name}", self.prefix).into_bytes()
    }

    /// The leader's key.
    pub fn leader(&self) -> Vec<u8> {
        self.key("leader")
    }

    /// None: nobody has ever kept a queue there.
    async fn bounds(&self) -> Result<Option<Bounds>, Broken> {
        let found = self.etcd.get(&self.key("bounds"), PATIENCE).await.map_err(no)?;
        let one = |pair: &Pair| {
            let read: Bounds = serde_json::from_slice(&pair.value).map_err(|e| wrong("bounds", &e.to_string()))?;
            match read.last < MOST_BATCHES && (1..=read.last + 1).contains(&read.first) {
                true => Ok(read),
                false => Err(wrong("bounds", "they are none")),
            }
        };
        found.kvs.first().map(one).transpose()
    }

    /// All pairs from `from` until before `end`, in order.
    async fn all(&self, from: Vec<u8>, end: &[u8]) -> Result<Vec<Pair>, Broken> {
        let (mut from, mut all) = (from, Vec::new());
        loop {
            let page = self.etcd.range(&from, end, PAGE, PATIENCE).await.map_err(no)?;
            let Some(last) = page.kvs.last() else { return Ok(all) };
            // The next key after it.
            from = [&last.key[..], &[0]].concat();
            all.extend(page.kvs);
            if !page.more {
                return Ok(all);
            }
        }
    }

    /// The values of a kind's batches, from the first to the last, put together.
    async fn batches<T: DeserializeOwned>(
        &self,
        kind: &str,
        first: u64,
        last: u64,
    ) -> Result<Vec<(u64, Vec<T>)>, Broken> {
        let (from, end) = (self.key(&format!("{kind}/{first:016x}")), self.key(&format!("{kind}/{:016x}", last + 1)));
        let mut whole: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for pair in self.all(from, &end).await? {
            let number = self.number(kind, &pair.key)?;
            whole.entry(number).or_default().extend(pair.value);
        }
        let one = |(number, text): (u64, Vec<u8>)| {
            let parts = serde_json::from_slice(&text);
            Ok((number, parts.map_err(|e| wrong(&format!("{kind}/{number:016x}"), &e.to_string()))?))
        };
        whole.into_iter().map(one).collect()
    }

    /// The first number of a key of a kind.
    fn number(&self, kind: &str, key: &[u8]) -> Result<u64, Broken> {
        self.numbers(kind, key)
            .first()
            .copied()
            .ok_or_else(|| wrong(&String::from_utf8_lossy(key), "it is no key of ours"))
    }

    fn numbers(&self, kind: &str, key: &[u8]) -> Vec<u64> {
        let text = key.strip_prefix(&self.key(&format!("{kind}/"))[..]).and_then(|rest| std::str::from_utf8(rest).ok());
        text.unwrap_or("").split('/').map_while(|part| u64::from_str_radix(part, 16).ok()).collect()
    }

    /// The file of the copy of this journal's history.
    fn copy_of(&self, id: &str) -> Result<(Sqlite, u64), Broken> {
        // It becomes a file's name.
        match id.len() == 16 && id.bytes().all(|c| c.is_ascii_hexdigit()) {
            true => Sqlite::open_copy(&self.state.join(format!("queue-{id}.db"))),
            false => Err(wrong("bounds", "its id is none")),
        }
    }

    /// Copies what there is of the history that is not here yet. None: there is no journal.
    pub async fn copy(&self) -> Result<Option<Bounds>, Broken> {
        let Some(bounds) = self.bounds().await? else { return Ok(None) };
        let (_, copied) = tokio::task::block_in_place(|| self.copy_of(&bounds.id))?;
        if copied < bounds.last {
            let new = self.batches::<Old>("h", copied + 1, bounds.last).await?;
            let (mut past, _) = tokio::task::block_in_place(|| self.copy_of(&bounds.id))?;
            for (number, old) in new {
                tokio::task::block_in_place(|| past.copy(number, &old))?;
            }
        }
        Ok(Some(bounds))
    }

    /// Where the history's copy is, of the journal that is there.
    pub fn copy_file(&self, bounds: &Bounds) -> PathBuf {
        self.state.join(format!("queue-{}.db", bounds.id))
    }
}

fn wrong(key: &str, why: &str) -> Broken {
    Broken::Refused(format!("etcd: {key} can't be read: {why}"))
}

fn no(e: Wrong) -> Broken {
    Broken::Refused(e.to_string())
}

/// Parts of a value with the ends of their names.
fn pieces(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    text.chunks(PIECE).enumerate()
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Only maps whose keys are no strings, and failing types, have no JSON: there are none in it.
    serde_json::to_vec(value).unwrap_or_default()
}

/// A transaction's worth of them each.
fn groups(all: Vec<(Value, usize)>) -> Vec<Vec<Value>> {
    let mut groups = vec![Vec::new()];
    let mut size = 0;
    for (one, bytes) in all {
        let last = groups.last().map_or(0, Vec::len);
        if last >= AT_ONCE.0 || (last > 0 && size + bytes > AT_ONCE.1) {
            groups.push(Vec::new());
            size = 0;
        }
        size += bytes;
        groups.last_mut().into_iter().for_each(|group| group.push(one.clone()));
    }
    groups
}

/// See above. It is used by one thread that is none of the runtime's own.
pub struct Store {
    place: Arc<Place>,
    tenure: Tenure,
    runtime: Handle,
    bounds: Bounds,
    /// The history.
    past: Sqlite,
    file: PathBuf,
    /// It has all of it: otherwise what is missing is copied the next time.
    is_whole: bool,
    notices: RefCell<BTreeMap<i64, Notice>>,
    /// Batches of the history in etcd, with their rows.
    rows: VecDeque<(u64, u64)>,
}

impl Store {
    /// Takes over what there is, or makes it.
    pub fn open(place: Arc<Place>, tenure: Tenure, runtime: Handle) -> Result<Store, Broken> {
        let bounds = runtime.block_on(place.bounds())?;
        let is_new = bounds.is_none();
        let mut random = [0; 8];
        pando_wire::token::random(&mut random);
        let id = format!("{:016x}", u64::from_be_bytes(random));
        let bounds = bounds.unwrap_or(Bounds { id, first: 1, last: 0, term: tenure.term });
        let (past, copied) = place.copy_of(&bounds.id)?;
        let file = place.copy_file(&bounds);
        let (notices, rows) = (RefCell::default(), VecDeque::new());
        let mut store = Store { place, tenure, runtime, bounds, past, file, is_whole: true, notices, rows };
        if is_new {
            store.make()?;
        }
        store.clear()?;
        store.read_notices()?;
        let new = store.runtime.block_on(store.place.batches::<Old>("h", copied + 1, store.bounds.last))?;
        for (number, old) in new {
            store.past.copy(number, &old)?;
        }
        store.count_rows()?;
        Ok(store)
    }

    /// The first keeper of all.
    fn make(&self) -> Result<(), Broken> {
        let key = self.place.key("bounds");
        let compare = Value::from(vec![self.is_ours(), made_at(&key, 0)]);
        let made = Value::from(vec![put(&key, &json(&self.bounds))]);
        let txn = self.runtime.block_on(self.place.etcd.txn(compare, made, Value::Array(Vec::new()), PATIENCE));
        match txn.map_err(no)?.succeeded {
            true => Ok(()),
            false => Err(Broken::Lost("another node has made the journal".into())),
        }
    }

    /// Pieces of batches that never came to count, and of those that count no more, go. A later batch of the same number would be mixed with them.
    fn clear(&mut self) -> Result<(), Broken> {
        let (place, Bounds { first, last, .. }) = (self.place.clone(), self.bounds.clone());
        let after = |kind: &str, number: u64| {
            (place.key(&format!("{kind}/{number:016x}")), end_of(&place.key(&format!("{kind}/"))))
        };
        let mut all: Vec<Value> =
            ["r", "h"].iter().map(|kind| after(kind, last + 1)).map(|(from, end)| delete(&from, &end)).collect();
        let (from, end) = after("n", (last + 1) << 16);
        all.push(delete(&from, &end));
        all.push(delete(&place.key("r/"), &place.key(&format!("r/{first:016x}"))));
        let bounds = Bounds { term: self.tenure.term, ..self.bounds.clone() };
        self.commit(vec![all], bounds)
    }

    fn read_notices(&self) -> Result<(), Broken> {
        let prefix = self.place.key("n/");
        for pair in self.runtime.block_on(self.place.all(prefix.clone(), &end_of(&prefix)))? {
            let number = self.place.number("n", &pair.key)?;
            let notice =
                serde_json::from_slice(&pair.value).map_err(|e| wrong(&format!("n/{number:x}"), &e.to_string()))?;
            self.notices.borrow_mut().insert(i64::try_from(number).unwrap_or(i64::MAX), notice);
        }
        Ok(())
    }

    fn count_rows(&mut self) -> Result<(), Broken> {
        let prefix = self.place.key("h/");
        let names = self.runtime.block_on(self.place.etcd.names(&prefix, &end_of(&prefix), PATIENCE)).map_err(no)?;
        for pair in names.kvs {
            let numbers = self.place.numbers("h", &pair.key);
            if let [batch, rows, 0] = numbers[..] {
                self.rows.push_back((batch, rows.min(MOST_PAST)));
            }
        }
        Ok(())
    }

    /// The right to write.
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// The history.
    pub fn past(&self) -> &Sqlite {
        &self.past
    }

    /// Its file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn is_ours(&self) -> Value {
        made_at(&self.tenure.key, i64::try_from(self.tenure.term).unwrap_or(0))
    }

    /// All records that count.
    pub fn records(&self) -> Result<Vec<Record>, Broken> {
        let Bounds { first, last, .. } = self.bounds;
        let all = self.runtime.block_on(self.place.batches("r", first, last))?;
        // Each of them has some.
        let (found, expected) = (all.len() as u64, (last + 1).saturating_sub(first));
        if found != expected {
            return Err(wrong("r/", &format!("{found} batches of {expected} are there")));
        }
        Ok(all.into_iter().flat_map(|(_, records)| records).collect())
    }

    fn cut(&self, kind: &str, text: &[u8]) -> Vec<(Value, usize)> {
        let one = |(i, piece): (usize, &[u8])| (put(&self.place.key(&format!("{kind}/{i:08x}")), piece), piece.len());
        pieces(text).map(one).collect()
    }

    /// Stores records, tasks that have ended, and what users are to be told, all or none.
    pub fn write(&mut self, records: &[Record], old: &[Old], notices: &[Notice]) -> Result<(), Broken> {
        let batch = self.bounds.last + 1;
        let mut all = self.cut(&format!("r/{batch:016x}"), &json(&records));
        if !old.is_empty() {
            all.extend(self.cut(&format!("h/{batch:016x}/{:x}", old.len()), &json(&old)));
        }
        let room = MOST_NOTICES.saturating_sub(self.notices.borrow().len());
        if notices.len() > room {
            tracing::warn!("queue: users are not told of {} things: {MOST_NOTICES} wait already", notices.len() - room);
        }
        // No more of them than a number has room for.
        let number = |i: usize| batch << 16 | i as u64;
        let told: Vec<(u64, &Notice)> = notices.iter().take(room).enumerate().map(|(i, n)| (number(i), n)).collect();
        for (number, notice) in &told {
            let text = json(notice);
            all.push((put(&self.place.key(&format!("n/{number:016x}")), &text), text.len()));
        }
        let gone = self.too_old(old.len() as u64);
        if let Some(first) = gone {
            all.push((delete(&self.place.key("h/"), &self.place.key(&format!("h/{first:016x}"))), 0));
        }
        self.commit(groups(all), Bounds { last: batch, term: self.tenure.term, ..self.bounds.clone() })?;
        let kept = told.into_iter().map(|(number, notice)| (number as i64, notice.clone()));
        self.notices.borrow_mut().extend(kept);
        if let Some(first) = gone {
            self.rows.retain(|(number, _)| *number >= first);
        }
        if !old.is_empty() {
            self.rows.push_back((batch, old.len() as u64));
            self.copy(batch, old);
        }
        Ok(())
    }

    /// Batches of the history before this one need not be in etcd any more.
    fn too_old(&self, more: u64) -> Option<u64> {
        let mut all = more + self.rows.iter().map(|(_, rows)| rows).sum::<u64>();
        if all <= MOST_PAST + SOME_MORE {
            return None;
        }
        let mut first = self.bounds.last + 1;
        for (number, rows) in &self.rows {
            first = *number;
            if all <= MOST_PAST {
                break;
            }
            all -= rows;
            first += 1;
        }
        Some(first)
    }

    fn copy(&mut self, batch: u64, old: &[Old]) {
        if !self.is_whole {
            return;
        }
        if let Err(e) = self.past.copy(batch, old) {
            // A batch that is missing is not to be passed over: all from here on are copied when this node keeps the queue again.
            self.is_whole = false;
            tracing::error!("queue: this node's copy of the history misses what ends from now on: {e}");
        }
    }

    /// These in the place of all that there are.
    pub fn shorten(&mut self, records: &[Record]) -> Result<(), Broken> {
        let batch = self.bounds.last + 1;
        let all = self.cut(&format!("r/{batch:016x}"), &json(&records));
        let before = delete(&self.place.key("r/"), &self.place.key(&format!("r/{batch:016x}")));
        let mut groups = groups(all);
        groups.last_mut().into_iter().for_each(|group| group.push(before.clone()));
        self.commit(groups, Bounds { first: batch, last: batch, term: self.tenure.term, ..self.bounds.clone() })
    }

    /// Of larger numbers, the oldest first.
    pub fn notices(&self, after: i64) -> Vec<(i64, Notice)> {
        self.notices
            .borrow()
            .range(after.saturating_add(1)..)
            .map(|(number, notice)| (*number, notice.clone()))
            .collect()
    }

    /// It has been told.
    pub fn strike(&self, number: i64) -> Result<(), Broken> {
        let key = self.place.key(&format!("n/{number:016x}"));
        let gone = Value::from(vec![delete(&key, &[&key[..], &[0]].concat())]);
        let compare = Value::from(vec![self.is_ours()]);
        let txn = self.runtime.block_on(self.place.etcd.txn(compare, gone, Value::Array(Vec::new()), PATIENCE));
        if txn.map_err(no)?.succeeded {
            self.notices.borrow_mut().remove(&number);
        }
        Ok(())
    }

    /// Does these, and with the last of them the bounds are new.
    fn commit(&mut self, mut groups: Vec<Vec<Value>>, bounds: Bounds) -> Result<(), Broken> {
        let key = self.place.key("bounds");
        groups.last_mut().into_iter().for_each(|last| last.push(put(&key, &json(&bounds))));
        for group in groups {
            self.send(&Value::from(group), &bounds)?;
        }
        self.bounds = bounds;
        Ok(())
    }

    /// One transaction, until it is known what became of it.
    fn send(&self, group: &Value, new: &Bounds) -> Result<(), Broken> {
        let key = self.place.key("bounds");
        let compare = Value::from(vec![self.is_ours(), has_value(&key, &json(&self.bounds))]);
        let look = Value::from(vec![get(&self.tenure.key), get(&key)]);
        let mut in_doubt = false;
        loop {
            let sent = self.place.etcd.txn(compare.clone(), group.clone(), look.clone(), PATIENCE);
            match self.runtime.block_on(sent) {
                Ok(txn) if txn.succeeded => return Ok(()),
                Ok(txn) => return self.why_not(&txn, new),
                // This time; perhaps it was done before.
                Err(Wrong::Refused(why)) if in_doubt => {
                    return match self.runtime.block_on(self.place.bounds()) {
                        Ok(Some(now)) if now == *new => Ok(()),
                        Ok(Some(now)) if now == self.bounds => Err(Broken::Refused(format!("etcd: {why}"))),
                        _ => Err(Broken::Lost(why)),
                    };
                }
                Err(Wrong::Refused(why)) => return Err(Broken::Refused(format!("etcd: {why}"))),
                Err(Wrong::Away(why)) if !self.tenure.holds() => return Err(Broken::Lost(why)),
                Err(Wrong::Away(why)) => {
                    tracing::warn!("queue: {why}");
                    in_doubt = true;
                    std::thread::sleep(AGAIN);
                }
            }
        }
    }

    /// The comparisons were not true: perhaps because it was done before, when no answer came.
    fn why_not(&self, txn: &Txn, new: &Bounds) -> Result<(), Broken> {
        let pair = |i: usize| txn.responses.get(i).and_then(|part| part.response_range.as_ref()?.kvs.first());
        let is_ours = pair(0).is_some_and(|pair| u64::try_from(pair.create_revision) == Ok(self.tenure.term));
        let now = pair(1).and_then(|pair| serde_json::from_slice::<Bounds>(&pair.value).ok());
        match now {
            Some(now) if is_ours && now == *new => Ok(()),
            _ if is_ours => Err(Broken::Lost("somebody else has changed the journal in etcd".into())),
            _ => Err(Broken::Lost("its lease in etcd is over".into())),
        }
    }
}

#[cfg(test)]
mod tests;
