//! What people mean by the numbers of jobs, also of those that the queue has forgotten.

use super::clerk::Desk;
use super::journal::{Journal, Search};
use pando_queue::{Id, Queue, Spec, State};
use std::collections::BTreeMap;

/// Each becomes what is meant by it: a task of an array may be called by its own number.
pub async fn all(desk: &Desk, ids: Vec<&mut Id>) -> Result<(), String> {
    // Most jobs are no arrays, and most tasks are called by their array's number.
    let plain: Vec<Id> = ids.iter().map(|id| **id).collect();
    if plain.iter().all(|id| id.task.is_some()) {
        return Ok(());
    }
    let look = move |queue: &Queue, journal: &Journal| plain.into_iter().map(|id| one(queue, journal, id)).collect();
    let found: Vec<Id> = desk.look(look).await?;
    ids.into_iter().zip(found).for_each(|(id, found)| *id = found);
    Ok(())
}

fn one(queue: &Queue, journal: &Journal, id: Id) -> Id {
    let found = queue.named(id);
    if found != id || id.task.is_some() || queue.job(id.job).is_some() {
        return found;
    }
    match journal.upto(id.job) {
        Ok(Some(job)) if job < id.job => {
            let search = Search { job: Some(job), most: u32::MAX, ..Search::default() };
            let old = journal.history(&search).unwrap_or_default();
            old.iter().map(|old| &old.outcome).find(|o| o.asked.number == id.job).map_or(id, |outcome| outcome.id)
        }
        _ => id,
    }
}

/// What a new job waits for: terms about jobs that the queue has forgotten are met, or it is refused. The error is for people.
pub async fn dependency(desk: &Desk, spec: &mut Spec) -> Result<(), String> {
    if spec.dependency.terms.is_empty() {
        return Ok(());
    }
    let mut wanted = spec.dependency.clone();
    let tasks = spec.array.as_ref().map(|array| array.tasks.clone());
    let look = move |queue: &Queue, journal: &Journal| {
        for term in wanted.terms.iter_mut().filter(|term| term.job > 0 && term.task.is_none()) {
            let meant = one(queue, journal, Id::of(term.job));
            (term.job, term.task) = (meant.job, meant.task);
        }
        wanted.without_past(tasks.as_ref(), |job| match queue.job(job) {
            Some(_) => None,
            None => ended(journal, job),
        })
    };
    spec.dependency = desk.look(look).await??;
    Ok(())
}

/// How the tasks of a job ended that the queue has forgotten; none, if the history does not know it either.
fn ended(journal: &Journal, job: u64) -> Option<BTreeMap<Option<u32>, State>> {
    let old = journal.history(&Search { job: Some(job), most: u32::MAX, ..Search::default() }).ok()?;
    let ends = old.iter().map(|old| &old.outcome).filter(|outcome| outcome.state.is_final());
    let all: BTreeMap<Option<u32>, State> = ends.map(|outcome| (outcome.id.task, outcome.state)).collect();
    (!all.is_empty()).then_some(all)
}
