//! What becomes true because time passes, and when the next such thing is due.

use crate::away::{Phase, ROOTED_MS};
use crate::book::Task;
use crate::change::{Change, Effect};
use crate::depend::{Kind, Standing, Term};
use crate::job::{Cause, Job, Run, State};
use crate::queue::Queue;
use std::collections::BTreeMap;

/// The number of the earliest job of a user that has a name and is not over.
pub(crate) type Earliest = BTreeMap<(String, String), u64>;

impl Queue {
    pub(crate) fn tick(&mut self) {
        let now = self.now;
        if !self.stirred && self.due.is_none_or(|due| now < due) {
            return;
        }
        self.limits();
        self.orphans();
        self.forget();
        self.stirred = false;
        let more = self.pass();
        self.stirred = more;
        self.due = self.next_due();
    }

    /// Those whose time is over.
    fn limits(&mut self) {
        let now = self.now;
        let mut ends: Vec<(Task, Cause)> = Vec::new();
        for (job, task, run) in self.runs().filter(|(_, _, run)| run.ending.is_none()) {
            if job.spec.deadline.is_some_and(|deadline| deadline <= now) {
                ends.push(((job.id, task), Cause::Deadline));
            } else if job.spec.limit_ms.is_some_and(|limit| run.ran(now) >= limit) {
                ends.push(((job.id, task), Cause::Timeout));
            }
        }
        ends.into_iter().for_each(|(task, cause)| self.end(task, cause));
        self.warn();
        let late = |job: &&Job| last_start(job).is_some_and(|last| last < now);
        let late: Vec<u64> = self.waiting().filter(late).map(|job| job.id).collect();
        for id in late {
            let tasks = self.book.jobs[&id].waiting.clone();
            self.over(id, tasks, State::Deadline);
        }
        let past: Vec<String> =
            self.book.reservations.values().filter(|r| r.end <= now).map(|r| r.name.clone()).collect();
        past.into_iter().for_each(|name| self.write(Change::Unreserved(name)));
    }

    /// Those whose time is nearly over, and who want to know.
    fn warn(&mut self) {
        let now = self.now;
        let due = self.runs().filter(|(job, _, run)| {
            run.ending.is_none() && run.began.is_some() && warning(job, run, now).is_some_and(|left| left == 0)
        });
        let due: Vec<_> = due.map(|(job, task, run)| ((job.id, task), job.name_of(task), run.run)).collect();
        for (task, id, run) in due {
            self.write(Change::Warned(task.0, task.1));
            self.effects.push(Effect::Warn(id, run));
        }
    }

    /// What a job was to wait for, if that can't be met any more.
    pub fn unmet(&self, job: u64) -> Option<String> {
        let job = self.job(job).filter(|job| !job.spec.dependency.terms.is_empty())?;
        let never = self.standing(job, None, &Earliest::new()) == Standing::Never;
        never.then(|| job.spec.dependency.to_string())
    }

    /// Those whose dependency can't be met any more, and those who wait for them.
    fn orphans(&mut self) {
        loop {
            let depends = |job: &&Job| !job.spec.dependency.terms.is_empty();
            let never = |job: &&Job| self.standing(job, None, &Earliest::new()) == Standing::Never;
            let orphans: Vec<u64> = self.waiting().filter(depends).filter(never).map(|job| job.id).collect();
            if orphans.is_empty() {
                return;
            }
            for id in orphans {
                let tasks = self.book.jobs[&id].waiting.clone();
                self.over(id, tasks, State::Cancelled);
            }
        }
    }

    /// Old jobs that nobody waits for.
    fn forget(&mut self) {
        let (now, keep) = (self.now, self.settings.keep_ms);
        let too_many = self.book.over.len().saturating_sub(self.settings.keep_most);
        let old = self.book.over.iter().enumerate();
        let old = old.take_while(|(i, (ended, _))| *i < too_many || ended.saturating_add(keep) <= now);
        let old = old.map(|(_, (_, job))| *job).filter(|job| !self.book.needed.contains_key(job));
        let old: Vec<u64> = old.collect();
        old.into_iter().for_each(|job| self.write(Change::Forgotten(job)));
    }

