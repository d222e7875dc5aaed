//! This node's part of the global memory: regions, variables and events that every node has under the same names.

use crate::op::{Comparison, Name, OpId};
use bytes::Bytes;
use std::collections::BTreeMap;

/// What is there. A variable that nobody has written is 0, a region ends where its last byte was written.
#[derive(Debug, Default)]
pub struct Memory {
    variables: BTreeMap<Name, i64>,
    regions: BTreeMap<Name, Bytes>,
    /// Signals that nobody has taken yet.
    signals: BTreeMap<Name, u64>,
    /// Variables that an operation has looked at or will write: nothing else changes them until it is decided.
    locks: BTreeMap<Name, OpId>,
    /// What this node itself wants to write meanwhile, in order.
    waiting: Vec<(Name, i64)>,
}

impl Memory {
    /// A variable's value here.
    pub fn variable(&self, name: &str) -> i64 {
        self.variables.get(name).copied().unwrap_or(0)
    }

    /// A region's bytes here.
    pub fn region(&self, name: &str) -> &[u8] {
        self.regions.get(name).map_or(&[], |bytes| bytes)
    }

    /// Bytes of all regions.
    pub fn size(&self) -> u64 {
        self.regions.iter().map(|(name, bytes)| (name.len() + bytes.len()) as u64).sum()
    }

    /// Signals of an event that nobody has taken.
    pub fn signals(&self, name: &str) -> u64 {
        self.signals.get(name).copied().unwrap_or(0)
    }

    /// Was the event signalled? Each signal is there for one answer.
    pub fn take_signal(&mut self, name: &str) -> bool {
        let Some(count) = self.signals.get_mut(name) else { return false };
        *count -= 1;
        if *count == 0 {
            self.signals.remove(name);
        }
        true
    }

    /// This node sets its own copy of a variable; it waits for an operation that has looked at it.
    pub fn store(&mut self, name: Name, value: i64) {
        match self.locks.contains_key(&name) || self.waiting.iter().any(|(other, _)| *other == name) {
            true => self.waiting.push((name, value)),
            false => _ = self.variables.insert(name, value),
        }
    }

    pub(crate) fn compare(&self, name: &str, comparison: Comparison, value: i64) -> bool {
        comparison.holds(self.variable(name), value)
    }

    pub(crate) fn lock(&mut self, name: &str, by: OpId) {
        self.locks.insert(name.to_owned(), by);
    }

    /// Nothing is under way any more.
    pub(crate) fn unlock_all(&mut self) {
        self.locks.clear();
        self.variables.extend(std::mem::take(&mut self.waiting));
    }

    /// The operation is decided: what waited for it is done now.
    pub(crate) fn unlock(&mut self, by: OpId) {
        self.locks.retain(|_, other| *other != by);
        let (locks, variables) = (&self.locks, &mut self.variables);
        self.waiting.retain(|(name, value)| {
            let waits = locks.contains_key(name);
            if !waits {
                variables.insert(name.clone(), *value);
            }
            waits
        });
    }

    pub(crate) fn write(&mut self, name: &str, value: i64) {
        self.variables.insert(name.to_owned(), value);
    }

    /// As `put` at its beginning, without a copy where nothing of the region is left.
    pub(crate) fn put_all(&mut self, region: &str, bytes: Bytes) {
        match self.region(region).len() <= bytes.len() && !bytes.is_empty() {
            true => _ = self.regions.insert(region.to_owned(), bytes),
            false => self.put(region, 0, &bytes),
        }
    }

    /// No bytes: the region ends there, if it does not already.
    pub(crate) fn put(&mut self, region: &str, offset: u64, bytes: &[u8]) {
        let kept = self.regions.entry(region.to_owned()).or_default();
        let mut region = Vec::from(std::mem::take(kept));
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        if bytes.is_empty() {
            region.truncate(from);
            *kept = region.into();
            self.regions.retain(|_, bytes| !bytes.is_empty());
            return;
        }
        if region.len() < to {
            region.resize(to, 0);
        }
        region[from..to].copy_from_slice(bytes);
        *kept = region.into();
    }

    /// Signals an event at this node.
    pub fn signal(&mut self, name: &str) {
        *self.signals.entry(name.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::NodeId;

    #[test]
    fn signals_are_counted() {
        let mut memory = Memory::default();
        memory.signal("e");
        memory.signal("e");
        assert_eq!([(); 3].map(|()| memory.take_signal("e")), [true, true, false]);
    }

    #[test]
    fn what_is_looked_at_does_not_change_meanwhile() {
        let mut memory = Memory::default();
        let by = OpId { origin: NodeId(1), number: 1 };
        memory.store("x".into(), 1);
        memory.lock("x", by);
        memory.store("x".into(), 2);
        memory.store("y".into(), 7);
        memory.store("x".into(), 3);
        assert_eq!((memory.variable("x"), memory.variable("y")), (1, 7));
        memory.write("x", 9);
        memory.unlock(by);
        assert_eq!(memory.variable("x"), 3, "its own writes come after, in order");
    }

    #[test]
    fn a_region_is_as_long_as_it_must_be() {
        let mut memory = Memory::default();
        memory.put("r", 3, b"ab");
        memory.put("r", 0, b"x");
        assert_eq!(memory.region("r"), b"x\0\0ab");
        memory.put("r", 9, b"");
        assert_eq!((memory.region("r").len(), memory.size()), (5, 6));
        memory.put("r", 2, b"");
        assert_eq!(memory.region("r"), b"x\0");
        memory.put_all("r", Bytes::new());
        assert_eq!(memory.size(), 0);
    }
}
