//! What is measured of processes that may be moved: those that run here, natively or as guests, with all their threads.

use super::groups::{Member, beside};
use crate::daemon::Node;
use crate::follow::Aim;
use crate::processes::Known;
use crate::sys;
use pando_balance::{Process, Wish};
use pando_kernel::procfs::{self, Stat};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::time::{Duration, Instant};

/// Home and pid there.
pub type Key = (String, u32);

/// A pid, when it began (0: whatever has that pid now), and its user's wish.
type Relative = (u32, u64, Wish);

/// Processes that are looked at in one round.
const MOST: usize = 4096;
/// Threads of one process that are looked at.
const MOST_THREADS: usize = 256;
/// Weight of a new figure in a smoothed one.
const WEIGHT: f64 = 0.5;

/// What has been read of a process, and when.
struct Sample {
    at: Instant,
    start_time: u64,
    /// Nanoseconds that its threads ran, and that they waited for a CPU.
    wanted_ns: u64,
    calls: u64,
    demand: f64,
    resident: u64,
    takes: f64,
}

/// What is made of two readings.
struct Rates {
    /// Threads that want to run, in thousandths.
    demand_milli: u32,
    /// Calls a second.
    calls: u32,
    /// Bytes a second by which its memory grows.
    takes: u64,
}

/// The samples of the last round.
#[derive(Default)]
pub struct Samples {
    all: BTreeMap<Key, Sample>,
    /// Processes that belong to programs that `pando run` started, and their wishes: they stay theirs when their parents end.
    family: BTreeMap<u32, (u64, Wish)>,
}

/// What `/proc/PID/stat` and those of its threads say.
struct Reading {
    start_time: u64,
    cpu_ms: u64,
    resident: u64,
    wanted_ns: u64,
    running: u32,
}

impl Reading {
    /// None for one that has ended.
    fn of(pid: u32) -> Option<Reading> {
        let stat = procfs::stat(pid as i32).filter(Stat::lives)?;
        let (mut wanted_ns, mut running) = (0, 0);
        for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten().take(MOST_THREADS) {
            let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            // Field 1: nanoseconds on a CPU; 2: waiting for one (Documentation/scheduler/sched-stats.rst).
            wanted_ns +=
                read("schedstat").split_whitespace().take(2).filter_map(|w| w.parse::<u64>().ok()).sum::<u64>();
            let state = read("stat");
            running += u32::from(state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R')));
        }
        Some(Reading {
            start_time: stat.start_time,
            cpu_ms: stat.cpu_ticks * sys::MS_A_TICK,
            resident: stat.resident,
            wanted_ns,
            running,
        })
    }

    fn add(&mut self, other: &Reading) {
        self.cpu_ms += other.cpu_ms;
        self.resident += other.resident;
        self.wanted_ns += other.wanted_ns;
        self.running += other.running;
    }
}

/// All that runs here and may be moved without being asked.
pub fn look(node: &Node, samples: &mut Samples) -> Vec<Process> {
    let me = node.name();
    let mut found = Vec::new();
    for (key, known) in guests(node) {
        found.extend(guest(samples, key, &known));
    }
    for (pid, wish) in samples.natives(node, &me) {
        found.extend(native(node, samples, (me.clone(), pid), wish));
    }
    let there: BTreeSet<Key> = found.iter().map(|p| (p.home.clone(), p.pid)).collect();
    samples.all.retain(|key, _| there.contains(key));
    found
}

/// The part of what is known of a process that is needed without the lock.
struct Visitor {
    helper: i32,
    since: Instant,
    calls: u64,
    cpu_ms: u64,
}

fn guests(node: &Node) -> Vec<(Key, Visitor)> {
    let table = node.table();
    let visitor = |k: &Known| {
        let helper = k.view.helper? as i32;
        let (since, calls, cpu_ms) = (k.since, k.view.calls, k.view.cpu_abroad_ms);
        (k.view.role == "guest" && k.view.phase == "away")
            .then(|| ((k.view.home.clone(), k.view.pid), Visitor { helper, since, calls, cpu_ms }))
    };
    table.all().filter_map(visitor).take(MOST).collect()
}

fn guest(samples: &mut Samples, key: Key, known: &Visitor) -> Option<Process> {
    let mut all = descendants(known.helper).into_iter().filter_map(Reading::of);
    let mut sum = all.next()?;
    all.for_each(|r| sum.add(&r));
    let (home, pid) = key.clone();
    let rates = samples.measure(key, &sum, known.calls);
    Some(Process {
        home,
        pid,
        demand_milli: rates.demand_milli,
        cpu_ms: known.cpu_ms.max(sum.cpu_ms),
        here_ms: known.since.elapsed().as_millis() as u64,
        resident: sum.resident,
        takes: rates.takes,
        calls: rates.calls,
        moves: 1,
        ..Process::default()
    })
}

fn native(node: &Node, samples: &mut Samples, key: Key, wish: Wish) -> Option<Process> {
    let pid = key.1;
    let reading = Reading::of(pid)?;
    let (moves, since, left, abroad_ms) = {
        let table = node.table();
        let known = table.get(&key);
        let left = known.and_then(|k| {
            let last = k.view.records.last().filter(|r| r.to == key.0)?;
            Some((last.from.clone(), k.since.elapsed().as_millis() as u64))
        });
        (known.map_or(0, |k| k.view.moves), known.map(|k| k.since), left, known.map_or(0, |k| k.view.cpu_abroad_ms))
    };
    let rates = samples.measure(key.clone(), &reading, 0);
    Some(Process {
        home: key.0,
        pid,
        demand_milli: rates.demand_milli,
        cpu_ms: reading.cpu_ms + abroad_ms,
        here_ms: since.map_or(u64::MAX, |s| s.elapsed().as_millis() as u64),
        left,
        resident: reading.resident,
        takes: rates.takes,
        moves,
        wish,
        ..Process::default()
    })
}

/// A process of this node that somebody wants to move, or that is to begin elsewhere: one thread that computes.
pub fn about(node: &Node, pid: u32) -> Process {
    let home = node.name();
    let resident = Reading::of(pid).map_or(0, |r| r.resident);
    let wish = {
        let table = node.table();
        table.get(&table.local(pid)).map(|k| k.wish.clone()).unwrap_or_default()
    };
    let not = beside(&groups(node, &[]), pid, &wish).into_iter().filter(|place| *place != home).collect();
    Process { home, pid, demand_milli: 1000, resident, wish, not, ..Process::default() }
}

/// All of this node's own processes whose user wants them apart or together: those that are known, and those of `natives`.
pub fn groups(node: &Node, natives: &[Process]) -> Vec<Member> {
    let (me, grouped) = (node.name(), |wish: &Wish| wish.apart.is_some() || wish.together.is_some());
    let table = node.table();
    let known = table.all().filter(|k| k.view.role == "home" && grouped(&k.wish));
    let settings = &node.config.balance;
    let residency = Duration::from_millis(settings.residency_ms);
    let of = |k: &Known| {
        let rested = k.view.moves == 0 || k.since.elapsed() >= residency;
        let (pid, wish, place) = (k.view.pid, k.wish.clone(), k.view.place.clone());
        (pid, Member { pid, wish, place, since: k.sent, rested })
    };
    let mut all: BTreeMap<u32, Member> = known.map(of).collect();
    for p in natives.iter().filter(|p| p.home == me && grouped(&p.wish)) {
        let rested = p.cpu_ms >= settings.min_cpu_ms;
        let member = || Member { pid: p.pid, wish: p.wish.clone(), place: me.clone(), since: None, rested };
        all.entry(p.pid).or_insert_with(member);
    }
    drop(table);
    // What is on its way is as good as there.
    let there = |m: Member| match node.balancing.goes_to(&me, m.pid) {
        Some(place) => Member { place, since: Some(Instant::now()), ..m },
        None => m,
    };
    all.into_values().map(there).collect()
}

fn descendants(of: i32) -> Vec<u32> {
    let mut queue: VecDeque<i32> = procfs::children(of).into();
    let mut all = Vec::new();
    while let Some(pid) = queue.pop_front() {
        all.push(pid.unsigned_abs());
        if all.len() < MOST {
            queue.extend(procfs::children(pid));
        }
    }
    all
}

impl Samples {
    /// What has changed since the last round.
    fn measure(&mut self, key: Key, now: &Reading, calls: u64) -> Rates {
        let at = Instant::now();
        let before = self.all.get(&key).filter(|s| s.start_time == now.start_time);
        // Threads that a control group holds back run in neither sense, but are runnable.
        let running = f64::from(now.running);
        let (demand, rate, takes) = match before {
            None => (running, 0.0, 0.0),
            Some(s) => {
                let elapsed = at.duration_since(s.at).as_secs_f64().max(1e-3);
                let wanted = now.wanted_ns.saturating_sub(s.wanted_ns) as f64 / 1e9 / elapsed;
                let demand = s.demand + WEIGHT * (wanted.max(running) - s.demand);
                let took = now.resident.saturating_sub(s.resident) as f64 / elapsed;
                // It may have waited for a CPU all the time.
                (demand, calls.saturating_sub(s.calls) as f64 / elapsed, took.max(s.takes * WEIGHT))
            }
        };
        let (start_time, wanted_ns, resident) = (now.start_time, now.wanted_ns, now.resident);
        self.all.insert(key, Sample { at, start_time, wanted_ns, calls, demand, resident, takes });
        Rates { demand_milli: (demand * 1000.0) as u32, calls: rate as u32, takes: takes as u64 }
    }

