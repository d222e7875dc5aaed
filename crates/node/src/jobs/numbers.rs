//! Which of a node's generic resources are whose: each has a number, from 0 on for each word before the colon (`gpu:a100` and `gpu:h100` are numbered
//! one after the other, in the order of their names).

use pando_queue::gres::{Gres, SCRATCH};
use std::collections::{BTreeMap, BTreeSet};

/// The numbers that somebody has of each word.
pub type Numbers = BTreeMap<String, Vec<u32>>;

/// A kind's word, without its type.
fn word(kind: &str) -> &str {
    kind.split(':').next().unwrap_or(kind)
}

/// Those that are somebody's.
#[derive(Debug, Default)]
pub struct Ledger(BTreeSet<(String, u32)>);

impl Ledger {
    /// So many of each kind, of what there is. All or none: none where they are not to be had.
    pub fn take(&mut self, there: &BTreeMap<String, u32>, wanted: &[Gres]) -> Option<Numbers> {
        let mut all = Numbers::new();
        // Room has no numbers.
        for gres in wanted.iter().filter(|g| g.count > 0 && g.kind != SCRATCH) {
            let count = there.get(&gres.kind)?;
            let before = there.range(..gres.kind.clone()).filter(|(kind, _)| word(kind) == word(&gres.kind));
            let first: u32 = before.map(|(_, count)| count).sum();
            let name = word(&gres.kind).to_owned();
            let mine = all.entry(name.clone()).or_default();
            let is_free = |n: &u32| !self.0.contains(&(name.clone(), *n)) && !mine.contains(n);
            let free: Vec<u32> = (first..first + count).filter(is_free).take(gres.count as usize).collect();
            if free.len() < gres.count as usize {
                return None;
            }
            mine.extend(free);
        }
        self.note(&all);
        Some(all)
    }

    /// They are somebody's.
    pub fn note(&mut self, numbers: &Numbers) {
        self.0.extend(numbers.iter().flat_map(|(name, all)| all.iter().map(|n| (name.clone(), *n))));
    }

    /// They are nobody's any more.
    pub fn give_back(&mut self, numbers: &Numbers) {
        for (name, all) in numbers {
            all.iter().for_each(|n| _ = self.0.remove(&(name.clone(), *n)));
        }
    }
}

/// What a program finds in its environment. Where the node has GPUs and these are none of them, it sees none, whatever its user's environment says.
pub fn variables(there: &BTreeMap<String, u32>, mine: &Numbers) -> Vec<(&'static str, String)> {
    let list = |all: &[u32]| all.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let each = mine.iter().map(|(name, all)| format!("{name}={}", list(all))).collect::<Vec<_>>().join(";");
    let mut all = vec![("PANDO_RESOURCES", each)];
    if there.keys().any(|kind| word(kind) == "gpu") {
        let gpus = mine.get("gpu").map_or(String::new(), |all| list(all));
        all.extend([("CUDA_VISIBLE_DEVICES", gpus.clone()), ("SLURM_JOB_GPUS", gpus)]);
    }
    all
}

/// `gpu=0,1;fpga=3` as numbers of each kind: what a step's environment says of its job's first node, which has as many elsewhere.
pub fn counts(text: &str) -> Vec<Gres> {
    let parts = text.split(';').filter_map(|part| part.split_once('='));
    parts.map(|(kind, list)| Gres { kind: kind.to_owned(), count: list.split(',').count() as u32 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gres(kind: &str, count: u32) -> Gres {
        Gres { kind: kind.into(), count }
    }

    #[test]
    fn each_has_its_own() {
        let there = BTreeMap::from([("fpga".to_owned(), 1), ("gpu:a".to_owned(), 2), ("gpu:b".to_owned(), 1)]);
        let mut ledger = Ledger::default();
        let first = ledger.take(&there, &[gres("gpu:a", 1), gres("gpu:b", 1), gres("fpga", 1)]).unwrap();
        assert_eq!(first, Numbers::from([("fpga".into(), vec![0]), ("gpu".into(), vec![0, 2])]));
        assert_eq!(ledger.take(&there, &[gres("gpu:a", 2)]), None);
        assert_eq!(ledger.take(&there, &[gres("tpu", 1)]), None);
        assert_eq!(ledger.take(&there, &[gres(SCRATCH, 5000)]), Some(Numbers::new()), "room has no numbers");
        assert_eq!(ledger.take(&there, &[gres("gpu:a", 1)]).unwrap()["gpu"], [1]);
        ledger.give_back(&first);
        assert_eq!(ledger.take(&there, &[gres("gpu:b", 1)]).unwrap()["gpu"], [2]);
        let said = variables(&there, &first);
        assert!(said.contains(&("CUDA_VISIBLE_DEVICES", "0,2".into())));
        assert!(said.contains(&("PANDO_RESOURCES", "fpga=0;gpu=0,2".into())));
        assert_eq!(counts("fpga=0;gpu=0,2"), [gres("fpga", 1), gres("gpu", 2)]);
        assert!(variables(&there, &Numbers::new()).contains(&("CUDA_VISIBLE_DEVICES", String::new())));
        assert_eq!(variables(&BTreeMap::new(), &Numbers::new()), [("PANDO_RESOURCES", String::new())]);
    }
}
