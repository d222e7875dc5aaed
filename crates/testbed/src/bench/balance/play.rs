//! An experiment on the nodes of a testbed: real processes begin, users come and go, nodes join, are drained and leave, at the times that the
//! experiment says.

use super::watch::Watch;
use super::work;
use crate::error::{Context, Error, Result};
use crate::place::Plan;
use crate::{api, cluster, faults, sys};
use api::Event;
use sim::balance::Outcome;
use sim::experiment::Trial;
use sim::ideal::Times;
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const TICK: Duration = Duration::from_millis(3);
/// A play may take so many times as long as the best possible one, and so much longer.
const PATIENCE: (f64, f64) = (6.0, 60.0);
/// Nodes are quiet when less than this wants to run there; it takes no longer than this.
const QUIET: f64 = 0.15;
const SETTLING: Duration = Duration::from_secs(40);
/// A node that leaves is waited for so long until it is empty.
const EMPTYING: Duration = Duration::from_secs(20);
/// Work of another user, who does not end by himself.
const ENDLESS: u64 = u64::MAX;

/// What happens at a time.
#[derive(Clone, Copy, Debug)]
enum Act {
    Begin(usize),
    Come(usize),
    Go(usize),
    Join(usize),
    Drain(usize),
    Leave(usize),
}

impl Act {
    /// For people; none for what `ends_s` tells.
    fn text(self, trial: &Trial) -> Option<String> {
        Some(match self {
            Act::Begin(_) => return None,
            Act::Come(i) => format!("a user comes to n{}", trial.loads[i].node + 1),
            Act::Go(i) => format!("a user leaves n{}", trial.loads[i].node + 1),
            Act::Join(i) => format!("n{} joins", i + 1),
            Act::Drain(i) => format!("n{} is drained", i + 1),
            Act::Leave(i) => format!("n{} leaves", i + 1),
        })
    }
}

/// What came of a play.
pub struct Play {
    /// As the simulator has it.
    pub outcome: Outcome,
    /// What each process said came of its work.
    pub results: Vec<Option<String>>,
    /// Percent of the time in which nodes did not get the CPU time that they were promised.
    pub starved: f64,
    /// How those that were lost ended.
    pub lost: Vec<String>,
    /// When each process was done, seconds.
    pub ends_s: Vec<f64>,
    /// What the nodes moved, failed to move and lost, who came and went, and when.
    pub events: Vec<String>,
}

/// A process of ours.
struct Job {
    child: Child,
    /// When it was done, microseconds from the beginning, and what it said; or how it ended.
    end: Option<(u64, std::result::Result<String, String>)>,
}

/// Ends what is left, however a play ends.
impl Drop for Job {
    fn drop(&mut self) {
        if self.end.is_none() {
            // `pando run` passes this one on to its program.
            drop(sys::kill(self.child.id(), libc::SIGTERM));
            drop(self.child.wait());
        }
    }
}

/// The play.
struct Stage<'a> {
    plan: &'a Plan,
    trial: &'a Trial,
    moves: bool,
    unit_ms: f64,
    start: Instant,
    jobs: BTreeMap<usize, Job>,
    users: BTreeMap<usize, Job>,
    /// What takes a while and must not hold up the clock.
    changes: Vec<JoinHandle<Result<()>>>,
}

