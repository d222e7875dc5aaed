//! What a queue knows for good. Everything in it changes by [`Book::apply`] only, so what the records make is what was there.

use crate::away::{Away, Phase, Rooted};
use crate::change::{Change, Record, Reservation, Update};
use crate::depend::Kind;
use crate::job::{Job, Run, State};
use crate::share::{Had, Whose, used};
use std::collections::{BTreeMap, BTreeSet};

/// A task: its job and its number.
pub(crate) type Task = (u64, u32);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Book {
    pub(crate) jobs: BTreeMap<u64, Job>,
    pub(crate) next: u64,
    pub(crate) had: BTreeMap<Whose, Had>,
    pub(crate) reservations: BTreeMap<String, Reservation>,
    /// Jobs with tasks that wait.
    pub(crate) waiting: BTreeSet<u64>,
    /// Tasks that have nodes.
    pub(crate) running: BTreeSet<Task>,
    /// Jobs that are over: when, and which.
    pub(crate) over: BTreeSet<(u64, u64)>,
    /// Jobs that waiting ones depend on, and how many do.
    pub(crate) needed: BTreeMap<u64, usize>,
    /// Jobs that are not over, of each user.
    pub(crate) of_user: BTreeMap<String, usize>,
    /// Jobs that were submitted with a ticket: by user and ticket.
    pub(crate) tickets: BTreeMap<(String, String), u64>,
    half_life: u64,
}

fn depends_on(job: &Job) -> impl Iterator<Item = u64> + '_ {
    job.spec.dependency.terms.iter().filter(|t| t.kind != Kind::Singleton).map(|t| t.job)
}

impl Book {
    pub(crate) fn new(half_life: u64) -> Book {
        Book { next: 1, half_life, ..Book::default() }
    }

    pub(crate) fn run(&self, task: Task) -> Option<&Run> {
        self.jobs.get(&task.0)?.running.get(&task.1)
    }

    /// Takes a job out of all indexes, changes it, and puts it back: so they can't disagree.
    fn change(&mut self, id: u64, at: u64, what: impl FnOnce(&mut Job)) {
        let Some(mut job) = self.jobs.remove(&id) else { return };
        self.index(&job, false);
        what(&mut job);
        job.ended = match (job.is_over(), job.ended) {
            (true, None) => Some(at),
            (true, ended) => ended,
            (false, _) => None,
        };
        self.index(&job, true);
        self.jobs.insert(id, job);
    }

    fn index(&mut self, job: &Job, there: bool) {
        fn count<K: Ord + Clone>(all: &mut BTreeMap<K, usize>, key: &K, there: bool) {
            let count = all.entry(key.clone()).or_default();
            *count = if there { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                all.remove(key);
            }
        }
        if !job.waiting.is_empty() {
            if there {
                self.waiting.insert(job.id)
            } else {
                self.waiting.remove(&job.id)
            };
            for on in depends_on(job) {
                count(&mut self.needed, &on, there);
            }
        }
        if !job.spec.ticket.is_empty() {
            let name = (job.spec.user.clone(), job.spec.ticket.clone());
            match there {
                true => _ = self.tickets.insert(name, job.id),
                false => _ = self.tickets.remove(&name),
            }
        }
        match job.ended {
            Some(ended) if there => _ = self.over.insert((ended, job.id)),
            Some(ended) => _ = self.over.remove(&(ended, job.id)),
            None => count(&mut self.of_user, &job.spec.user, there),
        }
    }

    /// A task has no nodes any more: what it has had is charged.
    fn leaves(&mut self, task: Task, at: u64) {
        self.running.remove(&task);
        let half_life = self.half_life;
        let Some(job) = self.jobs.get_mut(&task.0) else { return };
        let Some(run) = job.running.remove(&task.1) else { return };
        let whose = (job.spec.account.clone(), job.spec.user.clone());
        self.had.entry(whose).or_default().add(used(run.cpus(), run.ran(at), half_life), at, half_life);
    }

    pub(crate) fn apply(&mut self, record: &Record) {
        let at = record.at;
        match &record.change {
            Change::Submitted(id, spec) => {
                let job = Job::new(*id, (**spec).clone(), at);
                self.next = self.next.max(id.saturating_add(job.numbers()));
                self.index(&job, true);
                self.jobs.insert(*id, job);
            }
            Change::Stands(job) => {
                self.index(job, true);
                self.running.extend(job.running.keys().map(|task| (job.id, *task)));
                self.jobs.insert(job.id, (**job).clone());
            }
            Change::Forgotten(id) => {
                if let Some(job) = self.jobs.remove(id) {
                    self.index(&job, false);
                }
            }
            Change::Next(next) => self.next = self.next.max(*next),
            Change::Had(account, user, cpu_ms) => {
                self.had.insert((account.clone(), user.clone()), Had { cpu_ms: *cpu_ms, at });
            }
            Change::Reserved(reservation) => {
                self.reservations.insert(reservation.name.clone(), reservation.clone());
            }
            Change::Unreserved(name) => _ = self.reservations.remove(name),
            Change::Held(id, tasks, operator) => self.change(*id, at, |job| {
                job.held.extend(tasks);
                job.held_by_operator |= operator;
            }),
            Change::Released(id, tasks) => self.change(*id, at, |job| {
                job.held = job.held.without(tasks);
                job.held_by_operator &= !job.held.is_empty();
                job.since = job.since.max(at);
            }),
            Change::Updated(id, update) => self.change(*id, at, |job| match update {
                Update::Nice(nice) => job.spec.nice = *nice,
                Update::Limit(ms) => job.spec.limit_ms = Some(*ms),
                Update::Name(name) => job.spec.name.clone_from(name),
                Update::Begin(begin) => (job.spec.begin_at, job.not_before) = (Some(*begin), *begin),
                Update::AtOnce(most) => {
                    if let Some(array) = &mut job.spec.array {
                        array.at_once = *most;
                    }
                }
            }),
            Change::Over(id, tasks, state) => self.change(*id, at, |job| {
                job.waiting = job.waiting.without(tasks);
                job.held = job.held.without(tasks);
                job.over.entry(*state).or_default().extend(tasks);
            }),
            Change::Revived(id, tasks, hold) => self.change(*id, at, |job| {
                job.over.values_mut().for_each(|over| *over = over.without(tasks));
                job.over.retain(|_, over| !over.is_empty());
                job.waiting.extend(tasks);
                tasks.iter().for_each(|task| *job.again.entry(task).or_default() += 1);
                if *hold {
                    job.held.extend(tasks);
                }
            }),
            _ => self.apply_run(record),
        }
    }

