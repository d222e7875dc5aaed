//! Who comes first.

use crate::job::{Job, Run};
use crate::queue::Queue;
use crate::share::{Had, Whose, factors, used};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A place in the order: a job that waits, or a task that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) job: u64,
    pub(crate) suspended: Option<u32>,
    pub(crate) priority: i64,
}

/// Why a job has its place: the parts of its priority, which are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// For how long it has waited.
    pub age: i64,
    /// For how little of its share its user has had.
    pub share: i64,
    /// For how much it wants.
    pub size: i64,
    /// For its quality of service.
    pub quality: i64,
    /// What its user takes from it.
    pub nice: i64,
}

impl Priority {
    /// All of it.
    pub fn sum(&self) -> i64 {
        self.age + self.share + self.size + self.quality - self.nice
    }
}

impl Queue {
    /// How much of its share each user that has had something or waits has left: 1 is all of it.
    pub fn shares(&self) -> BTreeMap<Whose, f64> {
        let half_life = self.settings.half_life_ms;
        let later = |had: &Had| had.later(self.now, half_life);
        let mut had: BTreeMap<Whose, f64> = self.book.had.iter().map(|(w, h)| (w.clone(), later(h))).collect();
        for (job, _, run) in self.runs() {
            let whose = (job.spec.account.clone(), job.spec.user.clone());
            *had.entry(whose).or_default() += used(run.cpus(), run.ran(self.now), half_life);
        }
        let waiting: HashSet<(&str, &str)> = self.waiting().map(|j| (&*j.spec.account, &*j.spec.user)).collect();
        for (account, user) in waiting {
            had.entry((account.to_owned(), user.to_owned())).or_default();
        }
        factors(&had, &self.settings.shares)
    }

    /// `share`: how much of its share its user has left ([`Queue::shares`]).
    pub(crate) fn priority_of(&self, job: &Job, share: f64, cpus: u64) -> Priority {
        let (weights, spec) = (&self.settings.weights, &job.spec);
        let part = |weight: u32, of: f64| (f64::from(weight) * of.clamp(0.0, 1.0)) as i64;
        let age = self.now.saturating_sub(job.since) as f64 / self.settings.oldest_ms.max(1) as f64;
        let size = spec.request.least_cpus() as f64 / cpus.max(1) as f64;
        let quality = f64::from(self.settings.quality(spec.quality.as_deref()).priority) / 1000.0;
        Priority {
            age: part(weights.age, age),
            share: part(weights.share, share),
            size: part(weights.size, size),
            quality: part(weights.quality, quality),
            nice: i64::from(spec.nice),
        }
    }

    /// The priorities of all jobs that wait, by number; of those that are held as well.
    pub fn priorities(&self) -> HashMap<u64, i64> {
        let waiting: Vec<&Job> = self.jobs().filter(|job| !job.waiting.is_empty()).collect();
        if waiting.is_empty() {
            return HashMap::new();
        }
        let (shares, cpus) = (self.shares(), self.cpus());
        let shares: HashMap<(&str, &str), f64> = shares.iter().map(|((a, u), share)| ((&**a, &**u), *share)).collect();
        let share = |job: &Job| shares.get(&(&*job.spec.account, &*job.spec.user)).copied().unwrap_or(1.0);
        waiting.into_iter().map(|job| (job.id, self.priority_of(job, share(job), cpus).sum())).collect()
    }

    pub(crate) fn cpus(&self) -> u64 {
        self.nodes.values().map(|n| u64::from(n.cpus)).sum()
    }

    /// Those that wait and those that stand still, in their order. Those of a higher level than one that stands still come before it, and it
    /// comes before all others: it has begun.
    pub(crate) fn order(&self) -> Vec<Place> {
        let level = |job: &Job| self.settings.quality(job.spec.quality.as_deref()).level;
        let (shares, cpus) = (self.shares(), self.cpus());
        let shares: HashMap<(&str, &str), f64> = shares.iter().map(|((a, u), share)| ((&**a, &**u), *share)).collect();
        let priority = |job: &Job| {
            let share = shares.get(&(&*job.spec.account, &*job.spec.user)).copied().unwrap_or(1.0);
            self.priority_of(job, share, cpus).sum()
        };
        let still = |run: &Run| run.suspended_at.is_some() && run.ending.is_none() && !run.parked && !run.is_moving();
        let suspended: Vec<(&Job, u32)> =
            self.runs().filter(|(_, _, run)| still(run)).map(|(job, task, _)| (job, task)).collect();
        let lowest = suspended.iter().map(|(job, _)| level(job)).min();
        let mut order = Vec::new();
        for job in self.waiting() {
            let priority = priority(job);
            let class = if lowest.is_some_and(|lowest| level(job) > lowest) { 2 } else { 0 };
            order.push((class, Place { job: job.id, suspended: None, priority }));
        }
        for (job, task) in suspended {
            let priority = priority(job);
            order.push((1, Place { job: job.id, suspended: Some(task), priority }));
        }
        order.sort_by_key(|(class, p)| (Reverse(*class), Reverse(p.priority), p.job, p.suspended));
        order.into_iter().map(|(_, place)| place).collect()
    }
}
