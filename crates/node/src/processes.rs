//! The processes this daemon knows: started with `pando run`, moved from here, or visiting. Pure; what the
//! helpers report goes in, views come out.

use crate::views::Process;
use pando_migrate::control::{Io, MoveRecord};
use std::collections::BTreeMap;

/// Records kept of each process.
const RECORDS: usize = 32;
/// Processes known at a time.
const MAX_KNOWN: usize = 65_536;

/// Home node and pid there.
pub type Key = (String, u32);

/// One of them.
pub struct Known {
    /// What is shown.
    pub view: Process,
    /// Of the process when its home is here.
    pub start_time: u64,
    /// Its helper's connection stands.
    pub connected: bool,
}

/// The first line of a helper, without its role.
pub struct Arrival {
    /// Home and pid.
    pub key: Key,
    /// Owner.
    pub uid: u32,
    /// Command line.
    pub command: String,
    /// The helper's pid here.
    pub helper: u32,
    /// See [`Known`].
    pub start_time: u64,
}

/// Counters and place, as a helper reports them.
pub struct Progress {
    /// Where.
    pub place: String,
    /// Phase.
    pub phase: String,
    /// Calls, pages pulled, pages pushed, CPU milliseconds abroad.
    pub counters: [u64; 4],
    /// By node.
    pub cpu_by_node: Vec<(String, u64)>,
    /// Bytes.
    pub io: Io,
}

/// The table.
pub struct Table {
    me: String,
    known: BTreeMap<Key, Known>,
}

impl Table {
    /// Empty.
    pub fn new(me: String) -> Self {
        Table { me, known: BTreeMap::new() }
    }

    /// The key of a process whose home is here.
    pub fn local(&self, pid: u32) -> Key {
        (self.me.clone(), pid)
    }

    /// `pando run` started it (`run`), or someone wants to move it.
    pub fn register(&mut self, pid: u32, uid: u32, command: String, start_time: u64, run: bool) {
        let key = self.local(pid);
        if self.known.get(&key).is_some_and(|k| k.start_time == start_time) || self.known.len() >= MAX_KNOWN {
            return;
        }
        let view = Process {
            pid,
            uid,
            home: self.me.clone(),
            place: self.me.clone(),
            phase: "home".into(),
            command,
            role: "home".into(),
            run,
            ..Process::default()
        };
        self.known.insert(key, Known { view, start_time, connected: false });
    }

    /// A helper said hello: its process is known from now on, and what was known of it is kept.
    pub fn arrived(&mut self, arrival: Arrival) {
        let (home, pid) = arrival.key.clone();
        let role = if home == self.me { "home" } else { "guest" };
        if self.known.len() >= MAX_KNOWN && !self.known.contains_key(&arrival.key) {
            return;
        }
        let known = self.known.entry(arrival.key).or_insert_with(|| Known {
            view: Process { pid, place: home.clone(), phase: "inspect".into(), ..Process::default() },
            start_time: arrival.start_time,
            connected: false,
        });
        known.connected = true;
        known.start_time = arrival.start_time;
        let view = &mut known.view;
        (view.home, view.uid, view.command, view.role) = (home, arrival.uid, arrival.command, role.into());
        view.helper = Some(arrival.helper);
    }

    /// A helper reported. Says where the process went if that changed.
    pub fn progress(&mut self, key: &Key, p: Progress) -> Option<String> {
        let view = &mut self.known.get_mut(key)?.view;
        let went = (view.place != p.place && p.phase == "away").then(|| p.place.clone());
        (view.place, view.phase) = (p.place, p.phase);
        [view.calls, view.pulled, view.pushed, view.cpu_abroad_ms] = p.counters;
        view.io = p.io;
        if !p.cpu_by_node.is_empty() {
            view.cpu_by_node = p.cpu_by_node;
        }
        went
    }

    /// A move ended well.
    pub fn moved(&mut self, key: &Key, record: MoveRecord) {
        if let Some(known) = self.known.get_mut(key) {
            known.view.moves += 1;
            known.view.place.clone_from(&record.to);
            if known.view.records.len() == RECORDS {
                known.view.records.remove(0);
            }
            known.view.records.push(record);
        }
    }

    /// Its move failed. One that has never been away is nothing to us, unless `pando run` started it.
    pub fn failed(&mut self, key: &Key) {
        if self.known.get(key).is_some_and(|k| k.view.moves == 0 && !k.view.run && k.view.helper.is_none()) {
            self.known.remove(key);
        }
    }

    /// Takes the command lines of processes whose home is here as they are now (exec changes them); `read` gives start time and command.
    pub fn refresh(&mut self, read: impl Fn(u32) -> Option<(u64, String)>) {
        for known in self.known.values_mut().filter(|k| k.view.role == "home") {
            if let Some((start_time, command)) = read(known.view.pid)
                && start_time == known.start_time
            {
                known.view.command = command;
            }
        }
    }

