//! What jobs that run have used until now: their helpers know, and are asked when somebody wants to see it.

use super::clerk::Desk;
use super::deliver;
use super::errand::{Errand, Key};
use crate::daemon::Node;
use pando_queue::{Id, Queue, Usage};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A node that does not answer within this is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many jobs are asked for at once.
const MOST: usize = 2000;

/// Of these jobs, or tasks; of all that run, if there are none. Those of whom nobody could say it are left out.
pub async fn used(node: &Arc<Node>, desk: &Desk, ids: Vec<Id>) -> Result<Vec<(Id, Usage)>, String> {
    let keeper = deliver::keeper(node, desk);
    let look = move |queue: &Queue| {
        let mut places: BTreeMap<String, Vec<Key>> = BTreeMap::new();
        for (job, task, run) in queue.runs().filter(|(_, _, run)| run.began.is_some()) {
            let id = job.name_of(task);
            let is_meant =
                ids.is_empty() || ids.iter().any(|w| w.job == id.job && (w.task.is_none() || w.task == id.task));
            let first = run.shares.first().filter(|_| is_meant);
            let key = Key { keeper: keeper.clone(), id, run: run.run };
            first.into_iter().for_each(|share| places.entry(share.node.clone()).or_default().push(key.clone()));
        }
        places
    };
    let places = desk.look(move |queue, _| look(queue)).await?;
    let asks = places.into_iter().map(|(to, mut keys)| {
        keys.truncate(MOST);
        let (node, desk) = (node.clone(), desk.clone());
        tokio::spawn(async move {
            let errand = Errand::Uses(keys);
            let answer = timeout(PATIENCE, deliver::order(&node, &desk, &to, &errand)).await;
            let text = answer.ok().and_then(Result::ok).unwrap_or_default();
            serde_json::from_slice::<Vec<(Key, Usage)>>(&text).unwrap_or_default()
        })
    });
    let mut all = Vec::new();
    for ask in asks.collect::<Vec<_>>() {
        all.extend(ask.await.unwrap_or_default().into_iter().map(|(key, usage)| (key.id, usage)));
    }
    Ok(all)
}
