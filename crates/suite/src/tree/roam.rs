//! Moves any process of a tree, at random times, to any node.

use crate::mover::{Moved, Mover};
use crate::processes::{self, Process};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long one move may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether the run has ended.
const TICK: Duration = Duration::from_millis(5);

/// A root process and all that came of it.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The first process.
    pub root: u32,
    /// What its environment, and that of all it starts, has as `MARK`.
    pub mark: String,
    /// Names of the processes that are moved; empty: all.
    pub only: Vec<String>,
}

impl Tree {
    /// Its processes that live: descendants, and those that left the family as daemons do.
    pub fn members(&self) -> Vec<Process> {
        let all = processes::all();
        let family = processes::family(&all, self.root);
        // A guest has the environment of its program and is no process of the tree; it lives in a pid namespace of its own.
        let here = namespace("self");
        all.into_iter()
            .filter(|p| !matches!(p.state, 'Z' | 'X'))
            .filter(|p| family.contains(&p.pid) || processes::has(p.pid, processes::MARK, &self.mark))
            .filter(|p| namespace(&p.pid.to_string()) == here)
            .collect()
    }

    fn chosen(&self) -> Vec<Process> {
        let wanted = |p: &Process| self.only.is_empty() || self.only.contains(&p.name);
        self.members().into_iter().filter(wanted).collect()
    }
}

fn namespace(pid: &str) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// What the moves of a run came to.
#[derive(Debug, Default)]
pub struct Roamed {
    /// Moves made, by the name of the program.
    pub moves: BTreeMap<String, usize>,
    /// Processes that moved.
    pub movers: BTreeSet<u32>,
    /// Refusals by reason, with their numbers left out; one process that it said no to.
    pub refusals: BTreeMap<String, (usize, String)>,
    /// Moves whose process ended meanwhile.
    pub ended: usize,
    /// Freezes in microseconds.
    pub freezes: Vec<u64>,
}

impl Roamed {
    fn note(&mut self, process: &Process, moved: Moved) {
        match moved {
            Moved::To(_, freeze) => {
                *self.moves.entry(process.name.clone()).or_default() += 1;
                self.movers.insert(process.pid);
                self.freezes.push(freeze);
            }
            Moved::Ended => self.ended += 1,
            Moved::Refused(why) | Moved::Silent(why) => {
                let entry = self.refusals.entry(without_numbers(&why)).or_default();
                entry.0 += 1;
                entry.1 = process.args.join(" ");
            }
        }
    }

    /// Puts what another mover did to this.
    pub fn add(&mut self, other: Roamed) {
        for (name, count) in other.moves {
            *self.moves.entry(name).or_default() += count;
        }
        for (why, (count, example)) in other.refusals {
            let entry = self.refusals.entry(why).or_default();
            *entry = (entry.0 + count, example);
        }
        self.movers.extend(other.movers);
        self.ended += other.ended;
        self.freezes.extend(other.freezes);
    }
}

/// Moves processes of the tree about every `ms` milliseconds until `over`.
pub fn roam(tree: &Tree, mover: &dyn Mover, mut random: Random, ms: u64, over: &AtomicBool) -> Roamed {
    let mut roamed = Roamed::default();
    let destinations = mover.destinations();
    while !over.load(Ordering::Relaxed) {
        pause(Duration::from_millis(random.within(ms / 2, ms * 3 / 2)), over);
        let members = tree.chosen();
        if members.is_empty() {
            continue;
        }
        let (process, dest) = (random.pick(&members).clone(), random.pick(&destinations).clone());
        let moved = mover.move_to(process.pid, &dest, PATIENCE);
        match &moved {
            Moved::Refused(why) if why.contains("already") => {}
            _ => roamed.note(&process, moved),
        }
    }
    roamed
}

fn pause(mut time: Duration, over: &AtomicBool) {
    while !time.is_zero() && !over.load(Ordering::Relaxed) {
        let part = time.min(TICK);
        std::thread::sleep(part);
        time -= part;
    }
}

/// The same reason reads the same for every process: numbers (hexadecimal ones too) become N.
fn without_numbers(text: &str) -> String {
    let hex = |word: &str| word.len() > 7 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let word = |word: &str| -> String {
        if hex(word) {
            return "N".into();
        }
        let mut out = String::new();
        for c in word.chars() {
            match c.is_ascii_digit() {
                true if out.ends_with('N') => {}
                true => out.push('N'),
                false => out.push(c),
            }
        }
        out
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reason_for_all_processes() {
        let text = without_numbers("process 12: it maps a device: 7f12ab000000-7f12ab001000 (/dev/x86)");
        assert_eq!(text, "process N: it maps a device: N (/dev/xN)");
    }
}