    /// Jobs with tasks that wait, by number.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Job> {
        let (waiting, jobs) = (&self.book.waiting, &self.book.jobs);
        // To pass by some that do not wait is quicker than to look each one up.
        let most = waiting.len() * 4 > jobs.len();
        let most_of_all = most.then(|| jobs.values().filter(|job| !job.waiting.is_empty()));
        let few = (!most).then(|| waiting.iter().filter_map(|id| jobs.get(id)));
        most_of_all.into_iter().flatten().chain(few.into_iter().flatten())
    }

    /// How it stands with what a job waits for; for one of its tasks, or for the first that could start.
    pub(crate) fn standing(&self, job: &Job, task: Option<u32>, earliest: &Earliest) -> Standing {
        job.spec.dependency.standing(|term| self.term(job, task, term, earliest))
    }

    fn term(&self, job: &Job, task: Option<u32>, term: &Term, earliest: &Earliest) -> Standing {
        if term.kind == Kind::Singleton {
            let first = earliest.get(&(job.spec.user.clone(), job.spec.name.clone()));
            return if first.is_none_or(|first| *first >= job.id) { Standing::Met } else { Standing::Waits };
        }
        // It was there when this one was taken, so it has been met before, and this one runs again.
        let Some(other) = self.book.jobs.get(&term.job) else { return Standing::Met };
        let well = other.over.get(&State::Completed);
        let (over, good) = match term.task {
            Some(task) => (other.state(task).is_none_or(State::is_final), well.is_some_and(|well| well.contains(task))),
            None => (other.is_over(), other.over.keys().all(|state| *state == State::Completed)),
        };
        let met = |met: bool| if met { Standing::Met } else { Standing::Waits };
        match term.kind {
            Kind::After => {
                let started = match term.task {
                    Some(task) => !other.waiting.contains(task),
                    None => other.waiting.is_empty(),
                };
                let later = other.last_start.unwrap_or(0).saturating_add(u64::from(term.minutes) * 60_000);
                met(started && later <= self.now)
            }
            Kind::AfterAny => met(over),
            Kind::AfterOk if !good && (over || term.task.is_none() && !other.over.is_empty()) => Standing::Never,
            Kind::AfterOk => met(over && good),
            Kind::AfterNotOk if over && good => Standing::Never,
            Kind::AfterNotOk => met(over && !good),
            Kind::AfterCorr => match task {
                Some(task) => met(well.is_some_and(|well| well.contains(task))),
                None => {
                    let some = well.is_some_and(|well| !well.both(&job.waiting).is_empty());
                    let possible = !other.is_over() || some;
                    if some {
                        Standing::Met
                    } else if possible {
                        Standing::Waits
                    } else {
                        Standing::Never
                    }
                }
            },
            Kind::Singleton => Standing::Met,
        }
    }

    /// When somebody's time is over, begins, or something is forgotten.
    fn next_due(&self) -> Option<u64> {
        let now = self.now;
        let runs = self.runs().filter(|(_, _, run)| run.ending.is_none()).flat_map(|(job, _, run)| {
            let limit = job.spec.limit_ms.filter(|_| run.suspended_at.is_none());
            let left = limit.map(|limit| now.saturating_add(limit.saturating_sub(run.ran(now))));
            let warned = warning(job, run, now).filter(|_| run.suspended_at.is_none() && run.began.is_some());
            [left, job.spec.deadline, warned.map(|left| now.saturating_add(left))]
        });
        // Who is away may come home.
        let comes = self.runs().filter_map(|(_, _, run)| {
            let away = run.away.as_ref().filter(|away| away.phase == Phase::There && run.ending.is_none())?;
            let rested = run.rooted.as_ref().map_or(0, |rooted| rooted.at.saturating_add(ROOTED_MS));
            Some(away.since.saturating_add(self.settings.home_after_ms).max(rested)).filter(|at| *at > now)
        });
        let begins = self.waiting().flat_map(|job| {
            let after = job.spec.dependency.terms.iter().filter(|t| t.minutes > 0).filter_map(|t| {
                let start = self.book.jobs.get(&t.job)?.last_start?;
                Some(start.saturating_add(u64::from(t.minutes) * 60_000))
            });
            let after = after.filter(|at| *at > now).min();
            [Some(job.not_before).filter(|at| *at > now), last_start(job).map(|at| at.saturating_add(1)), after]
        });
        let reserved = self.book.reservations.values().flat_map(|r| [Some(r.begin), Some(r.end)]);
        let old = |(ended, _): &(u64, u64)| ended.saturating_add(self.settings.keep_ms);
        // Those that somebody waits for are forgotten when he has something to say.
        let old = self.book.over.iter().find(|(_, job)| !self.book.needed.contains_key(job)).map(old);
        let all = runs.chain(begins).flatten().chain(comes).chain(reserved.flatten().filter(|at| *at > now)).chain(old);
        all.min().map(|at| at.max(now.saturating_add(1)))
    }
}

/// How long it is until a task gets the signal that it wants before its end.
fn warning(job: &Job, run: &Run, now: u64) -> Option<u64> {
    let before = job.spec.signal.filter(|_| !run.warned)?.before_ms;
    Some(job.spec.limit_ms?.saturating_sub(before).saturating_sub(run.ran(now)))
}

/// When a job must have started at the latest to end by its deadline.
pub(crate) fn last_start(job: &Job) -> Option<u64> {
    job.spec.deadline.map(|deadline| deadline.saturating_sub(job.spec.limit_ms.unwrap_or(0)))
}
