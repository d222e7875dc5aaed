//! The processes this daemon knows: started with `pando run`, moved from here, or visiting. Pure; what the
//! helpers report goes in, views come out.

use crate::owner::Facts;
use crate::views::Process;
use pando_balance::Wish;
use pando_migrate::control::{Io, Kin, MoveRecord};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;

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
    /// When it began, or came to where it is now.
    pub since: Instant,
    /// When somebody, or balancing, last sent it where it is; not when it came home by itself or went after others.
    pub sent: Option<Instant>,
    /// What its user wants.
    pub wish: Wish,
    /// What was counted on earlier stays elsewhere, by helpers that are gone.
    pub before: Totals,
    /// A daemon before this one knew it and wrote that down.
    pub recalled: bool,
    /// The process that computes here, of a guest; else 0.
    pub body: u32,
}

/// What is counted while a process is away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Calls, pages pulled, pages pushed, CPU milliseconds abroad.
    pub counters: [u64; 4],
    /// Pages that were found where it went.
    #[serde(default)]
    pub found: u64,
    /// CPU milliseconds by node.
    pub cpu_by_node: Vec<(String, u64)>,
    /// Bytes.
    pub io: Io,
}

impl Totals {
    fn of(view: &Process) -> Totals {
        let counters = [view.calls, view.pulled, view.pushed, view.cpu_abroad_ms];
        Totals { counters, found: view.found, cpu_by_node: view.cpu_by_node.clone(), io: view.io }
    }

    /// With what a helper has counted itself.
    fn and(&self, more: &Totals) -> Totals {
        let mut sum = self.clone();
        sum.counters.iter_mut().zip(more.counters).for_each(|(sum, more)| *sum += more);
        sum.found += more.found;
        for (node, ms) in &more.cpu_by_node {
            match sum.cpu_by_node.iter_mut().find(|(known, _)| known == node) {
                Some((_, sum)) => *sum += ms,
                None => sum.cpu_by_node.push((node.clone(), *ms)),
            }
        }
        sum.io.read += more.io.read;
        sum.io.written += more.io.written;
        sum.io.cached += more.io.cached;
        sum
    }

    fn show(self, view: &mut Process) {
        [view.calls, view.pulled, view.pushed, view.cpu_abroad_ms] = self.counters;
        (view.found, view.cpu_by_node, view.io) = (self.found, self.cpu_by_node, self.io);
    }
}

impl Known {
    /// What was counted before the helper that it has now, if it has one.
    pub fn earlier(&self) -> Totals {
        if self.view.helper.is_some() { self.before.clone() } else { Totals::of(&self.view) }
    }
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
    /// The process that computes here, of a guest.
    pub body: u32,
}