/// Plays it once. `best_s`: how long it takes at least.
pub fn play(plan: &Plan, trial: &Trial, moves: bool, unit_ms: f64, best_s: f64) -> Result<Play> {
    // Who joins later is not there yet.
    for (i, _) in trial.sites.iter().enumerate().filter(|(_, s)| moves && s.from_us > 0) {
        faults::kill(plan, &plan.nodes()[i], true)?;
    }
    settle(plan)?;
    let (before, begun) = (seqs(plan), SystemTime::now());
    let mut watch = Watch::new(plan);
    let deadline = Duration::from_secs_f64(best_s * PATIENCE.0 + PATIENCE.1);
    let (jobs, users, changes) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut stage = Stage { plan, trial, moves, unit_ms, start: Instant::now(), jobs, users, changes };
    let acts = acts(trial, moves);
    let mut next = acts.iter().peekable();
    while stage.jobs.len() < trial.jobs.len() || stage.jobs.values().any(|j| j.end.is_none()) {
        if sys::interrupted().is_some() {
            return Err(Error::Interrupted);
        }
        if stage.start.elapsed() > deadline {
            return Err(Error::Late {
                what: "the end of the work".into(),
                seconds: deadline.as_secs(),
                detail: String::new(),
            });
        }
        let now = stage.now();
        while let Some((_, act)) = next.next_if(|(at, _)| *at <= now) {
            stage.act(*act)?;
        }
        stage.reap()?;
        watch.look();
        std::thread::sleep(TICK);
    }
    stage.users.clear();
    for change in std::mem::take(&mut stage.changes) {
        change.join().map_err(|_| Error::Other("a change of the cluster broke off".into()))??;
    }
    let happened = happened(plan, &before);
    let (moves, most_moves) = moved(&happened);
    let mut outcome = Outcome { moves, most_moves, memory: watch.memory, paged: watch.short_s, ..Outcome::default() };
    let ends: Vec<u64> = stage.jobs.values().filter_map(|j| j.end.as_ref()).map(|e| e.0).collect();
    outcome.times = Times::of(trial, &ends);
    let said = |j: &Job| j.end.clone().map(|e| e.1);
    let results: Vec<Option<String>> = stage.jobs.values().map(|j| said(j).and_then(std::result::Result::ok)).collect();
    outcome.lost = results.iter().filter(|r| r.is_none()).count();
    let lost = stage.jobs.values().filter_map(|j| said(j)?.err()).collect();
    let ends_s = ends.iter().map(|us| *us as f64 / 1e6).collect();
    let begun_ms = begun.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis()) as f64;
    let line = |(_, e): &(String, Event)| {
        let at = (e.time_ms as f64 - begun_ms) / 1000.0;
        matches!(e.kind.as_str(), "move" | "failed" | "lost" | "still").then(|| (at, e.text.clone()))
    };
    let ended_s = ends.iter().max().map_or(0.0, |us| *us as f64 / 1e6);
    let done = acts.iter().map(|(at, act)| (*at as f64 / 1e6, act)).filter(|(at, _)| *at < ended_s);
    let mut events: Vec<(f64, String)> = done.filter_map(|(at, act)| Some((at, act.text(trial)?))).collect();
    events.extend(happened.iter().filter_map(line));
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let events = events.into_iter().map(|(at, text)| format!("{at:.1} s: {text}")).collect();
    Ok(Play { outcome, results, starved: watch.starved(), lost, ends_s, events })
}

/// All that happens, in order.
fn acts(trial: &Trial, moves: bool) -> Vec<(u64, Act)> {
    let mut all: Vec<(u64, Act)> = trial.jobs.iter().enumerate().map(|(i, j)| (j.from_us, Act::Begin(i))).collect();
    for (i, l) in trial.loads.iter().enumerate() {
        all.extend([(l.from_us, Act::Come(i)), (l.until_us, Act::Go(i))]);
    }
    for (i, s) in trial.sites.iter().enumerate().filter(|_| moves) {
        all.extend([(s.from_us, Act::Join(i)), (s.until_us, Act::Drain(i)), (s.gone_us, Act::Leave(i))]);
    }
    all.retain(|(at, act)| *at < u64::MAX && !(*at == 0 && matches!(act, Act::Join(_))));
    all.sort_by_key(|a| a.0);
    all
}

impl Stage<'_> {
    fn now(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn act(&mut self, act: Act) -> Result<()> {
        let node = |i: usize| self.plan.nodes().swap_remove(i);
        match act {
            Act::Begin(i) => {
                let job = &self.trial.jobs[i];
                let units = |ms: f64| (ms / self.unit_ms).round() as u64;
                let words = [units(job.work_ms).max(1), job.size, units(job.grow_ms)];
                let run: &[&str] = if self.moves { &["run"] } else { &["run", "--no-move"] };
                let job = self.start(&node(job.home as usize), run, words)?;
                self.jobs.insert(i, job);
            }
            Act::Come(i) => {
                // Not by `pando run`: nobody moves it.
                let job = self.start(&node(self.trial.loads[i].node as usize), &[], [ENDLESS, 0, 0])?;
                self.users.insert(i, job);
            }
            Act::Go(i) => drop(self.users.remove(&i)),
            Act::Join(i) => self.change(i, cluster::start),
            Act::Drain(i) => self.change(i, |plan, node| api::drain(&plan.socket(node), node, true)),
            Act::Leave(i) => self.change(i, leave),
        }
        Ok(())
    }

    fn start(&self, node: &str, first: &[&str], words: [u64; 3]) -> Result<Job> {
        let mut command = work::command(self.plan, node, first, words)?;
        let child = command.stderr(Stdio::null()).spawn().context("start work")?;
        Ok(Job { child, end: None })
    }

    fn change(&mut self, node: usize, how: fn(&Plan, &str) -> Result<()>) {
        let (plan, node) = (self.plan.clone(), self.plan.nodes().swap_remove(node));
        self.changes.push(std::thread::spawn(move || how(&plan, &node)));
    }

    /// Who has ended?
    fn reap(&mut self) -> Result<()> {
        let now = self.now();
        for job in self.jobs.values_mut().filter(|j| j.end.is_none()) {
            if let Some(status) = job.child.try_wait().context("wait for work")? {
                let mut text = String::new();
                if let Some(mut out) = job.child.stdout.take() {
                    out.read_to_string(&mut text).context("read what the work said")?;
                }
                let said = work::said(&text).filter(|_| status.success()).map(|s| s.0);
                job.end = Some((now, said.ok_or_else(|| status.to_string())));
            }
        }
        Ok(())
    }
}