    /// Its helper is about to go. A process that is at home stays known; one that visited, ended or has never been away does not.
    pub fn done(&mut self, key: &Key, outcome: &str) {
        let stays = matches!(outcome, "home" | "refused" | "failed") && key.0 == self.me;
        let never_away = self.known.get(key).is_some_and(|k| k.view.moves == 0 && !k.view.run);
        if !stays || never_away {
            self.known.remove(key);
        } else if let Some(known) = self.known.get_mut(key) {
            (known.view.place, known.view.phase) = (self.me.clone(), "home".into());
            (known.view.helper, known.connected) = (None, false);
        }
    }

    /// The helper's connection ended; it may come again.
    pub fn disconnected(&mut self, key: &Key, helper: u32) {
        if let Some(known) = self.known.get_mut(key).filter(|k| k.view.helper == Some(helper)) {
            known.connected = false;
        }
    }

    /// Forgets what ended. `lives(pid, start_time)` and `exists(pid)` ask the kernel. Gives those whose helper died
    /// without a word.
    pub fn prune(&mut self, lives: impl Fn(u32, u64) -> bool, exists: impl Fn(u32) -> bool) -> Vec<Process> {
        let mut orphaned = Vec::new();
        self.known.retain(|_, k| {
            // A helper that was killed hangs up first, then its process ends, then it is gone itself: till then it counts.
            let helper_lives = k.connected || k.view.helper.is_some_and(&exists);
            let helper_died = k.view.helper.is_some() && !helper_lives;
            if helper_died {
                orphaned.push(k.view.clone());
                (k.view.helper, k.view.phase) = (None, "home".into());
                k.view.place = self.me.clone();
            }
            let local = k.view.role == "home";
            if local { lives(k.view.pid, k.start_time) || helper_lives } else { !helper_died }
        });
        orphaned
    }

    /// One.
    pub fn get(&self, key: &Key) -> Option<&Known> {
        self.known.get(key)
    }

    /// All.
    pub fn views(&self) -> impl Iterator<Item = &Process> {
        self.known.values().map(|k| &k.view)
    }

    /// All, with what is not shown.
    pub fn all(&self) -> impl Iterator<Item = &Known> {
        self.known.values()
    }

    /// How many visit.
    pub fn guests(&self) -> u32 {
        self.known.values().filter(|k| k.view.role == "guest").count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(home: &str, pid: u32) -> Arrival {
        Arrival { key: (home.into(), pid), uid: 7, command: "x".into(), helper: 90, start_time: 5 }
    }

    fn progress(place: &str, phase: &str) -> Progress {
        Progress {
            place: place.into(),
            phase: phase.into(),
            counters: [1, 2, 3, 4],
            cpu_by_node: vec![],
            io: Io::default(),
        }
    }

    #[test]
    fn a_process_goes_and_comes_home() {
        let mut t = Table::new("n1".into());
        t.register(10, 7, "loop".into(), 5, true);
        t.arrived(arrival("n1", 10));
        let key = t.local(10);
        assert_eq!(t.progress(&key, progress("n1", "freeze")), None);
        assert_eq!(t.progress(&key, progress("n2", "away")), Some("n2".into()));
        assert_eq!(t.progress(&key, progress("n2", "away")), None);
        t.done(&key, "home");
        let view = &t.get(&key).unwrap().view;
        assert_eq!((view.place.as_str(), view.phase.as_str(), view.calls, view.helper), ("n1", "home", 1, None));
        assert!(t.prune(|_, _| false, |_| true).is_empty());
        assert!(t.get(&key).is_none());
    }

    #[test]
    fn what_never_was_away_is_forgotten_and_a_command_is_the_present_one() {
        let mut t = Table::new("n1".into());
        t.register(10, 7, "sh".into(), 5, true);
        t.register(11, 7, "sh".into(), 5, false);
        let (run, other) = (t.local(10), t.local(11));
        t.refresh(|pid| Some((if pid == 10 { 5 } else { 6 }, "sleep".into())));
        let command = |t: &Table, key: &Key| t.get(key).map(|k| k.view.command.clone());
        assert_eq!((command(&t, &run).unwrap(), command(&t, &other).unwrap()), ("sleep".into(), "sh".into()));
        t.failed(&run);
        t.failed(&other);
        assert_eq!((t.get(&run).is_some(), t.get(&other).is_some()), (true, false));
    }

    #[test]
    fn a_helper_that_died_is_told_and_a_visitor_forgotten() {
        let mut t = Table::new("n1".into());
        t.arrived(arrival("n2", 10));
        assert_eq!(t.guests(), 1);
        let key = ("n2".to_owned(), 10);
        assert!(t.prune(|_, _| false, |_| false).is_empty(), "still connected");
        t.disconnected(&key, 90);
        assert!(t.prune(|_, _| false, |_| true).is_empty(), "it may come again");
        assert_eq!(t.prune(|_, _| false, |_| false).len(), 1);
        assert_eq!(t.guests(), 0);
    }

    #[test]
    fn a_helper_that_is_about_to_be_gone_is_told_of_later() {
        let mut t = Table::new("n1".into());
        t.arrived(arrival("n1", 10));
        t.disconnected(&t.local(10), 90);
        assert!(t.prune(|_, _| false, |_| true).is_empty(), "the process has ended, its helper not yet");
        assert_eq!(t.prune(|_, _| false, |_| false).len(), 1);
        assert!(t.prune(|_, _| false, |_| false).is_empty(), "once");
    }
}