    /// Changes of a task that has nodes.
    fn apply_run(&mut self, record: &Record) {
        let at = record.at;
        match &record.change {
            Change::Started(id, task, shares) => {
                self.running.insert((*id, *task));
                self.change(*id, at, |job| {
                    job.waiting.remove(*task);
                    job.held.remove(*task);
                    job.last_start = Some(at);
                    let run = job.again.get(task).copied().unwrap_or(0);
                    let (shares, started) = (shares.clone(), at);
                    job.running.insert(*task, Run::new(run, started, shares));
                });
            }
            Change::Began(id, task) => self.change_run((*id, *task), |run| run.began = Some(at)),
            Change::Suspended(id, task) => self.change_run((*id, *task), |run| run.suspended_at = Some(at)),
            Change::Resumed(id, task) => self.change_run((*id, *task), |run| {
                run.suspended_ms += run.suspended_at.take().map_or(0, |since| at.saturating_sub(since));
            }),
            Change::Parked(id, task, parked) => self.change_run((*id, *task), |run| run.parked = *parked),
            Change::Stepped(id, task, step) => self.change_run((*id, *task), |run| run.steps.note(step)),
            Change::Sent(id, task, node) => self.change_run((*id, *task), |run| match &mut run.away {
                Some(away) if run.shares.first().is_some_and(|share| share.node == *node) => away.phase = Phase::Coming,
                away => *away = Some(Away { node: node.clone(), phase: Phase::Going, since: at }),
            }),
            Change::Placed(id, task, node) => self.change_run((*id, *task), |run| {
                let is_home = run.home() == Some(node);
                run.away = (!is_home).then(|| Away { node: node.clone(), phase: Phase::There, since: at });
            }),
            Change::Stayed(id, task, node, why) => self.change_run((*id, *task), |run| {
                run.away = run.away.take().filter(|away| away.phase == Phase::Coming);
                run.away.iter_mut().for_each(|away| away.phase = Phase::There);
                run.rooted = Some(Rooted { at, node: node.clone(), why: why.clone() });
            }),
            Change::Warned(id, task) => self.change_run((*id, *task), |run| run.warned = true),
            Change::Ending(id, task, cause) => {
                self.change_run((*id, *task), |run| run.ending = Some(cause.clone()));
            }
            Change::Ended(id, task, state, _, _) => {
                self.leaves((*id, *task), at);
                self.change(*id, at, |job| job.over.entry(*state).or_default().insert(*task));
            }
            Change::Requeued(id, task, not_before, hold) => {
                self.leaves((*id, *task), at);
                self.change(*id, at, |job| {
                    *job.again.entry(*task).or_default() += 1;
                    job.waiting.insert(*task);
                    job.not_before = job.not_before.max(*not_before);
                    if *hold {
                        job.held.insert(*task);
                    }
                });
            }
            _ => {}
        }
    }

    fn change_run(&mut self, task: Task, what: impl FnOnce(&mut Run)) {
        if let Some(run) = self.jobs.get_mut(&task.0).and_then(|job| job.running.get_mut(&task.1)) {
            what(run);
        }
    }

    /// Records that make this book, and no more of them than there are jobs and users.
    pub(crate) fn records(&self, now: u64) -> Vec<Record> {
        let record = |change| Record { at: now, change };
        let mut all = vec![record(Change::Next(self.next))];
        let had = |(whose, had): (&Whose, &Had)| {
            let (account, user) = whose.clone();
            Record { at: had.at, change: Change::Had(account, user, had.cpu_ms) }
        };
        all.extend(self.had.iter().map(had));
        all.extend(self.reservations.values().map(|r| record(Change::Reserved(r.clone()))));
        all.extend(self.jobs.values().map(|j| record(Change::Stands(Box::new(j.clone())))));
        all
    }

    /// What the whole of a job came to, if it is over.
    pub(crate) fn result(job: &Job) -> Option<State> {
        let worst = |states: &[State]| states.iter().copied().find(|s| job.over.contains_key(s));
        let order =
            [State::Failed, State::OutOfMemory, State::Timeout, State::NodeFail, State::Deadline, State::Cancelled];
        job.is_over().then(|| worst(&order).unwrap_or(State::Completed))
    }
}
