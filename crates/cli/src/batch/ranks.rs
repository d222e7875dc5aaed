//! `pando info --ranks`: what each rank of a job's steps has used.

use super::accounts::{end, exact};
use super::ask;
use crate::show::{print_json, print_table};
use pando_node::client::Client;
use pando_node::queue::ask::{Ask, Past, Shown};
use pando_queue::{How, Id, Job, RankUsage, RankUse, Step};
use serde::Serialize;

/// One of them, as JSON has it.
#[derive(Serialize)]
struct Row {
    step: String,
    name: String,
    rank: u32,
    node: String,
    how: How,
    #[serde(flatten)]
    usage: RankUsage,
}

fn rows(id: Id, steps: &[Step]) -> Vec<Row> {
    let of_step = |step: &Step| {
        let one = |of: &RankUse| Row {
            step: format!("{id}.{}", step.number),
            name: step.name.clone(),
            rank: of.rank,
            node: of.node.clone(),
            how: of.how.clone(),
            usage: of.usage,
        };
        step.ranks.iter().map(one).collect::<Vec<_>>()
    };
    steps.iter().flat_map(of_step).collect()
}

/// Steps of tasks that have nodes now.
fn running(job: &Job, id: Id) -> Vec<Row> {
    let meant = job.running.iter().filter(|(task, _)| id.task.is_none_or(|wanted| wanted == **task));
    meant.flat_map(|(task, run)| rows(job.name_of(*task), &run.steps.all)).collect()
}

/// Prints them, those of the job's earlier runs first.
pub fn show(client: &Client, id: Id, json: bool) -> Result<(), String> {
    let id = super::named(client, id)?;
    let what = Ask::History { user: None, job: Some(id.job), since: 0, most: 1000 };
    let past: Vec<Past> = ask(client, &what)?;
    let meant = past.iter().map(|past| &past.outcome).filter(|o| id.task.is_none() || o.id.task == id.task);
    let mut all: Vec<Row> = meant.flat_map(|o| rows(o.id, &o.run.steps.all)).collect();
    // The queue forgets jobs sooner than the history does.
    let now: Result<Shown, String> = ask(client, &Ask::Show(id));
    match now {
        Ok(shown) => all.extend(running(&shown.job, id)),
        Err(why) if past.is_empty() => return Err(why),
        Err(_) => {}
    }
    if json {
        return print_json(&all);
    }
    let bytes = |n: u64| pando_queue::sizes::show(n.div_ceil(1 << 20));
    let cells = |row: &Row| {
        let Row { rank, node, how, usage, .. } = row;
        let (cpu, memory) = (exact(usage.cpu_ms), format!("{}K", usage.memory_kb));
        let (read, written) = (bytes(usage.read), bytes(usage.written));
        vec![row.step.clone(), row.name.clone(), rank.to_string(), node.clone(), end(how), cpu, memory, read, written]
    };
    let names = ["STEP", "NAME", "RANK", "NODE", "EXIT", "CPU", "MEMORY", "READ", "WRITTEN"];
    print_table(&names, &all.iter().map(cells).collect::<Vec<_>>(), usize::MAX);
    Ok(())
}