/// Counters and place, as a helper reports them: of its own time.
pub struct Progress {
    /// Where.
    pub place: String,
    /// Phase.
    pub phase: String,
    /// Job control holds it.
    pub stopped: bool,
    /// What it has counted.
    pub counted: Totals,
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
        let (since, wish) = (Instant::now(), Wish::default());
        let before = Totals::default();
        let recalled = false;
        self.known.insert(
            key,
            Known { view, start_time, connected: false, since, sent: None, wish, before, recalled, body: 0 },
        );
    }

    /// What the user of a process wants of Pando.
    pub fn wishes(&mut self, key: &Key, wish: Wish) {
        if let Some(known) = self.known.get_mut(key) {
            known.wish = wish;
        }
    }

    /// It was sent where it is now.
    pub fn sent(&mut self, key: &Key) {
        if let Some(known) = self.known.get_mut(key) {
            known.sent = Some(Instant::now());
        }
    }

    /// What a daemon before this one knew of a process.
    pub fn recall(&mut self, key: &Key, moves: u32, records: Vec<MoveRecord>, earlier: Totals) {
        if let Some(known) = self.known.get_mut(key) {
            (known.view.moves, known.view.records) = (moves, records);
            (known.before, known.recalled) = (earlier.clone(), true);
            earlier.show(&mut known.view);
        }
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
            since: Instant::now(),
            sent: None,
            wish: Wish::default(),
            before: Totals::default(),
            recalled: false,
            body: 0,
        });
        if known.view.helper != Some(arrival.helper) {
            known.before = Totals::of(&known.view);
        }
        known.connected = true;
        (known.start_time, known.body) = (arrival.start_time, arrival.body);
        let view = &mut known.view;
        (view.home, view.uid, view.command, view.role) = (home, arrival.uid, arrival.command, role.into());
        view.helper = Some(arrival.helper);
    }

    /// Guests that are here.
    pub fn kin(&self) -> Vec<Kin> {
        let kin = |k: &Known| {
            let helper = k.view.helper.filter(|_| k.connected && k.body != 0)?;
            Some(Kin { home: k.view.home.clone(), pid: k.view.pid, uid: k.view.uid, body: k.body, helper })
        };
        self.known.values().filter_map(kin).collect()
    }

    /// A helper reported. Says where the process went if that changed.
    pub fn progress(&mut self, key: &Key, p: Progress) -> Option<String> {
        let known = self.known.get_mut(key)?;
        let view = &mut known.view;
        let went = (view.place != p.place && p.phase == "away").then(|| p.place.clone());
        (view.place, view.phase, view.stopped) = (p.place, p.phase, p.stopped);
        known.before.and(&p.counted).show(view);
        went
    }

    /// A move ended well.
    pub fn moved(&mut self, key: &Key, record: MoveRecord) {
        if let Some(known) = self.known.get_mut(key) {
            known.view.moves += 1;
            known.since = Instant::now();
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

    /// Takes the command lines of processes whose home is here as they are now (exec changes them), and of those that are there whether they
    /// are stopped: of others their helper says it. `read` asks the kernel.
    pub fn refresh(&mut self, read: impl Fn(u32) -> Option<Facts>) {
        for known in self.known.values_mut().filter(|k| k.view.role == "home") {
            if let Some(facts) = read(known.view.pid).filter(|f| f.start_time == known.start_time) {
                known.view.command = facts.command;
                if known.view.helper.is_none() {
                    known.view.stopped = facts.stopped;
                }
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
        Arrival { key: (home.into(), pid), uid: 7, command: "x".into(), helper: 90, start_time: 5, body: 0 }
    }

    fn progress(place: &str, phase: &str) -> Progress {
        Progress {
            place: place.into(),
            phase: phase.into(),
            stopped: false,
            counted: Totals {
                found: 0,
                counters: [1, 2, 3, 4],
                cpu_by_node: vec![("n2".into(), 4)],
                io: Io { read: 9, ..Io::default() },
            },
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
    fn only_guests_that_are_here_have_memory_for_others() {
        let mut t = Table::new("n1".into());
        t.arrived(arrival("n1", 10));
        t.arrived(Arrival { body: 77, ..arrival("n2", 20) });
        t.arrived(Arrival { body: 78, ..arrival("n2", 21) });
        t.done(&("n2".into(), 21), "home");
        let kin = Kin { home: "n2".into(), pid: 20, uid: 7, body: 77, helper: 90 };
        assert_eq!(t.kin(), [kin]);
    }

    #[test]
    fn stays_elsewhere_add_up_also_over_a_restart_of_the_daemon() {
        let stay = |t: &mut Table, helper: u32| {
            t.arrived(Arrival { helper, ..arrival("n1", 10) });
            let key = t.local(10);
            t.progress(&key, progress("n2", "away"));
            // The helper's own count, once more.
            t.progress(&key, progress("n2", "away"));
        };
        let mut t = Table::new("n1".into());
        t.register(10, 7, "loop".into(), 5, true);
        let key = t.local(10);
        stay(&mut t, 90);
        t.done(&key, "home");
        stay(&mut t, 91);
        let totals = |t: &Table| Totals::of(&t.get(&key).unwrap().view);
        let twice = totals(&t);
        assert_eq!((twice.counters, twice.io.read), ([2, 4, 6, 8], 18));
        assert_eq!(twice.cpu_by_node, [("n2".to_owned(), 8)]);
        let earlier = t.get(&key).unwrap().earlier();
        let mut after = Table::new("n1".into());
        after.register(10, 7, "loop".into(), 5, true);
        after.recall(&key, 4, Vec::new(), earlier);
        assert_eq!(totals(&after).counters, [1, 2, 3, 4]);
        stay(&mut after, 91);
        assert_eq!((totals(&after), after.get(&key).unwrap().view.moves), (twice, 4));
    }

    #[test]
    fn what_never_was_away_is_forgotten_and_a_command_is_the_present_one() {
        let mut t = Table::new("n1".into());
        t.register(10, 7, "sh".into(), 5, true);
        t.register(11, 7, "sh".into(), 5, false);
        let (run, other) = (t.local(10), t.local(11));
        t.refresh(|pid| Some(Facts { start_time: if pid == 10 { 5 } else { 6 }, ..Facts::of_test("sleep") }));
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