/// It goes once it is empty.
fn leave(plan: &Plan, node: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let nodes = api::nodes(&plan.socket(node))?;
        if nodes.iter().any(|n| n.name == node && n.guests == 0) {
            break;
        }
        if begun.elapsed() > EMPTYING {
            return Err(Error::Late {
                what: format!("the emptying of {node}"),
                seconds: EMPTYING.as_secs(),
                detail: String::new(),
            });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    match faults::daemon(plan, plan.index(node)?) {
        Some(daemon) => sys::kill(daemon.pid, libc::SIGTERM).context(format!("end the daemon of {node}")),
        None => Ok(()),
    }
}

/// Waits until nothing wants to run anywhere, as the nodes see it, and all that are up know of each other.
fn settle(plan: &Plan) -> Result<()> {
    let begun = Instant::now();
    loop {
        let up: Vec<Vec<api::Node>> = plan.nodes().iter().filter_map(|n| api::nodes(&plan.socket(n)).ok()).collect();
        let knows = |list: &Vec<api::Node>| list.iter().filter(|n| n.state == "up").count() == up.len();
        let quiet = |list: &Vec<api::Node>| list.iter().all(|n| n.state != "up" || n.runnable < QUIET);
        if up.iter().all(|list| knows(list) && quiet(list)) {
            return Ok(());
        }
        if sys::interrupted().is_some() {
            return Err(Error::Interrupted);
        }
        if begun.elapsed() > SETTLING {
            return Err(Error::Late {
                what: "quiet on all nodes".into(),
                seconds: SETTLING.as_secs(),
                detail: " (something computes there)".into(),
            });
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The newest event of each node.
fn seqs(plan: &Plan) -> BTreeMap<String, u64> {
    let newest = |node: String| {
        let all = api::events(&plan.socket(&node), 0).unwrap_or_default();
        (node, all.iter().map(|e| e.seq).max().unwrap_or(0))
    };
    plan.nodes().into_iter().map(newest).collect()
}

/// What happened at each node since then, in order.
fn happened(plan: &Plan, since: &BTreeMap<String, u64>) -> Vec<(String, Event)> {
    let of = |node: String| {
        let known = since.get(&node).copied().unwrap_or(0);
        let all = api::events(&plan.socket(&node), known).unwrap_or_default();
        all.into_iter().map(move |e| (node.clone(), e))
    };
    let mut all: Vec<(String, Event)> = plan.nodes().into_iter().flat_map(of).collect();
    all.sort_by_key(|(_, e)| e.time_ms);
    all
}

/// Moves, and of one process at most. A move is an event of its process's home.
fn moved(happened: &[(String, Event)]) -> (u64, u32) {
    let mut each: BTreeMap<(&str, u32), u32> = BTreeMap::new();
    for (node, event) in happened {
        if let (Some(pid), "move") = (event.pid, event.kind.as_str()) {
            *each.entry((node, pid)).or_default() += 1;
        }
    }
    (each.values().map(|n| u64::from(*n)).sum(), each.values().max().copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_in_order_and_nobody_comes_or_goes_without_moves() {
        let trial = Trial::new(4, 4, 3);
        let all = acts(&trial, true);
        assert!(all.windows(2).all(|w| w[0].0 <= w[1].0));
        let count = |what: fn(&Act) -> bool| all.iter().filter(|a| what(&a.1)).count();
        assert_eq!(count(|a| matches!(a, Act::Begin(_))), 8);
        assert_eq!(count(|a| matches!(a, Act::Join(_))), 1);
        assert_eq!(count(|a| matches!(a, Act::Leave(_))), 1);
        assert_eq!(count(|a| matches!(a, Act::Drain(_))), 2);
        assert!(acts(&trial, false).iter().all(|a| matches!(a.1, Act::Begin(_))));
    }
}