    /// Programs that `pando run` started, and all that they start, as far as it is here and nobody sent it anywhere.
    fn natives(&mut self, node: &Node, me: &str) -> Vec<(u32, Wish)> {
        let (roots, known): (Vec<Relative>, BTreeMap<u32, bool>) = {
            let table = node.table();
            let mine = || table.all().filter(|k| k.view.role == "home");
            let roots = mine().filter(|k| k.view.run).map(|k| (k.view.pid, k.start_time, k.wish.clone())).collect();
            (roots, mine().map(|k| (k.view.pid, k.view.phase == "home" && k.view.place == me)).collect())
        };
        let mut queue: VecDeque<Relative> = roots.into();
        queue.extend(self.family.iter().map(|(pid, (start, wish))| (*pid, *start, wish.clone())));
        let mut family = BTreeMap::new();
        while let Some((pid, start_time, wish)) = queue.pop_front() {
            if family.contains_key(&pid) || family.len() >= MOST {
                continue;
            }
            let Some(stat) = procfs::start_time(pid as i32).ok().filter(|s| start_time == 0 || *s == start_time) else {
                continue;
            };
            queue.extend(procfs::children(pid as i32).into_iter().map(|c| (c.unsigned_abs(), 0, wish.of_children())));
            family.insert(pid, (stat, wish));
        }
        let here = |pid: &u32| known.get(pid).copied().unwrap_or(true) && !node.engine.is_moving(*pid);
        let sent = |pid: u32, start: u64| matches!(node.follow().aim(pid, start), Some(Aim::Home | Aim::Node(_)));
        let list = family.iter().filter(|(pid, (start, _))| here(pid) && !sent(**pid, *start));
        let list = list.map(|(pid, (_, wish))| (*pid, wish.clone())).collect();
        self.family = family;
        list
    }
}
